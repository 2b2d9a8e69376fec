// SPDX-License-Identifier: Apache-2.0
//! DDS: domains, and settings of programs of ROS 2 that hide them from the daemon
//! (docs/reference/dds.md). The daemon itself reads no environment of other processes (decision 60);
//! here, a person looks at their own machine.

use super::finding::{CheckFinding, CheckResult, Harm, NO_FILE};
use super::machine::Machine;
use super::processes::{RosProcess, describe_processes};
use super::robot::{Robot, how_to_set_key};
use super::sockets::{self, Owner};
use std::collections::BTreeSet;
use tautline::config::Ros2Config;

/// The discovery port of domain 0 (PB in RTPS 2.5, 9.6.2.3).
const PORT_BASE: u16 = 7400;
/// Distance between the ports of two successive domains (DG in RTPS 2.5, 9.6.2.3).
const DOMAIN_ID_GAIN: u16 = 250;
/// The last domain whose ports are below the ephemeral ports.
const LAST_DOMAIN: u16 = 101;
/// Transports of Fast DDS that send data over UDP and IPv4.
const VISIBLE_TRANSPORTS: [&str; 2] = ["DEFAULT", "UDPv4"];
/// Prefixes of the names of DDS middleware.
const DDS_MIDDLEWARE: [&str; 4] =
    ["rmw_fastrtps", "rmw_cyclonedds", "rmw_connextdds", "rmw_gurumdds"];
/// Releases before Iron. They know only ROS_LOCALHOST_ONLY, or not even that.
const RELEASES_BEFORE_IRON: [&str; 5] = ["dashing", "eloquent", "foxy", "galactic", "humble"];
const HIDDEN_NODES_REASON: &str =
    "The daemon's participant has DDS over UDP and IPv4 alone, so that it does not see them.";

/// The domains with a participant other than the daemon's.
pub(super) fn domains(machine: &Machine) -> Vec<u32> {
    let bound: BTreeSet<u16> = sockets::bound_udp_sockets(machine)
        .iter()
        .filter(|it| !matches!(sockets::owner(machine, it), Owner::Tautline(_)))
        .map(|it| it.port)
        .collect();
    let is_in = |domain: &u16| bound.contains(&(PORT_BASE + DOMAIN_ID_GAIN * domain));
    (0..=LAST_DOMAIN).filter(is_in).map(u32::from).collect()
}

fn ros2(robot: &Robot) -> Option<&Ros2Config> {
    robot.config()?.ros2.as_ref()
}

/// Whether the file is for ROS 1 or for no ROS, so that DDS does not matter.
fn has_other_ros(robot: &Robot) -> bool {
    robot.config().is_some_and(|it| it.ros2.is_none())
}

fn not_ros2() -> CheckResult {
    CheckResult::DoesNotApply("the file has no ROS 2 side".into())
}

/// Runs a check of the programs of ROS 2 in this network. If none is visible, the answer says why.
fn check_programs(
    machine: &Machine,
    robot: &Robot,
    check: impl Fn(&[RosProcess]) -> Vec<CheckFinding>,
) -> CheckResult {
    if has_other_ros(robot) {
        return not_ros2();
    }
    let visible = machine.visible_processes();
    // Root already sees every process, so advice to use sudo would not help.
    if visible.in_this_network.is_empty() && visible.hidden > 0 && !machine.is_root() {
        let hidden = visible.hidden;
        return CheckResult::Skipped(format!(
            "{hidden} processes of other users are not visible: sudo tautline doctor"
        ));
    }
    if visible.in_this_network.is_empty() {
        return CheckResult::DoesNotApply("no program of ROS 2 runs".into());
    }
    CheckResult::Completed(check(&visible.in_this_network))
}

/// Groups programs by the value of a setting, without values for which `is_wrong` is false. Returns each
/// value with the names of its programs.
fn group_programs<'a>(
    programs: &'a [RosProcess],
    setting: &str,
    is_wrong: impl Fn(&str) -> bool,
) -> Vec<(&'a str, String)> {
    let values: BTreeSet<&str> = programs.iter().filter_map(|it| it.setting(setting)).collect();
    let wrong = values.into_iter().filter(|it| is_wrong(it));
    wrong
        .map(|value| {
            let with = programs.iter().filter(|it| it.setting(setting) == Some(value));
            (value, describe_processes(with.map(|it| &it.process)))
        })
        .collect()
}

