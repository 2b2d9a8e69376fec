// SPDX-License-Identifier: Apache-2.0
//! Message types and the conversion between ROS 1's and ROS 2's bytes, compared with other
//! implementations (`types/oracle.py`, in the Python environment that `make ros2` installs).

use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use tautline_gateway::observations::{OBSERVATIONS, is_observation};
use tautline_gateway::ros2::graph::{GidBytes, Node, write};
use tautline_gateway::tf::Rules;
use tautline_gateway::tf::fields::FrameFields;
use tautline_gateway::types::check::Checker;
use tautline_gateway::types::compose::compose;
use tautline_gateway::types::definition::{Arity, BaseType, Primitive, Schema};
use tautline_gateway::types::hash::type_hash;
use tautline_gateway::types::installed::InstalledTypes;
use tautline_gateway::types::trust::service_hash;
use tautline_gateway::types::{Dialect, Transcoder, action, derive, trust};

/// Messages of each type that are converted there and back.
const MESSAGES: u64 = 1000;
/// Number of these messages that rosbags in Python decodes.
const DECODED: u64 = 20;
/// Number of these messages that are also truncated to every length.
const CUT: u64 = 2;
/// The most elements of an unbounded sequence.
const ELEMENTS: u64 = 3;
/// Bytes that are ample for a message without elements.
const MAX_ZEROS: usize = 10_000;

fn oracle(mode: &str, input: &[u8]) -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = here.join("../../target/ros2/kilted/bin/python");
    assert!(python.exists(), "{} is missing: run make ros2", python.display());
    answer(Command::new(python).arg(here.join("tests/it/types/oracle.py")).arg(mode), input)
}

