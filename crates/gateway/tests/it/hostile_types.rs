// SPDX-License-Identifier: Apache-2.0
//! Definitions and messages as nobody should send them: each is refused with the reason.

use proptest::prelude::*;
use tautline_gateway::types::compose::{YamlValue, compose};
use tautline_gateway::types::definition::{MAX_DEPTH, Schema};
use tautline_gateway::types::{Dialect, Transcoder, derive};

const BAR: &str =
    "================================================================================";

fn ros1(text: &str) -> Schema {
    Schema::parse("a/A", text, Dialect::Ros1).unwrap()
}

fn ros2(text: &str) -> Schema {
    Schema::parse("a/msg/A", text, Dialect::Ros2).unwrap()
}

fn refused(text: &str, dialect: Dialect) -> String {
    Schema::parse("a/A", text, dialect).unwrap_err().to_string()
}

#[test]
fn a_definition_that_makes_no_sense_names_type_line_and_reason() {
    use Dialect::{Ros1, Ros2};
    for (text, dialect, reason) in [
        ("int32", Ros1, "a/A, line 1: 'int32' is no 'TYPE NAME'"),
        (
            "\n# x\nfoo bar",
            Ros1,
            "a/A, line 3: 'foo' is no primitive type, and no definition of a/foo",
        ),
        ("int32 a\nint8 a", Ros1, "a/A, line 2: a second field 'a'"),
        ("int32[x] a", Ros1, "'x' is no number of elements"),
        ("int32[3 a", Ros1, "'int32[3' has no ']'"),
        ("int32[<=3] a", Ros1, "ROS 1 has no bounds"),
        ("string<=x a", Ros2, "'string<=x' has no number as bound"),
        ("time stamp", Ros2, "'time' is no primitive type"),
        ("wstring a", Ros1, "'wstring' is no primitive type"),
        ("int32 a 5", Ros1, "' 5' follows the name 'a'"),
        ("int32 _a", Ros1, "the name '_a' does not start with a letter"),
        ("a/B X=1", Ros1, "'a/B' is no type of a constant"),
        ("int8[] X=1", Ros2, "'int8[]' is no type of a constant"),
        ("Header[] h", Ros1, "no definition of a/Header follows"),
    ] {
        let error = refused(text, dialect);
        assert!(error.contains(reason), "{text:?}: {error}");
    }
}

#[test]
fn the_value_of_a_constant_is_the_text_after_its_name() {
    let schema = Schema::parse("a/A", "string<=5 NAME=\"a=b\"\nint8 x", Dialect::Ros2).unwrap();
    assert_eq!(schema.root().constants, ["string<=5 NAME=\"a=b\""]);
    assert_eq!(Schema::parse("a/A", &schema.to_text(), Dialect::Ros2).unwrap(), schema);
}

#[test]
fn the_comment_behind_a_text_is_a_part_of_it_in_ros_1_only() {
    let constants = |dialect| {
        let text = "string A=b # c\nint8 D=1 # e\nint8 x";
        Schema::parse("a/A", text, dialect).unwrap().root().constants.clone()
    };
    assert_eq!(constants(Dialect::Ros1), ["string A=b # c", "int8 D=1"]);
    assert_eq!(constants(Dialect::Ros2), ["string A=b", "int8 D=1"]);
}

#[test]
fn fields_that_would_have_one_name_in_ros_2_are_refused_with_both() {
    for (text, both) in
        [("int8 fooBar\nint8 foo_bar", ["foo_bar", "'fooBar'"]), ("int8 K\nint8 k", ["k", "'K'"])]
    {
        let error = derive::to_ros2(&ros1(text)).unwrap_err().to_string();
        assert!(error.contains(&format!("a/A.{}", both[0])) && error.contains(both[1]), "{error}");
    }
    // If ROS 2 has an installed type, the field of the same name is the counterpart. The other has none.
    let two = Transcoder::new(&ros1("int8 fooBar\nint8 foo_bar"), &ros2("int8 foo_bar")).unwrap();
    assert_eq!(two.one_sided(), ["a/A.fooBar, ROS 1 only"]);
    assert_eq!(two.to_ros2(&[1, 2]).unwrap(), [0, 1, 0, 0, 2]);
}

