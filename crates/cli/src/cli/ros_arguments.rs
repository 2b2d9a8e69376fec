// SPDX-License-Identifier: Apache-2.0
//! Arguments that ROS adds to the command line of a node: `__name:=x` and `from:=to` (ROS 1,
//! wiki.ros.org/Remapping Arguments), and the section `--ros-args ... --` (ROS 2,
//! design.ros2.org, "ROS Command Line Arguments").

use std::ffi::OsString;
use tautline::config::Launch;

/// Separator of the two sides of a rule.
const REMAP: &str = ":=";
const BEGIN: &str = "--ros-args";
const END: &str = "--";
/// Options of ROS 2 that take a value and have no meaning for this daemon.
const UNUSED: [&str; 6] = [
    "-p",
    "--param",
    "--params-file",
    "--log-config-file",
    "--external-log-config",
    "--log-file-name",
];
/// Switches of ROS 2, after `--enable-` or `--disable-`, for outputs that this daemon lacks.
const SWITCHES: [&str; 3] = ["rosout-logs", "stdout-logs", "external-lib-logs"];

/// The arguments of ROS on a command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RosArguments {
    pub launch: Launch,
    /// The log level, as this program names it.
    pub log_level: Option<String>,
    /// Valid arguments without a meaning for this daemon, for its log.
    pub ignored: Vec<String>,
}

/// Splits the command line of `tautline run` into its own arguments and those of ROS. Other commands accept
/// no arguments of ROS.
pub fn split_arguments(all: Vec<OsString>) -> Result<(Vec<OsString>, RosArguments), String> {
    let mut found = RosArguments::default();
    if all.get(1).is_none_or(|command| command != "run") {
        return Ok((all, found));
    }
    let (mut own, mut rest) = (Vec::new(), all.into_iter());
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some(BEGIN) => found.read_ros2_section(&mut rest)?,
            Some(text) if !text.starts_with('-') && text.contains(REMAP) => {
                found.apply_ros1_rule(text)?
            }
            _ => own.push(argument),
        }
    }
    Ok((own, found))
}

fn split_rule(rule: &str) -> Result<(&str, &str), String> {
    let sides = rule.split_once(REMAP).filter(|(from, to)| !from.is_empty() && !to.is_empty());
    sides.ok_or_else(|| format!("found '{rule}' among ROS arguments; allowed: NAME:=VALUE"))
}

impl RosArguments {
    fn apply_ros1_rule(&mut self, rule: &str) -> Result<(), String> {
        let (name, value) = split_rule(rule)?;
        let slot = match name {
            "__name" => &mut self.launch.name,
            "__ns" => &mut self.launch.namespace,
            "__master" => &mut self.launch.master,
            "__hostname" => &mut self.launch.hostname,
            "__ip" => &mut self.launch.ip,
            // roslaunch always gives a file, in which only nodes of roscpp and rospy log.
            "__log" => return Ok(()),
            _ if name.starts_with("__") => {
                return Err(format!(
                    "found '{rule}'; allowed: __name, __ns, __master, __hostname, __ip and __log, \
                     each followed by :=VALUE"
                ));
            }
            _ => {
                self.ignored.push(rule.to_owned());
                return Ok(());
            }
        };
        *slot = Some(value.to_owned());
        Ok(())
    }

    /// Reads a section of ROS 2 to its end.
    fn read_ros2_section(
        &mut self,
        rest: &mut impl Iterator<Item = OsString>,
    ) -> Result<(), String> {
        let mut rest = rest.map(|it| it.to_string_lossy().into_owned());
        while let Some(option) = rest.next().filter(|it| it != END) {
            let mut value =
                || rest.next().ok_or_else(|| format!("{BEGIN}: found {option} without its value"));
            match option.as_str() {
                "-r" | "--remap" => self.remap(value()?)?,
                "--log-level" => self.set_log_level(&value()?)?,
                "-e" | "--enclave" => self.ignored.push(format!("{option} {}", value()?)),
                _ if UNUSED.contains(&option.as_str()) => {
                    self.ignored.push(format!("{option} {}", value()?));
                }
                _ if is_switch(&option) => self.ignored.push(option),
                _ => {
                    return Err(format!(
                        "{BEGIN}: found '{option}'; allowed: --remap (-r), --param (-p), \
                         --params-file, --log-level, --enclave (-e) and the other options of ROS 2; \
                         arguments of tautline come before {BEGIN} or after {END}"
                    ));
                }
            }
        }
        Ok(())
    }

