// SPDX-License-Identifier: Apache-2.0
//! Which definitions of peers are used, and what hostile ones cost.

use crate::topics::{BAR, topic};
use std::fmt::Write;
use std::path::Path;
use tautline_gateway::Service;
use tautline_gateway::types::Dialect;
use tautline_gateway::types::definition::{MAX_DECLARATIONS, MAX_LINES, MAX_TEXT_BYTES, Schema};
use tautline_gateway::types::hash::type_hash;
use tautline_gateway::types::installed::InstalledTypes;
use tautline_gateway::types::translate::{dialect_of, localize};
use tautline_gateway::types::trust::{
    Untrusted, certain_schema, trusted_definition, trusted_service,
};

const TWIST_MD5: &str = "9f195f881246fdfa2798d1d3eebca84a";
const SET_BOOL_MD5: &str = "09fb03525b03e7ea1fd3992bafd87e16";

fn twist(part: &str) -> String {
    format!(
        "{part} linear\n{part} angular\n{BAR}\nMSG: geometry_msgs/Vector3\n\
         float64 x\nfloat64 y\nfloat64 z\n"
    )
}

/// A robot that has geometry_msgs/Twist and std_srvs/SetBool.
fn robot_with_types() -> (tempfile::TempDir, InstalledTypes) {
    let place = tempfile::tempdir().unwrap();
    let files = [
        ("geometry_msgs/msg/Twist.msg", "# installed\nVector3 linear\nVector3 angular\n"),
        ("geometry_msgs/msg/Vector3.msg", "float64 x\nfloat64 y\nfloat64 z\n"),
        ("std_srvs/srv/SetBool.srv", "bool data\n---\nbool success\nstring message\n"),
    ];
    for (file, text) in files {
        let path = place.path().join("share").join(file);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let installed = InstalledTypes::new(vec![place.path().into()]);
    (place, installed)
}

fn hash_of(type_name: &str, text: &str) -> String {
    type_hash(&Schema::parse(type_name, text, dialect_of(type_name)).unwrap())
}

#[test]
fn the_installed_definition_precedes_the_offered_one() {
    let (_place, installed) = robot_with_types();
    let honest = twist("geometry_msgs/Vector3");
    let offered = topic("geometry_msgs/Twist", TWIST_MD5, &honest);
    assert!(trusted_definition(&offered, &installed).unwrap().starts_with("# installed"));
    let none = InstalledTypes::default();
    assert_eq!(&*trusted_definition(&offered, &none).unwrap(), honest);
    // Another version than ours.
    let newer = honest.replace("float64 z", "float64 z\nfloat64 w");
    let version = hash_of("geometry_msgs/Twist", &newer);
    let other = topic("geometry_msgs/Twist", &version, &newer);
    assert_eq!(&*trusted_definition(&other, &installed).unwrap(), newer);
    let error = certain_schema(&other, &installed).unwrap_err();
    assert!(error.contains(&version) && error.contains(TWIST_MD5), "{error}");
    // A text of another type under the md5 of this one.
    let lie = topic("geometry_msgs/Twist", TWIST_MD5, "float64 x\n");
    assert!(trusted_definition(&lie, &installed).unwrap().starts_with("# installed"));
    let error = trusted_definition(&lie, &none).unwrap_err();
    assert!(matches!(&error, Untrusted::OtherHash { offered, .. } if offered == TWIST_MD5));
    let unknown = topic("geometry_msgs/Twist", "", &honest);
    assert_eq!(
        trusted_definition(&unknown, &none),
        Err(Untrusted::NoHash("geometry_msgs/Twist".into()))
    );
    let broken = topic("geometry_msgs/Twist", TWIST_MD5, "Vector3 linear\n");
    assert!(matches!(trusted_definition(&broken, &none), Err(Untrusted::Unreadable(_))));
    let bare = topic("geometry_msgs/Twist", TWIST_MD5, "");
    assert_eq!(&*trusted_definition(&bare, &none).unwrap(), "");
}

#[test]
fn only_the_hashed_parts_of_a_remote_definition_are_used() {
    let none = InstalledTypes::default();
    let honest = twist("geometry_msgs/Vector3");
    let smuggled = format!("# of the peer\n{honest}{}\nMSG: a/Unused\nfloat64 x\n", "=".repeat(80));
    let offered = topic("geometry_msgs/Twist", TWIST_MD5, &smuggled);
    assert_eq!(&*trusted_definition(&offered, &none).unwrap(), honest);
    let two = smuggled.replace("a/Unused", "geometry_msgs/Vector3");
    let offered = topic("geometry_msgs/Twist", TWIST_MD5, &two);
    assert_eq!(&*trusted_definition(&offered, &none).unwrap(), honest, "the first of two counts");
}

#[test]
fn an_md5_does_not_make_a_layout_certain_where_types_are_nested() {
    let (_place, installed) = robot_with_types();
    let none = InstalledTypes::default();
    let arrays = topic("geometry_msgs/Twist", TWIST_MD5, &twist("geometry_msgs/Vector3[]"));
    assert!(trusted_definition(&arrays, &none).is_ok(), "it has the md5 of the true one");
    let error = certain_schema(&arrays, &none).unwrap_err();
    assert!(error.contains("geometry_msgs/Twist") && error.contains("arrays"), "{error}");
    let schema = certain_schema(&arrays, &installed).unwrap();
    assert_eq!(schema.root().fields[0].type_text, "Vector3", "the installed one");
    // A layout derived from it for ROS 2 is not certain either. One whose own hash covers all is.
    let there = localize(&arrays, Some(Dialect::Ros2), &none).unwrap();
    certain_schema(&there.topic, &none).unwrap_err();
    let text = twist("geometry_msgs/Vector3");
    let hash = hash_of("geometry_msgs/msg/Twist", &text);
    certain_schema(&topic("geometry_msgs/msg/Twist", &hash, &text), &none).unwrap();
    let flat = topic("a/B", &hash_of("a/B", "uint8[3] x\n"), "uint8[3] x\n");
    certain_schema(&flat, &none).unwrap();
}

#[test]
fn a_type_of_which_only_the_python_module_is_installed_is_installed() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("lib/python3/dist-packages/geometry_msgs/msg");
    std::fs::create_dir_all(&folder).unwrap();
    let text = twist("Vector3");
    let module = format!("class Twist:\n  _full_text = \"\"\"{text}\"\"\"\n  __slots__ = []\n");
    std::fs::write(folder.join("_Twist.py"), module).unwrap();
    let installed = InstalledTypes::new(vec![place.path().into()]);
    let arrays = topic("geometry_msgs/Twist", TWIST_MD5, &twist("geometry_msgs/Vector3[]"));
    assert_eq!(&*trusted_definition(&arrays, &installed).unwrap(), text);
    certain_schema(&arrays, &installed).unwrap();
    // Debian's packages, which this project's tests of ROS 1 use.
    let debian = InstalledTypes::from_ros1_paths("", "");
    certain_schema(&arrays, &debian).unwrap();
}

