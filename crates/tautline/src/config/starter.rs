// SPDX-License-Identifier: Apache-2.0
//! The file that `tautline init` writes, generated from the option table.

use super::setting::{Preset, Setting, Shape};
use super::table::FILE;

const HEADER: &str = "\
# Tautline: this robot's file. `tautline check FILE` explains it; `man robot.yaml` has all keys.
# Lines such as '#key: value' show the default or an example: remove the # to use one.

";

const RELAY_HEADER: &str = "\
# Tautline: the file of a relay (`tautline relay FILE`). `tautline check FILE` explains it;
# `man relay.yaml` has all keys.
# Lines such as '#key: value' show the default or an example: remove the # to use one.

";

/// Returns a commented robot's file, which passes `tautline check` unchanged.
pub fn starter() -> String {
    starter_text(HEADER, FILE)
}

/// Returns a commented relay's file, which passes `tautline check` unchanged.
pub fn relay_starter() -> String {
    starter_text(RELAY_HEADER, super::relay::table::FILE)
}

fn starter_text(header: &str, file: &'static [Setting]) -> String {
    let mut lines = Vec::new();
    settings(&mut lines, file, 0, false);
    format!("{header}{}\n", lines.join("\n"))
}

fn settings(lines: &mut Vec<String>, settings: &'static [Setting], depth: usize, commented: bool) {
    for (i, setting) in settings.iter().enumerate() {
        if depth == 0 && i > 0 {
            lines.push(String::new());
        }
        let commented = commented || !setting.in_starter;
        lines.push(format!("{}# {}{}", indent(depth), plain(setting.doc), remark(setting)));
        match &setting.shape {
            Shape::Section(inside) | Shape::Switch(inside) => {
                lines.push(line(depth, commented, setting.name, ""));
                self::settings(lines, inside, depth + 1, commented);
            }
            Shape::Named(_, inside) => {
                lines.push(line(depth, commented, setting.name, ""));
                lines.push(line(depth + 1, commented, setting.example, ""));
                self::settings(lines, inside, depth + 2, commented);
            }
            _ => lines.push(line(depth, commented, setting.name, setting.example)),
        }
    }
}

/// Replaces each Markdown link by its text, because the file is read without the linked pages.
pub fn plain(doc: &str) -> String {
    let mut text = String::new();
    let mut rest = doc;
    while let Some((words, after)) = rest.split_once("](") {
        let (Some((before, words)), Some((_, after))) =
            (words.rsplit_once('['), after.split_once(')'))
        else {
            break;
        };
        text.extend([before, words]);
        rest = after;
    }
    text + rest
}

fn remark(setting: &Setting) -> String {
    match (&setting.shape, setting.preset) {
        (_, Preset::Required) => " Required.".into(),
        (Shape::Named(..) | Shape::Section(_), _) => String::new(),
        (_, Preset::Value(value)) => format!(" Default: {value}"),
        (_, Preset::Absent(words) | Preset::Computed(words)) => format!(" Default: {words}."),
    }
}

fn line(depth: usize, commented: bool, name: &str, value: &str) -> String {
    let sign = if commented { "#" } else { "" };
    format!("{}{sign}{name}: {value}", indent(depth)).trim_end().to_owned()
}

fn indent(depth: usize) -> String {
    "  ".repeat(depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_the_pages_are_words_in_the_file() {
        assert_eq!(plain("a [b.md](c.md#d), [e](f)."), "a b.md, e.");
        assert_eq!(plain("[a, b] (c)"), "[a, b] (c)");
        assert!(!starter().contains("]("), "{}", starter());
    }
}
