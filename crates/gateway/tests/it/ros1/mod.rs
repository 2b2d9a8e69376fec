// SPDX-License-Identifier: Apache-2.0
//! The ROS 1 gateway against a real master and real rospy nodes.

mod hostile;
mod roscpp;
mod services;
mod shown;

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use tautline_gateway::rejections::Reason;
use tautline_gateway::{Event, Kept, Source, Topic};
use tautline_testkit::ros::ros1::{
    Master, start, string_message, string_topic, watch, watch_keeping, watch_selecting,
};
use tautline_testkit::ros::{
    Agent, MAX_MESSAGE, Watched, assert_names, bytes_of, free_port, wait_for,
};

const STRING: &str = "std_msgs/String";

#[test]
fn any_type_passes_in_both_directions_with_md5_and_definition() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "both");
    let mut agent = start(&master.uri, "/both_agent");
    let advertised = agent.advertise("/both/scan", "sensor_msgs/LaserScan", false);

    let topic = gateway.offered("/both/scan");
    assert_eq!(topic.type_name, "sensor_msgs/LaserScan");
    assert_eq!(topic.type_hash, advertised["md5"].as_str().unwrap());
    assert_eq!(&*topic.definition, advertised["definition"].as_str().unwrap());
    assert!(!topic.qos.transient_local);

    gateway.subscribe("/both/scan");
    let fields = json!({"angle_min": 0.5, "ranges": [1.0, 2.0]});
    let sent = send_until_read(&mut agent, &gateway, "/both/scan", &fields);
    assert_eq!(gateway.wait_message("/both/scan", &sent), Source::local(0));
    let sockets = agent.order(json!({"do": "nodelay", "topic": "/both/scan"}))["nodelay"].clone();
    let sockets: Vec<bool> = serde_json::from_value(sockets).unwrap();
    assert!(!sockets.is_empty() && sockets.iter().all(|nodelay| *nodelay), "{sockets:?}");

    let back = Topic { name: "/back/scan".into(), ..topic };
    gateway.advertise(&back);
    agent.subscribe("/back/scan", "sensor_msgs/LaserScan");
    gateway.wait_wanted_since(0, "/back/scan", true);
    gateway.publish("/back/scan", 0, sent.clone());
    let got = agent.wait("scan", |report| report["got"] == "/back/scan");
    assert_eq!(bytes_of(&got), sent);
    let header = &got["header"];
    assert_eq!(header["md5sum"], advertised["md5"]);
    assert_eq!(header["type"], "sensor_msgs/LaserScan");
    assert_eq!(header["message_definition"], advertised["definition"]);
    assert_eq!(header["callerid"], "/tautline_both");
    assert_eq!(header["latching"], "0");

    let seen = gateway.event_count();
    agent.order(json!({"do": "unsubscribe", "topic": "/back/scan"}));
    gateway.wait_wanted_since(seen, "/back/scan", false);
}

#[test]
fn a_new_selector_does_not_interrupt_other_topics() {
    let master = Master::shared();
    let closed = Arc::new(Mutex::new("/select/b".to_owned()));
    let looked = closed.clone();
    let selects = move |name: &str| name.starts_with("/select/") && *looked.lock().unwrap() != name;
    let gateway = watch_selecting(&master.uri, "select", selects);
    let mut agent = start(&master.uri, "/select_agent");
    for topic in ["/select/a", "/select/b", "/select/kept"] {
        agent.advertise(topic, STRING, false);
    }
    gateway.offered("/select/a");
    gateway.offered("/select/kept");
    gateway.subscribe("/select/kept");
    wait_for("connection", || (agent.connections("/select/kept") == 1).then_some(()));
    "/select/a".clone_into(&mut closed.lock().unwrap());
    gateway.reselect();
    gateway.wait_withdrawn("/select/a");
    gateway.offered("/select/b");
    let seen = gateway.event_count();
    "".clone_into(&mut closed.lock().unwrap());
    gateway.reselect();
    gateway.wait_since(seen, "its offer again", |event| {
        matches!(event, Event::Offered(topic) if topic.name == "/select/a").then_some(())
    });
    let about = |event: &&Event| match event {
        Event::Offered(topic) => topic.name == "/select/kept",
        Event::Withdrawn { topic } => topic == "/select/kept",
        _ => false,
    };
    assert_eq!(gateway.events().iter().filter(about).count(), 1, "undisturbed");
    assert_eq!(agent.connections("/select/kept"), 1);
    let sent = send_until_read(&mut agent, &gateway, "/select/kept", &json!({"data": "on"}));
    assert_eq!(sent, string_message("on"));
}

