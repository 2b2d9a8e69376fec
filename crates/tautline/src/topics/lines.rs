// SPDX-License-Identifier: Apache-2.0
//! All missing lines of one peer, as a fragment of the file. A key can be in the file only once, so
//! the fragment includes the present entries of its keys.

use super::waiting::{PendingRequest, RequestKind};
use crate::treatment::peer_names::{Accept, NameMap};
use std::fmt::Write;
use tautline_gateway::pattern::Pattern;

/// Indentation of a peer's keys, as in the tutorial's files.
const INDENT: &str = "    ";

/// Returns the keys `remap`, `accept`, `call` and `set_parameters` with all entries; each key only
/// if a request needs it.
pub(super) fn config_fragment(
    names: &NameMap,
    [call, set]: [&[Pattern]; 2],
    waiting: &[&PendingRequest],
) -> String {
    let mut text = String::new();
    let (unusable, waiting): (Vec<&PendingRequest>, Vec<_>) =
        waiting.iter().partition(|it| it.unusable.is_some());
    if !unusable.is_empty() {
        let mut renames = names.remap.clone();
        let new = unusable.iter().filter_map(|it| Some((&it.name, it.unusable.as_ref()?)));
        renames.extend(new.map(|(name, it)| (name.clone(), it.proposal.clone())));
        let _ = writeln!(text, "{INDENT}remap:");
        for (from, to) in renames {
            let _ = writeln!(text, "{INDENT}  {}: {to}", quoted_if_special(&from));
        }
    }
    let of_kind = |kind: RequestKind| waiting.iter().copied().filter(move |it| it.kind == kind);
    let offers: Vec<&PendingRequest> = waiting
        .iter()
        .copied()
        .filter(|it| matches!(it.kind, RequestKind::Publish | RequestKind::Serve))
        .collect();
    if !offers.is_empty() {
        let _ = writeln!(text, "{INDENT}accept:");
        for (name, types) in accepted_types(&names.accept, &offers) {
            let _ = writeln!(text, "{INDENT}  {}: {}", quoted_if_special(name), yaml_types(&types));
        }
    }
    for (key, present, kind) in
        [("call", call, RequestKind::Call), ("set_parameters", set, RequestKind::Set)]
    {
        if of_kind(kind).next().is_none() {
            continue;
        }
        let mut names: Vec<&str> = present.iter().map(Pattern::as_str).collect();
        names.extend(of_kind(kind).map(|it| it.name.as_str()));
        let names: Vec<String> = dedup(names).into_iter().map(quoted_if_special).collect();
        let _ = writeln!(text, "{INDENT}{key}: [{}]", names.join(", "));
    }
    text
}

/// Returns names with their types, in the order of the file. An empty list of types means any type.
fn accepted_types<'a>(
    accept: &'a [Accept],
    offers: &[&'a PendingRequest],
) -> Vec<(&'a str, Vec<&'a str>)> {
    let known = |entry: &'a Accept| {
        (entry.pattern.as_str(), entry.types.iter().map(String::as_str).collect())
    };
    let mut all: Vec<(&str, Vec<&str>)> = accept.iter().map(known).collect();
    for PendingRequest { name, allowed, .. } in offers {
        match (all.iter_mut().find(|(other, _)| other == name), allowed) {
            (None, allowed) => all.push((name, allowed.iter().map(String::as_str).collect())),
            (Some((_, types)), None) => types.clear(),
            (Some((_, types)), Some(_)) if types.is_empty() => {}
            (Some((_, types)), Some(allowed)) => types.push(allowed),
        }
    }
    all.into_iter().map(|(name, types)| (name, dedup(types))).collect()
}

fn dedup(mut all: Vec<&str>) -> Vec<&str> {
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|it| seen.insert(*it));
    all
}

