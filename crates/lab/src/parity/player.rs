// SPDX-License-Identifier: Apache-2.0
//! Plays a situation in both runs, step by step and at the same time.

use super::judge;
use super::record::{Event, Record, Run};
use super::situation::{Publisher, Rule, Situation, Step, Subscriber};
use super::world::World;
use crate::setup::ros::Ros;
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Longest wait until publishers and subscribers are connected.
const MATCH_PATIENCE: Duration = Duration::from_secs(15);
/// Longest wait for messages that have to arrive, and for calls and goals.
const ARRIVAL_PATIENCE: Duration = Duration::from_secs(6);
/// Longest wait for the agents' own time-outs of calls and goals.
const ANSWER_PATIENCE: Duration = Duration::from_secs(25);
/// Time without events after which nothing more is expected.
const QUIET: Duration = Duration::from_millis(300);
/// Like [`QUIET`], after somebody has left: a far computer learns of that later.
const QUIET_AFTER_LEAVING: Duration = Duration::from_millis(1000);
/// Pause after messages of a transient local publisher, whose depth Tautline has to count.
const QUIET_AFTER_HISTORY: Duration = Duration::from_millis(1300);
/// Pause after messages under `rate: 2Hz`, because the last message waits for its turn.
const QUIET_AFTER_STREAM: Duration = Duration::from_millis(800);
/// Interval between two checks.
const LOOK_PERIOD: Duration = Duration::from_millis(60);

/// Plays a situation. An error is a failure of the machine or of plain ROS, not of Tautline.
pub fn play(world: &mut World, situation: Situation) -> Result<Record> {
    let mut player = Player {
        world,
        record: Record::new(situation),
        at: 0,
        cut: None,
        is_down: false,
        has_left: false,
        quiet: Duration::ZERO,
        given_up: 0,
    };
    let steps = player.record.situation.steps.clone();
    steps.iter().enumerate().try_for_each(|(at, step)| {
        player.at = at;
        player.step(step)
    })?;
    player.record.daemons = player.world.statuses();
    player.clear_away(&steps)?;
    Ok(player.record)
}

struct Player<'a> {
    world: &'a mut World,
    record: Record,
    /// Index of the step.
    at: usize,
    /// When the link was cut.
    cut: Option<Instant>,
    /// Whether a daemon does not run.
    is_down: bool,
    /// Whether somebody has left since everything settled.
    has_left: bool,
    /// Time after which the fate of everything published since the last settling is known.
    quiet: Duration,
    /// Number of messages for which the player no longer waits.
    given_up: usize,
}

