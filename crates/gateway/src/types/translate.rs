// SPDX-License-Identifier: Apache-2.0
//! Topics and services of one ROS in the other: their types there, and the conversion of messages.

use super::check::{Check, Checker, ServiceChecker, check_of_service, check_of_topic};
use super::definition::{DIVIDER, short_name};
use super::hash::{ros2_name, service_md5, type_hash};
use super::installed::{InstalledTypes, MissingDefinition};
use super::service_parts::request_and_response;
use super::transcode::{Mismatch, TranscodeError};
use super::trust::{
    Untrusted, has_ambiguous_layout, peers_schema, trusted_definition, trusted_service,
};
use super::{Dialect, Schema, Transcoder, derive};
use crate::action_names::action_of;
use crate::tf::fields::ArrivalFields;
use crate::{Service, Topic};
use std::sync::Arc;

pub use super::definition::dialect_of;

/// Types with different names in ROS 1 and ROS 2 (both short).
const RENAMED: &[(&str, &str)] = &[("tf/tfMessage", "tf2_msgs/TFMessage")];

/// Whether messages of a peer's topic or service of this name and type are translated for the local
/// ROS. An action keeps the form of ROS 2 on its whole path: the gateway to ROS 1 converts it.
pub fn is_translated(name: &str, type_name: &str, own: Dialect) -> bool {
    dialect_of(type_name) != own && !(own == Dialect::Ros1 && action_of(name).is_some())
}

/// Converts messages of a peer's topic for the local ROS.
#[derive(Debug)]
pub struct Translator {
    transcoder: Transcoder,
    to: Dialect,
}

impl Translator {
    fn new(from: &Schema, to: &Schema) -> Result<Self, Mismatch> {
        let transcoder = match to.dialect {
            Dialect::Ros1 => Transcoder::new(to, from),
            Dialect::Ros2 => Transcoder::new(from, to),
        };
        Ok(Self { transcoder: transcoder?, to: to.dialect })
    }

    /// Converts one message.
    pub fn translate(&self, message: &[u8]) -> Result<Vec<u8>, TranscodeError> {
        match self.to {
            Dialect::Ros1 => self.transcoder.to_ros1(message),
            Dialect::Ros2 => self.transcoder.to_ros2(message),
        }
    }

    /// Fields that only one side has.
    pub fn one_sided(&self) -> &[String] {
        self.transcoder.one_sided()
    }
}

/// Converts calls of a peer's service: requests for the peer's ROS, responses for ours.
#[derive(Debug)]
pub struct ServiceTranslator {
    request: Translator,
    response: Translator,
}

impl ServiceTranslator {
    /// Converts a request of this robot.
    pub fn request(&self, message: &[u8]) -> Result<Vec<u8>, TranscodeError> {
        self.request.translate(message)
    }

    /// Fields that only one side has.
    pub fn one_sided(&self) -> impl Iterator<Item = &String> {
        self.request.one_sided().iter().chain(self.response.one_sided())
    }

    /// Converts a response of the peer.
    pub fn response(&self, message: &[u8]) -> Result<Vec<u8>, TranscodeError> {
        self.response.translate(message)
    }
}

/// A peer's topic in the local ROS.
#[derive(Debug)]
pub struct LocalForm {
    /// The topic with a trusted definition. The definition is empty if there is none, or if one for
    /// ROS 2 would be derived from a text whose md5 does not determine the layout.
    pub topic: Topic,
    /// `Some` if the peer has the other ROS.
    pub translator: Option<Translator>,
    /// How its messages are checked.
    pub check: Check<Checker>,
    /// Fields of its messages that may change before they are translated.
    pub fields: ArrivalFields,
    /// Why the peer's definition is not used.
    pub untrusted: Option<Untrusted>,
}

/// A peer's topic in the local ROS (`own`): verifies its definition, and translates it from the
/// other ROS. The error is for a person.
pub fn localize(
    offered: &Topic,
    own: Option<Dialect>,
    installed: &InstalledTypes,
) -> Result<LocalForm, String> {
    let (definition, untrusted) = definition_or_error(trusted_definition(offered, installed));
    let topic = Topic { definition, ..offered.clone() };
    let fields = ArrivalFields::new(&topic);
    match own.filter(|own| is_translated(&topic.name, &topic.type_name, *own)) {
        None => {
            let check = check_of_topic(&topic, installed);
            Ok(LocalForm { topic, translator: None, check, fields, untrusted })
        }
        Some(own) => match translate(&topic, own, installed) {
            Ok(TranslatedTopic { mut topic, translator, is_certain }) => {
                if !is_certain {
                    topic.definition = "".into();
                }
                let (translator, check) = (Some(translator), Check::InTranslation);
                Ok(LocalForm { topic, translator, check, fields, untrusted })
            }
            Err(error) => Err(with_reason(error, untrusted)),
        },
    }
}

