// SPDX-License-Identifier: Apache-2.0
//! Messages whose frames are renamed, against messages of the new names written field by field here.

use crate::topics::{BAR, topic};
use proptest::prelude::*;
use std::hint::black_box;
use std::time::{Duration, Instant};
use tautline_gateway::pattern::Pattern;
use tautline_gateway::tf::fields::{FrameFields, StampFields};
use tautline_gateway::tf::{MAX_FRAME_NAME, Rules};
use tautline_gateway::types::definition::{Arity, BaseType};
use tautline_gateway::types::hash::type_hash;
use tautline_gateway::types::{Dialect, Schema};

/// Time for which a cost is measured.
const MEASURED: Duration = Duration::from_millis(500);
/// More bytes than any cache of the processor holds.
const UNCACHED_BYTES: usize = 240_000_000;

fn rules() -> Rules {
    let shared = vec![Pattern::for_frames("map").unwrap(), Pattern::for_frames("earth*").unwrap()];
    Rules { frames: Vec::new(), prefix: "r1/".into(), shared }
}

/// A value of a message.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Number(Vec<u8>),
    Text(String),
    /// Text that names a frame.
    Frame(String),
    /// Seconds and nanoseconds of a header.
    Stamp(u32, u32),
    Sequence(Vec<Value>),
    /// Fields, or the elements of an array.
    Parts(Vec<Value>),
}

/// Writes values without knowledge of the code under test.
struct Encoder {
    bytes: Vec<u8>,
    dialect: Dialect,
    is_little_endian: bool,
}

impl Encoder {
    fn encode(dialect: Dialect, is_little_endian: bool, value: &Value) -> Vec<u8> {
        let mut encoder = Self { bytes: Vec::new(), dialect, is_little_endian };
        encoder.put(value);
        match dialect {
            Dialect::Ros1 => encoder.bytes,
            Dialect::Ros2 => [&[0, u8::from(is_little_endian), 0, 0], &encoder.bytes[..]].concat(),
        }
    }

    fn number(&mut self, little_endian: &[u8]) {
        let mut number = little_endian.to_vec();
        if self.dialect == Dialect::Ros2 {
            while !self.bytes.len().is_multiple_of(number.len()) {
                self.bytes.push(0);
            }
            if !self.is_little_endian {
                number.reverse();
            }
        }
        self.bytes.extend(number);
    }

    fn put(&mut self, value: &Value) {
        match value {
            Value::Number(number) => self.number(number),
            Value::Text(text) | Value::Frame(text) => {
                let end: &[u8] = if self.dialect == Dialect::Ros2 { &[0] } else { &[] };
                self.number(&((text.len() + end.len()) as u32).to_le_bytes());
                self.bytes.extend(text.as_bytes());
                self.bytes.extend(end);
            }
            Value::Stamp(seconds, nanoseconds) => {
                self.number(&seconds.to_le_bytes());
                self.number(&nanoseconds.to_le_bytes());
            }
            Value::Sequence(elements) => {
                self.number(&(elements.len() as u32).to_le_bytes());
                elements.iter().for_each(|element| self.put(element));
            }
            Value::Parts(parts) => parts.iter().for_each(|part| self.put(part)),
        }
    }
}

/// The new name of a frame by [`rules`].
fn new_name(name: &str) -> String {
    match name.trim_start_matches('/') {
        "" => name.into(),
        shared if shared == "map" || shared.starts_with("earth") => shared.into(),
        own if own.starts_with("r1/") => own.into(),
        other => format!("r1/{other}"),
    }
}

/// The name on the robot with [`rules`] of a frame in a message that arrives.
fn own_name(name: &str) -> String {
    match name.trim_start_matches('/').strip_prefix("r1/") {
        None | Some("") => name.into(),
        Some(own) => own.into(),
    }
}

