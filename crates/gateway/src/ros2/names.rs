// SPDX-License-Identifier: Apache-2.0
//! What ROS 2 calls things, and what DDS calls them (design.ros2.org, "Topic and Service name
//! mapping to DDS").

use tautline_dds::Endpoint;

/// What a DDS topic is to ROS 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// A topic (`/scan`).
    Topic(String),
    /// Requests of a service (`/add_two_ints`).
    Request(String),
    /// Replies of a service.
    Reply(String),
}

/// The prefix of topics.
const TOPIC: &str = "rt/";
const REQUEST: (&str, &str) = ("rq/", "Request");
const REPLY: (&str, &str) = ("rr/", "Reply");
/// Before a type's own name, and after it.
const NAMESPACE: &str = "dds_";
/// At the ends of a service's two types.
const REQUEST_TYPE: &str = "_Request";
const RESPONSE_TYPE: &str = "_Response";
/// A type hash among an endpoint's user data (REP 2016).
const HASH_KEY: &str = "typehash=";
/// Says in user data that an endpoint is Tautline's, and which node's.
const MARK_KEY: &str = "tautline=";

impl Meaning {
    /// What the topic `dds_name` is; `None` if it is not of ROS 2 (`ros_discovery_info`), or if
    /// ROS 2 allows no such name.
    pub fn of(dds_name: &str) -> Option<Self> {
        let service = |(prefix, suffix): (&str, &str)| {
            Some(format!("/{}", dds_name.strip_prefix(prefix)?.strip_suffix(suffix)?))
        };
        let topic = dds_name.strip_prefix(TOPIC).map(|name| Self::Topic(format!("/{name}")));
        let meaning = topic
            .or_else(|| service(REQUEST).map(Self::Request))
            .or_else(|| service(REPLY).map(Self::Reply))?;
        let (Self::Topic(name) | Self::Request(name) | Self::Reply(name)) = &meaning;
        crate::mapping::check_name(name).is_ok().then_some(meaning)
    }

    /// The name of its DDS topic.
    pub fn dds_name(&self) -> String {
        let bare = |name: &str| name.strip_prefix('/').unwrap_or(name).to_owned();
        match self {
            Self::Topic(name) => format!("{TOPIC}{}", bare(name)),
            Self::Request(name) => format!("{}{}{}", REQUEST.0, bare(name), REQUEST.1),
            Self::Reply(name) => format!("{}{}{}", REPLY.0, bare(name), REPLY.1),
        }
    }
}

/// `sensor_msgs::msg::dds_::LaserScan_` of `sensor_msgs/msg/LaserScan`.
pub fn dds_type(ros_type: &str) -> Option<String> {
    let (namespace, name) = ros_type.rsplit_once('/')?;
    Some(format!("{}::{NAMESPACE}::{name}_", namespace.replace('/', "::")))
}

/// `sensor_msgs/msg/LaserScan` of `sensor_msgs::msg::dds_::LaserScan_`; `None` of what is not
/// made of names as ROS 2 has them.
pub fn ros_type(dds_type: &str) -> Option<String> {
    let (namespace, name) = dds_type.strip_suffix('_')?.rsplit_once("::")?;
    let namespace = namespace.strip_suffix(NAMESPACE)?.strip_suffix("::")?;
    let mut parts = namespace.split("::").chain([name]);
    parts.all(is_identifier).then(|| format!("{}/{name}", namespace.replace("::", "/")))
}

fn is_identifier(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(letter) && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
}

/// DDS's types of a service's requests and replies:
/// `std_srvs::srv::dds_::SetBool_Request_` and `..._Response_` of `std_srvs/srv/SetBool`.
pub fn dds_service_types(ros_type: &str) -> Option<(String, String)> {
    let part = |suffix| dds_type(&format!("{ros_type}{suffix}"));
    // Else `dds_type` would take `SetBool` for a name.
    ros_type.split_once('/').filter(|(package, own)| !package.is_empty() && !own.is_empty())?;
    part(REQUEST_TYPE).zip(part(RESPONSE_TYPE))
}

/// `std_srvs/srv/SetBool` of `std_srvs::srv::dds_::SetBool_Request_`.
pub fn ros_service_type(dds_request_type: &str) -> Option<String> {
    Some(ros_type(dds_request_type)?.strip_suffix(REQUEST_TYPE)?.to_owned())
}

/// User data of our readers and writers: the type's hash where it is known, and whose they are.
pub fn endpoint_user_data(type_hash: &str, tautline_name: &str) -> String {
    let hash = match type_hash {
        "" => String::new(),
        known => format!("{HASH_KEY}{known};"),
    };
    format!("{hash}{MARK_KEY}{tautline_name};")
}

/// User data of our participant: as a ROS 2 process without an enclave, and ours.
pub fn participant_user_data(tautline_name: &str) -> String {
    format!("enclave=/;{MARK_KEY}{tautline_name};")
}

/// Whether an endpoint is a Tautline node's, this one's or another's on this machine.
pub fn is_of_tautline(user_data: &[u8]) -> bool {
    pairs(user_data).is_some_and(|mut all| all.any(|pair| pair.starts_with(MARK_KEY)))
}