impl Player<'_> {
    fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Settle => self.settle(),
            Step::Wait { ms } => {
                std::thread::sleep(Duration::from_millis(u64::from(*ms)));
                Ok(())
            }
            Step::Cut => {
                self.cut = Some(Instant::now());
                self.world.cut(true)
            }
            Step::Mend { after_ms } => self.mend(Duration::from_millis(u64::from(*after_ms))),
            Step::Daemon { side, how } => {
                self.is_down = !matches!(how, super::situation::How::Reload);
                self.world.change_daemon(*side, *how)
            }
            Step::Start(side) => {
                self.is_down = false;
                // The times count from the last message, not from the order.
                self.read()?;
                std::thread::sleep(self.quiet);
                self.world.start_daemon(*side)
            }
            Step::ReplaceFarNode(node) => {
                self.has_left = true;
                self.do_at_both_ends(|agents| agents.replace_far(*node))
            }
            Step::ReplaceNearNode(node) => {
                self.has_left = true;
                self.do_at_both_ends(|agents| agents.replace_near(*node))
            }
            Step::Publish { id, .. } => {
                self.quiet = self.quiet.max(quiet_after(&self.record.situation, id));
                self.order(step)
            }
            step => {
                self.has_left |= matches!(
                    step,
                    Step::Unadvertise(_) | Step::Unsubscribe(_) | Step::Unserve { .. }
                );
                self.order(step)?;
                self.read()
            }
        }
    }

    fn do_at_both_ends(
        &mut self,
        mut act: impl FnMut(&mut super::agents::Agents) -> Result<()>,
    ) -> Result<()> {
        self.read()?;
        act(&mut self.world.plain)?;
        act(&mut self.world.tautline)?;
        self.read()
    }

    fn mend(&mut self, after: Duration) -> Result<()> {
        self.read()?;
        if let Some(cut) = self.cut.take() {
            std::thread::sleep((cut + after).saturating_duration_since(Instant::now()));
        }
        self.world.cut(false)
    }

    /// Gives the order of a step in both runs, without waiting.
    fn order(&mut self, step: &Step) -> Result<()> {
        let situation = &self.record.situation;
        let Some((is_near, node, order)) = order_of(situation, step) else { return Ok(()) };
        // Where ROS 1 takes every publisher as it is, one graph of ROS 2 needs several subscriptions.
        let mut plain = order.clone();
        if let Step::Subscribe(subscriber) = step
            && situation.team.is_ros2_to_ros1()
        {
            plain["classes"] = json!(classes(situation, subscriber.topic));
        }
        let (at, World { plain: one, tautline: other, .. }) = (self.at, &mut *self.world);
        for (agents, order) in [(one, &plain), (other, &order)] {
            match is_near {
                true => agents.order_near(node, at, order)?,
                false => agents.order_far(node, at, order)?,
            }
        }
        Ok(())
    }

    /// Reads all events until all orders are done.
    fn read(&mut self) -> Result<()> {
        self.world.plain.read(self.at, &mut self.record.plain)?;
        self.world.tautline.read(self.at, &mut self.record.tautline)?;
        let trouble = self.record.plain.events.iter().find_map(|(step, event)| match event {
            Event::Trouble { order, error, .. } => Some((step, order, error)),
            _ => None,
        });
        if let Some((step, order, error)) = trouble {
            bail!("{order} at step {step} failed within one ROS graph: {error}");
        }
        Ok(())
    }

    /// Waits until everything is connected and everything has arrived. During a trouble, this
    /// concerns the run in one ROS graph only.
    fn settle(&mut self) -> Result<()> {
        let is_calm = self.cut.is_none() && !self.is_down;
        self.read()?;
        self.await_match(is_calm)?;
        if is_calm {
            self.record.calm.push(self.at);
            self.await_answers()?;
        }
        let mut quiet = if self.has_left { QUIET_AFTER_LEAVING } else { QUIET };
        if is_calm {
            quiet = quiet.max(std::mem::take(&mut self.quiet));
            self.has_left = false;
        }
        let begin = Instant::now();
        loop {
            std::thread::sleep(LOOK_PERIOD);
            self.read()?;
            let latest = self.world.plain.latest.max(self.world.tautline.latest).max(begin);
            let awaited = if is_calm { judge::awaited_messages(&self.record) } else { 0 };
            if awaited <= self.given_up && latest.elapsed() > quiet {
                return Ok(());
            }
            if begin.elapsed() > ARRIVAL_PATIENCE {
                self.given_up = awaited;
                return Ok(());
            }
        }
    }

    fn await_match(&mut self, is_calm: bool) -> Result<()> {
        if is_calm && let Err(error) = self.world.await_connected() {
            self.record.failed.push((self.at, format!("{error:#}")));
        }
        let begin = Instant::now();
        loop {
            let counts = self.world.plain.connections(self.at, &mut self.record.plain)?;
            let plain = unmatched(&self.record.situation, self.at, &counts, true);
            let counts = self.world.tautline.connections(self.at, &mut self.record.tautline)?;
            let mut across = unmatched(&self.record.situation, self.at, &counts, false);
            if is_calm && across.is_empty() {
                across = self.unwanted_topics()?;
            }
            if plain.is_empty() && (across.is_empty() || !is_calm) {
                return Ok(());
            }
            if begin.elapsed() > MATCH_PATIENCE {
                if !plain.is_empty() {
                    bail!("step {}: not connected within one ROS graph: {plain:?}", self.at);
                }
                self.record.failed.push((self.at, format!("{across:?} have no connection")));
                return Ok(());
            }
            std::thread::sleep(LOOK_PERIOD);
        }
    }

    /// Returns topics with a publisher and a subscriber for which the far side has not asked.
    fn unwanted_topics(&self) -> Result<Vec<String>> {
        let mut unwanted = Vec::new();
        let (publishers, subscribers) = present_at_step(&self.record.situation, self.at);
        for (index, topic) in self.record.situation.topics.iter().enumerate() {
            let connected = publishers.iter().any(|publisher| {
                let connects = |it: &&Subscriber| self.record.situation.connects(publisher, it);
                publisher.topic == index && subscribers.iter().any(connects)
            });
            if connected && !self.world.is_wanted(&topic.name)? {
                unwanted.push(topic.name.clone());
            }
        }
        Ok(unwanted)
    }

    /// Waits for the ends of all calls and goals.
    fn await_answers(&mut self) -> Result<()> {
        let begin = Instant::now();
        while [&self.record.plain, &self.record.tautline]
            .into_iter()
            .any(|run| is_open(&self.record, self.at, run))
            && begin.elapsed() < ANSWER_PATIENCE
        {
            std::thread::sleep(LOOK_PERIOD);
            self.read()?;
        }
        Ok(())
    }

    /// Removes everything, for the next situation, and ends a trouble.
    fn clear_away(&mut self, steps: &[Step]) -> Result<()> {
        if self.cut.take().is_some() {
            self.world.cut(false)?;
        }
        for step in steps {
            if let (Step::Daemon { side, .. }, true) = (step, self.is_down) {
                self.is_down = false;
                self.world.start_daemon(*side)?;
            }
        }
        let (publishers, subscribers) = present_at_step(&self.record.situation, steps.len());
        let (publishers, subscribers): (Vec<_>, Vec<_>) = (
            publishers.into_iter().map(|it| Step::Unadvertise(it.id.clone())).collect(),
            subscribers.into_iter().map(|it| Step::Unsubscribe(it.id.clone())).collect(),
        );
        let mut servers = Vec::new();
        for step in steps {
            match step {
                Step::Serve { id, node, .. } | Step::ServeAction { id, node, .. } => {
                    servers.push((id.clone(), *node))
                }
                Step::Unserve { id, .. } => servers.retain(|(it, _)| it != id),
                Step::ReplaceNearNode(node) => servers.retain(|(_, it)| it != node),
                _ => {}
            }
        }
        let servers = servers.into_iter().map(|(id, node)| Step::Unserve { id, node });
        for step in publishers.into_iter().chain(subscribers).chain(servers) {
            self.order(&step)?;
        }
        self.read()
    }
}

