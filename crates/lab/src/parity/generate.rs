// SPDX-License-Identifier: Apache-2.0
//! Draws a situation from a seed.

use super::situation::{
    ACTIONS, How, NODES, Publisher, Rule, Side, Situation, Step, Subscriber, TRANSFORMS, Team,
    Topic,
};
use crate::setup::ros::Ros;
use fastrand::Rng;

/// Types that both ROS have with the same fields.
const KINDS: &[&str] = &[
    "std_msgs/String",
    "geometry_msgs/PoseStamped",
    "geometry_msgs/TwistStamped",
    "geometry_msgs/PolygonStamped",
    "geometry_msgs/PoseArray",
    "sensor_msgs/LaserScan",
    "sensor_msgs/MultiEchoLaserScan",
    "sensor_msgs/JointState",
    "sensor_msgs/CameraInfo",
    "sensor_msgs/Imu",
    "sensor_msgs/NavSatFix",
    "sensor_msgs/Image",
    "sensor_msgs/CompressedImage",
    "sensor_msgs/PointCloud2",
    "std_msgs/UInt8MultiArray",
    "std_msgs/Header",
];
/// Types that only ROS 1 has. No package has the second type.
const KINDS_OF_ROS_1: &[&str] = &[TRANSFORMS, "parity_msgs/Own"];
/// Types that only ROS 2 has.
const KINDS_OF_ROS_2: &[&str] = &[
    "test_msgs/Strings",
    "test_msgs/UnboundedSequences",
    "test_msgs/Arrays",
    "test_msgs/WStrings",
];
/// Bytes of each text and list of a large message. All large messages of a situation fit into the
/// queues.
const LARGE: u32 = 300_000;
/// Time between two messages of a burst.
const GAP_MS: u32 = 30;
/// Number of messages of a stream on a topic with a rate, and the gap between them in ms.
const STREAM: (u32, u32) = (20, 50);
/// Largest number of messages of a burst on other topics.
const BURST: u32 = 6;
/// A wait that is longer than every lifespan.
const BEYOND_LIFESPAN_MS: u32 = 2200;

/// Draws the situation of a seed. Every 25th has a cut of 12 to 15 s.
pub fn situation(seed: u64, team: Team) -> Situation {
    let mut draw = Draw {
        rng: Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        situation: Situation { seed, team, topics: Vec::new(), steps: Vec::new() },
        publishers: Vec::new(),
        subscribers: Vec::new(),
        services: Vec::new(),
        actions: Vec::new(),
        next: 0,
    };
    draw.begin();
    let first = match seed % 25 {
        7 => Trouble::Cut(draw.rng.u32(12_000..15_000)),
        _ => draw.trouble(),
    };
    draw.phase(first);
    if draw.rng.u8(..10) < 5 {
        let trouble = draw.trouble();
        draw.phase(trouble);
    }
    draw.late_joiners();
    draw.situation
}

/// What goes wrong in a phase.
#[derive(Clone, Copy)]
enum Trouble {
    None,
    Cut(u32),
    Daemon(Side, How),
}

struct Draw {
    rng: Rng,
    situation: Situation,
    /// The publishers that are present now.
    publishers: Vec<Publisher>,
    subscribers: Vec<Subscriber>,
    /// Each service, with the id and the node of its server while it has one.
    services: Vec<(String, Option<(String, usize)>)>,
    actions: Vec<String>,
    next: u32,
}

impl Draw {
    fn chance(&mut self, percent: u8) -> bool {
        self.rng.u8(..100) < percent
    }

