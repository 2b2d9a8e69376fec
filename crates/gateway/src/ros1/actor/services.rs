// SPDX-License-Identifier: Apache-2.0
//! Services: those of local servers, and those served on behalf of peers.

use super::{Actor, Note, Visitor};
use crate::ros1::Ros1Options;
use crate::ros1::header::{Header, TAUTLINE_FIELD};
use crate::ros1::master::Snapshot;
use crate::ros1::publication::{refuse, typed};
use crate::ros1::room::{Room, Share};
use crate::ros1::rpc::{Asked, Client, Probed};
use crate::ros1::seats::{Seat, Seats};
use crate::ros1::services::{Change, Services};
use crate::ros1::shown;
use crate::ros1::turns::{self, Turn};
use crate::ros1::xmlrpc::CallError;
use crate::sparing::Sparing;
use crate::types::Dialect;
use crate::types::installed::Installed;
use crate::{CallId, Event, Outcome, Selector, Service};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};

/// Calls of local servers that may be under way; further ones fail.
const MAX_CALLS: usize = 1024;
/// Connections of local clients to one service; the oldest that never called gives way to a new
/// one, else further ones are refused. Each has one call under way at most.
const MAX_CLIENTS: usize = 256;
/// Bytes of the requests of all local clients that are read or under way, beside a little for each.
const REQUESTS_BYTES: usize = 64 << 20;
/// Bytes of the responses of all local servers that are read, beside a little for each.
const RESPONSES_BYTES: usize = 64 << 20;
/// Types whose definitions are remembered.
const MAX_DEFINITIONS: usize = 1024;

/// All state of services.
pub(in crate::ros1) struct ServiceState {
    pub discovery: Services,
    serving: BTreeMap<String, Serving>,
    /// Calls by local clients, and where their outcomes go.
    callers: HashMap<CallId, oneshot::Sender<Outcome>>,
    /// Calls of local servers.
    calls: HashSet<CallId>,
    installed: Installed,
    definitions: HashMap<String, Arc<str>>,
    requests: Arc<Room>,
    responses: Arc<Room>,
}

/// A service that is to be served.
struct Serving {
    service: Service,
    serial: u64,
    registered: bool,
    busy: bool,
    /// When it is to be tried at the master.
    turn: Turn,
    /// Whether another node serves it.
    other: bool,
    refused: Option<String>,
    clients: Arc<Seats>,
    /// Its clients' connections end with it.
    served: watch::Sender<()>,
}

impl Serving {
    /// Whether it is to be registered when its turn comes.
    fn waits(&self) -> bool {
        !self.registered && !self.busy && !self.other
    }
}

/// What tasks tell of services.
pub(in crate::ros1) enum ServiceNote {
    Probed { service: String, found: Probed },
    Registered { service: String, serial: u64, outcome: Result<(), CallError> },
    Requested { service: String, serial: u64, asked: Asked },
    Done { service: String, call: CallId, bytes: usize, outcome: Outcome, share: Share },
}

impl ServiceState {
    pub fn new(options: &Ros1Options, selector: Selector) -> Self {
        Self {
            discovery: Services::new(&options.node_name, selector),
            serving: BTreeMap::new(),
            callers: HashMap::new(),
            calls: HashSet::new(),
            installed: options.installed.clone(),
            definitions: HashMap::new(),
            requests: Room::new(REQUESTS_BYTES, options.max_message),
            responses: Room::new(RESPONSES_BYTES, options.max_message),
        }
    }

    /// Empty where it is not installed: the type still passes between robots of ROS 1.
    fn definition(&mut self, type_name: &str) -> Arc<str> {
        if let Some(known) = self.definitions.get(type_name) {
            return known.clone();
        }
        let found = self.installed.service(type_name, Dialect::Ros1).map(Arc::from);
        let definition: Arc<str> = found.unwrap_or_else(|error| {
            static SPARING: Sparing = Sparing::new();
            if let Some(left_out) = SPARING.next() {
                let (type_name, error) = (shown(type_name), shown(&error.to_string()));
                let text = format!("robots of ROS 2 have to know {type_name} themselves: {error}");
                tracing::info!(left_out, "{text}");
            }
            "".into()
        });
        if self.definitions.len() < MAX_DEFINITIONS {
            self.definitions.insert(type_name.into(), definition.clone());
        }
        definition
    }
}

