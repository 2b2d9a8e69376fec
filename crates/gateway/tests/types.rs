// SPDX-License-Identifier: Apache-2.0
//! Message types and the way between ROS 1's and ROS 2's bytes, beside what others make of
//! them (`types/oracle.py`, in the Python environment that `make ros2` installs).

use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use tautline_gateway::observations::{OBSERVATIONS, is_observation};
use tautline_gateway::ros2::graph::{GidBytes, Node, write};
use tautline_gateway::types::compose::compose;
use tautline_gateway::types::definition::{Arity, Base, Primitive, Schema};
use tautline_gateway::types::hash::type_hash;
use tautline_gateway::types::installed::Installed;
use tautline_gateway::types::{Dialect, Transcoder, action, derive, trust};

/// Messages of each type that go there and back.
const MESSAGES: u64 = 1000;
/// Of these, the number decoded by rosbags in Python.
const DECODED: u64 = 20;
/// Elements of an unbounded sequence, at most.
const ELEMENTS: u64 = 3;
/// Bytes that are ample for a message without elements.
const MAX_ZEROS: usize = 10_000;

fn oracle(mode: &str, input: &[u8]) -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = here.join("../../target/ros2/kilted/bin/python");
    assert!(python.exists(), "{} is missing: run make ros2", python.display());
    let mut oracle = Command::new(python)
        .arg(here.join("tests/types/oracle.py"))
        .arg(mode)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = oracle.stdin.take().unwrap();
    let input = input.to_vec();
    let feeder = std::thread::spawn(move || stdin.write_all(&input));
    let output = oracle.wait_with_output().unwrap();
    feeder.join().unwrap().unwrap();
    assert!(output.status.success(), "{mode}");
    String::from_utf8(output.stdout).unwrap()
}

/// A type as both define it, where they do.
struct Type {
    name: String,
    ros1: Option<Schema>,
    ros2: Option<Schema>,
    line: Value,
}

fn types() -> Vec<Type> {
    let lines = oracle("definitions", &[]);
    let read = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let name = line["name"].as_str().unwrap().to_owned();
        let schema = |key: &str, dialect| {
            let text = line[key].as_str()?;
            Some(Schema::parse(&name, text, dialect).unwrap_or_else(|error| panic!("{error}")))
        };
        let (ros1, ros2) = (schema("ros1", Dialect::Ros1), schema("ros2", Dialect::Ros2));
        Type { name, ros1, ros2, line }
    };
    lines.lines().map(read).collect()
}

/// As installed, else as rosbags says, which takes `char` for something else than ROS 2 does.
fn rihs01_of(line: &Value) -> &str {
    line["installed"].as_str().or(line["rihs01"].as_str()).unwrap()
}

#[test]
fn hashes_are_those_of_ros_and_of_rosbags() {
    let types = types();
    let (mut md5, mut rihs01, mut installed) = (0, 0, 0);
    for Type { name, ros1, ros2, line } in &types {
        if let Some(schema) = ros1 {
            assert_eq!(type_hash(schema), line["md5"].as_str().unwrap(), "{name}");
            md5 += 1;
        }
        if let Some(schema) = ros2 {
            assert_eq!(type_hash(schema), rihs01_of(line), "{name}");
            rihs01 += 1;
            installed += usize::from(line["installed"].is_string());
        }
    }
    println!("{md5} of ROS 1, {rihs01} of ROS 2, of which {installed} installed");
    assert!(md5 > 100 && rihs01 > 100 && installed > 80);
}

#[test]
fn observations_have_the_hashes_that_others_give_them() {
    let types = types();
    let (mut md5s, mut rihs01s) = (0, 0);
    for (name, md5, rihs01) in OBSERVATIONS {
        let (package, own) = name.split_once('/').unwrap();
        let full = format!("{package}/msg/{own}");
        let found = types.iter().find(|found| found.name == full);
        if let Some(Type { ros1: Some(schema), .. }) = found {
            assert_eq!(type_hash(schema), *md5, "{name}");
            md5s += 1;
        }
        if let Some(Type { ros2: Some(schema), line, .. }) = found {
            assert_eq!(type_hash(schema), format!("RIHS01_{rihs01}"), "{name}");
            assert_eq!(rihs01_of(line), format!("RIHS01_{rihs01}"), "{name}");
            rihs01s += 1;
        }
    }
    // ROS 1's transforms are in none of these, and in Debian's packages.
    assert_eq!((md5s, rihs01s), (OBSERVATIONS.len() - 2, OBSERVATIONS.len() - 1));
}

