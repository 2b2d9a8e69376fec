// SPDX-License-Identifier: Apache-2.0
//! Which ROS runs on this machine, and its graph.

use crate::cli::Failure;
use std::fs;
use std::path::{Path, PathBuf};
use tautline::config::table::DEFAULT_NODE_NAME;
use tautline::config::{Config, MAX_DOMAIN};
use tautline_cli::doctor::{DEFAULT_MASTER, Machine, RosSettings};
use tautline_cli::pairing::facts::Ros;
use tautline_gateway::plain::plain;
use tautline_gateway::survey::Graph;

/// Maximum number of folders of types that are written to the file.
const MAX_FOLDERS: usize = 8;

/// What a person may do without a master.
const HOW_TO_CONTINUE: &str = "\n  No master answers there. Either press Ctrl-C, start roscore and \
    the nodes, and run this command again; or pair now without the topics of this machine, and once \
    more at both machines when the nodes run";

/// Releases that do not know ROS_AUTOMATIC_DISCOVERY_RANGE.
const WITHOUT_RANGE: [&str; 3] = ["foxy", "galactic", "humble"];

/// Folders of installed types that the settings name, or the only one in /opt/ros.
fn folders_in(settings: &RosSettings, variable: &str) -> Vec<PathBuf> {
    let named = settings.get(variable).unwrap_or_default().split(':').map(PathBuf::from);
    let is_quotable = |it: &Path| it.to_str().is_some_and(|it| !it.contains(['"', '\\']));
    let is_usable = |it: &PathBuf| it.is_absolute() && it.is_dir() && is_quotable(it);
    let found: Vec<PathBuf> = named.filter(is_usable).take(MAX_FOLDERS).collect();
    if !found.is_empty() {
        return found;
    }
    let entries = fs::read_dir("/opt/ros").into_iter().flatten().flatten();
    let all: Vec<PathBuf> = entries.map(|it| it.path()).filter(is_usable).collect();
    if all.len() == 1 { all } else { Vec::new() }
}

/// What the command line says about ROS.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Flags {
    /// This machine has ROS 1, with its master at URI [default: ROS_MASTER_URI, else
    /// http://localhost:11311]
    #[arg(long, value_name = "URI", num_args = 0..=1, require_equals = true, group = "ros")]
    ros1: Option<Option<String>>,
    /// This machine has ROS 2, in domain NUMBER [default: ROS_DOMAIN_ID, else 0]
    #[arg(long, value_name = "NUMBER", num_args = 0..=1, require_equals = true, group = "ros")]
    ros2: Option<Option<String>>,
    /// This machine has no ROS
    #[arg(long, group = "ros")]
    no_ros: bool,
}

/// The ROS of this machine.
pub struct DetectedRos {
    pub ros: Option<Ros>,
    pub graph: Graph,
    /// What was tried, for a person.
    pub words: String,
    /// Whether the master of its ROS 1 does not answer.
    pub is_silent: bool,
    /// The lines of a new file.
    pub lines: Vec<String>,
}

/// Finds the ROS that the flags, the file or the settings name, and looks at its graph. `inherits_env`:
/// the daemon is started in the shell of this command.
pub fn find_ros(
    flags: &Flags,
    file: Option<&Config>,
    inherits_env: bool,
) -> Result<DetectedRos, Failure> {
    let machine = Machine::default();
    let settings = machine.ros_settings();
    let master = || settings.master().to_owned();
    let domain = || parse_domain(settings.get("ROS_DOMAIN_ID").unwrap_or("0"), "ROS_DOMAIN_ID");
    let node = file.and_then(|it| it.ros1.as_ref()).map(|it| it.node_name.clone());
    let own = [DEFAULT_NODE_NAME.to_owned(), node.unwrap_or_default()];
    let (ros, graph, words) = match (flags, file) {
        (Flags { no_ros: true, .. }, _) => (None, None, "none (--no-ros)".into()),
        (Flags { ros1: Some(uri), .. }, _) => {
            named_ros(Ros::Ros1 { master: uri.clone().unwrap_or_else(master) }, &own)
        }
        (Flags { ros2: Some(text), .. }, _) => {
            let domain = text.as_ref().map_or_else(domain, |it| parse_domain(it, "--ros2"))?;
            named_ros(Ros::Ros2 { domain }, &own)
        }
        (_, Some(Config { ros1: Some(ros1), .. })) => {
            named_ros(Ros::Ros1 { master: ros1.master.clone() }, &own)
        }
        (_, Some(Config { ros2: Some(ros2), .. })) => {
            named_ros(Ros::Ros2 { domain: ros2.domain }, &own)
        }
        (_, Some(_)) => (None, None, "off in the file".into()),
        (_, None) => {
            let (ros, graph, words) =
                detect_ros(master(), domain()?, settings.get("ROS_VERSION"), &own)?;
            (ros, graph, format!("{words}{}", origin(settings)))
        }
    };
    let lines = match flags.no_ros {
        true => vec!["ros1: false".to_owned()],
        false => config_lines(ros.as_ref(), settings, inherits_env && !settings.is_of_programs),
    };
    let is_silent = matches!(ros, Some(Ros::Ros1 { .. })) && graph.is_none();
    let how = if is_silent { HOW_TO_CONTINUE } else { "" };
    let (words, graph) = (format!("{words}{how}"), graph.unwrap_or_default());
    Ok(DetectedRos { ros, graph, words, is_silent, lines })
}

