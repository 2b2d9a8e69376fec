// SPDX-License-Identifier: Apache-2.0
//! The ROS of this machine: which, and where.

use super::dds;
use super::finding::{CheckFinding, CheckResult, Harm, NO_FILE};
use super::machine::Machine;
use super::processes::describe_processes;
use super::robot::{Robot, resolve};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Maximum number of addresses of masters that are tried.
const MAX_MASTERS: usize = 4;

/// The addresses of the masters that run here, from the arguments of their processes.
fn running_masters(machine: &Machine) -> Vec<String> {
    let here = machine.processes().iter().filter(|it| it.shares_network != Some(false));
    let ports = here.filter_map(|it| {
        let line = machine.read(format!("/proc/{}/cmdline", it.id))?;
        let words: Vec<&str> = line.split('\0').collect();
        let is_master =
            words.iter().take(3).any(|it| it.ends_with("/rosmaster") || *it == "rosmaster");
        let at = words.iter().position(|it| ["-p", "--port"].contains(it));
        let port = at.and_then(|at| words.get(at + 1)?.parse::<u16>().ok()).unwrap_or(11311);
        is_master.then(|| format!("http://localhost:{port}"))
    });
    let all: BTreeSet<String> = ports.collect();
    all.into_iter().take(MAX_MASTERS).collect()
}

fn configured_master(robot: &Robot) -> Option<&str> {
    robot.config()?.ros1.as_ref().map(|it| it.master.as_str())
}

/// The address of the master that the robot should use: from the file, else from the settings of ROS.
fn expected_master(machine: &Machine, robot: &Robot) -> String {
    configured_master(robot).unwrap_or_else(|| machine.ros_settings().master()).to_owned()
}

/// The masters that answer, each with the number of its nodes.
fn answering_masters(machine: &Machine, robot: &Robot) -> Vec<(String, usize)> {
    let mut all = vec![expected_master(machine, robot)];
    for master in running_masters(machine) {
        if !all.iter().any(|it| is_same(it, &master)) {
            all.push(master);
        }
    }
    let answered = all.into_iter().filter_map(|it| Some((machine.nodes_of(&it).ok()?.len(), it)));
    answered.map(|(nodes, master)| (master, nodes)).collect()
}

/// Whether two addresses lead to one master. `localhost` and all loopback addresses are one host.
fn is_same(one: &str, other: &str) -> bool {
    let place = |uri: &str| {
        let port = uri.trim_end_matches('/').rsplit_once(':')?.1.to_owned();
        let host = host(uri)?;
        let is_local =
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|it| it.is_loopback());
        Some((if is_local { "localhost".into() } else { host.to_owned() }, port))
    };
    one == other || place(one).is_some_and(|it| Some(it) == place(other))
}

pub(super) fn describe_ros(machine: &Machine, robot: &Robot) -> Vec<String> {
    let mut lines: Vec<String> = answering_masters(machine, robot)
        .into_iter()
        .map(|(master, nodes)| format!("ROS 1: master at {master}, {nodes} nodes"))
        .collect();
    let visible = machine.visible_processes();
    for domain in dds::domains(machine) {
        let programs = visible.in_this_network.iter().filter(|it| it.domain() == domain).count();
        lines.push(format!("ROS 2: domain {domain}, {programs} programs of ROS 2 visible"));
    }
    let versions: BTreeSet<&str> =
        visible.in_this_network.iter().filter_map(|it| it.setting("ROS_DISTRO")).collect();
    if !versions.is_empty() {
        let versions: Vec<&str> = versions.into_iter().collect();
        lines.push(format!("versions of ROS in use: {}", versions.join(", ")));
    }
    let installed = machine.list("/opt/ros");
    if !installed.is_empty() {
        lines.push(format!("installed in /opt/ros: {}", installed.join(", ")));
    }
    if lines.is_empty() {
        lines.push("ROS: none found".into());
    }
    lines
}

pub(super) fn check_present(machine: &Machine, robot: &Robot) -> CheckResult {
    if robot.config().is_some_and(|it| it.ros1.is_none() && it.ros2.is_none()) {
        return CheckResult::DoesNotApply("the file switches ROS off (ros1: false)".into());
    }
    let has_ros1 = !answering_masters(machine, robot).is_empty();
    let has_ros2 = !dds::domains(machine).is_empty()
        || !machine.visible_processes().in_this_network.is_empty();
    let (wants_ros1, wants_ros2) =
        robot.config().map_or((true, true), |it| (it.ros1.is_some(), it.ros2.is_some()));
    if has_ros1 && wants_ros1 || has_ros2 && wants_ros2 {
        return CheckResult::Completed(Vec::new());
    }
    if !has_ros1 && !has_ros2 && configured_master(robot).is_some() {
        return CheckResult::DoesNotApply("'ros1-master' looks at the master".into());
    }
    let master = expected_master(machine, robot);
    let found = match (has_ros1, has_ros2) {
        (false, false) => {
            format!("no ROS runs: no master at {master}, and no program has a DDS port")
        }
        (true, _) => "ROS 1 runs, but the file is for ROS 2".into(),
        (_, true) => "ROS 2 runs, but the file is for ROS 1".into(),
    };
    let found =
        CheckFinding::new(Harm::Stops, found, "The daemon carries only topics of a running ROS.");
    CheckResult::Completed(vec![match (has_ros1, has_ros2) {
        (false, false) if wants_ros1 => found.fix("roscore  # or start the robot's launch file"),
        (false, false) => found.fix("start the robot's launch file: ros2 launch PACKAGE FILE"),
        (true, _) => found.fix(format!(
            "{}, and remove ros2",
            robot.how_to_set("ros1", format!("{{ master: {master} }}"))
        )),
        (_, true) => found.fix(format!("{}, and remove ros1", robot.how_to_set("ros2", "{}"))),
    }])
}

