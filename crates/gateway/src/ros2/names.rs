// SPDX-License-Identifier: Apache-2.0
//! Names of ROS 2 and of DDS (design.ros2.org, "Topic and Service name mapping to DDS").

use tautline_dds::{Qos as Dds, Specification};

/// The ROS 2 meaning of a DDS topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RosName {
    /// A topic (`/scan`).
    Topic(String),
    /// Requests of a service (`/add_two_ints`).
    Request(String),
    /// Replies of a service.
    Reply(String),
}

/// The prefix of topics.
const TOPIC: &str = "rt/";
/// The prefix and the end of the DDS topic of a service's requests.
const REQUEST: (&str, &str) = ("rq/", "Request");
/// The prefix and the end of the DDS topic of a service's replies.
const REPLY: (&str, &str) = ("rr/", "Reply");
/// The innermost namespace of a type in DDS.
const NAMESPACE: &str = "dds_";
/// The end of the type of a service's requests.
const REQUEST_TYPE: &str = "_Request";
/// The end of the type of a service's responses.
const RESPONSE_TYPE: &str = "_Response";
/// The key of the type hash in an endpoint's user data (REP 2016).
const HASH_KEY: &str = "typehash=";
/// The key in user data that marks an endpoint as a Tautline node's.
const MARK_KEY: &str = "tautline=";

impl RosName {
    /// The meaning of the DDS topic `dds_name`; `None` if it is not of ROS 2
    /// (`ros_discovery_info`), or invalid there.
    pub fn from_dds_name(dds_name: &str) -> Option<Self> {
        let service = |(prefix, suffix): (&str, &str)| {
            Some(format!("/{}", dds_name.strip_prefix(prefix)?.strip_suffix(suffix)?))
        };
        let topic = dds_name.strip_prefix(TOPIC).map(|name| Self::Topic(format!("/{name}")));
        let meaning = topic
            .or_else(|| service(REQUEST).map(Self::Request))
            .or_else(|| service(REPLY).map(Self::Reply))?;
        let (Self::Topic(name) | Self::Request(name) | Self::Reply(name)) = &meaning;
        crate::names::check_name(name).is_ok().then_some(meaning)
    }

    /// The name of the DDS topic.
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

/// `sensor_msgs/msg/LaserScan` of `sensor_msgs::msg::dds_::LaserScan_`; `None` for invalid names.
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

/// The DDS types of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceTypes {
    /// `std_srvs::srv::dds_::SetBool_Request_`
    pub request: String,
    /// `std_srvs::srv::dds_::SetBool_Response_`
    pub reply: String,
}

/// The DDS types of a service such as `std_srvs/srv/SetBool`.
pub fn dds_service_types(ros_type: &str) -> Option<ServiceTypes> {
    // `dds_type` itself would accept names without a package.
    ros_type.split_once('/').filter(|(package, own)| !package.is_empty() && !own.is_empty())?;
    let part = |suffix| dds_type(&format!("{ros_type}{suffix}"));
    Some(ServiceTypes { request: part(REQUEST_TYPE)?, reply: part(RESPONSE_TYPE)? })
}

/// The name and type of a DDS topic.
pub struct DdsTopic {
    pub name: String,
    pub type_name: String,
}

impl DdsTopic {
    /// The DDS topic of a ROS 2 topic with a ROS 2 type name.
    pub fn for_topic(topic: &str, ros_type: &str) -> Self {
        let name = RosName::Topic(topic.into()).dds_name();
        Self { name, type_name: dds_type(ros_type).unwrap_or_default() }
    }

    pub fn requests(service: &str, types: &ServiceTypes) -> Self {
        let name = RosName::Request(service.into()).dds_name();
        Self { name, type_name: types.request.clone() }
    }

    pub fn replies(service: &str, types: &ServiceTypes) -> Self {
        let name = RosName::Reply(service.into()).dds_name();
        Self { name, type_name: types.reply.clone() }
    }

    pub fn specification<'a>(&'a self, qos: &'a Dds) -> Specification<'a> {
        Specification { topic: &self.name, type_name: &self.type_name, qos }
    }
}

/// `std_srvs/srv/SetBool` of `std_srvs::srv::dds_::SetBool_Request_`.
pub fn ros_service_type(dds_request_type: &str) -> Option<String> {
    Some(ros_type(dds_request_type)?.strip_suffix(REQUEST_TYPE)?.to_owned())
}

/// User data of our readers and writers: the type's hash if it is known, and our mark.
pub fn endpoint_user_data(type_hash: &str, tautline_name: &str) -> String {
    let hash = match type_hash {
        "" => String::new(),
        known => format!("{HASH_KEY}{known};"),
    };
    format!("{hash}{MARK_KEY}{tautline_name};")
}

/// User data of our participant: that of a ROS 2 process without an enclave, and our mark.
pub fn participant_user_data(tautline_name: &str) -> String {
    format!("enclave=/;{MARK_KEY}{tautline_name};")
}

/// Whether an endpoint is a Tautline node's: ours or another one on this machine.
pub fn is_of_tautline(user_data: &[u8]) -> bool {
    pairs(user_data).is_some_and(|mut all| all.any(|pair| pair.starts_with(MARK_KEY)))
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

/// The type hash in an endpoint's user data, which has `key=value;` pairs.
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
            (RosName::Topic("/scan".into()), "rt/scan"),
            (RosName::Topic("/robot1/camera/image".into()), "rt/robot1/camera/image"),
            (RosName::Request("/add".into()), "rq/addRequest"),
            (RosName::Reply("/fib/_action/send_goal".into()), "rr/fib/_action/send_goalReply"),
        ] {
            assert_eq!(meaning.dds_name(), dds_name);
            assert_eq!(RosName::from_dds_name(dds_name), Some(meaning));
        }
        let no_names = ["rt/", "rt/a b", "rt/a//b", "rt/\u{fffd}", "rq/a-bRequest", "rr/Reply"];
        let others = ["ros_discovery_info", "rq/add", "DCPSTopic", "rt", ""];
        for other in others.into_iter().chain(no_names) {
            assert_eq!(RosName::from_dds_name(other), None, "{other}");
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
            assert_eq!(
                dds_service_types(ros),
                Some(ServiceTypes { request: request.into(), reply: reply.into() })
            );
            assert_eq!(ros_service_type(request).as_deref(), Some(ros));
            assert_eq!(ros_service_type(reply), None);
        }
        for other in ["SetBool", "/SetBool", "std_srvs/", ""] {
            assert_eq!(dds_service_types(other), None, "{other}");
        }
    }

    #[test]
    fn a_type_hash_is_found_in_user_data() {
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
