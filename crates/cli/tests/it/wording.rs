// SPDX-License-Identifier: Apache-2.0
//! Text for people avoids phrases that a reader has to decode: help, messages, documentation, comments
//! and names of functions.

use crate::PROGRAM;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Phrases that are not used, and what to write.
const BANNED: [(&str, &str); 45] = [
    ("anew", "again"),
    ("are told", "receive, are notified"),
    ("begin of", "start of"),
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
    ("goes on", "continues"),
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

/// Names that do not say what a function returns or does.
const BARE_NAMES: [&str; 82] = [
    "accounted",
    "agreed",
    "all",
    "another",
    "asked",
    "audited",
    "awaited",
    "canonical",
    "checked",
    "combined",
    "compressed",
    "contained",
    "converted",
    "counted",
    "decided",
    "decoded",
    "doubt",
    "due",
    "each",
    "either",
    "encoded",
    "escaped",
    "explained",
    "filled",
    "foreign",
    "found",
    "generated",
    "got",
    "guess",
    "inner",
    "it",
    "known",
    "lately",
    "listed",
    "made",
    "many",
    "marked",
    "met",
    "missed",
    "moved",
    "near",
    "nearest",
    "needed",
    "noticed",
    "obey",
    "observed",
    "of",
    "or",
    "out",
    "overwritten",
    "owed",
    "parsed",
    "passed",
    "planned",
    "played",
    "printed",
    "reached",
    "registered",
    "rejected",
    "rest",
    "said",
    "seen",
    "shortened",
    "silent",
    "small",
    "taken",
    "text",
    "then",
    "told",
    "took",
    "translated",
    "tried",
    "troubled",
    "unaccounted",
    "until",
    "unwanted",
    "waited",
    "wanted",
    "why",
    "withdrawn",
    "written",
    "wrong",
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

/// The comment of a line, if it has one.
fn comment(line: &str) -> Option<&str> {
    let starts = line.match_indices("//").map(|(at, _)| at);
    let mut outside = starts.filter(|at| line[..*at].matches('"').count().is_multiple_of(2));
    let start =
        outside.find(|at| line[..*at].chars().next_back().is_none_or(char::is_whitespace))?;
    Some(line[start..].trim_start_matches(['/', '!']))
}

/// The comments of Rust source, each in the line in which it starts, without code in backticks.
fn comments(source: &str) -> String {
    let mut found = vec![String::new(); source.lines().count()];
    let mut first = None;
    for (number, line) in source.lines().enumerate() {
        let Some(comment) = comment(line) else {
            first = None;
            continue;
        };
        if comment.trim().is_empty() || !line.trim_start().starts_with("//") {
            first = None;
        }
        found[*first.get_or_insert(number)] += &format!("{comment} ");
    }
    let prose = |it: String| it.split('`').step_by(2).collect::<Vec<_>>().join("`");
    found.into_iter().map(|it| prose(it) + "\n").collect()
}

/// The function that a line of Rust source defines.
fn function(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let qualifies = |word: &str| {
        word.starts_with("pub") || ["async", "const", "unsafe", "in", "extern"].contains(&word)
    };
    let is_definition =
        before.split_whitespace().all(|word| qualifies(word) || word.ends_with(')'));
    let name = after.split(|c: char| c != '_' && !c.is_alphanumeric()).next()?;
    (is_definition && !name.is_empty()).then_some(name)
}

/// The names of functions of Rust source as words, each in its line.
fn names(source: &str) -> String {
    let names = source.lines().map(|line| function(line).unwrap_or_default().replace('_', " "));
    names.map(|name| name + "\n").collect()
}

/// Whether a phrase occurs in a line between characters that are no letters.
fn contains(line: &str, phrase: &str) -> bool {
    let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(phrase).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + phrase.len()..]);
        !is_letter(before.chars().next_back()) && !is_letter(after.chars().next())
    })
}

/// Whether a sentence or a part of one ends with a phrase, and is more than the phrase.
fn ends_with(line: &str, phrase: &str) -> bool {
    let mut parts = line.split(['.', ';', ':', '!', '?', ')']).map(str::trim);
    parts.any(|part| part != phrase && part.ends_with(phrase))
}

/// Whether a sentence, an entry of a list or a cell of a table begins with a phrase.
fn begins_sentence(line: &str, phrase: &str) -> bool {
    let line = line.trim_start_matches([' ', '-', '|', '/']);
    line.starts_with(phrase)
        || [". ", "| ", "? "].iter().any(|end| line.contains(&format!("{end}{phrase}")))
}

/// Whether a line has "as X has it", where X is a few words.
fn has_as_it_has(line: &str) -> bool {
    line.match_indices(" has it").any(|(at, phrase)| {
        let ends = !line[at + phrase.len()..].starts_with(|c: char| c.is_alphanumeric());
        let mut earlier = line[..at].rsplit(' ').take(5).skip(1);
        ends && earlier.any(|word| word == "as")
    })
}

