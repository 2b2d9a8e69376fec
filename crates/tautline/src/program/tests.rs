// SPDX-License-Identifier: Apache-2.0
//! Two nodes of one program over loopback.

use super::*;
use crate::audit::{Event, Kind};
use crate::inlet::{Inlet, Input};
use std::net::UdpSocket;
use std::time::Instant;
use tautline_gateway::{Command, Event as GatewayEvent, Gateway as _};

/// Maximum time until a condition holds; then the test fails.
const DEADLINE: Duration = Duration::from_secs(60);

fn ports() -> [u16; 2] {
    let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    sockets.map(|socket| socket.local_addr().unwrap().port())
}

/// A node `robot` and a node `base`; the lines are the rest of their configurations.
fn pair(robot: &str, base: &str) -> [Node; 2] {
    let [here, there] = ports();
    let open = |name: &str, port: u16, peer: &str, peers_port: u16, lines: &str| {
        let text = format!(
            "name: {name}\nlisten: 127.0.0.1:{port}\nsecurity: none\nbeacons: false\n\
             peers:\n  {peer}:\n    address: 127.0.0.1:{peers_port}\n{lines}"
        );
        Node::open(Config::parse(&text).unwrap()).unwrap()
    };
    [open("robot", here, "base", there, robot), open("base", there, "robot", here, base)]
}

fn texts(subscription: &Subscription, count: usize) -> Vec<String> {
    let next = || subscription.recv_timeout(DEADLINE).unwrap().payload;
    (0..count).map(|_| String::from_utf8(next().to_vec()).unwrap()).collect()
}

const SENDS: &str = "topics: { \"/**\": {} }\n";
const ACCEPTS: &str = "    accept: { \"/**\": any }\n";

#[test]
fn a_message_arrives_with_its_type_and_in_its_order() {
    let [robot, base] = pair(SENDS, ACCEPTS);
    let subscription = base.subscribe("/greeting").unwrap();
    let publisher = robot.publish("/greeting", "example/Text").unwrap();
    assert!(publisher.wait_for_subscriber(DEADLINE));
    for text in ["one", "two", "three"] {
        publisher.send(text).unwrap();
    }
    let first = subscription.recv_timeout(DEADLINE).unwrap();
    assert_eq!((&first.payload[..], &*first.type_name), (&b"one"[..], "example/Text"));
    assert_eq!(texts(&subscription, 2), ["two", "three"]);
    let links = base.links().unwrap();
    assert!(links.iter().any(|it| it.peer == "robot" && it.up), "{links:?}");
    let status = robot.status().unwrap();
    assert_eq!(status.gateways[0].kind, "program");
    // Queued messages are sent at the end, and the subscriber learns that no more will come.
    publisher.send("four").unwrap();
    robot.close().unwrap();
    assert_eq!(texts(&subscription, 1), ["four"]);
    base.close().unwrap();
    assert_eq!(subscription.recv(), Err(RecvError::Closed));
    assert_eq!(publisher.send("five"), Err(SendError::Stopped));
}

#[test]
fn publishers_that_leave_at_once_lose_nothing() {
    for treatment in ["", "compression: zstd"] {
        let lines = format!("topics: {{ \"/**\": {{ {treatment} }} }}\n");
        let [robot, base] = pair(&lines, ACCEPTS);
        let subscription = base.subscribe("/last").unwrap();
        for bytes in [LARGE, LARGE + 1] {
            // The second publisher follows while messages of the first one are on their way.
            let publisher = robot.publish("/last", "example/Text").unwrap();
            assert!(publisher.wait_for_subscriber(DEADLINE));
            publisher.send(vec![7; bytes]).unwrap();
        }
        robot.close().unwrap();
        let received = [(); 2].map(|()| subscription.recv_timeout(DEADLINE).expect(treatment));
        let mut bytes = received.map(|it| it.payload.len());
        bytes.sort_unstable();
        assert_eq!(bytes, [LARGE, LARGE + 1]);
    }
}