/// Says whether settings come from running programs, and which settings are unclear.
fn origin(settings: &RosSettings) -> String {
    let taken = "; settings of ROS that this shell lacks are those of the running programs";
    let taken = if settings.is_of_programs { taken } else { "" };
    let unclear = settings
        .unclear
        .iter()
        .map(|it| format!("; {it}: choose with --ros1=URI or --ros2=NUMBER"));
    format!("{taken}{}", unclear.collect::<String>())
}

fn parse_domain(text: &str, from: &str) -> Result<u32, Failure> {
    let number = text.parse().ok().filter(|it| *it <= MAX_DOMAIN);
    let found = || plain(text, 40);
    number.ok_or_else(|| {
        Failure::new(format!("{from}: found '{}'; allowed: 0 to {MAX_DOMAIN}", found()))
    })
}

/// The ROS, its graph if it answered, and words for a person.
type Choice = (Option<Ros>, Option<Graph>, String);

/// Surveys the ROS that the flags or the file name. No answer is not an error: it may start later.
fn named_ros(ros: Ros, own: &[String]) -> Choice {
    let (graph, words) = match survey(&ros, own) {
        Ok(graph) => (Some(graph), ros.in_words()),
        Err(error) => (None, format!("{} ({error})", ros.in_words())),
    };
    (Some(ros), graph, words)
}

fn detect_ros(
    master: String,
    domain: u32,
    version: Option<&str>,
    own: &[String],
) -> Result<Choice, Failure> {
    let all = [Ros::Ros1 { master }, Ros::Ros2 { domain }];
    let [first, second] = std::thread::scope(|scope| {
        let looks = all.each_ref().map(|ros| scope.spawn(|| survey(ros, own)));
        looks.map(|it| it.join().unwrap_or_else(|_| Err("the look at the graph failed".into())))
    });
    let second = second.and_then(|graph| match graph.is_empty() {
        true => Err("no nodes".to_owned()),
        false => Ok(graph),
    });
    let [ros1, ros2] = all;
    Ok(match (first, second, version) {
        (Ok(_), Ok(_), None) => {
            return Err(Failure::new(format!(
                "found two kinds of ROS here: {}; {}. One daemon carries one of them: choose with \
                 --ros1 or --ros2",
                ros1.in_words(),
                ros2.in_words()
            )));
        }
        (Ok(graph), _, None | Some("1")) | (Ok(graph), Err(_), _) => {
            let words = ros1.in_words();
            (Some(ros1), Some(graph), words)
        }
        (_, Ok(graph), _) => {
            let words = ros2.in_words();
            (Some(ros2), Some(graph), words)
        }
        // ROS 1 is installed and not running.
        (Err(error), Err(_), Some("1")) => {
            let words = format!("{} ({error})", ros1.in_words());
            (Some(ros1), None, words)
        }
        (Err(_), Err(error), Some("2")) => {
            let words = format!("{} ({error})", ros2.in_words());
            (Some(ros2), None, words)
        }
        (Err(one), Err(two), _) => {
            let words = format!(
                "none found. ROS 1: {one}. ROS 2, domain {domain}: {two}. Name it with --ros1=URI or \
                 --ros2=NUMBER (or ROS_MASTER_URI, ROS_DOMAIN_ID), or add a line 'ros1:' or 'ros2:' \
                 to the file later, and run this command again for the topics"
            );
            (None, None, words)
        }
    })
}

fn survey(ros: &Ros, own: &[String]) -> Result<Graph, String> {
    match ros {
        #[cfg(feature = "ros1")]
        Ros::Ros1 { master } => {
            tautline_gateway::ros1::survey::survey(master, "/tautline_pair", own)
        }
        #[cfg(feature = "ros2")]
        Ros::Ros2 { domain } => {
            use std::time::Duration;
            use tautline_gateway::ros2::{DiscoveryRange, survey::survey};
            // Nodes announce themselves every few seconds, and answer a new participant immediately.
            let (timeout, quiet) = (Duration::from_secs(5), Duration::from_millis(1500));
            survey(*domain, DiscoveryRange::Machine, timeout, quiet)
        }
        #[allow(unreachable_patterns)]
        _ => {
            let _ = own;
            Err("this program was built without it".into())
        }
    }
}

