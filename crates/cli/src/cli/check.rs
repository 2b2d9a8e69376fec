// SPDX-License-Identifier: Apache-2.0
//! `tautline check`.

mod relay;

use super::{Failure, fields, output, rights, words};
use serde_json::{Value as Json, json};
use std::fmt::Write;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tautline::config::{
    self, AuditConfig, Beacons, Checked, Config, ConfigError, LinkConfig, MAX_MTU, PeerConfig,
    Ros2Config, Security, Surroundings, WatchdogConfig,
};
use tautline::keys::{self, KeyFileError};
use tautline::treatment::services::ServiceRule;
use tautline::treatment::{Compression, KEEP_LAST, TopicRule, Treatment, WhenSlow};
use tautline_cli::unit;
use tautline_gateway::pattern::Pattern;
use tautline_gateway::tf::Rules;
use tautline_gateway::types::compose::YamlValue;
use tautline_proto::{DirectPath, Marking, PublicKey, Rate};

/// Arguments of `tautline check`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  sudo tautline check\n  tautline check robot.yaml\n  tautline check robot.yaml --json\n  tautline check robot.yaml --as base\n  tautline check relay.yaml\n\n\
                        Exit code: 0 if the file is valid, even with warnings; otherwise 1."
)]
pub struct Arguments {
    /// The file of a robot, or of a relay [default: /etc/tautline/robot.yaml]
    #[arg(default_value = unit::FILE, hide_default_value = true)]
    file: PathBuf,
    /// Show the rights of this peer on this robot
    #[arg(long = "as", value_name = "PEER")]
    peer: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn check(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.file == Path::new(unit::FILE) {
        match check_readable(&arguments.file) {
            Err(error) if arguments.json => {
                output::print_json(&json!({ "ok": false, "error": error }))?;
                return Err(Failure::new(""));
            }
            known => known.map_err(Failure::new)?,
        }
    }
    match config::load(&arguments.file).map(tautline_plan::with_warnings) {
        Ok(checked) => match &arguments.peer {
            Some(peer) => rights::show(&checked.config, peer, arguments.json),
            None => explain(arguments, &checked),
        },
        Err(error) if arguments.json => {
            output::print_json(&error_as_json(&error))?;
            Err(Failure::new(""))
        }
        Err(error) => Err(Failure::new(error)),
    }
}

/// Fails if the file is absent or this user may not read it; the error says what to do.
fn check_readable(file: &Path) -> Result<(), String> {
    let shown = file.display();
    match std::fs::File::open(file).map_err(|error| error.kind()) {
        Err(ErrorKind::NotFound) => Err(format!(
            "no file of this robot: {}, or give the path of a file",
            unit::not_paired(file)
        )),
        Err(ErrorKind::PermissionDenied) => {
            Err(format!("this user may not read {shown}: sudo tautline check"))
        }
        _ => Ok(()),
    }
}

fn explain(arguments: &Arguments, checked: &Checked) -> Result<(), Failure> {
    let (file, config) = (arguments.file.display(), &checked.config);
    let one_sided = fields::one_sided(config, &Surroundings::current(&arguments.file));
    if arguments.json {
        let mut json = as_json(checked);
        json["one_sided"] = json!(one_sided);
        return output::print_json(&json);
    }
    let warnings = checked.warnings.iter().map(|warning| format!("warning: {file}:{warning}\n"));
    let warnings: String = warnings.collect();
    let verdict = match own_key(config) {
        Some(Err(error)) => format!("{file} is valid, but cannot be run yet: {error}"),
        _ => format!("{file} is valid."),
    };
    let mut text = format!("{warnings}{verdict}\n\n{}", in_words(config));
    if !one_sided.is_empty() {
        let _ = write!(text, "\nFields of accepted types that only one ROS has\n");
        one_sided.iter().for_each(|field| text.push_str(&format!("  {field}\n")));
    }
    output::print(&text)
}

fn error_as_json(error: &ConfigError) -> Json {
    match error {
        ConfigError::Invalid { problems, .. } => json!({ "ok": false, "problems": problems }),
        ConfigError::Unreadable { .. } => json!({ "ok": false, "error": error.to_string() }),
    }
}

fn in_words(config: &Config) -> String {
    if let Some(teams) = &config.teams {
        return relay::in_words(config, teams);
    }
    let mut text = String::new();
    let mut fact = |name: &str, value: String| {
        let _ = writeln!(text, "{name:9} {value}");
    };
    fact("node", format!("{}, listens on UDP {}", config.name, config.listen));
    fact("key", describe_key(config));
    fact("control", config.control.display().to_string());
    fact(
        "metrics",
        config.metrics.map_or("none".into(), |address| format!("http://{address}/metrics")),
    );
    fact("audit", describe_audit(&config.audit));
    fact(
        "beacons",
        match &config.beacons {
            Beacons::Off => "off".into(),
            Beacons::Everywhere => "on every interface".into(),
            Beacons::On(interfaces) => format!("on {}", interfaces.join(", ")),
        },
    );
    fact(
        "ROS 1",
        match &config.ros1 {
            Some(ros1) => {
                let others: String = ros1.allow.iter().map(|it| format!(", {it}")).collect();
                format!(
                    "master {}, node {} at {}, open to this machine, the machine of the master{others}",
                    ros1.master, ros1.node_name, ros1.host
                )
            }
            None => "off".into(),
        },
    );
    fact("ROS 2", config.ros2.as_ref().map_or("off".into(), describe_ros2));
    fact("tf", describe_tf(&config.tf, &config.topics));
    fact("real time", describe_realtime(config));
    fact("marking", describe_marking(config));
    fact("limits", describe_limits(config));
    let mut section = |title: &str, table: String| {
        let _ = write!(text, "\n{title}\n{table}");
    };
    section("Peers", peers_table(&config.peers));
    section("Radios", radios_table(config));
    let title = "Topics sent by this node; the first line that matches a topic applies";
    section(title, topics_table(&config.topics));
    let title = "Services advertised to peers; the first line that matches a service applies";
    section(title, services_table(&config.services));
    if !config.watchdogs.is_empty() {
        let title = "Watchdogs of topics from peers, and their safe messages";
        section(title, watchdogs_table(&config.watchdogs));
    }
    text
}

/// Describes the destination of the audit log.
fn describe_audit(audit: &AuditConfig) -> String {
    match audit {
        AuditConfig::Off => {
            "off; the systemd unit turns it on, unless the file has 'audit: false'".into()
        }
        AuditConfig::Files { path, size, files } => {
            let size = words::bytes(*size as f64);
            format!("{}, at most {files} files of {size}", path.display())
        }
        AuditConfig::Journald => "the system's journal: journalctl -t tautline-audit".into(),
    }
}

fn audit_as_json(audit: &AuditConfig) -> Json {
    match audit {
        AuditConfig::Off => Json::Null,
        AuditConfig::Files { path, size, files } => {
            json!({ "to": "file", "file": path, "size": size, "files": files })
        }
        AuditConfig::Journald => json!({ "to": "journald" }),
    }
}

/// Describes the key by which peers identify this node, or why the node cannot start.
fn describe_key(config: &Config) -> String {
    match own_key(config) {
        None => "none: anybody on the network can act as any node".into(),
        Some(Ok((key, file))) => format!("{key} in {}", file.display()),
        Some(Err(error)) => format!("not usable yet: {error}"),
    }
}

/// Returns the public key and its file; `None` under `security: none`.
fn own_key(config: &Config) -> Option<Result<(PublicKey, &Path), KeyFileError>> {
    match &config.security {
        Security::None => None,
        Security::Keys(file) => {
            Some(keys::load_to_show(file).map(|key| (key.public(), file.as_path())))
        }
    }
}

fn watchdogs_table(watchdogs: &[WatchdogConfig]) -> String {
    let row = |it: &WatchdogConfig| {
        let again = it.repeat.map(|every| format!("every {}", words::duration(every)));
        let set: Vec<&str> = it.message.iter().map(|(field, _)| &**field).collect();
        let message =
            if set.is_empty() { "all zero".into() } else { format!("with {}", set.join(" ")) };
        let again = again.unwrap_or("once".into());
        [it.topic.clone(), words::duration(it.after), again, message]
    };
    output::table(["TOPIC", "AFTER", "PUBLISHED", "MESSAGE"], watchdogs.iter().map(row))
}

fn describe_ros2(ros2: &Ros2Config) -> String {
    let range = if ros2.localhost { "localhost" } else { "subnet" };
    let definitions: Vec<_> = ros2.definitions.iter().map(|it| it.display().to_string()).collect();
    let types = match definitions.as_slice() {
        [] => "no types for peers with ROS 1".into(),
        all => format!("types from {}", all.join(", ")),
    };
    format!("domain {}, range {range}, node {}, {types}", ros2.domain, ros2.node_name)
}

fn describe_tf(rules: &Rules, topics: &[TopicRule]) -> String {
    let frames = match rules.frames.is_empty() {
        true => "all frames are sent".into(),
        false => format!("{} are sent", list(&rules.frames)),
    };
    let names = match (rules.prefix.as_str(), rules.shared.is_empty()) {
        ("", _) => "names unchanged".into(),
        (prefix, true) => format!("prefix '{prefix}' on all names"),
        (prefix, false) => {
            format!("prefix '{prefix}' on all names except {}", list(&rules.shared))
        }
    };
    let unchanged = topics.iter().filter(|rule| !rule.treatment.tf_prefix);
    let unchanged: Vec<&str> = unchanged.map(|rule| rule.pattern.as_str()).collect();
    match rules.prefix.is_empty() || unchanged.is_empty() {
        true => format!("{frames}; {names}"),
        false => format!("{frames}; {names}, not in messages of {}", unchanged.join(" ")),
    }
}

fn list(patterns: &[Pattern]) -> String {
    pattern_strs(patterns).join(" ")
}

fn describe_realtime(config: &Config) -> String {
    let realtime = &config.realtime;
    let scheduler =
        realtime.priority.map_or("normal scheduler".into(), |p| format!("SCHED_FIFO priority {p}"));
    let cpu = realtime.cpu.map_or(String::new(), |cpu| format!(", on CPU {cpu}"));
    format!("{scheduler}{cpu}{}", if realtime.lock_memory { ", memory locked" } else { "" })
}

fn describe_limits(config: &Config) -> String {
    let limits = &config.limits;
    format!(
        "messages up to {}; per peer {} or {} queued, {} incomplete; repairs add at most {}",
        words::bytes(limits.max_message as f64),
        words::bytes(limits.queue_bytes as f64),
        words::duration(limits.queue_time),
        words::bytes(limits.reassembly_bytes as f64),
        words::percent(Some(limits.repair_budget)),
    )
}

fn peers_table(peers: &[PeerConfig]) -> String {
    let header = ["NAME", "ADDRESS", "INTERFACE", "MTU", "ACCEPTED HERE"];
    output::table(header, peers.iter().flat_map(peer_rows))
}

/// Returns one row per link; the first row has the peer's name.
fn peer_rows(peer: &PeerConfig) -> Vec<[String; 5]> {
    let other =
        |reached: String| [String::new(), reached, String::new(), String::new(), String::new()];
    let mut rows: Vec<_> = peer.links.iter().map(link_row).collect();
    rows.extend(peer.via.iter().map(|via| other(format!("via {via}"))));
    if let Some(when) = peer.direct_path() {
        let when = match when {
            DirectPath::Always => "directly, if a path is found",
            DirectPath::IfTranslated => "directly, if behind NAT and a path is found",
        };
        rows.push(other(when.into()));
    }
    if peer.is_caller() {
        let [name, _, interface, _, names] = other(String::new());
        rows.push([
            name,
            "it initiates the handshake".into(),
            interface,
            describe_mtu(peer.mtu),
            names,
        ]);
    }
    (rows[0][0], rows[0][4]) = (peer.name.clone(), describe_peer_rights(peer));
    rows
}

fn link_row(link: &LinkConfig) -> [String; 5] {
    let interface = link.interface.clone().unwrap_or("any".into());
    let metered = match link.budget {
        Some(budget) => format!(", budget {budget}"),
        None if link.metered => ", metered".into(),
        None => String::new(),
    };
    [String::new(), address(link) + &metered, interface, describe_mtu(link.mtu), String::new()]
}

fn describe_mtu(configured: Option<u16>) -> String {
    let default = || format!("of the interface, at most {MAX_MTU} bytes");
    configured.map_or_else(default, |mtu| format!("at most {mtu} bytes"))
}

fn address(link: &LinkConfig) -> String {
    if link.host.contains(':') {
        format!("[{}]:{}", link.host, link.port)
    } else {
        format!("{}:{}", link.host, link.port)
    }
}

fn describe_peer_rights(peer: &PeerConfig) -> String {
    let observations = Some("observations").filter(|_| !peer.names.prefix.is_empty());
    let accepted = peer.names.accept.iter().map(|it| it.pattern.as_str());
    let parts: Vec<&str> = observations.into_iter().chain(accepted).collect();
    let mut text = if parts.is_empty() { "none".into() } else { parts.join(" ") };
    for (from, to) in &peer.names.remap {
        let _ = write!(text, ", {from} as {to}");
    }
    if !peer.names.prefix.is_empty() {
        let _ = write!(text, ", under {}", peer.names.prefix);
    }
    let _ = write!(text, ", at most {}", words::bit_rate(peer.max_rate_bps as f64));
    if peer.relay {
        text.push_str(", its packets for others are forwarded");
    }
    if peer.move_stamps {
        text.push_str(", time stamps on this robot's clock");
    }
    let shown = peer.show.words();
    if !shown.is_empty() {
        let _ = write!(text, ", sees {} of this robot", shown.join(", "));
    }
    if !peer.set_parameters.is_empty() {
        let _ =
            write!(text, ", may set parameters {}", pattern_strs(&peer.set_parameters).join(" "));
    }
    if peer.max_priority < u8::MAX {
        let _ = write!(text, ", priority at most {}", peer.max_priority);
    }
    text
}

/// Describes which DSCP applies from which priority on.
fn describe_marking(config: &Config) -> String {
    let Some(Marking { from, dscp }) = &config.marking else { return "off".into() };
    let class = |class: usize| format!("{} from priority {}", dscp[class], from[class - 1]);
    let classes = [3, 2, 1].map(class).join(", ");
    format!("DSCP {classes}, {} below", dscp[0])
}

/// Describes the signal that controls the rate.
fn describe_pacing(rate: Rate) -> String {
    match rate {
        Rate::Fixed(bps) => format!("fixed at {}", words::bit_rate(bps as f64)),
        Rate::PerLink(control) => control.signals.into(),
    }
}

fn radios_table(config: &Config) -> String {
    let mut rows: Vec<[String; 3]> = config
        .radios
        .iter()
        .map(|radio| {
            [
                radio.interface.clone(),
                describe_pacing(radio.rate),
                format!("{} packets", radio.in_flight),
            ]
        })
        .collect();
    let rest = if rows.is_empty() { "all interfaces" } else { "all others" };
    rows.push([rest.into(), describe_pacing(Rate::default()), "default".into()]);
    output::table(["INTERFACE", "PACED BY", "IN THE KERNEL"], rows)
}

fn topics_table(rules: &[TopicRule]) -> String {
    let header =
        ["TOPIC", "PRIORITY", "WHEN SLOW", "LIFESPAN", "RATE", "COMPRESSION", "REPAIR", "TO"];
    output::table(header, rules.iter().map(topic_row))
}

fn services_table(rules: &[ServiceRule]) -> String {
    let row = |rule: &ServiceRule| {
        [
            rule.pattern.as_str().into(),
            rule.treatment.priority.to_string(),
            words::duration(rule.treatment.timeout),
            rule.treatment.to.as_ref().map_or("every peer".into(), |to| to.join(" ")),
        ]
    };
    output::table(["SERVICE", "PRIORITY", "TIMEOUT", "TO"], rules.iter().map(row))
}

fn topic_row(rule: &TopicRule) -> [String; 8] {
    let treatment = &rule.treatment;
    [
        rule.pattern.as_str().into(),
        treatment.priority.to_string(),
        when_slow(treatment),
        treatment.lifespan.map_or("no limit".into(), words::duration),
        treatment.rate_hz.map_or("all".into(), |rate| format!("at most {rate}Hz")),
        compression(treatment.compression).into(),
        if treatment.repair { "yes" } else { "no" }.into(),
        treatment.to.as_ref().map_or("every peer".into(), |to| to.join(" ")),
    ]
}

/// Describes which messages stay queued when a link cannot carry all.
fn when_slow(treatment: &Treatment) -> String {
    match (treatment.when_slow, treatment.keep_last) {
        (Some(WhenSlow::Latest), _) => "keep newest".into(),
        (Some(WhenSlow::Thin), _) => "send every n-th".into(),
        (Some(WhenSlow::Queue), _) => "queue all".into(),
        (None, Some(count)) => format!("keep last {count}"),
        (None, None) => format!("keep last {KEEP_LAST}, 1 of images"),
    }
}

fn compression(compression: Compression) -> &'static str {
    match compression {
        Compression::None => "none",
        Compression::Zstd => "zstd",
    }
}

