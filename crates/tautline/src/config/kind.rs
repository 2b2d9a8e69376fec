// SPDX-License-Identifier: Apache-2.0
//! Kinds of single values in the robot's file: how each is parsed, and its allowed values in words
//! (for errors and the reference) and as a JSON Schema.

use super::budget::{self, Budget};
use super::channel;
use super::units;
pub use super::value::Value;
use super::value::{Address, Interfaces, Variant};
use serde_json::{Value as Json, json};
use std::net::{Ipv6Addr, SocketAddr};
use tautline_gateway::names::{NameError, check_name};
use tautline_gateway::networks;
use tautline_gateway::pattern::Pattern;
use tautline_gateway::tf::MAX_PREFIX;
use tautline_proto::Rate;
use tautline_proto::rate::CONTROLS;

/// Maximum bytes of a node's name.
pub const MAX_NODE_NAME: usize = tautline_proto::wire::packet::MAX_NAME;
/// Maximum bytes of the path of a Unix socket on Linux (sun_path is 108 bytes with its final zero).
pub const MAX_SOCKET_PATH: usize = 107;
/// Maximum bytes of an interface name on Linux (IFNAMSIZ is 16 with its final zero).
pub const MAX_INTERFACE_NAME: usize = 15;
/// Maximum bytes of a host name (RFC 1035, 2.3.4).
pub const MAX_HOST_NAME: usize = 255;

/// A kind of single value. Ranges are inclusive and written as in the file.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Name of a node.
    NodeName,
    /// Absolute path of a Unix socket.
    SocketPath,
    /// Address and port to listen on. A port alone means the given address with this port.
    Listen(&'static str),
    /// `http://host:port`.
    MasterUri,
    /// Host name or address without a port.
    Host,
    /// Host name or address, with or without a port, of another node.
    Endpoint,
    /// Address, or network of addresses.
    Network,
    /// Network interface.
    Interface,
    /// Network interface, or all or none of them.
    Interfaces,
    /// Absolute ROS name.
    RosName,
    /// Absolute name that a topic, service or action has at a peer.
    PeerName,
    /// ROS name or pattern of names.
    Pattern,
    /// Type of a topic, service or action, or any type.
    TypeName,
    /// Name of a tf frame or pattern of names.
    Frames,
    /// Prefix of names of tf frames.
    FramePrefix,
    /// Path of a folder.
    Folder,
    /// Path of a file.
    File,
    /// Public key.
    PublicKey,
    /// `true` or `false`.
    Flag,
    /// Whole number.
    Whole(u64, u64),
    /// Time with a unit.
    Duration(&'static str, &'static str),
    /// Bit rate with a unit.
    BitRate(&'static str, &'static str),
    /// Rate control of a radio: a word, or a bit rate with a unit.
    Pacing(&'static str, &'static str),
    /// Frequency in hertz.
    Frequency(&'static str, &'static str),
    /// Number of bytes.
    Bytes(&'static str, &'static str),
    /// Bytes per period.
    Budget,
    /// What the planner assumes about a radio.
    Channel,
    /// Fraction of one, or per cent.
    Share,
    /// One of these words.
    OneOf(&'static [&'static str]),
}

/// A text that is not a valid value of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("found '{found}'; allowed: {allowed}")]
pub struct Refusal {
    /// The text.
    pub found: String,
    /// The allowed values.
    pub allowed: String,
}

impl Kind {
    /// Returns the form of this kind's parsed values.
    pub const fn variant(&self) -> Variant {
        match self {
            Kind::OneOf(_) => Variant::Word,
            Kind::Interfaces => Variant::Interfaces,
            Kind::Endpoint => Variant::Endpoint,
            Kind::Listen(_) => Variant::Listen,
            Kind::Pattern | Kind::Frames => Variant::Pattern,
            Kind::PublicKey => Variant::Key,
            Kind::Network => Variant::Network,
            Kind::Flag => Variant::Flag,
            Kind::Whole(..) | Kind::BitRate(..) | Kind::Bytes(..) => Variant::Whole,
            Kind::Pacing(..) => Variant::Pacing,
            Kind::Frequency(..) | Kind::Share => Variant::Real,
            Kind::Duration(..) => Variant::Duration,
            Kind::Budget => Variant::Budget,
            Kind::Channel => Variant::Channel,
            _ => Variant::Text,
        }
    }

