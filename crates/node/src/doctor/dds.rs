// SPDX-License-Identifier: Apache-2.0
//! DDS: domains, and settings of programs of ROS 2 that hide them from the daemon
//! (docs/reference/dds.md). The daemon itself reads no environment of other processes (decision 60);
//! here, a person looks at their own machine.

use super::machine::Machine;
use super::processes::{RosProcess, names};
use super::robot::Robot;
use super::sockets::{self, Owner};
use super::{Answer, Found, Harm};
use crate::config::Ros2Config;
use std::collections::BTreeSet;

/// The port of announcements in domain 0, and the distance to the next (RTPS 2.5, 9.6.2.3).
const FIRST_PORT: u16 = 7400;
const PORTS_OF_DOMAIN: u16 = 250;
/// The last domain whose ports are not those of other programs' outgoing packets.
const LAST_DOMAIN: u16 = 101;
/// Transports of Fast DDS with data over UDP and IPv4.
const VISIBLE_TRANSPORTS: [&str; 2] = ["DEFAULT", "UDPv4"];
/// Middleware that is DDS.
const DDS: [&str; 4] = ["rmw_fastrtps", "rmw_cyclonedds", "rmw_connextdds", "rmw_gurumdds"];
const HIDDEN: &str =
    "The daemon's participant has DDS over UDP and IPv4 alone, so that it does not see them.";

/// The domains with a participant other than the daemon's.
pub(super) fn domains(machine: &Machine) -> Vec<u32> {
    let bound: BTreeSet<u16> = sockets::udp(machine)
        .iter()
        .filter(|it| !matches!(sockets::owner(machine, it), Owner::Tautline))
        .map(|it| it.port)
        .collect();
    let is_in = |domain: &u16| bound.contains(&(FIRST_PORT + PORTS_OF_DOMAIN * domain));
    (0..=LAST_DOMAIN).filter(is_in).map(u32::from).collect()
}

fn ros2(robot: &Robot) -> Option<&Ros2Config> {
    robot.config()?.ros2.as_ref()
}

/// Whether the file is for ROS 1 or for no ROS, so that DDS does not matter.
fn has_other_ros(robot: &Robot) -> bool {
    robot.config().is_some_and(|it| it.ros2.is_none())
}

fn not_ros2() -> Answer {
    Answer::DoesNotApply("the file has no ROS 2 side".into())
}

/// Makes a check of each program of ROS 2 that may be the daemon's neighbour.
fn of_programs(
    machine: &Machine,
    robot: &Robot,
    check: impl Fn(&[RosProcess]) -> Vec<Found>,
) -> Answer {
    if has_other_ros(robot) {
        return not_ros2();
    }
    let visible = machine.visible();
    // Root sees all that anybody may see.
    if visible.here.is_empty() && visible.hidden > 0 && !machine.is_root() {
        let hidden = visible.hidden;
        return Answer::NotMade(format!(
            "{hidden} processes of other users are not visible: sudo tautline doctor"
        ));
    }
    if visible.here.is_empty() {
        return Answer::DoesNotApply("no program of ROS 2 runs".into());
    }
    Answer::Made(check(&visible.here))
}

/// Groups programs by a setting that `is_wrong` selects.
fn grouped<'a>(
    programs: &'a [RosProcess],
    setting: &str,
    is_wrong: impl Fn(&str) -> bool,
) -> Vec<(&'a str, String)> {
    let values: BTreeSet<&str> = programs.iter().filter_map(|it| it.setting(setting)).collect();
    let wrong = values.into_iter().filter(|it| is_wrong(it));
    wrong
        .map(|value| {
            let with = programs.iter().filter(|it| it.setting(setting) == Some(value));
            (value, names(with.map(|it| &it.process)))
        })
        .collect()
}

pub(super) fn domain(machine: &Machine, robot: &Robot) -> Answer {
    let Some(config) = ros2(robot) else { return not_ros2() };
    let domains = domains(machine);
    if domains.is_empty() || domains.contains(&config.domain) {
        return Answer::Made(Vec::new());
    }
    let others: Vec<String> = domains.iter().map(u32::to_string).collect();
    let found = Found::new(
        Harm::Stops,
        format!(
            "domain {}, which the daemon has, is empty; there are participants in domain {}",
            config.domain,
            others.join(", ")
        ),
        "The daemon sees only nodes of its own domain.",
    );
    Answer::Made(vec![found.fix(format!(
        "in {}: ros2: {{ domain: {} }}",
        robot.file_name(),
        domains[0]
    ))])
}

pub(super) fn domain_of_nodes(machine: &Machine, robot: &Robot) -> Answer {
    of_programs(machine, robot, |programs| {
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
                let with = names(with.map(|it| &it.process));
                let found = Found::new(
                    Harm::Delays,
                    format!("ROS_DOMAIN_ID={domain} in {with}; the others have {wanted}"),
                    "Nodes of another domain are not carried.",
                );
                found.fix(format!("export ROS_DOMAIN_ID={wanted}  # and restart these programs"))
            })
            .collect()
    })
}