#[test]
fn subscribers_that_name_no_type_are_served() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "anytype");
    let mut agent = start(&master.uri, "/anytype_agent");
    gateway.advertise(&string_topic("/anytype_in/text", false));
    agent.subscribe("/anytype_in/text", "*");
    gateway.wait_wanted_since(0, "/anytype_in/text", true);
    gateway.publish("/anytype_in/text", 0, string_message("x"));
    let got = agent.wait("text", |report| report["got"] == "/anytype_in/text");
    assert_eq!(bytes_of(&got), string_message("x"));
}

#[test]
fn latched_messages_of_every_publisher_reach_late_joiners_in_both_directions() {
    let master = Master::shared();
    let mut one = start(&master.uri, "/latched_one");
    let mut two = start(&master.uri, "/latched_two");
    let mut sent = Vec::new();
    for (agent, text) in [(&mut one, "one"), (&mut two, "two")] {
        agent.advertise("/latched/map", STRING, true);
        sent.push(agent.send("/latched/map", json!({"data": text})));
    }
    let gateway = watch(&master.uri, "latched");
    assert!(gateway.offered("/latched/map").qos.transient_local);
    gateway.subscribe("/latched/map");
    let sources: BTreeSet<Source> =
        sent.iter().map(|payload| gateway.wait_message("/latched/map", payload)).collect();
    assert_eq!(sources, [Source::local(0), Source::local(1)].into());

    gateway.advertise(&string_topic("/latched_in/map", true));
    for (source, payload) in (0..).zip(&sent) {
        gateway.publish("/latched_in/map", source, string_message("outdated"));
        gateway.publish("/latched_in/map", source, payload.clone());
    }
    for agent in [&mut one, &mut two] {
        agent.subscribe("/latched_in/map", STRING);
        wait_for("both messages", || (agent.received("/latched_in/map").len() >= 2).then_some(()));
        let got = agent.received("/latched_in/map");
        assert_eq!(got.iter().map(bytes_of).collect::<Vec<_>>(), sent);
        assert!(got.iter().all(|report| report["header"]["latching"] == "1"));
    }

    gateway.forget("/latched_in/map", Some(0));
    let mut three = start(&master.uri, "/latched_three");
    three.subscribe("/latched_in/map", STRING);
    wait_for("the other message", || (!three.received("/latched_in/map").is_empty()).then_some(()));
    assert_eq!(bytes_of(&three.received("/latched_in/map")[0]), sent[1]);

    let left = gateway.wait_message("/latched/map", &sent[0]);
    one.leave();
    gateway.wait("departure of one source", |event| {
        matches!(event, Event::SourceGone { source, .. } if *source == left).then_some(())
    });
}

#[test]
fn a_topic_is_read_only_while_wanted() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "idle");
    let mut agent = start(&master.uri, "/idle_agent");
    agent.advertise("/idle/text", STRING, false);
    agent.advertise("/idle_private/text", STRING, false);
    gateway.offered("/idle/text");
    wait_for("end of the probe", || (agent.connections("/idle/text") == 0).then_some(()));
    gateway.subscribe("/idle/text");
    wait_for("connection", || (agent.connections("/idle/text") == 1).then_some(()));
    gateway.unsubscribe("/idle/text");
    wait_for("end of the connection", || (agent.connections("/idle/text") == 0).then_some(()));
    wait_for("unregistering", || {
        registered_at_master(&mut agent, "/tautline_idle").1.is_empty().then_some(())
    });

    gateway.subscribe("/idle/text");
    send_until_read(&mut agent, &gateway, "/idle/text", &json!({"data": "again"}));
    agent.order(json!({"do": "unadvertise", "topic": "/idle/text"}));
    gateway.wait_withdrawn("/idle/text");
    let events = gateway.events();
    let private = |event: &Event| format!("{event:?}").contains("/idle_private");
    assert!(!events.iter().any(private), "{events:?}");
}