impl Actor {
    pub(super) fn service_note(&mut self, note: ServiceNote) {
        match note {
            ServiceNote::Probed { service, found } => {
                self.services.discovery.on_probed(&service, found, Instant::now());
                self.after_service_discovery();
            }
            ServiceNote::Registered { service, serial, outcome } => {
                self.service_registered(&service, serial, outcome);
            }
            ServiceNote::Requested { service, serial, asked } => {
                self.requested(service, serial, asked);
            }
            ServiceNote::Done { service, call, bytes, outcome, share } => {
                self.setup.shared.backlog.release(bytes);
                self.services.calls.remove(&call);
                if outcome.is_err() {
                    self.services.discovery.suspect(&service, Instant::now());
                    self.after_service_discovery();
                }
                self.emit(Event::Answered { service, call, outcome });
                drop(share);
            }
        }
    }

    fn serving(&mut self, service: &str, serial: u64) -> Option<&mut Serving> {
        self.services.serving.get_mut(service).filter(|it| it.serial == serial)
    }

    /// Tells what discovery changed, and does the work it asks for.
    pub(super) fn after_service_discovery(&mut self) {
        for change in self.services.discovery.take_changes() {
            let event = match change {
                Change::Offered(name, (type_name, type_hash)) => {
                    let definition = self.services.definition(&type_name);
                    Event::ServiceOffered(Service { name, type_name, type_hash, definition })
                }
                Change::Withdrawn(service) => Event::ServiceWithdrawn { service },
            };
            self.emit(event);
        }
        for service in self.services.discovery.take_work(Instant::now()) {
            let inquirer = self.inquirer.clone();
            let again = self.services.discovery.deserves_patience(&service);
            self.spawn(async move {
                let found = inquirer.probe_service(&service, again).await;
                Note::Service(ServiceNote::Probed { service, found })
            });
        }
    }

    pub(super) fn serve(&mut self, service: Service) {
        let name = service.name.clone();
        if self.services.serving.get(&name).is_some_and(|it| it.service == service) {
            return;
        }
        self.unserve(&name);
        let serving = Serving {
            service,
            serial: self.serial(),
            registered: false,
            busy: false,
            turn: Turn::new(Instant::now()),
            other: false,
            refused: None,
            clients: Seats::new(MAX_CLIENTS, MAX_CLIENTS),
            served: watch::channel(()).0,
        };
        self.services.serving.insert(name, serving);
        self.poll();
    }

    pub(super) fn unserve(&mut self, name: &str) {
        let Some(serving) = self.services.serving.remove(name) else { return };
        self.setup.shared.health().conflicts.remove(&trouble_key(name));
        if serving.registered || serving.busy {
            self.unregister_service(name);
        }
    }

    fn unregister_service(&self, name: &str) {
        let (master, name) = (self.inquirer.master.clone(), name.to_owned());
        // Tried again after a poll that still lists us.
        tokio::spawn(async move { master.unregister_service(&name).await.map_err(drop) });
    }

    /// Puts right what the master does not list, or lists without need. A service of another node
    /// is left to it: the master would forget that node for us.
    pub(super) fn register_services(&mut self, snapshot: &Snapshot) {
        let own_name = self.setup.options.node_name.clone();
        for (name, nodes) in &snapshot.services {
            if nodes.contains(&own_name) && !self.services.serving.contains_key(name) {
                self.unregister_service(name);
            }
        }
        let mut refused = Vec::new();
        for (name, serving) in &mut self.services.serving {
            let nodes = snapshot.services.get(name);
            serving.registered &= nodes.is_some_and(|nodes| nodes.contains(&own_name));
            let other = nodes.into_iter().flatten().find(|node| **node != own_name);
            serving.other = other.is_some();
            refused.extend(other.map(|other| (name.clone(), other.clone())));
        }
        for (name, node) in refused {
            self.refuse_service(&name, &node);
        }
        let all = &self.services.serving;
        let waiting = all.iter().filter(|(_, it)| it.waits()).map(|(name, it)| (name, it.turn));
        let busy = all.values().filter(|it| it.busy).map(|it| it.turn);
        for service in turns::choose(waiting, busy, Instant::now()) {
            self.register_service(service);
        }
    }

