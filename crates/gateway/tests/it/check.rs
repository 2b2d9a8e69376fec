// SPDX-License-Identifier: Apache-2.0
//! Payloads of their type, payloads that cannot be of their type, and the cost of the check.

use crate::topics::{BAR, topic};
use proptest::prelude::*;
use std::hint::black_box;
use std::time::{Duration, Instant};
use tautline_gateway::Service;
use tautline_gateway::types::check::{
    Check, Checker, ServiceChecker, check_of_service, check_of_topic,
};
use tautline_gateway::types::hash::type_hash;
use tautline_gateway::types::installed::InstalledTypes;
use tautline_gateway::types::translate::dialect_of;
use tautline_gateway::types::trust::service_hash;
use tautline_gateway::types::{Dialect, Schema, Transcoder};

const LE: [u8; 4] = [0, 1, 0, 0];
/// Empty texts in a hostile message.
const MANY: usize = 100_000;
/// Time for which a cost is measured.
const MEASURED: Duration = Duration::from_millis(300);

fn ros1(text: &str) -> Schema {
    Schema::parse("a/A", text, Dialect::Ros1).unwrap()
}

fn ros2(text: &str) -> Schema {
    Schema::parse("a/msg/A", text, Dialect::Ros2).unwrap()
}

fn check_error(text: &str, dialect: Dialect, message: &[u8]) -> String {
    let schema = Schema::parse("a/A", text, dialect).unwrap();
    match Checker::new(&schema).check(message) {
        Ok(()) => String::new(),
        Err(error) => error.to_string(),
    }
}

/// Bytes with the length in front.
fn with_length(length: u32, bytes: &[u8]) -> Vec<u8> {
    [&length.to_le_bytes()[..], bytes].concat()
}

fn cdr(bytes: &[u8]) -> Vec<u8> {
    [&LE[..], bytes].concat()
}

#[test]
fn a_false_length_is_reported_at_its_position() {
    use Dialect::{Ros1, Ros2};
    let scan = "float32 angle\nfloat32[] ranges\nfloat32[] intensities";
    let message =
        |ranges: u32| [&[0; 4][..], &with_length(ranges, &[0; 8]), &with_length(0, &[])].concat();
    assert_eq!(check_error(scan, Ros1, &message(2)), "");
    let beyond = check_error(scan, Ros1, &message(u32::MAX));
    assert_eq!(beyond, "ranges: 17179869180 bytes wanted, 12 are left");
    assert_eq!(check_error(scan, Ros1, &message(1)), "4 bytes are left over at the end");
    assert_eq!(check_error(scan, Ros2, &cdr(&message(2))), "");
    assert_eq!(
        check_error(scan, Ros2, &cdr(&message(3))),
        "intensities: 4 bytes wanted, 0 are left"
    );
    assert_eq!(check_error(scan, Ros1, &[7]), "4 bytes wanted, 1 are left");
    assert_eq!(check_error(scan, Ros2, &[7]), "1 bytes; allowed: at least 4");
    let nested = format!("B[] parts\n{BAR}\nMSG: a/B\nuint8 x\nstring name");
    let message =
        with_length(2, &[&[1][..], &with_length(0, &[]), &[1], &with_length(9, b"x")].concat());
    assert_eq!(check_error(&nested, Ros1, &message), "parts[1].name: 9 bytes wanted, 1 are left");
}