/// Publishes until the gateway has read a message; a connection starts at a moment that
/// neither end reports. Returns the bytes of the message.
fn send_until_read(agent: &mut Agent, gateway: &Watched, topic: &str, fields: &Value) -> Vec<u8> {
    wait_for(format!("message of {topic}"), || {
        let sent = agent.send(topic, fields.clone());
        let read = gateway.messages(topic);
        read.iter().any(|(_, payload)| payload[..] == sent[..]).then_some(sent)
    })
}

/// The topic that all nodes publish. A gateway does not read it, but the master reports its publishers.
const ALL_NODES: &str = "/rosout";

/// What the master lists as published and subscribed by `node`.
fn listed_at_master(agent: &mut Agent, node: &str) -> (Vec<String>, Vec<String>) {
    let report = agent.order(json!({"do": "registered", "node": node}));
    let texts = |key: &str| serde_json::from_value(report[key].clone()).unwrap();
    (texts("published"), texts("subscribed"))
}

/// Like [`listed_at_master`], without [`ALL_NODES`].
fn registered_at_master(agent: &mut Agent, node: &str) -> (Vec<String>, Vec<String>) {
    let (published, mut subscribed) = listed_at_master(agent, node);
    subscribed.retain(|topic| topic != ALL_NODES);
    (published, subscribed)
}

#[test]
fn the_master_reports_new_nodes_of_a_subscribed_topic() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "nodes");
    let mut agent = start(&master.uri, "/nodes_agent");
    let mut wait = |name: &str, expected: &[&str]| {
        let expected = (vec![], expected.iter().map(|it| it.to_string()).collect());
        wait_for(name, || {
            (listed_at_master(&mut agent, "/tautline_nodes") == expected).then_some(())
        });
    };
    wait("registration", &[ALL_NODES]);
    gateway.subscribe(ALL_NODES);
    gateway.subscribe("/nodes/x");
    wait("both", &["/nodes/x", ALL_NODES]);
    gateway.unsubscribe(ALL_NODES);
    gateway.unsubscribe("/nodes/x");
    wait("the end of one", &[ALL_NODES]);
}

#[test]
fn a_publisher_that_crashed_is_withdrawn_though_the_master_still_lists_it() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "crash");
    let mut subscribed = start(&master.uri, "/crash_a");
    let mut unread = start(&master.uri, "/crash_b");
    subscribed.advertise("/crash/a", STRING, false);
    unread.advertise("/crash/b", STRING, false);
    gateway.offered("/crash/b");
    gateway.offered("/crash/a");
    gateway.subscribe("/crash/a");
    send_until_read(&mut subscribed, &gateway, "/crash/a", &json!({"data": "alive"}));
    drop((subscribed, unread));
    gateway.wait_withdrawn("/crash/a");
    gateway.wait_withdrawn("/crash/b");
}

#[test]
fn probing_a_subscribed_publisher_loses_no_message() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "probed");
    let mut agent = start(&master.uri, "/probed_agent");
    agent.advertise("/probed/text", STRING, false);
    let topic = gateway.offered("/probed/text");
    gateway.subscribe("/probed/text");
    send_until_read(&mut agent, &gateway, "/probed/text", &json!({"data": "before"}));
    // A peer has the topic, too: local publishers are asked for its type.
    gateway.advertise(&topic);
    let (texts, count) = (json!({"data": "in a row"}), 100);
    agent.order(json!({
        "do": "send", "topic": "/probed/text", "fields": texts, "count": count, "hz": 50
    }));
    wait_for("all in a row", || {
        let read = gateway.messages("/probed/text");
        let in_a_row = read.iter().filter(|(_, payload)| payload.ends_with(b"in a row"));
        (in_a_row.count() == count).then_some(())
    });
}

