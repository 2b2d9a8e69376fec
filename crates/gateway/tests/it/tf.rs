// SPDX-License-Identifier: Apache-2.0
//! tf on its way, against messages written byte by byte here and a model without bytes.

use proptest::prelude::*;
use std::collections::BTreeMap;
use tautline_gateway::Source;
use tautline_gateway::pattern::Pattern;
use tautline_gateway::tf::{Encoding, MAX_FRAME_NAME, MAX_TRANSFORMS, Merger, Rules};
use tautline_gateway::types::{Dialect, Schema, Transcoder};

const BAR: &str =
    "================================================================================";

/// One transform, in the terms of the test.
#[derive(Debug, Clone, PartialEq)]
struct Pose {
    parent: String,
    child: String,
    stamp: u32,
    x: f64,
}

fn pose(parent: &str, child: &str, stamp: u32, x: f64) -> Pose {
    Pose { parent: parent.into(), child: child.into(), stamp, x }
}

/// Appends little-endian numbers as ROS 1 does.
fn ros1(poses: &[Pose]) -> Vec<u8> {
    let mut bytes = (poses.len() as u32).to_le_bytes().to_vec();
    for pose in poses {
        let seq = 7;
        for number in [seq, pose.stamp, 500] {
            bytes.extend(u32::to_le_bytes(number));
        }
        for name in [&pose.parent, &pose.child] {
            bytes.extend((name.len() as u32).to_le_bytes());
            bytes.extend(name.as_bytes());
        }
        for number in [pose.x, 2.0, 3.0, 0.0, 0.0, 0.0, 1.0] {
            bytes.extend(number.to_le_bytes());
        }
    }
    bytes
}

/// Writes the same transforms in CDR, in either byte order.
fn cdr(poses: &[Pose], little_endian: bool) -> Vec<u8> {
    let mut bytes = vec![0, u8::from(little_endian), 0, 0];
    let put = |bytes: &mut Vec<u8>, mut number: Vec<u8>| {
        while !(bytes.len() - 4).is_multiple_of(number.len()) {
            bytes.push(0);
        }
        if !little_endian {
            number.reverse();
        }
        bytes.extend(number);
    };
    put(&mut bytes, (poses.len() as u32).to_le_bytes().to_vec());
    for pose in poses {
        put(&mut bytes, pose.stamp.to_le_bytes().to_vec());
        put(&mut bytes, 500u32.to_le_bytes().to_vec());
        for name in [&pose.parent, &pose.child] {
            put(&mut bytes, (name.len() as u32 + 1).to_le_bytes().to_vec());
            bytes.extend(name.as_bytes());
            bytes.push(0);
        }
        for number in [pose.x, 2.0, 3.0, 0.0, 0.0, 0.0, 1.0] {
            put(&mut bytes, number.to_le_bytes().to_vec());
        }
    }
    bytes
}

fn rules(frames: &[&str], prefix: &str, shared: &[&str]) -> Rules {
    let patterns = |texts: &[&str]| texts.iter().map(|t| Pattern::for_frames(t).unwrap()).collect();
    Rules { frames: patterns(frames), prefix: prefix.into(), shared: patterns(shared) }
}

/// A ROS 1 message after the rules.
fn message_after_rules(rules: &Rules, poses: &[Pose]) -> Vec<u8> {
    let transforms = rules.apply(Encoding::Ros1.parse(&ros1(poses)).unwrap());
    Encoding::Ros1.emit(&transforms).unwrap()
}

fn refused(encoding: Encoding, message: &[u8]) -> String {
    encoding.parse(message).unwrap_err().to_string()
}

