// SPDX-License-Identifier: Apache-2.0
//! Text of other programs in logs and status: bounded, and without characters that control a terminal
//! or end a line.

/// Replaces the part beyond the limit.
const ELLIPSIS: &str = "...";

/// `text` in at most `max_bytes` bytes (at least 3), with control characters escaped.
pub fn plain(text: &str, max_bytes: usize) -> String {
    let mut out = String::with_capacity(text.len().min(max_bytes));
    for c in text.chars() {
        let start = out.len();
        match is_terminal_control(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
        if out.len() > max_bytes {
            out.truncate(start);
            truncate_text(&mut out, max_bytes);
            break;
        }
    }
    out
}

/// Whether a terminal obeys a character: control characters (C0 and C1), line separators, and
/// characters that change the direction of text (Unicode's Bidi_Control).
pub fn is_terminal_control(c: char) -> bool {
    let bidi = [
        '\u{61c}'..='\u{61c}',
        '\u{200e}'..='\u{200f}',
        '\u{2028}'..='\u{202e}',
        '\u{2066}'..='\u{2069}',
    ];
    c.is_control() || bidi.iter().any(|range| range.contains(&c))
}

fn truncate_text(text: &mut String, max_bytes: usize) {
    let end = text.floor_char_boundary(max_bytes.saturating_sub(ELLIPSIS.len()));
    text.truncate(end);
    text.push_str(ELLIPSIS);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn control_characters_are_escaped() {
        let hostile = "a\nWARN forged\u{1b}[2J\u{9b}0m\u{202e}txt\u{0}";
        let expected = "a\\nWARN forged\\u{1b}[2J\\u{9b}0m\\u{202e}txt\\u{0}";
        assert_eq!(plain(hostile, 100), expected);
        assert_eq!(plain("/größe/室", 100), "/größe/室");
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(plain("0123456789", 10), "0123456789");
        assert_eq!(plain("01234567890", 10), "0123456...");
        assert_eq!(plain("ääääää", 10), "äää...");
    }

    proptest! {
        #[test]
        fn any_text_is_shortened_and_escaped(text in any::<String>(), max_bytes in 3usize..60) {
            let plain = plain(&text, max_bytes);
            prop_assert!(plain.len() <= max_bytes);
            prop_assert!(!plain.chars().any(is_terminal_control));
        }
    }
}