#[test]
fn a_topic_that_returns_with_another_type_is_offered_again() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "change");
    let mut agent = start(&master.uri, "/change_agent");
    agent.advertise("/change/x", STRING, false);
    assert_eq!(gateway.offered("/change/x").type_name, STRING);
    gateway.subscribe("/change/x");
    send_until_read(&mut agent, &gateway, "/change/x", &json!({"data": "old"}));
    let seen = gateway.event_count();
    agent.order(json!({"do": "unadvertise", "topic": "/change/x"}));
    agent.advertise("/change/x", "geometry_msgs/Twist", false);
    gateway.wait_since(seen, "offer of the new type", |event| match event {
        Event::Offered(topic) => (topic.type_name == "geometry_msgs/Twist").then_some(()),
        _ => None,
    });
    send_until_read(&mut agent, &gateway, "/change/x", &json!({"linear": {"x": 1.0}}));
}

#[test]
fn a_topic_with_another_local_type_is_refused_with_both_types() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "mismatch");
    let mut publishing = start(&master.uri, "/mismatch_pub");
    let mut subscribing = start(&master.uri, "/mismatch_sub");
    publishing.advertise("/mismatch_in/a", "std_msgs/Int32", false);
    subscribing.subscribe("/mismatch_in/b", "std_msgs/Int32");
    gateway.advertise(&string_topic("/mismatch_in/a", false));
    gateway.advertise(&string_topic("/mismatch_in/b", false));
    for (name, other) in [("/mismatch_in/a", "/mismatch_pub"), ("/mismatch_in/b", "/mismatch_sub")]
    {
        let reason = gateway.refusal(name);
        assert_names(&reason, &[name, STRING, "std_msgs/Int32", other]);
        assert_names(&gateway.status().trouble, &[reason]);
    }
    assert!(registered_at_master(&mut subscribing, "/tautline_mismatch").0.is_empty());

    publishing.leave();
    subscribing.order(json!({"do": "unsubscribe", "topic": "/mismatch_in/b"}));
    let both = ["/mismatch_in/a".to_owned(), "/mismatch_in/b".to_owned()];
    wait_for("both advertised", || {
        (registered_at_master(&mut subscribing, "/tautline_mismatch").0 == both).then_some(())
    });
    // The master lists us before its responses reach the gateway.
    wait_for("no trouble", || gateway.status().trouble.is_empty().then_some(()));
}

#[test]
fn a_subscriber_that_returns_after_a_restart_gets_latched_messages_again() {
    let master = Master::shared();
    let folder = tempfile::tempdir().unwrap();
    let deliveries = folder.path().join("robot.latched");
    let [mut left, mut stayed] = ["/left", "/stayed"].map(|it| start(&master.uri, it));
    let kept = Kept { identity: 1, depth: 1, is_repeatable: true, ..Kept::default() };
    let begin = |agents: &mut [&mut Agent]| {
        let gateway = watch_keeping(&master.uri, "restarted", &deliveries);
        gateway.advertise(&string_topic("/restarted/map", true));
        gateway.publish_kept("/restarted/map", kept, string_message("map"));
        for agent in agents {
            agent.subscribe("/restarted/map", STRING);
            wait_for("the map", || (agent.received("/restarted/map").len() == 1).then_some(()));
        }
        gateway
    };
    begin(&mut [&mut left, &mut stayed]).shutdown();
    left.order(json!({"do": "unsubscribe", "topic": "/restarted/map"}));
    let mut new = start(&master.uri, "/new");
    let _after = begin(&mut [&mut new]);
    left.subscribe("/restarted/map", STRING);
    wait_for("the map again", || (left.received("/restarted/map").len() == 2).then_some(()));
    assert_eq!(stayed.received("/restarted/map").len(), 1);
}

#[test]
fn a_subscriber_with_another_type_is_refused_and_reported() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "later");
    let mut agent = start(&master.uri, "/later_agent");
    gateway.advertise(&string_topic("/later_in/x", false));
    wait_for("advertised", || {
        (!registered_at_master(&mut agent, "/tautline_later").0.is_empty()).then_some(())
    });
    agent.subscribe("/later_in/x", "std_msgs/Int32");
    let reason = gateway.refusal("/later_in/x");
    assert_names(&reason, &["/later_agent", "/later_in/x", STRING, "std_msgs/Int32"]);
}