fn yaml_types(types: &[&str]) -> String {
    match types {
        [] => "any".into(),
        [one] => (*one).into(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// Quotes a name if YAML gives some of its characters another meaning.
fn quoted_if_special(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '/';
    if name.chars().all(is_plain) { name.into() } else { format!("{name:?}") }
}

#[cfg(test)]
mod tests {
    use super::super::waiting::UnusableName;
    use super::*;
    use crate::config::{PeerConfig, Surroundings, parse};

    /// Returns the peer `base` of a file that has these lines under its name.
    fn base(lines: &str) -> PeerConfig {
        let file = format!("name: r\nsecurity: none\nros1: false\npeers:\n  base:\n{lines}");
        let parsed = parse(&file, &Surroundings::default());
        parsed.unwrap_or_else(|all| panic!("{file}\n{all:?}")).config.peers.remove(0)
    }

    fn waiting(kind: RequestKind, name: &str, allowed: Option<&str>) -> PendingRequest {
        let allowed = allowed.map(str::to_owned);
        let (name, line) = (name.into(), String::new());
        PendingRequest { kind, name, type_name: String::new(), allowed, line, unusable: None }
    }

    #[test]
    fn all_lines_to_add_for_a_peer_form_one_section() {
        let before = base(
            "    accept: { /cmd_vel: geometry_msgs/Twist, \"/plan/**\": any, /x: a/B }\n    \
             call: [/set_mode, \"/light/*\"]\n    set_parameters: /camera/rate\n",
        );
        let all = [
            waiting(RequestKind::Set, "/camera/gain", None),
            waiting(RequestKind::Publish, "/goal", Some("geometry_msgs/PoseStamped")),
            waiting(RequestKind::Call, "/reboot", None),
            waiting(RequestKind::Publish, "/x", Some("a/C")),
            waiting(RequestKind::Serve, "/reset", Some("std_srvs/msg/Empty")),
            waiting(RequestKind::Publish, "/cmd_vel", None),
            waiting(RequestKind::Publish, "/goal", Some("geometry_msgs/PoseStamped")),
        ];
        let text = config_fragment(
            &before.names,
            [&before.call, &before.set_parameters],
            &all.iter().collect::<Vec<_>>(),
        );
        let expected = "    accept:\n      /cmd_vel: any\n      \"/plan/**\": any\n      \
                        /x: [a/B, a/C]\n      /goal: geometry_msgs/PoseStamped\n      \
                        /reset: std_srvs/msg/Empty\n    call: [/set_mode, \"/light/*\", /reboot]\n    \
                        set_parameters: [/camera/rate, /camera/gain]\n";
        assert_eq!(text, expected);
        let after = base(&text);
        assert_eq!(after.names.accept.len(), 5);
        assert_eq!(after.names.accept[2].types, ["a/B", "a/C"]);
        assert_eq!(after.call.len(), 3);
    }

    #[test]
    fn a_rename_to_add_includes_existing_renames() {
        let before = base("    remap: { /a-1: /a, \"/b:1\": /b }\n");
        let unusable = UnusableName { problem: String::new(), proposal: "/c_1".into() };
        let name = PendingRequest {
            unusable: Some(unusable),
            ..waiting(RequestKind::Publish, "/c-1", Some("a/B"))
        };
        let text = config_fragment(&before.names, [&before.call, &[]], &[&name]);
        assert_eq!(
            text,
            "    remap:\n      \"/a-1\": /a\n      \"/b:1\": /b\n      \"/c-1\": /c_1\n"
        );
        assert_eq!(base(&text).names.local_name("/c-1"), "/c_1");
    }

    #[test]
    fn peers_without_waiting_requests_have_no_lines_to_add() {
        let reboot = waiting(RequestKind::Call, "/reboot", None);
        let none = NameMap::default();
        assert_eq!(config_fragment(&none, [&[], &[]], &[&reboot]), "    call: [/reboot]\n");
        let goal = waiting(RequestKind::Publish, "/goal", None);
        let call = base("    call: /reboot\n").call;
        assert_eq!(
            config_fragment(&none, [&call, &[]], &[&goal]),
            "    accept:\n      /goal: any\n"
        );
    }
}
