// SPDX-License-Identifier: Apache-2.0
//! Who serves and who calls in the domain, and what follows for each service. Pure.
//!
//! A server is a reader of requests and a writer of replies of one participant; a client is the
//! reverse. As with topics, endpoints of Tautline count for nothing.

use super::conflict::Conflict;
use super::names::{self, Meaning};
use super::pairing::participant;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tautline_dds::{Discovery, Endpoint, Guid};

/// Endpoints of services that are remembered: a ROS 2 node has twelve, for its parameters. Those
/// found beyond it are counted and left out.
const MAX_ENDPOINTS: usize = 65_536;

/// All services of the domain, but those of Tautline.
#[derive(Debug, Default)]
pub struct Servers {
    endpoints: HashMap<Guid, Known>,
    services: BTreeMap<String, BTreeSet<Guid>>,
    /// Endpoints left out, over [`MAX_ENDPOINTS`].
    pub left_out: u64,
}

#[derive(Debug)]
struct Known {
    service: String,
    part: Part,
    type_name: String,
    hash: String,
}

/// What an endpoint does for its service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    TakesRequests,
    Replies,
    Requests,
    TakesReplies,
}

/// A server's endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Server {
    /// Reader of requests.
    pub reader: Guid,
    /// Writer of replies.
    pub writer: Guid,
}

/// Who serves something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// As ROS 2 has it (`std_srvs/srv/SetBool`).
    pub type_name: String,
    /// `RIHS01_...` of the request; empty where no server tells it.
    pub hash: String,
    /// All servers of this type; DDS gives each of them every request.
    pub servers: Vec<Server>,
    /// Types of other servers, which are not called.
    pub other_types: Vec<String>,
}