#[test]
fn an_oversized_message_is_dropped_and_reported_and_the_next_arrives() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "oversize");
    let mut agent = start(&master.uri, "/oversize_agent");
    agent.advertise("/oversize/x", STRING, false);
    gateway.offered("/oversize/x");
    gateway.subscribe("/oversize/x");
    let refused = |event: &Event| matches!(event, Event::Refused { .. });
    let mut sent = 0;
    wait_for("refusal", || {
        agent.order(json!({"do": "send_large", "topic": "/oversize/x", "size": MAX_MESSAGE}));
        sent += 1;
        gateway.events().iter().any(refused).then_some(())
    });
    agent.order(json!({"do": "send_large", "topic": "/oversize/x", "size": MAX_MESSAGE - 4}));
    let largest = string_message(&"x".repeat(MAX_MESSAGE - 4));
    gateway.wait_message("/oversize/x", &largest);
    let found = (MAX_MESSAGE + 4).to_string();
    assert_names(&gateway.refusal("/oversize/x"), &[found, MAX_MESSAGE.to_string()]);
    assert_eq!(gateway.messages("/oversize/x").len(), 1);
    let rejected = gateway.status().rejected;
    assert_eq!((&*rejected[0].topic, rejected[0].reason), ("/oversize/x", Reason::TooLarge));
    // Messages sent before we were connected never arrived.
    assert!((1..=sent).contains(&rejected[0].count), "{rejected:?} of {sent}");
    assert_eq!(rejected.len(), 1, "{rejected:?}");
}

#[test]
fn a_stuck_subscriber_delays_no_other_and_its_losses_are_counted() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "stuck");
    let mut stuck = start(&master.uri, "/stuck_agent");
    let mut well = start(&master.uri, "/stuck_well");
    let topic = "/stuck_in/image";
    gateway.advertise(&string_topic(topic, false));
    for agent in [&mut stuck, &mut well] {
        agent.order(json!({"do": "subscribe", "topic": topic, "type": STRING, "brief": true}));
    }
    // The master knows the gateway before a subscriber does.
    gateway.wait_wanted_since(0, topic, true);
    wait_for("both subscribers", || (bus_lines(&mut well, "stuck", topic) == 2).then_some(()));
    stuck.signal("-STOP");
    let payload = string_message(&"x".repeat(500_000));
    let mut sent = 0;
    wait_for("drops for the stuck subscriber", || {
        gateway.publish(topic, 0, payload.clone());
        sent += 1;
        wait_for("each message at the other", || {
            (well.received(topic).len() == sent).then_some(())
        });
        let drops = gateway.status().slow_subscriber_drops;
        drops.iter().any(|(name, count)| name == topic && *count > 3).then_some(())
    });
    stuck.signal("-CONT");
    wait_for("what was kept", || (!stuck.received(topic).is_empty()).then_some(()));
}

/// Connections of `topic` in the gateway's bus info.
fn bus_lines(agent: &mut Agent, gateway: &str, topic: &str) -> usize {
    let node = format!("/tautline_{gateway}");
    let order = json!({"do": "call", "node": node, "method": "getBusInfo", "params": ["/t"]});
    let lines = agent.order(order)["answer"][2].clone();
    lines.as_array().unwrap().iter().filter(|line| line[4] == topic).count()
}

