// SPDX-License-Identifier: Apache-2.0
//! Services between the gateway and real rospy nodes.

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use tautline_gateway::ros1::header::Header;
use tautline_gateway::{Event, Service};
use tautline_testkit::ros::ros1::{Master, start, watch};
use tautline_testkit::ros::{
    Agent, MAX_MESSAGE, Watched, assert_names, bytes_of, free_port, wait_for,
};

const CAMERA: &str = "sensor_msgs/SetCameraInfo";
const LEVEL: &str = "roscpp/SetLoggerLevel";
/// The md5 of roscpp/SetLoggerLevel.
const LEVEL_MD5: &str = "51da076440d78ca1684d36c868df61ea";

pub fn level_service(name: &str) -> Service {
    Service {
        name: name.into(),
        type_name: LEVEL.into(),
        type_hash: LEVEL_MD5.into(),
        definition: "string logger\nstring level\n---\n".into(),
    }
}

/// A request of SetLoggerLevel.
pub fn level(logger: &str) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
    [text(logger), text("x")].concat()
}

/// A response of SetCameraInfo.
fn camera_response(text: &str) -> Vec<u8> {
    [&[1][..], &u32::try_from(text.len()).unwrap().to_le_bytes(), text.as_bytes()].concat()
}

/// Services of one type, as a rospy node serves and calls them.
trait LevelCalls {
    fn serve_level(&mut self, service: &str, more: &Value);

    fn call_level(&mut self, service: &str, logger: &str, id: u32, times: u32);

    /// What rospy says of a call that failed.
    fn failure(&self, id: u32) -> String;

    fn services_of(&mut self, node: &str) -> Value;
}

impl LevelCalls for Agent {
    fn serve_level(&mut self, service: &str, more: &Value) {
        let mut order = json!({"do": "serve", "service": service, "type": LEVEL});
        order.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(self.order(order)["md5"], LEVEL_MD5);
    }

    fn call_level(&mut self, service: &str, logger: &str, id: u32, times: u32) {
        let fields = json!({"logger": logger, "level": "x"});
        self.order(json!({"do": "call_service", "service": service, "type": LEVEL,
            "fields": fields, "id": id, "times": times}));
    }

    fn failure(&self, id: u32) -> String {
        let report = self.wait(&format!("failure of {id}"), |report| report["answered"] == id);
        report["error"].as_str().unwrap_or_else(|| panic!("{report}")).to_owned()
    }

    fn services_of(&mut self, node: &str) -> Value {
        self.order(json!({"do": "registered", "node": node}))["services"].clone()
    }
}

fn refused(gateway: &Watched, call: u64, parts: &[&str]) {
    assert_names(&gateway.answered(call).unwrap_err(), parts);
}