pub(super) fn discovery_server(machine: &Machine, robot: &Robot) -> Answer {
    of_programs(machine, robot, |programs| {
        let found = grouped(programs, "ROS_DISCOVERY_SERVER", |_| true).into_iter();
        found
            .map(|(server, with)| {
                let why = "Clients of a discovery server ignore the announcements of all others.";
                let found = format!("ROS_DISCOVERY_SERVER={server} in {with}");
                Found::new(Harm::Stops, found, why)
                    .fix("unset ROS_DISCOVERY_SERVER  # and restart these programs")
            })
            .collect()
    })
}

pub(super) fn transports(machine: &Machine, robot: &Robot) -> Answer {
    // In the range LOCALHOST, ROS 2 replaces the transports by those that the daemon has.
    if ros2(robot).is_some_and(|it| it.localhost) {
        return Answer::DoesNotApply(
            "in the range 'localhost', these settings hide no node".into(),
        );
    }
    of_programs(machine, robot, |programs| {
        let is_wrong = |value: &str| {
            // Options may follow after a question mark.
            !VISIBLE_TRANSPORTS.contains(&value.split('?').next().unwrap_or_default())
        };
        let found = grouped(programs, "FASTDDS_BUILTIN_TRANSPORTS", is_wrong).into_iter();
        found
            .map(|(value, with)| {
                let found = format!("FASTDDS_BUILTIN_TRANSPORTS={value} in {with}");
                Found::new(Harm::Stops, found, HIDDEN).fix(
                    "export FASTDDS_BUILTIN_TRANSPORTS=DEFAULT  # or UDPv4; restart these programs",
                )
            })
            .collect()
    })
}

pub(super) fn range(machine: &Machine, robot: &Robot) -> Answer {
    let localhost = ros2(robot).map(|it| it.localhost);
    of_programs(machine, robot, |programs| {
        let mut all = Vec::new();
        for (value, with) in grouped(programs, "ROS_AUTOMATIC_DISCOVERY_RANGE", |value| {
            ["OFF", "SUBNET", "LOCALHOST"].contains(&value.to_uppercase().as_str())
        }) {
            all.extend(range_of(&value.to_uppercase(), &with, localhost, robot));
        }
        for (_, with) in grouped(programs, "ROS_LOCALHOST_ONLY", |value| value == "1") {
            all.extend(range_of("LOCALHOST", &with, localhost, robot));
        }
        all
    })
}

fn range_of(range: &str, with: &str, localhost: Option<bool>, robot: &Robot) -> Option<Found> {
    let file = robot.file_name();
    match (range, localhost) {
        ("OFF", _) => Some(
            Found::new(
                Harm::Stops,
                format!("ROS_AUTOMATIC_DISCOVERY_RANGE=OFF in {with}"),
                "These nodes find no others, and the daemon does not find them.",
            )
            .fix("export ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST  # and restart these programs")
            .fix(format!("in {file}: ros2: {{ range: localhost }}")),
        ),
        ("LOCALHOST", Some(false)) => Some(
            Found::new(
                Harm::Stops,
                format!("the discovery range is LOCALHOST in {with}, and 'subnet' in {file}"),
                "Nodes of this range communicate over loopback alone, the daemon does not.",
            )
            .fix(format!("in {file}: ros2: {{ range: localhost }}")),
        ),
        ("SUBNET", Some(true)) => Some(
            Found::new(
                Harm::Stops,
                format!("the discovery range is SUBNET in {with}, and 'localhost' in {file}"),
                "The daemon communicates over loopback alone, these nodes do not.",
            )
            .fix(format!("in {file}: ros2: {{ range: subnet }}"))
            .fix("or export ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST  # and restart these programs"),
        ),
        _ => None,
    }
}

pub(super) fn profile(machine: &Machine, robot: &Robot) -> Answer {
    of_programs(machine, robot, |programs| {
        let names =
            ["FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE", "CYCLONEDDS_URI"];
        let found = names.iter().flat_map(|name| {
            grouped(programs, name, |_| true).into_iter().map(move |(value, with)| {
                let found = Found::new(
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

pub(super) fn middleware(machine: &Machine, robot: &Robot) -> Answer {
    of_programs(machine, robot, |programs| {
        let is_other = |value: &str| !DDS.iter().any(|it| value.starts_with(it));
        let found = grouped(programs, "RMW_IMPLEMENTATION", is_other).into_iter();
        found
            .map(|(value, with)| {
                let found = format!("RMW_IMPLEMENTATION={value} in {with}");
                Found::new(Harm::Stops, found, "The daemon connects to ROS 2 over DDS alone.").fix(
                    "export RMW_IMPLEMENTATION=rmw_fastrtps_cpp  # or rmw_cyclonedds_cpp; restart \
                     these programs",
                )
            })
            .collect()
    })
}