fn as_json(checked: &Checked) -> Json {
    let config = &checked.config;
    let peers: Vec<Json> = config.peers.iter().map(peer_as_json).collect();
    let radios: Vec<Json> = config
        .radios
        .iter()
        .map(|radio| {
            json!({
                "interface": radio.interface,
                "mode": radio.rate.name().unwrap_or("fixed"),
                "rate_bps": radio.rate.fixed_bps(),
                "in_flight": radio.in_flight,
            })
        })
        .collect();
    json!({
        "ok": true,
        "warnings": checked.warnings,
        "name": config.name,
        "listen": config.listen,
        "control": config.control,
        "metrics": config.metrics,
        "audit": audit_as_json(&config.audit),
        "teams": config.teams.as_ref().map(|all| all.iter().map(relay::as_json).collect::<Vec<_>>()),
        "ros1": config.ros1.as_ref().map(|ros1| {
            let allow: Vec<String> = ros1.allow.iter().map(|it| it.to_string()).collect();
            json!({
                "master": ros1.master,
                "host": ros1.host,
                "allow": allow,
                "node_name": ros1.node_name,
            })
        }),
        "ros2": config.ros2.as_ref().map(|ros2| json!({
            "domain": ros2.domain,
            "range": if ros2.localhost { "localhost" } else { "subnet" },
            "node_name": ros2.node_name,
            "definitions": ros2.definitions,
        })),
        "peers": peers,
        "radios": radios,
        "marking": config.marking.as_ref().map(|it| json!({ "from": it.from, "dscp": it.dscp })),
        "topics": config.topics.iter().map(topic_as_json).collect::<Vec<_>>(),
        "services": config.services.iter().map(service_as_json).collect::<Vec<_>>(),
        "watchdogs": config.watchdogs.iter().map(watchdog_as_json).collect::<Vec<_>>(),
        "tf": {
            "frames": pattern_strs(&config.tf.frames),
            "prefix": config.tf.prefix,
            "shared": pattern_strs(&config.tf.shared),
        },
        "limits": {
            "max_message": config.limits.max_message,
            "queue_bytes": config.limits.queue_bytes,
            "queue_time_ms": config.limits.queue_time.as_millis() as u64,
            "reassembly_bytes": config.limits.reassembly_bytes,
            "repair_budget": config.limits.repair_budget,
        },
        "realtime": {
            "priority": config.realtime.priority,
            "cpu": config.realtime.cpu,
            "lock_memory": config.realtime.lock_memory,
        },
    })
}

