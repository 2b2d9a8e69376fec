// SPDX-License-Identifier: Apache-2.0
//! Selects the link of a peer's next packet, at the time when the packet is built.
//!
//! With several usable links, each message is assigned by a forecast of its arrival on each of them: the time
//! until the link can send it, after the messages already assigned to the link; the time to send it at the
//! link's goodput; the one-way delay; and the time to repair expected losses. This extends
//! earliest-completion-first scheduling (Lim and others, *ECF*, CoNEXT 2017) from connections to messages
//! with priorities.

use crate::ids::{LinkId, RadioId};
use crate::path::policy::{LinkPolicy, LinkUse, SWITCH_MARGIN};

/// The forecast of one link. Times are in seconds from now; those of one peer's links are relative
/// to the same unknown delay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Forecast {
    pub(crate) link: LinkId,
    pub(crate) number: u8,
    pub(crate) radio: RadioId,
    /// The link costs money.
    pub(crate) metered: bool,
    /// The allowance is used up.
    pub(crate) spent: bool,
    /// The controller sends no packet now.
    pub(crate) is_held_back: bool,
    /// When the link's radio can send the next packet.
    pub(crate) ready: f64,
    /// Bytes per second that arrive.
    pub(crate) goodput: f64,
    /// One-way delay.
    pub(crate) delay: f64,
    /// Time that repairs of losses are expected to take.
    pub(crate) repair: f64,
    /// Bytes of earlier messages that are assigned to the link's radio.
    pub(crate) assigned_bytes: f64,
}

impl Forecast {
    pub(crate) fn new(link: LinkId, number: u8, radio: RadioId) -> Self {
        Self {
            link,
            number,
            radio,
            metered: false,
            spent: false,
            is_held_back: false,
            ready: 0.0,
            goodput: 1.0,
            delay: 0.0,
            repair: 0.0,
            assigned_bytes: 0.0,
        }
    }

    fn can_send_on(&self, radio: RadioId) -> bool {
        self.radio == radio && !self.is_held_back
    }

    /// When the last byte of a message of `bytes` is expected to arrive.
    fn arrival(&self, bytes: f64) -> f64 {
        self.offset() + bytes / self.goodput
    }

    /// When a message without bytes is expected to arrive.
    fn offset(&self) -> f64 {
        self.ready + self.assigned_bytes / self.goodput + self.delay + self.repair
    }
}

/// A message, or the remaining part of a message, that is to be assigned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demand {
    pub(crate) link_use: LinkUse,
    /// Bytes still to be sent.
    pub(crate) rest: usize,
    /// Bytes of its next packet.
    pub(crate) packet: usize,
    /// A pseudorandom number from 0 to 1, always the same for one message.
    pub(crate) draw: f64,
}

/// Indices of forecasts: links of a peer, of which there are at most 16. A bit set without a heap allocation,
/// since indices are determined several times for each packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Indices(u16);

impl Indices {
    fn add(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let index = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(index)
        })
    }

    fn len(self) -> u8 {
        self.0.count_ones() as u8
    }
}

impl FromIterator<usize> for Indices {
    fn from_iter<I: IntoIterator<Item = usize>>(indices: I) -> Self {
        let mut all = Self::default();
        indices.into_iter().for_each(|index| all.add(index));
        all
    }
}

/// The forecasts of a peer's usable links, in the order of the configuration.
#[derive(Debug, Default)]
pub(crate) struct Forecasts {
    pub(crate) links: Vec<Forecast>,
    /// The round in which the forecasts were made. The first round is 1.
    pub(crate) round: u64,
}

impl Forecasts {
    /// Assigns the next packet of a message to a link of `radio`, or the message to links of other
    /// radios. The forecasts of those links then include the message. `copy_bytes` gives, by link
    /// number, how many bytes of its copy of a duplicated message a link may still send.
    pub(crate) fn assign(
        &mut self,
        radio: RadioId,
        demand: &Demand,
        copy_bytes: impl Fn(u8) -> Option<usize>,
    ) -> Option<LinkId> {
        let usable = self.usable(&demand.link_use);
        match demand.link_use.policy {
            LinkPolicy::Best => {
                let (chosen, _) = self.earliest(usable, demand.rest as f64)?;
                self.take(chosen, radio, demand.rest as f64)
            }
            LinkPolicy::Weighted => {
                let chosen = self.draw_link(usable, demand.draw)?;
                self.take(chosen, radio, demand.rest as f64)
            }
            LinkPolicy::Stripe => self.stripe(usable, radio, demand),
            LinkPolicy::Duplicate(copies) => self.duplicate(usable, radio, copies, copy_bytes),
        }
    }