    fn remap(&mut self, rule: String) -> Result<(), String> {
        let (name, value) = split_rule(&rule)?;
        match name {
            "__node" | "__name" => self.launch.name = Some(value.to_owned()),
            "__ns" => self.launch.namespace = Some(value.to_owned()),
            _ => self.ignored.push(format!("-r {rule}")),
        }
        Ok(())
    }

    /// A level for all logs; `NAME:=LEVEL` is for one logger of rcl.
    fn set_log_level(&mut self, value: &str) -> Result<(), String> {
        if value.contains(REMAP) {
            self.ignored.push(format!("--log-level {value}"));
            return Ok(());
        }
        let level = value.to_lowercase();
        self.log_level = Some(match level.as_str() {
            "debug" | "info" | "warn" | "error" => level,
            "fatal" => "error".into(),
            _ => {
                return Err(format!(
                    "{BEGIN}: found '--log-level {value}'; allowed: debug, info, warn, error, fatal"
                ));
            }
        });
        Ok(())
    }
}

fn is_switch(option: &str) -> bool {
    let name = option.strip_prefix("--enable-").or_else(|| option.strip_prefix("--disable-"));
    name.is_some_and(|name| SWITCHES.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed_arguments(arguments: &str) -> Result<(String, RosArguments), String> {
        let all = format!("tautline {arguments}");
        let (own, found) = split_arguments(all.split(' ').map(OsString::from).collect())?;
        let own: Vec<_> = own.iter().map(|it| it.to_str().unwrap()).collect();
        Ok((own.join(" "), found))
    }

    #[test]
    fn arguments_of_roslaunch_are_removed_from_the_command_line() {
        let (own, found) = parsed_arguments(
            "run robot.yaml --log debug /a:=/b __name:=link __log:=/x/link.log _p:=1 __ns:=/r1",
        )
        .unwrap();
        assert_eq!(own, "tautline run robot.yaml --log debug");
        assert_eq!(found.launch.name.as_deref(), Some("link"));
        assert_eq!(found.launch.namespace.as_deref(), Some("/r1"));
        assert_eq!(found.ignored, ["/a:=/b", "_p:=1"]);
        let (_, found) =
            parsed_arguments("run r.yaml __master:=http://m:1 __hostname:=h __ip:=10.0.0.1")
                .unwrap();
        let Launch { master, hostname, ip, .. } = found.launch;
        assert_eq!([master, hostname, ip].map(Option::unwrap), ["http://m:1", "h", "10.0.0.1"]);
    }

    #[test]
    fn arguments_of_ros2_launch_are_removed_from_the_command_line() {
        let (own, found) = parsed_arguments(
            "run --ros-args -r __node:=link -r __ns:=/r1 --params-file p.yaml -p a:=1 --remap /a:=/b \
             --log-level WARN --log-level rcl:=debug --disable-rosout-logs -- robot.yaml",
        )
        .unwrap();
        assert_eq!(own, "tautline run robot.yaml");
        assert_eq!(found.launch.name.as_deref(), Some("link"));
        assert_eq!(found.launch.namespace.as_deref(), Some("/r1"));
        assert_eq!(found.log_level.as_deref(), Some("warn"));
        let ignored = [
            "--params-file p.yaml",
            "-p a:=1",
            "-r /a:=/b",
            "--log-level rcl:=debug",
            "--disable-rosout-logs",
        ];
        assert_eq!(found.ignored, ignored);
        let (own, found) = parsed_arguments("run robot.yaml --ros-args").unwrap();
        assert_eq!((own.as_str(), found), ("tautline run robot.yaml", RosArguments::default()));
    }

    #[test]
    fn unknown_arguments_are_errors_that_name_the_allowed_ones() {
        for (arguments, expected) in [
            ("run r.yaml __nam:=x", "found '__nam:=x'; allowed: __name"),
            ("run r.yaml __name:=", "found '__name:='"),
            ("run r.yaml --ros-args --colour", "found '--colour'; allowed: --remap"),
            ("run r.yaml --ros-args -r", "found -r without its value"),
            ("run r.yaml --ros-args -r x", "found 'x' among ROS arguments"),
            ("run r.yaml --ros-args --log-level loud", "found '--log-level loud'; allowed: debug"),
        ] {
            let error = parsed_arguments(arguments).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn other_commands_have_no_arguments_of_ros() {
        assert_eq!(
            parsed_arguments("check a:=b").unwrap(),
            ("tautline check a:=b".into(), RosArguments::default())
        );
    }
}
