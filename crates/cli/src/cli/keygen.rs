// SPDX-License-Identifier: Apache-2.0
//! `tautline keygen`.

use super::{Failure, output};
use serde_json::json;
use std::path::PathBuf;
use tautline::keys::{self, KeyFileError};
use tautline_cli::unit;

/// Arguments of `tautline keygen`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tautline keygen robot1.key\n  tautline keygen --show robot1.key\n\n\
                  The file stays on the robot; the public key goes into the files of its peers.\n\
                  A key that root makes in /etc/tautline belongs to tautline, the user of the systemd unit."
)]
pub struct Arguments {
    /// Path of the secret key; `run` looks for NAME.key in the folder of the robot's file
    file: PathBuf,
    /// Show the public key of an existing file
    #[arg(long)]
    show: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Generates a key or shows an existing one.
pub fn keygen(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { file, show, json } = arguments;
    let user = unit::new_file_owner(file).filter(|_| !show);
    let public = match show {
        true => keys::load_to_show(file).map(|key| key.public()).map_err(|error| match error {
            // A user who asks to see a key has one already. The error suggests no new key, because that
            // would end all pairings.
            KeyFileError::Missing(_) => Failure::new(format!(
                "{}: no key is there; the key of a running daemon: sudo tautline status (second line); \
                 its file is in the folder of the robot's file: sudo ls {}",
                file.display(),
                unit::FOLDER
            )),
            error => Failure::new(error),
        }),
        false => keys::generate_for(file, user.as_ref().map(|it| it.owner)).map_err(Failure::new),
    }?;
    if *json {
        return output::print(&format!(
            "{}\n",
            json!({ "file": file, "public": public.to_string() })
        ));
    }
    let made = match (&user, show) {
        (_, true) => String::new(),
        (None, false) => format!("wrote {}\n", file.display()),
        (Some(user), false) => format!(
            "wrote {}, which belongs to {}, the user of the systemd unit\n",
            file.display(),
            user.name
        ),
    };
    let name = file.file_stem().map_or("robot1".into(), |stem| stem.to_string_lossy());
    output::print(&format!(
        "{made}public key: {public}\nadd this to the files of its peers:\n\npeers:\n  {name}:\n    key: {public}\n"
    ))
}
