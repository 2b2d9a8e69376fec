// SPDX-License-Identifier: Apache-2.0
//! Patterns of the names of topics, services and tf frames. Pure.

use crate::action_names::action_of;
use crate::names::{NameError, check, check_levels, is_peer_name_char};

/// A name or a pattern of names of topics or tf frames. `*` matches any characters within one
/// level, `**` across levels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern(String);

impl Pattern {
    /// Parses a name or pattern; a name matches only itself.
    pub fn new(text: &str) -> Result<Self, NameError> {
        check(text, ", '-' and '.', or '*' and '**' in a pattern", |c| {
            c == '*' || is_peer_name_char(c)
        })?;
        Ok(Self(text.into()))
    }

    /// Parses the name of a tf frame (`arm/link_1`), or a pattern of such names.
    pub fn for_frames(text: &str) -> Result<Self, NameError> {
        if text.starts_with('/') {
            return Err(NameError::Absolute(text.into()));
        }
        let also = ", '-' and '.', or '*' and '**' in a pattern";
        check_levels(text, text, also, |c| matches!(c, '*' | '-' | '.'))?;
        Ok(Self(text.into()))
    }

    /// The text of the pattern.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the pattern is a plain name.
    pub fn is_name(&self) -> bool {
        !self.0.contains('*')
    }

    /// Whether the pattern matches `name`.
    pub fn matches(&self, name: &str) -> bool {
        glob(self.0.as_bytes(), name.as_bytes())
    }

    /// Whether the pattern matches `name` or the ROS 2 action that it is a part of.
    pub fn matches_or_action(&self, name: &str) -> bool {
        self.matches(name) || action_of(name).is_some_and(|action| self.matches(action))
    }

    /// Whether this pattern matches every name that `later` matches. It must match three samples: the
    /// stars of `later` are replaced by an empty text, by one unusual level, and (for `**`) by two such
    /// levels. Only stars that reach as far match all three.
    pub fn covers(&self, later: &Pattern) -> bool {
        const SAMPLES: [(&str, &str); 3] = [("", ""), ("\u{1}", "\u{1}"), ("\u{1}", "\u{1}/\u{1}")];
        SAMPLES.iter().all(|(level, levels)| {
            self.matches(&later.as_str().replace("**", levels).replace('*', level))
        })
    }
}

/// Matches `name` against `pattern` in O(pattern x name) time for any number of stars:
/// `reachable[i]` is true if the pattern so far can match `name[..i]`.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    // Most names differ from the pattern before its first star.
    let text = pattern.iter().position(|&byte| byte == b'*').unwrap_or(pattern.len());
    let (text, pattern) = pattern.split_at(text);
    let Some(name) = name.strip_prefix(text) else { return false };
    if pattern.is_empty() {
        return name.is_empty();
    }
    let mut reachable = vec![false; name.len() + 1];
    reachable[0] = true;
    let mut rest = pattern;
    while let Some((&first, tail)) = rest.split_first() {
        if first != b'*' {
            for i in (0..name.len()).rev() {
                reachable[i + 1] = reachable[i] && name[i] == first;
            }
            reachable[0] = false;
            rest = tail;
            continue;
        }
        let across_levels = tail.first() == Some(&b'*');
        for i in 0..name.len() {
            reachable[i + 1] |= reachable[i] && (across_levels || name[i] != b'/');
        }
        rest = if across_levels { &tail[1..] } else { tail };
    }
    reachable[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::check_name;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text).unwrap()
    }

    #[test]
    fn a_name_matches_only_itself() {
        assert!(pattern("/scan").matches("/scan"));
        assert!(!pattern("/scan").matches("/scan2"));
        assert!(!pattern("/scan").matches("/front/scan"));
    }

    #[test]
    fn one_star_stays_within_a_level_and_two_cross_levels() {
        assert!(pattern("/*/scan").matches("/front/scan"));
        assert!(!pattern("/*/scan").matches("/a/b/scan"));
        assert!(pattern("/**/scan").matches("/a/b/scan"));
        assert!(pattern("/camera/**").matches("/camera/image/compressed"));
        assert!(!pattern("/camera/**").matches("/camera"));
        assert!(pattern("/diag*").matches("/diagnostics"));
        assert!(pattern("/**").matches("/x"));
        assert!(pattern("/camera-1/*").matches("/camera-1/image.raw"));
    }

    #[test]
    fn many_stars_do_not_take_exponential_time() {
        let hostile = format!("/{}b", "*a".repeat(60));
        assert!(!pattern(&hostile).matches(&format!("/{}", "a".repeat(5000))));
    }

    #[test]
    fn the_refusal_of_a_name_contains_the_invalid_character() {
        assert_eq!(Pattern::new("scan"), Err(NameError::NotAbsolute("scan".into())));
        assert_eq!(check_name("/a//b"), Err(NameError::EmptyLevel("/a//b".into())));
        let found = check_name("/a b").unwrap_err().to_string();
        assert!(found.contains("' '"), "{found}");
        assert!(check_name("/a*").is_err());
    }

    #[test]
    fn names_of_frames_follow_their_own_rules() {
        let frame = |text: &str| Pattern::for_frames(text).map_err(|e| e.to_string());
        assert!(frame("arm-1/**").unwrap().matches("arm-1/link.2/tip"));
        assert!(frame("base_*").unwrap().matches("base_link"));
        assert!(!frame("base_link").unwrap().matches("robot1/base_link"));
        assert!(frame("/base_link").unwrap_err().contains("'/base_link' starts with '/'"));
        assert!(frame("").unwrap_err().contains("'' has an empty level"));
        assert!(frame("base link").unwrap_err().contains("has ' '; a level"));
    }

    #[test]
    fn a_pattern_covers_another_only_if_it_matches_all_of_its_names() {
        let covered = |earlier, later| pattern(earlier).covers(&pattern(later));
        assert!(covered("/scan", "/scan"));
        assert!(covered("/camera/**", "/camera/image"));
        assert!(covered("/camera/**", "/camera/*"));
        assert!(covered("/**", "/camera/**"));
        assert!(covered("/cam*", "/camera*"));
        assert!(!covered("/camera/*", "/camera/**"));
        assert!(!covered("/camera/*/*", "/camera/**"));
        assert!(!covered("/camera/image", "/camera/*"));
        assert!(!covered("/camera*", "/cam*"));
    }
}