    /// Parses `text`.
    pub fn parse(&self, text: &str) -> Result<Value, Refusal> {
        let because = |reason: NameError| format!("{} ({reason})", self.allowed());
        let parsed = match self {
            Kind::RosName => check_name(text).map(|()| Value::Text(text.into())).map_err(because),
            Kind::Pattern => Pattern::new(text).map(Value::Pattern).map_err(because),
            Kind::Frames => Pattern::for_frames(text).map(Value::Pattern).map_err(because),
            Kind::Network => text.parse().map(Value::Network),
            Kind::Channel => {
                channel::parse(text).map(Value::Channel).map_err(|error| error.to_string())
            }
            Kind::Pacing(..) if FORMER_PACINGS.contains(&text) => Err(format!(
                "{} ('aid' and 'aimd' were baselines of the laboratory: use auto)",
                self.allowed()
            )),
            _ => self.value(text).ok_or_else(|| self.allowed()),
        };
        parsed.map_err(|allowed| Refusal { found: text.into(), allowed })
    }

    fn value(&self, text: &str) -> Option<Value> {
        let known = |ok: bool| ok.then(|| Value::Text(text.into()));
        match *self {
            Kind::NodeName => known(is_node_name(text)),
            Kind::SocketPath => known(text.starts_with('/') && text.len() <= MAX_SOCKET_PATH),
            Kind::PeerName => known(is_peer_name(text)),
            Kind::Listen(bare_port_address) => listen(text, bare_port_address),
            Kind::MasterUri => master_uri(text).map(Value::Text),
            Kind::Host => known(is_host(text)),
            Kind::Endpoint => endpoint(text).map(Value::Endpoint),
            Kind::Interface => known(is_interface(text)),
            Kind::Interfaces => interfaces(text).map(Value::Interfaces),
            Kind::TypeName => known(text == ANY_TYPE || is_type_name(text)),
            Kind::FramePrefix => known(is_frame_prefix(text)),
            Kind::Folder => known(text.starts_with('/')),
            Kind::File => known(!text.is_empty() && !text.ends_with('/')),
            Kind::PublicKey => text.parse().ok().map(Value::Key),
            Kind::Flag => text.parse().ok().map(Value::Flag),
            Kind::Whole(min, max) => whole_number(text, min, max).map(Value::Whole),
            Kind::Duration(min, max) => {
                check_range(units::duration, text, min, max).map(Value::Duration)
            }
            Kind::BitRate(min, max) => {
                check_range(units::bit_rate, text, min, max).map(Value::Whole)
            }
            Kind::Pacing(min, max) => pacing(text, min, max).map(Value::Pacing),
            Kind::Frequency(min, max) => {
                check_range(units::frequency, text, min, max).map(Value::Real)
            }
            Kind::Bytes(min, max) => check_range(units::bytes, text, min, max).map(Value::Whole),
            Kind::Budget => Budget::parse(text).map(Value::Budget),
            Kind::Share => check_range(units::share, text, "0", "1").map(Value::Real),
            Kind::OneOf(words) => known(words.contains(&text)),
            // These kinds have error messages of their own.
            Kind::RosName | Kind::Pattern | Kind::Frames | Kind::Network | Kind::Channel => None,
        }
    }

