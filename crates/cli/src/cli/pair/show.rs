// SPDX-License-Identifier: Apache-2.0
//! What a person sees before the question: who the other end is, and which topics cross.

use super::channel::MAX_TEXT;
use super::console::Console;
use super::write::Change;
use crate::cli::{Failure, output};
use serde_json::json;
use std::fmt::Write;
use std::net::IpAddr;
use std::path::Path;
use tautline_cli::pairing::facts::Facts;
use tautline_cli::pairing::plan::Plan;
use tautline_gateway::plain::plain;

/// The result of the exchange at one end.
pub struct ShownResult<'a> {
    pub other: &'a Facts,
    pub address: IpAddr,
    pub robot: &'a Facts,
    pub base: &'a Facts,
    pub plan: &'a Plan,
    pub change: &'a Change,
    /// The file that is written.
    pub file: &'a Path,
    /// Whether nothing is written, so that a new file cannot be read afterwards.
    pub is_trial: bool,
}

impl ShownResult<'_> {
    /// Shows the result to a person or a program.
    pub fn show_to(&self, console: Console) -> Result<(), Failure> {
        let parts = [self.who(), self.topics(), self.commands(), self.further_lines(), self.file()];
        console.say(&parts.concat())?;
        let Plan { shown, commands, .. } = self.plan;
        let shown = shown.iter().map(|it| [&it.at_robot, &it.at_base, &it.type_name]);
        let commands = commands.iter().map(|it| [&it.at_robot, &it.at_base, &it.type_name]);
        let entry = |[robot, base, kind]: [&String; 3]| json!({ "at_robot": robot, "at_base": base, "type": kind });
        console.event(&json!({
            "event": "plan",
            "peer": self.other.name,
            "address": self.address,
            "key": self.other.key,
            "robot": self.robot.name,
            "base": self.base.name,
            "shown": shown.map(entry).collect::<Vec<_>>(),
            "commands": commands.map(entry).collect::<Vec<_>>(),
            "left_out": self.robot.left_out + self.base.left_out,
            "file": self.file,
            "changes": self.change.lines,
            "warnings": self.change.notes,
        }))
    }

    fn who(&self) -> String {
        let Facts { name, version, ros, key, .. } = self.other;
        let ros = ros.as_ref().map_or("no ROS found there".into(), |it| it.in_words());
        let (address, ros) = (self.address, plain(&ros, MAX_TEXT));
        format!("\n{name} at {address} proved the code: Tautline {version}, {ros}\n  key {key}\n\n")
    }

    fn topics(&self) -> String {
        let rows = self.plan.shown.iter();
        let rows = rows.map(|it| [it.at_robot.clone(), it.at_base.clone(), it.type_name.clone()]);
        let table = output::table(["AT THE ROBOT", "AT THE BASE", "TYPE"], rows);
        format!("Topics of {} that {} gets\n{table}", self.robot.name, self.base.name)
    }

    fn commands(&self) -> String {
        let rows = self.plan.commands.iter().map(|it| {
            let now = if it.published { "published now" } else { "not published yet" };
            [it.at_base.clone(), it.at_robot.clone(), it.type_name.clone(), now.into()]
        });
        let table = output::table(["AT THE BASE", "AT THE ROBOT", "TYPE", ""], rows);
        format!("\nTopics that {} may publish on {}\n{table}", self.base.name, self.robot.name)
    }

    fn further_lines(&self) -> String {
        let (robot, base) = (&self.robot.name, &self.base.name);
        let mut text = String::new();
        if self.plan.shown.is_empty() {
            let _ = writeln!(
                text,
                "\nNo node of {robot} publishes a topic that {base} could get. Start the nodes, and run \
                 'tautline pair' once more at both machines for their topics"
            );
        }
        if !self.plan.not_accepted.is_empty() {
            let rows = self.plan.not_accepted.iter().cloned().map(<[String; 2]>::from);
            let table = output::table(["TOPIC", "TYPE"], rows);
            let _ = write!(
                text,
                "\nNot accepted: nodes of {robot} subscribe to these, and none there publishes them. To \
                 allow one, add it under 'accept' at {robot} and under 'topics' at {base}\n{table}"
            );
        }
        for Facts { name, left_out, topics, .. } in [self.robot, self.base] {
            if *left_out > 0 {
                let _ = writeln!(
                    text,
                    "\n{left_out} topics of {name} are left out: {} are the most that fit, commands \
                     and sensors first. Add lines for others to the files",
                    topics.len()
                );
            }
        }
        text
    }

    fn file(&self) -> String {
        let (change, file) = (self.change, self.file.display());
        let what = match change {
            Change { is_same: true, .. } => "no changes in",
            Change { is_new: true, .. } => "new file",
            Change { needs_merge: true, .. } => "lines to merge, in",
            _ => "changes in",
        };
        let mut text = format!("\n{what} {file}\n");
        // The tables above say what a new file has, and the file can be read after the answer.
        if !change.is_new || self.is_trial {
            let lines = change.lines.iter().map(|line| format!("  {}\n", plain(line, MAX_TEXT)));
            text.extend(lines);
        }
        change.notes.iter().for_each(|note| text.push_str(&format!("note: {note}\n")));
        text
    }
}
