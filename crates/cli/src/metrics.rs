// SPDX-License-Identifier: Apache-2.0
//! `GET /metrics` for Prometheus, in OpenMetrics text.
//!
//! `prometheus-client` writes the text and `httparse` reads the request. The rest of HTTP is one
//! answer per connection, so no server library is used.

mod connections;
mod teams;

pub use connections::{MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS};

use crate::control::NodeControl;
use connections::{AdmittedConnection, Connections};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tautline::columns::{
    Columns, LINKS, Metric, PEERS, PLAN, RADIOS, ReportWithRates, TEAMS, TOPICS, Value,
};
use tautline::status::{
    DelayReport, Direction, GatewayReport, LinkReport, RejectedReport, Status, TopicReport,
};
use tautline_gateway::threads;

/// Maximum bytes of the head of a request.
pub const MAX_HEAD_BYTES: usize = 8 * 1024;
/// Maximum header lines in a request.
pub const MAX_HEADERS: usize = 64;
/// Maximum duration of a connection.
pub const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a failed `accept` (no free descriptors), to avoid a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// The reason why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[error(
    "metrics address {address}: {source}; allowed under 'metrics:': a free address of this machine"
)]
pub struct MetricsError {
    /// The address from the file.
    pub address: SocketAddr,
    /// The error of the system.
    pub source: io::Error,
}

/// A server that answers requests until dropped.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Listens on `address` and answers with `node` on threads of its own.
    pub fn start(address: SocketAddr, node: Arc<dyn NodeControl>) -> Result<Self, MetricsError> {
        let failed = |source| MetricsError { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let reporter = node.clone();
        let stopped = stop.clone();
        let ended = move |name: &str, how| {
            if !stopped.load(Ordering::Relaxed) {
                reporter.thread_ended(name, how);
            }
        };
        let accept = {
            let stop = stop.clone();
            move || accept_connections(&listener, &node, &stop)
        };
        let thread = threads::spawn("metrics", ended, accept).map_err(failed)?;
        Ok(Self { address: bound, stop, thread: Some(thread) })
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A connection from this process wakes `accept`; 0.0.0.0 and :: are reached as localhost.
        let woken = TcpStream::connect_timeout(&self.address, CONNECTION_TIMEOUT).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

fn accept_connections(listener: &TcpListener, node: &Arc<dyn NodeControl>, stop: &AtomicBool) {
    let connections = Arc::<Connections>::default();
    loop {
        let accepted = listener.accept();
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let Ok((stream, from)) = accepted else {
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let Some(served) = connections.admit(stream, from) else { continue };
        let node = node.clone();
        let serve = move || drop(serve_connection(&served, node.as_ref()));
        let _ = std::thread::Builder::new().name("metrics-client".into()).spawn(serve);
    }
}

fn serve_connection(served: &AdmittedConnection, node: &dyn NodeControl) -> io::Result<()> {
    let deadline = Instant::now() + CONNECTION_TIMEOUT;
    let mut connection = TimedConnection { stream: served.stream(), deadline };
    let (status, kind, body) = match read_target(&mut connection)? {
        Ok(target) if target == "/metrics" => match served.work(|| node.status()) {
            Some(Ok(status)) => ("200 OK", OPENMETRICS, openmetrics(&status)),
            Some(Err(reason)) => ("503 Service Unavailable", PLAIN, reason),
            None => return Ok(()),
        },
        Ok(_) => ("404 Not Found", PLAIN, "only /metrics is here\n".into()),
        Err(refusal) => (refusal, PLAIN, format!("{refusal}\n")),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    connection.write_all(head.as_bytes())?;
    connection.write_all(body.as_bytes())
}

/// A connection that is read and written until a deadline, however slow its client is.
struct TimedConnection<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

impl TimedConnection<'_> {
    /// Returns the time left, which is never zero: no socket timeout may be zero.
    fn time_left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for TimedConnection<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.time_left()?))?;
        (&mut &*self.stream).read(buffer)
    }
}

impl Write for TimedConnection<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.time_left()?))?;
        (&mut &*self.stream).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the path requested with GET, without its query, or the status line of the refusal.
fn read_target(connection: &mut impl Read) -> io::Result<Result<String, &'static str>> {
    let mut head = Vec::new();
    loop {
        let mut piece = [0; 1024];
        let length = connection.read(&mut piece)?;
        head.extend_from_slice(&piece[..length]);
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&head) {
            Ok(httparse::Status::Complete(_)) => return Ok(target(&request)),
            Ok(httparse::Status::Partial) if length == 0 => {
                return Ok(Err("408 Request Timeout"));
            }
            Ok(httparse::Status::Partial) if head.len() > MAX_HEAD_BYTES => {
                return Ok(Err("431 Request Header Fields Too Large"));
            }
            Ok(httparse::Status::Partial) => {}
            Err(_) => return Ok(Err("400 Bad Request")),
        }
    }
}

