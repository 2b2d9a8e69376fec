// SPDX-License-Identifier: Apache-2.0
//! New lines in a file that exists: a peer and topics. Comments and all other lines stay as they
//! are. The result is parsed again and must have exactly the old values and the new ones; a file in
//! another form is refused. Pure.

use super::file::TopicLine;
use serde_json::{Value, json};
use tautline::config::yaml::{self, Key, Node, Yaml};

/// The additions to a file.
pub struct Additions<'a> {
    /// Name of the peer.
    pub peer: &'a str,
    /// The lines below the peer's name; `None` if the file has them already.
    pub peer_lines: Option<&'a [String]>,
    /// The lines under `topics`, after those that exist.
    pub topics: &'a [TopicLine],
}

/// Why a file is not extended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{section}' is not written with one key on each line")]
pub struct UnusualFile {
    section: &'static str,
}

/// A top-level key with its values in block style.
enum Section<'a> {
    /// No such key.
    Missing,
    /// The key alone, on the line with this index.
    Empty(usize),
    Block(Block<'a>),
}

struct Block<'a> {
    entries: &'a [(Key, Node)],
    /// Spaces before each entry.
    indent: usize,
    /// Index of the line after the last line of the block.
    end: usize,
}

/// An edit: the index of the first replaced line, the number of replaced lines, and the new lines.
type Edit = (usize, usize, Vec<String>);

/// A file with its additions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extended {
    /// The new text.
    pub text: String,
    /// The lines that differ, each behind `-` (old) or `+` (new).
    pub changes: Vec<String>,
}

/// Returns the text with the additions. A peer with the same name is replaced.
pub fn extend(text: &str, additions: &Additions) -> Result<Extended, UnusualFile> {
    let unusual = |section| UnusualFile { section };
    let old = read(text).ok_or(unusual("the file"))?;
    let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    let mut edits = Vec::new();
    if let Some(peer_lines) = additions.peer_lines {
        let edit = peer_edit(&old, &lines, additions.peer, peer_lines);
        edits.push(edit.ok_or(unusual("peers"))?);
    }
    if !additions.topics.is_empty() {
        edits.push(topics_edit(&old, &lines, additions).ok_or(unusual("topics"))?);
    }
    // From the last line to the first, so that no edit moves another one.
    edits.sort_by_key(|(line, ..)| *line);
    let changes = edits.iter().flat_map(|edit| changed_lines(&lines, edit)).collect();
    for (line, count, new) in edits.into_iter().rev() {
        lines.splice(line..line + count, new);
    }
    let mut new = lines.join("\n");
    if !new.ends_with('\n') {
        new.push('\n');
    }
    let found = read(&new).ok_or(unusual("the file"))?;
    let expected = expected_values(&old, additions).ok_or(unusual("the file"))?;
    match values(&found) == expected {
        true => Ok(Extended { text: new, changes }),
        false => Err(unusual("the file")),
    }
}

/// The lines that an edit changes. Lines that a replaced block keeps at its start and end do not
/// count.
fn changed_lines(lines: &[String], (first, count, new): &Edit) -> Vec<String> {
    let old = &lines[*first..first + count];
    let head = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[head..], &new[head..]);
    let end = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    let removed = old[..old.len() - end].iter().map(|line| format!("-{line}"));
    removed.chain(new[..new.len() - end].iter().map(|line| format!("+{line}"))).collect()
}

/// Reads a text in which no key is given twice.
fn read(text: &str) -> Option<Node> {
    let mut problems = Vec::new();
    yaml::read(text, &mut problems).ok().filter(|_| problems.is_empty())
}

fn peer_edit(root: &Node, lines: &[String], peer: &str, peer_lines: &[String]) -> Option<Edit> {
    let block = |indent: usize| {
        let own = " ".repeat(indent);
        let below = peer_lines.iter().map(|line| format!("{own}  {line}"));
        std::iter::once(format!("{own}{peer}:")).chain(below).collect::<Vec<_>>()
    };
    match section(root, lines, "peers")? {
        Section::Missing => {
            let new = std::iter::once("peers:".to_owned()).chain(block(2)).collect();
            Some((end_of(lines), 0, new))
        }
        Section::Empty(line) => Some((line + 1, 0, block(2))),
        Section::Block(peers) => {
            let new = block(peers.indent);
            let Some(at) = peers.entries.iter().position(|(key, _)| key.name == peer) else {
                return Some((peers.end, 0, new));
            };
            let first = peers.entries[at].0.at.line - 1;
            let next = peers.entries.get(at + 1).map(|(key, _)| key.at.line - 1);
            let end =
                next.map_or(peers.end, |next| end_without_comments(lines, next, peers.indent + 1));
            (first < end).then_some((first, end - first, new))
        }
    }
}

