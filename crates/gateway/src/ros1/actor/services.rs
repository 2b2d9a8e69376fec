// SPDX-License-Identifier: Apache-2.0
//! Services of local servers, and services served on behalf of peers.

use super::Actor;
use crate::log_limit::log_limited;
use crate::ros1::admission::Admitted;
use crate::ros1::byte_budget::ByteBudget;
use crate::ros1::connection::TypeVersion;
use crate::ros1::handshake::{Use, refusal, refuse};
use crate::ros1::header::Header;
use crate::ros1::master::{Role, Snapshot};
use crate::ros1::note::{Note, ServiceNote};
use crate::ros1::options::Ros1Options;
use crate::ros1::rpc::{Client, ClientRequest, ServiceCall};
use crate::ros1::services::{Change, Services};
use crate::ros1::shown::{shown, typed};
use crate::ros1::slots::{Slot, SlotPool};
use crate::types::Dialect;
use crate::types::installed::{Cache, Installed};
use crate::{CallId, Event, Outcome, Selector, Service};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};

/// Pending calls of local servers; further ones fail.
const MAX_CALLS: usize = 1024;
/// Connections of local clients to one service. A new one evicts the oldest that never called; if
/// there is none, it is refused. Each has at most one pending call.
const MAX_CLIENTS: usize = 256;
/// Bytes of the requests of all local clients, besides a few free ones for each.
const REQUESTS_BYTES: usize = 64 << 20;
/// Bytes of the responses of all local servers, besides a few free ones for each.
const RESPONSES_BYTES: usize = 64 << 20;

pub(in crate::ros1) struct ServiceState {
    pub discovery: Services,
    serving: BTreeMap<String, Serving>,
    /// Pending calls by local clients.
    callers: HashMap<CallId, oneshot::Sender<Outcome>>,
    /// Pending calls of local servers.
    calls: HashSet<CallId>,
    definitions: Cache,
    requests: Arc<ByteBudget>,
    responses: Arc<ByteBudget>,
}

/// A service that peers offer.
struct Serving {
    service: Service,
    refused: Option<String>,
    clients: Arc<SlotPool>,
    /// Its clients' connections end with it.
    served: watch::Sender<()>,
}

impl ServiceState {
    pub fn new(options: &Ros1Options, selector: Selector) -> Self {
        Self {
            discovery: Services::new(&options.node_name, selector),
            serving: BTreeMap::new(),
            callers: HashMap::new(),
            calls: HashSet::new(),
            definitions: Cache::new(options.installed.clone()),
            requests: ByteBudget::new(REQUESTS_BYTES, options.max_message),
            responses: ByteBudget::new(RESPONSES_BYTES, options.max_message),
        }
    }

    /// Empty if it is not installed: the type still passes between robots with ROS 1.
    fn definition(&mut self, type_name: &str) -> Arc<str> {
        let report = |error| {
            log_limited!(
                info,
                {},
                "robots with ROS 2 need their own definition of {}: {}",
                shown(type_name),
                shown(&format!("{error}"))
            );
        };
        let read = |installed: &Installed| installed.service(type_name, Dialect::Ros1);
        self.definitions.get(type_name, read, report)
    }
}

impl Actor {
    pub(super) fn service_note(&mut self, note: ServiceNote) {
        match note {
            ServiceNote::Probed { service, result } => {
                self.services.discovery.on_probed(&service, result, Instant::now());
                self.after_service_discovery();
            }
            ServiceNote::Requested { service, serial, request } => {
                self.requested(service, serial, request);
            }
            ServiceNote::Done { service, call, bytes, outcome, reservation } => {
                self.setup.shared.backlog.release(bytes);
                self.services.calls.remove(&call);
                if outcome.is_err() {
                    self.services.discovery.suspect(&service, Instant::now());
                    self.after_service_discovery();
                }
                self.emit(Event::Answered { service, call, outcome });
                drop(reservation);
            }
        }
    }

    /// Emits the changes of discovery and starts its probes.
    pub(super) fn after_service_discovery(&mut self) {
        for change in self.services.discovery.take_changes() {
            let event = match change {
                Change::Offered(name, TypeVersion { name: type_name, md5: type_hash }) => {
                    let definition = self.services.definition(&type_name);
                    Event::ServiceOffered(Service { name, type_name, type_hash, definition })
                }
                Change::Withdrawn(service) => Event::ServiceWithdrawn { service },
            };
            self.emit(event);
        }
        for service in self.services.discovery.take_probes(Instant::now()) {
            let prober = self.prober.clone();
            let is_retry = self.services.discovery.is_retry(&service);
            self.spawn(async move {
                let result = prober.probe_service(&service, is_retry).await;
                Note::Service(ServiceNote::Probed { service, result })
            });
        }
    }

    pub(super) fn serve(&mut self, service: Service) {
        let name = service.name.clone();
        if self.services.serving.get(&name).is_some_and(|known| known.service == service) {
            return;
        }
        self.unserve(&name);
        let serving = Serving {
            service,
            refused: None,
            clients: SlotPool::new(MAX_CLIENTS, MAX_CLIENTS),
            served: watch::channel(()).0,
        };
        self.add_registration(Role::Service, &name);
        self.services.serving.insert(name, serving);
        self.poll();
    }

    pub(super) fn unserve(&mut self, name: &str) {
        if self.services.serving.remove(name).is_none() {
            return;
        }
        self.setup.shared.troubles.clear(name, "service");
        if !self.stand_ins.is_mark(name) {
            self.remove_registration(Role::Service, name);
        }
    }

    pub(super) fn is_served(&self, name: &str) -> bool {
        self.services.serving.contains_key(name)
    }

