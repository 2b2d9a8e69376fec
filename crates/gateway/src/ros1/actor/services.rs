// SPDX-License-Identifier: Apache-2.0
//! Services of local servers, and services served on behalf of peers.

use super::context::{Context, Setup};
use crate::log_limit::log_limited;
use crate::ros1::admission::Admitted;
use crate::ros1::byte_budget::ByteBudget;
use crate::ros1::connection::TypeVersion;
use crate::ros1::handshake::{Use, refusal, refuse};
use crate::ros1::header::Header;
use crate::ros1::master::Snapshot;
use crate::ros1::note::{Note, ServiceNote};
use crate::ros1::rpc::{Client, ClientRequest, ServiceCall};
use crate::ros1::service_discovery::{Change, ServiceDiscovery};
use crate::ros1::shown::{for_logs, name_with_type};
use crate::ros1::slots::{Slot, SlotPool};
use crate::types::Dialect;
use crate::types::installed::{Cache, InstalledTypes};
use crate::{CallId, Event, Outcome, Service};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};

/// Maximum number of pending calls of local servers; further calls fail.
const MAX_CALLS: usize = 1024;
/// Maximum number of connections of local clients to one service. A new connection evicts the oldest
/// connection that never called; if there is none, the new one is refused. Each connection has at most
/// one pending call.
const MAX_CLIENTS: usize = 256;
/// Maximum total bytes of requests from local clients, beyond a small free allowance per client.
const REQUESTS_BYTES: usize = 64 << 20;
/// Maximum total bytes of responses from local servers, beyond a small free allowance per server.
const RESPONSES_BYTES: usize = 64 << 20;

/// Local services and services of peers.
pub(super) struct Services {
    discovery: ServiceDiscovery,
    serving: BTreeMap<String, Serving>,
    /// Pending calls by local clients.
    callers: HashMap<CallId, oneshot::Sender<Outcome>>,
    /// Pending calls of local servers.
    calls: HashSet<CallId>,
    definitions: Cache,
    request_budget: Arc<ByteBudget>,
    response_budget: Arc<ByteBudget>,
}

/// A service that peers offer.
struct Serving {
    service: Service,
    /// Distinguishes it from an earlier one of the same name.
    serial: u64,
    refused: Option<String>,
    clients: Arc<SlotPool>,
    /// The connections of its clients end when this sender is dropped.
    served: watch::Sender<()>,
}

impl Services {
    pub fn new(setup: &Setup) -> Self {
        let options = &setup.options;
        Self {
            discovery: ServiceDiscovery::new(&options.node_name, setup.selector.clone()),
            serving: BTreeMap::new(),
            callers: HashMap::new(),
            calls: HashSet::new(),
            definitions: Cache::new(options.installed.clone()),
            request_budget: ByteBudget::new(REQUESTS_BYTES, options.max_message),
            response_budget: ByteBudget::new(RESPONSES_BYTES, options.max_message),
        }
    }

    /// The definition of a service type; empty if it is not installed. The type still passes between
    /// robots with ROS 1.
    fn definition(&mut self, type_name: &str) -> Arc<str> {
        let report = |error| {
            log_limited!(
                info,
                {},
                "robots with ROS 2 need their own definition of {}: {}",
                for_logs(type_name),
                for_logs(&format!("{error}"))
            );
        };
        let read = |installed: &InstalledTypes| installed.service(type_name, Dialect::Ros1);
        self.definitions.get(type_name, read, report)
    }

    /// Withdraws services that may no longer leave the robot.
    pub fn reselect(&mut self, context: &Context) {
        self.discovery.reselect();
        self.after_discovery(context);
    }

    /// Compares the services with the master's list; [`Self::after_discovery`] emits the changes.
    pub fn on_snapshot(&mut self, snapshot: &Snapshot) {
        self.discovery.on_snapshot(&snapshot.services, Instant::now());
    }

    pub fn on_note(&mut self, context: &mut Context, note: ServiceNote) {
        match note {
            ServiceNote::ProbeResult { service, result } => {
                self.discovery.on_probed(&service, result, Instant::now());
                self.after_discovery(context);
            }
            ServiceNote::Requested { service, serial, request } => {
                self.on_request(context, service, serial, request);
            }
            ServiceNote::CallEnded { service, call, bytes, outcome, reservation } => {
                context.setup.shared.backlog.release(bytes);
                self.calls.remove(&call);
                if outcome.is_err() {
                    self.discovery.suspect(&service, Instant::now());
                    self.after_discovery(context);
                }
                context.emit(Event::Answered { service, call, outcome });
                drop(reservation);
            }
        }
    }

    /// Emits the changes of discovery and starts its probes.
    pub fn after_discovery(&mut self, context: &Context) {
        for change in self.discovery.take_changes() {
            let event = match change {
                Change::Offered(name, TypeVersion { name: type_name, md5: type_hash }) => {
                    let definition = self.definition(&type_name);
                    Event::ServiceOffered(Service { name, type_name, type_hash, definition })
                }
                Change::Withdrawn(service) => Event::ServiceWithdrawn { service },
            };
            context.emit(event);
        }
        for service in self.discovery.take_probes(Instant::now()) {
            let prober = context.prober.clone();
            let is_retry = self.discovery.is_retry(&service);
            context.spawn(async move {
                let result = prober.probe_service(&service, is_retry).await;
                Note::Service(ServiceNote::ProbeResult { service, result })
            });
        }
    }

