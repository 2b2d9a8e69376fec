// SPDX-License-Identifier: Apache-2.0
//! Text for people avoids phrases that a reader has to decode: help, messages and documentation.

use crate::PROGRAM;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Phrases that are not used, and what to write.
const BANNED: [(&str, &str); 43] = [
    ("anew", "again"),
    ("are told", "receive, are notified"),
    ("beside", "alongside, in addition to"),
    ("but for", "except"),
    ("by nothing", "nothing, not"),
    ("calls itself", "has the name"),
    ("come faster", "exceed the rate"),
    ("comes back", "returns"),
    ("for good", "permanently"),
    ("foreign delay", "external delay"),
    ("for those to come", "for late joiners"),
    ("gave way", "was closed, was dropped"),
    ("given up lately", "dropped recently"),
    ("go on", "continue"),
    ("goes without", "has no"),
    ("going on", "continuing"),
    ("hardly", "rarely, barely, or a number"),
    ("have to know", "need"),
    ("heed", "follow, use"),
    ("in vain", "without effect"),
    ("is put before", "is the prefix of"),
    ("is told", "receives, is notified"),
    ("keep out", "exclude"),
    ("lest", "so that ... not"),
    ("let go", "sent, released"),
    ("lets go", "sends, releases"),
    ("looked into", "examined, searched"),
    ("no way back", "no route"),
    ("no way to", "no path to"),
    ("of late", "recently, or a time"),
    ("pass on", "forward"),
    ("passed on", "forwarded"),
    ("rooms", "modules"),
    ("silence is silence", "no safe messages"),
    ("so long", "the duration"),
    ("so many", "the number"),
    ("so much", "the amount"),
    ("so often", "the interval"),
    ("tells of", "reports, describes"),
    ("told of", "notified of"),
    ("what it senses", "observations"),
    ("what waits", "the queue, queued messages"),
    ("will not fit", "do not match, is too large"),
];

fn files_below(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, ending, found);
        } else if path.to_str().is_some_and(|path| path.ends_with(ending)) {
            found.push(path);
        }
    }
}

/// The string literals of Rust source outside comments and unit tests, one per line.
fn literals(source: &str) -> String {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n").replace("'\"'", "").replace("\\\"", "'");
    code.split('"').skip(1).step_by(2).map(|text| text.replace('\n', " ") + "\n").collect()
}

/// Whether a phrase occurs in a line between characters that are no letters.
fn contains(line: &str, phrase: &str) -> bool {
    let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(phrase).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + phrase.len()..]);
        !is_letter(before.chars().next_back()) && !is_letter(after.chars().next())
    })
}

fn check(name: &Path, text: &str, problems: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        // Spaces of continued lines are one.
        let words = line.split([' ', '\\']).filter(|word| !word.is_empty());
        let line = words.collect::<Vec<_>>().join(" ").to_lowercase();
        for (phrase, instead) in BANNED.iter().filter(|(phrase, _)| contains(&line, phrase)) {
            let (name, number) = (name.display(), number + 1);
            problems.push(format!("{name}:{number}: '{phrase}', better {instead}: {line}"));
        }
    }
}

#[test]
fn text_for_people_has_no_banned_phrase() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"]
        .map(|name| root.join(name))
        .to_vec();
    files_below(&root.join("docs"), ".md", &mut pages);
    files_below(&root.join("spec"), ".md", &mut pages);
    let mut sources = Vec::new();
    for part in [
        "cli",
        "dds",
        "gateway",
        "lab",
        "medium",
        "plan",
        "proto",
        "restaurant",
        "study",
        "tautline",
    ] {
        files_below(&root.join("crates").join(part).join("src"), ".rs", &mut sources);
    }
    sources.retain(|path| !path.to_string_lossy().contains("tests"));
    assert!(pages.len() > 30 && sources.len() > 200, "{} {}", pages.len(), sources.len());
    let mut problems = Vec::new();
    for command in
        ["", "run", "check", "init", "keygen", "status", "top", "set", "reload", "audit", "doctor"]
    {
        let mut program = Command::new(PROGRAM);
        let output = program.args([command, "--help"].iter().filter(|it| !it.is_empty())).output();
        let help = String::from_utf8(output.unwrap().stdout).unwrap();
        assert!(help.contains("Usage: tautline"), "{command}: {help}");
        check(&Path::new("tautline --help of").join(command), &help, &mut problems);
    }
    for page in pages {
        check(&page, &std::fs::read_to_string(&page).unwrap(), &mut problems);
    }
    for source in sources {
        check(&source, &literals(&std::fs::read_to_string(&source).unwrap()), &mut problems);
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn a_banned_phrase_is_found_in_strings_alone() {
    let source = "/// So many.\nconst A: &str = \"it lets \\\n    go\"; // anew\nlet b = '\"';\n";
    let mut problems = Vec::new();
    check(Path::new("a.rs"), &literals(source), &mut problems);
    assert_eq!(problems.len(), 1, "{problems:?}");
    check(Path::new("a.md"), "A piece of lettuce: also many.", &mut problems);
    assert_eq!(problems.len(), 1, "{problems:?}");
}
