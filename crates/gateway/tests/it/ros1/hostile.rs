// SPDX-License-Identifier: Apache-2.0
//! A real master that lists too much or rejects registrations, and local programs that hold connections.

use super::services::{address, connect, greet, level, level_service};
use super::{STRING, registered_at_master, send_until_read};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tautline_gateway::ros1::header::Header;
use tautline_testkit::http;
use tautline_testkit::ros::ros1::{Master, start, string_topic, watch};
use tautline_testkit::ros::wait_for;

/// Calls the master and reads its answer.
fn call_master(master: &Master, method: &str, params: &[&str]) {
    let param = |text: &&str| format!("<param><value><string>{text}</string></value></param>");
    let params: String = params.iter().map(param).collect();
    let xml = format!(
        "<?xml version='1.0'?><methodCall><methodName>{method}</methodName>\
         <params>{params}</params></methodCall>"
    );
    let answer = http::call(master.port(), xml.as_bytes()).unwrap();
    assert!(!answer.contains("fault"), "{answer}");
}

#[test]
fn excess_types_of_a_master_cause_no_delay() {
    let master = Master::start_alone(tautline_testkit::ros::free_port());
    let long = format!("a/{}", "x".repeat(1_000_000));
    for number in 0..9 {
        let params = ["/evil", &format!("/evil/{number}"), &long, "http://127.0.0.1:9/"];
        call_master(&master, "registerPublisher", &params);
        call_master(&master, "unregisterPublisher", &[params[0], params[1], params[3]]);
    }
    let gateway = watch(&master.uri, "filled");
    let mut agent = start(&master.uri, "/filled_agent");
    gateway.advertise(&string_topic("/filled_in/x", false));
    agent.subscribe("/filled_in/x", STRING);
    gateway.wait_wanted_since(0, "/filled_in/x", true);
    agent.advertise("/filled/y", STRING, false);
    gateway.offered("/filled/y");
    gateway.subscribe("/filled/y");
    send_until_read(&mut agent, &gateway, "/filled/y", &json!({"data": "hello"}));
    assert!(gateway.status().connected);
    assert_eq!(gateway.status().trouble, "");
}

#[test]
fn a_master_that_lists_too_much_is_reported_and_known_topics_continue() {
    let master = Master::start_alone(tautline_testkit::ros::free_port());
    let gateway = watch(&master.uri, "much");
    let mut agent = start(&master.uri, "/much_agent");
    agent.advertise("/much/y", STRING, false);
    gateway.offered("/much/y");
    gateway.subscribe("/much/y");
    send_until_read(&mut agent, &gateway, "/much/y", &json!({"data": "before"}));
    let long = |number: u32| format!("/evil/{number}{}", "x".repeat(4_000_000));
    let params = |number| ["/evil".to_owned(), long(number), "http://127.0.0.1:9/".to_owned()];
    for number in 0..9 {
        let [node, topic, uri] = params(number);
        call_master(&master, "registerPublisher", &[&node, &topic, "a/B", &uri]);
    }
    wait_for("trouble", || gateway.status().trouble.contains("lists exceed a limit").then_some(()));
    let status = gateway.status();
    assert!(status.connected && status.trouble.contains("allowed: 33554432"), "{}", status.trouble);
    send_until_read(&mut agent, &gateway, "/much/y", &json!({"data": "still"}));
    for number in 0..9 {
        let [node, topic, uri] = params(number);
        call_master(&master, "unregisterPublisher", &[&node, &topic, &uri]);
    }
    wait_for("an end of trouble", || gateway.status().trouble.is_empty().then_some(()));
}