#[test]
fn observations_have_the_md5_that_debians_packages_give_them() {
    let mut found = 0;
    for (name, md5, _) in OBSERVATIONS {
        let (package, own) = name.split_once('/').unwrap();
        let file = format!("/usr/lib/python3/dist-packages/{package}/msg/_{own}.py");
        // Set-up installs those of sensor_msgs and tf2_msgs.
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        assert!(text.contains(&format!("_md5sum = \"{md5}\"")), "{file}");
        found += 1;
    }
    assert!(found >= 17, "{found} found: run make setup");
}

#[test]
fn types_that_move_a_robot_are_no_observations() {
    for Type { name, line, .. } in types() {
        for hash in [line["md5"].as_str(), line["rihs01"].as_str(), Some("")].into_iter().flatten()
        {
            let observed =
                is_observation(&name, hash) || is_observation(&name.replace("/msg/", "/"), hash);
            let listed = OBSERVATIONS.iter().any(|(it, ..)| it.replace('/', "/msg/") == name);
            assert!(!observed || listed, "{name} {hash}");
        }
    }
}

#[test]
fn installed_files_give_the_hashes_that_were_installed_with_them() {
    let prefix = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/ros2/kilted");
    let installed = Installed::new(vec!["/nonexistent".into(), prefix]);
    let mut count = 0;
    for Type { name, line, .. } in types() {
        let Some(theirs) = line["installed"].as_str() else { continue };
        let text = installed.definition(&name, Dialect::Ros2).unwrap_or_else(|e| panic!("{e}"));
        let schema = Schema::parse(&name, &text, Dialect::Ros2).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(type_hash(&schema), theirs, "{name}");
        count += 1;
    }
    assert!(count > 80, "{count}");
    let missing = installed.definition("a/msg/B", Dialect::Ros2).unwrap_err().to_string();
    assert!(missing.starts_with("no share/a/msg/B.msg in /nonexistent, "), "{missing}");
    installed.definition("../a/B", Dialect::Ros2).unwrap_err();
}

#[test]
fn an_installed_action_has_the_hashes_of_its_generated_types() {
    let prefix = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/ros2/kilted");
    let installed = Installed::new(vec![prefix.clone()]);
    for action in ["Fibonacci", "NestedMessage"] {
        let file = prefix.join(format!("share/test_msgs/action/{action}.json"));
        let text = std::fs::read_to_string(file).expect("run make ros2");
        let described: serde_json::Value = serde_json::from_str(&text).unwrap();
        let hashes = described["type_hashes"].as_array().unwrap();
        let expected = |name: &str| {
            let found = hashes.iter().find(|it| it["type_name"] == name);
            found.unwrap()["hash_string"].as_str().unwrap().to_owned()
        };
        for part in ["SendGoal", "GetResult"] {
            let name = format!("test_msgs/action/{action}_{part}");
            let text = action::installed_part(&name, &installed).unwrap();
            let hash = trust::service_hash(&name, &text, Dialect::Ros2).unwrap();
            assert_eq!(hash, expected(&format!("{name}_Request")));
        }
        let name = format!("test_msgs/action/{action}_FeedbackMessage");
        let text = action::installed_part(&name, &installed).unwrap();
        let schema = Schema::parse(&name, &text, Dialect::Ros2).unwrap();
        assert_eq!(type_hash(&schema), expected(&name));
    }
    action::installed_part("test_msgs/action/None_SendGoal", &installed).unwrap_err();
}

