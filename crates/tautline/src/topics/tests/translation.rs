// SPDX-License-Identifier: Apache-2.0
//! Tests of a team with robots of ROS 1 and of ROS 2.

use super::*;
use tautline_gateway::Service;
use tautline_gateway::types::trust::service_hash;

const ROS1: &str = "peers: { base: 10.0.0.2 }\ntopics: { \"/**\": {} }";
const ROS2: &str = "ros2: true\npeers: { robot: 10.0.0.1 }\ntopics: { \"/**\": {} }";

fn text_topic(name: &str, type_name: &str) -> Topic {
    defined(name, type_name, "string data\n")
}

#[test]
fn topics_are_translated_in_both_directions() {
    let mut world = World::pair(ROS1, ROS2);
    world.inject(0, Event::Offered(text_topic("/from1", "std_msgs/String")));
    assert_eq!(world.take_commands(1), ["advertise /from1 std_msgs/msg/String"]);
    world.wants(1, "/from1", true);
    assert_eq!(world.take_commands(0), ["subscribe /from1"]);
    world.publishes(0, "/from1", 0, "\u{2}\0\0\0hi");
    assert_eq!(world.take_commands(1), ["publish /from1 0 \0\u{1}\0\0\u{3}\0\0\0hi\0"]);

    world.inject(1, Event::Offered(text_topic("/from2", "std_msgs/msg/String")));
    assert_eq!(world.take_commands(0), ["advertise /from2 std_msgs/String"]);
    world.wants(0, "/from2", true);
    assert_eq!(world.take_commands(1), ["subscribe /from2"]);
    world.publishes(1, "/from2", 0, "\0\u{1}\0\0\u{3}\0\0\0hi\0");
    assert_eq!(world.take_commands(0), ["publish /from2 0 \u{2}\0\0\0hi"]);
}

#[test]
fn types_without_a_counterpart_are_refused_with_the_name_of_the_field() {
    let mut world = World::pair(ROS1, ROS2);
    let wide = defined("/w", "a/msg/Wide", "wstring label\n");
    world.inject(1, Event::Offered(wide));
    assert!(world.take_commands(0).is_empty());
    world.run(SECOND);
    let notices = format!("{:?}", world.sides[1].shared.notices);
    assert!(notices.contains("a/Wide.label") && notices.contains("/w"), "{notices}");
}

#[test]
fn fields_that_one_side_lacks_are_listed_once_for_topics_and_services() {
    let mut world = World::pair(&format!("{ROS1}\nservices: {{ \"/**\": {{}} }}"), ROS2);
    let folder = tempfile::tempdir().unwrap();
    for (kind, file) in [("msg", "Mark"), ("srv", "Set")] {
        let path = folder.path().join("share/a").join(kind);
        std::fs::create_dir_all(&path).unwrap();
        let text = if kind == "msg" { "int8 x\nint8 added\n" } else { "int8 x\n---\nint8 y\n" };
        std::fs::write(path.join(format!("{file}.{kind}")), text).unwrap();
    }
    world.installed = InstalledTypes::new(vec![folder.path().into()]);
    for name in ["/one", "/two"] {
        world.inject(0, Event::Offered(defined(name, "a/Mark", "int8 x\nint8 removed\n")));
    }
    let text = "int8 x\nint8 z\n---\nint8 y\n";
    let type_hash = service_hash("a/Set", text, dialect_of("a/Set")).unwrap();
    let (name, type_name, definition) = ("/set".into(), "a/Set".into(), text.into());
    world.inject(0, Event::ServiceOffered(Service { name, type_name, type_hash, definition }));
    world.run(SECOND);
    let found: Vec<&str> = world.sides[1].topics.one_sided_fields(ONLY_PEER).into_iter().collect();
    let expected =
        ["a/Mark.added, ROS 2 only", "a/Mark.removed, ROS 1 only", "a/Set_Request.z, ROS 1 only"];
    assert_eq!(found, expected);
    assert!(world.sides[0].topics.one_sided_fields(ONLY_PEER).is_empty());
}

#[test]
fn robots_of_both_kinds_may_publish_one_topic() {
    let robot1 = "name: robot1\npeers: { base: 10.0.0.3 }\ntopics: { \"/**\": {} }\n";
    let robot2 = "name: robot2\nros2: true\npeers: { base: 10.0.0.3 }\ntopics: { \"/**\": {} }\n";
    let base = "name: base\nros2: true\npeers: { robot1: 10.0.0.1, robot2: 10.0.0.2 }\n";
    let mut world = World::new(&[robot1, robot2, base]);
    let native = Topic { type_hash: String::new(), ..text_topic("/x", "std_msgs/msg/String") };
    world.inject(0, Event::Offered(text_topic("/x", "std_msgs/String")));
    world.inject(1, Event::Offered(native));
    world.wants(2, "/x", true);
    assert_eq!(world.take_commands(0), ["subscribe /x"]);
    assert_eq!(world.take_commands(1), ["subscribe /x"]);
    world.publishes(0, "/x", 0, "\u{1}\0\0\0a");
    world.publishes(1, "/x", 0, "cdr as it is");
    let told = world.take_commands(2);
    assert!(told.iter().any(|line| line.ends_with("\u{2}\0\0\0a\0")), "{told:?}");
    assert!(told.iter().any(|line| line.ends_with("cdr as it is")), "{told:?}");
}

#[test]
fn a_name_invalid_in_ros_2_needs_a_rename() {
    let mut world = World::pair(ROS1, ROS2);
    for (name, proposal) in
        [("/camera-1/image", "/camera_1/image"), ("/lidar/bottom/1_2v", "/lidar/bottom/n1_2v")]
    {
        world.inject(0, Event::Offered(text_topic(name, "std_msgs/String")));
        assert!(world.take_commands(1).is_empty(), "{name}");
        let line = format!("remap: {{ {name}: {proposal} }}");
        let here = [name, "needs another name at 'base'", "under peers.robot: ", &line];
        assert!(world.has_notice(1, &here), "{:?}", world.notices(1));
        let there = [name, "'base' refuses", "under peers.robot: ", &line];
        assert!(world.has_notice(0, &there), "{:?}", world.notices(0));
    }
    let renamed = ROS2.replace(
        "robot: 10.0.0.1",
        "robot: { address: 10.0.0.1, accept: \"/**\", remap: { /camera-1/image: /camera_1/image } }",
    );
    world.reload(1, &renamed);
    assert_eq!(world.take_commands(1), ["advertise /camera_1/image std_msgs/msg/String"]);
    world.wants(1, "/camera_1/image", true);
    assert_eq!(world.take_commands(0), ["subscribe /camera-1/image"]);
    world.run(5 * SECOND);
    assert!(!world.has_notice(1, &["/camera-1/image"]), "{:?}", world.notices(1));
    assert!(!world.has_notice(0, &["/camera-1/image"]), "{:?}", world.notices(0));
}

#[test]
fn between_robots_of_ros_1_the_names_of_rospy_are_carried() {
    let mut world = World::pair(ROS1, "peers: { robot: 10.0.0.1 }");
    for name in ["/camera-1/image", "/lidar/bottom/1_2v", "/left.camera"] {
        world.inject(0, Event::Offered(text_topic(name, "std_msgs/String")));
        assert_eq!(world.take_commands(1), [format!("advertise {name} std_msgs/String")]);
    }
}