/// The value with other names of its frames.
fn renamed(value: &Value, name_for: fn(&str) -> String) -> Value {
    let each = |values: &[Value]| values.iter().map(|it| renamed(it, name_for)).collect();
    match value {
        Value::Frame(name) => Value::Frame(name_for(name)),
        Value::Sequence(elements) => Value::Sequence(each(elements)),
        Value::Parts(parts) => Value::Parts(each(parts)),
        other => other.clone(),
    }
}

/// The value with stamps that are later by this number of nanoseconds.
fn with_moved_stamps(value: &Value, by_ns: i64, dialect: Dialect) -> Value {
    let each =
        |values: &[Value]| values.iter().map(|it| with_moved_stamps(it, by_ns, dialect)).collect();
    match value {
        Value::Stamp(seconds, nanoseconds) => {
            let latest = if dialect == Dialect::Ros1 { u32::MAX } else { i32::MAX as u32 };
            let total = i128::from(*seconds) * 1_000_000_000 + i128::from(*nanoseconds);
            let later = total + i128::from(by_ns);
            let second = later / 1_000_000_000;
            if total == 0 || *seconds > latest || later <= 0 || second > i128::from(latest) {
                return value.clone();
            }
            Value::Stamp(second as u32, (later % 1_000_000_000) as u32)
        }
        Value::Sequence(elements) => Value::Sequence(each(elements)),
        Value::Parts(parts) => Value::Parts(each(parts)),
        other => other.clone(),
    }
}

/// Splitmix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % limit as u64) as usize
    }

    fn one<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// A definition with headers in many places.
    fn definition(&mut self, dialect: Dialect) -> String {
        let types = [
            "uint8",
            "int16",
            "float32",
            "float64",
            "uint64",
            "string",
            "N",
            "F",
            "E",
            "std_msgs/Header",
            "std_msgs/Header",
            "N",
            "F",
        ];
        let arities = ["", "", "", "", "[]", "[]", "[2]", "[3]", "[0]"];
        let mut part = |types: &[&str]| -> String {
            let count = self.below(6);
            let field = |number: usize, random: &mut Self| {
                format!("{}{} x{number}\n", random.one(types), random.one(&arities))
            };
            let mut text: String = (0..count).map(|number| field(number, self)).collect();
            if self.below(3) == 0 {
                text.push_str("string child_frame_id\n");
            }
            if self.below(3) == 0 {
                text.push_str(&field(count, self));
            }
            text
        };
        let (root, nested) =
            (part(&types), part(&["uint8", "float64", "string", "F", "std_msgs/Header"]));
        let stamp = match dialect {
            Dialect::Ros1 => "uint32 seq\ntime stamp".to_owned(),
            Dialect::Ros2 => "builtin_interfaces/Time stamp".to_owned(),
        };
        format!(
            "{root}{BAR}\nMSG: a/N\n{nested}{BAR}\nMSG: a/F\nuint8 a\nfloat64 b\nuint8 c\n{BAR}\n\
             MSG: a/E\n{BAR}\nMSG: std_msgs/Header\n{stamp}\nstring frame_id\n{BAR}\n\
             MSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
        )
    }

    fn value(&mut self, schema: &Schema, number: usize) -> Value {
        let part = &schema.structs[number];
        let fields = part.fields.iter().map(|field| {
            let is_frame = (part.name == "std_msgs/Header" && field.name == "frame_id")
                || (field.name == "child_frame_id" && field.arity == Arity::One);
            if part.name == "std_msgs/Header" && field.name == "stamp" {
                let seconds = self.one(&[0, 1, 2_000_000_000, i32::MAX as u32, u32::MAX]);
                return Value::Stamp(seconds, self.one(&[0, 1, 500_000_000, 999_999_999]));
            }
            match field.arity {
                Arity::One => self.element(schema, field.base, is_frame),
                Arity::Array(count) => Value::Parts(
                    (0..count).map(|_| self.element(schema, field.base, false)).collect(),
                ),
                Arity::Sequence(_) => {
                    let count = self.below(4);
                    let each = (0..count).map(|_| self.element(schema, field.base, false));
                    Value::Sequence(each.collect())
                }
            }
        });
        Value::Parts(fields.collect())
    }

    fn element(&mut self, schema: &Schema, base: BaseType, is_frame: bool) -> Value {
        let names = [
            "",
            "/",
            "laser",
            "/laser",
            "//a/b",
            "map",
            "/map",
            "earth2",
            "r1/laser",
            "/r1/x",
            "r1/",
            "r1",
            "r2/laser",
            "base_link",
            "a",
            "ab",
            "abc",
            "abcd",
        ];
        match base {
            // ROS 1's times are two numbers, which are not aligned.
            BaseType::Primitive(primitive) => {
                Value::Number((0..primitive.bytes()).map(|_| self.below(256) as u8).collect())
            }
            BaseType::String(_) if is_frame => Value::Frame(self.one(&names).into()),
            BaseType::String(_) => Value::Text(self.one(&names).into()),
            BaseType::WString(_) => unreachable!("no definition here has wide text"),
            BaseType::Struct(number) => self.value(schema, number),
        }
    }
}

