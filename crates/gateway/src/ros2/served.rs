// SPDX-License-Identifier: Apache-2.0
//! Services served to local clients on behalf of peers.

use super::Shared;
use super::names::{self, Meaning};
use super::pairing::Caller;
use super::subscription::{Context, Marked};
use crate::rejections::Reason;
use crate::{CallId, Event, Events, Service};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use tautline_dds::{DdsError, Guid, Qos as Dds, RawReader, RawWriter, SampleInfo, Specification};

/// Calls under way of one service; what comes beyond them is counted and not answered.
pub const MAX_CALLERS: usize = 1024;

/// A service with its endpoints.
pub struct Served {
    callers: Callers,
    requests: RawReader,
    replies: RawWriter,
}

type Callers = Arc<Mutex<HashMap<CallId, Caller>>>;

impl Served {
    /// Starts; `None` if the service's type is none of ROS 2.
    pub fn new(service: &Service, context: &Context<'_>) -> Option<Result<Self, DdsError>> {
        let types = names::dds_service_types(&service.type_name)?;
        Some(Self::with_types(service, types, context))
    }

    fn with_types(
        service: &Service,
        (request_type, reply_type): (String, String),
        context: &Context<'_>,
    ) -> Result<Self, DdsError> {
        let callers = Callers::default();
        let replies = qos("", context.tautline_name);
        let specification = Specification {
            topic: &Meaning::Reply(service.name.clone()).dds_name(),
            type_name: &reply_type,
            qos: &replies,
        };
        // First, so that a client that has found the reader can be answered.
        let replies = RawWriter::new(context.participant, specification, |_, _| ())?;
        let taker = Taker {
            service: service.name.clone(),
            callers: callers.clone(),
            shared: context.shared.clone(),
            events: context.events.clone(),
            marked: context.marked.clone(),
            max_message: context.max_message,
        };
        let requests = qos(&service.type_hash, context.tautline_name);
        let specification = Specification {
            topic: &Meaning::Request(service.name.clone()).dds_name(),
            type_name: &request_type,
            qos: &requests,
        };
        let take = move |bytes, info: &SampleInfo| taker.take(&bytes, info);
        let requests = RawReader::new(context.participant, specification, take, |_, _| ())?;
        Ok(Self { callers, requests, replies })
    }

    /// Of its reader, and of its writer.
    pub fn guids(&self) -> (Guid, Guid) {
        (self.requests.guid, self.replies.guid)
    }

    /// Who made a call, once; `None` when it is not under way (any more).
    pub fn take_caller(&self, call: CallId) -> Option<Caller> {
        lock(&self.callers).remove(&call)
    }

    /// A client has left, by its writer.
    pub fn forget(&self, client: Guid) {
        lock(&self.callers).retain(|_, caller| caller.writer != client);
    }

    /// Readers that a reply would reach now. Each is looked up, which takes its time.
    pub fn met(&self) -> Vec<Guid> {
        self.replies.matched()
    }

    /// Answers.
    pub fn reply(&self, caller: &Caller, response: Bytes) -> Result<(), DdsError> {
        let (payload, request) = caller.reply(response);
        self.replies.write(payload, request).map(drop)
    }
}

/// Of our endpoints of services: as ROS 2's, but for many calls at a time.
pub fn qos(type_hash: &str, tautline_name: &str) -> Dds {
    Dds {
        keep_all: true,
        miss_nothing: true,
        ignore_own: true,
        // The actor writes them: it tries again what waits for room.
        max_blocking_time: 0,
        user_data: names::endpoint_user_data(type_hash, tautline_name).into_bytes(),
        ..Dds::default()
    }
}

fn lock(callers: &Callers) -> std::sync::MutexGuard<'_, HashMap<CallId, Caller>> {
    callers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes requests on Cyclone DDS's thread; does not wait for anything.
struct Taker {
    service: String,
    callers: Callers,
    shared: Arc<Shared>,
    events: Arc<dyn Events>,
    marked: Marked,
    max_message: usize,
}

impl Taker {
    fn take(&self, payload: &Bytes, info: &SampleInfo) {
        let reject = |why| self.shared.rejections.add(&self.service, why);
        let Some(writer) = info.writer else {
            return reject(Reason::CallerGone);
        };
        // Meant for a local server: another Tautline calls none of ours.
        if self.marked.contains(&writer) {
            return;
        }
        if payload.len() > self.max_message {
            return reject(Reason::TooLarge);
        }
        let Some((caller, request)) = Caller::of(payload, writer, info) else {
            return reject(Reason::NotCdr);
        };
        let mut callers = lock(&self.callers);
        if callers.len() >= MAX_CALLERS {
            return reject(Reason::TooManyCalls);
        }
        let call = self.shared.calls.fetch_add(1, Ordering::Relaxed);
        callers.insert(call, caller);
        drop(callers);
        self.events.emit(Event::Called { service: self.service.clone(), call, request });
    }
}
