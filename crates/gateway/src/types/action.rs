// SPDX-License-Identifier: Apache-2.0
//! The types of an action in both kinds of ROS, and the conversion of its messages.
//!
//! ROS 1 wraps goal, result and feedback into messages with a header and actionlib's goal id or
//! status (`FooActionGoal`). ROS 2 wraps them into two services and a message with the goal's UUID
//! (`Foo_SendGoal`, `Foo_GetResult`, `Foo_FeedbackMessage`; design.ros2.org, "Actions").

use super::definition::{BaseType, DIVIDER, separator};
use super::derive;
use super::hash::{service_type_hash, type_hash};
use super::installed::{InstalledTypes, MissingDefinition};
use super::service_parts::request_and_response;
use super::{Dialect, Schema, Transcoder};
use crate::{Qos, Service, Topic};

/// Bytes of a goal's id in ROS 2.
pub const UUID_BYTES: usize = 16;
/// A goal's id in ROS 2.
pub type Uuid = [u8; UUID_BYTES];

/// ROS 2's own types around those of an action.
const UUID: (&str, &str) = ("unique_identifier_msgs/UUID", "uint8[16] uuid\n");
const TIME: (&str, &str) = ("builtin_interfaces/Time", "int32 sec\nuint32 nanosec\n");
/// ROS 1's own types around those of an action.
const HEADER: (&str, &str) = ("std_msgs/Header", "uint32 seq\ntime stamp\nstring frame_id\n");
const GOAL_ID: (&str, &str) = ("actionlib_msgs/GoalID", "time stamp\nstring id\n");
const GOAL_STATUS: (&str, &str) = (
    "actionlib_msgs/GoalStatus",
    "GoalID goal_id\nuint8 status\nuint8 PENDING=0\nuint8 ACTIVE=1\nuint8 PREEMPTED=2\n\
     uint8 SUCCEEDED=3\nuint8 ABORTED=4\nuint8 REJECTED=5\nuint8 PREEMPTING=6\n\
     uint8 RECALLING=7\nuint8 RECALLED=8\nuint8 LOST=9\nstring text\n",
);
/// The type of all status topics of ROS 1.
pub const STATUS_ARRAY: &str = "actionlib_msgs/GoalStatusArray";
const STATUS_ARRAY_TEXT: &str = "Header header\nGoalStatus[] status_list\n";
/// The type of all status topics of ROS 2.
const STATUS_ARRAY_2: &str = "action_msgs/msg/GoalStatusArray";
const STATUS_ARRAY_2_TEXT: &str = "GoalStatus[] status_list\n";
const GOAL_STATUS_2: (&str, &str) = (
    "action_msgs/GoalStatus",
    "int8 STATUS_UNKNOWN=0\nint8 STATUS_ACCEPTED=1\nint8 STATUS_EXECUTING=2\n\
     int8 STATUS_CANCELING=3\nint8 STATUS_SUCCEEDED=4\nint8 STATUS_CANCELED=5\n\
     int8 STATUS_ABORTED=6\nGoalInfo goal_info\nint8 status\n",
);
const GOAL_INFO_2: (&str, &str) = (
    "action_msgs/GoalInfo",
    "unique_identifier_msgs/UUID goal_id\nbuiltin_interfaces/Time stamp\n",
);
const CANCEL_2: &str = "action_msgs/srv/CancelGoal";

/// Goal, result or feedback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// What the client wants.
    Goal,
    /// The outcome.
    Result,
    /// The progress.
    Feedback,
}

impl Part {
    /// All parts, in the order of an `.action` file.
    pub const ALL: [Self; 3] = [Self::Goal, Self::Result, Self::Feedback];

    /// The name of the field that contains it.
    fn field(self) -> &'static str {
        ["goal", "result", "feedback"][self as usize]
    }

    /// The end of its type's name.
    fn word(self) -> &'static str {
        ["Goal", "Result", "Feedback"][self as usize]
    }

    /// The end of the name of ROS 2's type that wraps it.
    fn wrapper(self) -> &'static str {
        ["_SendGoal", "_GetResult", "_FeedbackMessage"][self as usize]
    }
}

/// Whether a type (`package/Type`) is one that ROS 2 makes for an action. Names of other types of
/// ROS 2 have no underscore.
pub fn is_part_of_action(name: &str) -> bool {
    let request = name.strip_suffix("_Request").or(name.strip_suffix("_Response"));
    let name = request.unwrap_or(name);
    let own = |part: &Part| name.strip_suffix(part.word()).is_some_and(|it| it.ends_with('_'));
    Part::ALL.iter().any(|part| own(part) || name.ends_with(part.wrapper()))
}