/// Whether an endpoint is a ROS 2 program's that is no Tautline. ROS 2 has no keys: with one it is
/// another kind of program's, which took a name of ROS 2's.
pub fn counts(endpoint: &Endpoint) -> bool {
    endpoint.keyless && !is_of_tautline(&endpoint.qos.user_data)
}

fn pairs(user_data: &[u8]) -> Option<impl Iterator<Item = &str>> {
    std::str::from_utf8(user_data).ok().map(|text| text.split(';').map(str::trim))
}

/// `/` and `tautline` of `/tautline`; `/robot1` and `tautline` of `/robot1/tautline`.
pub fn split_node_name(full: &str) -> (String, String) {
    match full.rsplit_once('/') {
        Some(("", name)) => ("/".into(), name.into()),
        Some((namespace, name)) => (namespace.into(), name.into()),
        None => ("/".into(), full.into()),
    }
}

/// The type hash in an endpoint's user data: `key=value;` pairs, whoever wrote them.
pub fn type_hash(user_data: &[u8]) -> Option<&str> {
    let hash = pairs(user_data)?.find_map(|pair| pair.strip_prefix(HASH_KEY))?;
    let sound = hash.strip_prefix("RIHS01_").is_some_and(|digits| {
        digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    });
    sound.then_some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_and_services_have_one_dds_name_each() {
        for (meaning, dds_name) in [
            (Meaning::Topic("/scan".into()), "rt/scan"),
            (Meaning::Topic("/robot1/camera/image".into()), "rt/robot1/camera/image"),
            (Meaning::Request("/add".into()), "rq/addRequest"),
            (Meaning::Reply("/fib/_action/send_goal".into()), "rr/fib/_action/send_goalReply"),
        ] {
            assert_eq!(meaning.dds_name(), dds_name);
            assert_eq!(Meaning::of(dds_name), Some(meaning));
        }
        let no_names = ["rt/", "rt/a b", "rt/a//b", "rt/\u{fffd}", "rq/a-bRequest", "rr/Reply"];
        let others = ["ros_discovery_info", "rq/add", "DCPSTopic", "rt", ""];
        for other in others.into_iter().chain(no_names) {
            assert_eq!(Meaning::of(other), None, "{other}");
        }
    }

    #[test]
    fn a_node_has_a_namespace_and_a_name() {
        for (full, namespace, name) in
            [("/tautline", "/", "tautline"), ("/robot1/arm/n", "/robot1/arm", "n")]
        {
            assert_eq!(split_node_name(full), (namespace.into(), name.into()));
        }
    }

    #[test]
    fn types_have_one_dds_name_each() {
        for (ros, dds) in [
            ("sensor_msgs/msg/LaserScan", "sensor_msgs::msg::dds_::LaserScan_"),
            ("a/srv/B_Request", "a::srv::dds_::B_Request_"),
            ("a/action/Fib_SendGoal_Request", "a::action::dds_::Fib_SendGoal_Request_"),
        ] {
            assert_eq!(dds_type(ros).as_deref(), Some(dds));
            assert_eq!(ros_type(dds).as_deref(), Some(ros));
        }
        for other in [
            "HelloWorld",
            "a::B",
            "a::msg::B_",
            "dds_::B_",
            "_",
            "",
            "a::msg::dds_::_",
            "a::msg::dds_::1_",
            "a::::dds_::B_",
            "a::msg::dds_::B\u{fffd}_",
            "a/b::msg::dds_::B_",
        ] {
            assert_eq!(ros_type(other), None, "{other}");
        }
    }

    #[test]
    fn a_service_has_two_types_in_dds() {
        for (ros, request, reply) in [
            ("a/srv/B", "a::srv::dds_::B_Request_", "a::srv::dds_::B_Response_"),
            (
                "a/action/Fib_SendGoal",
                "a::action::dds_::Fib_SendGoal_Request_",
                "a::action::dds_::Fib_SendGoal_Response_",
            ),
        ] {
            assert_eq!(dds_service_types(ros), Some((request.into(), reply.into())));
            assert_eq!(ros_service_type(request).as_deref(), Some(ros));
            assert_eq!(ros_service_type(reply), None);
        }
        for other in ["SetBool", "/SetBool", "std_srvs/", ""] {
            assert_eq!(dds_service_types(other), None, "{other}");
        }
    }

    #[test]
    fn a_type_hash_is_found_among_user_data() {
        let hash = format!("RIHS01_{}", "0a".repeat(32));
        let ours = endpoint_user_data(&hash, "base");
        assert_eq!(type_hash(ours.as_bytes()), Some(&*hash));
        assert!(is_of_tautline(ours.as_bytes()) && is_of_tautline(b"tautline=x"));
        assert!(!is_of_tautline(b"typehash=tautline=;") && !is_of_tautline(&[0xff]));
        assert_eq!(type_hash(format!("a=b;typehash={hash};c=d;").as_bytes()), Some(&*hash));
        for other in ["", "typehash=;", "typehash=RIHS01_00;", "typehash", &hash] {
            assert_eq!(type_hash(other.as_bytes()), None, "{other}");
        }
        assert_eq!(type_hash(&[0xff, 0xfe]), None);
    }
}