/// A peer's service in the local ROS.
#[derive(Debug)]
pub struct LocalService {
    /// The service here. Without a translator, it has a definition only if the gateway to ROS 1 converts
    /// its action: nodes need none.
    pub service: Service,
    /// `Some` if the peer has the other ROS.
    pub translator: Option<ServiceTranslator>,
    /// How its responses are checked.
    pub check: Check<ServiceChecker>,
}

/// Like [`localize`], for a peer's service.
pub fn localize_service(
    offered: &Service,
    own: Option<Dialect>,
    installed: &InstalledTypes,
) -> Result<LocalService, String> {
    let (definition, untrusted) = definition_or_error(trusted_service(offered, installed));
    let service = Service { definition, ..offered.clone() };
    let (name, type_name) = (&service.name, &service.type_name);
    let Some(own) = own.filter(|own| is_translated(name, type_name, *own)) else {
        let check = check_of_service(&service, installed);
        // Calls pass as bytes. Only the gateway to ROS 1 needs the definitions of an action.
        let is_converted = own == Some(Dialect::Ros1) && action_of(name).is_some();
        let definition = if is_converted { service.definition } else { "".into() };
        let service = Service { definition, ..service };
        return Ok(LocalService { service, translator: None, check });
    };
    match translate_service(&service, own, installed) {
        Ok(TranslatedService { service, translator }) => {
            let (translator, check) = (Some(translator), Check::InTranslation);
            Ok(LocalService { service, translator, check })
        }
        Err(error) => Err(with_reason(error, untrusted)),
    }
}

/// A topic in the other ROS.
#[derive(Debug)]
pub struct TranslatedTopic {
    /// The topic there.
    pub topic: Topic,
    /// The conversion of its messages.
    pub translator: Translator,
    /// Whether the local layout is certain, though `topic.definition` is a peer's.
    is_certain: bool,
}

/// A service in the other ROS.
#[derive(Debug)]
pub struct TranslatedService {
    /// The service there.
    pub service: Service,
    /// The conversion of its calls.
    pub translator: ServiceTranslator,
}

fn definition_or_error(found: Result<Arc<str>, Untrusted>) -> (Arc<str>, Option<Untrusted>) {
    match found {
        Ok(definition) => (definition, None),
        Err(untrusted) => ("".into(), Some(untrusted)),
    }
}

fn with_reason(error: String, untrusted: Option<Untrusted>) -> String {
    untrusted.map_or(error.clone(), |untrusted| format!("{error}; {untrusted}"))
}

/// A peer's service in ROS `to`, and the conversion of its calls; as [`translate`].
pub fn translate_service(
    service: &Service,
    to: Dialect,
    installed: &InstalledTypes,
) -> Result<TranslatedService, String> {
    let theirs = dialect_of(&service.type_name);
    let name = short_name(&service.type_name);
    let own = installed
        .service(&name, to)
        .map_err(|error| missing_type_error(&service.type_name, &error));
    let own = own.and_then(|text| request_and_response(&name, &text, to));
    let foreign = match (service.definition.is_empty(), &own) {
        (false, _) => request_and_response(&name, &service.definition, theirs)?,
        (true, Ok([request, response])) => {
            let foreign = [derived_schema(request, theirs)?, derived_schema(response, theirs)?];
            if theirs == Dialect::Ros1 {
                let hash = service_md5(&foreign[0], &foreign[1]);
                check_hash(&service.type_name, &hash, &service.type_hash)?;
            }
            foreign
        }
        (true, Err(error)) => return Err(error.clone()),
    };
    let local = match own {
        Ok(own) => own,
        Err(_) => [derived_schema(&foreign[0], to)?, derived_schema(&foreign[1], to)?],
    };
    let mismatch = |error| no_counterpart_error(&service.type_name, &error);
    let translator = ServiceTranslator {
        request: Translator::new(&local[0], &foreign[0]).map_err(mismatch)?,
        response: Translator::new(&foreign[1], &local[1]).map_err(mismatch)?,
    };
    let (package, own_name) = name.split_once('/').unwrap_or(("", &name));
    let (type_name, type_hash) = match to {
        Dialect::Ros1 => (name.clone(), service_md5(&local[0], &local[1])),
        Dialect::Ros2 => (format!("{package}/srv/{own_name}"), String::new()),
    };
    let definition = format!("{}{DIVIDER}\n{}", local[0].to_text(), local[1].to_text()).into();
    let service = Service { name: service.name.clone(), type_name, type_hash, definition };
    Ok(TranslatedService { service, translator })
}