/// The action (`package/Type`) of a type of ROS 2 around one of its parts
/// (`package/action/Type_SendGoal`).
pub fn action_of_type(ros2_type: &str) -> Option<(String, Part)> {
    let (package, own) = ros2_type.split_once("/action/")?;
    let found =
        Part::ALL.into_iter().find_map(|part| Some((own.strip_suffix(part.wrapper())?, part)));
    found.map(|(name, part)| (format!("{package}/{name}"), part))
}

/// The definition of a type of ROS 2 around a part of an action, from the installed `.action`.
pub fn installed_part(
    ros2_type: &str,
    installed: &InstalledTypes,
) -> Result<String, MissingDefinition> {
    let Some((name, part)) = action_of_type(ros2_type) else { return Ok(String::new()) };
    let texts = installed.action(&name, Dialect::Ros2)?;
    let own = format!("{name}_{}", part.word());
    let unusable = |error: super::definition::DefinitionError| MissingDefinition::Unusable {
        file: format!("{name}.action").into(),
        problem: error.to_string(),
    };
    let schema = Schema::parse(&own, &texts[part as usize], Dialect::Ros2).map_err(unusable)?;
    Ok(wrapped_definition(part, &schema))
}

/// The known parts of an action in one ROS: goal, result and feedback.
#[derive(Debug, Clone, Default)]
pub struct Parts(pub [Option<Schema>; 3]);

impl Parts {
    /// The parts of an action (`package/Type`) that are installed.
    pub fn from_installed(name: &str, dialect: Dialect, installed: &InstalledTypes) -> Self {
        let own = |part: Part| match dialect {
            Dialect::Ros1 => format!("{name}{}", part.word()),
            Dialect::Ros2 => format!("{name}_{}", part.word()),
        };
        let texts = installed.action(name, dialect).ok();
        Self(Part::ALL.map(|part| {
            // ROS 1 also generates a message for each part.
            let message = (dialect == Dialect::Ros1)
                .then(|| installed.definition(&own(part), dialect).ok())
                .flatten();
            let text = message.or_else(|| Some(texts.as_ref()?[part as usize].clone()))?;
            Schema::parse(&own(part), &text, dialect).ok()
        }))
    }

    /// Adds a part from the definition of a message or service around it.
    pub fn add(&mut self, part: Part, type_name: &str, definition: &str, dialect: Dialect) {
        let whole = match (dialect, part) {
            _ if definition.is_empty() => return,
            (Dialect::Ros1, _) | (_, Part::Feedback) => {
                Schema::parse(type_name, definition, dialect).ok()
            }
            (Dialect::Ros2, _) => request_and_response(type_name, definition, dialect)
                .ok()
                .map(|[request, response]| if part == Part::Goal { request } else { response }),
        };
        let inner = whole.and_then(|schema| field_schema(&schema, part.field()));
        if let Some(inner) = inner {
            self.0[part as usize] = Some(inner);
        }
    }

    /// The parts of `self`; a missing one is taken from `other`.
    pub fn or_else_from(self, other: Self) -> Self {
        let [a, b, c] = self.0;
        let [x, y, z] = other.0;
        Self([a.or(x), b.or(y), c.or(z)])
    }
}

/// The type of a field, as a definition of its own.
fn field_schema(schema: &Schema, field: &str) -> Option<Schema> {
    let found = schema.root().fields.iter().find(|it| it.name == field)?;
    let BaseType::Struct(number) = found.base else { return None };
    let mut structs = schema.structs.clone();
    structs.swap(0, number);
    for field in structs.iter_mut().flat_map(|part| &mut part.fields) {
        if let BaseType::Struct(inner) = &mut field.base {
            *inner = match *inner {
                0 => number,
                other if other == number => 0,
                other => other,
            };
        }
    }
    Some(Schema { dialect: schema.dialect, structs })
}

/// A text followed by other types, each with its title.
fn with_types<'a>(text: &str, types: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let bar = separator();
    types
        .into_iter()
        .fold(text.to_owned(), |text, (name, own)| format!("{text}{bar}\nMSG: {name}\n{own}"))
}

/// The definition of ROS 2's type around a part.
fn wrapped_definition(part: Part, schema: &Schema) -> String {
    let name = &schema.root().name;
    let head = match part {
        Part::Goal => {
            format!("{} goal_id\n{name} goal\n{DIVIDER}\nbool accepted\n{} stamp\n", UUID.0, TIME.0)
        }
        Part::Result => {
            format!("{} goal_id\n{DIVIDER}\nint8 status\n{name} result\n", UUID.0)
        }
        Part::Feedback => format!("{} goal_id\n{name} feedback\n", UUID.0),
    };
    let own = schema.to_text();
    with_types(&head, [UUID, TIME, (name, own.as_str())])
}