#[test]
fn messages_of_either_ros_survive_parsing_unchanged() {
    let poses = [pose("odom", "base_link", 1, 0.5), pose("map", "odom", 2, -1.5)];
    let message = ros1(&poses);
    let read = Encoding::Ros1.parse(&message).unwrap();
    assert_eq!(Encoding::Ros1.emit(&read).unwrap(), message);
    let read = Encoding::Ros2.parse(&cdr(&poses, true)).unwrap();
    assert_eq!(Encoding::Ros2.emit(&read).unwrap(), cdr(&poses, true));
    let big_endian = Encoding::Ros2.parse(&cdr(&poses, false)).unwrap();
    assert_eq!(big_endian, read);
    let padded = [cdr(&[], true), vec![0; 3]].concat();
    assert_eq!(Encoding::Ros2.parse(&padded).unwrap(), []);
}

#[test]
fn the_types_of_tf_are_known_by_either_ros_own_names() {
    for (name, encoding) in [
        ("tf2_msgs/TFMessage", Some(Encoding::Ros1)),
        ("tf/tfMessage", Some(Encoding::Ros1)),
        ("tf2_msgs/msg/TFMessage", Some(Encoding::Ros2)),
        ("geometry_msgs/TransformStamped", None),
    ] {
        assert_eq!(Encoding::of_type(name), encoding, "{name}");
    }
}

/// The definition of a TFMessage, which differs in the header.
fn definition(header: &str, package: &str) -> String {
    let parts = [
        format!("geometry_msgs/TransformStamped[] transforms\n{BAR}"),
        format!("MSG: geometry_msgs/{package}TransformStamped"),
        format!("std_msgs/Header header\nstring child_frame_id\nTransform transform\n{BAR}"),
        format!("MSG: std_msgs/{package}Header\n{header}\nstring frame_id\n{BAR}"),
        format!("MSG: geometry_msgs/{package}Transform"),
        format!("Vector3 translation\nQuaternion rotation\n{BAR}"),
        format!("MSG: geometry_msgs/{package}Vector3\nfloat64 x\nfloat64 y\nfloat64 z\n{BAR}"),
        format!("MSG: geometry_msgs/{package}Quaternion"),
        "float64 x\nfloat64 y\nfloat64 z\nfloat64 w".into(),
    ];
    parts.join("\n")
}

#[test]
fn emitted_messages_follow_the_definitions_of_their_types() {
    let text = definition("uint32 seq\ntime stamp", "");
    let ros1_type = Schema::parse("tf2_msgs/TFMessage", &text, Dialect::Ros1).unwrap();
    let text = definition("builtin_interfaces/Time stamp", "msg/")
        + &format!("\n{BAR}\nMSG: builtin_interfaces/msg/Time\nint32 sec\nuint32 nanosec");
    let ros2_type = Schema::parse("tf2_msgs/msg/TFMessage", &text, Dialect::Ros2).unwrap();
    let transcoder = Transcoder::new(&ros1_type, &ros2_type).unwrap();
    let poses = [pose("odom", "base_link", 9, 0.25), pose("map", "odom", 10, 4.0)];
    let rules = rules(&[], "r1/", &["map"]);
    let in_cdr = rules.apply(Encoding::Ros2.parse(&cdr(&poses, true)).unwrap());
    let in_cdr = Encoding::Ros2.emit(&in_cdr).unwrap();
    assert_eq!(transcoder.to_ros2(&message_after_rules(&rules, &poses)).unwrap(), in_cdr);
}

#[test]
fn only_selected_child_frames_are_sent_with_the_prefix() {
    let poses = [
        pose("map", "odom", 1, 1.0),
        pose("odom", "base_link", 1, 2.0),
        pose("base_link", "arm/1", 1, 3.0),
        pose("arm/1", "arm/1/tip", 1, 4.0),
        pose("base_link", "laser", 1, 5.0),
    ];
    let rules = rules(&["odom", "base_link", "arm/**"], "robot1/", &["map", "ear*"]);
    let expected = [
        pose("map", "robot1/odom", 1, 1.0),
        pose("robot1/odom", "robot1/base_link", 1, 2.0),
        pose("robot1/base_link", "robot1/arm/1", 1, 3.0),
        pose("robot1/arm/1", "robot1/arm/1/tip", 1, 4.0),
    ];
    assert_eq!(message_after_rules(&rules, &poses), ros1(&expected));
    assert!(!rules.change_nothing() && Rules::default().change_nothing());
    assert_eq!(message_after_rules(&Rules::default(), &poses), ros1(&poses));
}

