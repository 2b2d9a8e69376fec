// SPDX-License-Identifier: Apache-2.0
//! Man pages and shell completions, from the definition of the arguments. `make packages` writes
//! them with `PAGES=FOLDER cargo test -p tautline-node --bin tautline pages`. They are rendered in
//! a test, so that neither the program nor its build depends on the crates that render them.

use super::Arguments;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use std::path::{Path, PathBuf};

/// Shells and where their packages keep completions, relative to the folder of the pages.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/tautline"),
    (Shell::Zsh, "zsh/vendor-completions/_tautline"),
    (Shell::Fish, "fish/vendor_completions.d/tautline.fish"),
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
        for (path, script) in &completions {
            write(&folder, path, script);
        }
        write(
            &folder,
            "doc/tautline/examples/robot.yaml",
            &tautline_node::config::starter::starter(),
        );
    }
}