    /// Whether some link can carry the messages.
    pub(crate) fn can_carry(&self, link_use: &LinkUse) -> bool {
        self.links.iter().any(|forecast| link_use.allows(forecast.number, forecast.spent))
    }

    /// The number of links that share a message.
    pub(crate) fn copies(&self, link_use: &LinkUse) -> u8 {
        match link_use.policy {
            LinkPolicy::Duplicate(copies) => copies.min(self.usable(link_use).len()),
            _ => 1,
        }
    }

    /// The indices of the links that may carry a message. Links to be avoided and metered links are included
    /// only if there are no others.
    fn usable(&self, link_use: &LinkUse) -> Indices {
        // A topic that names its links may spend the budget of a metered one.
        let is_named = link_use.only.is_some();
        let mut ranks = [Indices::default(); 3];
        for (index, it) in self.links.iter().enumerate() {
            if link_use.allows(it.number, it.spent) {
                let is_avoided = link_use.avoid.contains(it.number);
                let rank = usize::from(it.metered && !is_named) + usize::from(is_avoided);
                ranks[rank].add(index);
            }
        }
        ranks.into_iter().find(|rank| rank.len() > 0).unwrap_or_default()
    }

    /// The link on which `bytes` arrive first, and the time of their arrival.
    fn earliest(&self, usable: Indices, bytes: f64) -> Option<(usize, f64)> {
        let mut best: Option<(usize, f64)> = None;
        for index in usable.iter() {
            let arrival = self.links[index].arrival(bytes);
            let margin = SWITCH_MARGIN.as_secs_f64();
            if best.is_none_or(|(_, before)| arrival < before - margin) {
                best = Some((index, arrival));
            }
        }
        best
    }

    fn draw_link(&self, usable: Indices, draw: f64) -> Option<usize> {
        let total: f64 = usable.iter().map(|index| self.links[index].goodput).sum();
        let mut left = draw * total;
        for index in usable.iter() {
            left -= self.links[index].goodput;
            if left < 0.0 {
                return Some(index);
            }
        }
        usable.iter().last()
    }

    /// The link `chosen`, if it belongs to `radio` and may send; otherwise adds the bytes to the forecast of
    /// `chosen`.
    fn take(&mut self, chosen: usize, radio: RadioId, bytes: f64) -> Option<LinkId> {
        let forecast = self.links[chosen];
        if forecast.can_send_on(radio) {
            return Some(forecast.link);
        }
        self.add(forecast.radio, bytes);
        None
    }

    fn add(&mut self, radio: RadioId, bytes: f64) {
        self.links
            .iter_mut()
            .filter(|it| it.radio == radio)
            .for_each(|it| it.assigned_bytes += bytes);
    }

    /// Divides a message so that all parts arrive at the same time. A link takes the next packet if
    /// that packet then arrives no later than the whole rest on the other links.
    fn stripe(&mut self, usable: Indices, radio: RadioId, demand: &Demand) -> Option<LinkId> {
        let (packet, rest) = (demand.packet as f64, demand.rest as f64);
        let here: Indices =
            usable.iter().filter(|index| self.links[*index].can_send_on(radio)).collect();
        let others = Indices(usable.0 & !here.0);
        let alone = self.earliest(others, packet).map_or(f64::INFINITY, |(_, arrival)| arrival);
        // Packets cannot be divided.
        let end = self.common_end(others, rest).max(alone);
        let first = self.earliest(here, packet);
        if let Some((chosen, _)) = first.filter(|(_, arrival)| *arrival <= end) {
            return Some(self.links[chosen].link);
        }
        for index in others.iter() {
            let part = ((end - self.links[index].offset()) * self.links[index].goodput).max(0.0);
            self.add(self.links[index].radio, part.min(rest));
        }
        None
    }

