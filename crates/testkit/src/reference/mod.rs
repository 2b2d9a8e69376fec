// SPDX-License-Identifier: Apache-2.0
//! docs/reference/configuration.md and relay.md, generated from the option tables. The man pages of the
//! files have the same texts.

use std::fmt::Write;
use tautline::config::kind::Kind;
use tautline::config::relay::table::FILE as RELAY_FILE;
use tautline::config::setting::{Preset, Setting, Shape};
use tautline::config::table::FILE;
use tautline::config::{
    MAX_FILE_BYTES, MAX_MEMBERS, MAX_NESTING, MAX_PEERS, MAX_TEAMS, MAX_TOPIC_RULES,
};

/// An example file with most of the format; it passes `tautline check`.
pub const EXAMPLE: &str = include_str!("example.yaml");

/// Returns the whole page.
pub fn markdown() -> String {
    let mut page = format!(
        "<!-- Generated from the option table by `UPDATE=1 cargo test -p tautline-cli --test it generated::`. -->\n\
         # The robot's file\n\n\
         `tautline init` writes a starter file, `tautline check robot.yaml` explains a file, and \
         `tautline run robot.yaml` uses it. Only `name` is required. An unknown key, a value out of range or \
         a repeated key is an error with its position. The daemon does not start until all errors are corrected.\n\n\
         [robot.schema.json](robot.schema.json) describes the same keys to editors. With the YAML language server, begin the file with:\n\n\
         ```yaml\n# yaml-language-server: $schema=PATH/TO/robot.schema.json\n```\n\n\
         ## Example\n\n```yaml\n{EXAMPLE}```\n\n\
         ## Values\n\n\
         - A quantity has its unit: `500ms`, `2s`, `6Mbps`, `5Hz`, `8MB`, `30%`. MB is 10^6 bytes, MiB is 2^20.\n\
         - In YAML, text with `*`, `[`, `{{`, `#` or `: ` needs quotes: `\"/camera/**\"`, `\"[::]:18470\"`.\n\
         - A name matches only itself. In a pattern, `*` stands for any characters within one level of a name, `**` for any characters across levels.\n\
         - A list with one entry needs no brackets.\n\
         - Limits: {MAX_FILE_BYTES} bytes, {MAX_NESTING} levels, {MAX_PEERS} peers, {MAX_TOPIC_RULES} topic rules.\n"
    );
    section(&mut page, "The file", "", FILE);
    page
}

/// The packaged file of a relay; it passes `tautline check`.
pub const RELAY_EXAMPLE: &str = include_str!("../../../../packaging/examples/relay.yaml");

/// Returns the page of the relay's file.
pub fn relay_markdown() -> String {
    let mut page = format!(
        "<!-- Generated from the option table by `UPDATE=1 cargo test -p tautline-cli --test it generated::`. -->\n\
         # The relay's file\n\n\
         `tautline init --relay` writes a starter file, `tautline check relay.yaml` explains a file, and \
         `tautline relay relay.yaml` uses it; [relays](../how-to/relays.md#a-relay-for-teams) is the guide. An unknown key, a \
         value out of range or a repeated key is an error with its position. The daemon does not start until all errors are \
         corrected.\n\n\
         [relay.schema.json](relay.schema.json) describes the same keys to editors. [Values](configuration.md#values) have \
         the same form as in the robot's file.\n\n\
         Limits: {MAX_FILE_BYTES} bytes, {MAX_NESTING} levels, {MAX_TEAMS} teams, {MAX_MEMBERS} members of all teams. `TEAM/MEMBER` \
         has at most 63 bytes.\n\n\
         ## Example\n\n```yaml\n{RELAY_EXAMPLE}```\n"
    );
    section(&mut page, "The file", "", RELAY_FILE);
    page
}

fn section(page: &mut String, title: &str, doc: &str, settings: &'static [Setting]) {
    let _ = write!(page, "\n## {title}\n\n");
    if !doc.is_empty() {
        let _ = write!(page, "{doc}\n\n");
    }
    page.push_str("| key | meaning | default | allowed |\n| --- | --- | --- | --- |\n");
    for setting in settings {
        let cells = [setting.doc.to_owned(), default_text(setting), allowed_values(setting)]
            .map(|cell| cell.replace('|', "\\|"));
        let _ = writeln!(page, "| `{}` | {} |", setting.name, cells.join(" | "));
    }
    for setting in settings {
        if let Some(inside) = keys_below(setting) {
            section(page, &format!("{}{}", parent(title), heading(setting)), setting.doc, inside);
        }
    }
}

fn parent(title: &str) -> String {
    if title == "The file" { String::new() } else { format!("{}.", title.trim_matches('`')) }
}

/// Returns the title of the section below a key.
pub fn heading(setting: &Setting) -> String {
    match &setting.shape {
        Shape::Named(..) => format!("{}.NAME", setting.name),
        Shape::Sections(_) => format!("{}[]", setting.name),
        _ => setting.name.into(),
    }
}

/// Returns the keys below a key.
pub fn keys_below(setting: &Setting) -> Option<&'static [Setting]> {
    match &setting.shape {
        Shape::Section(settings)
        | Shape::Switch(settings)
        | Shape::Sections(settings)
        | Shape::Named(_, settings) => Some(settings),
        _ => None,
    }
}

/// Describes the value of an absent key.
pub fn default_text(setting: &Setting) -> String {
    match setting.preset {
        Preset::Required => "required".into(),
        Preset::Value(value) => format!("`{value}`"),
        Preset::Absent(words) | Preset::Computed(words) => words.into(),
    }
}

/// Describes the values that `setting` allows.
pub fn allowed_values(setting: &Setting) -> String {
    match &setting.shape {
        Shape::Single(kind) => kind.allowed(),
        Shape::List(kind) => format!("a list, each entry {}", kind.allowed()),
        Shape::Typed(kind) => format!(
            "a list, each entry {}; or a map from such names to {}, or to a list of types",
            kind.allowed(),
            Kind::TypeName.allowed()
        ),
        Shape::Renames(_) | Shape::Fields => format!("a map such as `{}`", setting.example),
        Shape::Section(_) => "the keys below".into(),
        Shape::Switch(_) => "the keys below, `true` or `false`".into(),
        Shape::Sections(_) => format!("a list such as `{}`", setting.example),
        Shape::Named(names, _) => named(setting, names),
    }
}

fn named(setting: &Setting, names: &Kind) -> String {
    let mut text = format!("a map from names to the keys below; a name is {}", names.allowed());
    if let Some(short) = setting.short_for {
        let _ = write!(text, "; the `{short}` alone is enough");
    }
    if let Some(key) = setting.list_with {
        let _ = write!(text, ". Or a list of names, or of maps with `{key}`");
    }
    text
}