#[test]
fn late_joiners_get_kept_messages_until_the_publisher_leaves() {
    let [robot, base] = pair(SENDS, ACCEPTS);
    let kept = Qos { transient_local: true, depth: 2, ..Qos::default() };
    let publisher = robot.publish_with("/map", "example/Map", kept).unwrap();
    for text in ["one", "two", "three"] {
        publisher.send(text).unwrap();
    }
    let first = base.subscribe("/map").unwrap();
    assert_eq!(texts(&first, 2), ["two", "three"]);
    publisher.send("four").unwrap();
    assert_eq!(texts(&first, 1), ["four"]);
    let second = base.subscribe("/map").unwrap();
    assert_eq!(texts(&second, 2), ["three", "four"]);
    drop(publisher);
    let start = Instant::now();
    while base.subscribe("/map").unwrap().try_recv().is_ok() {
        assert!(start.elapsed() < DEADLINE, "the messages are still kept");
        std::thread::yield_now();
    }
}

#[test]
fn a_service_is_called_across_the_nodes_and_its_failures_are_reported() {
    let [robot, base] = pair("services: { /twice: {} }\n", ACCEPTS);
    let soon = Duration::from_millis(50);
    let not_served = base.call("/twice", "x", soon);
    assert!(matches!(not_served, Err(CallError::NotServed { .. })), "{not_served:?}");
    drop((robot, base));
    let [robot, base] = pair("    call: [/twice]\nservices: { /twice: {} }\n", ACCEPTS);
    let server = robot.serve("/twice", "example/Twice").unwrap();
    let taken = robot.serve("/twice", "example/Twice").map(drop);
    assert_eq!(taken, Err(ServeError::Taken("/twice".into())));
    let serves = std::thread::spawn(move || {
        for request in server.iter() {
            match &request.payload[..] {
                b"drop" => drop(request),
                b"fail" => request.answer::<Bytes>(Err("on purpose".into())),
                text => {
                    let twice = [text, text].concat();
                    request.answer(Ok(twice));
                }
            }
        }
    });
    assert_eq!(base.call("/twice", "ab", DEADLINE), Ok(Bytes::from("abab")));
    let failed = |request: &'static str| match base.call("/twice", request, DEADLINE) {
        Err(CallError::Failed(reason)) => reason,
        other => panic!("{other:?}"),
    };
    assert!(failed("fail").contains("on purpose"));
    assert!(failed("drop").contains("did not answer"));
    robot.close().unwrap();
    serves.join().unwrap();
}

#[test]
fn events_report_connected_and_disconnected_peers() {
    let [here, there] = ports();
    let text = |name: &str, port: u16, peer: &str, to: u16| {
        format!(
            "name: {name}\nlisten: 127.0.0.1:{port}\nsecurity: none\nbeacons: false\n\
             peers: {{ {peer}: \"127.0.0.1:{to}\" }}"
        )
    };
    let base = Node::open(Config::parse(&text("base", here, "robot", there)).unwrap()).unwrap();
    let events = base.events();
    let robot = Node::open(Config::parse(&text("robot", there, "base", here)).unwrap()).unwrap();
    let event_of = |wanted: fn(&Event) -> bool| {
        let found = std::iter::from_fn(|| events.recv_timeout(DEADLINE).ok());
        let record = found.into_iter().find(|it| wanted(&it.event)).expect("the event");
        record.peer.map(|it| it.as_str().to_owned())
    };
    assert_eq!(event_of(|it| matches!(it, Event::Came { .. })).as_deref(), Some("robot"));
    drop(robot);
    assert_eq!(event_of(|it| matches!(it, Event::Went { .. })).as_deref(), Some("robot"));
    base.close().unwrap();
    assert_eq!(events.iter().count(), 0);
}