    /// The time at which `bytes` have arrived if they are divided among the links so that all parts
    /// arrive at the same time.
    fn common_end(&self, usable: Indices, bytes: f64) -> f64 {
        let mut by_offset = [(f64::INFINITY, 0.0); u16::BITS as usize];
        for (place, index) in by_offset.iter_mut().zip(usable.iter()) {
            *place = (self.links[index].offset(), self.links[index].goodput);
        }
        by_offset[..usize::from(usable.len())].sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut goodput, mut weighted) = (0.0, 0.0);
        let mut end = f64::INFINITY;
        for (offset, of_link) in by_offset.into_iter().take(usize::from(usable.len())) {
            if offset >= end {
                break;
            }
            goodput += of_link;
            weighted += of_link * offset;
            end = (bytes + weighted) / goodput;
        }
        end
    }

    /// Sends the copies of a message on the links on which they arrive first. Each copy stays on
    /// its link.
    fn duplicate(
        &mut self,
        usable: Indices,
        radio: RadioId,
        copies: u8,
        copy_bytes: impl Fn(u8) -> Option<usize>,
    ) -> Option<LinkId> {
        let mut carriers = Vec::new();
        for index in usable.iter() {
            if let Some(bytes) = copy_bytes(self.links[index].number) {
                carriers.push((self.links[index].arrival(bytes as f64), index, bytes as f64));
            }
        }
        carriers.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, index, bytes) in carriers.into_iter().take(usize::from(copies)) {
            if let Some(link) = self.take(index, radio, bytes) {
                return Some(link);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::policy::LinkSet;

    const FIRST: RadioId = RadioId(0);
    const SECOND: RadioId = RadioId(1);

    /// Two links with radios of their own, of 1 MB/s, and these delays.
    fn two_links(delays: [f64; 2]) -> Forecasts {
        let link = |number: u8, delay| Forecast {
            goodput: 1e6,
            delay,
            ..Forecast::new(LinkId(number.into()), number, RadioId(number.into()))
        };
        Forecasts { links: vec![link(0, delays[0]), link(1, delays[1])], round: 0 }
    }

    fn demand(policy: LinkPolicy, rest: usize) -> Demand {
        let link_use = LinkUse { policy, ..LinkUse::default() };
        Demand { link_use, rest, packet: rest.min(1500), draw: 0.9 }
    }

    fn assign(forecasts: &mut Forecasts, radio: RadioId, demand: &Demand) -> Option<LinkId> {
        forecasts.assign(radio, demand, |_| Some(demand.rest))
    }

    #[test]
    fn the_first_link_carries_a_message_unless_another_is_faster_by_the_margin() {
        let small = demand(LinkPolicy::Best, 100);
        let mut links = two_links([0.0003, 0.0]);
        assert_eq!(assign(&mut links, FIRST, &small), Some(LinkId(0)));
        let mut links = two_links([0.002, 0.0]);
        assert_eq!(assign(&mut links, FIRST, &small), None);
        assert_eq!(assign(&mut links, SECOND, &small), Some(LinkId(1)));
    }

    #[test]
    fn messages_ahead_on_one_link_move_the_next_to_another() {
        let mut links = two_links([0.0, 0.001]);
        let large = demand(LinkPolicy::Best, 5000);
        assert_eq!(assign(&mut links, SECOND, &large), None, "the first is faster");
        assert_eq!(assign(&mut links, SECOND, &large), Some(LinkId(1)), "and now busy");
    }

    #[test]
    fn a_striped_message_uses_a_slower_link_only_if_it_ends_earlier() {
        let mut links = two_links([0.0, 0.020]);
        let stripe = |rest| demand(LinkPolicy::Stripe, rest);
        assert_eq!(assign(&mut links, SECOND, &stripe(15_000)), None);
        let mut links = two_links([0.0, 0.020]);
        assert_eq!(assign(&mut links, SECOND, &stripe(60_000)), Some(LinkId(1)));
    }

    #[test]
    fn a_message_of_one_packet_is_striped_on_some_link() {
        let small = demand(LinkPolicy::Stripe, 400);
        let carriers =
            [FIRST, SECOND].map(|radio| assign(&mut two_links([0.0, -7e-6]), radio, &small));
        assert!(carriers.iter().any(Option::is_some), "{carriers:?}");
    }

    #[test]
    fn losses_and_overdue_acknowledgements_delay_a_link() {
        let mut links = two_links([0.0, 0.010]);
        (links.links[0].goodput, links.links[0].repair) = (0.25e6, 0.018);
        let small = demand(LinkPolicy::Best, 100);
        assert_eq!(assign(&mut links, FIRST, &small), None);
    }

    #[test]
    fn metered_and_avoided_links_carry_only_what_no_other_can() {
        let small = demand(LinkPolicy::Best, 100);
        let mut links = two_links([0.0, 0.5]);
        links.links[0].metered = true;
        assert_eq!(assign(&mut links, FIRST, &small), None);
        links.links.remove(1);
        assert_eq!(assign(&mut links, FIRST, &small), Some(LinkId(0)));
        let mut links = two_links([0.0, 0.5]);
        let mut avoiding = small;
        avoiding.link_use.avoid = LinkSet::from_numbers([0]);
        assert_eq!(assign(&mut links, SECOND, &avoiding), Some(LinkId(1)));
        let mut links = two_links([0.0, 0.5]);
        links.links.iter_mut().for_each(|link| link.metered = true);
        assert_eq!(assign(&mut links, FIRST, &small), Some(LinkId(0)), "all are");
        assert_eq!(
            assign(&mut links, SECOND, &avoiding),
            Some(LinkId(1)),
            "all are, one is avoided"
        );
        avoiding.link_use.only = Some(LinkSet::from_numbers([0]));
        assert_eq!(assign(&mut links, FIRST, &avoiding), Some(LinkId(0)), "no other may");
        avoiding.link_use.avoid = LinkSet::from_numbers([0, 1]);
        avoiding.link_use.only = None;
        assert_eq!(assign(&mut links, FIRST, &avoiding), Some(LinkId(0)), "all are avoided");
    }

    #[test]
    fn a_spent_link_carries_only_permitted_messages() {
        let policies =
            [LinkPolicy::Best, LinkPolicy::Weighted, LinkPolicy::Stripe, LinkPolicy::Duplicate(2)];
        for policy in policies {
            let mut small = demand(policy, 100);
            let mut links = two_links([0.0, 0.5]);
            links.links[0].spent = true;
            assert_eq!(assign(&mut links, FIRST, &small), None, "{policy:?}");
            assert_eq!(assign(&mut links, SECOND, &small), Some(LinkId(1)), "{policy:?}");
            links.links.remove(1);
            assert_eq!(assign(&mut links, FIRST, &small), None, "{policy:?}: alone");
            assert!(!links.can_carry(&small.link_use));
            small.link_use.over_budget = true;
            assert_eq!(assign(&mut links, FIRST, &small), Some(LinkId(0)), "{policy:?}");
        }
    }

    #[test]
    fn copies_go_to_the_fastest_links() {
        let mut links = two_links([0.0, 0.5]);
        links.links.push(Forecast {
            goodput: 1e6,
            delay: 0.1,
            ..Forecast::new(LinkId(2), 2, RadioId(2))
        });
        let twice = demand(LinkPolicy::Duplicate(2), 100);
        assert_eq!(links.copies(&twice.link_use), 2);
        let carriers = [0, 1, 2].map(|radio| assign(&mut links, RadioId(radio), &twice));
        assert_eq!(carriers, [Some(LinkId(0)), None, Some(LinkId(2))]);
    }

    #[test]
    fn weighted_links_carry_messages_by_their_goodput() {
        let mut links = two_links([0.0, 0.0]);
        links.links[0].goodput = 3e6;
        let mut drawn = demand(LinkPolicy::Weighted, 100);
        for (draw, link) in [(0.0, 0), (0.74, 0), (0.76, 1), (0.99, 1)] {
            drawn.draw = draw;
            let usable = links.usable(&drawn.link_use);
            assert_eq!(links.draw_link(usable, draw), Some(link), "{draw}");
        }
    }
}
