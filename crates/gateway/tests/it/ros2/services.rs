// SPDX-License-Identifier: Apache-2.0
//! Services: called and served by real nodes, of Fast DDS and in the manner of rmw_cyclonedds.

use serde_json::{Value, json};
use tautline_gateway::ros2::DiscoveryRange;
use tautline_gateway::{Event, Service};
use tautline_testkit::ros::ros2::{runs_in_own_network, start, start_cyclone, watch};
use tautline_testkit::ros::{Agent, MAX_MESSAGE, Watched, assert_names, bytes_of, wait_for};

const BOOL: &str = "std_srvs/srv/SetBool";
const CAMERA: &str = "sensor_msgs/srv/SetCameraInfo";
/// RIHS01 of std_srvs/srv/SetBool_Request.
const BOOL_HASH: &str = "RIHS01_c62fbb99d94e1b25e8ef9e109f9581956bb1b3361a45a4e5810c36a90d29932e";

/// A request of SetBool as CDR.
fn request(value: bool) -> Vec<u8> {
    vec![0, 1, 0, 0, value.into()]
}

/// A response of SetBool as CDR.
fn response(success: bool, message: &str) -> Vec<u8> {
    let length = u32::try_from(message.len() + 1).unwrap().to_le_bytes();
    [&request(success)[..], &[0; 3], &length, message.as_bytes(), &[0]].concat()
}

/// The fields of a response of SetBool, without the padding between them.
fn response_fields(response: &[u8]) -> (bool, String) {
    let length = u32::from_le_bytes(response[8..12].try_into().unwrap()) as usize;
    (response[4] == 1, String::from_utf8(response[12..11 + length].to_vec()).unwrap())
}

fn bool_service(name: &str) -> Service {
    Service {
        name: name.into(),
        type_name: BOOL.into(),
        type_hash: BOOL_HASH.into(),
        definition: "bool data\n---\nbool success\nstring message\n".into(),
    }
}

/// Services of one type, as an rclpy node serves and calls them.
trait BoolCalls {
    fn serve(&mut self, service: &str, message: &str, more: Value);

    fn call(&mut self, service: &str, data: bool, id: u32);
}

impl BoolCalls for Agent {
    fn serve(&mut self, service: &str, message: &str, more: Value) {
        let fields = json!({"success": true, "message": message});
        let mut order = json!({"do": "serve", "service": service, "type": BOOL, "fields": fields});
        order.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.order(order);
    }

    fn call(&mut self, service: &str, data: bool, id: u32) {
        let fields = json!({"data": data});
        let order =
            json!({"do": "call", "service": service, "type": BOOL, "fields": fields, "id": id});
        assert_eq!(self.order(order)["found"], true, "{service} was not found");
    }
}

fn refused(gateway: &Watched, call: u64, parts: &[&str]) {
    assert_names(&gateway.answered(call).unwrap_err(), parts);
}