#[test]
fn the_leading_slash_of_tf_is_removed() {
    let old = [pose("/odom", "/base_link", 1, 1.0), pose("odom", "/", 1, 2.0)];
    let nameless = pose("", "laser", 1, 3.0);
    let poses = [&old[..], &[nameless]].concat();
    let expected = [pose("r_odom", "r_base_link", 1, 1.0)];
    assert_eq!(message_after_rules(&rules(&[], "r_", &[]), &poses), ros1(&expected));
}

#[test]
fn bytes_that_are_no_message_are_refused_with_place_and_reason() {
    use Encoding::{Ros1, Ros2};
    let poses = [pose("odom", "base_link", 1, 0.5), pose("map", "odom", 2, -1.5)];
    let (message, in_cdr) = (ros1(&poses), cdr(&poses, true));
    for length in 0..message.len() {
        refused(Ros1, &message[..length]);
    }
    for length in 0..in_cdr.len() {
        refused(Ros2, &in_cdr[..length]);
    }
    let long = pose("map", &"x".repeat(MAX_FRAME_NAME + 1), 1, 1.0);
    let many = (MAX_TRANSFORMS as u32 + 1).to_le_bytes();
    let mut odd = message.clone();
    odd[20] = 0xff;
    let mut unknown = in_cdr.clone();
    unknown[1] = 7;
    for (encoding, bytes, reason) in [
        (Ros1, &message[..40], "transforms[0].transform: 56 bytes wanted, 3 are left"),
        (Ros1, &[message.clone(), vec![0]].concat(), "1 bytes are left over at the end"),
        (Ros1, &ros1(&[long]), "[0].child_frame_id: a name of 256 bytes; allowed: at most 255"),
        (Ros1, &many, "transforms: 4097 elements; allowed: at most 4096"),
        (Ros1, &odd, "transforms[0].header.frame_id: a name that is not UTF-8"),
        (Ros2, &unknown, "encapsulation 0x0007; allowed: 0x0000, 0x0001 (CDR)"),
        (Ros2, &in_cdr[..3], "3 bytes; allowed: at least 4"),
    ] {
        let error = refused(encoding, bytes);
        assert!(error.contains(reason), "{error}");
    }
}

/// The children and x of what a merger would send.
fn merged_poses(merger: &Merger) -> Vec<Pose> {
    let message = Encoding::Ros1.emit(&merger.latest()).unwrap();
    let read = Encoding::Ros1.parse(&message).unwrap();
    let poses = read.iter().map(|transform| {
        let bytes = Encoding::Ros1.emit(std::slice::from_ref(transform)).unwrap();
        decode_pose(&bytes)
    });
    poses.collect()
}

/// The only transform of a ROS 1 message.
fn decode_pose(message: &[u8]) -> Pose {
    let number = |at: usize| u32::from_le_bytes(message[at..at + 4].try_into().unwrap());
    let text = |at: usize| {
        let end = at + 4 + number(at) as usize;
        (String::from_utf8(message[at + 4..end].to_vec()).unwrap(), end)
    };
    let (parent, after_parent) = text(16);
    let (child, after_child) = text(after_parent);
    let x = f64::from_le_bytes(message[after_child..after_child + 8].try_into().unwrap());
    Pose { parent, child, stamp: number(8), x }
}

fn add(merger: &mut Merger, source: u32, poses: &[Pose]) -> usize {
    merger.add(Source::local(source), Encoding::Ros1.parse(&ros1(poses)).unwrap())
}