fn peer_as_json(peer: &PeerConfig) -> Json {
    let links: Vec<Json> = peer
        .links
        .iter()
        .map(|link| {
            let budget =
                link.budget.map(|it| json!({ "bytes": it.bytes, "period_s": it.period.as_secs() }));
            json!({
                "host": link.host,
                "port": link.port,
                "interface": link.interface,
                "mtu": link.mtu,
                "metered": link.metered,
                "budget": budget,
            })
        })
        .collect();
    let accept = peer.names.accept.iter();
    let accept: Vec<Json> =
        accept.map(|it| json!({ "name": it.pattern.as_str(), "types": it.types })).collect();
    json!({
        "name": peer.name,
        "links": links,
        "mtu": peer.mtu,
        "prefix": peer.names.prefix,
        "remap": peer.names.remap,
        "accept": accept,
        "call": pattern_strs(&peer.call),
        "offer": pattern_strs(&peer.offer),
        "show": peer.show.words(),
        "set_parameters": pattern_strs(&peer.set_parameters),
        "max_rate_bps": peer.max_rate_bps,
        "max_priority": peer.max_priority, "move_stamps": peer.move_stamps, "via": peer.via, "relay": peer.relay,
        "direct": peer.direct_path().map(|when| match when {
            DirectPath::Always => "always",
            DirectPath::IfTranslated => "if behind NAT",
        }),
        "key": peer.key.to_string(),
    })
}