#[test]
fn everything_is_registered_again_at_a_restarted_master() {
    let master = Master::start_alone(free_port());
    let (uri, port) = (master.uri.clone(), master.port());
    let gateway = watch(&uri, "again");
    let mut agent = start(&uri, "/again_agent");
    agent.advertise("/again/x", STRING, false);
    gateway.offered("/again/x");
    gateway.subscribe("/again/x");
    gateway.advertise(&string_topic("/again_in/y", false));
    agent.subscribe("/again_in/y", STRING);
    gateway.wait_wanted_since(0, "/again_in/y", true);
    send_until_read(&mut agent, &gateway, "/again/x", &json!({"data": "first"}));

    drop(master);
    wait_for("notice of the loss", || (!gateway.status().connected).then_some(()));
    assert_names(&gateway.status().trouble, &["master", &format!("127.0.0.1:{port}")]);
    let flow = |agent: &mut Agent, text: &str| {
        let sent = send_until_read(agent, &gateway, "/again/x", &json!({"data": text}));
        gateway.publish("/again_in/y", 0, sent.clone());
        wait_for("message back", || {
            agent.received("/again_in/y").iter().any(|got| bytes_of(got) == sent).then_some(())
        });
    };
    flow(&mut agent, "without a master");

    let master = Master::start_alone(port);
    let mut witness = start(&uri, "/again_witness");
    let expected = (vec!["/again_in/y".to_owned()], vec!["/again/x".to_owned()]);
    wait_for("registrations", || {
        (registered_at_master(&mut witness, "/tautline_again") == expected).then_some(())
    });
    assert!(gateway.status().connected);
    assert_eq!(gateway.status().trouble, "");
    flow(&mut agent, "with a master that does not know the publisher");
    // On a busy machine, rospy may still count a connection that the gateway has replaced.
    wait_for("one connection", || (agent.connections("/again/x") == 1).then_some(()));
    witness.subscribe("/again_in/y", STRING);
    wait_for("a subscriber by the new master", || {
        gateway.publish("/again_in/y", 0, string_message("new"));
        (!witness.received("/again_in/y").is_empty()).then_some(())
    });

    // The new master does not know the publisher. Though no longer read, it answers and is found again.
    gateway.unsubscribe("/again/x");
    wait_for("end of the connection", || (agent.connections("/again/x") == 0).then_some(()));
    gateway.subscribe("/again/x");
    flow(&mut agent, "after subscribing anew");
    let withdrawn = |event: &Event| matches!(event, Event::Withdrawn { .. });
    assert!(!gateway.events().iter().any(withdrawn));
    drop(agent);
    gateway.wait_withdrawn("/again/x");
    drop(master);
}

#[test]
fn the_master_may_be_absent_at_the_start() {
    let port = free_port();
    let uri = format!("http://127.0.0.1:{port}");
    let gateway = watch(&uri, "early");
    gateway.advertise(&string_topic("/early_in/y", false));
    gateway.subscribe("/early/x");
    wait_for("trouble", || (!gateway.status().trouble.is_empty()).then_some(()));
    assert!(!gateway.status().connected);
    let _master = Master::start_alone(port);
    let mut agent = start(&uri, "/early_agent");
    agent.advertise("/early/x", STRING, false);
    agent.subscribe("/early_in/y", STRING);
    gateway.wait_wanted_since(0, "/early_in/y", true);
    send_until_read(&mut agent, &gateway, "/early/x", &json!({"data": "hello"}));
    assert!(gateway.status().connected);
}

#[test]
fn shutdown_unregisters_everything() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "bye");
    let mut agent = start(&master.uri, "/bye_agent");
    gateway.subscribe("/bye/x");
    gateway.advertise(&string_topic("/bye_in/y", false));
    let all = (vec!["/bye_in/y".to_owned()], vec!["/bye/x".to_owned()]);
    wait_for("registrations", || {
        (registered_at_master(&mut agent, "/tautline_bye") == all).then_some(())
    });
    gateway.shutdown();
    assert_eq!(listed_at_master(&mut agent, "/tautline_bye"), (vec![], vec![]));
}