#[test]
fn a_local_server_is_offered_and_called() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "calls");
    let mut agent = start(&master.uri, "/calls_agent");
    agent.serve_level("/calls/level", &json!({"hold": true}));
    let service = gateway.service_offered_since(0, "/calls/level");
    assert_eq!((service.type_name.as_str(), service.type_hash.as_str()), (LEVEL, LEVEL_MD5));

    // The calls are answered in reverse order. A repeated call is sent once.
    for (call, logger) in [(1, "one"), (2, "two"), (2, "two")] {
        gateway.call("/calls/level", call, &level(logger), 1000);
    }
    wait_for("two requests", || (agent.served("/calls/level").len() == 2).then_some(()));
    for (call, logger) in [(2, "two"), (1, "one")] {
        assert_eq!(gateway.outcomes(), 2 - call as usize);
        let hex: String = level(logger).iter().map(|byte| format!("{byte:02x}")).collect();
        agent.order(json!({"do": "release", "hex": hex}));
        assert_eq!(gateway.answered(call).unwrap(), vec![]);
    }
    gateway.call("/calls/level", 3, &level("three"), 1);
    refused(&gateway, 3, &["no answer from /calls/level within 1 s"]);
    gateway.call("/calls/nobody", 4, &level("x"), 1);
    refused(&gateway, 4, &["no server of /calls/nobody within 1 s", "lookupService"]);
    agent.serve_level("/calls/fails", &json!({"fail": "out of paper"}));
    gateway.call("/calls/fails", 5, &level("x"), 1000);
    refused(&gateway, 5, &["out of paper"]);

    // 900 000 bytes each way, and then more than is allowed.
    agent.order(json!({"do": "serve", "service": "/calls/camera", "type": CAMERA, "echo": true}));
    assert_eq!(gateway.service_offered_since(0, "/calls/camera").type_name, CAMERA);
    let text = "x".repeat(900_000);
    let fields = json!({"camera_info": {"distortion_model": text}});
    let sent = agent.order(json!({"do": "call_service", "service": "/calls/camera",
        "type": CAMERA, "fields": fields, "id": 1}));
    gateway.call("/calls/camera", 6, &bytes_of(&sent), 1000);
    assert_eq!(gateway.answered(6).unwrap(), camera_response(&text));
    let fields = json!({"camera_info": {"distortion_model": "x".repeat(MAX_MESSAGE)}});
    let sent = agent.order(json!({"do": "call_service", "service": "/calls/camera",
        "type": CAMERA, "fields": fields, "id": 2}));
    gateway.call("/calls/camera", 7, &bytes_of(&sent), 1000);
    refused(&gateway, 7, &["the response has 1000005 bytes", "1000000"]);

    let seen = gateway.event_count();
    agent.order(json!({"do": "unserve", "service": "/calls/camera"}));
    gateway.wait_service_withdrawn_since(seen, "/calls/camera");
    assert_eq!(gateway.outcomes(), 7);
}

#[test]
fn local_clients_are_served_and_answered_out_of_order() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "serves");
    gateway.serve(&level_service("/served/level"));
    let mut clients = [start(&master.uri, "/serves_one"), start(&master.uri, "/serves_two")];
    for (client, logger) in clients.iter_mut().zip(["one", "two"]) {
        client.call_level("/served/level", logger, 1, 1);
    }
    let calls = ["one", "two"].map(|logger| gateway.called("/served/level", &level(logger)));
    gateway.answer("/served/level", calls[1], Ok(vec![].into()));
    assert!(clients[1].answered(1).is_empty());
    gateway.answer("/served/level", calls[0], Err("the peer is away".into()));
    assert_names(&clients[0].failure(1), &["the peer is away"]);
    // An answer to a call that is over has no effect.
    gateway.answer("/served/level", calls[0], Ok(vec![].into()));

    // Several calls over one connection.
    clients[0].call_level("/served/level", "kept", 10, 3);
    for id in 10..13 {
        let count = id as usize - 9;
        let call = wait_for("next call", || {
            let calls: Vec<u64> = gateway
                .events()
                .iter()
                .filter_map(|event| match event {
                    Event::Called { call, request, .. } if *request == level("kept") => Some(*call),
                    _ => None,
                })
                .collect();
            calls.get(count - 1).copied()
        });
        gateway.answer("/served/level", call, Ok(vec![].into()));
        assert!(clients[0].answered(id).is_empty());
    }

    // A call with another type is refused. Then the service ends while a call is pending.
    let fields = json!({});
    clients[1].order(json!({"do": "call_service", "service": "/served/level", "type": CAMERA,
        "fields": fields, "id": 20}));
    // rospy reports only that it was refused, not why.
    clients[1].failure(20);
    clients[1].call_level("/served/level", "last", 30, 1);
    gateway.called("/served/level", &level("last"));
    gateway.unserve("/served/level");
    assert_names(&clients[1].failure(30), &["not served here any more"]);
    wait_for("end of the registration", || {
        (clients[0].services_of("/tautline_serves") == json!([])).then_some(())
    });
}

/// Connects to a service and exchanges headers.
pub fn connect(service: &str, fields: &[(&str, &str)], address: &str) -> (TcpStream, Header) {
    let header = Header::default().with("service", service).with("callerid", "/raw");
    let header = fields.iter().fold(header, |header, (key, value)| header.with(key, value));
    greet(address, &header)
}