#[test]
fn a_local_server_is_offered_and_called() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = watch(DiscoveryRange::Machine, "calls");
    let mut agent = start("kilted", "SUBNET", "calls_agent");
    agent.serve("/theirs", "done", json!({}));
    let service = gateway.service_offered_since(0, "/theirs");
    assert_eq!((service.type_name.as_str(), service.type_hash.as_str()), (BOOL, BOOL_HASH));
    assert_names(&service.definition, &["bool data", "\n---\n", "string message"]);

    // The first call may find no server yet: it waits, and is sent once.
    for call in 0..30 {
        gateway.call("/theirs", call, &request(call % 2 == 0), 30);
        gateway.call("/theirs", call, &request(call % 2 == 0), 30);
    }
    for call in 0..30 {
        assert_eq!(response_fields(&gateway.answered(call).unwrap()), (true, "done".into()));
    }
    // The server's report of a request may arrive after its answer.
    wait_for("30 requests", || (agent.served("/theirs").len() >= 30).then_some(()));
    assert_eq!((agent.served("/theirs").len(), gateway.outcomes()), (30, 30));

    // 900 000 bytes each way.
    let text = "x".repeat(900_000);
    let camera = json!({"do": "serve", "service": "/camera", "type": CAMERA, "echo": true});
    agent.order(camera);
    assert!(
        gateway
            .service_offered_since(0, "/camera")
            .definition
            .contains("MSG: sensor_msgs/CameraInfo")
    );
    let fields = json!({"camera_info": {"distortion_model": text}});
    let probe =
        json!({"do": "call", "service": "/camera", "type": CAMERA, "fields": fields, "id": 1});
    let large = bytes_of(&agent.order(probe));
    gateway.call("/camera", 100, &large, 30);
    let answer = gateway.answered(100).unwrap();
    assert!(answer.len() > 900_000, "{}", answer.len());

    gateway.call("/theirs", 101, &[], 30);
    refused(&gateway, 101, &["request", "CDR"]);
    gateway.call("/nobody", 102, &request(true), 1);
    refused(&gateway, 102, &["no server of /nobody within 1 s"]);
    let shown = agent.order(json!({"do": "graph", "topic": "/theirs"}));
    assert!(shown["nodes"].as_array().unwrap().contains(&json!("/tautline_calls")));
    gateway.shutdown();
}

#[test]
fn late_clients_are_served_in_a_busy_domain() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = watch(DiscoveryRange::Machine, "later");
    let camera =
        Service { type_name: CAMERA.into(), type_hash: String::new(), ..bool_service("/camera") };
    gateway.serve(&camera);
    // The type contains types that other endpoints have as well. Cyclone DDS asked Fast DDS about
    // them, and ignored every later endpoint of a type that it could not read.
    let mut server = start("kilted", "SUBNET", "server");
    server.order(json!({"do": "serve", "service": "/own", "type": CAMERA}));
    let mut others = Vec::new();
    for number in 0..4 {
        let mut client = start("kilted", "SUBNET", &format!("client{number}"));
        let seen = gateway.event_count();
        let call =
            json!({"do": "call", "service": "/camera", "type": CAMERA, "fields": {}, "id": 0});
        assert_eq!(client.order(call)["found"], true);
        gateway.wait_since(seen, &format!("call of client {number}"), |event| {
            matches!(event, Event::Called { .. }).then_some(())
        });
        // After the first client two publishers come, each in a process of its own.
        for (name, type_name, qos) in [
            ("twist", "geometry_msgs/msg/Twist", json!({})),
            ("text", "std_msgs/msg/String", json!({"latch": true})),
        ] {
            if number == 0 {
                let mut other = start("kilted", "SUBNET", name);
                other.publisher(&format!("/{name}"), type_name, qos);
                gateway.offered(&format!("/{name}"));
                others.push(other);
            }
        }
    }
}

