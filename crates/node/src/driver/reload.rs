// SPDX-License-Identifier: Apache-2.0
//! Replacement of the configuration, between two iterations of the loop.

use super::beacons::Beacons;
use super::{Driver, FULL_PACKET};
use crate::config::Config;
use crate::diagnostics::{Diagnostics, LinkTopic};
use crate::selection::Selection;
use std::sync::PoisonError;
use tautline_gateway::{Command, Gateway};
use tautline_proto::{Class, RadioConfig, Rate};

impl Driver {
    /// Applies `new`. Steps that may fail come first: after an error nothing has changed.
    pub(super) fn reconfigure(&mut self, gateway: &dyn Gateway, new: Config) -> Result<(), String> {
        self.check_peers(&new.peers).map_err(|error| error.to_string())?;
        let old = std::mem::replace(&mut self.config, new.clone());
        self.follow_limits();
        self.follow_radios(&old);
        self.follow_peers(&new.peers).map_err(|error| error.to_string())?;
        let now = self.now();
        let cx = &mut self.shared.context(now, &mut self.endpoint);
        self.topics.reconfigure(cx, &old, &new);
        let selection = Selection::new(&new);
        if Selection::new(&old) != selection {
            *self.selection.write().unwrap_or_else(PoisonError::into_inner) = selection;
            gateway.handle(Command::Reselect);
        }
        self.follow_beacons(&new);
        self.follow_plan(&old);
        if old.diagnostics != new.diagnostics {
            self.follow_diagnostics(&new);
        }
        Ok(())
    }

    fn follow_limits(&mut self) {
        let limits = &self.config.limits;
        let percent = super::repair_percent(limits);
        self.endpoint.set_limits(limits.queue_bytes, limits.queue_time, percent);
    }

    /// Applies changed settings of radios; the other radios keep their measurements.
    fn follow_radios(&mut self, old: &Config) {
        let changed = self.radios.iter().filter(|(interface, _)| {
            Self::radio_config(old, interface) != Self::radio_config(&self.config, interface)
        });
        let changed: Vec<_> = changed.map(|(name, id)| (name.clone(), *id)).collect();
        for (interface, id) in changed {
            let config = Self::radio_config(&self.config, &interface);
            self.endpoint.set_radio(id, config);
        }
        if old.marking != self.config.marking {
            // Each class has a socket with its own mark.
            (0..self.links.len()).for_each(|index| self.reconnect(index));
        }
    }

    /// Opens a link's sockets again. The closed sockets no longer report when they are drained.
    fn reconnect(&mut self, index: usize) {
        let id = self.links[index].id;
        if self.links[index].path.is_some() {
            self.connect(index);
            let now = self.now();
            for class in Class::ALL {
                self.endpoint.link_mut(id).handle_in_flight(now, class, 0);
            }
        }
    }

    pub(super) fn radio_config(config: &Config, interface: &str) -> RadioConfig {
        let set = config.radios.iter().find(|radio| radio.interface == interface);
        let in_flight = set.map_or(crate::config::DEFAULT_IN_FLIGHT, |radio| radio.in_flight);
        RadioConfig {
            rate: set.map_or(Rate::default(), |radio| radio.rate),
            in_flight_bytes: in_flight as usize * FULL_PACKET,
            marking: config.marking.clone(),
            ..RadioConfig::default()
        }
    }

    fn follow_beacons(&mut self, new: &Config) {
        let before = self.beacons.take();
        self.beacons = Beacons::new(new, self.listen.socket());
        if let Some(before) = before {
            before.hand_over(self.beacons.as_mut(), self.listen.socket());
        }
    }

    fn follow_diagnostics(&mut self, new: &Config) {
        let now = self.now();
        let cx = &mut self.shared.context(now, &mut self.endpoint);
        if let Some(gone) = self.diagnostics.take() {
            self.topics.stop_own(cx, &gone.topic().name);
        }
        if let Some(gone) = self.news.set_topic(LinkTopic::new(new)) {
            self.topics.stop_own(cx, &gone.topic().name);
        }
        self.diagnostics = Diagnostics::new(new);
    }
}