/// A connection that sent `header`, with the header of the answer.
pub fn greet(address: &str, header: &Header) -> (TcpStream, Header) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&header.encode()).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut bytes).unwrap();
    (stream, Header::parse(&bytes).unwrap())
}

/// The address of a service, according to the master.
pub fn address(agent: &mut Agent, service: &str) -> String {
    wait_for("registration", || {
        let found = agent.order(json!({"do": "where", "service": service}));
        Some(found["uri"].as_str()?.strip_prefix("rosrpc://")?.to_owned())
    })
}

#[test]
fn service_probes_are_answered_and_invalid_requests_refused() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "raw");
    gateway.serve(&level_service("/raw_in/level"));
    let mut agent = start(&master.uri, "/raw_agent");
    let address = address(&mut agent, "/raw_in/level");
    let (mut stream, header) =
        connect("/raw_in/level", &[("probe", "1"), ("md5sum", "*")], &address);
    assert_eq!((header.get("type"), header.get("md5sum")), (Some(LEVEL), Some(LEVEL_MD5)));
    assert_eq!(header.get("request_type"), Some("roscpp/SetLoggerLevelRequest"));
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "closed");

    let (_, header) = connect("/raw_in/level", &[("md5sum", "00"), ("type", "a/B")], &address);
    assert_names(header.get("error").unwrap(), &["/raw", "a/B", "00", LEVEL, LEVEL_MD5]);
    let (_, header) = connect("/raw_in/nothing", &[("md5sum", "*")], &address);
    assert_names(header.get("error").unwrap(), &["does not serve '/raw_in/nothing'"]);
    let (_, header) = connect("/raw_in/level", &[("md5sum", "*"), ("tautline", "r2")], &address);
    assert_names(header.get("error").unwrap(), &["'r2'", "must not call"]);

    // A false length, a request that ends early, and a client that leaves before the answer.
    let (mut stream, _) = connect("/raw_in/level", &[("md5sum", "*")], &address);
    stream.write_all(&[0xff; 40]).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(answer[0], 0);
    assert_names(&String::from_utf8_lossy(&answer[5..]), &["4294967295 bytes", "1000000"]);
    let (mut stream, _) = connect("/raw_in/level", &[("md5sum", "*")], &address);
    stream.write_all(&[200, 0, 0, 0, 1, 2]).unwrap();
    drop(stream);
    let (mut stream, _) = connect("/raw_in/level", &[("md5sum", "*")], &address);
    stream.write_all(&[1, 0, 0, 0, 77]).unwrap();
    let left = gateway.called("/raw_in/level", &[77]);
    drop(stream);
    gateway.answer("/raw_in/level", left, Ok(vec![].into()));

    agent.call_level("/raw_in/level", "still", 1, 1);
    let call = gateway.called("/raw_in/level", &level("still"));
    gateway.answer("/raw_in/level", call, Ok(vec![].into()));
    assert!(agent.answered(1).is_empty());
    let calls = gateway.events();
    assert_eq!(calls.iter().filter(|it| matches!(it, Event::Called { .. })).count(), 2);
}

#[test]
fn a_call_is_sent_once_though_its_server_dies_and_the_next_one_finds_another() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "dies");
    let mut agent = start(&master.uri, "/dies_agent");
    agent.serve_level("/dies/level", &json!({"hold": true}));
    gateway.service_offered_since(0, "/dies/level");
    gateway.call("/dies/level", 1, &level("once"), 1000);
    wait_for("request", || (!agent.served("/dies/level").is_empty()).then_some(()));
    let seen = gateway.event_count();
    agent.signal("-KILL");
    refused(&gateway, 1, &["server of /dies/level left before it answered"]);
    // The master lists it still.
    gateway.wait_service_withdrawn_since(seen, "/dies/level");
    gateway.call("/dies/level", 2, &level("again"), 1000);
    let mut other = start(&master.uri, "/dies_other");
    other.serve_level("/dies/level", &json!({}));
    assert_eq!(gateway.answered(2).unwrap(), vec![]);
    gateway.service_offered_since(seen, "/dies/level");
    wait_for("request", || (!other.served("/dies/level").is_empty()).then_some(()));
    assert_eq!(other.served("/dies/level").len(), 1, "not the one that broke");
}

