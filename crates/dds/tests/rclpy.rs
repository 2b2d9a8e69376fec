// SPDX-License-Identifier: Apache-2.0
//! Raw samples to and from a real rclpy node, in a separate network namespace.

use bytes::Bytes;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tautline_dds::{
    DiscoveryEvent, DiscoveryRange, Participant, Qos, RawReader, RawWriter, SampleId, SampleInfo,
    Specification,
};
use tautline_testkit::again::in_own_network;

const STRING: &str = "std_msgs::msg::dds_::String_";
/// The type hash of std_msgs/msg/String.
const HASH: &str = "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18";
/// Time limit of a condition. Discovery may take 10 s.
const LIMIT: Duration = Duration::from_secs(40);

/// Prepares a network with multicast over loopback.
const NETWORK: &str = "ip link set lo up multicast on && ip route add 224.0.0.0/4 dev lo";

fn peer(script: &str) -> Child {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = here.join("../../target/ros2/kilted/bin/python");
    assert!(python.exists(), "{} is missing: run make ros2", python.display());
    Command::new(python)
        .arg(here.join("tests").join(script))
        .arg(LIMIT.as_secs().to_string())
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("_ROS_WHEELS_BOOTSTRAP_COMPLETE")
        .env("FASTDDS_BUILTIN_TRANSPORTS", "UDPv4")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Returns a String as CDR, with its encapsulation.
fn cdr(text: &str) -> Bytes {
    let length = (text.len() as u32 + 1).to_le_bytes();
    [&[0, 1, 0, 0], &length[..], text.as_bytes(), &[0]].concat().into()
}

#[test]
fn samples_pass_in_both_directions_and_late_joiners_get_the_last() {
    if !in_own_network(NETWORK) {
        return;
    }
    let participant = Participant::new(0, DiscoveryRange::Machine, b"enclave=/;").unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = seen.clone();
    participant.discover(move |event| note.lock().unwrap().push(event)).unwrap();
    let user_data = format!("typehash={HASH};").into_bytes();
    let qos = Qos { user_data, ignore_own: true, ..Qos::default() };
    let about = |topic, qos| Specification { topic, type_name: STRING, qos };

    // Published before there is a subscriber; the last three of five are kept.
    let kept = Qos { durability: 1, depth: 3, ..qos.clone() };
    let latched = RawWriter::new(&participant, about("rt/latched", &kept), |_, _| ()).unwrap();
    for number in 1..=5 {
        latched.write(cdr(&format!("kept {number}")), None).unwrap();
    }
    let echo = RawWriter::new(&participant, about("rt/echo", &qos), |_, _| ()).unwrap();
    // Cyclone DDS's own threads must not write.
    let (came, comes) = std::sync::mpsc::channel::<Bytes>();
    let take = move |bytes: Bytes, _: &_| came.send(bytes).unwrap();
    let about_chatter = about("rt/chatter", &qos);
    let reader = RawReader::new(&participant, about_chatter, take, |_, _| ()).unwrap();
    let peer = peer("peer.py");
    let back = std::thread::spawn(move || {
        for bytes in comes {
            echo.write(bytes, None).unwrap();
        }
    });
    let output = peer.wait_with_output().unwrap();
    drop(reader);
    back.join().unwrap();

    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(output.status.success());
    for part in [
        "\"sound\": true",
        "\"latched\": [\"kept 3\", \"kept 4\", \"kept 5\"]",
        "\"types\": [\"std_msgs/msg/String\"]",
        HASH,
    ] {
        assert!(said.contains(part), "no {part} in {said}");
    }
    let echoed = said.split(&[' ', ','][..]).nth(1).and_then(|count| count.parse::<u32>().ok());
    assert!(echoed.is_some_and(|count| count >= 20), "{said}");
    let seen = seen.lock().unwrap();
    let chatter = seen.iter().find_map(|event| match event {
        DiscoveryEvent::Writer(writer) if writer.topic == "rt/chatter" => Some(writer),
        _ => None,
    });
    let chatter = chatter.expect("the peer's writer");
    assert_eq!(chatter.type_name, STRING);
    assert!(chatter.qos.reliable && chatter.keyless);
    assert!(String::from_utf8_lossy(&chatter.qos.user_data).contains(HASH));
    let gone = DiscoveryEvent::WriterGone { guid: chatter.guid };
    assert!(seen.iter().any(|event| format!("{event:?}") == format!("{gone:?}")));
}

const REQUEST: &str = "std_srvs::srv::dds_::SetBool_Request_";
const REPLY: &str = "std_srvs::srv::dds_::SetBool_Response_";
/// The policies of a service's endpoints in ROS 2.
const SERVICE: fn() -> Qos =
    || Qos { ignore_own: true, receive_since_match: true, ..Qos::default() };

/// Returns a Boolean, or a response of SetBool, as CDR.
fn boolean(value: u8) -> Bytes {
    Bytes::copy_from_slice(&[0, 1, 0, 0, value])
}
fn response(success: u8, message: &str) -> Bytes {
    let length = (message.len() as u32 + 1).to_le_bytes();
    [&boolean(success)[..], &[0; 3], &length, message.as_bytes(), &[0]].concat().into()
}

#[test]
fn a_client_gets_our_replies_and_we_get_those_of_a_server() {
    if !in_own_network(NETWORK) {
        return;
    }
    let participant = Participant::new(0, DiscoveryRange::Machine, b"enclave=/;").unwrap();
    let qos = SERVICE();
    let about = |topic, type_name| Specification { topic, type_name, qos: &qos };
    let ignore = |_, _| ();

    // We serve /switch.
    let replies = about("rr/switchReply", REPLY);
    let replies = RawWriter::new(&participant, replies, ignore).unwrap();
    let (came, asked) = std::sync::mpsc::channel::<(Bytes, SampleId)>();
    let take = move |bytes: Bytes, info: &SampleInfo| {
        let writer = info
            .related_sample
            .map_or(info.writer.unwrap(), |related_sample| related_sample.writer);
        came.send((bytes, SampleId { writer, seq: info.seq })).unwrap();
    };
    let requests = about("rq/switchRequest", REQUEST);
    let requests = RawReader::new(&participant, requests, take, ignore).unwrap();
    let server = std::thread::spawn(move || {
        for (request, id) in asked {
            let message = if request[4] == 1 { "on" } else { "off" };
            replies.write(response(1, message), Some(id)).unwrap();
        }
    });

    // We call /theirs.
    let (came, answered) = std::sync::mpsc::channel::<(Bytes, Option<SampleId>)>();
    let take = move |bytes: Bytes, info: &SampleInfo| {
        came.send((bytes, info.related_sample)).unwrap();
    };
    let their_replies = about("rr/theirsReply", REPLY);
    let their_replies = RawReader::new(&participant, their_replies, take, ignore).unwrap();
    let calls = about("rq/theirsRequest", REQUEST);
    let calls = RawWriter::new(&participant, calls, ignore).unwrap();
    let peer = peer("service.py");
    // Replies are lost until the server's writer has matched our reader.
    let start = Instant::now();
    loop {
        calls.write(boolean(0), None).unwrap();
        if answered.recv_timeout(Duration::from_millis(200)).is_ok() {
            break;
        }
        assert!(start.elapsed() < LIMIT, "no reply of the server");
    }
    let first = calls.write(boolean(1), None).unwrap();
    let second = calls.write(boolean(0), None).unwrap();
    for (seq, message) in [(first, "got True"), (second, "got False")] {
        let of_call = |(_, related_sample): &(_, Option<SampleId>)| {
            related_sample.is_none_or(|it| it.seq >= seq)
        };
        let (reply, related_sample) =
            std::iter::from_fn(|| answered.recv_timeout(LIMIT).ok()).find(of_call).unwrap();
        // Padding to a multiple of four may follow.
        assert!(reply[4..].starts_with(&response(1, message)[4..]), "{reply:?}");
        assert_eq!(related_sample, Some(SampleId { writer: calls.guid, seq }));
    }
    let output = peer.wait_with_output().unwrap();
    drop((requests, their_replies));
    server.join().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.trim(), r#"["off", "on", "off"]"#);
}
