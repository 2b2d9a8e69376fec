// SPDX-License-Identifier: Apache-2.0
//! Nodes and parameters of peers at a real master, among those of local programs.

use super::{STRING, registered_at_master};
use serde_json::{Value, json};
use std::io::BufReader;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tautline_gateway::description::{NodeInfo, Nodes};
use tautline_gateway::{Command, Event};
use tautline_testkit::http;
use tautline_testkit::ros::ros1::{Master, start, string_topic, watch};
use tautline_testkit::ros::{Agent, Watched, free_port, wait_for};

/// A proxy in front of a master, through which the calls of a gateway pass.
struct Proxy {
    uri: String,
    calls: Arc<Mutex<Vec<String>>>,
    /// The port of the master.
    target: Arc<AtomicU16>,
}

impl Proxy {
    /// Starts a proxy; calls of the method `stuck` get no answer.
    fn to(master: &Master, stuck: &'static str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        let calls: Arc<Mutex<Vec<String>>> = Arc::default();
        let target = Arc::new(AtomicU16::new(master.port()));
        let (log, port) = (calls.clone(), target.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (log, port) = (log.clone(), port.clone());
                // Ends with the connection.
                std::thread::spawn(move || pass(&stream, stuck, &log, &port));
            }
        });
        Self { uri, calls, target }
    }

    fn count(&self, method: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|it| *it == method).count()
    }
}

fn pass(
    stream: &TcpStream,
    stuck: &str,
    log: &Mutex<Vec<String>>,
    port: &AtomicU16,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    while let Some(body) = http::read_request(&mut reader)? {
        let text = String::from_utf8_lossy(&body);
        let method = text.split("<methodName>").nth(1).and_then(|it| it.split('<').next());
        let method = method.unwrap().to_owned();
        log.lock().unwrap().push(method.clone());
        if method != stuck {
            http::respond(stream, &http::call(port.load(Ordering::Relaxed), &body)?)?;
        }
    }
    Ok(())
}

fn stand_in(gateway: &Watched, name: &str, topics: &[String]) {
    let node = NodeInfo { publishes: topics.iter().cloned().collect(), ..NodeInfo::default() };
    gateway.handle(Command::ShowNodes { peer: 1, nodes: Nodes::from([(name.into(), node)]) });
}

/// Shows these parameters of the peer with this prefix.
fn mirror(gateway: &Watched, prefix: &str, parameters: &[(&str, i64)]) {
    let parameters = parameters.iter().map(|(name, value)| ((*name).into(), json!(value)));
    let (prefix, parameters) = (prefix.into(), Some(parameters.collect()));
    gateway.handle(Command::ShowParameters { peer: 1, prefix, parameters });
}

fn remove(gateway: &Watched) {
    gateway.handle(Command::ShowNodes { peer: 1, nodes: Nodes::new() });
    gateway.handle(Command::ShowParameters { peer: 1, prefix: String::new(), parameters: None });
}

fn get(agent: &mut Agent, name: &str) -> Option<Value> {
    let answer = agent.order(json!({"do": "master", "method": "getParam", "params": [name]}));
    (answer["answer"][0] == 1).then(|| answer["answer"][2].clone())
}

fn set(agent: &mut Agent, name: &str, value: Value) {
    agent.order(json!({"do": "master", "method": "setParam", "params": [name, value]}));
}

fn delete(agent: &mut Agent, name: &str) {
    agent.order(json!({"do": "master", "method": "deleteParam", "params": [name]}));
}

fn wait_value(agent: &mut Agent, name: &str, expected: Option<Value>) {
    wait_for(format!("{expected:?} in {name}"), || (get(agent, name) == expected).then_some(()));
}

/// Waits for these many more comparisons of the parameters under `/r` with [`mirror`]'s.
fn compare(gateway: &Watched, agent: &mut Agent, all: &[(&str, i64)], times: i64) {
    let counter = "/r/counter";
    let before = get(agent, counter).and_then(|it| it.as_i64()).unwrap_or(0);
    for count in before + 1..=before + times {
        mirror(gateway, "/r", &[all, &[(counter, count)]].concat());
        wait_value(agent, counter, Some(json!(count)));
    }
}

fn wait_for_no_trouble(gateway: &Watched) {
    let mut last = String::new();
    wait_for("end of trouble", || {
        let trouble = gateway.status().trouble;
        if trouble != last {
            eprintln!("trouble: {trouble}");
            last.clone_from(&trouble);
        }
        trouble.is_empty().then_some(())
    });
}

