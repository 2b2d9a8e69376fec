// SPDX-License-Identifier: Apache-2.0
//! The links of one peer, in order of preference.

use crate::address::Place;
use crate::class::Class;
use crate::config::LinkConfig;
use crate::ids::{LinkId, PeerId, RadioId};
use crate::path::link::Link;
use crate::path::policy::LinkUse;
use crate::time::{Duration, Instant};
use std::cmp::Reverse;
use std::ops::{Index, IndexMut};

/// Time after its last message for which a metered link is not yet spared. A link that carries one message
/// per second is never spared.
const SPARED_AFTER: Duration = Duration::from_secs(2);
/// A report uses another link than the reported packets only if it arrives there at least this much earlier,
/// in microseconds. Otherwise it keeps to their link, so that the round trip covers both directions of one
/// link.
const REPORT_MARGIN_MICROS: i32 = 5000;

/// The link that a peer names by one of our link numbers.
pub(crate) enum NumberedLink {
    Open(LinkId),
    Removed,
    Unknown,
}

/// The links of one peer.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// The links by number, removed ones included. A link in the place of a removed one continues its packet
    /// numbers, so that no number is used twice under one key.
    slots: Vec<Link>,
    /// Open links in order of preference.
    order: Vec<LinkId>,
    retired: Vec<LinkId>,
}

impl Index<LinkId> for Links {
    type Output = Link;

    fn index(&self, id: LinkId) -> &Link {
        &self.slots[self.slot(id)]
    }
}

impl IndexMut<LinkId> for Links {
    fn index_mut(&mut self, id: LinkId) -> &mut Link {
        let slot = self.slot(id);
        &mut self.slots[slot]
    }
}

/// The list.
impl Links {
    fn slot(&self, id: LinkId) -> usize {
        self.slots.iter().position(|link| link.id == id).unwrap_or(usize::MAX)
    }

    /// The link with this number, open or removed.
    pub(crate) fn link_at(&self, number: u8) -> &Link {
        &self.slots[usize::from(number)]
    }

    pub(crate) fn link_at_mut(&mut self, number: u8) -> &mut Link {
        &mut self.slots[usize::from(number)]
    }

    pub(crate) fn ids(&self) -> &[LinkId] {
        &self.order
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Link> {
        self.order.iter().map(|id| &self[*id])
    }

    /// Opens a link in the place of a removed link, if there is one. The new link is last in the
    /// order of preference.
    pub(crate) fn reopen(&mut self, radio: RadioId, config: &LinkConfig) -> Option<LinkId> {
        let id = self.retired.pop()?;
        self.order.push(id);
        let link = &mut self[id];
        *link = Link::successor(link, radio, config.clone());
        Some(id)
    }

    /// Opens a link that is last in the order of preference. Returns its number.
    pub(crate) fn open(&mut self, ids: (LinkId, PeerId), radio: RadioId, config: LinkConfig) -> u8 {
        let number = self.slots.len() as u8;
        self.slots.push(Link::new(ids, radio, number, config));
        self.order.push(ids.0);
        number
    }

    /// Removes a link; returns its radio if it led through a relay.
    pub(crate) fn remove(&mut self, id: LinkId) -> Option<RadioId> {
        let link = &mut self[id];
        let (radio, relayed) = (link.radio, link.via.is_some());
        let config = LinkConfig { remote: None, ..link.config.clone() };
        *link = Link::successor(link, radio, config);
        link.removed = true;
        self.order.retain(|other| *other != id);
        self.retired.push(id);
        relayed.then_some(radio)
    }

    /// The removed links. Other links may take their ids when the peer is gone.
    pub(crate) fn removed_links(&self) -> &[LinkId] {
        &self.retired
    }

    /// Sets the order of preference; links that are not listed come last.
    pub(crate) fn set_preference_order(&mut self, order: &[LinkId]) {
        let place = |id: &LinkId| order.iter().position(|it| it == id).unwrap_or(order.len());
        self.order.sort_by_key(place);
    }

    /// The link that the peer names by our link number.
    pub(crate) fn by_number(&self, number: u8) -> NumberedLink {
        match self.slots.get(usize::from(number)) {
            Some(link) if link.removed => NumberedLink::Removed,
            Some(link) => NumberedLink::Open(link.id),
            None => NumberedLink::Unknown,
        }
    }
}

/// Choice of a link.
impl Links {
    /// The links without a relay.
    pub(crate) fn direct(&self) -> impl Iterator<Item = &Link> {
        self.iter().filter(|link| link.via.is_none())
    }

    /// Whether packets of the peer arrive without a relay.
    pub(crate) fn is_heard(&self) -> bool {
        self.direct().any(Link::is_heard)
    }

    /// A link through a relay by which packets arrive.
    pub(crate) fn relayed_link(&self) -> Option<LinkId> {
        self.iter().find(|link| link.via.is_some() && link.is_heard()).map(|link| link.id)
    }

    /// Whether several links lead to the peer directly.
    fn has_choice(&self) -> bool {
        self.direct().nth(1).is_some()
    }