#[test]
fn services_of_tautline_are_not_offered_and_those_of_local_nodes_not_replaced() {
    let master = Master::start_alone(free_port());
    let gateway = watch(&master.uri, "own");
    let other = tautline_testkit::ros::ros1::watch_selecting(&master.uri, "own_other", |_| true);
    let mut agent = start(&master.uri, "/own_agent");
    gateway.serve(&level_service("/own/ours"));
    address(&mut agent, "/own/ours");
    agent.serve_level("/own/local", &json!({}));
    gateway.service_offered_since(0, "/own/local");
    gateway.serve(&level_service("/own/local"));
    assert_names(&gateway.refusal("/own/local"), &["/own/local", LEVEL, "/own_agent"]);
    assert_names(&gateway.status().trouble, &["/own/local"]);
    other.service_offered_since(0, "/own/local");
    // Once the local node no longer serves it, the peers' service is registered.
    agent.order(json!({"do": "unserve", "service": "/own/local"}));
    wait_for("registration", || {
        let ours = agent.services_of("/tautline_own");
        (ours == json!(["/own/local", "/own/ours"])).then_some(())
    });
    wait_for("no trouble", || gateway.status().trouble.is_empty().then_some(()));

    // We register again at a master without state; after shutdown no registration is left.
    let port = master.port();
    drop(master);
    let _master = Master::start_alone(port);
    wait_for("registration", || {
        let ours = agent.services_of("/tautline_own");
        (ours == json!(["/own/local", "/own/ours"])).then_some(())
    });
    let all = [gateway.events(), other.events()].concat();
    let offered = all.iter().filter_map(|event| match event {
        Event::ServiceOffered(service) if service.name.starts_with("/own/") => Some(&service.name),
        _ => None,
    });
    assert_eq!(offered.collect::<Vec<_>>(), ["/own/local", "/own/local"]);
    gateway.shutdown();
    assert_eq!(agent.services_of("/tautline_own"), json!([]));
}

#[test]
fn a_server_that_was_killed_does_not_keep_its_name() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "ghost");
    let mut server = start(&master.uri, "/ghost_server");
    let mut agent = start(&master.uri, "/ghost_agent");
    server.serve_level("/ghost/level", &json!({}));
    gateway.service_offered_since(0, "/ghost/level");
    gateway.serve(&level_service("/ghost/level"));
    assert_names(&gateway.refusal("/ghost/level"), &["/ghost/level", LEVEL, "/ghost_server"]);
    agent.call_level("/ghost/level", "theirs", 1, 1);
    assert!(agent.answered(1).is_empty());
    assert_eq!(server.served("/ghost/level").len(), 1);
    // The master lists it for ever.
    server.signal("-KILL");
    wait_for("our registration", || {
        (agent.services_of("/tautline_ghost") == json!(["/ghost/level"])).then_some(())
    });
    agent.call_level("/ghost/level", "ours", 2, 1);
    let call = gateway.called("/ghost/level", &level("ours"));
    gateway.answer("/ghost/level", call, Ok(vec![].into()));
    assert!(agent.answered(2).is_empty());
    wait_for("no trouble", || gateway.status().trouble.is_empty().then_some(()));
    // A new server takes the name back.
    let mut server = start(&master.uri, "/ghost_server");
    server.serve_level("/ghost/level", &json!({}));
    wait_for("the refusal", || (!gateway.status().trouble.is_empty()).then_some(()));
    agent.call_level("/ghost/level", "theirs", 3, 1);
    assert!(agent.answered(3).is_empty());
    assert_eq!(server.served("/ghost/level").len(), 1);
}