#[test]
fn local_clients_are_served_and_answered_out_of_order() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = watch(DiscoveryRange::Machine, "serves");
    gateway.serve(&bool_service("/switch"));
    let mut clients = [start("kilted", "SUBNET", "one"), start("jazzy", "SUBNET", "two")];
    for (number, client) in clients.iter_mut().enumerate() {
        for id in 0..3 {
            client.call("/switch", number == 0, id);
        }
    }
    let calls = wait_for("six calls", || {
        let events = gateway.events();
        let mut calls = Vec::new();
        for event in events {
            if let Event::Called { call, request, .. } = event {
                calls.push((call, request));
            }
        }
        (calls.len() == 6).then_some(calls)
    });
    // The first call of each client is answered last, and one is answered twice.
    for (call, sent) in calls.iter().rev() {
        let message = format!("{call} {}", sent[4]);
        gateway.answer("/switch", *call, Ok(response(true, &message).into()));
        gateway.answer("/switch", *call, Ok(response(true, "again").into()));
    }
    let expected = |data: u8| calls.iter().filter(move |(_, sent)| sent[4] == data);
    for (client, data) in clients.iter().zip([1, 0]) {
        for (id, (call, _)) in expected(data).enumerate() {
            let answer = client.answered(u32::try_from(id).unwrap());
            assert_eq!(response_fields(&answer), (true, format!("{call} {data}")));
        }
    }
    let shown = wait_for("our service in the graph", || {
        let order = json!({"do": "service_graph", "name": "tautline_serves"});
        let shown = clients[0].order(order)["services"]["/switch"].clone();
        (shown != Value::Null).then_some(shown)
    });
    assert_eq!(shown, json!([BOOL]));

    // ROS 2 has no error reply for a failed call; status reports it.
    clients[0].call("/switch", true, 7);
    let last = wait_for("one more call", || {
        let events = gateway.events();
        events
            .iter()
            .rev()
            .find_map(|event| match event {
                Event::Called { call, .. } => Some(*call),
                _ => None,
            })
            .filter(|last| !calls.iter().any(|(call, _)| call == last))
    });
    gateway.answer("/switch", last, Err("the peer is away".into()));
    // Calls about goals do get a reply: a cancellation is rejected (ERROR_REJECTED).
    let (cancel, cancel_type) = ("/go/_action/cancel_goal", "action_msgs/srv/CancelGoal");
    gateway.serve(&Service {
        type_name: cancel_type.into(),
        type_hash: String::new(),
        ..bool_service(cancel)
    });
    for (number, client) in clients.iter_mut().enumerate() {
        let order = json!({"do": "call", "service": cancel, "type": cancel_type, "fields": {},
            "id": 8});
        assert_eq!(client.order(order)["found"], true);
        let calls = || {
            let events = gateway.events().into_iter();
            let calls = events.filter_map(|event| match event {
                Event::Called { service, call, .. } if service == cancel => Some(call),
                _ => None,
            });
            calls.collect::<Vec<_>>()
        };
        let call = wait_for("cancellation", || calls().get(number).copied());
        gateway.answer(cancel, call, Err("the peer is away".into()));
        let answer = client.answered(8);
        // Bytes between the code and the length of the list have no meaning.
        assert_eq!((answer[4], &answer[8..12]), (1, &[0; 4][..]));
    }
    // A goal that is too large is reported, and handed over without its content to be refused.
    let goal = "/go/_action/send_goal";
    gateway.serve(&Service {
        type_name: CAMERA.into(),
        type_hash: String::new(),
        ..bool_service(goal)
    });
    let fields = json!({"camera_info": {"distortion_model": "x".repeat(MAX_MESSAGE)}});
    let order = json!({"do": "call", "service": goal, "type": CAMERA, "fields": fields, "id": 9});
    assert_eq!(clients[0].order(order)["found"], true);
    assert_names(&gateway.refusal(goal), &["limits.max_message", &MAX_MESSAGE.to_string()]);
    let kept = gateway.wait("the goal", |event| match event {
        Event::Interrupted { service, request, .. } if service == goal => Some(request.len()),
        _ => None,
    });
    assert_eq!(kept, 20);
    wait_for("trouble", || (!gateway.status().trouble.is_empty()).then_some(()));
    assert_names(&gateway.status().trouble, &["/switch failed: the peer is away"]);
    gateway.unserve("/switch");
    wait_for("no service in the graph", || {
        let order = json!({"do": "service_graph", "name": "tautline_serves"});
        clients[0].order(order)["services"].get("/switch").is_none().then_some(())
    });
}

