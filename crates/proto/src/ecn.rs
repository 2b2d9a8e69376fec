// SPDX-License-Identifier: Apache-2.0
//! Explicit congestion notification (RFC 3168): a bottleneck marks packets instead of dropping them.

/// The ECN field of an IP packet: the two bits below the DSCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Ecn {
    /// Not ECN-capable: a bottleneck drops the packet instead of marking it. Also stands for an
    /// unknown field.
    #[default]
    NotCapable = 0,
    /// ECT(1): the sender follows RFC 9331. This protocol does not use ECT(1).
    Capable1 = 1,
    /// ECT(0): the sender obeys marks.
    Capable = 2,
    /// CE: a bottleneck marked the packet.
    Marked = 3,
}

impl Ecn {
    /// The value in the lower two bits of a TOS or traffic class.
    pub fn from_bits(traffic_class: u8) -> Self {
        [Self::NotCapable, Self::Capable1, Self::Capable, Self::Marked]
            [usize::from(traffic_class & 3)]
    }
}

/// Packets of a link that arrived since the session began, by their ECN field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EcnCounts {
    /// With ECT(0).
    pub capable: u64,
    /// With CE.
    pub marked: u64,
}

impl EcnCounts {
    pub(crate) fn add(&mut self, ecn: Ecn) {
        match ecn {
            Ecn::NotCapable | Ecn::Capable1 => {}
            Ecn::Capable => self.capable += 1,
            Ecn::Marked => self.marked += 1,
        }
    }

    pub(crate) fn total(self) -> u64 {
        self.capable.saturating_add(self.marked)
    }
}

/// Whether a link uses ECN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EcnUse {
    /// A few packets find out whether the path carries the field.
    #[default]
    Testing,
    /// All packets are ECN-capable.
    On,
    /// The path clears or falsifies the field, or drops packets that have it.
    Off,
}

impl EcnUse {
    /// Name in statistics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Testing => "testing",
            Self::On => "on",
            Self::Off => "off",
        }
    }
}