/// The topic in ROS `to`, and the conversion of its messages. A type that is not `installed` is
/// derived from the definition of the other side. The error is for a person.
pub fn translate(
    topic: &Topic,
    to: Dialect,
    installed: &InstalledTypes,
) -> Result<TranslatedTopic, String> {
    let foreign_name = short_name(&topic.type_name);
    let local_name = renamed(&foreign_name, to);
    let own = installed.definition(&local_name, to);
    let own = own.map_err(|error| missing_type_error(&topic.type_name, &error));
    let own = own
        .and_then(|text| Schema::parse(&local_name, &text, to).map_err(|error| error.to_string()));
    let foreign = foreign_schema(topic, &own)?;
    let is_certain = own.is_ok() || !has_ambiguous_layout(&foreign);
    let local = own.or_else(|_| derived_schema(&foreign, to))?;
    let translator = Translator::new(&foreign, &local)
        .map_err(|error| no_counterpart_error(&topic.type_name, &error))?;
    let type_name = match to {
        Dialect::Ros1 => local_name,
        Dialect::Ros2 => ros2_name(&local_name),
    };
    let local_topic = Topic {
        name: topic.name.clone(),
        type_name,
        type_hash: type_hash(&local),
        definition: local.to_text().into(),
        qos: topic.qos,
    };
    Ok(TranslatedTopic { topic: local_topic, translator, is_certain })
}

/// The type in the peer's ROS: the peer's definition, or one derived from ours if that has the
/// offered hash.
fn foreign_schema(topic: &Topic, own: &Result<Schema, String>) -> Result<Schema, String> {
    let dialect = dialect_of(&topic.type_name);
    if let Some(schema) = peers_schema(topic)? {
        return Ok(schema);
    }
    let foreign = derived_schema(own.as_ref().map_err(Clone::clone)?, dialect)?;
    check_hash(&topic.type_name, &type_hash(&foreign), &topic.type_hash)?;
    Ok(foreign)
}

fn check_hash(type_name: &str, ours: &str, theirs: &str) -> Result<(), String> {
    match theirs.is_empty() || ours == theirs {
        true => Ok(()),
        false => Err(format!(
            "{type_name} came without a usable definition (ros2: definitions: there), and has \
             another version there ({theirs}) than here ({ours})"
        )),
    }
}

fn derived_schema(foreign: &Schema, to: Dialect) -> Result<Schema, String> {
    match to {
        Dialect::Ros2 => derive::to_ros2(foreign),
        Dialect::Ros1 => derive::to_ros1(foreign),
    }
    .map_err(|error| error.to_string())
}

fn no_counterpart_error(type_name: &str, mismatch: &Mismatch) -> String {
    format!("{type_name} has no counterpart here: {mismatch}")
}

fn missing_type_error(type_name: &str, error: &MissingDefinition) -> String {
    format!(
        "{type_name} came without a usable definition (ros2: definitions: there), and has none \
         here: {error}"
    )
}

