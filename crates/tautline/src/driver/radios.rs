// SPDX-License-Identifier: Apache-2.0
//! The radios of this node: by default, each interface is a radio.

use super::common::Common;
use super::link::Link;
use crate::config::{Config, DEFAULT_IN_FLIGHT};
use crate::route::route;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use tautline_proto::{RadioConfig, RadioId, Rate};

/// Packet size in bytes by which [`RadioConfig`]'s number of packets in flight is converted to bytes.
const FULL_PACKET: usize = 1500;
/// Maximum number of strangers per second whose route is looked up; a lookup takes the time of
/// several packets.
const MAX_STRANGER_LOOKUPS: usize = 32;

pub(super) struct Radios {
    by_interface: BTreeMap<String, RadioId>,
    /// Radio of links whose interface is unknown.
    pub(super) unknown: RadioId,
    /// Radios by which packets to recent strangers leave, by address. A stranger is an initiator
    /// without a link.
    strangers: HashMap<IpAddr, RadioId>,
}

impl Radios {
    pub(super) fn new(common: &mut Common) -> Self {
        let (by_interface, strangers) = (BTreeMap::new(), HashMap::new());
        let mut radios = Self { by_interface, unknown: RadioId(0), strangers };
        radios.unknown = radios.get_or_add(common, "unknown");
        radios
    }

    /// Returns the radio of an interface.
    pub(super) fn get_or_add(&mut self, common: &mut Common, interface: &str) -> RadioId {
        if let Some(&known) = self.by_interface.get(interface) {
            return known;
        }
        let id = common.endpoint.add_radio(radio_config(&common.config, interface));
        self.by_interface.insert(interface.to_owned(), id);
        common.reporter.name_radio(id, interface);
        id
    }

    /// Returns the radio by which responses to `from`, the source of a datagram, leave. A packet
    /// that anybody can forge causes no route lookup: in a flood, the lookups alone would take a
    /// hundredth of the loop's time.
    pub(super) fn radio_towards(
        &mut self,
        common: &mut Common,
        links: &[Link],
        from: SocketAddr,
        datagram: &[u8],
    ) -> RadioId {
        let endpoint = &common.endpoint;
        let mut known = links.iter();
        if let Some(link) = known.find(|l| l.path.as_ref().is_some_and(|p| p.remote == from)) {
            return endpoint.link(link.id).map_or(self.unknown, |view| view.radio);
        }
        if let Some(&radio) = self.strangers.get(&from.ip()) {
            return radio;
        }
        let matters = endpoint.has_known_session(datagram);
        if !matters || self.strangers.len() == MAX_STRANGER_LOOKUPS {
            return self.unknown;
        }
        let radio = match route(from, None, None) {
            Ok(path) => self.get_or_add(common, &path.interface),
            Err(_) => self.unknown,
        };
        self.strangers.insert(from.ip(), radio);
        radio
    }

    /// Forgets the routes to strangers.
    pub(super) fn forget_strangers(&mut self) {
        self.strangers.clear();
    }

    /// Applies changed settings of radios; the other radios keep their measurements.
    pub(super) fn follow(&self, common: &mut Common, old: &Config) {
        for (interface, id) in &self.by_interface {
            let config = radio_config(&common.config, interface);
            if radio_config(old, interface) != config {
                common.endpoint.set_radio(*id, config);
            }
        }
    }

    /// Returns all radios, each with its interface.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, RadioId)> {
        self.by_interface.iter().map(|(interface, id)| (interface, *id))
    }
}

fn radio_config(config: &Config, interface: &str) -> RadioConfig {
    let set = config.radios.iter().find(|radio| radio.interface == interface);
    let in_flight = set.map_or(DEFAULT_IN_FLIGHT, |radio| radio.in_flight);
    RadioConfig {
        rate: set.map_or(Rate::default(), |radio| radio.rate),
        in_flight_bytes: in_flight as usize * FULL_PACKET,
        marking: config.marking.clone(),
        ..RadioConfig::default()
    }
}