#[test]
fn service_definitions_follow_the_same_rules() {
    let (_place, installed) = robot_with_types();
    let text = "bool data # peer\n---\nbool success\nstring message\n";
    let service = |type_name: &str, type_hash: &str, text: &str| Service {
        name: "/switch".into(),
        type_name: type_name.into(),
        type_hash: type_hash.into(),
        definition: text.into(),
    };
    let honest = service("std_srvs/SetBool", SET_BOOL_MD5, text);
    let none = InstalledTypes::default();
    assert_eq!(&*trusted_service(&honest, &none).unwrap(), text);
    assert!(!trusted_service(&honest, &installed).unwrap().contains("peer"));
    let lie = service("std_srvs/SetBool", SET_BOOL_MD5, "bool data\n---\nbool success\n");
    assert!(matches!(trusted_service(&lie, &none), Err(Untrusted::OtherHash { .. })));
    // Of std_srvs/srv/SetBool_Request, from Kilted's std_srvs/srv/SetBool.json.
    let hash = "RIHS01_c62fbb99d94e1b25e8ef9e109f9581956bb1b3361a45a4e5810c36a90d29932e";
    let theirs = service("std_srvs/srv/SetBool", hash, text);
    assert_eq!(&*trusted_service(&theirs, &none).unwrap(), text);
    let lie = service("std_srvs/srv/SetBool", hash, "int8 data\n---\nbool success\n");
    assert!(matches!(trusted_service(&lie, &none), Err(Untrusted::OtherHash { .. })));
}

