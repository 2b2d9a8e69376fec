// SPDX-License-Identifier: Apache-2.0
//! Messages made of a definition and of what a person wrote.

use tautline_gateway::types::compose::{Fields, YamlValue, compose};
use tautline_gateway::types::{Dialect, Schema, Transcoder, derive};

const BAR: &str =
    "================================================================================";
const LIMIT: usize = 1000;

fn one(text: &str) -> YamlValue {
    YamlValue::One(text.into())
}

fn list(elements: &[&str]) -> YamlValue {
    YamlValue::List(elements.iter().map(|text| one(text)).collect())
}

fn fields<const N: usize>(fields: [(&str, YamlValue); N]) -> Fields {
    fields.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

fn schema(text: &str, dialect: Dialect) -> Schema {
    Schema::parse("a/A", text, dialect).unwrap()
}

fn twist() -> Schema {
    let vector = format!("{BAR}\nMSG: a/Vector3\nfloat64 x\nfloat64 y\nfloat64 z\n");
    schema(&format!("Vector3 linear\nVector3 angular\n{vector}"), Dialect::Ros1)
}

#[test]
fn a_composed_twist_has_its_numbers_in_place() {
    let zeros = compose(&twist(), &[], LIMIT).unwrap();
    assert_eq!(zeros, [0; 48]);
    let creep = fields([("angular", YamlValue::Map(fields([("z", one("-0.5"))])))]);
    let mut expected = zeros;
    expected[40..].copy_from_slice(&(-0.5_f64).to_le_bytes());
    assert_eq!(compose(&twist(), &creep, LIMIT).unwrap(), expected);
    let there = compose(&derive::to_ros2(&twist()).unwrap(), &creep, LIMIT).unwrap();
    assert_eq!(there, [&[0, 1, 0, 0], &*expected].concat());
}

/// A field of every kind that both ROS have.
const ALL: &str = "bool on\nint8 a\nuint8 b\nint16 c\nuint16 d\nint32 e\nuint32 f\nint64 g\n\
                   uint64 h\nfloat32 i\nfloat64 j\nstring k\nint16[3] l\nstring[] m\nA1[] n\nA1 o\n";

fn schema_of_every_kind(dialect: Dialect) -> Schema {
    schema(&format!("{ALL}{BAR}\nMSG: a/A1\nuint8 x\nfloat64 y\n"), dialect)
}

#[test]
fn every_kind_of_field_has_its_bytes_in_either_ros() {
    let part = |x: &str| YamlValue::Map(fields([("x", one(x))]));
    let written = fields([
        // The message has the order of the definition, not this one.
        ("o", part("9")),
        ("n", YamlValue::List(vec![part("7"), part("8")])),
        ("m", list(&["hi", ""])),
        ("l", list(&["-1", "2", "-32768"])),
        ("k", one("true")),
        ("j", one("1e3")),
        ("i", one(".inf")),
        ("h", one("18446744073709551615")),
        ("g", one("-9223372036854775808")),
        ("f", one("4294967295")),
        ("e", one("-2147483648")),
        ("d", one("65535")),
        ("c", one("-32768")),
        ("b", one("255")),
        ("a", one("-128")),
        ("on", one("true")),
    ]);
    let expected = [
        &[1, 0x80, 0xff, 0, 0x80, 0xff, 0xff][..],
        &[0, 0, 0, 0x80, 0xff, 0xff, 0xff, 0xff],
        &[0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &f32::INFINITY.to_le_bytes(),
        &1000_f64.to_le_bytes(),
        b"\x04\0\0\0true",
        &[0xff, 0xff, 2, 0, 0, 0x80],
        b"\x02\0\0\0\x02\0\0\0hi\0\0\0\0",
        &[2, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0],
        &[9, 0, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    let here = compose(&schema_of_every_kind(Dialect::Ros1), &written, LIMIT).unwrap();
    assert_eq!(here, expected);
    // Another test compares the conversion between the two with rosbags.
    let between =
        Transcoder::new(&schema_of_every_kind(Dialect::Ros1), &schema_of_every_kind(Dialect::Ros2))
            .unwrap();
    let there = compose(&schema_of_every_kind(Dialect::Ros2), &written, LIMIT).unwrap();
    assert_eq!(there, between.to_ros2(&here).unwrap());
    let (here, there) = (
        compose(&schema_of_every_kind(Dialect::Ros1), &[], LIMIT),
        compose(&schema_of_every_kind(Dialect::Ros2), &[], LIMIT),
    );
    assert_eq!(there.unwrap(), between.to_ros2(&here.unwrap()).unwrap());
}

#[test]
fn types_of_a_single_ros_are_written_in_its_form() {
    let time = |nsecs| YamlValue::Map(fields([("nsecs", one(nsecs))]));
    let text = "time t\nduration d\nbyte b\ntime[2] u\n";
    let written = fields([("t", time("5")), ("d", time("-5")), ("b", one("-1"))]);
    let expected =
        [&[0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0xfb, 0xff, 0xff, 0xff, 0xff][..], &[0; 16]];
    let ros1 = schema(text, Dialect::Ros1);
    assert_eq!(compose(&ros1, &written, LIMIT).unwrap(), expected.concat());

    let ros2 = schema("wstring w\nbyte b\nstring<=2 s\nuint8[<=1] v\n", Dialect::Ros2);
    let written =
        fields([("w", one("hé")), ("b", one("255")), ("s", one("ab")), ("v", list(&["1"]))]);
    let cdr = b"\0\x01\0\0\x02\0\0\0h\0\xe9\0\xff\0\0\0\x03\0\0\0ab\0\0\x01\0\0\0\x01";
    assert_eq!(compose(&ros2, &written, LIMIT).unwrap(), cdr);
    assert_eq!(compose(&schema("", Dialect::Ros2), &[], LIMIT).unwrap(), [0, 1, 0, 0, 0]);
    assert!(compose(&schema("", Dialect::Ros1), &[], LIMIT).unwrap().is_empty());
}

#[test]
fn errors_name_the_field_the_value_and_the_values_allowed() {
    let refused = |schema: &Schema, written: Fields| {
        compose(schema, &written, LIMIT).unwrap_err().to_string()
    };
    let linear = |inside: YamlValue| fields([("linear", inside)]);
    let x = |value: YamlValue| linear(YamlValue::Map(fields([("x", value)])));
    for (written, words) in [
        (x(one("fast")), "linear.x: found 'fast'; allowed: a number"),
        (x(one("--1")), "linear.x: found '--1'; allowed: a number"),
        (x(list(&["1"])), "linear.x: found a list; allowed: a number"),
        (x(one(&"9".repeat(100).replace('9', "z"))), "zzz...'; allowed"),
        (linear(one("0")), "linear: found '0'; allowed: a map of its fields"),
        (
            linear(YamlValue::Map(fields([("w", one("1"))]))),
            "linear: found the field 'w'; allowed: x, y, z",
        ),
        (fields([("liner", one("1"))]), "found the field 'liner'; allowed: linear, angular"),
    ] {
        let error = refused(&twist(), written);
        assert!(error.contains(words), "{error}");
    }
    for (name, value, words) in [
        ("on", one("1"), "on: found '1'; allowed: true or false"),
        ("a", one("128"), "a: found '128'; allowed: a whole number from -128 to 127"),
        ("h", one("-1"), "allowed: a whole number from 0 to 18446744073709551615"),
        ("e", one("1.5"), "e: found '1.5'; allowed: a whole number"),
        ("i", one("1e39"), "i: found '1e39'; allowed: a number that 32 bits hold"),
        ("k", list(&[]), "k: found a list; allowed: text"),
        ("l", list(&["1"]), "l: found 1 elements; allowed: 3"),
        ("l", one("1"), "l: found '1'; allowed: a list"),
        ("l", list(&["1", "x", "3"]), "l[1]: found 'x'; allowed: a whole number"),
        ("n", list(&["1"]), "n: found '1'; allowed: a map of its fields"),
    ] {
        let error = refused(&schema_of_every_kind(Dialect::Ros1), fields([(name, value)]));
        assert!(error.contains(words), "{error}");
    }
    let ros2 = schema("wstring<=1 w\nstring<=2 s\nuint8[<=1] v\n", Dialect::Ros2);
    for (name, value, words) in [
        ("w", one("ab"), "w: found 2 units of UTF-16; allowed: at most 1"),
        ("s", one("abc"), "s: found 3 bytes; allowed: at most 2"),
        ("s", one("\0"), "s: found text with NUL; allowed: text without"),
        ("v", list(&["1", "2"]), "v: found 2 elements; allowed: at most 1"),
    ] {
        assert!(refused(&ros2, fields([(name, value)])).contains(words), "{name}");
    }
    let time = schema("time t\n", Dialect::Ros1);
    let error = refused(&time, fields([("t", one("1"))]));
    assert!(error.contains("t: found '1'; allowed: a map of secs and nsecs"), "{error}");
    let sec = YamlValue::Map(fields([("sec", one("1"))]));
    let error = refused(&time, fields([("t", sec)]));
    assert!(error.contains("t: found the field 'sec'; allowed: secs, nsecs"), "{error}");
    let negative = YamlValue::Map(fields([("secs", one("-1"))]));
    let error = refused(&time, fields([("t", negative)]));
    assert!(error.contains("t.secs: found '-1'; allowed: a whole number from 0"), "{error}");
}

#[test]
fn a_type_of_billions_of_elements_is_refused_at_once() {
    let empty = format!("A1[4294967295] a\n{BAR}\nMSG: a/A1\n");
    for text in ["uint8[4294967295] a", "float64[4294967295] a", "string[4294967295] a", &empty] {
        let error = compose(&schema(text, Dialect::Ros1), &[], LIMIT).unwrap_err().to_string();
        assert!(error.contains("1000"), "{text}: {error}");
    }
}