fn has_frames(value: &Value) -> bool {
    match value {
        Value::Frame(_) => true,
        Value::Sequence(values) | Value::Parts(values) => values.iter().any(has_frames),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    #[test]
    fn any_message_becomes_the_message_of_the_new_names(seed: u64, is_ros1: bool, is_little: bool) {
        let dialect = if is_ros1 { Dialect::Ros1 } else { Dialect::Ros2 };
        let mut random = Random(seed);
        let text = random.definition(dialect);
        let schema = Schema::parse("a/A", &text, dialect).unwrap();
        let fields = FrameFields::new(&schema);
        for _ in 0..4 {
            let value = random.value(&schema, 0);
            let message = Encoder::encode(dialect, is_little, &value);
            let Some(fields) = &fields else {
                prop_assert!(!has_frames(&value), "{text}");
                continue;
            };
            let leaving = fields.with_renamed_frames(&message, &rules()).unwrap();
            let arriving = fields.with_restored_frames(&message, &rules()).unwrap();
            for (found, name_for) in [(leaving, new_name as fn(&str) -> String), (arriving, own_name)] {
                let wanted = renamed(&value, name_for);
                // In big-endian order, a changed message becomes one in little-endian order.
                let expected = Encoder::encode(dialect, true, &wanted);
                match found {
                    Some(found) => prop_assert_eq!(&found, &expected, "{} {:?}", text, value),
                    None => prop_assert_eq!(&wanted, &value, "{}", text),
                }
            }
            // Messages that end too early, and any other bytes, never panic.
            let cut = random.below(message.len() + 1);
            let _ = fields.with_renamed_frames(&message[..cut], &rules());
            let mut wrong = message;
            if !wrong.is_empty() {
                let at = random.below(wrong.len());
                wrong[at] = random.below(256) as u8;
                let _ = fields.with_renamed_frames(&wrong, &rules());
            }
        }
    }

    #[test]
    fn any_message_becomes_the_message_of_the_moved_stamps(
        seed: u64, is_ros1: bool, is_little: bool, by_ns in -3_000_000_000_i64..3_000_000_000,
    ) {
        let dialect = if is_ros1 { Dialect::Ros1 } else { Dialect::Ros2 };
        let mut random = Random(seed);
        let text = random.definition(dialect);
        let schema = Schema::parse("a/A", &text, dialect).unwrap();
        let Some(fields) = StampFields::new(&schema) else { return Ok(()) };
        let value = random.value(&schema, 0);
        let expected = with_moved_stamps(&value, by_ns, dialect);
        match fields.with_moved_stamps(&Encoder::encode(dialect, is_little, &value), by_ns).unwrap() {
            Some(found) => prop_assert_eq!(found, Encoder::encode(dialect, true, &expected)),
            None => prop_assert_eq!(value, expected),
        }
    }

    #[test]
    fn any_bytes_are_renamed_or_refused_without_a_panic(bytes: Vec<u8>, seed: u64, is_ros1: bool) {
        let dialect = if is_ros1 { Dialect::Ros1 } else { Dialect::Ros2 };
        let text = Random(seed).definition(dialect);
        let schema = Schema::parse("a/A", &text, dialect).unwrap();
        if let Some(fields) = FrameFields::new(&schema) {
            let _ = fields.with_renamed_frames(&bytes, &rules());
            let _ = fields.with_renamed_frames(&[&[0, 1, 0, 0], &bytes[..]].concat(), &rules());
        }
    }
}

fn ros2(text: &str) -> FrameFields {
    FrameFields::new(&Schema::parse("a/msg/A", text, Dialect::Ros2).unwrap()).unwrap()
}

fn cdr(parts: &[&[u8]]) -> Vec<u8> {
    [&[&[0, 1, 0, 0][..]], parts].concat().concat()
}

#[test]
fn fields_after_a_longer_name_are_aligned_again() {
    let fields = ros2("string child_frame_id\nfloat64 x\nuint8 y\nuint16 z");
    let rest: &[u8] = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 10, 11];
    let message = cdr(&[&[4, 0, 0, 0], b"arm\0", rest]);
    let expected = cdr(&[&[7, 0, 0, 0], b"r1/arm\0", &[0; 5], rest]);
    assert_eq!(fields.with_renamed_frames(&message, &rules()).unwrap(), Some(expected));
}