    /// Describes the allowed values.
    pub fn allowed(&self) -> String {
        match self {
            Kind::NodeName => format!("1 to {MAX_NODE_NAME} letters, digits, '_' or '-'"),
            Kind::SocketPath => format!("an absolute path of at most {MAX_SOCKET_PATH} bytes"),
            Kind::Listen(address) => {
                format!("ADDRESS:PORT, \"[IPV6]:PORT\" in quotes, or a port alone (on {address})")
            }
            Kind::MasterUri => "a URI such as http://localhost:11311".into(),
            Kind::Host => "a host name or an IP address, without a port".into(),
            Kind::Endpoint => {
                "HOST or HOST:PORT; an IPv6 address with a port in brackets and quotes, \"[fe80::1%wlan0]:18470\"".into()
            }
            Kind::Network => networks::ALLOWED.into(),
            Kind::Interface => "the name of a network interface such as wlan0".into(),
            Kind::Interfaces => {
                "the name of a network interface such as wlan0; alone, true means all of them and false none".into()
            }
            Kind::RosName => "a full topic or node name such as /camera/image".into(),
            Kind::PeerName => "a full name such as /camera-1/image, with at least one character in each level, none of them a space or '*'".into(),
            Kind::Pattern => "a full topic name such as /scan, or a pattern with * (one level) or ** (any levels)".into(),
            Kind::TypeName => "a type such as geometry_msgs/Twist or geometry_msgs/msg/Twist, or any".into(),
            Kind::Frames => "the name of a frame such as base_link, or a pattern with * (one level) or ** (any levels)".into(),
            Kind::FramePrefix => {
                format!("1 to {MAX_PREFIX} letters, digits, '_', '-', '.' or single '/', not at the start, such as robot1/")
            }
            Kind::Folder => "an absolute path of a folder".into(),
            Kind::File => "a path of a file, absolute or relative to the folder of this file".into(),
            Kind::PublicKey => "a public key of 44 characters, as `tautline keygen` shows it".into(),
            Kind::Flag => "true or false".into(),
            Kind::Whole(min, max) => format!("a whole number from {min} to {max}"),
            Kind::Duration(min, max) => format!("a time from {min} to {max} with its unit (us, ms, s, min, h)"),
            Kind::BitRate(min, max) => format!("a rate from {min} to {max} with its unit (bps, kbps, Mbps, Gbps)"),
            Kind::Pacing(min, max) => {
                let words = CONTROLS.map(|control| control.name).join(", ");
                format!("{words}, or {}", Kind::BitRate(min, max).allowed())
            }
            Kind::Frequency(min, max) => format!("a frequency from {min} to {max} (Hz, kHz; a number alone is Hz)"),
            Kind::Bytes(min, max) => {
                format!("a size from {min} to {max} (kB, MB, GB, KiB, MiB, GiB; a number alone is bytes)")
            }
            Kind::Budget => budget::ALLOWED.into(),
            Kind::Channel => channel::FORMS.into(),
            Kind::Share => "0% to 100%, or 0 to 1".into(),
            Kind::OneOf(words) => words.join(" or "),
        }
    }

    /// Returns the JSON Schema of the value, in the type that a YAML parser gives it.
    pub fn schema(&self) -> Json {
        let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
        match self {
            Kind::NodeName => text(&format!("^[A-Za-z0-9_-]{{1,{MAX_NODE_NAME}}}$")),
            Kind::SocketPath => {
                json!({ "type": "string", "pattern": "^/", "maxLength": MAX_SOCKET_PATH })
            }
            Kind::Listen(_) => {
                json!({ "anyOf": [{ "type": "integer", "minimum": 1, "maximum": 65535 }, text(":[0-9]{1,5}$|^[0-9]{1,5}$")] })
            }
            Kind::MasterUri => text("^http://[^/]+:[0-9]{1,5}/?$"),
            Kind::Host | Kind::Endpoint => text("^[^/\\s]+$"),
            Kind::Network => text("^[0-9A-Fa-f.:]+(/[0-9]{1,3})?$"),
            Kind::Interface => {
                json!({ "type": "string", "pattern": "^[^/\\s]+$", "maxLength": MAX_INTERFACE_NAME })
            }
            Kind::Interfaces => {
                json!({ "anyOf": [{ "type": "boolean" }, Kind::Interface.schema()] })
            }
            Kind::RosName => text("^(/[A-Za-z0-9_]+)+$"),
            Kind::PeerName => text("^(/[^/\\s*]+)+$"),
            Kind::Pattern => text("^(/[A-Za-z0-9_*.-]+)+$"),
            Kind::TypeName => text("^(any|[A-Za-z0-9_]+/((msg|srv|action)/)?[A-Za-z0-9_]+)$"),
            Kind::Frames => text("^[A-Za-z0-9_*.-]+(/[A-Za-z0-9_*.-]+)*$"),
            Kind::FramePrefix => {
                json!({ "type": "string", "pattern": "^([A-Za-z0-9_.-]+/)*[A-Za-z0-9_.-]*$", "minLength": 1, "maxLength": MAX_PREFIX })
            }
            Kind::Folder => text("^/"),
            Kind::File => text("[^/]$"),
            Kind::PublicKey => text("^[A-Za-z0-9+/]{43}=$"),
            Kind::Flag => json!({ "type": "boolean" }),
            Kind::Whole(min, max) => json!({ "type": "integer", "minimum": min, "maximum": max }),
            Kind::Duration(..) => text(&quantity_pattern(units::TIME_UNITS)),
            Kind::BitRate(..) => text(&quantity_pattern(units::BIT_RATE_UNITS)),
            Kind::Pacing(..) => {
                let words = CONTROLS.map(|control| control.name);
                json!({ "anyOf": [{ "enum": words }, text(&quantity_pattern(units::BIT_RATE_UNITS))] })
            }
            Kind::Frequency(..) => number_or(units::FREQUENCY_UNITS, None),
            Kind::Bytes(..) => number_or(units::BYTE_UNITS, None),
            Kind::Budget => text(budget::PATTERN),
            Kind::Channel => text(channel::PATTERN),
            Kind::Share => number_or(units::SHARE_UNITS, Some(1)),
            Kind::OneOf(words) => json!({ "enum": words }),
        }
    }
}

