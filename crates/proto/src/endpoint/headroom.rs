// SPDX-License-Identifier: Apache-2.0
//! The available rate of links, which is reported to the application, and the rate for one peer.

use crate::endpoint::Endpoint;
use crate::endpoint::events::Event;
use crate::ids::{LinkId, PeerId, RadioId};
use crate::time::Instant;

impl Endpoint {
    /// The rate that a link can send at now, in bits per second of IP packets, and the signal that
    /// last held back a packet of it.
    pub(crate) fn available_rate(&self, now: Instant, id: LinkId) -> (Option<u64>, &'static str) {
        let link = &self.links[id];
        let radio = &self.radios[link.radio];
        let of_radio = [radio.config.rate.fixed_bps(), radio.available_bps(now)];
        match &link.controller {
            Some(controller) if link.headroom.limited_by_path => {
                (controller.rate_bps(), controller.signal())
            }
            controller => {
                let of_link = controller.as_ref().and_then(|it| it.rate_bps());
                (of_radio.into_iter().chain([of_link]).flatten().min(), radio.pacer.signal())
            }
        }
    }

    /// Reports the available rate of a link, if it has changed enough.
    pub(crate) fn report_available_rate(&mut self, now: Instant, id: LinkId) {
        let (available_bps, _) = self.available_rate(now, id);
        let link = &mut self.links[id];
        if link.up && link.headroom.should_report(now, available_bps) {
            self.emit(Event::LinkRate { link: id, available_bps });
        }
    }

    /// The measured rates of the peer's radios, each divided by the peers with queued messages.
    pub(crate) fn fair_share_bps(&self, peer: PeerId) -> Option<u64> {
        let links = self.peers[peer].links.iter().filter(|l| self.links[**l].carries_data());
        let mut radios: Vec<RadioId> = links.map(|l| self.links[*l].radio).collect();
        radios.sort_unstable();
        radios.dedup();
        // Radios that share the messages are rarely busy for long enough to be measured.
        let shares = radios.len() > 1;
        let mut sum = None;
        for radio in radios {
            let busy = self.peers.iter().filter(|p| p.outbox.waiting_bytes() > 0);
            let sharing =
                busy.filter(|p| p.links.iter().any(|l| self.links[*l].radio == radio)).count();
            let radio = &self.radios[radio];
            let served = radio.pacer.service_bps(self.clock_now).filter(|_| shares);
            let share = radio.measured_bps().or(served)? / sharing.max(1) as u64;
            sum = Some(sum.unwrap_or(0u64).saturating_add(share));
        }
        sum
    }
}