#[test]
fn calls_end_when_their_server_leaves_and_another_is_found() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = watch(DiscoveryRange::Machine, "leaves");
    let mut agent = start("kilted", "SUBNET", "first");
    agent.serve("/slow", "late", json!({"hold": true}));
    gateway.service_offered_since(0, "/slow");
    gateway.call("/slow", 1, &request(true), 1);
    refused(&gateway, 1, &["no answer from /slow within 1 s"]);
    gateway.call("/slow", 2, &request(false), 1000);
    wait_for("request", || (agent.served("/slow").len() == 2).then_some(()));
    // A late reply to the first call is ignored; calls are answered out of order.
    gateway.call("/slow", 3, &[0, 1, 0, 0, 1, 0, 0, 0], 1000);
    wait_for("request", || (agent.served("/slow").len() == 3).then_some(()));
    let last = agent.served("/slow")[2]["hex"].clone();
    agent.order(json!({"do": "release", "hex": last}));
    assert_eq!(response_fields(&gateway.answered(3).unwrap()), (true, "late".into()));
    let seen = gateway.event_count();
    agent.leave();
    refused(&gateway, 2, &["server of /slow left"]);
    gateway.wait_service_withdrawn_since(seen, "/slow");
    // A waiting call finds the next server.
    gateway.call("/slow", 4, &request(true), 1000);
    let mut agent = start("jazzy", "SUBNET", "second");
    agent.serve("/slow", "anew", json!({}));
    assert_eq!(response_fields(&gateway.answered(4).unwrap()), (true, "anew".into()));
    assert_eq!(gateway.outcomes(), 4);
}

#[test]
fn rmw_cyclonedds_is_called_and_served_and_actions_keep_their_names() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = watch(DiscoveryRange::Machine, "cyclone");
    let mut agent = start_cyclone(&["cyclone"]);
    for (service, dds_type, ros_type) in [
        ("/plain", "std_srvs::srv::dds_::SetBool", BOOL),
        ("/fib/_action/send_goal", "a::action::dds_::Fib_SendGoal", "a/action/Fib_SendGoal"),
    ] {
        agent.order(json!({"do": "serve", "service": service, "dds_type": dds_type}));
        let offered = gateway.service_offered_since(0, service);
        // It announces no hash; the hash of an installed type is computed.
        let hash = if ros_type == BOOL { BOOL_HASH } else { "" };
        assert_eq!((offered.type_name.as_str(), offered.type_hash.as_str()), (ros_type, hash));
        for (call, data) in [(service.len() as u64, true), (100 + service.len() as u64, false)] {
            gateway.call(service, call, &request(data), 30);
            let text = if data { "cyclone True" } else { "cyclone False" };
            assert_eq!(response_fields(&gateway.answered(call).unwrap()), (data, text.into()));
        }
        let copy = format!("/copy{service}");
        gateway.serve(&Service { name: copy.clone(), ..offered });
        let order =
            json!({"do": "call", "service": copy, "dds_type": dds_type, "data": true, "id": 3});
        let begun = agent.order(order);
        assert!(begun["guid"].as_str().unwrap().starts_with("0110"), "{begun}");
        let call = gateway.called(&copy, &request(true));
        gateway.answer(&copy, call, Ok(response(true, "for cyclone").into()));
        agent.wait("answer", |it| it["answered"] == 3 && it["message"] == "for cyclone");
    }

    // A client on Fast DDS of the same service of ours.
    let mut fast = start("kilted", "SUBNET", "fast");
    gateway.serve(&bool_service("/both"));
    fast.call("/both", true, 1);
    let call = gateway.called("/both", &request(true));
    gateway.answer("/both", call, Ok(response(true, "for fast").into()));
    assert_eq!(response_fields(&fast.answered(1)), (true, "for fast".into()));
    let cancel = json!({"do": "serve", "service": "/fib/_action/cancel_goal",
        "type": "action_msgs/srv/CancelGoal", "fields": {"return_code": 2}});
    fast.order(cancel);
    let offered = gateway.service_offered_since(0, "/fib/_action/cancel_goal");
    assert_eq!(offered.type_name, "action_msgs/srv/CancelGoal");
    let everything = [&[0, 1, 0, 0][..], &[0; 24]].concat();
    gateway.call("/fib/_action/cancel_goal", 7, &everything, 30);
    assert_eq!(gateway.answered(7).unwrap()[4], 2);
}