/// The name of a type in ROS `to`; both are short.
pub(super) fn renamed(name: &str, to: Dialect) -> String {
    let pair = RENAMED.iter().find(|(ros1, _)| to == Dialect::Ros2 && *ros1 == name);
    pair.map_or(name, |(_, ros2)| ros2).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Qos;

    fn topic(type_name: &str, definition: &str) -> Topic {
        Topic {
            name: "/x".into(),
            type_name: type_name.into(),
            type_hash: String::new(),
            definition: definition.into(),
            qos: Qos::default(),
        }
    }

    const STRING_MD5: &str = "992ce8a1687cec8c8bd883ec73ca41d1";
    const STRING_RIHS01: &str =
        "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18";

    #[test]
    fn a_topic_gets_the_name_hash_and_bytes_of_the_other_ros() {
        let none = InstalledTypes::default();
        let TranslatedTopic { topic: there, translator: forth, .. } =
            translate(&topic("std_msgs/String", "string data\n"), Dialect::Ros2, &none).unwrap();
        assert_eq!((&*there.type_name, &*there.type_hash), ("std_msgs/msg/String", STRING_RIHS01));
        let TranslatedTopic { topic: here, translator: back, .. } =
            translate(&there, Dialect::Ros1, &none).unwrap();
        assert_eq!((&*here.type_name, &*here.type_hash), ("std_msgs/String", STRING_MD5));
        assert_eq!(&*here.definition, "string data\n");
        let message = b"\x02\0\0\0hi";
        let cdr = forth.translate(message).unwrap();
        assert_eq!(cdr, b"\0\x01\0\0\x03\0\0\0hi\0");
        assert_eq!(back.translate(&cdr).unwrap(), message);
    }

    #[test]
    fn an_empty_message_needs_no_definition() {
        let none = InstalledTypes::default();
        let md5 = "d41d8cd98f00b204e9800998ecf8427e";
        // As rospy sends it.
        let empty = Topic { type_hash: md5.into(), ..topic("std_msgs/Empty", "") };
        let there = translate(&empty, Dialect::Ros2, &none).unwrap();
        assert_eq!(there.translator.translate(b"").unwrap(), b"\0\x01\0\0\0");
        assert_eq!(&*there.topic.definition, "\n");
        for definition in ["", "\n"] {
            let topic = Topic { definition: definition.into(), ..there.topic.clone() };
            let back = translate(&topic, Dialect::Ros1, &none).unwrap();
            assert_eq!(back.topic.type_hash, md5);
            assert_eq!(back.translator.translate(b"\0\x01\0\0\0").unwrap(), b"");
        }
        let other = Topic { type_hash: STRING_MD5.into(), ..empty };
        translate(&other, Dialect::Ros2, &none).unwrap_err();
    }

    #[test]
    fn old_tf_becomes_tf2() {
        let nested = format!("x/Y[] transforms\n{}\nMSG: x/Y\nint32 a\n", "=".repeat(80));
        let old = topic("tf/tfMessage", &nested);
        let there = translate(&old, Dialect::Ros2, &InstalledTypes::default()).unwrap().topic;
        assert_eq!(there.type_name, "tf2_msgs/msg/TFMessage");
        let back = translate(&there, Dialect::Ros1, &InstalledTypes::default()).unwrap().topic;
        assert_eq!(back.type_name, "tf2_msgs/TFMessage");
        assert!(back.definition.contains("MSG: x/Y\nint32 a"), "{}", back.definition);
    }

    #[test]
    fn translation_errors_name_the_field_or_the_missing_definition() {
        let none = InstalledTypes::default();
        let error = translate(&topic("a/msg/B", "wstring w\n"), Dialect::Ros1, &none).unwrap_err();
        assert!(error.contains("a/B.w") && error.contains("wstring"), "{error}");
        let error = translate(&topic("a/msg/B", ""), Dialect::Ros1, &none).unwrap_err();
        assert!(error.contains("a/msg/B") && error.contains("definitions"), "{error}");
    }

    #[test]
    fn a_service_gets_the_name_md5_and_bytes_of_the_other_ros() {
        let service = Service {
            name: "/switch".into(),
            type_name: "std_srvs/srv/SetBool".into(),
            type_hash: String::new(),
            definition: "bool data # on\n---\nbool success\nstring message\n".into(),
        };
        let TranslatedService { service: here, translator: calls } =
            translate_service(&service, Dialect::Ros1, &InstalledTypes::default()).unwrap();
        // As `rossrv md5 std_srvs/SetBool` says.
        assert_eq!(
            (&*here.type_name, &*here.type_hash),
            ("std_srvs/SetBool", "09fb03525b03e7ea1fd3992bafd87e16")
        );
        assert_eq!(calls.request(b"\x01").unwrap(), b"\0\x01\0\0\x01");
        let response = calls.response(b"\0\x01\0\0\x01\0\0\0\x03\0\0\0ok\0").unwrap();
        assert_eq!(response, b"\x01\x02\0\0\0ok");
        let TranslatedService { service: there, translator: back } =
            translate_service(&here, Dialect::Ros2, &InstalledTypes::default()).unwrap();
        assert_eq!(there.type_name, "std_srvs/srv/SetBool");
        assert_eq!(back.response(&response).unwrap(), b"\0\x01\0\0\x01\0\0\0\x03\0\0\0ok\0");
        let broken = Service { definition: "bool data\n".into(), ..service };
        let error =
            translate_service(&broken, Dialect::Ros1, &InstalledTypes::default()).unwrap_err();
        assert!(error.contains("std_srvs/SetBool") && error.contains("'---'"), "{error}");
    }

    #[test]
    fn type_names_of_ros_2_have_a_kind() {
        assert_eq!(dialect_of("std_msgs/msg/String"), Dialect::Ros2);
        assert_eq!(dialect_of("std_msgs/String"), Dialect::Ros1);
    }
}