    /// Whether the policies of channels decide which link carries a message: there is a choice, or a
    /// link carries only some channels, because its allowance is used up.
    pub(crate) fn need_policies(&self) -> bool {
        self.has_choice() || self.iter().any(Link::is_spent)
    }

    /// Whether another link than this one can carry data.
    pub(crate) fn has_alternative(&self, id: LinkId) -> bool {
        self.iter().any(|other| other.id != id && other.carries_data() && !other.is_spent())
    }

    /// Whether a link that is not spent is up. It may be partly stalled, or lead through a relay.
    pub(crate) fn has_unspent_link(&self) -> bool {
        self.iter().filter(|link| !link.is_spent()).any(Link::is_open)
    }

    /// The link that leads to the address of a packet.
    pub(crate) fn link_leading_to(&self, radio: RadioId, from: Place) -> Option<LinkId> {
        let leads = |link: &&Link| link.remote == Some(from);
        let exact = |link: &&Link| leads(link) && link.radio == radio;
        self.iter().find(exact).or_else(|| self.iter().find(leads)).map(|link| link.id)
    }

    /// The link to which an address of the peer belongs, whether or not a link leads there: preferably
    /// one of the same radio on which nothing is received.
    pub(crate) fn link_towards(&self, radio: RadioId, from: Place) -> Option<LinkId> {
        let known = self.link_leading_to(radio, from);
        if known.is_some() || matches!(from, Place::Relay { .. }) {
            return known;
        }
        let worth = |link: &&Link| {
            let open = link.remote.is_none() || link.config.remote.is_none();
            (link.radio == radio, !link.is_heard(), open, Reverse(link.number))
        };
        self.direct().max_by_key(worth).map(|link| link.id)
    }

    /// The first link, in the order of preference, that is up and not stalled; otherwise the first link on
    /// which no packet of the class or a higher class is stuck. `None` if this link is of another radio. A
    /// link through a relay counts only while that relay is `heard`. `None` for `link_use`: no link is spent.
    pub(crate) fn first_usable_link(
        &self,
        (radio, class): (RadioId, Class),
        link_use: Option<&LinkUse>,
        heard: impl Fn(PeerId) -> bool,
    ) -> Option<LinkId> {
        let usable = self.iter().filter(|link| {
            link.carries_class(class)
                && link.via.is_none_or(&heard)
                && link_use.is_none_or(|it| it.allows_spent(link.is_spent()))
        });
        let first = usable.min_by_key(|link| link.stalled);
        first.filter(|link| link.radio == radio).map(|link| link.id)
    }

    /// Whether a link is to use as little data as possible.
    pub(crate) fn is_spared(&self, now: Instant, id: LinkId) -> bool {
        let link = &self[id];
        link.config.metered
            && link.last_message.is_none_or(|at| now.since(at) > SPARED_AFTER)
            && self.direct().any(|it| it.is_heard() && !it.config.metered)
    }

    /// Whether a link carries no messages because another one is better.
    pub(crate) fn is_on_standby(&self, id: LinkId) -> bool {
        let link = &self[id];
        let is_replaced = link.via.is_some() && self.direct().any(Link::carries_data);
        link.is_heard() && (is_replaced || link.trial.is_some_and(|it| it.defers_messages()))
    }

    /// The link for a report: the link by which the packets came, if it is up and not much slower than
    /// another; otherwise any link.
    pub(crate) fn report_link(&self, now: Instant, arrival_link: Option<LinkId>) -> Option<LinkId> {
        let any =
            || self.iter().find(|it| it.carries_data()).or_else(|| self.iter().find(|it| it.up));
        match arrival_link.filter(|id| self[*id].up) {
            Some(arrival_link) => Some(self.report_link_of(now, arrival_link)),
            None => any().map(|link| link.id),
        }
    }

    /// The link for a report on packets that came by the link `arrival_link`. That link is up.
    pub(crate) fn report_link_of(&self, now: Instant, arrival_link: LinkId) -> LinkId {
        // The peer may send more heartbeats by a spared link than this node does, and expects the
        // answers by the same link.
        let faster = || self.faster_link(arrival_link).unwrap_or(arrival_link);
        if self.is_spared(now, arrival_link) { arrival_link } else { faster() }
    }

    /// Another link on which reports arrive much earlier than on this one.
    fn faster_link(&self, id: LinkId) -> Option<LinkId> {
        let link = &self[id];
        if link.via.is_some() || !self.has_choice() {
            return None;
        }
        let own = link.one_way_micros.filter(|_| link.carries_data() && !link.is_suspect());
        let others = self.direct().filter(|other| {
            let costs_more = other.config.metered && !link.config.metered && own.is_some();
            other.carries_data() && !other.is_suspect() && !other.is_spent() && !costs_more
        });
        let delays = others.filter_map(|other| Some((other.id, other.one_way_micros?)));
        let after = |micros: u32, first: u32| micros.wrapping_sub(first) as i32;
        let (fastest, delay) = delays.reduce(|a, b| if after(b.1, a.1) < 0 { b } else { a })?;
        let is_much_slower = own.is_none_or(|own| after(own, delay) > REPORT_MARGIN_MICROS);
        is_much_slower.then_some(fastest).filter(|fastest| *fastest != id)
    }
}
