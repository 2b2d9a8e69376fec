// SPDX-License-Identifier: Apache-2.0
//! Servers and clients of the domain, and the resulting offers of services. Pure.
//!
//! A server is a reader of requests and a writer of replies of one participant; a client is the
//! reverse.

use super::conflict::Conflict;
use super::endpoints::{Endpoints, Role, TrackedEndpoint};
use super::names;
use super::pairing::guid_prefix;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use tautline_dds::Guid;

/// Maximum number of tracked endpoints; later endpoints are counted and ignored. A ROS 2 node has
/// twelve for its parameters.
const MAX_ENDPOINTS: usize = 65_536;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Server {
    /// Reader of requests.
    pub reader: Guid,
    /// Writer of replies.
    pub writer: Guid,
}

/// The combined offer of a service's servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The ROS 2 type name (`std_srvs/srv/SetBool`).
    pub type_name: String,
    /// `RIHS01_...` of the request; empty if no server announces it.
    pub hash: String,
    /// All servers of this type; DDS sends every request to each of them.
    pub servers: Vec<Server>,
    /// Types of other servers, which are not called.
    pub other_types: Vec<String>,
}

impl Endpoints {
    pub fn for_services() -> Self {
        Self::new(true, MAX_ENDPOINTS)
    }

    /// The offer of a service. If servers have several types, the offer has the type of most servers.
    pub fn service_offer(&self, service: &str) -> Option<Offer> {
        let repliers = self.keyless_endpoints(service, Role::ReplyWriter);
        let repliers: HashMap<(&[u8], &str), Guid> = repliers
            .map(|(guid, known)| ((guid_prefix(guid), known.type_name.as_str()), *guid))
            .collect();
        let mut types = BTreeMap::<String, Vec<(Server, &TrackedEndpoint)>>::new();
        for (reader, known) in self.keyless_endpoints(service, Role::RequestReader) {
            let Some(type_name) = names::ros_service_type(&known.type_name) else { continue };
            let Some(dds) = names::dds_service_types(&type_name) else { continue };
            if let Some(writer) = repliers.get(&(guid_prefix(reader), &dds.reply)) {
                let server = Server { reader: *reader, writer: *writer };
                types.entry(type_name).or_default().push((server, known));
            }
        }
        let (type_name, servers) =
            types.iter().max_by_key(|(name, servers)| (servers.len(), Reverse(name.as_str())))?;
        let hashes = servers.iter().map(|(_, known)| &known.hash);
        Some(Offer {
            type_name: type_name.clone(),
            hash: hashes.max().cloned().unwrap_or_default(),
            servers: servers.iter().map(|(server, _)| *server).collect(),
            other_types: types.keys().filter(|other| *other != type_name).cloned().collect(),
        })
    }