pub(super) fn check_single_ros(machine: &Machine, robot: &Robot) -> CheckResult {
    let masters = answering_masters(machine, robot);
    let domains = dds::domains(machine);
    let (Some((master, _)), Some(domain)) = (masters.first(), domains.first()) else {
        return CheckResult::Completed(Vec::new());
    };
    let carried = match robot.config() {
        Some(config) if config.ros1.is_some() => "ROS 1",
        Some(config) if config.ros2.is_some() => "ROS 2",
        _ => "one of them",
    };
    let found = CheckFinding::new(
        Harm::Note,
        format!("both run: ROS 1 (master at {master}) and ROS 2 (domain {domain})"),
        format!("One daemon carries one ROS; this one carries {carried}."),
    );
    CheckResult::Completed(vec![found.fix(
        "run a second daemon for the other, with a file, a 'name' and a 'listen' of its own \
         (page \"Install\", several daemons on one machine)",
    )])
}

pub(super) fn check_ros_in_container(machine: &Machine, robot: &Robot) -> CheckResult {
    let visible = machine.visible_processes();
    let has_ros1 = !answering_masters(machine, robot).is_empty();
    if visible.in_other_networks.is_empty() || !visible.in_this_network.is_empty() || has_ros1 {
        return CheckResult::Completed(Vec::new());
    }
    let programs = describe_processes(visible.in_other_networks.iter().map(|it| &it.process));
    let found = CheckFinding::new(
        Harm::Stops,
        format!("programs of ROS 2 run only in other networks, such as containers: {programs}"),
        "The daemon sees only the ROS of its own network.",
    );
    CheckResult::Completed(vec![
        found.fix(
            "docker run --network host ...  # or run tautline in the network of the container",
        ),
    ])
}

pub(super) fn master(machine: &Machine, robot: &Robot) -> CheckResult {
    let Some(config) = robot.config() else {
        return CheckResult::DoesNotApply(format!("{NO_FILE} names a master"));
    };
    let Some(master) = config.ros1.as_ref().map(|it| it.master.as_str()) else {
        return CheckResult::DoesNotApply("the file has no ROS 1 side".into());
    };
    let error = match machine.nodes_of(master) {
        Ok(_) => return CheckResult::Completed(Vec::new()),
        Err(error) => error,
    };
    let found = CheckFinding::new(
        Harm::Stops,
        format!("the master at {master} does not answer ({error})"),
        "Without its master, the daemon finds no topics of ROS 1.",
    );
    let others = running_masters(machine).into_iter().filter(|it| machine.nodes_of(it).is_ok());
    let others: Vec<String> = others.collect();
    CheckResult::Completed(vec![match others.first() {
        Some(other) => found.fix(robot.how_to_set("ros1.master", other)),
        None => found
            .fix("roscore")
            .fix(format!("or {}", robot.how_to_set("ros1.master", "http://HOST:PORT"))),
    }])
}

/// The host of `http://HOST:PORT/`.
fn host(uri: &str) -> Option<&str> {
    let rest = uri.split_once("//")?.1;
    let place = rest.split('/').next()?;
    Some(place.rsplit_once(':').map_or(place, |(host, _)| host).trim_matches(['[', ']']))
}

pub(super) fn check_node_host_names(machine: &Machine, robot: &Robot) -> CheckResult {
    if robot.config().is_some_and(|it| it.ros1.is_none()) {
        return CheckResult::DoesNotApply("the file has no ROS 1 side".into());
    }
    let Ok(nodes) = machine.nodes_of(&expected_master(machine, robot)) else {
        return CheckResult::Skipped("the master does not answer".into());
    };
    let addressed = nodes.iter().filter_map(|(name, uri)| Some((name, host(uri.as_ref().ok()?)?)));
    let addressed: Vec<(&String, &str)> = addressed.collect();
    let hosts: BTreeSet<&str> = addressed.iter().map(|(_, host)| *host).collect();
    let mut all = Vec::new();
    for host in hosts {
        let Err(error) = resolve(host, 1) else { continue };
        let of_host = addressed.iter().filter(|(_, it)| *it == host).map(|(name, _)| name.as_str());
        let of_host: Vec<&str> = of_host.take(4).collect();
        let shown = tautline_gateway::plain::plain(host, 100);
        let found = CheckFinding::new(
            Harm::Stops,
            format!(
                "nodes have the address '{shown}', which does not resolve here ({error}): {}",
                of_host.join(", ")
            ),
            "The daemon cannot connect to these nodes, so that none of their messages arrive.",
        );
        all.push(
            found
                .fix(format!("echo 'ADDRESS {shown}' | sudo tee -a /etc/hosts  # with the address of that computer"))
                .fix("or start these nodes with ROS_IP=ADDRESS (or ROS_HOSTNAME with a name that resolves)"),
        );
    }
    CheckResult::Completed(all)
}