#[test]
fn a_time_out_of_range_is_refused_with_its_field() {
    let parts = format!(
        "\n{BAR}\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n{BAR}\n\
         MSG: builtin_interfaces/Duration\nint32 sec\nuint32 nanosec"
    );
    let there = "builtin_interfaces/Time[] at\nbuiltin_interfaces/Duration d";
    let transcoder =
        Transcoder::new(&ros1("time[] at\nduration d"), &ros2(&format!("{there}{parts}"))).unwrap();
    let words = |all: &[i64]| -> Vec<u8> {
        all.iter().flat_map(|word| (*word as u32).to_le_bytes()).collect()
    };
    let sent = words(&[1, 1, 4_000_000_000, -1, -500_000_000]);
    let cdr = transcoder.to_ros2(&sent).unwrap();
    assert_eq!(cdr[4..], words(&[1, 5, 0, -2, 500_000_000]));
    assert_eq!(transcoder.to_ros1(&cdr).unwrap(), words(&[1, 5, 0, -2, 500_000_000]));
    let late = transcoder.to_ros2(&words(&[2, 0, 0, 3_000_000_000, 7, 0, 0])).unwrap_err();
    assert!(late.to_string().starts_with("at[1]: the time 3000000000 s + 7 ns"), "{late}");
    let early = [&[0, 1, 0, 0][..], &words(&[1, -1, 0, 0, 0])].concat();
    let early = transcoder.to_ros1(&early).unwrap_err().to_string();
    assert!(early.contains("the time -1 s + 0 ns is beyond the range of ROS 1"), "{early}");
    // A field that ROS 2 lacks is read and left out.
    let without = Transcoder::new(&ros1("time at\nint8 x"), &ros2("int8 x")).unwrap();
    let sent = [words(&[3_000_000_000, 0]), vec![5]].concat();
    assert_eq!(without.to_ros2(&sent).unwrap(), [0, 1, 0, 0, 5]);
    // Another type of that name is no time.
    let odd = "builtin_interfaces/Time at".to_owned()
        + &parts.replacen("nanosec", "nanosec\nint8 more", 1);
    let error = Transcoder::new(&ros1("time at"), &ros2(&odd)).unwrap_err().to_string();
    assert!(error.contains("'time' in ROS 1, 'builtin_interfaces/Time' in ROS 2"), "{error}");
}

#[test]
fn types_in_a_ring_or_too_deep_are_refused() {
    let ring = format!("B b\n{BAR}\nMSG: a/B\nA a");
    assert!(refused(&ring, Dialect::Ros1).contains("contains itself"));
    let mut deep = String::from("T1 t\n");
    for number in 1..=MAX_DEPTH {
        deep += &format!("{BAR}\nMSG: a/T{number}\nT{} t\n", number + 1);
    }
    deep += &format!("{BAR}\nMSG: a/T{}\nint8 x\n", MAX_DEPTH + 1);
    assert!(refused(&deep, Dialect::Ros1).contains("deep; allowed: 32"));
}

#[test]
fn different_types_are_refused_with_the_field() {
    for (one, two, reason) in [
        ("int32 x", "uint32 x", "a/A.x: 'int32' in ROS 1, 'uint32' in ROS 2"),
        ("float64[9] K", "float64[] k", "a/A.K: 'float64[9]' in ROS 1, 'float64[]' in ROS 2"),
        ("string x", "wstring x", "a/A.x: 'string' in ROS 1, 'wstring' in ROS 2"),
        ("int32 x\nint32 y", "int32 y\nint32 x", "a/A.y: comes after 'y' in ROS 2"),
        ("int32 x", "int32 y", "a/A: the two definitions share no field"),
    ] {
        let mismatch = Transcoder::new(&ros1(one), &ros2(two)).unwrap_err().to_string();
        assert!(mismatch.contains(reason), "{mismatch}");
    }
}

#[test]
fn truncated_messages_and_false_lengths_are_refused_at_their_position() {
    let text = "string name\nint16[] numbers\nfloat64 last";
    let transcoder = Transcoder::new(&ros1(text), &ros2(text)).unwrap();
    let message =
        [&[2, 0, 0, 0, b'h', b'i', 2, 0, 0, 0, 1, 0, 2, 0][..], &1.5_f64.to_le_bytes()].concat();
    let cdr = transcoder.to_ros2(&message).unwrap();
    assert_eq!(transcoder.to_ros1(&cdr).unwrap(), message);
    for length in 0..message.len() {
        transcoder.to_ros2(&message[..length]).unwrap_err();
    }
    for length in 0..cdr.len() {
        transcoder.to_ros1(&cdr[..length]).unwrap_err();
    }
    let said = |cdr: &[u8]| transcoder.to_ros1(cdr).unwrap_err().to_string();
    assert_eq!(said(&cdr[..16]), "numbers: 4 bytes wanted, 0 are left");
    assert_eq!(said(&[0, 7, 0, 0]), "encapsulation 0x0007; allowed: 0x0000, 0x0001 (CDR)");
    assert_eq!(
        said(&[0, 1, 0, 0, 2, 0, 0, 0, b'h', b'i']),
        "name: text ends with 0x69; allowed: 0x00"
    );
    assert!(said(&[cdr.clone(), vec![0; 4]].concat()).contains("4 bytes are left over"));
}