#[test]
fn events_name_what_a_peer_refuses_and_what_is_refused_to_it() {
    let lines = "topics: { /image: {} }\nservices: { /switch: {} }\n";
    let [robot, base] = pair(lines, "    accept: { /other: any, /switch: any, /image: T/Other }\n");
    let [here, there] = [robot.events(), base.events()];
    let publisher = robot.publish("/image", "T/Image").unwrap();
    let _server = robot.serve("/switch", "T/Switch").unwrap();
    let refusal = |events: &Events| loop {
        let record = events.recv_timeout(DEADLINE).unwrap();
        let (Event::Refused { kind, name, reason, .. }
        | Event::RefusedByPeer { kind, name, reason, .. }) = &record.event
        else {
            continue;
        };
        let peer = record.peer.as_ref().unwrap().as_str().to_owned();
        return (peer, *kind, name.as_str().to_owned(), reason.as_str().to_owned());
    };
    let [(by, kind, name, reason), (of, ..)] = [&here, &there].map(refusal);
    assert_eq!((&*by, kind, &*name, &*of), ("base", Kind::Topic, "/image", "robot"));
    assert!(reason.contains("accept: { /image: T/Image }"), "{reason}");
    assert!(!publisher.is_subscribed());
    // The call waits because the robot's file lacks a line.
    let calls = std::thread::scope(|scope| {
        scope.spawn(|| base.call("/switch", "", DEADLINE)).join().unwrap()
    });
    assert!(matches!(calls, Err(CallError::Failed(_))), "{calls:?}");
    let (by, kind, name, reason) = refusal(&there);
    assert_eq!((&*by, kind, &*name), ("robot", Kind::Call, "/switch"));
    assert!(reason.contains("call: /switch"), "{reason}");
}

#[test]
fn too_large_messages_are_refused_after_the_first() {
    let mut nodes = pair(SENDS, &format!("{ACCEPTS}limits: {{ max_message: 1kB }}\n"));
    let publisher = nodes[0].publish("/image", "example/Image").unwrap();
    let subscription = nodes[1].subscribe("/image").unwrap();
    assert!(publisher.wait_for_subscriber(DEADLINE));
    let start = Instant::now();
    let refused = loop {
        assert!(start.elapsed() < DEADLINE, "no message is refused");
        match publisher.send(vec![0; 1001]) {
            Ok(()) => std::thread::yield_now(),
            Err(error) => break error,
        }
    };
    let (peer, most) = ("base".to_owned(), 32 << 20);
    let expected = SendError::TooLargeAtPeer { bytes: 1001, peer, allowed: 1000, most };
    assert_eq!(refused, expected);
    publisher.send("small").unwrap();
    assert_eq!(texts(&subscription, 1), ["small"]);
    nodes[0].handle().status().unwrap();
    // Nothing that the peer refuses is queued.
    assert_eq!(nodes[0].status().unwrap().peers[0].queued_messages, 0);
    nodes.reverse();
    nodes.into_iter().for_each(|node| node.close().unwrap());
}

#[test]
fn a_program_waits_for_three_subscriptions_and_a_service_at_once() {
    let [robot, base] = pair(
        &format!("    accept: [/stop]\n{SENDS}"),
        &format!("{ACCEPTS}    call: [/stop]\nservices: {{ /stop: {{}} }}\n"),
    );
    let topics = ["/a", "/b", "/c"];
    let subscriptions = topics.map(|topic| base.subscribe(topic).unwrap());
    let publishers = topics.map(|topic| robot.publish(topic, "T").unwrap());
    assert!(publishers.iter().all(|it| it.wait_for_subscriber(DEADLINE)));
    let server = base.serve("/stop", "example/Stop").unwrap();
    let [a, b, c] = &subscriptions;
    let receivers: [&dyn Wait; 4] = [a, b, c, &server];
    assert!(!wait(&receivers, Duration::ZERO).unwrap());
    for (publisher, subscription) in publishers.iter().zip(&subscriptions) {
        publisher.send("one").unwrap();
        assert!(wait(&receivers, DEADLINE).unwrap());
        assert_eq!(subscription.try_recv().unwrap().payload, "one");
        assert!(!wait(&receivers, Duration::ZERO).unwrap(), "it was taken");
    }
    std::thread::scope(|scope| {
        let call = scope.spawn(|| robot.call("/stop", "now", DEADLINE));
        assert!(wait(&receivers, DEADLINE).unwrap());
        server.try_recv().unwrap().answer(Ok("stopped"));
        assert_eq!(call.join().unwrap(), Ok(Bytes::from("stopped")));
    });
    base.close().unwrap();
    for receiver in receivers {
        // The descriptors stay readable.
        assert!((0..2).all(|_| wait(&[receiver], DEADLINE).unwrap()));
    }
    assert_eq!(a.try_recv(), Err(RecvError::Closed));
}