#[test]
fn tf_and_other_messages_get_the_same_frame_names() {
    for name in ["laser", "/laser", "map", "/map", "earth_1", "r1/laser", "r1", "a/b", "r1/", ""] {
        assert_eq!(rules().new_name(name), new_name(name), "{name}");
        assert_eq!(rules().own_name(name), own_name(name), "{name}");
    }
    let bare = Rules { prefix: "r".into(), ..rules() };
    assert_eq!(bare.new_name("roof"), "rroof", "no sign that the prefix is there");
    assert_eq!(bare.own_name("roof"), "roof", "the same");
    assert_eq!(Rules::default().own_name("/roof"), "/roof");
    let dashed = Rules { prefix: "r_".into(), ..rules() };
    assert_eq!(dashed.new_name("r_roof"), "r_roof");
    assert_eq!(Rules::default().new_name("/roof"), "roof");
}

#[test]
fn strings_other_than_frame_names_do_not_change() {
    let fields = ros2("string child_frame_id");
    let text = |text: &[u8]| cdr(&[&(text.len() as u32 + 1).to_le_bytes(), text, &[0]]);
    let long = vec![b'a'; MAX_FRAME_NAME + 1];
    for name in [&b""[..], b"/", &[0xff, 0xfe], &long] {
        assert_eq!(fields.with_renamed_frames(&text(name), &rules()), Ok(None), "{name:?}");
    }
    assert!(fields.with_renamed_frames(&text(&long[1..]), &rules()).unwrap().is_some());
    // An empty text without its NUL.
    assert_eq!(fields.with_renamed_frames(&cdr(&[&[0; 4]]), &rules()), Ok(None));
}

#[test]
fn errors_name_the_place() {
    let said = |text: &str, message: &[u8]| {
        ros2(text).with_renamed_frames(message, &rules()).unwrap_err().to_string()
    };
    let bounded = cdr(&[&[4, 0, 0, 0], b"arm\0"]);
    let found = said("string<=5 child_frame_id", &bounded);
    assert_eq!(found, "child_frame_id: 'r1/arm' is too long; allowed: at most 5 bytes");
    let nested = format!("B[] parts\n{BAR}\nMSG: a/B\nstring child_frame_id");
    let found = said(&nested, &cdr(&[&[2, 0, 0, 0], &[1, 0, 0, 0, 0, 0, 0, 0], &[9, 0, 0, 0]]));
    assert_eq!(found, "parts[1].child_frame_id: 9 bytes wanted, 0 are left");
    assert_eq!(said("string child_frame_id", &[7]), "1 bytes; allowed: at least 4");
    let found = said("string child_frame_id", &cdr(&[&[1, 0, 0, 0], &[0; 9]]));
    assert_eq!(found, "8 bytes are left over at the end");
}