pub(super) fn domain(machine: &Machine, robot: &Robot) -> CheckResult {
    if robot.config().is_none() {
        return CheckResult::DoesNotApply(format!("{NO_FILE} names a domain"));
    }
    let Some(config) = ros2(robot) else { return not_ros2() };
    let domains = domains(machine);
    if domains.is_empty() || domains.contains(&config.domain) {
        return CheckResult::Completed(Vec::new());
    }
    let others: Vec<String> = domains.iter().map(u32::to_string).collect();
    let found = CheckFinding::new(
        Harm::Stops,
        format!(
            "domain {}, which the daemon has, is empty; there are participants in domain {}",
            config.domain,
            others.join(", ")
        ),
        "The daemon sees only nodes of its own domain.",
    );
    CheckResult::Completed(vec![found.fix(robot.how_to_set("ros2.domain", domains[0]))])
}

pub(super) fn domain_of_nodes(machine: &Machine, robot: &Robot) -> CheckResult {
    check_programs(machine, robot, |programs| {
        let all: BTreeSet<u32> = programs.iter().map(RosProcess::domain).collect();
        let Some(wanted) = ros2(robot).map(|it| it.domain).or(all.first().copied()) else {
            return Vec::new();
        };
        // Where no program has the daemon's domain, `ros2-domain` says so.
        if !all.contains(&wanted) {
            return Vec::new();
        }
        let others = all.into_iter().filter(|it| *it != wanted);
        others
            .map(|domain| {
                let with = programs.iter().filter(|it| it.domain() == domain);
                let with = describe_processes(with.map(|it| &it.process));
                let found = CheckFinding::new(
                    Harm::Delays,
                    format!("ROS_DOMAIN_ID={domain} in {with}; the others have {wanted}"),
                    "Nodes of another domain are not carried.",
                );
                found.fix(format!("export ROS_DOMAIN_ID={wanted}  # and restart these programs"))
            })
            .collect()
    })
}

pub(super) fn discovery_server(machine: &Machine, robot: &Robot) -> CheckResult {
    check_programs(machine, robot, |programs| {
        let found = group_programs(programs, "ROS_DISCOVERY_SERVER", |_| true).into_iter();
        found
            .map(|(server, with)| {
                let why = "Clients of a discovery server ignore the announcements of all others.";
                let found = format!("ROS_DISCOVERY_SERVER={server} in {with}");
                CheckFinding::new(Harm::Stops, found, why)
                    .fix("unset ROS_DISCOVERY_SERVER  # and restart these programs")
            })
            .collect()
    })
}

pub(super) fn transports(machine: &Machine, robot: &Robot) -> CheckResult {
    // In the range LOCALHOST, ROS 2 replaces the transports by those that the daemon has.
    if ros2(robot).is_some_and(|it| it.localhost) {
        return CheckResult::DoesNotApply(
            "in the range 'localhost', these settings hide no node".into(),
        );
    }
    check_programs(machine, robot, |programs| {
        let is_wrong = |value: &str| {
            // Options may follow after a question mark.
            !VISIBLE_TRANSPORTS.contains(&value.split('?').next().unwrap_or_default())
        };
        let found = group_programs(programs, "FASTDDS_BUILTIN_TRANSPORTS", is_wrong).into_iter();
        found
            .map(|(value, with)| {
                let found = format!("FASTDDS_BUILTIN_TRANSPORTS={value} in {with}");
                CheckFinding::new(Harm::Stops, found, HIDDEN_NODES_REASON).fix(
                    "export FASTDDS_BUILTIN_TRANSPORTS=DEFAULT  # or UDPv4; restart these programs",
                )
            })
            .collect()
    })
}

/// The discovery range of a program (rcl: `discovery_options.c`, `init_options.c`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Range {
    Off,
    Localhost,
    Subnet,
}

/// Whether a program belongs to a release before Iron, which knows only ROS_LOCALHOST_ONLY.
fn is_old(program: &RosProcess) -> bool {
    program.setting("ROS_DISTRO").is_some_and(|it| RELEASES_BEFORE_IRON.contains(&it))
}

fn range_of(program: &RosProcess) -> Range {
    if program.setting("ROS_LOCALHOST_ONLY") == Some("1") {
        return Range::Localhost;
    }
    match program.setting("ROS_AUTOMATIC_DISCOVERY_RANGE") {
        _ if is_old(program) => Range::Subnet,
        None | Some("SUBNET" | "SYSTEM_DEFAULT") => Range::Subnet,
        Some("OFF") => Range::Off,
        // ROS 2 treats any other value as LOCALHOST.
        Some(_) => Range::Localhost,
    }
}

pub(super) fn range(machine: &Machine, robot: &Robot) -> CheckResult {
    let localhost = ros2(robot).map(|it| it.localhost);
    check_programs(machine, robot, |programs| {
        let kinds: BTreeSet<(Range, bool)> =
            programs.iter().map(|it| (range_of(it), is_old(it))).collect();
        let found = kinds.into_iter().filter_map(|(range, is_old_one)| {
            let with =
                programs.iter().filter(|it| (range_of(it), is_old(it)) == (range, is_old_one));
            let with = describe_processes(with.map(|it| &it.process));
            wrong_range(range, is_old_one, &with, localhost, &robot.file_name())
        });
        found.collect()
    })
}

