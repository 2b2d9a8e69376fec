// SPDX-License-Identifier: Apache-2.0
//! Situations: what publishers, subscribers, clients and the link do, as a list of steps.

use crate::setup::ros::Ros;
use serde::Serialize;

/// Actions that the daemons' files name.
pub const ACTIONS: u32 = 8;
/// Nodes on each computer.
pub const NODES: usize = 2;
/// Transforms.
pub const TRANSFORMS: &str = "tf2_msgs/TFMessage";
/// Types of ROS 1 whose messages do not state when they were published.
pub const KINDS_WITHOUT_HEADER: &[&str] = &[
    "std_msgs/String",
    "std_msgs/UInt8MultiArray",
    "std_msgs/Header",
    TRANSFORMS,
    "parity_msgs/Own",
];

/// ROS of the publishers' computer and of the subscribers' computer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "&'static str")]
pub struct Team {
    /// ROS of publishers and servers.
    pub near: Ros,
    /// ROS of subscribers and clients.
    pub far: Ros,
}

impl Team {
    /// All teams.
    pub const ALL: [Self; 4] = [
        Self { near: Ros::One, far: Ros::One },
        Self { near: Ros::Two, far: Ros::Two },
        Self { near: Ros::One, far: Ros::Two },
        Self { near: Ros::Two, far: Ros::One },
    ];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match (self.near, self.far) {
            (Ros::One, Ros::One) => "1",
            (Ros::Two, Ros::Two) => "2",
            (Ros::One, Ros::Two) => "1-2",
            (Ros::Two, Ros::One) => "2-1",
        }
    }

    /// Whether it is ROS 2 to ROS 1.
    pub fn is_ros2_to_ros1(self) -> bool {
        (self.near, self.far) == (Ros::Two, Ros::One)
    }
}

impl From<Team> for &'static str {
    fn from(team: Team) -> Self {
        team.name()
    }
}

/// Rule of Tautline for a topic; the topic's name selects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// No rule but a long queue.
    Plain,
    /// `lifespan: 1s`.
    Lifespan,
    /// `rate: 2Hz`.
    Rate,
}

impl Rule {
    /// Level of the names of its topics.
    pub fn level(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Lifespan => "lifespan",
            Self::Rate => "rate",
        }
    }
}

/// A topic of a situation.
#[derive(Debug, Clone, Serialize)]
pub struct Topic {
    /// Name, used in no other situation.
    pub name: String,
    /// Type, without the part `msg`.
    pub kind: &'static str,
    /// Rule of Tautline.
    pub rule: Rule,
    /// Minimum size of a message, bytes; 0 for a small one.
    pub size: u32,
}

/// A publisher on the near computer.
#[derive(Debug, Clone, Serialize)]
pub struct Publisher {
    /// `P`, a number and the class: L latched, V volatile, lower case if best effort.
    pub id: String,
    /// Index of the topic.
    pub topic: usize,
    /// Near node that has it.
    pub node: usize,
    /// Latched or transient local.
    pub latched: bool,
    /// Reliable rather than best effort (ROS 2).
    pub reliable: bool,
    /// Messages kept.
    pub depth: u32,
    /// Lifespan of the publisher's own QoS (ROS 2).
    pub lifespan_ms: Option<u32>,
}

/// A subscriber on the far computer.
#[derive(Debug, Clone, Serialize)]
pub struct Subscriber {
    /// `S` and a number.
    pub id: String,
    /// Index of the topic.
    pub topic: usize,
    /// Far node that has it.
    pub node: usize,
    /// Whether it requests kept messages. ROS 1 always does.
    pub latched: bool,
    /// Reliable rather than best effort (ROS 2).
    pub reliable: bool,
}

impl Subscriber {
    /// Whether it gets a publisher's messages, where both have the QoS of ROS 2.
    pub fn is_compatible(&self, publisher: &Publisher) -> bool {
        self.topic == publisher.topic
            && (publisher.latched || !self.latched)
            && (publisher.reliable || !self.reliable)
    }
}

/// A daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The daemon of the publishers and servers.
    Near,
    /// The daemon of the subscribers and clients.
    Far,
}

/// What happens to a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// SIGKILL.
    Kill,
    /// SIGTERM.
    Terminate,
    /// `tautline reload` with a changed file, which no topic may notice.
    Reload,
}