    fn register_service(&mut self, service: String) {
        let Some(serving) = self.services.serving.get_mut(&service) else { return };
        serving.busy = true;
        let (serial, master) = (serving.serial, self.inquirer.master.clone());
        self.spawn(async move {
            let outcome = master.register_service(&service).await;
            Note::Service(ServiceNote::Registered { service, serial, outcome })
        });
    }

    fn refuse_service(&mut self, name: &str, node: &str) {
        let Some(serving) = self.services.serving.get_mut(name) else { return };
        let service = typed(name, &serving.service.type_name, &serving.service.type_hash);
        let node = shown(node);
        let reason = format!("{service} is not served at this master: {node} serves it itself");
        if serving.refused.as_ref() == Some(&reason) {
            return;
        }
        serving.refused = Some(reason.clone());
        // Ends its clients' connections.
        serving.served = watch::channel(()).0;
        self.setup.shared.health().conflicts.insert(trouble_key(name), reason.clone());
        self.emit(Event::Refused { topic: name.into(), reason });
    }

    fn service_registered(&mut self, name: &str, serial: u64, outcome: Result<(), CallError>) {
        let Some(serving) = self.serving(name, serial) else { return };
        serving.busy = false;
        match outcome {
            Ok(()) => {
                serving.registered = true;
                serving.refused = None;
                serving.turn.accepted();
                self.setup.shared.health().conflicts.remove(&trouble_key(name));
                // More may wait than were registered at once.
                let mut all = self.services.serving.values();
                if all.any(|it| it.waits() && !it.turn.was_rejected()) {
                    self.poll();
                }
            }
            Err(error) => {
                serving.turn.rejected(Instant::now());
                static SPARING: Sparing = Sparing::new();
                if let Some(left_out) = SPARING.next() {
                    let text = "registering a service at the ROS master";
                    tracing::warn!(name, %error, left_out, "{text}");
                }
            }
        }
    }

    /// A connection whose header asks for a service.
    pub(super) fn service_client(&mut self, visitor: Visitor, header: &Header) {
        let identity = self.setup.identity.clone();
        let name = header.get("service").unwrap_or_default().to_owned();
        let max_request = self.setup.options.max_message;
        let notes = self.notes.clone();
        let serving = self.services.serving.get(&name).filter(|it| it.refused.is_none());
        let admitted = match serving {
            None => Err(format!("{} does not serve '{}'", identity.node_name, shown(&name))),
            Some(serving) => admit(header, serving).map(|seat| (serving, seat)),
        };
        let (serving, seat) = match admitted {
            Ok(admitted) => admitted,
            Err(reason) => {
                tokio::spawn(refuse(visitor, reason, identity));
                return;
            }
        };
        let service = &serving.service;
        let reply = Header::default()
            .with("callerid", &identity.node_name)
            .with("md5sum", &service.type_hash)
            .with("type", &service.type_name)
            .with("request_type", &format!("{}Request", service.type_name))
            .with("response_type", &format!("{}Response", service.type_name))
            .with(TAUTLINE_FIELD, &identity.tautline_name);
        let says = |key| header.get(key).is_some_and(|value| value.trim() == "1");
        let client = Client {
            stream: visitor.stream,
            reply: reply.encode(),
            persistent: says("persistent"),
            max_request,
            room: self.services.requests.clone(),
            seats: [visitor.seat, seat],
            served: serving.served.subscribe(),
        };
        let (serial, probe) = (serving.serial, says("probe"));
        tokio::spawn(async move {
            match probe {
                true => client.tell().await,
                false => pass_on(client, &name, serial, &notes).await,
            }
        });
    }

