// SPDX-License-Identifier: Apache-2.0
//! What a robot shows of its ROS to a peer: its nodes and, in ROS 1, its parameters. Pure: the form in
//! which both cross the radio, and its limits. Everything read here is hostile.

use crate::names::check_peer_name;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of nodes that a robot shows, and of nodes of one peer that are shown here.
pub const MAX_NODES: usize = 512;
/// Maximum number of topics and services of all these nodes.
pub const MAX_NAMES: usize = 8192;
/// Maximum number of parameters that a robot shows, and of parameters of one peer that are shown here.
pub const MAX_PARAMETERS: usize = 4096;
/// Maximum size of a list of nodes or of parameters, in bytes.
pub const MAX_BYTES: usize = 1 << 20;
/// Maximum number of values (numbers, flags, texts and lists) in a list of parameters. Each value
/// becomes some 40 bytes of XML-RPC, which the master has to parse.
pub const MAX_VALUES: usize = 1 << 16;
/// Maximum size of a name, in bytes.
const MAX_NAME: usize = 255;
/// Deepest nesting of lists in a parameter.
const MAX_DEPTH: usize = 8;

/// The topics and services of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeInfo {
    /// Topics that it publishes.
    pub publishes: BTreeSet<String>,
    /// Services that it serves.
    pub serves: BTreeSet<String>,
}

/// Nodes by their full names.
pub type Nodes = BTreeMap<String, NodeInfo>;

/// Parameters of ROS 1 by their full names. Each is a number, a flag, a text, or a list of these;
/// namespaces are levels of the names.
pub type Parameters = BTreeMap<String, Value>;

/// Serializes a list of nodes for the radio. Entries above the limits, and names that no peer
/// accepts, are omitted.
pub fn write_nodes(nodes: &Nodes) -> Vec<u8> {
    let (mut names_left, mut bytes_left) = (MAX_NAMES, MAX_BYTES);
    let mut written = Map::new();
    let nodes = nodes.iter().filter(|(name, _)| check_utf8_name(name).is_ok());
    for (name, node) in nodes.take(MAX_NODES) {
        // 40 more bytes for the keys of both lists, quotes and punctuation.
        let size = name.len() + 40;
        if size > bytes_left {
            break;
        }
        bytes_left -= size;
        let mut list = |names: &BTreeSet<String>| {
            let fits = |name: &&String| {
                let size = name.len() + 3;
                let fits = names_left > 0 && size <= bytes_left && check_utf8_name(name).is_ok();
                if fits {
                    (names_left, bytes_left) = (names_left - 1, bytes_left - size);
                }
                fits
            };
            json!(names.iter().filter(fits).collect::<Vec<_>>())
        };
        let (publishes, serves) = (list(&node.publishes), list(&node.serves));
        written.insert(name.clone(), json!({ "publishes": publishes, "serves": serves }));
    }
    Value::Object(written).to_string().into_bytes()
}

/// Reads a list of nodes.
pub fn read_nodes(bytes: &[u8]) -> Result<Nodes, String> {
    let all = read_map(bytes)?;
    let mut names_left = MAX_NAMES;
    if all.len() > MAX_NODES {
        return Err(format!("{} nodes; allowed: {MAX_NODES}", all.len()));
    }
    let mut names = |node: &Value, key: &str| -> Result<BTreeSet<String>, String> {
        let list = node.get(key).and_then(Value::as_array).ok_or("a node without its lists")?;
        names_left = names_left
            .checked_sub(list.len())
            .ok_or_else(|| format!("more than {MAX_NAMES} topics and services"))?;
        list.iter().map(|it| check_utf8_name(it.as_str().unwrap_or_default())).collect()
    };
    let mut node = |(name, node): (String, Value)| {
        let shown =
            NodeInfo { publishes: names(&node, "publishes")?, serves: names(&node, "serves")? };
        Ok((check_utf8_name(&name)?, shown))
    };
    all.into_iter().map(&mut node).collect()
}

