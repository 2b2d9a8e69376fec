// SPDX-License-Identifier: Apache-2.0
//! Reports the available rate of links to the application.

use crate::endpoint::Endpoint;
use crate::endpoint::events::Event;
use crate::ids::LinkId;
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
}