fn quantity_pattern(unit_names: &[(&str, f64)]) -> String {
    let names: Vec<&str> = unit_names.iter().map(|(name, _)| *name).collect();
    format!("^[0-9]+([.][0-9]*)? *({})$", names.join("|"))
}

fn number_or(unit_names: &[(&str, f64)], maximum: Option<u64>) -> Json {
    let mut number = json!({ "type": "number", "minimum": 0 });
    if let Some(maximum) = maximum {
        number["maximum"] = maximum.into();
    }
    json!({ "anyOf": [number, { "type": "string", "pattern": quantity_pattern(unit_names) }] })
}

fn check_range<T: PartialOrd>(
    parse: fn(&str) -> Option<T>,
    text: &str,
    min: &str,
    max: &str,
) -> Option<T> {
    let (min, max) = (parse(min)?, parse(max)?);
    parse(text).filter(|value| *value >= min && *value <= max)
}

/// Words for rate control in files of earlier versions.
const FORMER_PACINGS: [&str; 2] = ["aid", "aimd"];

fn pacing(text: &str, min: &str, max: &str) -> Option<Rate> {
    let control = CONTROLS.iter().find(|control| control.name == text).map(Rate::PerLink);
    control.or_else(|| check_range(units::bit_rate, text, min, max).map(Rate::Fixed))
}

fn whole_number(text: &str, min: u64, max: u64) -> Option<u64> {
    let digits_only = text.bytes().all(|b| b.is_ascii_digit());
    let number = text.parse().ok().filter(|_| digits_only)?;
    (min..=max).contains(&number).then_some(number)
}

/// Whether ROS 1 allows this name for a topic; rospy takes almost any name.
fn is_peer_name(text: &str) -> bool {
    let odd = |c: char| c.is_whitespace() || c.is_control() || c == '*';
    let levels = text.strip_prefix('/').map(|rest| rest.split('/'));
    levels.is_some_and(|mut all| all.all(|level| !level.is_empty() && !level.contains(odd)))
}

/// Whether a text is a valid name of a Tautline node.
pub fn is_node_name(text: &str) -> bool {
    let fits = (1..=MAX_NODE_NAME).contains(&text.len());
    fits && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// The word for any type, in place of the name of a type.
pub const ANY_TYPE: &str = "any";

fn is_type_name(text: &str) -> bool {
    let parts: Vec<&str> = text.split('/').collect();
    let plain = |part: &&str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    let kinds = ["msg", "srv", "action"];
    parts.iter().all(plain)
        && matches!(parts.as_slice(), [_, _] | [_, _, _])
        && (parts.len() == 2 || kinds.contains(&parts[1]))
}

fn is_frame_prefix(text: &str) -> bool {
    let fits = (1..=MAX_PREFIX).contains(&text.len()) && !text.starts_with('/');
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-./".contains(&b);
    fits && !text.contains("//") && text.bytes().all(plain)
}

fn is_interface(text: &str) -> bool {
    let fits = (1..=MAX_INTERFACE_NAME).contains(&text.len()) && text != "." && text != "..";
    fits && text.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b':')
}