#[test]
fn a_services_definition_has_both_parts_and_all_that_they_need() {
    let prefix = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/ros2/kilted");
    let installed = Installed::new(vec![prefix]);
    let text = installed.service("nav_msgs/srv/GetPlan", Dialect::Ros2).unwrap();
    let parts: Vec<&str> = text.split("\n---\n").collect();
    assert_eq!(parts.len(), 2);
    assert!(parts[0].contains("PoseStamped start") && parts[1].contains("Path plan"));
    let mut needed: Vec<&str> = text.lines().filter_map(|it| it.strip_prefix("MSG: ")).collect();
    needed.sort_unstable();
    let expected =
        ["Point", "Pose", "PoseStamped", "Quaternion"].map(|it| format!("geometry_msgs/{it}"));
    assert_eq!(needed[1..5], expected);
    assert_eq!(
        (needed[0], &needed[5..]),
        ("builtin_interfaces/Time", &["nav_msgs/Path", "std_msgs/Header"][..])
    );
    // Under either of ROS 1's paths.
    let scratch = tempfile::tempdir().unwrap();
    for (folder, name) in [("prefix/share/a/srv", "One"), ("src/a/srv", "Two")] {
        let folder = scratch.path().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{name}.srv")), format!("---\nbool {name}\n")).unwrap();
    }
    let path = |part: &str| scratch.path().join(part).display().to_string();
    let ros1 = Installed::of_ros1(&path("prefix"), &format!("/nonexistent:{}", path("src")));
    for name in ["One", "Two"] {
        let text = ros1.service(&format!("a/{name}"), Dialect::Ros1).unwrap();
        assert_eq!(text, format!("---\nbool {name}\n"));
    }
    let missing = installed.service("a/srv/B", Dialect::Ros2).unwrap_err().to_string();
    assert!(missing.starts_with("no share/a/srv/B.srv in "), "{missing}");
}

#[test]
fn a_definition_derived_from_the_other_side_has_the_other_sides_hash() {
    let (mut same, mut others) = (0, Vec::new());
    for Type { name, ros1, ros2, line } in types() {
        let (Some(ros1), Some(ros2)) = (ros1, ros2) else { continue };
        let there = type_hash(&derive::to_ros2(&ros1)) == rihs01_of(&line);
        let back = derive::to_ros1(&ros2).unwrap();
        let back = type_hash(&back) == line["md5"].as_str().unwrap();
        if there && back {
            same += 1;
        } else {
            others.push(format!("{name} (to ROS 2 {there}, to ROS 1 {back})"));
        }
    }
    println!("{same} the same; others: {others:#?}");
    assert!(same > 60, "{same}");
}

#[test]
fn written_text_is_read_as_the_same_type() {
    for Type { name, ros1, ros2, .. } in types() {
        for schema in ros1.into_iter().chain(ros2) {
            let again = Schema::parse(&name, &schema.text(), schema.dialect).unwrap();
            assert_eq!(type_hash(&again), type_hash(&schema), "{name}");
        }
    }
}

#[test]
fn random_messages_come_back_unchanged_and_others_read_the_same() {
    let mut records = Vec::new();
    let mut pairs = 0;
    for Type { name, ros1, ros2, .. } in types() {
        let Some(ros2) = ros2 else { continue };
        let ros1 = match ros1.map_or_else(|| derive::to_ros1(&ros2), Ok) {
            Ok(ros1) => ros1,
            Err(error) => {
                // Wide text: the only thing ROS 1 cannot say.
                assert!(error.to_string().contains("wstring"), "{error}");
                continue;
            }
        };
        let transcoder = match Transcoder::new(&ros1, &ros2) {
            Ok(transcoder) => transcoder,
            Err(mismatch) => {
                println!("{name}: {mismatch}");
                continue;
            }
        };
        if !transcoder.one_sided().is_empty() {
            println!("{name}: {:?}", transcoder.one_sided());
        }
        pairs += 1;
        let bounds = ros2.structs.iter().flat_map(|part| &part.fields).map(|it| match it.arity {
            Arity::Sequence(Some(bound)) => u64::from(bound),
            _ => ELEMENTS,
        });
        let elements = bounds.min().unwrap_or(ELEMENTS).min(ELEMENTS);
        let lossless = !transcoder.one_sided().iter().any(|field| field.contains("ROS 1 only"));
        for seed in 0..MESSAGES {
            let mut message = Vec::new();
            Random { state: seed, elements }.message(&ros1, 0, &mut message);
            let cdr =
                transcoder.to_ros2(&message).unwrap_or_else(|error| panic!("{name}: {error}"));
            let back = transcoder.to_ros1(&cdr).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(
                !lossless || back == message,
                "{name}, seed {seed}: {message:?} became {back:?}"
            );
            if seed < DECODED {
                for piece in [name.as_bytes(), &message, &cdr] {
                    records.extend_from_slice(&(piece.len() as u32).to_le_bytes());
                    records.extend_from_slice(piece);
                }
            }
        }
    }
    assert!(pairs > 100, "{pairs}");
    let said = oracle("compare", &records);
    let (count, differences) =
        said.trim_end().rsplit_once('\n').map_or((said.trim(), ""), |(d, c)| (c, d));
    assert_eq!(differences, "");
    assert_eq!(count, format!("{} messages", pairs * DECODED));
}