/// Serializes parameters for the radio. Entries above the limits are omitted.
pub fn write_parameters(parameters: &Parameters) -> Vec<u8> {
    let (mut bytes_left, mut values_left) = (MAX_BYTES, MAX_VALUES);
    let mut written = Map::new();
    for (name, value) in parameters.iter().take(MAX_PARAMETERS) {
        // 8 more bytes for quotes, a colon and a comma.
        let (size, values) = (name.len() + value.to_string().len() + 8, values_in(value));
        let fits = size <= bytes_left && values <= values_left;
        if fits && check_utf8_name(name).is_ok() && is_plain(value, MAX_DEPTH) {
            (bytes_left, values_left) = (bytes_left - size, values_left - values);
            written.insert(name.clone(), value.clone());
        }
    }
    Value::Object(written).to_string().into_bytes()
}

/// Reads parameters.
pub fn read_parameters(bytes: &[u8]) -> Result<Parameters, String> {
    let all = read_map(bytes)?;
    if all.len() > MAX_PARAMETERS {
        return Err(format!("{} parameters; allowed: {MAX_PARAMETERS}", all.len()));
    }
    let values: usize = all.values().map(values_in).sum();
    if values > MAX_VALUES {
        return Err(format!("{values} values; allowed: {MAX_VALUES}"));
    }
    let parameter = |(name, value): (String, Value)| match is_plain(&value, MAX_DEPTH) {
        true => Ok((check_utf8_name(&name)?, value)),
        false => {
            Err(format!("{} is no number, flag, text or list", crate::plain::plain(&name, 80)))
        }
    };
    all.into_iter().map(parameter).collect()
}