#[test]
fn a_name_in_use_is_reported_and_not_registered_at_each_poll() {
    let master = Master::start_alone(free_port());
    let proxy = Proxy::to(&master, "");
    let mut local = start(&master.uri, "/r/camera");
    local.advertise("/local", STRING, false);
    let gateway = watch(&proxy.uri, "taken");
    let topics: Vec<String> = (0..40).map(|it| format!("/r/t{it:02}")).collect();
    stand_in(&gateway, "/r/camera", &topics);
    topics.iter().for_each(|it| gateway.advertise(&string_topic(it, false)));
    let mut agent = start(&master.uri, "/taken_agent");
    wait_for("all topics under our name", || {
        (registered_at_master(&mut agent, "/tautline_taken").0 == topics).then_some(())
    });
    wait_for("trouble", || {
        let trouble = gateway.status().trouble;
        (trouble.contains("local nodes have the names of 1 node(s)")
            && trouble.contains("/r/camera"))
        .then_some(())
    });
    let (calls, polls) = (proxy.count("registerPublisher"), proxy.count("getSystemState"));
    wait_for("some polls", || (proxy.count("getSystemState") > polls + 4).then_some(()));
    assert_eq!((proxy.count("registerPublisher"), calls), (topics.len(), topics.len()));
    assert!(registered_at_master(&mut agent, "/r/camera").0.contains(&"/local".to_owned()));
    local.leave();
    wait_for("all topics under the stand-in", || {
        let is_moved = registered_at_master(&mut agent, "/r/camera").0 == topics;
        (is_moved && registered_at_master(&mut agent, "/tautline_taken").0.is_empty()).then_some(())
    });
    wait_for_no_trouble(&gateway);
    // A local node that takes the name gets it.
    let mut local = start(&master.uri, "/r/camera");
    local.advertise("/local", STRING, false);
    wait_for("all topics under our name again", || {
        (registered_at_master(&mut agent, "/tautline_taken").0 == topics).then_some(())
    });
    assert!(registered_at_master(&mut agent, "/r/camera").0.contains(&"/local".to_owned()));
}

#[test]
fn a_master_that_deletes_no_parameter_does_not_keep_registrations() {
    let master = Master::start_alone(free_port());
    let proxy = Proxy::to(&master, "deleteParam");
    let mut agent = start(&master.uri, "/stuck_agent");
    let gateway = watch(&proxy.uri, "stuck");
    gateway.advertise(&string_topic("/r/x", false));
    stand_in(&gateway, "/r/camera", &["/r/x".to_owned()]);
    mirror(&gateway, "/r", &[("/r/a", 1)]);
    wait_value(&mut agent, "/r/a", Some(json!(1)));
    wait_for("the stand-in", || {
        (registered_at_master(&mut agent, "/r/camera").0 == ["/r/x"]).then_some(())
    });
    let compared = proxy.count("getParam");
    wait_for("another comparison", || (proxy.count("getParam") > compared).then_some(()));
    gateway.shutdown();
    assert!(proxy.count("deleteParam") > 0, "it was tried");
    for name in ["/r/camera", "/tautline_stuck"] {
        let order = json!({"do": "registered", "node": name});
        let left = agent.order(order);
        for role in ["published", "subscribed", "services"] {
            assert_eq!(left[role], json!([]), "{name}: {role}");
        }
    }
}

#[test]
fn alternating_lists_are_compared_once_per_period() {
    let master = Master::start_alone(free_port());
    let proxy = Proxy::to(&master, "");
    let gateway = watch(&proxy.uri, "turn");
    let begin = Instant::now();
    let mut value = 0;
    wait_for("some comparisons", || {
        value += 1;
        mirror(&gateway, "/r", &[("/r/a", value)]);
        // A peer that withdraws its list and shows it again.
        gateway.handle(Command::ShowParameters {
            peer: 1,
            prefix: String::new(),
            parameters: None,
        });
        mirror(&gateway, "/r", &[("/r/a", -value)]);
        (proxy.count("getParam") >= 4).then_some(())
    });
    let (compared, took) = (proxy.count("getParam"), begin.elapsed());
    assert!(compared as u64 <= took.as_secs() / 2 + 1, "{compared} in {took:?}");
}

#[test]
fn an_interrupted_comparison_leaves_no_copies() {
    let master = Master::start_alone(free_port());
    let mut agent = start(&master.uri, "/short_agent");
    let gateway = watch(&master.uri, "short");
    let names: Vec<String> = (0..4000).map(|it| format!("/r/n{it:04}")).collect();
    let all: Vec<_> = names.iter().map(|it| (it.as_str(), 1)).collect();
    mirror(&gateway, "/r", &all);
    wait_value(&mut agent, &names[0], Some(json!(1)));
    assert_eq!(get(&mut agent, &names[3999]), None, "the rest is to come");
    gateway.shutdown();
    assert_eq!(get(&mut agent, "/r"), None);
}

