// SPDX-License-Identifier: Apache-2.0
//! Metrics, over a real connection.

use crate::fake;
use crate::fake::FakeNode;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use tautline::audit::Actor;
use tautline::status::{Status, TopicChange};
use tautline_cli::control::NodeControl;
use tautline_cli::metrics::{
    MAX_CONNECTIONS_PER_ADDRESS, MAX_HEAD_BYTES, MetricsServer, openmetrics,
};

fn server() -> MetricsServer {
    MetricsServer::start("127.0.0.1:0".parse().unwrap(), FakeNode::new()).unwrap()
}

fn exchange(server: &MetricsServer, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    // A server that refuses may close before it has read everything, which resets the connection.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

#[test]
fn prometheus_gets_the_metrics_page() {
    let answer =
        exchange(&server(), b"GET /metrics?x=1 HTTP/1.1\r\nHost: robot1\r\nAccept: */*\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    assert!(body.ends_with("# EOF\n"));
}

#[test]
fn other_http_requests_are_refused() {
    let server = server();
    let first_line =
        |request: &[u8]| exchange(&server, request).lines().next().unwrap_or_default().to_owned();
    assert_eq!(first_line(b"GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
    assert_eq!(first_line(b"POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
    assert_eq!(first_line(b"\x16\x03\x01\x02\x00\r\n"), "HTTP/1.1 400 Bad Request");
    let endless = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(MAX_HEAD_BYTES + 1024));
    let answer = first_line(endless.as_bytes());
    assert!(
        answer.is_empty() || answer == "HTTP/1.1 431 Request Header Fields Too Large",
        "{answer}"
    );
    assert_eq!(first_line(b"GET /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 200 OK");
}

#[test]
fn silent_connections_do_not_block_the_metrics_page() {
    let server = server();
    let connect = || TcpStream::connect(server.address()).unwrap();
    let silent: Vec<_> = (0..3 * MAX_CONNECTIONS_PER_ADDRESS).map(|_| connect()).collect();
    let answer = exchange(&server, b"GET /metrics HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    drop(silent);
}

#[test]
fn an_address_in_use_is_reported() {
    let server = server();
    let error = MetricsServer::start(server.address(), FakeNode::new()).unwrap_err().to_string();
    assert!(error.contains(&server.address().to_string()) && error.contains("metrics:"), "{error}");
}

struct StuckGateway;

impl NodeControl for StuckGateway {
    fn status(&self) -> Result<Status, String> {
        Err("the data plane does not answer".into())
    }

    fn change_topic(&self, _: TopicChange, _: Actor) -> Result<Vec<String>, String> {
        Err("no".into())
    }
}

#[test]
fn a_node_that_does_not_answer_is_an_error_of_the_service() {
    let server =
        MetricsServer::start("127.0.0.1:0".parse().unwrap(), Arc::new(StuckGateway)).unwrap();
    let answer = exchange(&server, b"GET /metrics HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("the data plane"), "{answer}");
}

#[test]
fn counts_carry_their_labels() {
    let page = openmetrics(&fake::status());
    for line in [
        "tautline_node{node=\"robot1\",version=\"0.2.0\",security=\"keys\"} 1.0",
        "tautline_topic_messages_total{topic=\"/scan\",direction=\"out\",peer=\"base\"} 50",
        "tautline_topic_dropped_total{topic=\"/scan\",direction=\"out\",peer=\"robot2\",reason=\"peer_gone\"} 12",
        "tautline_topic_rate_limited_total{topic=\"/diagnostics\",direction=\"out\",peer=\"base\"} 17",
        "tautline_watchdog_published_total{topic=\"/cmd_vel\"} 2",
        "tautline_plan_failed{subject=\"/scan\",assumption=\"rate\"} 1.0",
        "tautline_plan_expected{subject=\"wlan0\",assumption=\"bit rate\"} 5340000.0",
        "tautline_plan_measured{subject=\"/scan\",assumption=\"rate\"} 22.0",
        "tautline_packets_refused_total{reason=\"wrong version\"} 3",
        "tautline_radio_configured_bps{radio=\"eth0\"} 54000000.0",
        "tautline_link_lost_packets_total{peer=\"base\",link=\"wlan0\",radio=\"wlan0\",remote=\"10.0.0.2:18470\"} 25",
        "tautline_link_stalled{peer=\"base\",link=\"wlan0\",radio=\"wlan0\",remote=\"10.0.0.2:18470\"} 0.0",
        "tautline_link_loss_ratio{peer=\"base\",link=\"wlan0\",radio=\"wlan0\",remote=\"10.0.0.2:18470\"} 0.01",
        "tautline_topic_link_bytes_total{topic=\"/camera/front/image_color/compressed\",direction=\"out\",peer=\"base\",link=\"lte\",policy=\"stripe\"} 300000",
        "tautline_link_up{peer=\"robot2\",link=\"eth0\",radio=\"eth0\",remote=\"[fe80::3%eth0]:18470\"} 0.0",
        "tautline_link_available_bps{peer=\"base\",link=\"wlan0\",radio=\"wlan0\",remote=\"10.0.0.2:18470\"} 6120000.0",
        "tautline_topic_given_up_ratio{topic=\"/camera/front/image_color/compressed\",direction=\"out\",peer=\"base\"} 0.41",
        "tautline_topic_given_up_ratio{topic=\"/scan\",direction=\"out\",peer=\"base\"} 0.0",
        "tautline_gateway_connected{kind=\"ros1\"} 1.0",
        "tautline_gateway_rejected_total{kind=\"ros1\",topic=\"/base/plan\",direction=\"in\",reason=\"gateway_behind\"} 3",
    ] {
        assert!(page.lines().any(|l| l == line), "{line}\nnot in\n{page}");
    }
    assert!(
        !page.contains("tautline_radio_configured_bps{radio=\"wlan0\"}"),
        "what is unknown is left out"
    );
}

#[test]
fn delays_are_a_histogram_that_adds_up() {
    let page = openmetrics(&fake::status());
    let labels = "topic=\"/cmd_vel\",direction=\"in\",peer=\"base\"";
    let value = |name: &str, more: &str| {
        let prefixes = [format!("{name}{{{more}{labels}}} "), format!("{name}{{{labels}{more}}} ")];
        let found =
            page.lines().find_map(|l| prefixes.iter().find_map(|p| l.strip_prefix(p.as_str())));
        found.unwrap_or_else(|| panic!("{name} {more} in\n{page}")).parse::<f64>().unwrap()
    };
    let name = "tautline_topic_delay_seconds";
    assert_eq!(value(&format!("{name}_count"), ""), 50.0);
    assert!((value(&format!("{name}_sum"), "") - 0.155).abs() < 1e-9);
    let bucket = |bound: &str| {
        let part = format!("le=\"{bound}\"");
        let line =
            page.lines().find(|l| l.contains("_bucket") && l.contains(labels) && l.contains(&part));
        line.and_then(|l| l.rsplit(' ').next()).unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(
        [bucket("0.0016"), bucket("0.0032"), bucket("0.0128"), bucket("+Inf")],
        [10, 40, 50, 50]
    );
}

#[test]
fn hostile_names_cannot_forge_lines() {
    let mut status = fake::status();
    status.topics[0].peer = "a\"} 1\ntautline_forged 1 \\".into();
    let page = openmetrics(&status);
    assert!(!page.lines().any(|line| line.starts_with("tautline_forged")), "{page}");
    assert!(page.contains(r#"peer="a\"} 1\ntautline_forged 1 \\""#));
}
