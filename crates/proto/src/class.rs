// SPDX-License-Identifier: Apache-2.0
//! Which packets go before others on the air: by access categories of 802.11.
//!
//! A station's own order ends at its antenna. Where the radio has access categories (EDCA), a
//! packet of a higher one also goes, mostly, before the lower ones of all other stations, and
//! before lower ones that wait in this station's driver. Which it is follows from the packet's
//! DSCP.

/// What a packet is to the radio: an access category (IEEE 802.11-2016, 10.2.4.2), lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// After everything else of everybody.
    Background,
    /// What is not marked.
    BestEffort,
    /// Before both.
    Video,
    /// Before all.
    Voice,
}

impl Class {
    /// All, lowest first.
    pub const ALL: [Self; CLASSES] = [Self::Background, Self::BestEffort, Self::Video, Self::Voice];
}

/// How many classes there are.
pub(crate) const CLASSES: usize = 4;

/// The class of packets without messages: acknowledgements, pings, calls. They are few and
/// small, and what the other side may send, or whether a link is up, hangs on them. They wait
/// behind nobody's data; on the air they are there whatever their class.
const OWN: Class = Class::Voice;

/// How packets are marked: priorities to classes, classes to DSCPs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marking {
    /// The lowest priority of best effort, of video and of voice; what is below the first is
    /// background. 256 is out of reach. In ascending order.
    pub from: [u16; CLASSES - 1],
    /// DSCP of each class, lowest first, 0 to 63.
    pub dscp: [u8; CLASSES],
}

impl Default for Marking {
    /// Commands (220) in voice, lasers (200), transforms and services (150) in video, the rest
    /// in best effort, images (20) too: a background packet waits for four slots more
    /// than anybody's, so that a busy network would starve it. Below 10 that is what is asked
    /// for. Voice is for few: its stations draw from four slots, and collide.
    ///
    /// Of the code points that mean such things (RFC 4594) these lead to their categories both
    /// by RFC 8325 (Linux since 6.8) and by the upper three bits alone (earlier; many access
    /// points). EF and VA, voice's own, do not: by their bits they are video.
    fn default() -> Self {
        Self { from: [10, 140, 210], dscp: [CS1, 0, CS4, CS6] }
    }
}

/// Low-priority data (RFC 4594, 4.10).
const CS1: u8 = 8;
/// Real-time interactive (4.4): what cannot adapt its rate and is worth nothing late.
const CS4: u8 = 32;
/// Network control (3.2).
const CS6: u8 = 48;

impl Marking {
    /// The class of a packet with messages of this priority at most; without any: `None`.
    pub fn class(&self, priority: Option<u8>) -> Class {
        let Some(priority) = priority.map(u16::from) else { return OWN };
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
    pub(crate) fn of(&self, class: Class) -> usize {
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

    /// Of this class and higher ones.
    pub(crate) fn from(&self, class: Class) -> usize {
        self.0[class as usize..].iter().sum()
    }

    /// What a packet of `class` has to wait for: nothing, where all that is in flight is lower.
    /// A category of its own on the air lets it overtake that, or another station's
    /// packets, and it cannot from our queue. So there is at most one packet of each higher
    /// class beyond the budget. Where the radio has no categories it goes
    /// next, as it would have from our queue.
    pub(crate) fn ahead_of(&self, class: Class) -> usize {
        if self.from(class) == 0 { 0 } else { self.total() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_priorities_have_their_classes() {
        let marking = Marking::default();
        let class = |priority| marking.class(Some(priority));
        assert_eq!([class(0), class(9)], [Class::Background; 2]);
        assert_eq!([class(10), class(20), class(100), class(139)], [Class::BestEffort; 4]);
        assert_eq!([class(140), class(150), class(200)], [Class::Video; 3]);
        assert_eq!([class(210), class(220), class(255)], [Class::Voice; 3]);
        assert_eq!(marking.class(None), Class::Voice);
    }

    #[test]
    fn a_class_may_be_out_of_reach() {
        let marking = Marking { from: [0, 256, 256], ..Marking::default() };
        assert!((0..=255).all(|priority| marking.class(Some(priority)) == Class::BestEffort));
    }

    #[test]
    fn code_points_lead_to_their_categories_by_their_upper_bits_too() {
        // User priority to category (IEEE 802.11-2016, table 10-1).
        const CATEGORY: [usize; 8] = [1, 0, 0, 1, 2, 2, 3, 3];
        let dscp = Marking::default().dscp;
        assert_eq!(dscp.map(|it| CATEGORY[usize::from(it >> 3)]), [0, 1, 2, 3]);
    }

    #[test]
    fn only_what_is_lower_is_overtaken() {
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
