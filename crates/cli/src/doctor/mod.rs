// SPDX-License-Identifier: Apache-2.0
//! `tautline doctor`: looks at a robot and reports what to change, the worst first.
//!
//! [`CHECKS`] is the table of checks. Each is one function of the [`Machine`] (files, sockets, a few
//! programs) and the [`Robot`] (its file and the state of its daemon), and has no effect on either.

mod daemon;
mod dds;
mod files;
mod finding;
mod firewall;
mod firewall_rules;
mod host;
mod links;
mod machine;
mod masters;
mod peer;
mod processes;
mod report;
mod robot;
mod ros;
mod routes;
mod settings;
mod sockets;
mod unit;
mod wifi;

pub use finding::{CheckFinding, CheckResult, Finding, Harm};
pub use machine::Machine;
pub use peer::{PeerTest, TopicVerdict, test_peer};
pub use report::{Report, redact_secrets};
use robot::unreadable_file_note;
pub use robot::{Robot, missing_status_reason};
pub use routes::test_addresses;
pub use settings::{DEFAULT_MASTER, RosSettings};

use finding::NO_FILE;
use serde::Serialize;

/// One check.
#[derive(Debug)]
pub struct Check {
    /// The name, unique.
    pub name: &'static str,
    /// What holds if the check passes.
    pub passed: &'static str,
    examine: fn(&Machine, &Robot) -> CheckResult,
}

const fn check(
    name: &'static str,
    passed: &'static str,
    examine: fn(&Machine, &Robot) -> CheckResult,
) -> Check {
    Check { name, passed, examine }
}

/// All checks.
pub const CHECKS: &[Check] = &[
    check("file", "the robot's file is valid, without warnings", daemon::file),
    check("key-file", "only the daemon's user can read the key", daemon::key_file),
    check("unit", "the service is installed, enabled and not failed", unit::state),
    check("daemon", "the daemon answers", daemon::running),
    check("versions", "daemon, program and peers have the same version", daemon::versions),
    check("ros", "a ROS runs, of the kind that the file names", ros::check_present),
    check("two-ros", "one kind of ROS runs", ros::check_single_ros),
    check("ros-container", "ROS runs in the daemon's network", ros::check_ros_in_container),
    check("ros1-master", "the ROS master answers", ros::master),
    check("ros1-names", "the addresses of ROS 1 nodes resolve", ros::check_node_host_names),
    check("ros2-domain", "nodes are in the daemon's domain", dds::domain),
    check("dds-domain-of-nodes", "all nodes have one ROS_DOMAIN_ID", dds::domain_of_nodes),
    check("dds-discovery-server", "no node uses a discovery server", dds::discovery_server),
    check("dds-transports", "all nodes have DDS over UDP and IPv4", dds::transports),
    check("dds-range", "nodes and daemon have the same discovery range", dds::range),
    check("dds-profile", "no node has a DDS profile of its own", dds::profile),
    check("dds-zenoh", "all nodes use DDS", dds::middleware),
    check("port", "no other program has the daemon's UDP port", sockets::port),
    check("firewall", "the firewall accepts packets of peers", firewall::examine),
    check("beacons", "an interface can send beacons", routes::beacons),
    check(
        "link-down",
        "the interfaces of the links are up and have addresses",
        routes::check_interfaces_up,
    ),
    check("peer-name", "the host names of peers resolve", routes::check_peer_host_names),
    check("own-address", "no peer has an address of this machine", routes::own_address),
    check("peer-route", "a route leads to each peer", routes::check_missing_route),
    check("route-interface", "no route leads through a network that costs", routes::costly_routes),
    check("rp-filter", "the kernel accepts packets of all links", routes::reverse_path),
    check(
        "duplicate-address",
        "no other machine has an address of this one",
        routes::check_duplicate_address,
    ),
    check("interface-mtu", "the interfaces of the links carry 1280 bytes", routes::interface_mtu),
    check("wifi-power-save", "Wi-Fi power saving is off", wifi::power_save),
    check("wifi-signal", "the Wi-Fi signal is strong", wifi::signal),
    check("wifi-wmm", "the access point has WMM", wifi::wmm),
    check("wifi-region", "the regulatory domain is set", wifi::region),
    check("neighbour-retry", "the kernel repeats ARP at short intervals", wifi::neighbour_retry),
    check("back-pressure", "the drivers of the links hold packets", routes::back_pressure),
    check("transmit-queue", "the kernel's transmit queues have room", routes::transmit_queue),
    check("clock", "the clock is synchronized", host::clock),
    check("governor", "the processor runs at full speed", host::governor),
    check("realtime", "the daemon may have what 'realtime' asks for", unit::realtime),
    check("memory", "the unit's memory suffices for all peers", unit::memory),
    check("receive-buffer", "the kernel grants receive buffers of 4 MB", host::receive_buffer),
    check("disk", "the disk has room for logs", host::disk),
    check("peer-down", "all peers are up", links::check_peers_up),
    check("peer-key", "no node has a wrong key", links::check_peer_keys),
    check("peer-clock", "the clocks of the peers agree", links::clocks),
    check("path-mtu", "the paths carry 1280 bytes, and routers report smaller sizes", links::mtu),
    check("loss", "fewer than 5 % of the packets are lost", links::loss),
    check("too-slow", "the links carry what the topics offer", links::check_link_rates),
    check("refused-there", "no peer refuses a topic of this machine", links::check_refused_topics),
    check("not-accepted", "no peer waits for a line in the file", links::check_waiting_requests),
];