fn wrong_range(
    range: Range,
    is_old: bool,
    with: &str,
    localhost: Option<bool>,
    file: &str,
) -> Option<CheckFinding> {
    let export = match is_old {
        true => "export ROS_LOCALHOST_ONLY=1",
        false => "export ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST",
    };
    let export = format!("{export}  # and restart these programs");
    match (range, localhost) {
        (Range::Off, _) => Some(
            CheckFinding::new(
                Harm::Stops,
                format!("ROS_AUTOMATIC_DISCOVERY_RANGE=OFF in {with}"),
                "These nodes find no others, and the daemon does not find them.",
            )
            .fix(export)
            .fix(how_to_set_key(file, "ros2.range", "localhost")),
        ),
        (Range::Localhost, Some(false)) => Some(
            CheckFinding::new(
                Harm::Stops,
                format!("the discovery range is LOCALHOST in {with}, and 'subnet' in {file}"),
                "Nodes of this range communicate over loopback alone, the daemon does not.",
            )
            .fix(how_to_set_key(file, "ros2.range", "localhost")),
        ),
        (Range::Subnet, Some(true)) => Some(
            CheckFinding::new(
                Harm::Stops,
                format!("the discovery range is SUBNET in {with}, and 'localhost' in {file}"),
                "The daemon communicates over loopback alone, these nodes do not.",
            )
            .fix(how_to_set_key(file, "ros2.range", "subnet"))
            .fix(format!("or {export}")),
        ),
        _ => None,
    }
}

pub(super) fn profile(machine: &Machine, robot: &Robot) -> CheckResult {
    check_programs(machine, robot, |programs| {
        let names =
            ["FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE", "CYCLONEDDS_URI"];
        let found = names.iter().flat_map(|name| {
            group_programs(programs, name, |_| true).into_iter().map(move |(value, with)| {
                let found = CheckFinding::new(
                    Harm::Note,
                    format!("{name}={value} in {with}"),
                    "A profile may select transports, addresses or interfaces with which the \
                     daemon does not see these nodes.",
                );
                found.fix(format!(
                    "if topics are missing: unset {name}, or allow UDPv4 and multicast on loopback in it"
                ))
            })
        });
        found.collect()
    })
}

pub(super) fn middleware(machine: &Machine, robot: &Robot) -> CheckResult {
    check_programs(machine, robot, |programs| {
        let is_other = |value: &str| !DDS_MIDDLEWARE.iter().any(|it| value.starts_with(it));
        let found = group_programs(programs, "RMW_IMPLEMENTATION", is_other).into_iter();
        found
            .map(|(value, with)| {
                let found = format!("RMW_IMPLEMENTATION={value} in {with}");
                CheckFinding::new(
                    Harm::Stops,
                    found,
                    "The daemon connects to ROS 2 over DDS alone.",
                )
                .fix(
                    "export RMW_IMPLEMENTATION=rmw_fastrtps_cpp  # or rmw_cyclonedds_cpp; restart \
                     these programs",
                )
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::processes::Process;
    use std::collections::BTreeMap;

    #[test]
    fn the_discovery_range_depends_on_the_ros_release() {
        let range = |settings: &[(&'static str, &str)]| {
            let process = Process { id: 7, name: "talker".into(), user: 0, shares_network: None };
            let settings = settings.iter().map(|(name, value)| (*name, (*value).to_owned()));
            range_of(&RosProcess { process, settings: settings.collect::<BTreeMap<_, _>>() })
        };
        const RANGE: &str = "ROS_AUTOMATIC_DISCOVERY_RANGE";
        assert_eq!(range(&[]), Range::Subnet);
        assert_eq!(range(&[(RANGE, "OFF")]), Range::Off);
        assert_eq!(range(&[(RANGE, "subnet")]), Range::Localhost);
        assert_eq!(range(&[(RANGE, "LOCALHOST"), ("ROS_DISTRO", "humble")]), Range::Subnet);
        for distro in ["foxy", "humble", "jazzy"] {
            let settings = [(RANGE, "SUBNET"), ("ROS_LOCALHOST_ONLY", "1"), ("ROS_DISTRO", distro)];
            assert_eq!(range(&settings), Range::Localhost);
        }
        assert_eq!(range(&[("ROS_LOCALHOST_ONLY", "0")]), Range::Subnet);
        let old = wrong_range(Range::Subnet, true, "talker", Some(true), "robot.yaml").unwrap();
        assert!(old.fix[1].contains("ROS_LOCALHOST_ONLY=1"), "{old:?}");
        assert_eq!(wrong_range(Range::Subnet, false, "talker", None, "robot.yaml"), None);
    }
}