/// A definition with as many lines as fit into [`MAX_TEXT_BYTES`].
fn filled_definition(head: &str, line: impl Fn(usize) -> String) -> String {
    let mut text = head.to_owned();
    for number in 0.. {
        let line = line(number);
        if text.len() + line.len() > MAX_TEXT_BYTES {
            break;
        }
        text.push_str(&line);
    }
    text
}

#[test]
fn a_hostile_definition_is_refused_cheaply_by_a_named_limit() {
    let long = "p".repeat(400_000);
    let chain = filled_definition("T0 t\n", |n| format!("{BAR}\nMSG: a/T{n}\nT{} t\n", n + 1));
    let texts = [
        (
            filled_definition("", |n| format!("b field_of_a_long_name_{n}\n")),
            "more fields and constants",
        ),
        (
            filled_definition("", |n| format!("uint8 field_of_a_long_name_{n}\n")),
            "more fields and constants",
        ),
        (
            filled_definition("", |_| "int8 a_constant_of_a_long_name=5\n".into()),
            "more fields and constants",
        ),
        (filled_definition("", |_| "\n".into()), "more lines of text"),
        (filled_definition("", |_| format!("{BAR}\nMSG: a/B\n")), "types; allowed"),
        (chain, "types; allowed"),
        (format!("{long}/A a\n{BAR}\nMSG: {long}/A\nuint8 x\n"), "the type name"),
        (format!("a/\"B\" a\n{BAR}\nMSG: a/\"B\"\nuint8 x\n"), "the type name"),
        ("x".repeat(MAX_TEXT_BYTES + 1), "bytes of text"),
    ];
    for (text, reason) in texts {
        for name in ["a/A", "a/msg/A"] {
            let error = Schema::parse(name, &text, dialect_of(name)).unwrap_err().to_string();
            let fits = error.contains(reason) || error.contains("no primitive type");
            assert!(fits && error.len() < 500, "{reason}: {error:.300}");
        }
    }
    const { assert!(MAX_LINES >= 8 * MAX_DECLARATIONS, "comments have room") };
}

/// Prints the cost of the most expensive texts, for a person to judge: a test has no time limit.
#[test]
fn the_most_expensive_definitions_within_the_limits_are_hashed() {
    let fields = |n: usize| format!("uint8 field_of_a_type_that_is_long_{n}\n");
    let flat: String = (0..MAX_DECLARATIONS).map(fields).collect();
    let mut nested = String::new();
    for number in 1..256 {
        writeln!(nested, "T{number} t{number}").unwrap();
    }
    for number in 1..256 {
        write!(nested, "{BAR}\nMSG: a/T{number}\n").unwrap();
        for other in (number + 1)..(number + 30).min(256) {
            writeln!(nested, "T{other} t{other}").unwrap();
        }
    }
    for (what, text) in [("flat", flat), ("nested", nested)] {
        for name in ["a/A", "a/msg/A"] {
            let start = std::time::Instant::now();
            let parsed = Schema::parse(name, &text, dialect_of(name));
            let hash = parsed.as_ref().map(type_hash);
            println!("{what} {name}: {} bytes, {:?}", text.len(), start.elapsed());
            assert!(hash.is_ok() || what == "nested", "{hash:?}");
        }
    }
}