fn target(request: &httparse::Request) -> Result<String, &'static str> {
    let path = request.path.unwrap_or_default();
    match request.method {
        Some("GET") => Ok(path.split('?').next().unwrap_or_default().into()),
        _ => Err("405 Method Not Allowed"),
    }
}

/// Returns `status` as OpenMetrics text.
pub fn openmetrics(status: &Status) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot(status.clone())));
    let mut page = String::new();
    match text::encode(&mut page, &registry) {
        Ok(()) => page,
        // Writing to a String does not fail.
        Err(fmt::Error) => String::new(),
    }
}

#[derive(Debug)]
struct Snapshot(Status);

type Labels<'a> = Vec<(&'static str, &'a str)>;

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let status = &self.0;
        let mut page = Page { encoder };
        page.node(status)?;
        page.columns(&TOPICS, &status.topics, topic_labels)?;
        page.drops(&status.topics)?;
        page.link_use(&status.topics)?;
        page.delays(&status.topics)?;
        page.columns(&PEERS, &status.peers, |peer| vec![("peer", &*peer.name)])?;
        page.columns(&TEAMS, &status.teams, |team| vec![("team", &*team.name)])?;
        page.team_drops(&status.teams)?;
        page.columns(&RADIOS, &status.radios, |radio| vec![("radio", &*radio.radio)])?;
        page.columns(&LINKS, &status.links, link_labels)?;
        page.columns(&PLAN, &status.plan, |it| {
            vec![("subject", &*it.subject), ("assumption", it.assumption.as_str())]
        })
    }
}

/// Returns the value of a counter.
fn counter_value(value: &Value) -> Option<u64> {
    match value {
        Value::Count(number) | Value::Bytes(number) => Some(*number),
        _ => None,
    }
}

/// Returns the value of a gauge in the base unit of Prometheus; none while it is unknown.
fn gauge_value(value: &Value) -> Option<f64> {
    match value {
        Value::Flag(is_true) => Some(f64::from(*is_true)),
        Value::BitRate(number) | Value::Share(number) | Value::Number(number) => Some(*number),
        Value::Milliseconds(ms) => Some(ms / 1e3),
        it => counter_value(it).map(|number| number as f64),
    }
}

struct Page<'e> {
    encoder: DescriptorEncoder<'e>,
}