#[test]
fn services_of_tautline_are_not_offered_and_those_of_local_nodes_not_served() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = watch(DiscoveryRange::Machine, "own");
    // Another Tautline node, by its user data. It serves one service, and calls another one of ours.
    let mut other = start_cyclone(&["other", "tautline=other;"]);
    let dds_type = "std_srvs::srv::dds_::SetBool";
    other.order(json!({"do": "serve", "service": "/others", "dds_type": dds_type}));
    let mut agent = start("kilted", "SUBNET", "agent");
    gateway.serve(&bool_service("/ours"));
    other.order(
        json!({"do": "call", "service": "/ours", "dds_type": dds_type, "data": true, "id": 1}),
    );
    agent.call("/ours", true, 1);
    let call = gateway.called("/ours", &request(true));

    agent.serve("/local", "mine", json!({}));
    gateway.service_offered_since(0, "/local");
    gateway.serve(&bool_service("/local"));
    assert_names(&gateway.refusal("/local"), &["serve it themselves", BOOL]);
    assert_names(&gateway.status().trouble, &["/local"]);
    // Once the local node no longer serves it, the peers' service is served.
    agent.order(json!({"do": "unserve", "service": "/local"}));
    gateway.wait_service_withdrawn_since(0, "/local");
    wait_for("/local of ours alone", || {
        let order = json!({"do": "service_graph", "name": "tautline_own"});
        (!agent.order(order)["services"]["/local"].is_null()).then_some(())
    });
    agent.call("/local", false, 2);
    let second = gateway.called("/local", &request(false));
    for (service, call, id) in [("/ours", call, 1), ("/local", second, 2)] {
        gateway.answer(service, call, Ok(response(true, service).into()));
        assert_eq!(response_fields(&agent.answered(id)), (true, service.into()));
    }
    assert!(!gateway.status().trouble.contains("/local"), "{}", gateway.status().trouble);

    let calls = gateway.events();
    assert_eq!(calls.iter().filter(|it| matches!(it, Event::Called { .. })).count(), 2);
    let misread = format!("RIHS01_{}", "0".repeat(64));
    gateway.serve(&Service { type_hash: misread.clone(), ..bool_service("/ours") });
    assert_names(&gateway.refusal("/ours"), &[BOOL, BOOL_HASH, &misread]);
    gateway.serve(&Service { type_name: "SetBool".into(), ..bool_service("/odd") });
    assert_names(&gateway.refusal("/odd"), &["'SetBool'", "package/srv/Type"]);
    let offered = gateway.events().into_iter().filter_map(|event| match event {
        Event::ServiceOffered(service) if service.type_name == BOOL => Some(service.name),
        _ => None,
    });
    assert_eq!(offered.collect::<Vec<_>>(), ["/local"]);
}

#[test]
fn the_first_request_of_a_new_client_is_not_lost() {
    if !runs_in_own_network() {
        return;
    }
    let gateway = watch(DiscoveryRange::Machine, "first");
    let [ours, theirs] =
        ["s", "t"].map(|kind| (0..60).map(|number| format!("/{kind}{number}")).collect::<Vec<_>>());
    ours.iter().for_each(|name| gateway.serve(&bool_service(name)));
    let mut server = start("kilted", "SUBNET", "first_server");
    theirs.iter().for_each(|name| server.serve(name, "done", json!({})));
    let mut agent = start("kilted", "SUBNET", "first_agent");
    // Requests that were sent before a server had matched the client's writer wait for its next
    // heartbeat after three seconds, unless the server requests them.
    let slow = |agent: &Agent, names: &[String]| {
        let took = names.iter().map(|name| {
            let report = agent.wait(name, |report| report["rushed"] == *name);
            report["seconds"].as_f64().unwrap()
        });
        took.filter(|seconds| *seconds > 2.9).count()
    };
    agent.order(json!({"do": "rush", "services": ours, "type": BOOL}));
    for name in &ours {
        let call = gateway.called(name, &request(false));
        gateway.answer(name, call, Ok(response(true, "done").into()));
    }
    let of_ours = slow(&agent, &ours);
    agent.order(json!({"do": "rush", "services": theirs, "type": BOOL}));
    let of_a_plain_server = slow(&agent, &theirs);
    assert!(of_ours <= of_a_plain_server, "{of_ours} {of_a_plain_server}");
}