#[test]
fn a_program_that_returns_an_error_prints_it_for_a_person() {
    let error = Config::parse("name: x\nnonsense: 1").unwrap_err();
    assert_eq!(format!("{error:?}"), error.to_string());
    let address = UdpSocket::bind("127.0.0.1:0").unwrap();
    let text = format!("name: c\nlisten: \"{}\"\nsecurity: none", address.local_addr().unwrap());
    let error = Node::open(Config::parse(&text).unwrap()).map(drop).unwrap_err();
    assert!(format!("{error:?}").starts_with("cannot listen on 127.0.0.1:"), "{error:?}");
}

#[test]
fn refused_requests_name_the_missing_line() {
    let [robot, base] = pair("topics: { /a: {} }\nlimits: { max_message: 1kB }\n", ACCEPTS);
    let no_rule = robot.publish("/b", "T").map(drop).unwrap_err();
    assert_eq!(no_rule, PublishError::NoRule("/b".into()));
    assert!(no_rule.to_string().contains("'topics:'"), "{no_rule}");
    assert!(matches!(robot.serve("/s", "T").map(drop), Err(ServeError::NoRule(_))));
    assert!(matches!(robot.publish("a", "T").map(drop), Err(PublishError::Name(_))));
    assert!(base.subscribe("/a//b").map(drop).is_err());
    let publisher = robot.publish("/a", "T").unwrap();
    let other = robot.publish("/a", "U").map(drop);
    assert!(matches!(other, Err(PublishError::OtherType { .. })), "{other:?}");
    let too_large = publisher.send(vec![0; 1001]);
    assert_eq!(too_large, Err(SendError::TooLarge { bytes: 1001, most: 1000 }));
    let many: Vec<_> = (1..64).map(|_| robot.publish("/a", "T").unwrap()).collect();
    assert_eq!(robot.publish("/a", "T").map(drop), Err(PublishError::TooMany("/a".into())));
    drop((publisher, many));
    robot.publish("/a", "U").unwrap();
    let address = robot.status().unwrap().listen;
    let text = format!("name: c\nlisten: \"{address}\"\nsecurity: none\nbeacons: false");
    let error = Node::open(Config::parse(&text).unwrap()).map(drop).unwrap_err();
    assert!(matches!(error, OpenError::Listen { .. }), "{error}");
    let error = Config::parse("name: x\nnonsense: 1").unwrap_err().to_string();
    assert!(error.contains("configuration:2:1: found the unknown key 'nonsense'"), "{error}");
}

/// The program's end at a data plane that does not run.
fn gateway(inlet: &Inlet) -> ProgramGateway {
    ProgramGateway(Participant::new(inlet.clone(), Arc::new(|_| true), LARGE))
}

/// Bytes of a large message.
const LARGE: usize = 1 << 20;

#[test]
fn a_subscription_that_nobody_reads_does_not_starve_the_others() {
    let [robot, base] = pair(SENDS, ACCEPTS);
    let unread = base.subscribe("/image").unwrap();
    let subscription = base.subscribe("/image").unwrap();
    let publisher = robot.publish("/image", "example/Image").unwrap();
    assert!(publisher.wait_for_subscriber(DEADLINE));
    // These exceed HELD_BYTES and MAX_HELD_BYTES of the peer. A busy machine takes seconds for one.
    for number in 0..140 {
        publisher.send(vec![number; LARGE]).unwrap();
        let message = subscription.recv_timeout(DEADLINE).unwrap();
        assert_eq!((message.payload.len(), message.payload[0]), (LARGE, number));
    }
    assert_eq!((subscription.dropped(), unread.dropped()), (0, 132));
    assert_eq!(unread.recv().unwrap().payload[0], 132);
}