/// The output of a program with this input.
fn answer(program: &mut Command, input: &[u8]) -> String {
    let mut oracle = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = oracle.stdin.take().unwrap();
    let input = input.to_vec();
    let feeder = std::thread::spawn(move || stdin.write_all(&input));
    let output = oracle.wait_with_output().unwrap();
    feeder.join().unwrap().unwrap();
    assert!(output.status.success(), "{program:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A type as each ROS defines it; a ROS may lack it.
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

/// The installed hash, else the one of rosbags, which reads `char` differently than ROS 2 does.
fn rihs01_of(line: &Value) -> &str {
    line["installed"].as_str().or(line["rihs01"].as_str()).unwrap()
}

#[test]
fn hashes_match_ros_and_rosbags() {
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
fn hashes_of_observations_match_other_implementations() {
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
    // ROS 1's two types of transforms are missing in these sources; Debian's packages have them.
    assert_eq!((md5s, rihs01s), (OBSERVATIONS.len() - 2, OBSERVATIONS.len() - 1));
}

#[test]
fn the_md5_of_observations_matches_debian_packages() {
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
fn types_of_commands_are_no_observations() {
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
fn hashes_of_installed_files_match_the_installed_hashes() {
    let prefix = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/ros2/kilted");
    let installed = InstalledTypes::new(vec!["/nonexistent".into(), prefix]);
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
    let installed = InstalledTypes::new(vec![prefix.clone()]);
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
fn a_service_definition_has_both_parts_with_their_dependencies() {
    let prefix = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/ros2/kilted");
    let installed = InstalledTypes::new(vec![prefix]);
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
    let ros1 =
        InstalledTypes::from_ros1_paths(&path("prefix"), &format!("/nonexistent:{}", path("src")));
    for name in ["One", "Two"] {
        let text = ros1.service(&format!("a/{name}"), Dialect::Ros1).unwrap();
        assert_eq!(text, format!("---\nbool {name}\n"));
    }
    let missing = installed.service("a/srv/B", Dialect::Ros2).unwrap_err().to_string();
    assert!(missing.starts_with("no share/a/srv/B.srv in "), "{missing}");
}

#[test]
fn installed_files_are_parsed_like_the_ros_1_tools_do() {
    let scratch = tempfile::tempdir().unwrap();
    let write = |file: &str, bytes: &[u8]| {
        let file = scratch.path().join("share/a").join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    };
    write("msg/Latin.msg", b"# 90\xb0\r\nint8 x # \xe9\r\na/Old old");
    write("msg/Old.msg", b"int8 a\rint8 b # line ends of old Macs\r");
    write("msg/Empty.msg", b"");
    write("msg/Mark.msg", b"string DEGREES=\xb0\nint8 x\n");
    let installed = InstalledTypes::new(vec![scratch.path().into()]);
    let hash = |name: &str, text: &str| {
        Schema::parse(name, text, Dialect::Ros1).map(|schema| type_hash(&schema))
    };
    let plain = format!("int8 x\na/Old old\n{}\nMSG: a/Old\nint8 a\nint8 b\n", "=".repeat(80));
    let latin = installed.definition("a/Latin", Dialect::Ros1).unwrap();
    assert_eq!(hash("a/Latin", &latin), hash("a/Latin", &plain));
    assert_eq!(installed.definition("a/Empty", Dialect::Ros1).unwrap(), "\n");
    // A hash over other bytes than the file's would belong to another version.
    let error = installed.definition("a/Mark", Dialect::Ros1).unwrap_err().to_string();
    assert!(error.contains("line 1: the value of 'DEGREES' is not UTF-8"), "{error}");

    write("srv/Plain.srv", b"int8 a\n---\nint8 b\n");
    let of_service = |name: &str, dialect| {
        let text = installed.service(name, dialect).unwrap();
        service_hash("a/Plain", &text, dialect).unwrap()
    };
    let plain = of_service("a/Plain", Dialect::Ros1);
    for (number, bar) in ["----", "--- # c", "---\r", "---\u{b0}"].iter().enumerate() {
        let name = format!("S{number}");
        let text = format!("# \u{e9}\nint8 a\n{bar}\nint8 b\n---\n");
        let latin: Vec<u8> = text.chars().map(|it| it as u8).collect();
        write(&format!("srv/{name}.srv"), &latin);
        assert_eq!(of_service(&format!("a/{name}"), Dialect::Ros1), plain, "{bar}");
    }
}

#[test]
fn a_derived_definition_has_the_hash_of_the_other_ros() {
    let (mut same, mut others) = (0, Vec::new());
    for Type { name, ros1, ros2, line } in types() {
        let (Some(ros1), Some(ros2)) = (ros1, ros2) else { continue };
        let there = type_hash(&derive::to_ros2(&ros1).unwrap()) == rihs01_of(&line);
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
fn a_written_definition_parses_to_the_same_type() {
    for Type { name, ros1, ros2, .. } in types() {
        for schema in ros1.into_iter().chain(ros2) {
            let again = Schema::parse(&name, &schema.to_text(), schema.dialect).unwrap();
            assert_eq!(type_hash(&again), type_hash(&schema), "{name}");
        }
    }
}

/// Types of ROS 2 that genpy reads only if they are written for ROS 1.
const ODD_TYPES: &[(&str, &str)] = &[
    ("a/Empty", ""),
    ("a/Nested", "a/None first\na/None second\na/Last last\n"),
    (
        "a/Constants",
        "bool YES=true\nbool NO=False\nint32 HEX=0x1F\nbyte BYTE=200\nchar CHAR=200\n\
         string TEXT=\"it's\" # said\nwstring WIDE='w'\nstring SPACES=\" a \"\n\
         float64 REAL=1e-3\nint8 number 5 # default\nstring text \"a = b\"\n",
    ),
    ("a/Bounded", "string<=5 a\nint32[<=3] b\nstring<=5[<=2] c\nuint8[4] d\nbool[] e [true]\n"),
    ("a/Times", "builtin_interfaces/Time[2] a\nbuiltin_interfaces/Duration[<=2] b\n"),
];
const PARTS: &str = "MSG: a/None\n=SEP=\nMSG: a/Last\nint8 x\n=SEP=\n\
     MSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n=SEP=\n\
     MSG: builtin_interfaces/Duration\nint32 sec\nuint32 nanosec\n";

#[test]
fn genpy_reads_the_derived_definition_of_every_type() {
    let parts = format!("\n=SEP=\n{PARTS}").replace("=SEP=", &"=".repeat(80));
    let odd = ODD_TYPES.iter().map(|(name, text)| {
        let text = format!("{text}{parts}");
        ((*name).to_owned(), Schema::parse(name, &text, Dialect::Ros2).unwrap())
    });
    let all = types().into_iter().filter_map(|it| Some((it.name.replace("/msg", ""), it.ros2?)));
    let (mut input, mut expected) = (Vec::new(), Vec::new());
    for (name, ros2) in all.chain(odd) {
        // Wide text has no counterpart.
        let Ok(ros1) = derive::to_ros1(&ros2) else { continue };
        serde_json::to_writer(&mut input, &(&name, ros1.to_text())).unwrap();
        input.push(b'\n');
        expected.push((name, type_hash(&ros1)));
    }
    let scratch = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/types/genpy_reads.py");
    let said = answer(Command::new("/usr/bin/python3").arg(script).arg(scratch.path()), &input);
    let said: Vec<String> = said.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!(said.len(), expected.len());
    for ((name, md5), said) in expected.iter().zip(said) {
        assert_eq!(*md5, said, "{name}");
    }
    assert!(expected.len() > 100, "{}", expected.len());
}

#[test]
fn random_messages_survive_translation_and_match_other_readers() {
    let mut records = Vec::new();
    let mut pairs = 0;
    for Type { name, ros1, ros2, .. } in types() {
        let Some(ros2) = ros2 else { continue };
        let ros1 = match ros1.map_or_else(|| derive::to_ros1(&ros2), Ok) {
            Ok(ros1) => ros1,
            Err(error) => {
                // Wide text: the only thing that ROS 1 cannot express.
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
        let checkers = [Checker::new(&ros1), Checker::new(&ros2)];
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
            for (checker, bytes) in checkers.iter().zip([&message, &cdr]) {
                checker.check(bytes).unwrap_or_else(|error| panic!("{name}, seed {seed}: {error}"));
                let cuts = if seed < CUT { bytes.len() } else { 0 };
                for length in 0..cuts {
                    let cut = checker.check(&bytes[..length]);
                    assert!(cut.is_err(), "{name}, seed {seed}: {length} of {bytes:?}");
                }
            }
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
fn renamed_frames_match_other_implementations() {
    let rules = Rules { prefix: "r1/".into(), ..Rules::default() };
    let (mut records, mut count) = (Vec::new(), 0);
    let mut types_with_frames = [0; 2];
    for Type { name, ros1, ros2, .. } in types() {
        let derived = || ros2.as_ref().and_then(|ros2| derive::to_ros1(ros2).ok());
        // rosbags knows types of ROS 1 by their own definitions only.
        let fields = [&ros1, &ros2].map(|it| it.as_ref().and_then(FrameFields::new));
        let ros1 = ros1.clone().or_else(derived);
        let both = ros1.as_ref().zip(ros2.as_ref());
        let transcoder = both.and_then(|(ros1, ros2)| Transcoder::new(ros1, ros2).ok());
        for (types, fields) in types_with_frames.iter_mut().zip(&fields) {
            *types += u32::from(fields.is_some());
        }
        let (Some(ros1), Some(transcoder)) = (&ros1, &transcoder) else { continue };
        for seed in 0..DECODED {
            let mut message = Vec::new();
            Random { state: seed, elements: ELEMENTS }.message(ros1, 0, &mut message);
            let Ok(cdr) = transcoder.to_ros2(&message) else { continue };
            let here = ["1", "2"].into_iter().zip(&fields).zip([&message, &cdr]);
            for ((ros, fields), before) in here {
                let Some(fields) = fields else { continue };
                let after = fields.with_renamed_frames(before, &rules).unwrap();
                for piece in
                    [name.as_bytes(), ros.as_bytes(), before, after.as_ref().unwrap_or(before)]
                {
                    records.extend_from_slice(&(piece.len() as u32).to_le_bytes());
                    records.extend_from_slice(piece);
                }
                count += 1;
            }
        }
    }
    println!("{types_with_frames:?} types with frames, {count} messages");
    assert!(count > 2000, "{count}");
    assert_eq!(oracle("frames", &records), format!("{count} messages\n"));
}

#[test]
fn other_implementations_read_our_composed_zeros() {
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
    /// The most elements of each sequence.
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
                // ROS 2 has no sequence number, so only 0 returns.
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

    fn time(&mut self, seconds: u32, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&seconds.to_le_bytes());
        let nanoseconds = (self.next() % 1_000_000_000) as u32;
        bytes.extend_from_slice(&nanoseconds.to_le_bytes());
    }

    fn value(&mut self, schema: &Schema, base: BaseType, bytes: &mut Vec<u8>) {
        match base {
            BaseType::Primitive(Primitive::Bool) => bytes.push((self.next() & 1) as u8),
            // Arbitrary bits would include NaN, which equals nothing.
            BaseType::Primitive(Primitive::Float32) => {
                bytes.extend_from_slice(&(self.next() as i32 as f32).to_le_bytes());
            }
            BaseType::Primitive(Primitive::Float64) => {
                bytes.extend_from_slice(&(self.next() as i64 as f64).to_le_bytes());
            }
            // Instants that both hold, as both normalise them.
            BaseType::Primitive(Primitive::Time) => {
                let seconds = (self.next() as u32) >> 1;
                self.time(seconds, bytes);
            }
            BaseType::Primitive(Primitive::Duration) => {
                let seconds = self.next() as u32;
                self.time(seconds, bytes);
            }
            BaseType::Primitive(primitive) => {
                bytes.extend_from_slice(&self.next().to_le_bytes()[..primitive.bytes()]);
            }
            BaseType::String(_) | BaseType::WString(_) => {
                let length = self.next() % 9;
                bytes.extend_from_slice(&(length as u32).to_le_bytes());
                bytes.extend((0..length).map(|_| b'a' + (self.next() % 26) as u8));
            }
            BaseType::Struct(inner) => self.message(schema, inner, bytes),
        }
    }
}