fn topics_edit(root: &Node, lines: &[String], additions: &Additions) -> Option<Edit> {
    let new = |indent: usize| {
        let line = |it: &TopicLine| format!("{}{}: {}", " ".repeat(indent), it.name, it.treatment);
        additions.topics.iter().map(line).collect::<Vec<_>>()
    };
    match section(root, lines, "topics")? {
        Section::Missing => {
            let lines_of_it = std::iter::once("topics:".to_owned()).chain(new(2)).collect();
            Some((end_of(lines), 0, lines_of_it))
        }
        Section::Empty(line) => Some((line + 1, 0, new(2))),
        Section::Block(topics) => Some((topics.end, 0, new(topics.indent))),
    }
}

/// Finds a section; `None` if it is in flow style, a list, or otherwise not one entry on each line.
fn section<'a>(root: &'a Node, lines: &[String], name: &str) -> Option<Section<'a>> {
    let all: &[(Key, Node)] = match &root.yaml {
        Yaml::Map(all) => all,
        Yaml::Nothing => &[],
        _ => return None,
    };
    let Some(index) = all.iter().position(|(key, _)| key.name == name) else {
        return Some(Section::Missing);
    };
    let (key, value) = &all[index];
    let own_line = key.at.line - 1;
    let next = all.get(index + 1).map_or(lines.len(), |(key, _)| key.at.line - 1);
    match &value.yaml {
        Yaml::Nothing => {
            let rest = lines.get(own_line)?.trim_start().strip_prefix(name)?;
            let rest = rest.trim_start().strip_prefix(':')?.trim_start();
            (rest.is_empty() || rest.starts_with('#')).then_some(Section::Empty(own_line))
        }
        Yaml::Map(entries) => {
            let first = &entries.first()?.0;
            let line = lines.get(first.at.line - 1)?;
            let indent = first.at.column - 1;
            let is_alone = line.len() - line.trim_start_matches(' ').len() == indent;
            let is_block = key.at.column == 1 && indent > 0 && first.at.line > key.at.line;
            let end = end_without_comments(lines, next, indent);
            (is_alone && is_block).then_some(Section::Block(Block { entries, indent, end }))
        }
        _ => None,
    }
}

/// The index behind the last line before `end` that is neither empty nor a comment of less
/// indentation: such comments belong to what follows.
fn end_without_comments(lines: &[String], end: usize, indent: usize) -> usize {
    let is_of_next = |line: &String| {
        let rest = line.trim_start();
        rest.is_empty() || rest.starts_with('#') && line.len() - rest.len() < indent
    };
    let kept = lines[..end].iter().rposition(|line| !is_of_next(line));
    kept.map_or(end, |last| last + 1)
}

/// The index at which lines are appended to the file.
fn end_of(lines: &[String]) -> usize {
    lines.iter().rposition(|line| !line.trim().is_empty()).map_or(0, |last| last + 1)
}

/// The values without positions; maps keep their order.
fn values(node: &Node) -> Value {
    match &node.yaml {
        Yaml::Nothing => Value::Null,
        Yaml::Scalar(text) => json!(text),
        Yaml::List(entries) => json!({ "list": entries.iter().map(values).collect::<Vec<_>>() }),
        Yaml::Map(entries) => {
            entries.iter().map(|(key, value)| json!([key.name, values(value)])).collect()
        }
    }
}

/// The old values with the additions.
fn expected_values(old: &Node, additions: &Additions) -> Option<Value> {
    let parsed = |text: &str| read(text).map(|node| values(&node));
    let mut all = match values(old) {
        Value::Null => Vec::new(),
        Value::Array(all) => all,
        _ => return None,
    };
    if let Some(lines) = additions.peer_lines {
        put_value(&mut all, "peers", additions.peer, parsed(&lines.join("\n"))?)?;
    }
    for topic in additions.topics {
        put_value(&mut all, "topics", &topic.name, parsed(&topic.treatment)?)?;
    }
    Some(Value::Array(all))
}