#[test]
fn payloads_that_ros_accepts_are_accepted() {
    use Dialect::{Ros1, Ros2};
    assert_eq!(check_error("bool x", Ros1, &[7]), "", "any byte");
    assert_eq!(check_error("bool[2] x", Ros2, &cdr(&[7, 255])), "", "any byte");
    let latin1 = with_length(2, &[0xe9, 0xff]);
    assert_eq!(check_error("string x", Ros1, &latin1), "", "text that is not UTF-8");
    assert_eq!(check_error("string x", Ros1, &with_length(2, b"a\0")), "", "NUL in text");
    assert_eq!(check_error("string x", Ros2, &cdr(&with_length(3, &[0xe9, 0xff, 0]))), "");
    assert_eq!(
        check_error("string x", Ros2, &cdr(&with_length(0, &[]))),
        "",
        "an empty text without NUL"
    );
    // Some writers pad to a multiple of four.
    assert_eq!(check_error("uint8 x", Ros2, &cdr(&[1, 0, 0, 0])), "");
    assert_eq!(check_error("uint8 x", Ros2, &cdr(&[1; 5])), "4 bytes are left over at the end");
    // Nothing is aligned if there is nothing to align.
    let empty = cdr(&[0, 0, 0, 0, 7]);
    assert_eq!(check_error("float64[] x\nuint8 y", Ros2, &empty), "");
    assert_eq!(check_error("float64[0] x\nfloat64[<=3] z\nuint8 y", Ros2, &empty), "");
    let big = [&[0, 0, 0, 0][..], &2_u32.to_be_bytes(), &[0; 8], &[0, 0, 0, 2, b'x', 0]].concat();
    assert_eq!(check_error("int32[] x\nstring y", Ros2, &big), "", "a big-endian writer");
    assert_eq!(check_error("", Ros1, &[]), "", "std_msgs/Empty");
    assert_eq!(check_error("", Ros2, &cdr(&[0])), "", "std_msgs/msg/Empty");
}

#[test]
fn ros_2_payloads_of_another_type_are_refused() {
    let said = |text, message: &[u8]| check_error(text, Dialect::Ros2, &cdr(message));
    assert_eq!(said("string x", &with_length(1, b"x")), "x: text ends with 0x78; allowed: 0x00");
    assert_eq!(
        said("string<=1 x", &with_length(3, b"ab\0")),
        "x: 2 bytes of text; allowed: at most 1"
    );
    assert_eq!(said("int8[<=1] x", &with_length(2, &[0; 2])), "x: 2 elements; allowed: at most 1");
    let long = with_length(3, &[0; 12]);
    assert_eq!(said("wstring<=2 x", &long), "x: 3 units of text; allowed: at most 2");
    let checker = Checker::new(&ros2("int8 x"));
    let error = checker.check(&[0, 3, 0, 0, 1]).unwrap_err().to_string();
    assert_eq!(error, "encapsulation 0x0003; allowed: 0x0000, 0x0001 (CDR)");
}

#[test]
fn wide_strings_of_each_dds_are_accepted() {
    let checker = Checker::new(&ros2("wstring x\nuint32 y"));
    for (length, bytes) in [(2, 8), (2, 4), (4, 4)] {
        let message = cdr(&[with_length(length, &vec![0; bytes]), vec![7; 4]].concat());
        checker.check(&message).unwrap();
        assert!(checker.check(&message[..11]).is_err(), "{length} in {bytes}");
    }
}

#[test]
fn the_time_depends_on_the_bytes_and_not_on_the_lengths() {
    use Dialect::Ros1;
    // Elements without bytes, and more of them than could be counted one by one.
    let empty = format!("E[] many\nE[4000000000] more\n{BAR}\nMSG: a/E\n");
    assert_eq!(check_error(&empty, Ros1, &with_length(u32::MAX, &[])), "");
    let nested = (0..20).fold(String::from("T0[4000000000] x\n"), |text, number| {
        format!("{text}{BAR}\nMSG: a/T{number}\nT{}[4000000000] x\n", number + 1)
    });
    let nested = format!("{nested}{BAR}\nMSG: a/T20\nuint8 x\n");
    assert!(check_error(&nested, Ros1, &[0; 9]).contains("bytes wanted, 9 are left"));
    // Texts that the message does not have.
    assert_eq!(
        check_error("string[4000000000] x", Ros1, &[0; 8]),
        "x[2]: 4 bytes wanted, 0 are left"
    );
    // Definitions that would be exponentially long written out.
    let twice = (0..30).fold(String::from("T0 a\nT0 b\n"), |text, number| {
        let next = number + 1;
        format!("{text}{BAR}\nMSG: a/T{number}\nT{next} a\nT{next} b\n")
    });
    let twice = format!("{twice}{BAR}\nMSG: a/T30\nstring x\n");
    assert!(check_error(&twice, Ros1, &[0; 4 * MANY]).ends_with("4 bytes wanted, 0 are left"));
    // A chain of types around one text is one step.
    let chain = (0..30).fold(String::from("T0[] x\n"), |text, number| {
        format!("{text}{BAR}\nMSG: a/T{number}\nT{} x\n", number + 1)
    });
    let chain = format!("{chain}{BAR}\nMSG: a/T30\nstring x\n");
    let texts = with_length(MANY as u32, &[0; 4 * MANY]);
    assert_eq!(check_error(&chain, Ros1, &texts), "");
}