    fn push(&mut self, step: Step) {
        self.situation.steps.push(step);
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    fn trouble(&mut self) -> Trouble {
        let side = if self.rng.bool() { Side::Near } else { Side::Far };
        match self.rng.u8(..100) {
            0..30 => Trouble::None,
            30..52 => Trouble::Cut(2000),
            52..70 => Trouble::Daemon(side, How::Kill),
            70..88 => Trouble::Daemon(side, How::Terminate),
            _ => Trouble::Daemon(side, How::Reload),
        }
    }

    fn begin(&mut self) {
        for _ in 0..self.rng.usize(2..=4) {
            let topic = self.topic();
            self.situation.topics.push(topic);
        }
        for topic in 0..self.situation.topics.len() {
            for _ in 0..self.rng.usize(1..=3) {
                self.advertise(topic);
            }
            for _ in 0..self.rng.usize(0..=2) {
                self.subscribe(topic);
            }
        }
        self.begin_calls();
        self.push(Step::Settle);
        self.publish(100);
        self.call(100);
        self.push(Step::Settle);
    }

    fn topic(&mut self) -> Topic {
        let seed = self.situation.seed;
        let Team { near, far } = self.situation.team;
        let number = self.situation.topics.len();
        let own: &[&'static str] = match (near, far) {
            (Ros::One, Ros::One) => KINDS_OF_ROS_1,
            (Ros::Two, Ros::Two) => KINDS_OF_ROS_2,
            _ => &[],
        };
        let rule = match self.rng.u8(..100) {
            0..12 => Rule::Lifespan,
            12..24 => Rule::Rate,
            _ => Rule::Plain,
        };
        let large = rule == Rule::Plain && self.chance(10);
        let kind = match self.rng.usize(..KINDS.len() + own.len()) {
            _ if large => "sensor_msgs/Image",
            _ if rule == Rule::Rate => "std_msgs/String",
            index => KINDS.get(index).copied().unwrap_or_else(|| own[index - KINDS.len()]),
        };
        let name = format!("/parity/{}/s{seed}_{number}", rule.level());
        Topic { name, kind, rule, size: if large { LARGE } else { 0 } }
    }

    fn advertise(&mut self, topic: usize) {
        let with_qos = self.situation.team.near == Ros::Two;
        // Tautline merges latched transforms, so they arrive in other messages.
        let latched = self.chance(60) && self.situation.topics[topic].kind != TRANSFORMS;
        let reliable = !with_qos || self.situation.topics[topic].size > 0 || self.chance(80);
        let depth = if latched && with_qos { self.rng.u32(1..=5) } else { 10 };
        let letter = if latched { 'L' } else { 'V' };
        let class = if reliable { letter } else { letter.to_ascii_lowercase() };
        let publisher = Publisher {
            id: format!("P{}{class}", self.number()),
            topic,
            node: self.rng.usize(..NODES),
            latched,
            reliable,
            depth: if latched && !with_qos { 1 } else { depth },
            lifespan_ms: (with_qos && self.chance(10)).then_some(1000),
        };
        self.publishers.push(publisher.clone());
        self.push(Step::Advertise(publisher));
    }

    /// Adds a subscriber on a node that has no subscriber of the topic: two subscribers in one ROS 1
    /// node share a connection.
    fn subscribe(&mut self, topic: usize) {
        let is_free =
            |node: &usize| !self.subscribers.iter().any(|it| it.topic == topic && it.node == *node);
        let free: Vec<usize> = (0..NODES).filter(is_free).collect();
        let Some(&node) = self.rng.choice(&free) else { return };
        let with_qos = self.situation.team.far == Ros::Two;
        let large = self.situation.topics[topic].size > 0;
        let subscriber = Subscriber {
            id: format!("S{}", self.number()),
            topic,
            node,
            latched: !with_qos || self.chance(65),
            reliable: !with_qos || large || self.chance(65),
        };
        self.subscribers.push(subscriber.clone());
        self.push(Step::Subscribe(subscriber));
    }

    fn begin_calls(&mut self) {
        let seed = self.situation.seed;
        if self.chance(50) {
            let service = format!("/parity/service/s{seed}");
            self.services.push((service, None));
            self.serve(0);
        }
        let Team { near, far } = self.situation.team;
        if (near, far) == (Ros::Two, Ros::Two) && self.chance(50) {
            // Actions are named one by one in the file.
            let action = format!("/parity_action_{}", seed % u64::from(ACTIONS));
            let id = format!("A{}", self.number());
            let node = self.rng.usize(..NODES);
            self.push(Step::ServeAction { id, node, action: action.clone() });
            self.actions.push(action);
        }
    }

    fn serve(&mut self, index: usize) {
        let (id, node) = (format!("V{}", self.number()), self.rng.usize(..NODES));
        let service = self.services[index].0.clone();
        self.services[index].1 = Some((id.clone(), node));
        self.push(Step::Serve { id, node, service });
    }

    fn call(&mut self, percent: u8) {
        for index in 0..self.services.len() {
            for node in 0..NODES {
                if self.services[index].1.is_some() && self.chance(percent) {
                    let id = format!("C{}", self.number());
                    let service = self.services[index].0.clone();
                    self.push(Step::Call { id, node, service });
                }
            }
        }
        for action in self.actions.clone() {
            if self.chance(percent) {
                let cancel_after = self.rng.bool().then_some(2);
                // The order identifies the goal at the server.
                let order = self.number() * 100 + if cancel_after.is_some() { 40 } else { 4 };
                let id = format!("G{}", self.number());
                let node = self.rng.usize(..NODES);
                self.push(Step::Goal { id, node, action, order, cancel_after });
            }
        }
    }

    /// Publishes on each publisher with a probability. A transient local burst is no longer than its
    /// history, so that no message is overwritten before it is read.
    fn publish(&mut self, percent: u8) {
        for publisher in self.publishers.clone() {
            if !self.chance(percent) {
                continue;
            }
            let topic = &self.situation.topics[publisher.topic];
            let (rule, size) = (topic.rule, topic.size);
            let (count, gap_ms) = match rule {
                Rule::Rate => STREAM,
                _ if size > 0 => (1, 0),
                _ if publisher.latched => (self.rng.u32(1..=publisher.depth.min(BURST)), GAP_MS),
                _ => (self.rng.u32(1..=BURST), GAP_MS),
            };
            self.push(Step::Publish { id: publisher.id, count, gap_ms });
        }
    }

    /// Adds a trouble, with changes and messages during it and messages after it.
    fn phase(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::None => {}
            Trouble::Cut(_) => self.push(Step::Cut),
            Trouble::Daemon(side, how) => self.push(Step::Daemon { side, how }),
        }
        for _ in 0..self.rng.usize(0..=3) {
            self.change();
        }
        self.push(Step::Settle);
        self.publish(60);
        let calls = if matches!(trouble, Trouble::None) { 70 } else { 20 };
        self.call(calls);
        match trouble {
            Trouble::Cut(after_ms) => self.push(Step::Mend { after_ms }),
            Trouble::Daemon(side, How::Kill | How::Terminate) => self.push(Step::Start(side)),
            Trouble::None | Trouble::Daemon(_, How::Reload) => {}
        }
        self.push(Step::Settle);
        if !matches!(trouble, Trouble::None) {
            self.publish(60);
            self.call(50);
            self.push(Step::Settle);
        }
    }