    /// Notes the other nodes that the master lists for our services.
    pub(super) fn note_rivals(&mut self, snapshot: &Snapshot) {
        let own_name = &self.setup.own.name;
        for (name, registration) in self.registrations.of(Role::Service) {
            let mut nodes = snapshot.services.get(name).into_iter().flatten();
            registration.set_rival(nodes.find(|node| *node != own_name));
        }
    }

    /// Does not serve what another local node serves.
    pub(super) fn refuse_service(&mut self, name: &str, node: &str) {
        let Some(serving) = self.services.serving.get_mut(name) else { return };
        let service = typed(name, &serving.service.type_name, &serving.service.type_hash);
        let node = shown(node);
        let reason = format!("{service} is not served at this master: {node} serves it itself");
        if serving.refused.as_ref() == Some(&reason) {
            return;
        }
        serving.refused = Some(reason.clone());
        // Closes its clients' connections.
        serving.served = watch::channel(()).0;
        self.setup.shared.troubles.set(name, "service", reason.clone());
        self.emit(Event::Refused { topic: name.into(), reason });
    }

    pub(super) fn set_servable(&mut self, name: &str) {
        if let Some(serving) = self.services.serving.get_mut(name) {
            serving.refused = None;
        }
        self.setup.shared.troubles.clear(name, "service");
    }

    /// A connection whose header requests a service.
    pub(super) fn add_client(&mut self, connection: Admitted, header: &Header) {
        let identity = self.setup.identity.clone();
        let name = header.get("service").unwrap_or_default().to_owned();
        let max_request = self.setup.options.max_message;
        let notes = self.notes.clone();
        let serving = self.services.serving.get(&name).filter(|found| found.refused.is_none());
        let admitted = match serving {
            None => Err(format!("{} does not serve '{}'", identity.node_name, shown(&name))),
            Some(serving) => serving.admit(header).map(|slot| (serving, slot)),
        };
        let (serving, slot) = match admitted {
            Ok(admitted) => admitted,
            Err(reason) => {
                tokio::spawn(refuse(connection, reason, identity));
                return;
            }
        };
        let service = &serving.service;
        let reply = identity
            .header()
            .with("md5sum", &service.type_hash)
            .with("type", &service.type_name)
            .with("request_type", &format!("{}Request", service.type_name))
            .with("response_type", &format!("{}Response", service.type_name));
        let client = Client {
            stream: connection.stream,
            reply: reply.encode(),
            persistent: header.is_set("persistent"),
            max_request,
            budget: self.services.requests.clone(),
            slots: [connection.slot, slot],
            served: serving.served.subscribe(),
        };
        let registration = self.registrations.get(Role::Service, &name);
        let serial = registration.map(|registration| registration.serial).unwrap_or_default();
        let is_probe = header.is_set("probe");
        tokio::spawn(async move {
            match is_probe {
                true => client.answer_probe().await,
                false => forward_requests(client, &name, serial, &notes).await,
            }
        });
    }

    fn requested(&mut self, service: String, serial: u64, request: ClientRequest) {
        let ClientRequest { request, outcome, reservation } = request;
        // If the service has ended, the dropped sender ends the client's call.
        let registration = self.registrations.get(Role::Service, &service);
        if registration.is_none_or(|found| found.serial != serial) {
            return;
        }
        let call = self.serial();
        let callers = &mut self.services.callers;
        // Callers that have left; the others are bounded by the connections.
        callers.retain(|_, caller| !caller.is_closed());
        callers.insert(call, outcome);
        self.emit(Event::Called { service, call, request });
        drop(reservation);
    }

    pub(super) fn answer(&mut self, call: CallId, outcome: Outcome) {
        if let Ok(response) = &outcome {
            self.setup.shared.backlog.release(response.len());
        }
        if let Some(caller) = self.services.callers.remove(&call) {
            // The caller may have left.
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
            let text = format!("more than {MAX_CALLS} calls of local servers are pending");
            return self.emit(Event::Answered { service, call, outcome: Err(text) });
        }
        self.services.calls.insert(call);
        // The request has the type that was offered.
        let md5 = self.services.discovery.md5(&service).unwrap_or("*").to_owned();
        let (prober, max_response) = (self.prober.clone(), self.setup.options.max_message);
        let mut reservation = self.services.responses.reservation();
        self.spawn(async move {
            let request =
                ServiceCall { service: &service, md5: &md5, request, max_response, patience };
            let outcome = prober.call_service(request, &mut reservation).await;
            Note::Service(ServiceNote::Done { service, call, bytes, outcome, reservation })
        });
    }
}

/// Forwards a client's requests to the actor until it leaves.
async fn forward_requests(client: Client, service: &str, serial: u64, notes: &mpsc::Sender<Note>) {
    let (requests, mut receiver) = mpsc::channel(1);
    let forward = async {
        while let Some(request) = receiver.recv().await {
            let service = service.to_owned();
            let note = ServiceNote::Requested { service, serial, request };
            if notes.send(Note::Service(note)).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(client.serve(requests), forward);
}

impl Serving {
    /// A slot for a client that sent `header`, or the reason of its refusal.
    fn admit(&self, header: &Header) -> Result<Slot, String> {
        let Service { name, type_name, type_hash, .. } = &self.service;
        let matches = |md5: &str| md5 == "*" || type_hash.is_empty() || md5 == type_hash;
        let offered = typed(name, type_name, type_hash);
        if let Some(reason) = refusal(header, &offered, Use::Call, matches) {
            return Err(reason);
        }
        // All clients count alike: limits per address applied at admission.
        let slot = self.clients.take(Ipv4Addr::UNSPECIFIED.into(), true);
        slot.ok_or_else(|| format!("{name} has its maximum of {MAX_CLIENTS} clients"))
    }
}
