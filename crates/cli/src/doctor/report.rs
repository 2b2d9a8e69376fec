// SPDX-License-Identifier: Apache-2.0
//! One file to attach to a question. It has no secret: key files are not read, values of keys that may
//! hold one are left out of all texts, and public keys of peers are shortened.

use super::machine::{Machine, ProgramOutput};
use super::robot::Robot;
use super::ros;
use std::fmt::Write;
use tautline::config;

/// Maximum bytes of the log in a report.
const MAX_LOG: usize = 64 << 10;
/// Maximum bytes of the robot's file, or of the daemon's state, in a report.
const MAX_PART: usize = 2 << 20;
/// Characters of a public key that a report keeps.
const KEY_SHOWN: usize = 8;
/// Text that replaces a secret.
const REDACTED: &str = "[removed]";
/// Parts of names whose values are removed, in lower case.
const SECRET_NAMES: [&str; 11] = [
    "secret",
    "password",
    "passwd",
    "passphrase",
    "psk",
    "private",
    "token",
    "credential",
    "apikey",
    "api_key",
    "wep_key",
];
/// Minimum characters of a word that counts as a key. The base64 of a 32-byte key has 43 characters and a
/// `=`.
const KEY_LENGTH: usize = 40;
/// Characters of the base64 of 32 bytes, with its `=`.
const PADDED_LENGTH: usize = 44;
/// Maximum bytes of a line.
const MAX_LINE: usize = 8000;

/// The contents of a report.
#[derive(Debug)]
pub struct Report<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The robot.
    pub robot: &'a Robot,
    /// What the checks found, in words.
    pub findings: &'a str,
}

impl Report<'_> {
    /// Returns the text.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let mut part = |title: &str, contents: String| {
            let _ = write!(text, "== {title}\n{}\n\n", contents.trim_end());
        };
        part("doctor", self.findings.to_owned());
        part("ROS", ros::describe_ros(self.machine, self.robot).join("\n"));
        part("versions", self.versions());
        part("interfaces", self.output("ip", &["-brief", "address"]));
        part("routes", self.output("ip", &["route"]));
        part("file", self.file());
        part("status", self.status());
        part(
            "log",
            tail(&self.output("journalctl", &["-u", "tautline", "-n", "200", "--no-pager"])),
        );
        redact_secrets(&text)
    }

    fn versions(&self) -> String {
        let read = |path: &str| self.machine.read(path).unwrap_or_default();
        let system = read("/etc/os-release");
        let system = system.lines().find_map(|it| it.strip_prefix("PRETTY_NAME=")).unwrap_or("?");
        let daemon = self.robot.status.as_ref().map_or("not running", |it| &it.version);
        format!(
            "tautline {}, daemon {daemon}\n{system}, {} {}\n{}",
            env!("CARGO_PKG_VERSION"),
            read("/proc/sys/kernel/ostype"),
            read("/proc/sys/kernel/osrelease"),
            std::env::consts::ARCH
        )
    }

    fn output(&self, program: &str, arguments: &[&str]) -> String {
        match self.machine.run(program, arguments) {
            ProgramOutput::Output(text) => text,
            ProgramOutput::Failed(text) => format!("{program}: {}", text.trim()),
            ProgramOutput::Missing => format!("{program} is not installed"),
        }
    }

    fn file(&self) -> String {
        let Some(file) = &self.robot.file else { return "none".into() };
        match config::read(file) {
            Ok(text) => {
                let lines = truncate_str(&text, MAX_PART).lines().map(without_comment);
                let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
                format!("# {}, without comments\n{}", file.display(), lines.join("\n"))
            }
            Err(error) => error.to_string(),
        }
    }

    fn status(&self) -> String {
        let Some(status) = &self.robot.status else { return self.robot.status_error.clone() };
        let text = serde_json::to_string_pretty(status).unwrap_or_else(|error| error.to_string());
        truncate_str(&text, MAX_PART).to_owned()
    }
}

/// Cuts a comment of YAML. Quotes are ignored: ` #` within them starts a comment as well.
fn without_comment(line: &str) -> &str {
    let mut before = ' ';
    let begins = line.char_indices().find_map(|(at, c)| {
        let is_comment = c == '#' && before.is_whitespace();
        before = c;
        is_comment.then_some(at)
    });
    line[..begins.unwrap_or(line.len())].trim_end()
}