fn read_map(bytes: &[u8]) -> Result<Map<String, Value>, String> {
    if bytes.len() > MAX_BYTES {
        return Err(format!("{} bytes; allowed: {MAX_BYTES}", bytes.len()));
    }
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

fn check_utf8_name(name: &str) -> Result<String, String> {
    if name.len() > MAX_NAME {
        return Err(format!("a name of {} bytes; allowed: {MAX_NAME}", name.len()));
    }
    check_peer_name(name).map_err(|error| error.to_string())?;
    Ok(name.to_owned())
}

/// The number of lists and other values in a value; serde_json limits the nesting of what it reads.
fn values_in(value: &Value) -> usize {
    match value {
        Value::Array(all) => 1 + all.iter().map(values_in).sum::<usize>(),
        _ => 1,
    }
}

/// Whether every XML-RPC library can represent a value.
fn is_plain(value: &Value, depth: usize) -> bool {
    match value {
        Value::Bool(_) => true,
        Value::Number(number) => number.is_f64() || number.as_i64().is_some_and(fits_in_ros1),
        Value::String(text) => text.chars().all(is_unchanged_in_xml),
        Value::Array(all) => depth > 0 && all.iter().all(|it| is_plain(it, depth - 1)),
        Value::Null | Value::Object(_) => false,
    }
}

/// Whether XML 1.0 carries a character unchanged (2.2 and 2.11: a carriage return becomes a line feed).
fn is_unchanged_in_xml(c: char) -> bool {
    (!c.is_control() || matches!(c, '\t' | '\n')) && !matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// Whether a number fits in an integer of ROS 1, which has 32 bits.
fn fits_in_ros1(number: i64) -> bool {
    i32::try_from(number).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn nodes_and_parameters_are_read_as_written() {
        let camera = NodeInfo { publishes: set(&["/image", "/info"]), serves: set(&["/camera/x"]) };
        let nodes = Nodes::from([("/camera".into(), camera), ("/a".into(), NodeInfo::default())]);
        assert_eq!(read_nodes(&write_nodes(&nodes)), Ok(nodes));
        let values = [json!(3), json!(3.0), json!(true), json!("a\n'b'"), json!([1, [2.5]])];
        let names = (0..).map(|number| format!("/n{number}/p"));
        let parameters: Parameters = names.zip(values).collect();
        assert_eq!(read_parameters(&write_parameters(&parameters)), Ok(parameters));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, text in "[\\[\\]{}\",:/a-c0-9. -]*") {
            for bytes in [&bytes[..], text.as_bytes()] {
                if let Ok(parameters) = read_parameters(bytes) {
                    assert_eq!(read_parameters(&write_parameters(&parameters)), Ok(parameters));
                }
                let _ = read_nodes(bytes);
            }
        }
    }

    #[test]
    fn descriptions_above_a_limit_are_not_written() {
        let names: BTreeSet<String> = (0..MAX_NAMES).map(|it| format!("/t{it}")).collect();
        let one = NodeInfo { publishes: names.clone(), serves: names };
        let nodes: Nodes = (0..=MAX_NODES).map(|it| (format!("/n{it:04}"), one.clone())).collect();
        let read = read_nodes(&write_nodes(&nodes)).unwrap();
        assert_eq!(read.len(), MAX_NODES);
        assert_eq!(
            read.values().map(|it| it.publishes.len() + it.serves.len()).sum::<usize>(),
            MAX_NAMES
        );
        let large = |size| Parameters::from([("/a".into(), json!("x".repeat(size)))]);
        assert_eq!(read_parameters(&write_parameters(&large(MAX_BYTES))), Ok(Parameters::new()));
        assert_eq!(read_parameters(&write_parameters(&large(1000))), Ok(large(1000)));
    }

    #[test]
    fn an_invalid_name_does_not_hide_other_nodes() {
        let long = (0..MAX_NAMES).map(|it| format!("/t{it}{}", "x".repeat(200))).collect();
        let nodes = Nodes::from([
            ("/a b".into(), NodeInfo::default()),
            ("/b".into(), NodeInfo { publishes: set(&["/x y", "/z"]), serves: long }),
            ("/c".into(), NodeInfo::default()),
        ]);
        let read = read_nodes(&write_nodes(&nodes)).unwrap();
        let b = &read["/b"];
        assert_eq!(b.publishes, set(&["/z"]));
        assert!(!read.contains_key("/a b") && b.serves.len() > 4000);
        let values = Parameters::from([("/a".into(), json!(vec![1; MAX_VALUES]))]);
        assert_eq!(read_parameters(&write_parameters(&values)), Ok(Parameters::new()));
        let text = format!("{{\"/a\":[{}1]}}", "1,".repeat(MAX_VALUES));
        assert!(read_parameters(text.as_bytes()).unwrap_err().contains("values; allowed"));
    }

    #[test]
    fn hostile_lists_are_refused_with_a_reason() {
        for (text, expected) in [
            ("[]", "invalid type"),
            ("{\"camera\":{\"publishes\":[],\"serves\":[]}}", "does not start with '/'"),
            ("{\"/camera\":{\"publishes\":[]}}", "without its lists"),
            ("{\"/camera\":{\"publishes\":[3],\"serves\":[]}}", "does not start with '/'"),
            ("{\"/camera\":{\"publishes\":[\"/a b\"],\"serves\":[]}}", "has ' '"),
        ] {
            let error = read_nodes(text.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let deep = format!("{{\"/a\":{}{}}}", "[".repeat(9), "]".repeat(9));
        let very_deep = format!("{{\"/a\":{}", "[".repeat(100_000));
        for text in [
            "{\"/a\":{}}",
            "{\"/a\":null}",
            "{\"/a\":4294967296}",
            "{\"/a\":\"\\u0000\"}",
            "{\"/a\":\"\\uffff\"}",
            "{\"/a\":\"\\r\"}",
            "{\"a\":1}",
        ]
        .into_iter()
        .chain([&*deep, &*very_deep])
        {
            assert!(read_parameters(text.as_bytes()).is_err(), "{text}");
        }
        assert!(
            read_parameters(&vec![b' '; MAX_BYTES + 1]).unwrap_err().contains("bytes; allowed")
        );
        let many: Vec<String> = (0..=MAX_PARAMETERS).map(|it| format!("\"/p{it}\":1")).collect();
        let error = read_parameters(format!("{{{}}}", many.join(",")).as_bytes()).unwrap_err();
        assert_eq!(error, "4097 parameters; allowed: 4096");
    }
}