/// Sets `section.key` in a list of keys and values.
fn put_value(all: &mut Vec<Value>, section: &str, key: &str, value: Value) -> Option<()> {
    let at = all.iter().position(|entry| entry[0] == section).unwrap_or_else(|| {
        all.push(json!([section, null]));
        all.len() - 1
    });
    let inside = &mut all[at][1];
    if inside.is_null() {
        *inside = json!([]);
    }
    let inside = inside.as_array_mut()?;
    match inside.iter_mut().find(|entry| entry[0] == key) {
        Some(entry) => entry[1] = value,
        None => inside.push(json!([key, value])),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OLD: &str = "\
# The base of the team.
name: base

peers:                 # everybody
  # The first robot.
  robot1:
    key: AAA           # printed there
    prefix: /robot1
    # end of robot1

# What leaves.
topics:
  /cmd_vel: { priority: 255, to: [robot1] }   # fast

limits: { queue_time: 1s }   # short
";

    fn lines(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| text.to_string()).collect()
    }

    fn extended_text(text: &str, peer: &str) -> Result<String, UnusualFile> {
        let topics = ["/robot2/cmd_vel", "/goal"];
        let topic = |name: &str| TopicLine {
            name: name.into(),
            treatment: "{ priority: 250, to: [robot2] }".into(),
        };
        let topics = topics.map(topic);
        let peer_lines =
            lines(&["key: BBB", "prefix: /robot2      # here", "accept:", "  /x: a/B"]);
        let additions = Additions { peer, peer_lines: Some(&peer_lines), topics: &topics };
        extend(text, &additions).map(|it| it.text)
    }

    const BLOCK: &str =
        "    key: BBB\n    prefix: /robot2      # here\n    accept:\n      /x: a/B\n";
    const TOPICS: &str = "  /robot2/cmd_vel: { priority: 250, to: [robot2] }\n  /goal: { priority: 250, to: [robot2] }\n";

    #[test]
    fn a_peer_and_topics_are_added_without_other_changes() {
        let new = extended_text(OLD, "robot2").unwrap();
        let expected = OLD
            .replace("    # end of robot1\n", &format!("    # end of robot1\n  robot2:\n{BLOCK}"))
            .replace("# fast\n", &format!("# fast\n{TOPICS}"));
        assert_eq!(new, expected);
    }

    #[test]
    fn a_peer_of_the_same_name_is_replaced() {
        let two = extended_text(OLD, "robot2").unwrap();
        assert_eq!(
            extended_text(&two, "robot2"),
            Err(UnusualFile { section: "the file" }),
            "topics twice"
        );
        let new = extended_text(OLD, "robot1").unwrap();
        assert!(
            new.contains(&format!("  # The first robot.\n  robot1:\n{BLOCK}\n# What leaves.")),
            "{new}"
        );
        let key = lines(&["key: CCC"]);
        let again = Additions { peer: "robot1", peer_lines: Some(&key), topics: &[] };
        let new = extend(&two, &again).unwrap().text;
        assert!(new.contains("  robot1:\n    key: CCC\n  robot2:\n    key: BBB\n"), "{new}");
    }

    #[test]
    fn the_changed_lines_are_named() {
        let peer_lines = lines(&["key: BBB", "prefix: /robot1"]);
        let goal = TopicLine { name: "/goal".into(), treatment: "{ priority: 250 }".into() };
        let changes = |peer, peer_lines, topics: &[TopicLine]| {
            extend(OLD, &Additions { peer, peer_lines, topics }).unwrap().changes
        };
        let goal = [goal];
        assert_eq!(changes("robot1", None, &goal), ["+  /goal: { priority: 250 }"]);
        let found = changes("robot2", Some(&peer_lines), &goal);
        let added = ["+  robot2:", "+    key: BBB", "+    prefix: /robot1"];
        assert_eq!(found, [&added[..], &["+  /goal: { priority: 250 }"]].concat());
        let found = changes("robot1", Some(&peer_lines), &[]);
        let removed = ["-    key: AAA           # printed there", "-    prefix: /robot1"];
        let end = ["-    # end of robot1", "+    key: BBB", "+    prefix: /robot1"];
        assert_eq!(found, [&removed[..], &end[..]].concat());
        let same = lines(&["key: AAA           # printed there", "prefix: /robot1"]);
        let found = changes("robot1", Some(&same), &[]);
        assert_eq!(found, ["-    # end of robot1"]);
    }

    #[test]
    fn missing_and_empty_sections_are_created() {
        let block = format!("peers:\n  robot2:\n{BLOCK}topics:\n{TOPICS}");
        for text in ["", "name: base\n", "name: base", "name: base\n\n\n"] {
            let new = extended_text(text, "robot2").unwrap();
            assert!(new.trim_start_matches("name: base\n").starts_with(&block), "{new}");
        }
        let commented =
            "name: base\npeers:\n  #robot1:\n    #key: AAA\ntopics: # none\n#  /x: {}\n";
        let new = extended_text(commented, "robot2").unwrap();
        assert!(new.contains(&format!("peers:\n  robot2:\n{BLOCK}  #robot1:\n")), "{new}");
    }

    #[test]
    fn a_file_in_another_form_is_refused() {
        for text in [
            "peers: { robot1: { key: AAA } }\n",
            "peers: ~\n",
            "peers: {}\n",
            "topics: { /scan: {} }\n",
            "topics:\n  - /scan\n",
            "{ name: base }\n",
            "name: [\n",
            "---\nname: base\n...\n",
        ] {
            assert!(extended_text(text, "robot2").is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_gives_a_valid_file_or_a_refusal(text in "[a-z:{} #\\-\"'|>\n]{0,80}") {
            for text in [text.clone(), format!("peers:\n  a: {text}\n"), format!("peers:\n{text}")] {
                if let Ok(new) = extended_text(&text, "robot2") {
                    prop_assert!(new.contains(" robot2:"), "{}", new);
                }
            }
        }
    }
}
