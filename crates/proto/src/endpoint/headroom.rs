// SPDX-License-Identifier: Apache-2.0
//! Tells the application what a link has room for.

use crate::endpoint::Endpoint;
use crate::endpoint::events::Event;
use crate::ids::LinkId;
use crate::time::Instant;

impl Endpoint {
    /// What a link lets go now, in bits per second of IP packets, and the signal that held a
    /// packet of it back last.
    pub(crate) fn room(&self, now: Instant, id: LinkId) -> (Option<u64>, &'static str) {
        let link = &self.links[id];
        let radio = &self.radios[link.radio];
        let near = [radio.config.rate.fixed_bps(), radio.room_bps(now)];
        match &link.controller {
            Some(far) if link.headroom.limited_by_path => (far.rate_bps(), far.signal()),
            far => {
                let far = far.as_ref().and_then(|far| far.rate_bps());
                (near.into_iter().chain([far]).flatten().min(), radio.pacer.signal())
            }
        }
    }

    /// Tells the application what a link has room for, if that is news.
    pub(crate) fn report_headroom(&mut self, now: Instant, id: LinkId) {
        let (available_bps, _) = self.room(now, id);
        let link = &mut self.links[id];
        if link.up && link.headroom.should_report(now, available_bps) {
            self.emit(Event::LinkRate { link: id, available_bps });
        }
    }
}
