// SPDX-License-Identifier: Apache-2.0
//! `tautline audit`.

use super::{Failure, output};
use serde_json::{Map, Value};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tautline::audit::{EVENTS, EventEntry};
use tautline::config::SYSTEM_LOGS_FOLDER;
use tautline_gateway::plain::is_terminal_control;

/// Maximum bytes of a line; the daemon writes shorter lines.
const MAX_LINE: u64 = 256 * 1024;
/// Maximum number of rotated files that are searched, as many as the robot's file allows.
const MAX_FILES: u32 = 100;
/// Interval at which a followed file is checked.
const FOLLOW_EVERY: Duration = Duration::from_millis(250);

/// Arguments of `tautline audit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  tautline audit\n  tautline audit --follow --peer base\n  \
                        tautline audit /var/log/tautline/robot1.audit --event refused --event changed\n\n\
                        Older files (FILE.1, FILE.2, ...) are read first.\n\
                        /usr/share/doc/tautline/reference/audit.md lists the events.")]
pub struct Arguments {
    /// Path of the log ('audit:' in the robot's file); by default the only log in /var/log/tautline
    file: Option<PathBuf>,
    /// Keep printing new records
    #[arg(long, short)]
    follow: bool,
    /// Only events about this peer
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,
    /// Only events with this name; can be repeated
    #[arg(long, value_name = "NAME", value_parser = event_names())]
    event: Vec<String>,
    /// Print the JSON records of the file, with control characters escaped
    #[arg(long)]
    json: bool,
}

fn event_names() -> clap::builder::PossibleValuesParser {
    EVENTS.iter().map(|event| event.name).collect::<Vec<_>>().into()
}

pub fn audit(arguments: &Arguments) -> Result<(), Failure> {
    let path = match &arguments.file {
        Some(path) => path.clone(),
        None => only_log(Path::new(SYSTEM_LOGS_FOLDER)).map_err(Failure::new)?,
    };
    let older = (1..MAX_FILES).rev().map(|number| format!("{}.{number}", path.display()));
    for older in older.map(PathBuf::from).filter(|older| older.exists()) {
        let mut lines = LineReader::open(&older)?;
        lines.print(arguments)?;
        lines.print_incomplete_line(arguments)?;
    }
    let mut lines = LineReader::open(&path)?;
    lines.print(arguments)?;
    match arguments.follow {
        true => follow(&path, lines, arguments),
        false => lines.print_incomplete_line(arguments),
    }
}

/// Prints records as they are written, until the program is ended or the reader closes the pipe.
fn follow(path: &Path, mut lines: LineReader, arguments: &Arguments) -> Result<(), Failure> {
    loop {
        std::thread::sleep(FOLLOW_EVERY);
        let is_same = is_same_file(lines.reader.get_ref(), path);
        // Records written before the file was renamed come first.
        lines.print(arguments)?;
        if !is_same {
            lines.print_incomplete_line(arguments)?;
            lines = LineReader::open(path)?;
        }
    }
}

fn is_same_file(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(there)) = (file.metadata(), fs::metadata(path)) else { return true };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

/// Returns the log in `folder` if there is exactly one.
fn only_log(folder: &Path) -> Result<PathBuf, String> {
    let place = folder.display();
    let entries = fs::read_dir(folder).map_err(|error| {
        format!("{place}: {error}; give the path of the log ('audit:' in the robot's file)")
    })?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut logs: Vec<_> = paths.filter(|it| it.extension() == Some("audit".as_ref())).collect();
    logs.sort();
    match &logs[..] {
        [one] => Ok(one.clone()),
        [] => Err(format!("no audit log in {place}; give its path ('audit:' in the robot's file)")),
        _ => {
            let names: Vec<_> = logs.iter().map(|log| format!("  {}", log.display())).collect();
            Err(format!("several audit logs; give the path of one of them:\n{}", names.join("\n")))
        }
    }
}

/// Reads a log line by line, and keeps the beginning of a line that is still being written.
struct LineReader {
    reader: BufReader<File>,
    line: Vec<u8>,
}

impl LineReader {
    fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |error| Failure::new(format!("{}: {error}", path.display()));
        let reader = BufReader::new(File::open(path).map_err(failed)?);
        Ok(Self { reader, line: Vec::new() })
    }

    /// Prints the complete lines that match `arguments`.
    fn print(&mut self, arguments: &Arguments) -> Result<(), Failure> {
        loop {
            let left = MAX_LINE.saturating_sub(self.line.len() as u64);
            let read = self.reader.by_ref().take(left).read_until(b'\n', &mut self.line);
            read.map_err(|error| Failure::new(format!("reading the audit log: {error}")))?;
            if self.line.last() != Some(&b'\n') && (self.line.len() as u64) < MAX_LINE {
                return Ok(());
            }
            self.print_incomplete_line(arguments)?;
        }
    }

    /// Prints the incomplete line that was read last.
    fn print_incomplete_line(&mut self, arguments: &Arguments) -> Result<(), Failure> {
        let line = std::mem::take(&mut self.line);
        match selected_line(String::from_utf8_lossy(&line).trim_end(), arguments) {
            Some(text) => output::print(&format!("{text}\n")),
            None => Ok(()),
        }
    }
}