/// Returns a text that says that this machine is not paired yet; `None` if it may be paired.
pub fn not_paired(machine: &Machine, robot: &Robot) -> Option<String> {
    let file = std::path::Path::new(crate::unit::FILE);
    daemon::is_unpaired(machine, robot).then(|| crate::unit::not_paired(file))
}

/// Returns the command that starts the daemon with the robot's file.
pub fn how_to_start(machine: &Machine, robot: &Robot) -> String {
    match unit::is_run_by_unit(machine, robot) {
        true => "sudo systemctl start tautline".into(),
        false => format!("tautline run {}", robot.file_name()),
    }
}

/// A check without findings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The check.
    pub check: &'static str,
    /// What holds, what is absent, or why the check was not made.
    pub text: String,
}

/// What all checks found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// What should change, the worst first.
    pub findings: Vec<Finding>,
    /// Checks that passed.
    pub passed: Vec<Outcome>,
    /// Checks of what this robot does not have.
    pub does_not_apply: Vec<Outcome>,
    /// Checks that could not be made, and why.
    pub not_made: Vec<Outcome>,
}

impl Findings {
    /// Whether a finding stops or delays messages.
    pub fn is_harmful(&self) -> bool {
        self.findings.iter().any(|it| it.harm <= Harm::Delays)
    }
}

/// Makes all checks; calls `before` with a check's name before the check.
pub fn examine(machine: &Machine, robot: &Robot, mut before: impl FnMut(&str)) -> Findings {
    let mut all = Findings::default();
    for it in CHECKS {
        before(it.name);
        let outcome = |text: String| Outcome { check: it.name, text };
        match (it.examine)(machine, robot) {
            CheckResult::Completed(found) if found.is_empty() => {
                all.passed.push(outcome(it.passed.into()))
            }
            CheckResult::Completed(found) => all.findings.extend(found.into_iter().map(|found| {
                let CheckFinding { harm, found, why, fix } = found;
                Finding { check: it.name, harm, found, why, fix }
            })),
            // A file that this user may not read may be valid.
            CheckResult::DoesNotApply(text)
                if robot.is_file_unreadable() && text.starts_with(NO_FILE) =>
            {
                all.not_made.push(outcome(unreadable_file_note(robot)));
            }
            CheckResult::DoesNotApply(text) => all.does_not_apply.push(outcome(text)),
            CheckResult::Skipped(text) => all.not_made.push(outcome(text)),
        }
    }
    // Stable: within one harm, the order of the table.
    all.findings.sort_by_key(|it| it.harm);
    all
}

/// Describes the ROS that runs on this machine, one line for each.
pub fn describe_ros(machine: &Machine, robot: &Robot) -> Vec<String> {
    ros::describe_ros(machine, robot)
}