/// Time in which everything about the messages of a publisher becomes known.
fn quiet_after(situation: &Situation, publisher: &str) -> Duration {
    let Some((_, publisher)) = situation.publisher(publisher) else { return Duration::ZERO };
    match situation.topics[publisher.topic].rule {
        _ if publisher.latched && publisher.depth > 1 => QUIET_AFTER_HISTORY,
        Rule::Rate => QUIET_AFTER_STREAM,
        _ => Duration::ZERO,
    }
}

/// Publishers and subscribers present at a step.
fn present_at_step(situation: &Situation, at: usize) -> (Vec<&Publisher>, Vec<&Subscriber>) {
    let publishers = situation
        .publishers()
        .filter(|(begin, it)| *begin < at && at <= situation.end_of_publisher(it));
    let subscribers = situation
        .subscribers()
        .filter(|(begin, it)| *begin < at && at <= situation.end_of_subscriber(it));
    (publishers.map(|(_, it)| it).collect(), subscribers.map(|(_, it)| it).collect())
}

/// Publishers and subscribers with fewer connections than they should have: in one graph to each of
/// the others, across Tautline to the daemon.
fn unmatched(
    situation: &Situation,
    at: usize,
    counts: &BTreeMap<String, u32>,
    in_one_graph: bool,
) -> Vec<String> {
    let (publishers, subscribers) = present_at_step(situation, at);
    let connects = |one: &Publisher, other: &Subscriber| situation.connects(one, other);
    // In ROS 1, publishers of the same topic in the same node count as one.
    let is_ros1 = situation.team.near == Ros::One;
    let of_subscriber = |subscriber: &Subscriber| {
        let mut nodes: Vec<(usize, &str)> = publishers
            .iter()
            .filter(|it| connects(it, subscriber))
            // Known after its first message.
            .filter(|it| in_one_graph || !(subscriber.latched && situation.latches_late(it)))
            .map(|it| (it.node, if is_ros1 { "" } else { it.id.as_str() }))
            .collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.len()
    };
    let of_publisher =
        |publisher: &Publisher| subscribers.iter().filter(|it| connects(publisher, it)).count();
    let expected = publishers
        .iter()
        .map(|it| (&it.id, of_publisher(it)))
        .chain(subscribers.iter().map(|it| (&it.id, of_subscriber(it))));
    let lacks = |(id, count): &(&String, usize)| {
        let expected = if in_one_graph { *count } else { (*count).min(1) };
        (counts.get(*id).copied().unwrap_or(0) as usize) < expected
    };
    expected.filter(lacks).map(|(id, _)| id.clone()).collect()
}