#[test]
fn numbers_of_a_big_endian_writer_are_swapped() {
    let text = "int16 a\nstring name\nfloat64 b";
    let transcoder = Transcoder::new(&ros1(text), &ros2(text)).unwrap();
    // Behind the encapsulation: 2 + 2 of padding, 4 + 2 of text, 6 of padding, 8.
    let head = [0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 2, b'x', 0];
    let cdr = [&head[..], &[0; 6], &1.5_f64.to_be_bytes()].concat();
    let message = transcoder.to_ros1(&cdr).unwrap();
    let expected = [&[2, 1, 1, 0, 0, 0, b'x'][..], &1.5_f64.to_le_bytes()].concat();
    assert_eq!(message, expected);
}

#[test]
fn a_bound_of_a_sequence_is_respected() {
    let transcoder =
        Transcoder::new(&ros1("int8[] x\nstring s"), &ros2("int8[<=2] x\nstring<=1 s")).unwrap();
    let error = transcoder.to_ros2(&[3, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0]).unwrap_err();
    assert_eq!(error.to_string(), "x: 3 elements; allowed: at most 2");
    let error = transcoder.to_ros2(&[0, 0, 0, 0, 2, 0, 0, 0, b'a', b'b']).unwrap_err();
    assert_eq!(error.to_string(), "s: 2 bytes of text; allowed: at most 1");
}

#[test]
fn billions_of_structs_without_bytes_end_soon() {
    let text = format!("E[4000000000] many\n{BAR}\nMSG: a/E\n");
    let transcoder = Transcoder::new(&ros1(&text), &ros1(&text)).unwrap();
    assert!(transcoder.to_ros2(&[]).unwrap_err().to_string().contains("over 65536 parts"));
    let transcoder = Transcoder::new(&ros1(&text), &ros2(&text)).unwrap();
    transcoder.to_ros2(&[]).unwrap_err();
}

proptest! {
    #[test]
    fn the_parser_does_not_panic_on_any_text(text in "[a-zA-Z0-9_/ \\[\\]<=#\"\n\t:.-]{0,300}") {
        let _ = Schema::parse("a/A", &text, Dialect::Ros1);
        if let Ok(schema) = Schema::parse("a/A", &text, Dialect::Ros2) {
            let again = Schema::parse("a/A", &schema.to_text(), Dialect::Ros2).unwrap();
            prop_assert_eq!(schema.root().fields.len(), again.root().fields.len());
            let _ = compose(&schema, &[], 1000);
        }
    }

    #[test]
    fn composing_does_not_panic_on_any_value(text in "-?[.0-9eEa-z]{0,24}|\\PC{0,8}", many in 0..4_usize) {
        for dialect in [Dialect::Ros1, Dialect::Ros2] {
            let bool_first = "bool a\nint8[2] b\nuint64 c\nfloat32 d\nstring e\nB f\nB[] g";
            let text_of_type = format!("{bool_first}\n{BAR}\nMSG: a/B\nbyte x");
            let schema = Schema::parse("a/A", &text_of_type, dialect).unwrap();
            let one = YamlValue::One(text.clone());
            let list = YamlValue::List(vec![one.clone(); many]);
            let map = YamlValue::Map(vec![("x".into(), one.clone())]);
            for value in [one, list, map.clone(), YamlValue::List(vec![map; many])] {
                for field in ["a", "b", "c", "d", "e", "f", "g"] {
                    let _ = compose(&schema, &[(field.into(), value.clone())], 1000);
                }
            }
        }
    }

    #[test]
    fn the_transcoder_does_not_panic_on_any_bytes(bytes in proptest::collection::vec(0_u8..4, 0..200)) {
        let text = format!(
            "bool a\nstring[] s\nB[] b\nB[2] c\nfloat64[] d\n{BAR}\nMSG: a/B\nstring s\nint16[<=2] x\nuint64 y"
        );
        let text1 = text.replace("<=2", "");
        let transcoder = Transcoder::new(&ros1(&text1), &ros2(&text)).unwrap();
        if let Ok(cdr) = transcoder.to_ros2(&bytes) {
            let back = transcoder.to_ros1(&cdr).unwrap();
            prop_assert_eq!(transcoder.to_ros2(&back).unwrap(), cdr);
        }
        let cdr = [&[0, 1, 0, 0][..], &bytes].concat();
        if let Ok(message) = transcoder.to_ros1(&cdr) {
            transcoder.to_ros2(&message).unwrap();
        }
    }
}