    /// Adds a step in which someone joins, leaves or restarts.
    fn change(&mut self) {
        let topic = self.rng.usize(..self.situation.topics.len());
        match self.rng.u8(..100) {
            0..30 => self.subscribe(topic),
            30..45 => self.unsubscribe(topic),
            45..60 => self.unadvertise(topic),
            60..72 => self.advertise(topic),
            72..86 => self.replace_far_node(),
            86..90 => self.replace_near_node(),
            _ => self.restart_server(),
        }
    }

    fn unsubscribe(&mut self, topic: usize) {
        if let Some(index) = self.subscribers.iter().position(|it| it.topic == topic) {
            let id = self.subscribers.remove(index).id;
            self.push(Step::Unsubscribe(id));
        }
    }

    fn unadvertise(&mut self, topic: usize) {
        if let Some(index) = self.publishers.iter().position(|it| it.topic == topic) {
            let id = self.publishers.remove(index).id;
            self.push(Step::Unadvertise(id));
        }
    }

    /// Replaces a far node. The subscribers of the process appear again in its successor.
    fn replace_far_node(&mut self) {
        let node = self.rng.usize(..NODES);
        self.push(Step::ReplaceFarNode(node));
        let (gone, left) = self.subscribers.drain(..).partition(|it| it.node == node);
        self.subscribers = left;
        let gone: Vec<Subscriber> = gone;
        for before in gone {
            let subscriber = Subscriber { id: format!("S{}", self.number()), ..before };
            self.subscribers.push(subscriber.clone());
            self.push(Step::Subscribe(subscriber));
        }
    }

    /// Replaces a near node. The servers of the process appear again in its successor; its publishers do not.
    fn replace_near_node(&mut self) {
        if !self.actions.is_empty() {
            return;
        }
        let node = self.rng.usize(..NODES);
        self.push(Step::ReplaceNearNode(node));
        self.publishers.retain(|it| it.node != node);
        for index in 0..self.services.len() {
            if self.services[index].1.as_ref().is_some_and(|(_, at)| *at == node) {
                self.serve(index);
            }
        }
    }

    fn restart_server(&mut self) {
        for index in 0..self.services.len() {
            if let Some((id, node)) = self.services[index].1.take() {
                self.push(Step::Unserve { id, node });
            }
            self.serve(index);
        }
    }

    /// Adds subscribers that appear when nothing more is published; on topics with a lifespan, after
    /// the lifespan has passed.
    fn late_joiners(&mut self) {
        if self.situation.topics.iter().any(|topic| topic.rule == Rule::Lifespan) {
            self.push(Step::Wait { ms: BEYOND_LIFESPAN_MS });
        }
        for topic in 0..self.situation.topics.len() {
            if self.chance(30) {
                self.unsubscribe(topic);
            }
            if self.chance(70) {
                self.subscribe(topic);
            }
        }
        self.push(Step::Settle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn situations() -> impl Iterator<Item = Situation> {
        (1..=100).flat_map(|seed| Team::ALL.map(|team| situation(seed, team)))
    }

    #[test]
    fn a_seed_always_gives_the_same_situation() {
        for team in Team::ALL {
            let [one, other] = [situation(3, team), situation(3, team)];
            assert_eq!(format!("{one:?}"), format!("{other:?}"));
        }
    }

    #[test]
    fn every_kind_of_step_occurs_and_names_are_used_once() {
        let mut kinds = BTreeSet::new();
        for situation in situations() {
            let ids = situation.publishers().map(|(_, it)| it.id.clone());
            let ids: Vec<String> =
                ids.chain(situation.subscribers().map(|(_, it)| it.id.clone())).collect();
            assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
            assert!(matches!(situation.steps.last(), Some(Step::Settle)));
            let word = |step: &Step| {
                let text = format!("{step:?}");
                text.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
            };
            kinds.extend(situation.steps.iter().map(word));
        }
        assert_eq!(kinds.len(), 18, "{kinds:?}");
    }

    #[test]
    fn a_message_is_published_only_after_everyone_has_settled() {
        for situation in situations() {
            let mut settled = true;
            for step in &situation.steps {
                match step {
                    Step::Settle => settled = true,
                    Step::Publish { .. } => assert!(settled, "{situation:?}"),
                    Step::Advertise(_) | Step::Subscribe(_) => settled = false,
                    _ => {}
                }
            }
        }
    }
}