#[test]
fn one_node_uses_few_connections_of_a_topic() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "places");
    let mut agent = start(&master.uri, "/places_agent");
    let topic = "/places_in/x";
    gateway.advertise(&string_topic(topic, false));
    wait_for("advertised", || {
        (!registered_at_master(&mut agent, "/tautline_places").0.is_empty()).then_some(())
    });
    let order = json!({"do": "call", "node": "/tautline_places", "method": "requestTopic",
        "params": ["/t", topic, [["TCPROS"]]]});
    let found = agent.order(order)["answer"][2].clone();
    let address = format!("{}:{}", found[1].as_str().unwrap(), found[2]);
    let come = |caller: &str| {
        let header = Header::default().with("topic", topic).with("md5sum", "*");
        greet(&address, &header.with("callerid", caller))
    };
    let silent: Vec<_> = (0..300).map(|_| come("/silent")).collect();
    let served = silent.iter().filter(|(_, header)| header.get("error").is_none()).count();
    assert_eq!(served, 16);
    assert!(silent[299].1.get("error").unwrap().contains("'/silent'"));
    assert!(come("/other").1.get("error").is_none());
    agent.subscribe(topic, STRING);
}

#[test]
fn a_rejection_of_the_master_delays_nothing_else() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "turns");
    let mut agent = start(&master.uri, "/turns_agent");
    for number in 0..200 {
        // The master takes no name with a colon.
        gateway.advertise(&string_topic(&format!("/turns_in/a:{number:03}"), false));
        gateway.subscribe(&format!("/turns/a:{number:03}"));
        gateway.serve(&level_service(&format!("/turns_in/s:{number:03}")));
    }
    gateway.advertise(&string_topic("/turns_in/z", false));
    gateway.subscribe("/turns/z");
    gateway.serve(&level_service("/turns_in/level"));
    let all = (vec!["/turns_in/z".to_owned()], vec!["/turns/z".to_owned()]);
    wait_for("registrations", || {
        (registered_at_master(&mut agent, "/tautline_turns") == all).then_some(())
    });
    address(&mut agent, "/turns_in/level");
}

#[test]
fn silent_connections_do_not_block_topics_or_services() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "silent");
    gateway.serve(&level_service("/silent_in/level"));
    let mut agent = start(&master.uri, "/silent_agent");
    let address = address(&mut agent, "/silent_in/level");
    let order =
        json!({"do": "call", "node": "/tautline_silent", "method": "getName", "params": ["/t"]});
    let found = agent.order(order.clone())["uri"].as_str().unwrap().to_owned();
    let api = found.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let fields = [("md5sum", "*"), ("persistent", "1")];

    let (mut calling, _) = connect("/silent_in/level", &fields, &address);
    let request = level("kept");
    calling.write_all(&(request.len() as u32).to_le_bytes()).unwrap();
    calling.write_all(&request).unwrap();
    let call = gateway.called("/silent_in/level", &request);

    // More connections than there are slots of each kind: those that send nothing, those that
    // send only a header, and those to the slave API.
    let silent: Vec<_> = (0..200).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let clients: Vec<_> =
        (0..300).map(|_| connect("/silent_in/level", &fields, &address).0).collect();
    let callers: Vec<_> = (0..300).map(|_| TcpStream::connect(&api).unwrap()).collect();
    let (mut last, header) = connect("/silent_in/level", &fields, &address);
    assert!(header.get("error").is_none());
    assert_eq!(agent.order(order)["answer"][2], "/tautline_silent");

    // A client that has called is kept.
    gateway.answer("/silent_in/level", call, Ok(vec![].into()));
    let mut answer = [0; 5];
    calling.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [1, 0, 0, 0, 0]);
    last.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    assert!(last.read(&mut [0]).is_err(), "still open");
    drop((silent, clients, callers));
}

#[test]
fn an_answer_of_the_slave_api_is_short_however_long_the_call_is() {
    let master = Master::shared();
    let gateway = watch(&master.uri, "short");
    let mut agent = start(&master.uri, "/short_agent");
    wait_for("registration of the node", || {
        // A node is known by what it publishes, subscribes to or serves.
        gateway.subscribe("/short/x");
        let (_, subscribed) = registered_at_master(&mut agent, "/tautline_short");
        (!subscribed.is_empty()).then_some(())
    });
    let long = format!("/{}", "&".repeat(20_000));
    let params = json!(["/t", long, [["TCPROS"]]]);
    let order = json!({"do": "call", "node": "/tautline_short", "method": "requestTopic",
        "params": params});
    let answer = agent.order(order)["answer"].clone();
    assert_eq!(answer[0], 0);
    assert!(answer[1].as_str().unwrap().len() < 400);
}