#[test]
fn wide_strings_of_each_dds_are_skipped_correctly() {
    let fields = ros2("wstring x\nstring child_frame_id\nfloat64 y");
    for (length, bytes) in [(2, 8), (2, 4), (4, 4)] {
        let wide = [&[length, 0, 0, 0][..], &vec![7; bytes]].concat();
        let padding = vec![0; (8 - (wide.len() + 4 + 4) % 8) % 8];
        let message = cdr(&[&wide, &[4, 0, 0, 0], b"arm\0", &padding, &[5; 8]]);
        let padding = vec![0; (8 - (wide.len() + 4 + 7) % 8) % 8];
        let expected = cdr(&[&wide, &[7, 0, 0, 0], b"r1/arm\0", &padding, &[5; 8]]);
        assert_eq!(
            fields.with_renamed_frames(&message, &rules()).unwrap(),
            Some(expected),
            "{length} {bytes}"
        );
    }
}

#[test]
fn the_time_depends_on_the_bytes_and_not_on_the_lengths() {
    // Elements without bytes, more of them than could be counted one by one, in either byte order.
    let empty = format!("E[] many\nstring child_frame_id\n{BAR}\nMSG: a/E\nuint8[0] x\n");
    for order in [0, 1] {
        let message = [&[0, order, 0, 0][..], &[255; 4], &[0; 4]].concat();
        assert_eq!(ros2(&empty).with_renamed_frames(&message, &rules()), Ok(None));
    }
    let root = String::from("T0[4000000000] x\nstring child_frame_id\n");
    let nested = (0..20).fold(root, |text, number| {
        format!("{text}{BAR}\nMSG: a/T{number}\nT{}[4000000000] x\n", number + 1)
    });
    let nested = format!("{nested}{BAR}\nMSG: a/T20\nuint8 x\n");
    for order in [0, 1] {
        let message = [&[0, order, 0, 0][..], &[0; 13]].concat();
        assert!(ros2(&nested).with_renamed_frames(&message, &rules()).is_err());
    }
    // Definitions that would be exponentially long written out.
    let twice = (0..30).fold(String::from("T0 a\nT0 b\n"), |text, number| {
        let next = number + 1;
        format!("{text}{BAR}\nMSG: a/T{number}\nT{next} a\nT{next} b\n")
    });
    let twice = format!("{twice}{BAR}\nMSG: a/T30\nstring child_frame_id\n");
    assert!(ros2(&twice).with_renamed_frames(&cdr(&[&[0; 4000]]), &rules()).is_err());
}

#[test]
fn only_a_definition_of_the_publishers_version_is_used() {
    let text = "string child_frame_id\n";
    let hash = type_hash(&Schema::parse("a/A", text, Dialect::Ros1).unwrap());
    let found = |hash: &str, text: &str| FrameFields::for_topic(&topic("a/A", hash, text));
    assert!(matches!(found(&hash, text), Ok(Some(_))));
    assert!(matches!(found("", text), Ok(Some(_))), "ROS 2 before Iron");
    let plain = "uint8 x\n";
    let plain_hash = type_hash(&Schema::parse("a/A", plain, Dialect::Ros1).unwrap());
    assert!(matches!(found(&plain_hash, plain), Ok(None)));
    assert!(matches!(found("d41d8cd98f00b204e9800998ecf8427e", ""), Ok(None)), "std_msgs/Empty");
    let error = found(&hash, plain).unwrap_err();
    assert!(error.contains(&hash) && error.contains(&plain_hash), "{error}");
    assert!(found(&hash, "").unwrap_err().contains("no definition of a/A"));
    assert!(found(&hash, "nonsense").unwrap_err().contains("is no 'TYPE NAME'"));
}