#[test]
fn a_request_whose_caller_timed_out_is_not_received() {
    let (inlet, inputs) = Inlet::new().unwrap();
    let gateway = gateway(&inlet);
    let server = service::serve(&gateway.0, "/a", "T").unwrap();
    let call = |call, request: Bytes, time_limit| {
        let service = "/a".into();
        gateway.handle(Command::Call { service, call, request, time_limit, peer: 0 });
    };
    call(1, "expired".into(), Duration::ZERO);
    call(2, vec![0; 8 << 20].into(), DEADLINE);
    call(3, "too much".into(), DEADLINE);
    let refused = gateway.0.take_unreported_events().unwrap();
    let refused = refused.iter().filter_map(|it| match it {
        GatewayEvent::Answered { call, outcome: Err(_), .. } => Some(*call),
        _ => None,
    });
    assert_eq!(refused.collect::<Vec<_>>(), [3]);
    call(4, "again expired".into(), Duration::ZERO);
    assert_eq!(server.try_recv().unwrap().payload.len(), 8 << 20);
    assert_eq!(server.try_recv().map(drop), Err(RecvError::TimedOut));
    // The second request was dropped without a response.
    assert_eq!(inputs.try_iter().count(), 1);
}

fn of_publisher(gateway: &ProgramGateway, topic: &str, name: &str, qos: Qos) -> Publisher {
    Publisher::new(&gateway.0, topic, name.into(), qos).unwrap()
}

/// Passes what the program has changed to the data plane.
fn announce(gateway: &ProgramGateway) {
    gateway.0.take_unreported_events().unwrap().into_iter().for_each(|it| _ = gateway.0.emit(it));
    gateway.0.mark_announced();
}

fn subscribe(gateway: &ProgramGateway) {
    gateway.handle(Command::Subscribe { topic: "/a".into() });
}

/// The events at the data plane, in short.
fn input_words(inputs: &std::sync::mpsc::Receiver<Input>) -> Vec<String> {
    let text = |input| match input {
        Input::Local(GatewayEvent::Offered(topic)) => format!("offered {}", topic.type_name),
        Input::Local(GatewayEvent::Withdrawn { .. }) => "withdrawn".into(),
        Input::Local(GatewayEvent::SourceGone { source, .. }) => format!("{} left", source.number),
        Input::Local(GatewayEvent::Message { payload, origin, source, .. }) => {
            let is_history = origin.kept.is_some_and(|it| it.is_history);
            let kind = if is_history { "again" } else { "new" };
            format!("{} {kind} {}", source.number, String::from_utf8_lossy(&payload))
        }
        Input::Local(GatewayEvent::ServiceOffered(it)) => format!("served {}", it.type_name),
        Input::Local(GatewayEvent::ServiceWithdrawn { .. }) => "not served".into(),
        _ => "other".into(),
    };
    inputs.try_iter().map(text).collect()
}

fn transient_local() -> Qos {
    Qos { transient_local: true, depth: 2, ..Qos::default() }
}

#[test]
fn repeated_messages_precede_new_ones() {
    let (inlet, inputs) = Inlet::new().unwrap();
    let gateway = gateway(&inlet);
    let publisher = of_publisher(&gateway, "/a", "T", transient_local());
    let other = of_publisher(&gateway, "/a", "T", transient_local());
    announce(&gateway);
    publisher.send("one").unwrap();
    other.send("two").unwrap();
    assert_eq!(input_words(&inputs), ["offered T"]);
    subscribe(&gateway);
    // The announcer has taken the events, but has not passed them yet.
    let events = gateway.0.take_unreported_events().unwrap();
    publisher.send("three").unwrap();
    assert_eq!(input_words(&inputs), ["0 again one", "0 new three"]);
    events.into_iter().for_each(|it| _ = gateway.0.emit(it));
    gateway.0.mark_announced();
    assert_eq!(input_words(&inputs), ["1 again two"]);
    publisher.send("four").unwrap();
    assert_eq!(input_words(&inputs), ["0 new four"]);
}