#[test]
fn others_read_a_message_of_zeros_of_every_type_as_we_made_it() {
    let (mut records, mut count) = (Vec::new(), 0);
    for Type { name, ros1, ros2, .. } in types() {
        let Some(ros2) = ros2 else { continue };
        let zeros = |schema: &Schema| compose(schema, &[], MAX_ZEROS).unwrap();
        let here = ros1.as_ref().map(zeros).unwrap_or_default();
        for piece in [name.as_bytes(), &here, &zeros(&ros2)] {
            records.extend_from_slice(&(piece.len() as u32).to_le_bytes());
            records.extend_from_slice(piece);
        }
        count += 1;
    }
    assert!(count > 100, "{count}");
    assert_eq!(oracle("compare", &records), format!("{count} messages\n"));
}

#[test]
fn messages_of_the_graph_are_read_by_rosbags() {
    let node = Node {
        namespace: "/".into(),
        name: "tautline".into(),
        readers: vec![[1; 16], [2; 16]],
        writers: vec![[3; 16]],
    };
    let cdr = write(&[7; 16], &[node.clone(), node], GidBytes::Sixteen).unwrap();
    let mut record = Vec::new();
    for piece in [b"rmw_dds_common/msg/ParticipantEntitiesInfo", &[][..], &cdr] {
        record.extend_from_slice(&(piece.len() as u32).to_le_bytes());
        record.extend_from_slice(piece);
    }
    assert_eq!(oracle("compare", &record), "1 messages\n");
}

/// Splitmix64: small, and the same everywhere.
struct Random {
    state: u64,
    /// Elements of each sequence, at most.
    elements: u64,
}

impl Random {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A message in ROS 1's serialization.
    fn message(&mut self, schema: &Schema, number: usize, bytes: &mut Vec<u8>) {
        let part = &schema.structs[number];
        for field in &part.fields {
            if part.name == "std_msgs/Header" && field.name == "seq" {
                // ROS 2 has none, so it cannot come back.
                bytes.extend_from_slice(&[0; 4]);
                continue;
            }
            let count = match field.arity {
                Arity::One => 1,
                Arity::Array(count) => u64::from(count),
                Arity::Sequence(_) => {
                    let count = self.next() % (self.elements + 1);
                    bytes.extend_from_slice(&(count as u32).to_le_bytes());
                    count
                }
            };
            for _ in 0..count {
                self.value(schema, field.base, bytes);
            }
        }
    }

    fn value(&mut self, schema: &Schema, base: Base, bytes: &mut Vec<u8>) {
        match base {
            Base::Primitive(Primitive::Bool) => bytes.push((self.next() & 1) as u8),
            // Any bits would include numbers that are none, which equal nothing.
            Base::Primitive(Primitive::Float32) => {
                bytes.extend_from_slice(&(self.next() as i32 as f32).to_le_bytes());
            }
            Base::Primitive(Primitive::Float64) => {
                bytes.extend_from_slice(&(self.next() as i64 as f64).to_le_bytes());
            }
            Base::Primitive(primitive) => {
                bytes.extend_from_slice(&self.next().to_le_bytes()[..primitive.bytes()]);
            }
            Base::String(_) | Base::WString(_) => {
                let length = self.next() % 9;
                bytes.extend_from_slice(&(length as u32).to_le_bytes());
                bytes.extend((0..length).map(|_| b'a' + (self.next() % 26) as u8));
            }
            Base::Struct(inner) => self.message(schema, inner, bytes),
        }
    }
}