/// Formats a line if it matches `arguments`. A line that is not a record is shown only if
/// `arguments` have no filter.
fn selected_line(line: &str, arguments: &Arguments) -> Option<String> {
    let has_filter = arguments.peer.is_some() || !arguments.event.is_empty();
    let Ok(Value::Object(record)) = serde_json::from_str(line) else {
        return (!has_filter && !line.is_empty()).then(|| format!("not a record: {line:?}"));
    };
    let text = |key: &str| record.get(key).and_then(Value::as_str);
    let of_peer = arguments.peer.is_none() || arguments.peer.as_deref() == text("peer");
    let named = |event: &str| arguments.event.iter().any(|name| name == event);
    let of_event = arguments.event.is_empty() || text("event").is_some_and(named);
    (of_peer && of_event).then(|| match arguments.json {
        true => escape_control_characters(line),
        false => readable_record(&record),
    })
}

/// Formats a record as `TIME  EVENT  [PEER]  FIELD=VALUE ...`.
fn readable_record(record: &Map<String, Value>) -> String {
    let text = |key: &str| record.get(key).map(format_value).unwrap_or_default();
    let event = text("event");
    let described = EVENTS.iter().find(|it| it.name == event).into_iter();
    let order: Vec<&str> = described.flat_map(EventEntry::fields).map(|(name, _)| name).collect();
    let mut fields: Vec<_> = record
        .iter()
        .filter(|(key, _)| !["time", "event", "peer"].contains(&key.as_str()))
        .collect();
    fields.sort_by_key(|(key, _)| order.iter().position(|name| name == key).unwrap_or(usize::MAX));
    let mut out = format!("{}  {event:17}", text("time"));
    if record.contains_key("peer") {
        out.push_str(&format!("  {}", text("peer")));
    }
    for (index, (key, value)) in fields.into_iter().enumerate() {
        let gap = if index == 0 { "  " } else { " " };
        out.push_str(&format!("{gap}{}={}", quoted_text(key), format_value(value)));
    }
    out
}

fn format_value(value: &Value) -> String {
    match value {
        Value::String(text) => quoted_text(text),
        other => escape_control_characters(&other.to_string()),
    }
}

/// Returns equivalent JSON without characters that a terminal interprets. JSON escapes only some of
/// these characters, and anybody with write access to the file could put any bytes into it.
fn escape_control_characters(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            // Valid JSON has these characters only outside its strings.
            '\t' | '\r' | '\n' => out.push(' '),
            // All characters that a terminal interprets are below U+10000.
            c if is_terminal_control(c) => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// Returns text unchanged if it is one plain word, else quoted and escaped.
fn quoted_text(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_graphic() && !['"', '\\', '\''].contains(&c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(peer: Option<&str>, event: &[&str]) -> Arguments {
        Arguments {
            file: None,
            follow: false,
            peer: peer.map(Into::into),
            event: event.iter().map(ToString::to_string).collect(),
            json: false,
        }
    }

    const CAME: &str = r#"{"time":"2026-11-23T15:04:07.012Z","peer":"base","event":"came","session":"new","address":"10.0.0.2:1","key":"k"}"#;
    const SAFE: &str = r#"{"time":"2026-11-23T15:04:08.000Z","event":"safe_message","topic":"/a b\n\u001b[2J","silence_ms":500,"published":true}"#;

    #[test]
    fn records_are_readable_and_write_nothing_but_text() {
        let all = arguments(None, &[]);
        assert_eq!(
            selected_line(CAME, &all).unwrap(),
            "2026-11-23T15:04:07.012Z  came               base  key=k address=10.0.0.2:1 session=new"
        );
        assert_eq!(
            selected_line(SAFE, &all).unwrap(),
            "2026-11-23T15:04:08.000Z  safe_message       topic=\"/a b\\n\\u{1b}[2J\" silence_ms=500 \
             published=true"
        );
        assert_eq!(selected_line("torn \u{1b}", &all).unwrap(), "not a record: \"torn \\u{1b}\"");
        assert_eq!(selected_line("", &all), None);
    }

    #[test]
    fn control_characters_are_never_printed() {
        let hostile = "\u{9b}2J\u{202e}txt\u{2066}\u{61c}\u{7f}";
        let record = serde_json::json!({
            "time": hostile, "event": hostile, "peer": hostile, hostile: hostile,
            "changes": [hostile, { hostile: [hostile] }],
        });
        let line = format!("{}\r", record.to_string().replacen("{", "{\t", 1));
        for json in [false, true] {
            let arguments = Arguments { json, ..arguments(None, &[]) };
            let text = selected_line(&line, &arguments).unwrap();
            assert!(!text.chars().any(is_terminal_control), "{text:?}");
            assert_eq!(text.matches("2J").count(), 8, "{text}");
            if json {
                assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), record);
            }
        }
    }

    #[test]
    fn records_are_chosen_by_peer_and_event() {
        let passes =
            |line, peer, event: &[&str]| selected_line(line, &arguments(peer, event)).is_some();
        assert!(passes(CAME, Some("base"), &[]) && !passes(CAME, Some("robot"), &[]));
        assert!(!passes(SAFE, Some("base"), &[]));
        assert!(passes(CAME, Some("base"), &["went", "came"]) && !passes(CAME, None, &["went"]));
        assert!(!passes("torn", None, &["went"]));
    }

    #[test]
    fn the_log_is_found_where_there_is_one() {
        let folder = tempfile::tempdir().unwrap();
        assert!(only_log(folder.path()).unwrap_err().contains("no audit log"));
        let one = folder.path().join("robot.audit");
        fs::write(&one, "").unwrap();
        fs::write(folder.path().join("robot.audit.1"), "").unwrap();
        assert_eq!(only_log(folder.path()), Ok(one));
        fs::write(folder.path().join("base.audit"), "").unwrap();
        assert!(only_log(folder.path()).unwrap_err().contains("base.audit"));
    }
}
