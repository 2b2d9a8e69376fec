// SPDX-License-Identifier: Apache-2.0
//! Quality of service of publishers.

use crate::origin::MAX_SOURCES;
use std::time::Duration;

/// Quality of service that publishers offer, in the terms of ROS 2. ROS 1 maps onto it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Qos {
    /// Whether the last messages of each publisher are kept for late joiners (ROS 1: latched;
    /// ROS 2: transient local).
    pub transient_local: bool,
    /// The number of kept messages, at least 1.
    pub depth: u32,
    /// Whether the publisher offers reliable delivery (always in ROS 1).
    pub reliable: bool,
    /// Longest time between two messages; `None` promises nothing.
    pub deadline: Option<Duration>,
    /// Age past which a message is worthless; `None`: it never is.
    pub lifespan: Option<Duration>,
    /// How publishers assert that they are alive.
    pub liveliness: Liveliness,
    /// The classes of the publishers, if they differ; empty if all have the class of this offer.
    pub classes: Classes,
    /// The number of publishers that keep messages for late joiners. If the topic has any, both 0 and 1
    /// mean one.
    pub keeping: u8,
}

/// How publishers assert that they are alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Liveliness {
    /// `true`: by publishing, for each topic; `false`: by the existence of the process.
    pub manual: bool,
    /// Longest time between two assertions; `None` promises nothing.
    pub lease: Option<Duration>,
    /// Whether no publisher is alive: none has asserted its liveliness within the lease.
    pub lost: bool,
}

/// Shortest lease of liveliness that is carried to other robots. A shorter one counts as this.
pub const MIN_LEASE: Duration = Duration::from_millis(100);

impl Qos {
    /// The combined offer of two publishers: the features that either offers, and the promises on
    /// time that both keep.
    pub fn combined_with(self, other: Self) -> Self {
        let longest = |a: Option<Duration>, b: Option<Duration>| Some(a?.max(b?));
        Self {
            transient_local: self.transient_local || other.transient_local,
            depth: self.depth.max(other.depth),
            reliable: self.reliable || other.reliable,
            deadline: longest(self.deadline, other.deadline),
            lifespan: longest(self.lifespan, other.lifespan),
            liveliness: Liveliness {
                manual: self.liveliness.manual && other.liveliness.manual,
                lease: longest(self.liveliness.lease, other.liveliness.lease),
                lost: self.liveliness.lost && other.liveliness.lost,
            },
            classes: self.all_classes().with(other.all_classes()).if_several(),
            keeping: self.keeping.max(other.keeping),
        }
    }

    /// The combined offer of all publishers of a topic on this robot, at least one.
    pub fn combined_offer(each: &[Self]) -> Option<Self> {
        let keeping = each.iter().filter(|qos| qos.transient_local).count();
        let combined = each.iter().copied().reduce(Self::combined_with)?;
        let keeping = keeping.min(MAX_SOURCES as usize) as u8;
        Some(Self { keeping: if keeping > 1 { keeping } else { 0 }, ..combined })
    }

    /// The class of a publisher with exactly this offer.
    pub const fn class(self) -> Class {
        Class { transient_local: self.transient_local, reliable: self.reliable }
    }

    /// The classes of the publishers, at least one.
    pub fn all_classes(self) -> Classes {
        if self.classes == Classes::default() { self.class().into() } else { self.classes }
    }
}

/// The two policies by which a subscriber of ROS 2 matches a publisher or not. A topic may have
/// publishers of several classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class {
    /// Whether the last messages are kept for late joiners.
    pub transient_local: bool,
    /// Whether delivery is reliable.
    pub reliable: bool,
}

impl Class {
    /// Whether late joiners get kept messages. Best-effort publishers do not send them any.
    #[cfg(feature = "ros2")]
    pub(crate) const fn keeps_reliably(self) -> bool {
        self.transient_local && self.reliable
    }

    const ALL: [Self; 4] = [
        Self { transient_local: false, reliable: false },
        Self { transient_local: false, reliable: true },
        Self { transient_local: true, reliable: false },
        Self { transient_local: true, reliable: true },
    ];
}

/// A set of classes: bit n is the class `Class::ALL[n]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Classes(u8);

impl From<Class> for Classes {
    fn from(class: Class) -> Self {
        Self(1 << (u8::from(class.transient_local) << 1 | u8::from(class.reliable)))
    }
}

impl Classes {
    /// The set with these bits; others are ignored.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & 0xf)
    }

    /// The bits of the set.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The union of two sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether a class is in the set.
    pub fn contains(self, class: Class) -> bool {
        self.0 & Self::from(class).0 != 0
    }

    /// The classes of the set.
    pub fn iter(self) -> impl Iterator<Item = Class> {
        Class::ALL.into_iter().filter(move |class| self.contains(*class))
    }

    /// Whether publishers keep messages for late joiners.
    pub fn keep_messages(self) -> bool {
        self.iter().any(|class| class.transient_local)
    }

    fn if_several(self) -> Self {
        if self.0.count_ones() > 1 { self } else { Self::default() }
    }
}

impl Default for Qos {
    fn default() -> Self {
        Self {
            transient_local: false,
            depth: 1,
            reliable: true,
            deadline: None,
            lifespan: None,
            liveliness: Liveliness::default(),
            classes: Classes::default(),
            keeping: 0,
        }
    }
}