fn interfaces(text: &str) -> Option<Interfaces> {
    let named = is_interface(text).then(|| Interfaces::Named(text.into()));
    text.parse().ok().map(Interfaces::All).or(named)
}

fn is_host(text: &str) -> bool {
    is_ipv6(text) || is_host_name(text)
}

fn is_host_name(text: &str) -> bool {
    let fits = (1..=MAX_HOST_NAME).contains(&text.len()) && !text.starts_with(['-', '.']);
    // A text of digits and dots can only be meant as an IPv4 address, and must then be a valid one.
    let looks_like_ipv4 = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let is_right = !looks_like_ipv4 || text.parse::<std::net::Ipv4Addr>().is_ok();
    fits && is_right && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
}

fn is_ipv6(text: &str) -> bool {
    let (address, zone) = text.split_once('%').unwrap_or((text, "lo"));
    address.parse::<Ipv6Addr>().is_ok() && is_interface(zone)
}

fn port(text: &str) -> Option<u16> {
    whole_number(text, 1, 65535)?.try_into().ok()
}

fn listen(text: &str, bare_port_address: &str) -> Option<Value> {
    if let Some(port) = port(text) {
        return Some(Value::Listen(SocketAddr::new(bare_port_address.parse().ok()?, port)));
    }
    let address: SocketAddr = text.parse().ok()?;
    (address.port() != 0).then_some(Value::Listen(address))
}

/// Parses `HOST`, `HOST:PORT`, `IPV6`, `[IPV6]` or `[IPV6]:PORT`, with or without `%zone`.
fn endpoint(text: &str) -> Option<Address> {
    if is_ipv6(text) {
        return Some(Address { host: text.into(), port: None });
    }
    if let Some(inside) = text.strip_prefix('[') {
        let (host, after) = inside.split_once(']')?;
        let port = if after.is_empty() { None } else { Some(port(after.strip_prefix(':')?)?) };
        return is_ipv6(host).then(|| Address { host: host.into(), port });
    }
    let (host, port) = match text.split_once(':') {
        Some((host, after)) => (host, Some(port(after)?)),
        None => (text, None),
    };
    is_host_name(host).then(|| Address { host: host.into(), port })
}

fn master_uri(text: &str) -> Option<String> {
    let uri = text.strip_suffix('/').unwrap_or(text);
    endpoint(uri.strip_prefix("http://")?)?.port.map(|_| uri.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<(String, Option<u16>)> {
        match Kind::Endpoint.parse(text) {
            Ok(Value::Endpoint(Address { host, port })) => Some((host, port)),
            _ => None,
        }
    }

    #[test]
    fn addresses_of_every_form_are_read() {
        let read = |text| address(text).unwrap_or_else(|| panic!("{text} is not read"));
        assert_eq!(read("10.0.0.2"), ("10.0.0.2".into(), None));
        assert_eq!(read("robot2.local:9000"), ("robot2.local".into(), Some(9000)));
        assert_eq!(read("fe80::1%wlan0"), ("fe80::1%wlan0".into(), None));
        assert_eq!(read("[fe80::1%wlan0]:18470"), ("fe80::1%wlan0".into(), Some(18470)));
        assert_eq!(read("[::1]"), ("::1".into(), None));
    }

    #[test]
    fn half_addresses_are_refused() {
        for bad in [
            "",
            ":",
            "a:",
            "a:0",
            "a:70000",
            "[::1",
            "[::1]x",
            "[::1]:",
            "1.2.3",
            "1.2.3.4.5",
            "a b",
            "fe80::1%",
        ] {
            assert_eq!(address(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_port_alone_listens_on_the_usual_address() {
        let value = Kind::Listen("::").parse("18470").unwrap();
        assert_eq!(value, Value::Listen("[::]:18470".parse().unwrap()));
        assert!(Kind::Listen("::").parse("[::]").is_err());
        assert!(Kind::Listen("::").parse("0.0.0.0:0").is_err());
    }

    #[test]
    fn a_master_must_be_a_uri_with_a_port() {
        assert_eq!(
            Kind::MasterUri.parse("http://h:11311/"),
            Ok(Value::Text("http://h:11311".into()))
        );
        for bad in ["h:11311", "http://h", "https://h:1", "http://h:1/x"] {
            assert!(Kind::MasterUri.parse(bad).is_err(), "{bad}");
        }
    }
}
