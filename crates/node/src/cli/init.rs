// SPDX-License-Identifier: Apache-2.0
//! `tautline init`.

use super::{Failure, output};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use tautline_node::config::starter;

/// Arguments of `tautline init`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tautline init\n  tautline init /etc/tautline/robot.yaml\n  tautline init - | less"
)]
pub struct Arguments {
    /// Path of the new file; - is standard output
    #[arg(default_value = "robot.yaml")]
    file: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
}

pub fn init(arguments: &Arguments) -> Result<(), Failure> {
    let file = &arguments.file;
    if file == Path::new("-") {
        return output::print(&starter::starter());
    }
    write(file, arguments.force).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => {
            Failure::new(format!("{} exists already; --force overwrites it", file.display()))
        }
        _ => Failure::new(format!("{}: cannot be written: {e}", file.display())),
    })?;
    let file = file.display();
    output::print(&format!(
        "wrote {file}\nEdit it, create this robot's key (tautline keygen NAME.key), add its public key to the \
         files of its peers, then run: tautline check {file}\n"
    ))
}

fn write(file: &Path, force: bool) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    options.open(file)?.write_all(starter::starter().as_bytes())
}