fn check(name: &Path, text: &str, problems: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        // Spaces of continued lines are one.
        let words = line.split([' ', '\\']).filter(|word| !word.is_empty());
        let line = words.collect::<Vec<_>>().join(" ").to_lowercase();
        let mut found = BANNED
            .iter()
            .filter(|(phrase, _)| contains(&line, phrase))
            .map(|(phrase, instead)| format!("'{phrase}', better {instead}"))
            .collect::<Vec<_>>();
        if has_as_it_has(&line) {
            found.push("'as ... has it', better in the form of, in the words of".into());
        }
        for (phrase, instead) in
            [("at most", "no more than, the most"), ("at least", "no less than")]
        {
            if ends_with(&line, phrase) {
                found.push(format!("'{phrase}' after its number, better before it, or {instead}"));
            }
        }
        let place = format!("{}:{}", name.display(), number + 1);
        problems.extend(found.into_iter().map(|problem| format!("{place}: {problem}: {line}")));
    }
}

/// Checks pages and comments, whose sentences have a subject with a noun.
fn check_prose(name: &Path, text: &str, problems: &mut Vec<String>) {
    check(name, text, problems);
    for (number, line) in text.lines().enumerate() {
        let line = line.to_lowercase();
        for phrase in ["those of ", "those that ", "what is "] {
            if begins_sentence(&line, phrase) {
                let place = format!("{}:{}", name.display(), number + 1);
                let advice = format!("a sentence begins with '{phrase}', better with the noun");
                problems.push(format!("{place}: {advice}: {line}"));
            }
        }
    }
}

/// Checks what engineers read in Rust source: comments and names of functions.
fn check_source(name: &Path, source: &str, problems: &mut Vec<String>) {
    check_prose(name, &comments(source), problems);
    let names = names(source);
    check(name, &names, problems);
    for (number, function) in names.lines().enumerate() {
        if BARE_NAMES.contains(&function) {
            let place = format!("{}:{}", name.display(), number + 1);
            problems.push(format!("{place}: the name {function:?} does not say what it returns"));
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The Rust files of a folder of each crate, such as `src`.
fn sources(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path().join(folder);
        if folder.is_dir() {
            files_below(&folder, ".rs", &mut found);
        }
    }
    found
}

#[test]
fn text_for_people_has_no_banned_phrase() {
    let root = root();
    let mut pages = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"]
        .map(|name| root.join(name))
        .to_vec();
    files_below(&root.join("docs"), ".md", &mut pages);
    files_below(&root.join("spec"), ".md", &mut pages);
    let mut sources = sources("src");
    sources.retain(|path| !path.to_string_lossy().contains("tests"));
    assert!(pages.len() > 30 && sources.len() > 400, "{} {}", pages.len(), sources.len());
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
        check_prose(&page, &std::fs::read_to_string(&page).unwrap(), &mut problems);
    }
    for source in sources {
        check(&source, &literals(&std::fs::read_to_string(&source).unwrap()), &mut problems);
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn comments_and_functions_have_no_banned_phrase_or_bare_name() {
    let root = root();
    let mut files = [sources("src"), sources("tests"), sources("examples")].concat();
    files_below(&root.join("fuzz/fuzz_targets"), ".rs", &mut files);
    // This file has the phrases.
    files.retain(|path| !path.ends_with("it/wording.rs"));
    assert!(files.len() > 700, "{}", files.len());
    let mut problems = Vec::new();
    for path in files {
        let source = std::fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(&root).unwrap_or(&path);
        check_source(name, &source, &mut problems);
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

#[test]
fn a_banned_phrase_is_found_in_comments_and_names_of_functions() {
    let cases = [
        ("/// A wait in\n/// vain.", 1),
        ("/// In.\n///\n/// Vain.\nlet a = \"in vain\";", 0),
        ("let a = \"http://in vain\"; // anew", 1),
        ("//! The `so many` of it.", 0),
        ("    pub(crate) fn starts_anew() {", 1),
        ("    pub const fn of(a: u8) -> u8 {", 1),
        ("/// A trait of the fn text.\nf(|fn_text| all);", 0),
        ("// A string as CDR has it.", 1),
        ("// The cache has it.", 0),
        ("// Packets in a batch, at most.\n// Waits 1 s at least; two at most.", 2),
        ("// At most two, or at least one.", 0),
        ("// Those of a peer. What is left.", 2),
        ("// Topics, and those of a peer: what is left.", 0),
        ("fn taken() -> u8 {", 1),
        ("fn taken_bytes() -> u8 {", 0),
    ];
    for (source, expected) in cases {
        let mut problems = Vec::new();
        check_source(Path::new("a.rs"), source, &mut problems);
        assert_eq!(problems.len(), expected, "{source}: {problems:?}");
    }
}