/// Whether a call or a goal up to a step has not ended in a run.
fn is_open(record: &Record, at: usize, run: &Run) -> bool {
    record.situation.steps[..at].iter().any(|step| {
        let (Step::Call { id, .. } | Step::Goal { id, .. }) = step else { return false };
        !run.events.iter().any(|(_, event)| match event {
            Event::Answer { call, .. } => call == id,
            Event::Result { goal, .. } => goal == id,
            _ => false,
        })
    })
}

/// Classes of the publishers of a topic: the last letters of their ids.
fn classes(situation: &Situation, topic: usize) -> Vec<String> {
    let of_topic = situation.publishers().filter(|(_, it)| it.topic == topic);
    let mut classes: Vec<String> =
        of_topic.filter_map(|(_, it)| it.id.chars().last()).map(String::from).collect();
    classes.sort_unstable();
    classes.dedup();
    classes
}

/// Returns the order of a step: whether a near node carries it out, the number of the node, and the
/// order.
fn order_of(situation: &Situation, step: &Step) -> Option<(bool, usize, Value)> {
    let publisher = |id: &str| situation.publisher(id).map(|(_, it)| it);
    let subscriber =
        |id: &str| situation.subscribers().find(|(_, it)| it.id == id).map(|(_, it)| it);
    let order = match step {
        Step::Advertise(it) => {
            let topic = &situation.topics[it.topic];
            let order = json!({"do": "advertise", "id": it.id, "topic": topic.name, "type": topic.kind,
                "latched": it.latched, "reliable": it.reliable, "depth": it.depth,
                "lifespan_ms": it.lifespan_ms});
            (true, it.node, order)
        }
        Step::Unadvertise(id) => {
            (true, publisher(id)?.node, json!({"do": "unadvertise", "id": id}))
        }
        Step::Publish { id, count, gap_ms } => {
            let it = publisher(id)?;
            let order = json!({"do": "publish", "id": id, "count": count, "gap_ms": gap_ms,
                "size": situation.topics[it.topic].size});
            (true, it.node, order)
        }
        Step::Subscribe(it) => {
            let topic = &situation.topics[it.topic];
            let order = json!({"do": "subscribe", "id": it.id, "topic": topic.name, "type": topic.kind,
                "latched": it.latched, "reliable": it.reliable});
            (false, it.node, order)
        }
        Step::Unsubscribe(id) => {
            (false, subscriber(id)?.node, json!({"do": "unsubscribe", "id": id}))
        }
        Step::Serve { id, node, service } => {
            (true, *node, json!({"do": "serve", "id": id, "service": service}))
        }
        Step::Unserve { id, node } => (true, *node, json!({"do": "unserve", "id": id})),
        Step::Call { id, node, service } => {
            (false, *node, json!({"do": "call", "id": id, "service": service}))
        }
        Step::ServeAction { id, node, action } => {
            (true, *node, json!({"do": "serve_action", "id": id, "action": action}))
        }
        Step::Goal { id, node, action, order, cancel_after } => {
            let order = json!({"do": "goal", "id": id, "action": action, "order": order,
                "cancel_after": cancel_after});
            (false, *node, order)
        }
        _ => return None,
    };
    Some(order)
}