#[test]
fn a_frame_has_only_its_newest_parent() {
    let mut merger = Merger::default();
    add(&mut merger, 0, &[pose("table", "cup", 1, 1.0), pose("hand", "cup", 2, 2.0)]);
    assert_eq!(merged_poses(&merger), [pose("hand", "cup", 2, 2.0)]);
}

#[test]
fn repeated_transforms_are_no_change() {
    let mut merger = Merger::default();
    add(&mut merger, 1, &[pose("base_link", "laser", 1, 1.0)]);
    add(&mut merger, 2, &[pose("base_link", "camera", 1, 1.0)]);
    assert!(merger.has_news());
    merger.mark_sent(true);
    add(&mut merger, 1, &[pose("base_link", "laser", 9, 1.0)]);
    assert!(!merger.has_news(), "only its stamp differs");
    add(&mut merger, 1, &[pose("base_link", "laser", 9, 1.5)]);
    assert!(merger.has_news());
    merger.mark_sent(true);
    merger.remove(Source::local(3));
    assert!(!merger.has_news(), "nobody left");
    merger.remove(Source::local(2));
    assert!(merger.has_news());
    assert_eq!(merged_poses(&merger), [pose("base_link", "laser", 9, 1.5)]);
}

#[test]
fn the_last_publisher_of_a_frame_has_precedence_until_it_leaves() {
    let mut merger = Merger::default();
    add(&mut merger, 1, &[pose("base_link", "laser", 1, 1.0)]);
    add(&mut merger, 2, &[pose("base_link", "laser", 2, 2.0)]);
    merger.mark_sent(true);
    add(&mut merger, 1, &[pose("base_link", "laser", 3, 1.0)]);
    assert!(!merger.has_news(), "or two that repeat themselves would take turns for ever");
    assert_eq!(merged_poses(&merger), [pose("base_link", "laser", 2, 2.0)]);
    merger.remove(Source::local(2));
    assert_eq!(merged_poses(&merger), [pose("base_link", "laser", 3, 1.0)]);
}

#[test]
fn transforms_beyond_the_limit_are_counted_and_known_ones_still_updated() {
    let mut merger = Merger::default();
    let frame = |n: usize, x: f64| pose("map", &format!("frame{n}"), 1, x);
    let all: Vec<Pose> = (0..MAX_TRANSFORMS).map(|n| frame(n, 1.0)).collect();
    assert_eq!(add(&mut merger, 0, &all), 0);
    assert_eq!(add(&mut merger, 1, &[frame(3, 2.0), frame(MAX_TRANSFORMS, 2.0)]), 2);
    assert_eq!(add(&mut merger, 0, &[frame(3, 3.0)]), 0);
    assert_eq!(merger.latest().len(), MAX_TRANSFORMS);
    assert!(merged_poses(&merger).contains(&frame(3, 3.0)));
    let names: Vec<String> =
        (0..MAX_TRANSFORMS).map(|n| format!("{n:04}{}", "x".repeat(MAX_FRAME_NAME - 4))).collect();
    let long: Vec<Pose> = names.iter().map(|name| pose(name, name, 1, 1.0)).collect();
    let prefix = "p".repeat(tautline_gateway::tf::MAX_PREFIX);
    for (encoding, message) in [(Encoding::Ros1, ros1(&long)), (Encoding::Ros2, cdr(&long, true))] {
        let transforms = rules(&[], &prefix, &[]).apply(encoding.parse(&message).unwrap());
        assert!(encoding.emit(&transforms).is_ok(), "the largest message fits");
    }
}

/// A message of a publisher, its end, or the sending of the merged transforms.
#[derive(Debug, Clone)]
enum Input {
    Message(u32, Vec<Pose>),
    Gone(u32),
    Sent,
}

