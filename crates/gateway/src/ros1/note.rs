// SPDX-License-Identifier: Apache-2.0
//! Reports of the gateway's tasks to the actor.

use super::admission::Admitted;
use super::byte_budget::Reservation;
use super::connection::{Description, TypeVersion};
use super::header::Header;
use super::master::Snapshot;
use super::mirror::Mirrored;
use super::probed::{CheckResult, LocatedPublisher, ProbeResult};
use super::registration::{Attempt, RegistrationError};
use super::rpc::ClientRequest;
use super::xmlrpc::CallError;
use crate::deliveries::Subscriber;
use crate::description::Parameters;
use crate::{CallId, Outcome};
use dxr::Value;
use tokio::sync::oneshot;

/// The report of a task to the actor.
pub(super) enum Note {
    Polled(Result<Poll, CallError>),
    ProbeResult {
        topic: String,
        node: String,
        result: ProbeResult<LocatedPublisher>,
    },
    Checked {
        node: String,
        result: CheckResult,
    },
    /// A registration call has ended; for a subscriber, it returned the publishers' URIs.
    Registered(Attempt, Result<Vec<String>, RegistrationError>),
    Reader {
        topic: String,
        uri: String,
        serial: u64,
        note: ReaderNote,
    },
    /// A subscriber or service client has sent its header.
    Connected(Admitted, Header),
    SubscriberLeft {
        topic: String,
        id: u64,
    },
    /// The process of a subscriber is known.
    Identified {
        topic: String,
        id: u64,
        identity: Subscriber,
    },
    Service(ServiceNote),
    /// The parameters of this robot.
    Parameters(Result<Parameters, CallError>),
    /// The parameters that a peer has sent are set.
    ParametersSet(Result<(), CallError>),
    /// The parameters of a peer have been written.
    Mirrored {
        peer: u32,
        mirrored: Mirrored,
    },
    Api(ApiCall, oneshot::Sender<Value>),
}

/// The result of one poll of the master.
pub(super) struct Poll {
    pub snapshot: Snapshot,
    /// The URI of a live node with our name, if that was queried.
    pub namesake: Option<Option<String>>,
    /// Stand-ins whose names other nodes have now.
    pub lost: Vec<String>,
}

/// The report of a reader about its publisher.
#[derive(Debug)]
pub(super) enum ReaderNote {
    Connected(Description),
    Lost,
    /// The reader has ended, and must not be restarted if the publisher is excluded.
    Ended(Option<Exclusion>),
}

/// Why a publisher must not be read.
#[derive(Debug)]
pub(super) enum Exclusion {
    Tautline,
    /// The publisher has another type than the topic; the text is for a person.
    OtherType(String),
}

/// The report of a task about a service.
pub(super) enum ServiceNote {
    ProbeResult {
        service: String,
        result: ProbeResult<TypeVersion>,
    },
    Requested {
        service: String,
        serial: u64,
        request: ClientRequest,
    },
    CallEnded {
        service: String,
        call: CallId,
        bytes: usize,
        outcome: Outcome,
        reservation: Reservation,
    },
}

/// A call of the slave API that the actor answers from its state.
#[derive(Debug, PartialEq)]
pub(super) enum ApiCall {
    RequestTopic { caller: String, topic: String, protocols: Vec<String> },
    PublisherUpdate { topic: String, publishers: Vec<String> },
    BusStats,
    BusInfo,
    MasterUri,
    Subscriptions,
    Publications,
    Shutdown { caller: String, reason: String },
}
