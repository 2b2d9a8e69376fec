// SPDX-License-Identifier: Apache-2.0
//! `tautline init`.

use super::{Failure, output};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use tautline::config::starter;

/// Arguments of `tautline init`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tautline init\n  tautline init /etc/tautline/robot.yaml\n  tautline init - | less\n  tautline init --relay"
)]
pub struct Arguments {
    /// Path of the new file; - is standard output [default: robot.yaml, or relay.yaml with --relay]
    file: Option<PathBuf>,
    /// Write the file of a relay, which `tautline relay` runs
    #[arg(long)]
    relay: bool,
    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
}

pub fn init(arguments: &Arguments) -> Result<(), Failure> {
    let (default, text) = match arguments.relay {
        true => ("relay.yaml", starter::relay_starter()),
        false => ("robot.yaml", starter::starter()),
    };
    let file = arguments.file.as_deref().unwrap_or(Path::new(default));
    if file == Path::new("-") {
        return output::print(&text);
    }
    write(file, &text, arguments.force).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => {
            Failure::new(format!("{} exists already; --force overwrites it", file.display()))
        }
        _ => Failure::new(format!("{}: cannot be written: {e}", file.display())),
    })?;
    let file = file.display();
    let owner = if arguments.relay { "the relay's" } else { "this robot's" };
    let others = if arguments.relay { "members" } else { "peers" };
    output::print(&format!(
        "wrote {file}\nEdit it, create {owner} key (tautline keygen NAME.key), add its public key to the \
         files of its {others}, then run: tautline check {file}\n"
    ))
}

fn write(file: &Path, text: &str, force: bool) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    options.open(file)?.write_all(text.as_bytes())
}