/// An action in both kinds of ROS.
#[derive(Debug)]
pub struct ActionType {
    /// `package/Type`.
    name: String,
    /// The definitions of ROS 1's messages around goal, result and feedback.
    ros1: [Schema; 3],
    /// The definitions of ROS 2's types around them.
    ros2: [String; 3],
    /// Transcoders of goal, result and feedback: the result with its status, the others with the UUID.
    transcoders: [Transcoder; 3],
    /// A result of zeros and empty values, in ROS 1's serialization.
    default_result: Vec<u8>,
}

impl ActionType {
    /// Combines the known parts of both ROS; a part that only one of them has is derived. The error is
    /// for a person.
    pub fn new(name: &str, ros1: Parts, ros2: Parts) -> Result<Self, String> {
        let mut pairs = ros1.0.into_iter().zip(ros2.0).zip(Part::ALL);
        let mut next = || pairs.next().ok_or_else(String::new);
        let (goal, result, feedback) = (next()?, next()?, next()?);
        let both = |((one, two), part): ((Option<Schema>, Option<Schema>), Part)| {
            let renamed = |mut schema: Schema, own: String| {
                schema.structs[0].name = own;
                schema
            };
            let (one, two) = match (one, two) {
                (Some(one), Some(two)) => (one, two),
                (Some(one), None) => {
                    let two = derive::to_ros2(&one).map_err(|it| it.to_string())?;
                    (one, two)
                }
                (None, Some(two)) => (derive::to_ros1(&two).map_err(|it| it.to_string())?, two),
                (None, None) => {
                    let file = format!("{name}.action");
                    return Err(format!("no definition of its {}: {file}", part.field()));
                }
            };
            let one = renamed(one, format!("{name}{}", part.word()));
            Ok([one, renamed(two, format!("{name}_{}", part.word()))])
        };
        let [goal, result, feedback] = [both(goal)?, both(result)?, both(feedback)?];
        let default_result = super::compose::compose(&result[0], &[], MAX_DEFAULT_RESULT_BYTES)
            .map_err(|error| error.to_string())?;
        let transcoder = |part, [one, two]: &[Schema; 2]| transcoder(part, one, two);
        Ok(Self {
            transcoders: [
                transcoder(Part::Goal, &goal)?,
                transcoder(Part::Result, &result)?,
                transcoder(Part::Feedback, &feedback)?,
            ],
            ros2: [
                wrapped_definition(Part::Goal, &goal[1]),
                wrapped_definition(Part::Result, &result[1]),
                wrapped_definition(Part::Feedback, &feedback[1]),
            ],
            ros1: [
                message_around_part(name, Part::Goal, &goal[0])?,
                message_around_part(name, Part::Result, &result[0])?,
                message_around_part(name, Part::Feedback, &feedback[0])?,
            ],
            name: name.into(),
            default_result,
        })
    }

    /// The topic of ROS 1 with a part, under a name.
    pub fn ros1_topic(&self, part: Part, topic: String) -> Topic {
        let schema = &self.ros1[part as usize];
        Topic {
            name: topic,
            type_name: schema.root().name.clone(),
            type_hash: type_hash(schema),
            definition: schema.to_text().into(),
            qos: Qos::default(),
        }
    }

    /// The service of ROS 2 that takes goals or gives results, under a name.
    pub fn ros2_service(&self, part: Part, service: String) -> Service {
        let definition = &self.ros2[part as usize];
        let type_name = self.ros2_type(part);
        let hash = request_and_response(&type_name, definition, Dialect::Ros2)
            .map(|[request, response]| service_type_hash(&request, &response));
        Service {
            name: service,
            type_hash: hash.unwrap_or_default(),
            type_name,
            definition: definition.as_str().into(),
        }
    }

    /// The feedback topic of ROS 2, under a name.
    pub fn ros2_feedback(&self, topic: String) -> Topic {
        let definition = &self.ros2[Part::Feedback as usize];
        ros2_topic(topic, self.ros2_type(Part::Feedback), definition, Qos::default())
    }

    fn ros2_type(&self, part: Part) -> String {
        let (package, own) = self.name.split_once('/').unwrap_or(("", &self.name));
        format!("{package}/action/{own}{}", part.wrapper())
    }

