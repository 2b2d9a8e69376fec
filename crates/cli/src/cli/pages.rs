// SPDX-License-Identifier: Apache-2.0
//! Man pages and shell completions, from the definition of the arguments. `make packages` writes
//! them with `PAGES=FOLDER cargo test -p tautline-cli --bin tautline pages`. They are rendered in
//! a test, so that neither the program nor its build depends on the crates that render them.

mod file;

use super::Arguments;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use file::FilePage;
use std::path::{Path, PathBuf};
use tautline::config::{relay, table};

/// Shells and where their packages keep completions, relative to the folder of the pages.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/tautline"),
    (Shell::Zsh, "zsh/vendor-completions/_tautline"),
    (Shell::Fish, "fish/vendor_completions.d/tautline.fish"),
];

/// The files that people write.
const FILES: [FilePage; 2] = [
    FilePage {
        name: "robot.yaml",
        purpose: "the file of a Tautline node",
        path: "`/etc/tautline/robot.yaml`, which `tautline pair` or `tautline init` writes",
        example: file::EXAMPLE,
        keys: table::FILE,
        see_also: "`tautline`(1), `tautline-pair`(1), `tautline-check`(1), `tautline-doctor`(1), \
                   `/usr/share/doc/tautline/reference/configuration.md`",
    },
    FilePage {
        name: "relay.yaml",
        purpose: "the file of a Tautline relay",
        path: "`/etc/tautline/relay.yaml`, which `tautline init --relay` writes",
        example: file::RELAY_EXAMPLE,
        keys: relay::table::FILE,
        see_also: "`tautline-relay`(1), `tautline-check`(1), \
                   `/usr/share/doc/tautline/how-to/relays.md`",
    },
];

/// Returns the name of each man page without `.1`, and its text in roff.
fn man_pages() -> Vec<(String, String)> {
    let mut program = Arguments::command().disable_help_subcommand(true);
    program.build();
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut pages: Vec<_> = commands
        .map(|command| {
            let name = format!("tautline-{}", command.get_name());
            page(command.display_name(name.clone()), name)
        })
        .collect();
    pages.push(page(program, "tautline".to_owned()));
    pages
}

fn page(command: Command, name: String) -> (String, String) {
    let manual = format!("Tautline {}", env!("CARGO_PKG_VERSION"));
    let mut roff = Vec::new();
    clap_mangen::Man::new(command)
        .title(name.to_uppercase())
        .source(manual)
        .manual("Tautline")
        .render(&mut roff)
        .expect("memory takes what is written");
    (name, String::from_utf8(roff).expect("clap's texts are UTF-8"))
}

fn completion(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "tautline", &mut script);
    String::from_utf8(script).expect("clap's texts are UTF-8")
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).unwrap();
    std::fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

#[test]
fn pages_and_completions_have_every_command() {
    let pages = man_pages();
    let completions = COMPLETIONS.map(|(shell, name)| (name, completion(shell)));
    let program = Arguments::command();
    let names: Vec<_> = program.get_subcommands().map(|command| command.get_name()).collect();
    assert!(names.contains(&"run"), "{names:?}");
    for command in &names {
        let (_, roff) = pages
            .iter()
            .find(|(name, _)| *name == format!("tautline-{command}"))
            .unwrap_or_else(|| panic!("{command} has no page"));
        assert!(roff.contains(".SH SYNOPSIS"), "{roff}");
        for (path, script) in &completions {
            assert!(script.contains(command), "{path} lacks {command}");
        }
    }
    if let Some(folder) = std::env::var_os("PAGES").map(PathBuf::from) {
        for (name, roff) in &pages {
            write(&folder, &format!("man/man1/{name}.1"), roff);
        }
        for page in FILES {
            write(&folder, &format!("man/man5/{}.5", page.name), &page.roff());
        }
        for (path, script) in &completions {
            write(&folder, path, script);
        }
        write(&folder, "doc/tautline/examples/robot.yaml", &tautline::config::starter::starter());
    }
}

#[test]
fn the_pages_of_the_files_have_every_key() {
    for page in FILES {
        let roff = page.roff();
        for key in page.keys {
            let entry = format!(".TP\n.B {}\n", key.name.replace('-', "\\-"));
            assert!(roff.contains(&entry), "{} lacks {}: {roff}", page.name, key.name);
        }
        let keys = roff.split(".SH \"KEYS\"").nth(1).unwrap();
        assert!(!keys.contains('`') && !keys.contains("]("), "{keys}");
    }
    let robot = FILES[0].roff();
    for section in ["KEYS", "peers.NAME", "topics.NAME"] {
        assert!(robot.contains(&format!(".SH \"{section}\"\n")), "{section}: {robot}");
    }
    assert!(robot.contains("\\fBtautline keygen\\fR shows it on that robot. Default: "), "{robot}");
}