fn pattern_strs(patterns: &[Pattern]) -> Vec<&str> {
    patterns.iter().map(Pattern::as_str).collect()
}

fn topic_as_json(rule: &TopicRule) -> Json {
    let treatment = &rule.treatment;
    json!({
        "topic": rule.pattern.as_str(),
        "priority": treatment.priority,
        "keep_last": treatment.keep_last,
        "when_slow": treatment.when_slow.map(WhenSlow::word),
        "lifespan_ms": treatment.lifespan.map(|lifespan| lifespan.as_secs_f64() * 1e3),
        "rate_hz": treatment.rate_hz,
        "compression": compression(treatment.compression),
        "tf_prefix": treatment.tf_prefix,
        "repair": treatment.repair,
        "to": treatment.to,
    })
}

fn watchdog_as_json(watchdog: &WatchdogConfig) -> Json {
    json!({
        "topic": watchdog.topic,
        "after_ms": watchdog.after.as_secs_f64() * 1e3,
        "repeat_ms": watchdog.repeat.map(|every| every.as_secs_f64() * 1e3),
        "message": value_as_json(&YamlValue::Map(watchdog.message.clone())),
    })
}

/// Returns the value as in the file: the type of the field decides what the value means.
fn value_as_json(value: &YamlValue) -> Json {
    match value {
        YamlValue::One(text) => text.as_str().into(),
        YamlValue::List(elements) => elements.iter().map(value_as_json).collect(),
        YamlValue::Map(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), value_as_json(value)));
            Json::Object(fields.collect())
        }
    }
}

fn service_as_json(rule: &ServiceRule) -> Json {
    json!({
        "pattern": rule.pattern.as_str(),
        "priority": rule.treatment.priority,
        "timeout_ms": rule.treatment.timeout.as_millis() as u64,
        "to": rule.treatment.to,
    })
}