    /// Whether this service is served, with the same type.
    pub fn serves(&self, service: &Service) -> bool {
        self.serving.get(&service.name).is_some_and(|known| known.service == *service)
    }

    /// Serves a service of peers that is not served yet.
    pub fn serve(&mut self, context: &mut Context, service: Service) {
        let name = service.name.clone();
        let serving = Serving {
            service,
            serial: context.serial(),
            refused: None,
            clients: SlotPool::new(MAX_CLIENTS, MAX_CLIENTS),
            served: watch::channel(()).0,
        };
        self.serving.insert(name, serving);
    }

    /// Stops serving a service of peers; `false` if it was not served.
    pub fn unserve(&mut self, context: &Context, name: &str) -> bool {
        if self.serving.remove(name).is_none() {
            return false;
        }
        context.setup.shared.troubles.clear(name, "service");
        true
    }

    pub fn is_served(&self, name: &str) -> bool {
        self.serving.contains_key(name)
    }

    /// Stops serving a service that another local node serves.
    pub fn refuse(&mut self, context: &Context, name: &str, node: &str) {
        let Some(serving) = self.serving.get_mut(name) else { return };
        let service = name_with_type(name, &serving.service.type_name, &serving.service.type_hash);
        let node = for_logs(node);
        let reason = format!("{service} is not served at this master: {node} serves it itself");
        if serving.refused.as_ref() == Some(&reason) {
            return;
        }
        serving.refused = Some(reason.clone());
        // Closes its clients' connections.
        serving.served = watch::channel(()).0;
        context.setup.shared.troubles.set(name, "service", reason.clone());
        context.emit(Event::Refused { topic: name.into(), reason });
    }

    /// Records that the service is registered: no other node serves it.
    pub fn clear_refusal(&mut self, context: &Context, name: &str) {
        if let Some(serving) = self.serving.get_mut(name) {
            serving.refused = None;
        }
        context.setup.shared.troubles.clear(name, "service");
    }

    /// A connection whose header requests a service.
    pub fn add_client(&mut self, context: &Context, connection: Admitted, header: &Header) {
        let identity = context.setup.identity.clone();
        let name = header.get("service").unwrap_or_default().to_owned();
        let max_request = context.setup.options.max_message;
        let notes = context.notes.clone();
        let serving = self.serving.get(&name).filter(|found| found.refused.is_none());
        let admitted = match serving {
            None => Err(format!("{} does not serve '{}'", identity.node_name, for_logs(&name))),
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
            budget: self.request_budget.clone(),
            slots: [connection.slot, slot],
            served: serving.served.subscribe(),
        };
        let serial = serving.serial;
        let is_probe = header.is_set("probe");
        tokio::spawn(async move {
            match is_probe {
                true => client.answer_probe().await,
                false => forward_requests(client, &name, serial, &notes).await,
            }
        });
    }

    /// A local client calls a service of peers.
    fn on_request(
        &mut self,
        context: &mut Context,
        service: String,
        serial: u64,
        request: ClientRequest,
    ) {
        let ClientRequest { request, outcome, reservation } = request;
        // If the service has ended, the dropped sender ends the client's call.
        if self.serving.get(&service).is_none_or(|found| found.serial != serial) {
            return;
        }
        let call = context.serial();
        let callers = &mut self.callers;
        // Removes callers that have left. The limit of connections bounds the others.
        callers.retain(|_, caller| !caller.is_closed());
        callers.insert(call, outcome);
        context.emit(Event::Called { service, call, request });
        drop(reservation);
    }

    /// The outcome of a call by a local client.
    pub fn answer(&mut self, context: &Context, call: CallId, outcome: Outcome) {
        if let Ok(response) = &outcome {
            context.setup.shared.backlog.release(response.len());
        }
        if let Some(caller) = self.callers.remove(&call) {
            // The caller may have left.
            let _ = caller.send(outcome);
        }
    }

    /// Calls the local server of a service on behalf of a peer.
    pub fn call(
        &mut self,
        context: &Context,
        service: String,
        call: CallId,
        request: Bytes,
        time_limit: Duration,
    ) {
        let bytes = request.len();
        if self.calls.contains(&call) {
            return context.setup.shared.backlog.release(bytes);
        }
        if self.calls.len() >= MAX_CALLS {
            context.setup.shared.backlog.release(bytes);
            let text = format!("more than {MAX_CALLS} calls of local servers are pending");
            return context.emit(Event::Answered { service, call, outcome: Err(text) });
        }
        self.calls.insert(call);
        // The request has the type that was offered.
        let md5 = self.discovery.md5(&service).unwrap_or("*").to_owned();
        let (prober, max_response) = (context.prober.clone(), context.setup.options.max_message);
        let mut reservation = self.response_budget.reservation();
        context.spawn(async move {
            let request =
                ServiceCall { service: &service, md5: &md5, request, max_response, time_limit };
            let outcome = prober.call_service(request, &mut reservation).await;
            Note::Service(ServiceNote::CallEnded { service, call, bytes, outcome, reservation })
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
        let offered = name_with_type(name, type_name, type_hash);
        if let Some(reason) = refusal(header, &offered, Use::Call, matches) {
            return Err(reason);
        }
        // One address for all clients: the limits per address were applied at admission.
        let slot = self.clients.take(Ipv4Addr::UNSPECIFIED.into(), true);
        slot.ok_or_else(|| format!("{name} has its maximum of {MAX_CLIENTS} clients"))
    }
}