impl Servers {
    /// All services that somebody serves or calls.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.services.keys().map(String::as_str)
    }

    /// Takes in one event; gives the service that it changes.
    pub fn take(&mut self, event: &Discovery) -> Option<String> {
        match event {
            Discovery::Writer(endpoint) => self.enter(endpoint, true),
            Discovery::Reader(endpoint) => self.enter(endpoint, false),
            Discovery::WriterGone { guid } | Discovery::ReaderGone { guid } => self.remove(guid),
        }
    }

    fn enter(&mut self, endpoint: &Endpoint, writes: bool) -> Option<String> {
        let (service, part) = match (Meaning::of(&endpoint.topic)?, writes) {
            (Meaning::Request(service), false) => (service, Part::TakesRequests),
            (Meaning::Request(service), true) => (service, Part::Requests),
            (Meaning::Reply(service), true) => (service, Part::Replies),
            (Meaning::Reply(service), false) => (service, Part::TakesReplies),
            (Meaning::Topic(_), _) => return None,
        };
        if !names::counts(endpoint) {
            return None;
        }
        if self.endpoints.len() >= MAX_ENDPOINTS && !self.endpoints.contains_key(&endpoint.guid) {
            self.left_out += 1;
            return None;
        }
        self.remove(&endpoint.guid);
        let known = Known {
            service: service.clone(),
            part,
            type_name: endpoint.type_name.clone(),
            hash: names::type_hash(&endpoint.qos.user_data).unwrap_or_default().to_owned(),
        };
        self.endpoints.insert(endpoint.guid, known);
        self.services.entry(service.clone()).or_default().insert(endpoint.guid);
        Some(service)
    }

    fn remove(&mut self, guid: &Guid) -> Option<String> {
        let gone = self.endpoints.remove(guid)?;
        let all = self.services.get_mut(&gone.service)?;
        all.remove(guid);
        if all.is_empty() {
            self.services.remove(&gone.service);
        }
        Some(gone.service)
    }

    fn parts<'a>(
        &'a self,
        service: &str,
        part: Part,
    ) -> impl Iterator<Item = (&'a Guid, &'a Known)> + use<'a> {
        let all = self.services.get(service).into_iter().flatten();
        all.filter_map(|guid| Some((guid, self.endpoints.get(guid)?)))
            .filter(move |(_, known)| known.part == part)
    }

    /// Who serves it. Of several types the one that most servers have.
    pub fn offer(&self, service: &str) -> Option<Offer> {
        let repliers = self.parts(service, Part::Replies);
        let repliers: HashMap<(&[u8], &str), Guid> = repliers
            .map(|(guid, known)| ((participant(guid), known.type_name.as_str()), *guid))
            .collect();
        let mut types = BTreeMap::<String, Vec<(Server, &Known)>>::new();
        for (reader, known) in self.parts(service, Part::TakesRequests) {
            let Some(type_name) = names::ros_service_type(&known.type_name) else { continue };
            let Some((_, reply_type)) = names::dds_service_types(&type_name) else { continue };
            if let Some(writer) = repliers.get(&(participant(reader), &reply_type)) {
                let server = Server { reader: *reader, writer: *writer };
                types.entry(type_name).or_default().push((server, known));
            }
        }
        let (type_name, servers) = types
            .iter()
            .max_by_key(|(name, servers)| (servers.len(), std::cmp::Reverse(name.as_str())))?;
        let hashes = servers.iter().map(|(_, known)| &known.hash);
        Some(Offer {
            type_name: type_name.clone(),
            hash: hashes.max().cloned().unwrap_or_default(),
            servers: servers.iter().map(|(server, _)| *server).collect(),
            other_types: types.keys().filter(|other| *other != type_name).cloned().collect(),
        })
    }

    /// What clients of the service have that one of this type and hash would mislead or not
    /// serve.
    pub fn conflict(&self, service: &str, type_name: &str, hash: &str) -> Option<Conflict> {
        let conflicts = self.parts(service, Part::Requests).filter_map(|(_, client)| {
            let theirs = names::ros_service_type(&client.type_name);
            let theirs = theirs.unwrap_or_else(|| client.type_name.clone());
            let is_same = theirs == type_name;
            Conflict::with(theirs, &client.hash, is_same, hash)
        });
        conflicts.max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_dds::Qos as Dds;

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
        let (type_name, _) = names::dds_service_types(ros_type).unwrap();
        endpoint(participant, 1, "rq/xRequest", &type_name)
    }

    fn reply(participant: u8, ros_type: &str) -> Endpoint {
        let (_, type_name) = names::dds_service_types(ros_type).unwrap();
        endpoint(participant, 2, "rr/xReply", &type_name)
    }

    #[test]
    fn a_server_is_both_endpoints_of_one_participant() {
        let mut servers = Servers::default();
        let changed = Some("/x".to_owned());
        assert_eq!(servers.take(&Discovery::Reader(request(1, BOOL))), changed);
        assert_eq!(servers.take(&Discovery::Writer(reply(2, BOOL))), changed);
        assert_eq!(servers.offer("/x"), None, "of two participants");
        servers.take(&Discovery::Writer(reply(1, EMPTY)));
        assert_eq!(servers.offer("/x"), None, "of two types");
        servers.take(&Discovery::Writer(reply(1, BOOL)));
        let offer = servers.offer("/x").unwrap();
        let server = Server { reader: request(1, BOOL).guid, writer: reply(1, BOOL).guid };
        assert_eq!((offer.type_name.as_str(), offer.servers), (BOOL, vec![server]));
        let gone = Discovery::ReaderGone { guid: server.reader };
        assert_eq!(servers.take(&gone), changed);
        assert_eq!((servers.offer("/x"), servers.take(&gone)), (None, None));
    }

    #[test]
    fn clients_topics_tautline_and_other_kinds_of_program_do_not_serve() {
        let mut servers = Servers::default();
        servers.take(&Discovery::Writer(request(1, BOOL)));
        servers.take(&Discovery::Reader(reply(1, BOOL)));
        assert_eq!(servers.offer("/x"), None, "a client");
        let topic = endpoint(2, 1, "rt/x", "std_msgs::msg::dds_::String_");
        assert_eq!(servers.take(&Discovery::Reader(topic)), None);
        let mut ours = request(3, BOOL);
        ours.qos.user_data = names::endpoint_user_data("", "base").into_bytes();
        let keyed = Endpoint { keyless: false, ..request(4, BOOL) };
        for other in [ours, keyed] {
            assert_eq!(servers.take(&Discovery::Reader(other)), None);
        }
        let odd = endpoint(5, 1, "rq/xRequest", "HelloWorld");
        servers.take(&Discovery::Reader(odd));
        servers.take(&Discovery::Writer(reply(5, BOOL)));
        assert_eq!(servers.offer("/x"), None, "no type of ROS 2");
    }

    #[test]
    fn of_two_types_the_commoner_is_offered_and_a_client_of_another_is_named() {
        let mut servers = Servers::default();
        for (participant, type_name) in [(1, EMPTY), (2, BOOL), (3, BOOL)] {
            servers.take(&Discovery::Reader(request(participant, type_name)));
            servers.take(&Discovery::Writer(reply(participant, type_name)));
        }
        let offer = servers.offer("/x").unwrap();
        assert_eq!((offer.type_name.as_str(), offer.servers.len()), (BOOL, 2));
        assert_eq!(offer.other_types, [EMPTY]);
        assert_eq!(servers.conflict("/x", BOOL, ""), None, "servers are no clients");
        let mut client = request(4, BOOL);
        let hash = |digit: &str| format!("RIHS01_{}", digit.repeat(64));
        client.qos.user_data = format!("typehash={};", hash("a")).into_bytes();
        servers.take(&Discovery::Writer(client));
        assert_eq!(servers.conflict("/x", EMPTY, ""), Some(Conflict::Type(BOOL.into())));
        // A name that begins like another's is another type.
        let shorter = BOOL.strip_suffix('l').unwrap();
        assert_eq!(servers.conflict("/x", shorter, ""), Some(Conflict::Type(BOOL.into())));
        assert_eq!(servers.conflict("/x", BOOL, &hash("a")), None);
        let other = Conflict::Hash(BOOL.into(), hash("a"));
        assert_eq!(servers.conflict("/x", BOOL, &hash("b")), Some(other));
    }

    #[test]
    fn a_bound_is_kept() {
        let mut servers = Servers::default();
        for number in 0..MAX_ENDPOINTS as u32 + 3 {
            let mut each = request(0, BOOL);
            each.guid[..4].copy_from_slice(&number.to_be_bytes());
            servers.take(&Discovery::Reader(each));
        }
        assert_eq!((servers.endpoints.len(), servers.left_out), (MAX_ENDPOINTS, 3));
    }
}