#[test]
fn two_gateways_on_one_master_do_not_feed_each_other() {
    let master = Master::shared();
    let both = |topic: &str| topic.starts_with("/loop/");
    let one = watch_selecting(&master.uri, "loop1", both);
    let two = watch_selecting(&master.uri, "loop2", both);
    let mut agent = start(&master.uri, "/loop_agent");
    for (gateway, topic) in [(&one, "/loop/a"), (&two, "/loop/b")] {
        gateway.advertise(&string_topic(topic, true));
        gateway.publish(topic, 0, string_message("round"));
    }
    for gateway in [&one, &two] {
        gateway.subscribe("/loop/a");
        gateway.subscribe("/loop/b");
    }
    for (node, topic) in [("/tautline_loop1", "/loop/a"), ("/tautline_loop2", "/loop/b")] {
        let published = vec![topic.to_owned()];
        wait_for(node, || (registered_at_master(&mut agent, node).0 == published).then_some(()));
    }
    // A gateway that finds this publisher in the master's list finds the other gateway there, too.
    agent.advertise("/loop/a", STRING, false);
    for gateway in [&one, &two] {
        gateway.offered("/loop/a");
    }
    for gateway in [&one, &two] {
        let sent = send_until_read(&mut agent, gateway, "/loop/a", &json!({"data": "real"}));
        let foreign = |event: &Event| match event {
            Event::Offered(topic) => topic.name == "/loop/b",
            Event::Message { payload, .. } => payload[..] != sent[..],
            Event::Wanted { .. } => true,
            _ => false,
        };
        assert!(!gateway.events().iter().any(foreign), "{:?}", gateway.events());
    }
}

#[test]
fn the_slave_api_answers_calls_of_ros_and_survives_others() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "api");
    let mut agent = start(&master.uri, "/api_agent");
    gateway.advertise(&string_topic("/api_in/x", false));
    wait_for("advertised", || {
        (!registered_at_master(&mut agent, "/tautline_api").0.is_empty()).then_some(())
    });
    let mut call = |method: &str, params: Value| {
        let order =
            json!({"do": "call", "node": "/tautline_api", "method": method, "params": params});
        agent.order(order)
    };
    assert_eq!(call("getPid", json!(["/t"]))["answer"][2], std::process::id());
    assert_eq!(call("getMasterUri", json!(["/t"]))["answer"][2], master.uri);
    let publications = call("getPublications", json!(["/t"]))["answer"].clone();
    assert_eq!(publications[2], json!([["/api_in/x", STRING]]));
    assert_eq!(call("getSubscriptions", json!(["/t"]))["answer"][2], json!([]));
    assert_eq!(call("getBusStats", json!(["/t"]))["answer"][2], json!([[], [], []]));
    assert_eq!(call("paramUpdate", json!(["/t", "/p", 1]))["answer"][0], 1);
    let topic = call("requestTopic", json!(["/t", "/api_in/x", [["TCPROS"]]]))["answer"].clone();
    assert_eq!(topic[2][0], "TCPROS");
    assert_eq!(call("requestTopic", json!(["/t", "/no", [["TCPROS"]]]))["answer"][0], 0);
    assert_eq!(call("requestTopic", json!(["/t", 1]))["answer"][0], -1);
    assert_names(call("launch", json!([]))["answer"]["fault"].as_str().unwrap(), &["'launch'"]);
    let stopped = call("shutdown", json!(["/t", "no reason"]));
    assert_eq!(stopped["answer"][0], 0);

    let address = stopped["uri"].as_str().unwrap().trim_start_matches("http://").trim_matches('/');
    let port = topic[2][2].as_u64().unwrap() as u16;
    let deep = "<a>".repeat(80_000);
    let attacks = [
        (
            address.to_owned(),
            format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{deep}", deep.len()),
        ),
        (
            address.to_owned(),
            format!("POST / HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n{deep}{deep}"),
        ),
        (address.to_owned(), "x".repeat(100_000)),
        (format!("127.0.0.1:{port}"), "\u{7f}".repeat(100_000)),
        (format!("127.0.0.1:{port}"), "\0\0\0\0".into()),
    ];
    for (address, bytes) in attacks {
        let mut stream = TcpStream::connect(&address).unwrap();
        // The far side may close before it has read everything.
        let _ = stream.write_all(bytes.as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    agent.subscribe("/api_in/x", STRING);
    gateway.wait_wanted_since(0, "/api_in/x", true);
}

/// rospy waits ever longer before it connects again to a node whose connection has closed.
#[test]
fn a_withdrawn_topic_is_unregistered_and_its_subscribers_get_the_next_one_at_once() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "back");
    let mut agent = start(&master.uri, "/back_agent");
    agent.subscribe("/back_in/x", STRING);
    for round in 0..4 {
        gateway.advertise(&string_topic("/back_in/x", false));
        if round == 0 {
            gateway.wait_wanted_since(0, "/back_in/x", true);
        }
        // Without a subscriber, it would be lost.
        gateway.publish("/back_in/x", 0, string_message(&format!("round {round}")));
        wait_for("the message", || (agent.received("/back_in/x").len() == round + 1).then_some(()));
        let events = gateway.events().len();
        gateway.unadvertise("/back_in/x");
        gateway.wait_wanted_since(events, "/back_in/x", false);
        let nothing = (vec![], vec![]);
        wait_for("unregistering", || {
            (registered_at_master(&mut agent, "/tautline_back") == nothing).then_some(())
        });
    }
    // A connection for another type is of no use.
    let header = Topic { type_name: "std_msgs/Header".into(), ..string_topic("/back_in/x", false) };
    gateway.advertise(&header);
    assert_names(&gateway.refusal("/back_in/x"), &["/back_agent", STRING, "std_msgs/Header"]);
}