    fn requested(&mut self, service: String, serial: u64, asked: Asked) {
        let Asked { request, outcome, share } = asked;
        // Else the sender is dropped, which the client is told.
        if self.serving(&service, serial).is_none() {
            return;
        }
        let call = self.serial();
        let callers = &mut self.services.callers;
        // Those who have left; as many may wait as are connected.
        callers.retain(|_, caller| !caller.is_closed());
        callers.insert(call, outcome);
        self.emit(Event::Called { service, call, request });
        drop(share);
    }

    pub(super) fn answer(&mut self, call: CallId, outcome: Outcome) {
        if let Ok(response) = &outcome {
            self.setup.shared.backlog.release(response.len());
        }
        if let Some(caller) = self.services.callers.remove(&call) {
            // The caller may have gone.
            let _ = caller.send(outcome);
        }
    }

    pub(super) fn call(
        &mut self,
        service: String,
        call: CallId,
        request: Bytes,
        patience: Duration,
    ) {
        let bytes = request.len();
        if self.services.calls.contains(&call) {
            return self.setup.shared.backlog.release(bytes);
        }
        if self.services.calls.len() >= MAX_CALLS {
            self.setup.shared.backlog.release(bytes);
            let text = format!("more than {MAX_CALLS} calls of local servers are under way");
            return self.emit(Event::Answered { service, call, outcome: Err(text) });
        }
        self.services.calls.insert(call);
        // The bytes are of the type that was offered.
        let md5 = self.services.discovery.md5(&service).unwrap_or("*").to_owned();
        let (inquirer, limit) = (self.inquirer.clone(), self.setup.options.max_message);
        let mut share = self.services.responses.share();
        self.spawn(async move {
            let most = (limit, &mut share);
            let outcome = inquirer.call_service(&service, &md5, request, most, patience).await;
            Note::Service(ServiceNote::Done { service, call, bytes, outcome, share })
        });
    }
}

/// Passes a client's requests to the actor until it leaves.
async fn pass_on(client: Client, service: &str, serial: u64, notes: &mpsc::Sender<Note>) {
    let (requests, mut comes) = mpsc::channel(1);
    let forward = async {
        while let Some(asked) = comes.recv().await {
            let service = service.to_owned();
            let note = ServiceNote::Requested { service, serial, asked };
            if notes.send(Note::Service(note)).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(client.serve(requests), forward);
}

/// A place for a client that sent `header`, or why it is not served.
fn admit(header: &Header, serving: &Serving) -> Result<Seat, String> {
    if let Some(reason) = refusal(header, &serving.service) {
        return Err(reason);
    }
    // All clients count alike: who may connect at all was decided at the door.
    let seat = serving.clients.take(Ipv4Addr::UNSPECIFIED.into(), true);
    let name = &serving.service.name;
    seat.ok_or_else(|| format!("{name} has its maximum of {MAX_CLIENTS} clients"))
}

/// Why a client that sent `header` is not served, if so.
fn refusal(header: &Header, service: &Service) -> Option<String> {
    if let Some(name) = header.get(TAUTLINE_FIELD) {
        let name = shown(name);
        return Some(format!("Tautline node '{name}' must not call what Tautline serves"));
    }
    let Some(md5) = header.get("md5sum") else {
        return Some("the connection header lacks 'md5sum'".into());
    };
    if md5 == "*" || service.type_hash.is_empty() || md5 == service.type_hash {
        return None;
    }
    let caller = shown(header.get("callerid").unwrap_or("an unnamed node"));
    let type_name = shown(header.get("type").unwrap_or("an unnamed type"));
    let md5 = shown(md5);
    let ours = typed(&service.name, &service.type_name, &service.type_hash);
    Some(format!("{caller} calls {ours} as {type_name} (md5 {md5})"))
}

/// Services and topics may have the same name.
fn trouble_key(service: &str) -> String {
    format!("service {service}")
}