#[test]
fn parameters_of_local_programs_are_neither_replaced_nor_deleted() {
    let master = Master::start_alone(free_port());
    let mut agent = start(&master.uri, "/local_agent");
    set(&mut agent, "/r/same", json!(2));
    set(&mut agent, "/value", json!(5));
    agent.order(json!({"do": "set_binary", "name": "/r/binary"}));
    let gateway = watch(&master.uri, "local");
    let wanted = [("/r/a", 1), ("/r/same", 2), ("/r/binary", 3), ("/r/gone", 4)];
    compare(&gateway, &mut agent, &wanted, 1);
    assert_eq!(get(&mut agent, "/r/a"), Some(json!(1)));
    assert_eq!(get(&mut agent, "/r/binary"), Some(json!("local")));
    // A namespace in place of a copy.
    delete(&mut agent, "/r/a");
    set(&mut agent, "/r/a/b", json!(7));
    compare(&gateway, &mut agent, &wanted, 2);
    assert_eq!(get(&mut agent, "/r/a"), Some(json!({"b": 7})));
    // A value in place of the namespace of a peer.
    mirror(&gateway, "/value/r", &[("/value/r/x", 1)]);
    wait_for("trouble", || gateway.status().trouble.contains("/value is local").then_some(()));
    wait_value(&mut agent, "/r/gone", None);
    assert_eq!(get(&mut agent, "/value"), Some(json!(5)));
    wait_for("the end of all copies", || {
        let expected = json!({"a": {"b": 7}, "same": 2, "binary": "local"});
        (get(&mut agent, "/r") == Some(expected)).then_some(())
    });
    remove(&gateway);
    wait_for_no_trouble(&gateway);
}

#[test]
fn values_at_a_new_master_are_local() {
    let [old, new] = [(); 2].map(|()| Master::start_alone(free_port()));
    let proxy = Proxy::to(&old, "");
    let mut agent = start(&old.uri, "/old_agent");
    let gateway = watch(&proxy.uri, "new");
    let wanted = [("/r/a", 1), ("/r/b", 2), ("/r/c", 3)];
    compare(&gateway, &mut agent, &wanted, 1);
    wait_value(&mut agent, "/r/c", Some(json!(3)));
    // The master restarts, and a program sets some of these before the gateway looks.
    let mut agent = start(&new.uri, "/new_agent");
    set(&mut agent, "/r/a", json!(7));
    set(&mut agent, "/r/b", json!(2));
    proxy.target.store(new.port(), Ordering::Relaxed);
    // This takes longer than a changed copy is kept.
    compare(&gateway, &mut agent, &wanted, 5);
    assert_eq!(get(&mut agent, "/r/a"), Some(json!(7)));
    assert_eq!(get(&mut agent, "/r/c"), Some(json!(3)));
    let changed = |event: &Event| matches!(event, Event::ParametersChanged { .. });
    assert!(!gateway.events().iter().any(changed), "no peer is asked to set it");
    remove(&gateway);
    wait_value(&mut agent, "/r", Some(json!({"a": 7, "b": 2})));
}

#[test]
fn copies_of_another_daemon_are_neither_offered_nor_set_nor_replaced() {
    let master = Master::start_alone(free_port());
    let mut agent = start(&master.uri, "/copies_agent");
    let [one, two] = ["one", "two"].map(|name| watch(&master.uri, name));
    two.handle(Command::Describe { nodes: true, parameters: true });
    let topic = "/r/x".to_owned();
    one.advertise(&string_topic(&topic, false));
    stand_in(&one, "/r/camera", std::slice::from_ref(&topic));
    mirror(&one, "/r", &[("/r/a", 1)]);
    wait_value(&mut agent, "/r/a", Some(json!(1)));
    wait_for("the stand-in", || {
        (registered_at_master(&mut agent, "/r/camera").0 == ["/r/x"]).then_some(())
    });
    // Another pair of daemons between the same masters, with the same prefix.
    mirror(&two, "/r", &[("/r/a", 5), ("/r/b", 6)]);
    stand_in(&two, "/r/camera", &[]);
    wait_for("both troubles", || {
        let trouble = two.status().trouble;
        (trouble.contains("the daemon /tautline_one http://127.0.0.1:")
            && trouble.contains("/r/camera"))
        .then_some(())
    });
    let parameters = [("/r/a".to_owned(), json!(9)), ("/own".to_owned(), json!(9))].into();
    set(&mut agent, "/own", json!(1));
    two.handle(Command::SetParameters { parameters });
    wait_value(&mut agent, "/own", Some(json!(9)));
    assert_eq!(get(&mut agent, "/r/a"), Some(json!(1)));
    assert_eq!(get(&mut agent, "/r/b"), None);
    agent.advertise("/sentinel", STRING, false);
    two.wait("a later list of nodes", |event| match event {
        Event::Nodes(nodes) => {
            nodes.values().any(|it| it.publishes.contains("/sentinel")).then_some(())
        }
        _ => None,
    });
    two.wait("a later list of parameters", |event| match event {
        Event::Parameters(all) => (all.get("/own") == Some(&json!(9))).then_some(()),
        _ => None,
    });
    // A removed node is not offered during this time either, and the other daemon takes its place.
    remove(&one);
    wait_value(&mut agent, "/r/b", Some(json!(6)));
    wait_for_no_trouble(&two);
    let named = |names: Vec<&String>| names.into_iter().any(|it| it.starts_with("/r/"));
    for event in two.events() {
        match &event {
            Event::Nodes(nodes) => assert!(!named(nodes.keys().collect()), "{event:?}"),
            Event::Parameters(all) => assert!(!named(all.keys().collect()), "{event:?}"),
            _ => {}
        }
    }
    two.shutdown();
    assert_eq!(get(&mut agent, "/r"), None);
}