#[test]
fn a_closing_node_sends_messages_for_a_new_subscriber() {
    let (inlet, inputs) = Inlet::new().unwrap();
    let gateway = gateway(&inlet);
    let publisher = of_publisher(&gateway, "/a", "T", transient_local());
    announce(&gateway);
    publisher.send("one").unwrap();
    subscribe(&gateway);
    let participant = gateway.0.clone();
    let closes = std::thread::spawn(move || {
        participant.stop_sending(DEADLINE);
        participant.emit(GatewayEvent::Withdrawn { topic: "/a".into() });
    });
    announce(&gateway);
    closes.join().unwrap();
    assert_eq!(input_words(&inputs), ["offered T", "0 again one", "withdrawn"]);
}

#[test]
fn messages_of_another_type_wait_until_the_data_plane_knows_it() {
    let (inlet, inputs) = Inlet::new().unwrap();
    let gateway = gateway(&inlet);
    let first = of_publisher(&gateway, "/a", "X", transient_local());
    announce(&gateway);
    subscribe(&gateway);
    first.send("one").unwrap();
    drop(first);
    let second = of_publisher(&gateway, "/a", "Y", transient_local());
    second.send("two").unwrap();
    assert!(!second.is_subscribed());
    assert_eq!(input_words(&inputs), ["offered X", "0 new one"]);
    announce(&gateway);
    second.send("three").unwrap();
    assert_eq!(input_words(&inputs), ["offered Y", "0 left"]);
    subscribe(&gateway);
    announce(&gateway);
    assert!(second.is_subscribed());
    assert_eq!(input_words(&inputs), ["1 again two", "1 again three"]);
    // Other policies alone interrupt no messages.
    let third = of_publisher(&gateway, "/a", "Y", Qos { depth: 3, ..transient_local() });
    let events = gateway.0.take_unreported_events().unwrap();
    third.send("four").unwrap();
    assert_eq!((events.len(), input_words(&inputs)), (1, vec!["2 new four".to_owned()]));
}

#[test]
fn publisher_ids_are_not_reused_immediately() {
    let (inlet, inputs) = Inlet::new().unwrap();
    let gateway = gateway(&inlet);
    let first = of_publisher(&gateway, "/a", "T", transient_local());
    announce(&gateway);
    subscribe(&gateway);
    first.send("one").unwrap();
    drop(first);
    let second = of_publisher(&gateway, "/a", "T", transient_local());
    second.send("two").unwrap();
    announce(&gateway);
    assert_eq!(input_words(&inputs), ["offered T", "0 new one", "1 new two", "0 left"]);
}

#[test]
fn a_service_whose_servers_are_gone_is_withdrawn_whatever_their_types() {
    let (inlet, inputs) = Inlet::new().unwrap();
    let gateway = gateway(&inlet);
    let serve = |name: &str| service::serve(&gateway.0, "/a", name).unwrap();
    let first = serve("A");
    announce(&gateway);
    drop(first);
    let second = serve("B");
    announce(&gateway);
    drop(second);
    drop(serve("C"));
    announce(&gateway);
    assert_eq!(input_words(&inputs), ["served A", "served B", "not served"]);
}

#[test]
fn messages_sent_just_before_closing_arrive() {
    let [robot, base] = pair(SENDS, ACCEPTS);
    let subscription = base.subscribe("/map").unwrap();
    let publisher = robot.publish_with("/map", "example/Map", transient_local()).unwrap();
    assert!(publisher.wait_for_subscriber(DEADLINE));
    publisher.send("one").unwrap();
    robot.close().unwrap();
    assert_eq!(texts(&subscription, 1), ["one"]);
}