impl Page<'_> {
    fn counters<'a>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (Labels<'a>, u64)>,
    ) -> Result<(), fmt::Error> {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in values {
            metric.encode_family(&labels)?.encode_counter::<Labels, _, f64>(&value, None)?;
        }
        Ok(())
    }

    fn gauges<'a>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (Labels<'a>, f64)>,
    ) -> Result<(), fmt::Error> {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// Writes the metrics of a table of columns.
    fn columns<'a, Report, Rates>(
        &mut self,
        columns: &Columns<Report, Rates>,
        reports: &'a [Report],
        labels: fn(&'a Report) -> Labels<'a>,
    ) -> Result<(), fmt::Error> {
        for (column, metric) in columns.metrics() {
            let read = |now| (labels(now), (column.read)(&ReportWithRates { now, rates: None }));
            let values = reports.iter().map(read);
            match metric {
                Metric::Counter(name) => {
                    let counts =
                        values.filter_map(|(labels, it)| Some((labels, counter_value(&it)?)));
                    self.counters(name, column.help, counts)?;
                }
                Metric::Gauge(name) => {
                    let known = values.filter_map(|(labels, it)| Some((labels, gauge_value(&it)?)));
                    self.gauges(name, column.help, known)?;
                }
            }
        }
        Ok(())
    }

    fn node(&mut self, status: &Status) -> Result<(), fmt::Error> {
        let labels = vec![
            ("node", &*status.node),
            ("version", &*status.version),
            ("security", &*status.security),
        ];
        let help = "Always 1; the labels describe the node";
        self.gauges("tautline_node", help, [(labels, 1.0)].into_iter())?;
        let uptime = [(vec![], status.uptime_s)].into_iter();
        self.gauges("tautline_uptime_seconds", "Seconds since the node started", uptime)?;
        let gateways = status.gateways.iter();
        let connected = gateways.map(|it| (vec![("kind", &*it.kind)], f64::from(it.connected)));
        let help = "1 if the local middleware responds";
        self.gauges("tautline_gateway_connected", help, connected)?;
        let rejected = status.gateways.iter().flat_map(|gateway| {
            gateway.rejected.iter().map(move |it| (rejected_labels(gateway, it), it.count))
        });
        let help = "Messages that the gateway rejected, by topic and reason";
        self.counters("tautline_gateway_rejected", help, rejected)?;
        let watchdogs = status.watchdogs.iter();
        let watchdogs = watchdogs.map(|it| (vec![("topic", &*it.topic)], it.published));
        let help = "Safe messages published after timeouts of topics from peers";
        self.counters("tautline_watchdog_published", help, watchdogs)?;
        let refused = status.packets_refused.iter();
        let refused = refused.map(|(reason, count)| (vec![("reason", &**reason)], *count));
        self.counters("tautline_packets_refused", "Packets refused, by reason", refused)
    }

    fn drops(&mut self, topics: &[TopicReport]) -> Result<(), fmt::Error> {
        let dropped = topics.iter().flat_map(|topic| {
            topic.dropped.iter().map(|(reason, count)| {
                let mut labels = topic_labels(topic);
                labels.push(("reason", reason));
                (labels, *count)
            })
        });
        self.counters("tautline_topic_dropped", "Messages dropped, by reason", dropped)
    }

    fn link_use(&mut self, topics: &[TopicReport]) -> Result<(), fmt::Error> {
        let carried = topics.iter().flat_map(|topic| {
            topic.links.iter().flat_map(move |it| {
                let labels = |link| {
                    let more = [("link", link), ("policy", &*it.policy)];
                    topic_labels(topic).into_iter().chain(more).collect()
                };
                it.bytes.iter().map(move |(link, bytes)| (labels(&**link), *bytes))
            })
        });
        let help =
            "Payload bytes sent on a link to a peer with several, repairs and copies included";
        self.counters("tautline_topic_link_bytes", help, carried)
    }

    fn delays(&mut self, topics: &[TopicReport]) -> Result<(), fmt::Error> {
        let (name, help) = ("tautline_topic_delay_seconds", "One-way delay of received messages");
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for topic in topics {
            let Some(delay) = &topic.delay else { continue };
            let (count, buckets) = histogram_in_seconds(delay);
            let sum = delay.mean_ms / 1e3 * count as f64;
            let labels = topic_labels(topic);
            let mut family = metric.encode_family(&labels)?;
            family.encode_histogram::<Labels>(sum, count, &buckets, None)?;
        }
        Ok(())
    }
}

fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Out => "out",
        Direction::In => "in",
    }
}

fn topic_labels(topic: &TopicReport) -> Labels<'_> {
    vec![("topic", &topic.topic), ("direction", direction(topic.direction)), ("peer", &topic.peer)]
}

fn rejected_labels<'a>(gateway: &'a GatewayReport, rejected: &'a RejectedReport) -> Labels<'a> {
    vec![
        ("kind", &gateway.kind),
        ("topic", &rejected.topic),
        ("direction", direction(rejected.direction)),
        ("reason", &rejected.reason),
    ]
}

fn link_labels(link: &LinkReport) -> Labels<'_> {
    vec![
        ("peer", &link.peer),
        ("link", &link.name),
        ("radio", &link.radio),
        ("remote", &link.remote),
    ]
}

/// Bounds of the delay histogram in milliseconds, the same for every topic and scrape: octaves of 0.1 ms.
/// Buckets of the node end at these bounds, too, so that no delay is assigned to a wrong bucket.
const DELAY_BOUNDS_MS: [f64; 14] =
    [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6, 819.2, 1638.4];

/// Returns the number of delays and the buckets, the last one without a bound as the format
/// requires.
fn histogram_in_seconds(delay: &DelayReport) -> (u64, Vec<(f64, u64)>) {
    let mut buckets: Vec<(f64, u64)> = DELAY_BOUNDS_MS.map(|bound| (bound / 1e3, 0)).to_vec();
    buckets.push((f64::INFINITY, 0));
    for (bound_ms, count) in &delay.buckets {
        // Compares with a slightly lower value, so that a rounded bound does not fall into the next bucket.
        let place = DELAY_BOUNDS_MS.partition_point(|known| *known < bound_ms * (1.0 - 1e-6));
        buckets[place].1 += count;
    }
    let count = delay.buckets.iter().map(|(_, count)| count).sum();
    (count, buckets)
}