/// Lines about ROS for a new file: settings that the daemon would not find by itself.
fn config_lines(ros: Option<&Ros>, settings: &RosSettings, inherits_env: bool) -> Vec<String> {
    // A daemon that is started in this shell has the variables.
    let of_shell = |name| settings.get(name).filter(|_| !inherits_env);
    let folders = |variable| {
        let folders = if inherits_env { Vec::new() } else { folders_in(settings, variable) };
        let quoted: Vec<String> =
            folders.iter().map(|it| format!("\"{}\"", it.display())).collect();
        (!quoted.is_empty()).then(|| format!("definitions: [{}]", quoted.join(", ")))
    };
    match ros {
        Some(Ros::Ros1 { master }) => {
            let found = settings.get("ROS_MASTER_URI").filter(|_| inherits_env);
            let is_found = found.unwrap_or(DEFAULT_MASTER) == master;
            let master = (!is_found).then(|| format!("master: \"{master}\""));
            let host = of_shell("ROS_HOSTNAME").or(of_shell("ROS_IP"));
            let host = host.map(|host| format!("host: \"{host}\""));
            let all: Vec<String> =
                [master, host, folders("CMAKE_PREFIX_PATH")].into_iter().flatten().collect();
            match all.is_empty() {
                true => vec![format!("# ROS 1 at {}.", found.unwrap_or(DEFAULT_MASTER))],
                false => vec![format!("ros1: {{ {} }}", all.join(", "))],
            }
        }
        Some(Ros::Ros2 { domain }) => {
            let is_old = of_shell("ROS_DISTRO").is_some_and(|it| WITHOUT_RANGE.contains(&it));
            let range = of_shell("ROS_AUTOMATIC_DISCOVERY_RANGE").filter(|_| !is_old);
            let localhost =
                of_shell("ROS_LOCALHOST_ONLY") == Some("1") || range == Some("LOCALHOST");
            let range = localhost.then(|| "range: localhost".to_owned());
            let all = [Some(format!("domain: {domain}")), range, folders("AMENT_PREFIX_PATH")];
            let all: Vec<String> = all.into_iter().flatten().collect();
            vec![format!("ros2: {{ {} }}", all.join(", "))]
        }
        None => vec![
            format!(
                "# No ROS was found when this file was written. Without a line, it is ROS 1 at {DEFAULT_MASTER}."
            ),
            "#ros1: { master: \"http://localhost:11311\" }".into(),
            "#ros2: { domain: 0 }".into(),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_contains_settings_that_the_unit_cannot_see() {
        let shell = RosSettings::new(&[("ROS_MASTER_URI", "http://a:1"), ("ROS_IP", "10.0.0.1")]);
        let ros = Ros::Ros1 { master: "http://a:1".into() };
        let of_unit = "ros1: { master: \"http://a:1\", host: \"10.0.0.1\" }";
        let found = config_lines(Some(&ros), &shell, false);
        assert!(found[0].starts_with(of_unit.trim_end_matches(" }")), "{found:?}");
        assert_eq!(config_lines(Some(&ros), &shell, true), ["# ROS 1 at http://a:1."]);
        let none = RosSettings::new(&[]);
        let ros = Ros::Ros2 { domain: 7 };
        assert_eq!(config_lines(Some(&ros), &none, true), ["ros2: { domain: 7 }"]);
        assert!(config_lines(None, &none, false).iter().all(|line| line.starts_with('#')));
    }

    #[test]
    fn the_discovery_range_is_used_where_ros_supports_it() {
        let localhost = |distro, variable: &'static str, value| {
            let shell = RosSettings::new(&[("ROS_DISTRO", distro), (variable, value)]);
            config_lines(Some(&Ros::Ros2 { domain: 7 }), &shell, false)[0]
                .contains("range: localhost")
        };
        for distro in ["humble", "galactic", "foxy"] {
            assert!(!localhost(distro, "ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST"), "{distro}");
            assert!(localhost(distro, "ROS_LOCALHOST_ONLY", "1"), "{distro}");
        }
        assert!(localhost("jazzy", "ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST"));
        assert!(!localhost("jazzy", "ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET"));
    }

    #[test]
    fn a_domain_that_does_not_exist_is_refused_with_its_source() {
        let error = parse_domain("233", "ROS_DOMAIN_ID").unwrap_err().text;
        assert!(error.contains("ROS_DOMAIN_ID: found '233'; allowed: 0 to 232"), "{error}");
        assert_eq!(parse_domain("0", "x").ok(), Some(0));
    }
}