const HEADER: &str = "MSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n";
const TIME: &str = "MSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n";

/// The time per message, and the message's size.
fn measure_cost(text: &str, value: &Value) -> (Duration, usize) {
    let text = format!("{text}{BAR}\n{HEADER}{BAR}\n{TIME}");
    let fields = ros2(&text);
    let message = Encoder::encode(Dialect::Ros2, true, value);
    // Neither the message nor the memory of the result is in a cache, if the message is large.
    let copies = (UNCACHED_BYTES / message.len()).clamp(1, 40);
    let (messages, rules) = (vec![message.clone(); copies], rules());
    let mut results: Vec<_> = (0..copies).map(|_| None).collect();
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < MEASURED {
        let number = count as usize % copies;
        results[number] = fields.with_renamed_frames(black_box(&messages[number]), &rules).unwrap();
        assert_ne!(black_box(&results[number]), &None);
        count += 1;
    }
    (start.elapsed() / count, message.len())
}

fn number(bytes: usize) -> Value {
    Value::Number(vec![1; bytes])
}

fn header() -> Value {
    let frame = Value::Frame("base_laser".into());
    Value::Parts(vec![Value::Stamp(1, 2), frame])
}

/// Bytes in a sequence.
fn data(bytes: usize) -> Value {
    Value::Sequence((0..bytes).map(|_| number(1)).collect())
}

/// `cargo test --release -p tautline-gateway --test it frames:: -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn the_cost_of_new_names() {
    let floats = |count: usize| Value::Sequence((0..count).map(|_| number(4)).collect());
    let scan =
        "std_msgs/Header header\nfloat32[7] numbers\nfloat32[] ranges\nfloat32[] intensities\n";
    let scan_value = Value::Parts(vec![
        header(),
        Value::Parts((0..7).map(|_| number(4)).collect()),
        floats(720),
        floats(720),
    ]);
    let image = "std_msgs/Header header\nuint32[2] size\nstring encoding\nuint8 x\nuint32 step\nuint8[] data\n";
    let image_value = Value::Parts(vec![
        header(),
        Value::Parts(vec![number(4), number(4)]),
        Value::Text("rgb8".into()),
        number(1),
        number(4),
        data(6_000_000),
    ]);
    let pose = || Value::Parts((0..7).map(|_| number(8)).collect());
    let stamped = || Value::Parts(vec![header(), pose()]);
    let path = format!(
        "std_msgs/Header header\nS[] poses\n{BAR}\nMSG: a/S\nstd_msgs/Header header\nfloat64[7] pose\n"
    );
    let path_value =
        Value::Parts(vec![header(), Value::Sequence((0..1000).map(|_| stamped()).collect())]);
    let odometry =
        "std_msgs/Header header\nstring child_frame_id\nfloat64[43] pose\nfloat64[42] twist\n";
    let odometry_value = Value::Parts(vec![
        header(),
        Value::Frame("base_link".into()),
        Value::Parts((0..85).map(|_| number(8)).collect()),
    ]);
    let names = |count: usize| {
        let part = || Value::Parts(vec![Value::Frame("a".into())]);
        Value::Parts(vec![Value::Sequence((0..count).map(|_| part()).collect())])
    };
    let only_names = format!("N[] names\n{BAR}\nMSG: a/N\nstring child_frame_id\n");
    let names_value = names(8000);
    for (name, text, value) in [
        ("LaserScan, 720 ranges", scan, &scan_value),
        ("Odometry", odometry, &odometry_value),
        ("Path, 1000 poses", &path, &path_value),
        ("Image of 6 MB", image, &image_value),
        ("only names of frames", &only_names, &names_value),
    ] {
        let (time, bytes) = measure_cost(text, value);
        println!("| {name} | {bytes} | {:.2} |", time.as_secs_f64() * 1e6);
    }
}