/// What happens next.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// A publisher appears.
    Advertise(Publisher),
    /// The publisher of that id leaves.
    Unadvertise(String),
    /// Messages are published, `gap_ms` apart.
    Publish { id: String, count: u32, gap_ms: u32 },
    /// A subscriber appears.
    Subscribe(Subscriber),
    /// The subscriber of that id leaves.
    Unsubscribe(String),
    /// The process of a far node is killed; another process takes its place.
    ReplaceFarNode(usize),
    /// The process of a near node ends cleanly; another process takes its place.
    ReplaceNearNode(usize),
    /// A server appears on a near node.
    Serve { id: String, node: usize, service: String },
    /// The server of that id leaves.
    Unserve { id: String, node: usize },
    /// A client on a far node calls.
    Call { id: String, node: usize, service: String },
    /// An action server appears on a near node (ROS 2).
    ServeAction { id: String, node: usize, action: String },
    /// A client on a far node sends a goal, and cancels it after this number of feedbacks.
    Goal { id: String, node: usize, action: String, order: u32, cancel_after: Option<u32> },
    /// Nothing passes between the computers from here on.
    Cut,
    /// The link works again, this number of milliseconds after the cut.
    Mend { after_ms: u32 },
    /// A daemon ends, or takes a changed file.
    Daemon { side: Side, how: How },
    /// The daemon that has ended starts again.
    Start(Side),
    /// Nothing happens for this time.
    Wait { ms: u32 },
    /// Everything that can be discovered is, and everything that can arrive has.
    Settle,
}

/// A situation.
#[derive(Debug, Clone, Serialize)]
pub struct Situation {
    /// Seed from which it was made.
    pub seed: u64,
    /// ROS of near and far computer.
    pub team: Team,
    /// Topics.
    pub topics: Vec<Topic>,
    /// Steps in their order.
    pub steps: Vec<Step>,
}

impl Situation {
    /// Returns each publisher with the step at which it appears.
    pub fn publishers(&self) -> impl Iterator<Item = (usize, &Publisher)> {
        self.steps.iter().enumerate().filter_map(|(at, step)| match step {
            Step::Advertise(publisher) => Some((at, publisher)),
            _ => None,
        })
    }

    /// Returns the publisher of an id with the step at which it appears.
    pub fn publisher(&self, id: &str) -> Option<(usize, &Publisher)> {
        self.publishers().find(|(_, it)| it.id == id)
    }

    /// Returns each subscriber with the step at which it appears.
    pub fn subscribers(&self) -> impl Iterator<Item = (usize, &Subscriber)> {
        self.steps.iter().enumerate().filter_map(|(at, step)| match step {
            Step::Subscribe(subscriber) => Some((at, subscriber)),
            _ => None,
        })
    }

    /// Whether a node of rospy began to latch a topic with this publisher while the node had
    /// connections. The node tells nobody.
    pub fn latches_late(&self, publisher: &Publisher) -> bool {
        let begin = self.publisher(&publisher.id).map(|(at, _)| at);
        let is_earlier = |(at, it): (usize, &Publisher)| {
            let shares_place = (it.topic, it.node) == (publisher.topic, publisher.node);
            let overlaps =
                begin.is_some_and(|begin| at < begin && begin < self.end_of_publisher(it));
            shares_place && overlaps && !it.latched
        };
        self.team.near == Ros::One && publisher.latched && self.publishers().any(is_earlier)
    }

    /// Returns the step at which a publisher leaves, or the number of steps.
    pub fn end_of_publisher(&self, publisher: &Publisher) -> usize {
        let leaves = |step: &Step| match step {
            Step::Unadvertise(id) => *id == publisher.id,
            Step::ReplaceNearNode(node) => *node == publisher.node,
            _ => false,
        };
        self.end_after(|step| matches!(step, Step::Advertise(it) if it.id == publisher.id), leaves)
    }

    /// Returns the step at which a subscriber leaves, or the number of steps.
    pub fn end_of_subscriber(&self, subscriber: &Subscriber) -> usize {
        let leaves = |step: &Step| match step {
            Step::Unsubscribe(id) => *id == subscriber.id,
            Step::ReplaceFarNode(node) => *node == subscriber.node,
            _ => false,
        };
        let begins = |step: &Step| matches!(step, Step::Subscribe(it) if it.id == subscriber.id);
        self.end_after(begins, leaves)
    }

    fn end_after(&self, begins: impl Fn(&Step) -> bool, ends: impl Fn(&Step) -> bool) -> usize {
        let begin = self.steps.iter().position(begins).unwrap_or(self.steps.len());
        let end = self.steps.iter().skip(begin).position(ends);
        end.map_or(self.steps.len(), |after| begin + after)
    }

    /// Whether a publisher and a subscriber of this situation should be connected.
    pub fn connects(&self, publisher: &Publisher, subscriber: &Subscriber) -> bool {
        match self.team.far {
            // A ROS 1 subscriber takes every publisher as it is.
            Ros::One => publisher.topic == subscriber.topic,
            Ros::Two => subscriber.is_compatible(publisher),
        }
    }
}