    /// The worst conflict of the service's clients with a server of this type and hash.
    pub fn service_conflict(&self, service: &str, type_name: &str, hash: &str) -> Option<Conflict> {
        let clients = self.keyless_endpoints(service, Role::RequestWriter);
        let conflicts = clients.filter_map(|(_, client)| {
            let theirs = names::ros_service_type(&client.type_name);
            let theirs = theirs.unwrap_or_else(|| client.type_name.clone());
            let is_same = theirs == type_name;
            Conflict::detect(theirs, &client.hash, is_same, hash)
        });
        conflicts.max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_dds::{DiscoveryEvent, Endpoint, Qos as Dds};

    const BOOL: &str = "std_srvs/srv/SetBool";
    const EMPTY: &str = "std_srvs/srv/Empty";

    fn endpoint(participant: u8, number: u8, topic: &str, type_name: &str) -> Endpoint {
        let mut guid = [participant; 16];
        guid[12..].copy_from_slice(&[0, 0, number, 4]);
        Endpoint {
            guid,
            topic: topic.into(),
            type_name: type_name.into(),
            keyless: true,
            qos: Dds::default(),
        }
    }

    fn request(participant: u8, ros_type: &str) -> Endpoint {
        let types = names::dds_service_types(ros_type).unwrap();
        endpoint(participant, 1, "rq/xRequest", &types.request)
    }

    fn reply(participant: u8, ros_type: &str) -> Endpoint {
        let types = names::dds_service_types(ros_type).unwrap();
        endpoint(participant, 2, "rr/xReply", &types.reply)
    }

    #[test]
    fn a_server_is_both_endpoints_of_one_participant() {
        let mut servers = Endpoints::for_services();
        let changed = Some("/x".to_owned());
        assert_eq!(servers.on_event(&DiscoveryEvent::Reader(request(1, BOOL))), changed);
        assert_eq!(servers.on_event(&DiscoveryEvent::Writer(reply(2, BOOL))), changed);
        assert_eq!(servers.service_offer("/x"), None, "of two participants");
        servers.on_event(&DiscoveryEvent::Writer(reply(1, EMPTY)));
        assert_eq!(servers.service_offer("/x"), None, "of two types");
        servers.on_event(&DiscoveryEvent::Writer(reply(1, BOOL)));
        let offer = servers.service_offer("/x").unwrap();
        let server = Server { reader: request(1, BOOL).guid, writer: reply(1, BOOL).guid };
        assert_eq!((offer.type_name.as_str(), offer.servers), (BOOL, vec![server]));
        let gone = DiscoveryEvent::ReaderGone { guid: server.reader };
        assert_eq!(servers.on_event(&gone), changed);
        assert_eq!((servers.service_offer("/x"), servers.on_event(&gone)), (None, None));
    }

    #[test]
    fn clients_topics_tautline_and_other_kinds_of_program_are_no_servers() {
        let mut servers = Endpoints::for_services();
        servers.on_event(&DiscoveryEvent::Writer(request(1, BOOL)));
        servers.on_event(&DiscoveryEvent::Reader(reply(1, BOOL)));
        assert_eq!(servers.service_offer("/x"), None, "a client");
        let topic = endpoint(2, 1, "rt/x", "std_msgs::msg::dds_::String_");
        assert_eq!(servers.on_event(&DiscoveryEvent::Reader(topic)), None);
        let mut ours = request(3, BOOL);
        ours.qos.user_data = names::endpoint_user_data("", "base").into_bytes();
        let keyed = Endpoint { keyless: false, ..request(4, BOOL) };
        for other in [ours, keyed] {
            assert_eq!(servers.on_event(&DiscoveryEvent::Reader(other)), None);
        }
        let odd = endpoint(5, 1, "rq/xRequest", "HelloWorld");
        servers.on_event(&DiscoveryEvent::Reader(odd));
        servers.on_event(&DiscoveryEvent::Writer(reply(5, BOOL)));
        assert_eq!(servers.service_offer("/x"), None, "no type of ROS 2");
    }

    #[test]
    fn the_more_common_service_type_is_offered_and_other_clients_reported() {
        let mut servers = Endpoints::for_services();
        for (participant, type_name) in [(1, EMPTY), (2, BOOL), (3, BOOL)] {
            servers.on_event(&DiscoveryEvent::Reader(request(participant, type_name)));
            servers.on_event(&DiscoveryEvent::Writer(reply(participant, type_name)));
        }
        let offer = servers.service_offer("/x").unwrap();
        assert_eq!((offer.type_name.as_str(), offer.servers.len()), (BOOL, 2));
        assert_eq!(offer.other_types, [EMPTY]);
        assert_eq!(servers.service_conflict("/x", BOOL, ""), None, "servers are no clients");
        let mut client = request(4, BOOL);
        let hash = |digit: &str| format!("RIHS01_{}", digit.repeat(64));
        client.qos.user_data = format!("typehash={};", hash("a")).into_bytes();
        servers.on_event(&DiscoveryEvent::Writer(client));
        assert_eq!(servers.service_conflict("/x", EMPTY, ""), Some(Conflict::Type(BOOL.into())));
        // A name that begins like another's is another type.
        let shorter = BOOL.strip_suffix('l').unwrap();
        assert_eq!(servers.service_conflict("/x", shorter, ""), Some(Conflict::Type(BOOL.into())));
        assert_eq!(servers.service_conflict("/x", BOOL, &hash("a")), None);
        let other = Conflict::Hash(BOOL.into(), hash("a"));
        assert_eq!(servers.service_conflict("/x", BOOL, &hash("b")), Some(other));
    }

    #[test]
    fn endpoints_are_bounded() {
        let mut servers = Endpoints::for_services();
        for number in 0..MAX_ENDPOINTS as u32 + 3 {
            let mut each = request(0, BOOL);
            each.guid[..4].copy_from_slice(&number.to_be_bytes());
            servers.on_event(&DiscoveryEvent::Reader(each));
        }
        assert_eq!((servers.len(), servers.left_out), (MAX_ENDPOINTS, 3));
    }
}
