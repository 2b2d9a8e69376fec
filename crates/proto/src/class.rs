// SPDX-License-Identifier: Apache-2.0
//! Classes of packets: the access categories of 802.11.
//!
//! A station orders only its own packets. On a radio with access categories (EDCA), a packet of a
//! higher category mostly precedes packets of lower categories: those of all other stations, and
//! those in this station's driver. The DSCP of a packet determines its category.

/// The access category of a packet (IEEE 802.11-2016, 10.2.4.2), lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Yields to all other packets.
    Background,
    /// The category of unmarked packets.
    BestEffort,
    /// Precedes best effort and background.
    Video,
    /// Precedes all other classes.
    Voice,
}

impl Class {
    /// All classes, lowest first.
    pub const ALL: [Self; CLASSES] = [Self::Background, Self::BestEffort, Self::Video, Self::Voice];
}

/// Number of classes.
pub(crate) const CLASSES: usize = 4;

/// The class of packets without messages: acknowledgements, PINGs, handshakes. They are few and
/// small, and the peer's rate and the state of the link depend on them. Therefore they do not queue
/// behind the data of other stations.
const WITHOUT_MESSAGES: Class = Class::Voice;

/// Packet marking: maps priorities to classes, and classes to DSCPs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marking {
    /// The lowest priority of each of best effort, video and voice, in ascending order. Priorities
    /// below best effort are background. 256 disables a class.
    pub from: [u16; CLASSES - 1],
    /// DSCP of each class, lowest class first, 0 to 63.
    pub dscp: [u8; CLASSES],
}

impl Default for Marking {
    /// Commands (220) are voice; lasers (200), transforms and services (150) are video; the rest,
    /// images (20) included, is best effort. A background packet waits four slots longer than any
    /// other, so that a busy network starves it. Only priorities below 10 are background. Voice
    /// suits only few packets: its stations choose among four slots, and collide when many of them
    /// send.
    ///
    /// The code points are those of RFC 4594. Each selects its category both by RFC 8325 (Linux
    /// since 6.8) and by its upper three bits alone (earlier versions; many access points). EF and
    /// VA are meant for voice, but their upper three bits select video.
    fn default() -> Self {
        Self { from: [10, 140, 210], dscp: [CS1, 0, CS4, CS6] }
    }
}

/// Low-priority data (RFC 4594, 4.10).
const CS1: u8 = 8;
/// Real-time interactive (4.4): traffic that cannot adapt its rate and is worthless when late.
const CS4: u8 = 32;
/// Network control (3.2).
const CS6: u8 = 48;

impl Marking {
    /// The class of a packet whose messages have at most this priority; `None` without messages.
    pub fn class(&self, priority: Option<u8>) -> Class {
        let Some(priority) = priority.map(u16::from) else { return WITHOUT_MESSAGES };
        let [best_effort, video, voice] = self.from;
        match priority {
            it if it >= voice => Class::Voice,
            it if it >= video => Class::Video,
            it if it >= best_effort => Class::BestEffort,
            _ => Class::Background,
        }
    }

    /// The DSCP of a class.
    pub fn dscp(&self, class: Class) -> u8 {
        self.dscp[class as usize]
    }
}

/// IP bytes in the kernel, by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct InFlight([usize; CLASSES]);

impl InFlight {
    pub(crate) fn of_class(&self, class: Class) -> usize {
        self.0[class as usize]
    }

    pub(crate) fn set(&mut self, class: Class, bytes: usize) {
        self.0[class as usize] = bytes;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, bytes)| *sum += bytes);
    }

    pub(crate) fn total(&self) -> usize {
        self.0.iter().sum()
    }

    /// Bytes of this class and of higher classes.
    pub(crate) fn of_class_and_higher(&self, class: Class) -> usize {
        self.0[class as usize..].iter().sum()
    }

    /// In-flight bytes that count against the budget of a packet of `class`: none while all of them
    /// are of lower classes. In the kernel the packet overtakes lower classes and packets of other
    /// stations; in our queue it cannot. The budget is thus exceeded by at most one packet of each
    /// higher class. On a radio without categories, the packet is sent next in either case.
    pub(crate) fn ahead_of(&self, class: Class) -> usize {
        if self.of_class_and_higher(class) == 0 { 0 } else { self.total() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_priorities_have_their_classes() {
        let marking = Marking::default();
        let class = |priority| marking.class(Some(priority));
        assert_eq!([class(0), class(9)], [Class::Background; 2]);
        assert_eq!([class(10), class(20), class(100), class(139)], [Class::BestEffort; 4]);
        assert_eq!([class(140), class(150), class(200)], [Class::Video; 3]);
        assert_eq!([class(210), class(220), class(255)], [Class::Voice; 3]);
        assert_eq!(marking.class(None), Class::Voice);
    }

    #[test]
    fn a_class_may_be_disabled() {
        let marking = Marking { from: [0, 256, 256], ..Marking::default() };
        assert!((0..=255).all(|priority| marking.class(Some(priority)) == Class::BestEffort));
    }

    #[test]
    fn code_points_without_a_name_use_their_upper_bits() {
        // User priority to category (IEEE 802.11-2016, table 10-1).
        const CATEGORY: [usize; 8] = [1, 0, 0, 1, 2, 2, 3, 3];
        let dscp = Marking::default().dscp;
        assert_eq!(dscp.map(|it| CATEGORY[usize::from(it >> 3)]), [0, 1, 2, 3]);
    }

    #[test]
    fn only_lower_classes_are_overtaken() {
        let mut in_flight = InFlight::default();
        in_flight.set(Class::BestEffort, 3000);
        let ahead = |it: &InFlight| Class::ALL.map(|class| it.ahead_of(class));
        assert_eq!(ahead(&in_flight), [3000, 3000, 0, 0]);
        in_flight.set(Class::Video, 1000);
        assert_eq!(ahead(&in_flight), [4000, 4000, 4000, 0]);
        in_flight.set(Class::Voice, 100);
        assert_eq!(ahead(&in_flight), [4100; 4]);
    }
}