fn any_input() -> impl Strategy<Value = Input> {
    let names = || prop::sample::select(vec!["map", "odom", "base", "arm", "tip"]);
    let transform = (names(), names(), 0..1000u32, prop::sample::select(vec![0.5, 1.5]));
    let transform = transform.prop_map(|(parent, child, stamp, x)| pose(parent, child, stamp, x));
    prop_oneof![
        6 => (0..3u32, prop::collection::vec(transform, 0..5)).prop_map(|(s, m)| Input::Message(s, m)),
        1 => (0..3u32).prop_map(Input::Gone),
        2 => Just(Input::Sent),
    ]
}

/// The last transform of each frame from each publisher, in the order of the changes.
#[derive(Default)]
struct Model(Vec<(u32, Pose)>);

impl Model {
    fn add(&mut self, source: u32, pose: &Pose) {
        let known = self.0.iter().position(|(from, k)| *from == source && k.child == pose.child);
        match known {
            Some(at) if (&self.0[at].1.parent, self.0[at].1.x) == (&pose.parent, pose.x) => {
                self.0[at].1.stamp = pose.stamp;
            }
            known => {
                known.map(|at| self.0.remove(at));
                self.0.push((source, pose.clone()));
            }
        }
    }

    fn latest(&self) -> Vec<Pose> {
        let by_child: BTreeMap<_, _> = self.0.iter().map(|(_, p)| (&p.child, p.clone())).collect();
        by_child.into_values().collect()
    }
}

proptest! {
    #[test]
    fn the_merger_matches_a_simple_model(
        inputs in prop::collection::vec(any_input(), 0..60),
        keep: bool,
    ) {
        let (mut merger, mut model) = (Merger::default(), Model::default());
        // Without kept transforms publishers are not distinguished, as in the daemon.
        let source = |source: u32| if keep { source } else { 0 };
        let without_stamps = |poses: Vec<Pose>| -> Vec<Pose> {
            poses.into_iter().map(|pose| Pose { stamp: 0, ..pose }).collect()
        };
        let mut last = Vec::new();
        for input in inputs {
            match input {
                Input::Message(from, poses) => {
                    prop_assert_eq!(add(&mut merger, source(from), &poses), 0);
                    poses.iter().for_each(|pose| model.add(source(from), pose));
                }
                Input::Gone(from) if keep => {
                    merger.remove(Source::local(from));
                    model.0.retain(|(source, _)| *source != from);
                }
                Input::Gone(_) => {}
                Input::Sent => {
                    last = if keep { without_stamps(model.latest()) } else { Vec::new() };
                    model.0.retain(|_| keep);
                    merger.mark_sent(keep);
                }
            }
            let latest = merged_poses(&merger);
            prop_assert_eq!(&latest, &model.latest());
            let is_new = without_stamps(latest) != last;
            prop_assert!(merger.has_news() || !is_new, "a change is news");
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for encoding in [Encoding::Ros1, Encoding::Ros2] {
            if let Ok(transforms) = encoding.parse(&bytes) {
                let again = encoding.emit(&transforms).unwrap();
                prop_assert_eq!(encoding.parse(&again).unwrap(), transforms);
            }
        }
    }

    #[test]
    fn a_damaged_message_is_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        little_endian: bool,
    ) {
        let poses = [pose("odom", "base_link", 1, 0.5), pose("map", "odom", 2, -1.5)];
        let rules = rules(&["**"], "r/", &["map"]);
        for (encoding, message) in
            [(Encoding::Ros1, ros1(&poses)), (Encoding::Ros2, cdr(&poses, little_endian))]
        {
            let mut message = message;
            for (at, byte) in &changes {
                let at = at.index(message.len());
                message[at] = *byte;
            }
            if let Ok(transforms) = encoding.parse(&message) {
                let left = rules.apply(transforms);
                let again = encoding.emit(&left).unwrap();
                prop_assert_eq!(encoding.parse(&again).unwrap(), left);
            }
        }
    }
}
