// SPDX-License-Identifier: Apache-2.0
//! Man pages of the files, from their option tables.

use std::fmt::Write;
use tautline::config::setting::Setting;
use tautline::config::starter::plain;

// The same texts as in docs/reference/configuration.md.
use tautline_testkit::reference as configuration;

pub use configuration::{EXAMPLE, RELAY_EXAMPLE};

/// A man page of section 5.
pub struct FilePage {
    /// Name of the file, and of the page.
    pub name: &'static str,
    pub purpose: &'static str,
    /// Path of the file that the systemd unit reads.
    pub path: &'static str,
    /// A file that passes `tautline check`.
    pub example: &'static str,
    pub keys: &'static [Setting],
    /// Commands and other pages, such as `tautline-run(1)`.
    pub see_also: &'static str,
}

impl FilePage {
    /// Returns the page in roff.
    pub fn roff(&self) -> String {
        let (name, version) = (self.name, env!("CARGO_PKG_VERSION"));
        let mut page = format!(
            ".TH {} 5 \"\" \"Tautline {version}\" Tautline\n.SH NAME\n{name} \\- {}\n.SH DESCRIPTION\n",
            name.to_uppercase(),
            self.purpose
        );
        let about = format!(
            "The systemd unit reads {}. `tautline check FILE` explains a file, and names each mistake \
             with its position. A quantity has its unit: `500ms`, `6Mbps`, `8MB`, `30%`. Text with `*`, \
             `[`, `{{`, `#` or `: ` needs quotes. In a pattern, `*` stands for any characters within one \
             level of a name, `**` for any characters across levels. A list with one entry needs no \
             brackets.",
            self.path
        );
        let _ = writeln!(page, "{}", line(&about));
        let _ = write!(page, ".SH EXAMPLE\n.nf\n");
        self.example.lines().for_each(|text| page.extend([&*escape_roff(text), "\n"]));
        page.push_str(".fi\n");
        section(&mut page, "", self.keys);
        let _ = writeln!(page, ".SH SEE ALSO\n{}", line(self.see_also));
        page
    }
}

fn section(page: &mut String, title: &str, keys: &'static [Setting]) {
    let shown = if title.is_empty() { "KEYS" } else { title };
    let _ = writeln!(page, ".SH \"{}\"", escape_roff(shown));
    for key in keys {
        let words = format!(
            "{} Default: {}. Allowed: {}.",
            plain(key.doc),
            configuration::default_text(key),
            configuration::allowed_values(key)
        );
        let _ = writeln!(page, ".TP\n.B {}\n{}", escape_roff(key.name), line(&words));
    }
    for key in keys {
        if let Some(inside) = configuration::keys_below(key) {
            let dot = if title.is_empty() { "" } else { "." };
            section(page, &format!("{title}{dot}{}", configuration::heading(key)), inside);
        }
    }
}

/// Formats a paragraph in roff; text between backticks becomes bold.
fn line(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let bold = |(index, part): (usize, &str)| match index % 2 {
        0 => escaped_inside(part),
        _ => format!("\\fB{}\\fR", escaped_inside(part)),
    };
    protect_control_lines(parts.map(bold).collect())
}

fn escape_roff(text: &str) -> String {
    protect_control_lines(escaped_inside(text))
}

fn escaped_inside(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// Escapes a control character of roff at the start of a line.
fn protect_control_lines(text: String) -> String {
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}