    /// Converts a ROS 2 request with a goal, or a feedback message. Returns the goal's UUID and the
    /// part for ROS 1.
    pub fn to_ros1(&self, part: Part, message: &[u8]) -> Result<(Uuid, Vec<u8>), String> {
        let whole = self.transcoders[part as usize].to_ros1(message);
        let mut whole = whole.map_err(|error| error.to_string())?;
        let rest = whole.split_off(UUID_BYTES.min(whole.len()));
        let uuid = Uuid::try_from(whole).map_err(|_| "no goal id".to_owned())?;
        Ok((uuid, rest))
    }

    /// Converts a part of ROS 1 to ROS 2.
    pub fn to_ros2(&self, part: Part, uuid: Uuid, message: &[u8]) -> Result<Vec<u8>, String> {
        let whole = [&uuid[..], message].concat();
        self.transcoders[part as usize].to_ros2(&whole).map_err(|error| error.to_string())
    }

    /// Converts a ROS 2 response with a result. Returns its ROS 2 status and the result for ROS 1.
    pub fn result_to_ros1(&self, response: &[u8]) -> Result<(u8, Vec<u8>), String> {
        let whole = self.transcoders[Part::Result as usize].to_ros1(response);
        let whole = whole.map_err(|error| error.to_string())?;
        let (status, result) = whole.split_first().ok_or("no status")?;
        Ok((*status, result.to_vec()))
    }

    /// Converts a result of ROS 1 to a ROS 2 response with this ROS 2 status.
    pub fn result_to_ros2(&self, status: u8, result: &[u8]) -> Result<Vec<u8>, String> {
        let whole = [&[status][..], result].concat();
        let response = self.transcoders[Part::Result as usize].to_ros2(&whole);
        response.map_err(|error| error.to_string())
    }

    /// A result of zeros and empty values in ROS 1's serialization, for a goal without one.
    pub fn default_result(&self) -> &[u8] {
        &self.default_result
    }
}

/// Longest result of zeros; only arrays of fixed size can make it long.
const MAX_DEFAULT_RESULT_BYTES: usize = 1 << 20;

/// The message of ROS 1 around a part.
fn message_around_part(name: &str, part: Part, schema: &Schema) -> Result<Schema, String> {
    let (wrapper, own) = (format!("{name}Action{}", part.word()), &schema.root().name);
    let text = schema.to_text();
    let field = part.field();
    let text = match part {
        Part::Goal => with_types(
            &format!("Header header\n{} goal_id\n{own} {field}\n", GOAL_ID.0),
            [HEADER, GOAL_ID, (own, text.as_str())],
        ),
        _ => with_types(
            &format!("Header header\n{} status\n{own} {field}\n", GOAL_STATUS.0),
            [HEADER, GOAL_ID, GOAL_STATUS, (own, text.as_str())],
        ),
    };
    Schema::parse(&wrapper, &text, Dialect::Ros1).map_err(|error| error.to_string())
}

fn transcoder(part: Part, one: &Schema, two: &Schema) -> Result<Transcoder, String> {
    let side = |schema: &Schema| {
        let own = &schema.root().name;
        let head = match part {
            Part::Result => format!("int8 status\n{own} result\n"),
            _ => format!("{} goal_id\n{own} {}\n", UUID.0, part.field()),
        };
        let text = with_types(&head, [UUID, (own, schema.to_text().as_str())]);
        Schema::parse(&format!("{own}_"), &text, schema.dialect).map_err(|error| error.to_string())
    };
    Transcoder::new(&side(one)?, &side(two)?).map_err(|error| error.to_string())
}

fn ros2_topic(name: String, type_name: String, definition: &str, qos: Qos) -> Topic {
    let schema = Schema::parse(&type_name, definition, Dialect::Ros2);
    Topic {
        name,
        type_hash: schema.map(|schema| type_hash(&schema)).unwrap_or_default(),
        type_name,
        definition: definition.into(),
        qos,
    }
}

/// A status topic of ROS 1.
pub fn ros1_status(topic: String) -> Topic {
    let text = with_types(STATUS_ARRAY_TEXT, [HEADER, GOAL_STATUS, GOAL_ID]);
    ros1_plain(topic, STATUS_ARRAY, &text, Qos { transient_local: true, ..Qos::default() })
}

/// A cancel topic of ROS 1.
pub fn ros1_cancel(topic: String) -> Topic {
    ros1_plain(topic, GOAL_ID.0, GOAL_ID.1, Qos::default())
}

fn ros1_plain(name: String, type_name: &str, definition: &str, qos: Qos) -> Topic {
    let schema = Schema::parse(type_name, definition, Dialect::Ros1);
    Topic {
        name,
        type_name: type_name.into(),
        type_hash: schema.map(|schema| type_hash(&schema)).unwrap_or_default(),
        definition: definition.into(),
        qos,
    }
}