#[test]
fn nodes_in_cpp_are_read_and_served() {
    // roscore runs rosout, a roscpp node: what it reads on /rosout it publishes on /rosout_agg.
    let master = Master::shared();
    let gateway = watch_selecting(&master.uri, "cpp", |topic| topic == "/rosout_agg");
    let offered = gateway.offered("/rosout_agg");
    assert_eq!(offered.type_name, "rosgraph_msgs/Log");
    gateway.subscribe("/rosout_agg");
    let seen = gateway.event_count();
    gateway.advertise(&Topic { name: "/rosout".into(), ..offered });
    gateway.wait_wanted_since(seen, "/rosout", true);
    let log = log_message(&"y".repeat(300_000));
    wait_for("log message through roscpp", || {
        gateway.publish("/rosout", 0, log.clone());
        let got = gateway.messages("/rosout_agg");
        got.iter().any(|(_, payload)| payload[12..] == log[12..]).then_some(())
    });
    // What the gateway relies on when it checks whether a node still publishes.
    let mut agent = start(&master.uri, "/cpp_agent");
    let params = json!(["/t"]);
    let order =
        json!({"do": "call", "node": "/rosout", "method": "getPublications", "params": params});
    let publications = agent.order(order)["answer"][2].clone();
    let expected = json!(["/rosout_agg", "rosgraph_msgs/Log"]);
    assert!(publications.as_array().unwrap().contains(&expected), "{publications}");
}

/// A serialized `rosgraph_msgs/Log` without topics.
fn log_message(text: &str) -> Vec<u8> {
    let mut bytes = vec![0; 12]; // sequence number and stamp
    bytes.extend(string_message("frame"));
    bytes.push(2); // level: information
    for part in ["/node", text, "file", "function"] {
        bytes.extend(string_message(part));
    }
    bytes.extend([0; 8]); // line and number of topics
    bytes
}

#[test]
fn a_second_gateway_with_the_same_name_is_reported() {
    let master = Master::shared();
    let first = watch(&master.uri, "name");
    let mut agent = start(&master.uri, "/name_agent");
    first.advertise(&string_topic("/name_in/x", false));
    wait_for("advertised", || {
        (!registered_at_master(&mut agent, "/tautline_name").0.is_empty()).then_some(())
    });
    let second = watch(&master.uri, "name");
    second.advertise(&string_topic("/name_in/y", false));
    wait_for("report", || {
        // It polls at any moment, also before the master reports the second one to it.
        first.reselect();
        first.status().trouble.contains("/tautline_name").then_some(())
    });
    second.shutdown();
    let restored = vec!["/name_in/x".to_owned()];
    wait_for("return of the first", || {
        (registered_at_master(&mut agent, "/tautline_name").0 == restored).then_some(())
    });
    assert_eq!(first.status().trouble, "");
}

#[test]
fn a_hanging_master_is_reported_and_causes_no_delay() {
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let uri = format!("http://{}", silent.local_addr().unwrap());
    let gateway = watch(&uri, "hang");
    gateway.advertise(&string_topic("/hang_in/x", false));
    wait_for("trouble", || gateway.status().trouble.contains("getSystemState").then_some(()));
    assert_names(&gateway.status().trouble, &[uri]);
    gateway.shutdown();
}