fn truncate_str(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

fn tail(text: &str) -> String {
    text[text.ceil_char_boundary(text.len().saturating_sub(MAX_LOG))..].to_owned()
}

/// Removes secrets from a text: the rest of a line after a name such as `password`, and user and password
/// in URIs. Shortens all keys.
pub fn redact_secrets(text: &str) -> String {
    let plain = |line| tautline_gateway::plain::plain(line, MAX_LINE);
    let lines =
        text.lines().map(|line| shorten_keys(&redact_passwords(&redact_values(&plain(line)))));
    let mut text = lines.collect::<Vec<_>>().join("\n");
    text.push('\n');
    text
}

/// Cuts a line after the name of a secret.
fn redact_values(line: &str) -> String {
    let lower = line.to_ascii_lowercase();
    let name = SECRET_NAMES.iter().filter_map(|name| Some((lower.find(name)?, *name))).min();
    let Some((at, name)) = name else { return line.to_owned() };
    let (kept, rest) = line.split_at(at + name.len());
    match rest.chars().any(char::is_alphanumeric) {
        true => format!("{kept} {REDACTED}"),
        false => line.to_owned(),
    }
}

/// Removes `user:password@` of URIs.
fn redact_passwords(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("://") {
        out += before;
        out += "://";
        let place = after.find(['/', ' ', '"', '\'']).unwrap_or(after.len());
        match after[..place].rfind('@') {
            Some(at) => {
                out += REDACTED;
                rest = &after[at..];
            }
            None => rest = after,
        }
    }
    out + rest
}

/// Whether a word may be a key in base64: it is long and mixes digits, upper case and lower case, or it has
/// the length of a key and ends with `=`.
fn is_key(word: &str) -> bool {
    let has_end = word.ends_with('=') && word.len() >= PADDED_LENGTH;
    has_end || is_long_and_mixed(word)
}

fn is_long_and_mixed(word: &str) -> bool {
    let has = |class: fn(&char) -> bool| word.chars().any(|it| class(&it));
    word.len() >= KEY_LENGTH
        && has(char::is_ascii_uppercase)
        && has(char::is_ascii_lowercase)
        && has(char::is_ascii_digit)
}

/// Shortens whatever has the form of a key in base64, or in base64 for URLs.
fn shorten_keys(line: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "+/=-_".contains(c);
    let mut out = String::new();
    let mut word = String::new();
    for c in line.chars().chain(['\n']) {
        if is_part(c) {
            word.push(c);
            continue;
        }
        match is_key(&word) {
            true => {
                out += &word[..KEY_SHOWN];
                out += "...";
            }
            false => out += &word,
        }
        word.clear();
        out.push(c);
    }
    out.pop();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_secrets_are_removed() {
        let key = "cHVibGljIGtleSBvZiBiYXNlLCBhbiBleGFtcGxlLi4=";
        let text = format!(
            "tautline-secret-key: {key}\npsk=\"hunter2\"\nkey: {key}\nuri: http://me:hunter2@host:1/x\n\
             WIFI_PASSWORD=hunter2 run\nwpa --psk hunter2\npassword: hunter2\n\
             the password is hunter2\n\u{1b}[2Jname: robot1"
        );
        let found = redact_secrets(&text);
        assert!(!found.contains("hunter2") && !found.contains(key), "{found}");
        for kept in ["key: cHVibGlj...", "name: robot1", "http://[removed]@host:1/x"] {
            assert!(found.contains(kept), "{found}");
        }
        assert!(!found.contains('\u{1b}'));
        let pem = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7";
        assert_eq!(redact_secrets(pem), "MIIEvQIB...\n");
        assert_eq!(without_comment("name: a # the key of b"), "name: a");
        assert_eq!(without_comment("name: a\t# the key of b"), "name: a");
        assert_eq!(without_comment("name: a#b"), "name: a#b");
        for key in [
            "cHVibGljIGtleSBvZiBiYXNlLCBhbi_leGFtcGxl-i4",
            "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopq=",
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopq=",
        ] {
            assert_eq!(redact_secrets(key), format!("{}...\n", &key[..8]));
        }
        let harmless = "the master at http://localhost:11311 does not answer\n";
        assert_eq!(redact_secrets(harmless), harmless);
    }
}