/// A status topic of ROS 2.
pub fn ros2_status(topic: String) -> Topic {
    let text = with_types(STATUS_ARRAY_2_TEXT, [GOAL_STATUS_2, GOAL_INFO_2, UUID, TIME]);
    let qos = Qos { transient_local: true, ..Qos::default() };
    ros2_topic(topic, STATUS_ARRAY_2.into(), &text, qos)
}

/// A cancel service of ROS 2.
pub fn ros2_cancel(service: String) -> Service {
    Service {
        name: service,
        type_name: CANCEL_2.into(),
        type_hash: String::new(),
        definition: "".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIBONACCI: [&str; 3] = ["int32 order\n", "int32[] sequence\n", "int32[] sequence\n"];

    fn fibonacci(dialect: Dialect) -> Parts {
        let mut numbers = 0..;
        Parts(FIBONACCI.map(|text| {
            let number = numbers.next().unwrap_or(0);
            let own = ["a/FibonacciGoal", "a/FibonacciResult", "a/FibonacciFeedback"][number];
            Schema::parse(own, text, dialect).ok()
        }))
    }

    fn action() -> ActionType {
        let name = "actionlib_tutorials/Fibonacci";
        ActionType::new(name, fibonacci(Dialect::Ros1), Parts::default()).unwrap()
    }

    #[test]
    fn the_messages_of_ros_1_have_the_md5_of_genaction() {
        // rosmsg md5 of actionlib_tutorials (ROS Noetic) and actionlib_msgs.
        let hash = |part| action().ros1_topic(part, "/x".into()).type_hash;
        assert_eq!(hash(Part::Goal), "006871c7fa1d0e3d5fe2226bf17b2a94");
        assert_eq!(hash(Part::Result), "bee73a9fe29ae25e966e105f5553dd03");
        assert_eq!(hash(Part::Feedback), "73b8497a9f629a31c0020900e4148f07");
        assert_eq!(ros1_status("/x".into()).type_hash, "8b2b82f13216d0a8ea88bd3af735e619");
        assert_eq!(ros1_cancel("/x".into()).type_hash, "302881f31927c1df708a2dbab0e80ee8");
    }

    #[test]
    fn parts_are_converted_with_the_uuid_or_status_around_them() {
        let (action, uuid) = (action(), [7; 16]);
        let request = action.to_ros2(Part::Goal, uuid, &5i32.to_le_bytes()).unwrap();
        assert_eq!(request, [&[0, 1, 0, 0][..], &uuid, &[5, 0, 0, 0]].concat());
        assert_eq!(action.to_ros1(Part::Goal, &request), Ok((uuid, vec![5, 0, 0, 0])));
        // The status takes one byte, and the sequence is aligned behind it.
        let response = action.result_to_ros2(4, &[1, 0, 0, 0, 9, 0, 0, 0]).unwrap();
        assert_eq!(response, [0, 1, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0]);
        assert_eq!(action.result_to_ros1(&response), Ok((4, vec![1, 0, 0, 0, 9, 0, 0, 0])));
        assert_eq!(action.default_result(), [0; 4]);
        assert!(action.to_ros1(Part::Goal, &request[..10]).is_err());
    }

    #[test]
    fn ros_2_definitions_are_split_into_their_parts() {
        let action = action();
        let mut parts = Parts::default();
        for part in [Part::Goal, Part::Result] {
            let service = action.ros2_service(part, "/x".into());
            assert_eq!(action_of_type(&service.type_name).unwrap().1, part);
            parts.add(part, &service.type_name, &service.definition, Dialect::Ros2);
        }
        let feedback = action.ros2_feedback("/x".into());
        parts.add(Part::Feedback, &feedback.type_name, &feedback.definition, Dialect::Ros2);
        let back = ActionType::new("a/B", Parts::default(), parts).unwrap();
        let message = back.to_ros2(Part::Feedback, [0; 16], &[0; 4]).unwrap();
        assert_eq!(message.len(), 4 + 16 + 4);
        assert!(ActionType::new("a/B", Parts::default(), Parts::default()).is_err());
    }

    #[test]
    fn only_types_that_ros_2_makes_for_an_action_are_its_parts() {
        for name in ["a/B_Goal", "a/B_SendGoal_Request", "a/B_FeedbackMessage", "a/B_GetResult"] {
            assert!(is_part_of_action(name), "{name}");
        }
        for name in ["a/Goal", "a/BGoal", "a/B_Request", "action_msgs/GoalInfo"] {
            assert!(!is_part_of_action(name), "{name}");
        }
        assert_eq!(action_of_type("a/srv/B_SendGoal"), None);
    }
}