/// A robot with these files below `share`.
fn robot_with_files(files: &[(&str, &str)]) -> (tempfile::TempDir, InstalledTypes) {
    let place = tempfile::tempdir().unwrap();
    for (file, text) in files {
        let path = place.path().join("share").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let installed = InstalledTypes::new(vec![place.path().into()]);
    (place, installed)
}

fn is_accepted(check: &Check<Checker>, message: &[u8]) -> bool {
    check.checker().unwrap().check(message).is_ok()
}

#[test]
fn messages_are_checked_by_the_definition_of_local_nodes() {
    let text = "B b\n";
    let part = format!("{BAR}\nMSG: a/B\nuint8 x\n");
    let (honest, lie) = (format!("{text}{part}"), format!("B[] b\n{part}"));
    let (_place, installed) =
        robot_with_files(&[("a/msg/A.msg", text), ("a/msg/B.msg", "uint8 x\n")]);
    let none = InstalledTypes::default();
    let hash =
        |text: &str, name: &str| type_hash(&Schema::parse(name, text, dialect_of(name)).unwrap());
    // The md5 of ROS 1 is the same for both; the layout is not.
    let md5 = hash(&honest, "a/A");
    assert_eq!(md5, hash(&lie, "a/A"));
    let liar = topic("a/A", &md5, &lie);
    let check = check_of_topic(&liar, &installed);
    assert!(
        matches!(check, Check::SharedDefinition(_))
            && is_accepted(&check, &[1])
            && !is_accepted(&check, &[0; 4])
    );
    let check = check_of_topic(&liar, &none);
    assert!(matches!(check, Check::PeerDefinition(_)) && is_accepted(&check, &[0; 4]));
    let check = check_of_topic(&topic("a/C", "", "uint8 x\n"), &none);
    assert!(matches!(check, Check::SharedDefinition(_)) && !is_accepted(&check, &[0; 2]));
    assert!(matches!(check_of_topic(&topic("a/A", "", ""), &none), Check::Impossible));
    assert!(matches!(
        check_of_topic(&topic("a/A", "", ""), &installed),
        Check::SharedDefinition(_)
    ));
    // A peer may have another version. Its messages follow that version.
    let newer = format!("{text}uint8 y\n{part}");
    let check = check_of_topic(&topic("a/A", &hash(&newer, "a/A"), &newer), &installed);
    assert!(matches!(check, Check::PeerDefinition(_)) && is_accepted(&check, &[1, 2]));
    let check = check_of_topic(&topic("a/msg/A", &hash(&newer, "a/msg/A"), &newer), &installed);
    assert!(matches!(check, Check::PeerDefinition(_)) && is_accepted(&check, &cdr(&[1, 2])));
    let unknown = topic("a/msg/A", "RIHS01_other", "");
    assert!(matches!(check_of_topic(&unknown, &installed), Check::Impossible));
}

#[test]
fn calls_of_a_service_are_checked_both_ways() {
    let text = "bool data\n---\nbool success\nstring message\n";
    let service = |type_name: &str, type_hash: &str, definition: &str| Service {
        name: "/x".into(),
        type_name: type_name.into(),
        type_hash: type_hash.into(),
        definition: definition.into(),
    };
    let (_place, installed) = robot_with_files(&[("a/srv/S.srv", text)]);
    let none = InstalledTypes::default();
    let md5 = service_hash("a/S", text, Dialect::Ros1).unwrap();
    let sound = [&[1][..], &with_length(2, b"ok")].concat();
    let works = |checker: &ServiceChecker| {
        let request = checker.request.check(&[1]).is_ok() && checker.request.check(&[]).is_err();
        let response = &checker.response;
        request && response.check(&sound).is_ok() && response.check(&sound[1..]).is_err()
    };
    assert!(works(&ServiceChecker::for_own_service(&service("a/S", "", text)).unwrap()));
    assert!(ServiceChecker::for_own_service(&service("a/S", "", "")).is_none());
    let check = check_of_service(&service("a/S", &md5, ""), &installed);
    assert!(matches!(&check, Check::SharedDefinition(_)) && works(check.checker().unwrap()));
    let check = check_of_service(&service("a/S", &md5, text), &none);
    assert!(matches!(&check, Check::SharedDefinition(_)) && works(check.checker().unwrap()));
    // No hash covers a response of ROS 2.
    let check = check_of_service(&service("a/srv/S", "", text), &none);
    assert!(matches!(check, Check::PeerDefinition(_)));
    assert!(matches!(check_of_service(&service("a/S", &md5, ""), &none), Check::Impossible));
}

#[test]
fn the_parts_of_an_action_are_checked_by_the_installed_action() {
    let action = "int32 order\n---\nint32[] sequence\n---\nint32[] sequence\n";
    let (_place, installed) = robot_with_files(&[("a/action/Fib.action", action)]);
    let service = |part: &str| Service {
        name: format!("/fib/_action/{part}"),
        type_name: format!("a/action/Fib_{part}"),
        type_hash: String::new(),
        definition: "".into(),
    };
    let id = [7; 16];
    let check = check_of_service(&service("SendGoal"), &installed);
    let checker = check.checker().unwrap();
    assert!(matches!(check, Check::SharedDefinition(_)));
    let goal = cdr(&[&id[..], &[4, 0, 0, 0]].concat());
    assert!(checker.request.check(&goal).is_ok() && checker.request.check(&goal[..20]).is_err());
    let check = check_of_service(&service("GetResult"), &installed);
    let result = |length| cdr(&[&[4, 0, 0, 0][..], &with_length(length, &[0; 8])].concat());
    let checker = check.checker().unwrap();
    assert!(checker.response.check(&result(2)).is_ok());
    assert!(checker.response.check(&result(1 << 30)).is_err(), "a false length");
    let feedback = topic("a/action/Fib_FeedbackMessage", "", "");
    let check = check_of_topic(&feedback, &installed);
    let message = |length| cdr(&[&id[..], &with_length(length, &[0; 8])].concat());
    assert!(matches!(check, Check::SharedDefinition(_)));
    assert!(is_accepted(&check, &message(2)) && !is_accepted(&check, &message(1 << 30)));
    let other = topic("a/action/Other_FeedbackMessage", "", "");
    assert!(matches!(check_of_topic(&other, &installed), Check::Impossible));
}

proptest! {
    /// A message passes if and only if it can be translated, apart from the limits of translation.
    #[test]
    fn translatable_payloads_pass(bytes in proptest::collection::vec(0_u8..4, 0..200)) {
        let text = format!(
            "bool a\nstring[] s\nB[] b\nB[2] c\nfloat64[] d\nC[] e\n{BAR}\nMSG: a/B\nstring s\n\
             int16[] x\nuint64 y\n{BAR}\nMSG: a/C\nuint8 a\nuint16 b\nuint8 c"
        );
        let (one, two) = (ros1(&text), ros2(&text));
        let transcoder = Transcoder::new(&one, &two).unwrap();
        let passes = Checker::new(&one).check(&bytes).is_ok();
        prop_assert_eq!(passes, transcoder.to_ros2(&bytes).is_ok());
        let message = cdr(&bytes);
        let passes = Checker::new(&two).check(&message).is_ok();
        prop_assert_eq!(passes, transcoder.to_ros1(&message).is_ok());
    }
}

/// The time that a check takes, in nanoseconds per megabyte of message.
fn cost(checker: &Checker, message: &[u8]) -> f64 {
    checker.check(message).unwrap();
    let start = Instant::now();
    let mut checks = 0;
    while start.elapsed() < MEASURED {
        for _ in 0..16 {
            black_box(checker).check(black_box(message)).unwrap();
            checks += 1;
        }
    }
    start.elapsed().as_nanos() as f64 / f64::from(checks) / (message.len() as f64 / 1e6)
}

/// Prints the cost: `cargo test --release -p tautline-gateway --test it check:: -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn cost_per_megabyte() {
    let header = format!("{BAR}\nMSG: std_msgs/Header\nuint32 seq\ntime stamp\nstring frame_id\n");
    let head = [&[0; 12][..], &with_length(4, b"base")].concat();
    let image = (
        format!(
            "Header header\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\n\
             uint32 step\nuint8[] data\n{header}"
        ),
        [
            &head[..],
            &[0; 8],
            &with_length(4, b"rgb8"),
            &[0; 5],
            &with_length(921_600, &[0; 921_600]),
        ]
        .concat(),
    );
    let field = [&with_length(1, b"x")[..], &[0; 9]].concat();
    let cloud = (
        format!(
            "Header header\nuint32 height\nuint32 width\nPointField[] fields\nbool is_bigendian\n\
             uint32 point_step\nuint32 row_step\nuint8[] data\nbool is_dense\n{header}{BAR}\n\
             MSG: a/PointField\nstring name\nuint32 offset\nuint8 datatype\nuint32 count\n"
        ),
        [
            &head[..],
            &[0; 8],
            &with_length(4, &field.repeat(4)),
            &[0; 9],
            &with_length(2_000_000, &[0; 2_000_000]),
            &[1],
        ]
        .concat(),
    );
    let scan = (
        format!(
            "Header header\nfloat32[7] numbers\nfloat32[] ranges\nfloat32[] intensities\n{header}"
        ),
        [&head[..], &[0; 28], &with_length(720, &[0; 2880]), &with_length(720, &[0; 2880])]
            .concat(),
    );
    let transform = [&head[..], &with_length(4, b"link"), &[0; 56]].concat();
    let transforms = (
        format!(
            "T[] transforms\n{header}{BAR}\nMSG: a/T\nHeader header\nstring child_frame_id\n\
                 float64[7] transform\n"
        ),
        with_length(30, &transform.repeat(30)),
    );
    let points = (
        format!("P[] points\n{BAR}\nMSG: a/P\nfloat64 x\nfloat64 y\nfloat64 z\n"),
        with_length(40_000, &[0; 960_000]),
    );
    let short = (
        "string[] names".to_owned(),
        with_length(62_500, &with_length(12, &[b'a'; 12]).repeat(62_500)),
    );
    let empty = ("string[] names".to_owned(), with_length(250_000, &[0; 1_000_000]));
    let cases = [
        ("Image", image),
        ("PointCloud2", cloud),
        ("LaserScan", scan),
        ("TFMessage", transforms),
        ("Point[]", points),
        ("string[] of 12 bytes", short),
        ("string[] of none", empty),
    ];
    println!("{:22} {:>10} {:>14} {:>14}", "", "bytes", "ROS 1 ns/MB", "ROS 2 ns/MB");
    for (name, (text, message)) in cases {
        let one = ros1(&text);
        let two = tautline_gateway::types::derive::to_ros2(&one).unwrap();
        let there = Transcoder::new(&one, &two).unwrap().to_ros2(&message).unwrap();
        let costs = [cost(&Checker::new(&one), &message), cost(&Checker::new(&two), &there)];
        println!("{name:22} {:10} {:14.0} {:14.0}", message.len(), costs[0], costs[1]);
    }
}
