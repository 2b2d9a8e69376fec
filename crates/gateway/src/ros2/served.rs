// SPDX-License-Identifier: Apache-2.0
//! Services served to local clients on behalf of peers.

use super::endpoint_context::EndpointContext;
use super::names::{self, DdsTopic, ServiceTypes};
use super::pairing::Caller;
use super::writers::Writer;
use crate::goals::kept_request;
use crate::rejections::Reason;
use crate::{Event, Service};
use bytes::Bytes;
use std::sync::atomic::Ordering;
use tautline_dds::{DdsError, Guid, Qos as Dds, RawReader, RawWriter, SampleInfo};

pub struct ServiceServer {
    requests: RawReader,
    replies: RawWriter,
}

pub struct EndpointGuids {
    pub reader: Guid,
    pub writer: Guid,
}

impl ServiceServer {
    pub fn new(
        service: &Service,
        types: &ServiceTypes,
        context: &EndpointContext,
    ) -> Result<Self, DdsError> {
        // The writer comes first: a client that has found the reader can be answered.
        let topic = DdsTopic::replies(&service.name, types);
        let policies = service_qos("", &context.tautline_name);
        let replies =
            RawWriter::new(&context.participant, topic.specification(&policies), |_, _| ())?;
        let receiver = Receiver { service: service.name.clone(), context: context.clone() };
        let topic = DdsTopic::requests(&service.name, types);
        let policies = service_qos(&service.type_hash, &context.tautline_name);
        let receive = move |bytes, info: &SampleInfo| receiver.receive(&bytes, info);
        let requests = RawReader::new(
            &context.participant,
            topic.specification(&policies),
            receive,
            |_, _| (),
        )?;
        Ok(Self { requests, replies })
    }

    pub fn guids(&self) -> EndpointGuids {
        EndpointGuids { reader: self.requests.guid, writer: self.replies.guid }
    }

    /// Readers that a reply would reach now. The lookups take time.
    pub fn matched_readers(&self) -> Vec<Guid> {
        self.replies.matched_readers()
    }

    pub fn reply(&self, caller: &Caller, response: Bytes) -> Result<(), DdsError> {
        let sample = caller.reply(response);
        self.replies.write(sample.payload, sample.related_sample).map(drop)
    }
}

/// The policies of our service endpoints: those of ROS 2, for many concurrent calls.
pub fn service_qos(type_hash: &str, tautline_name: &str) -> Dds {
    Dds {
        keep_all: true,
        receive_since_match: true,
        ignore_own: true,
        // The actor writes, and retries a sample that does not fit.
        max_blocking_time: 0,
        user_data: names::endpoint_user_data(type_hash, tautline_name).into_bytes(),
        ..Dds::default()
    }
}

/// Receives requests on Cyclone DDS's thread; does not block.
struct Receiver {
    service: String,
    context: EndpointContext,
}

impl Receiver {
    fn receive(&self, payload: &Bytes, info: &SampleInfo) {
        let reject = |reason| self.context.shared.rejections.add(&self.service, reason);
        let Some(writer) = info.writer else {
            return reject(Reason::CallerGone);
        };
        // The request is for a local server: other Tautline nodes do not call ours.
        if self.context.writers.get(&writer) == Some(Writer::OfTautline) {
            return;
        }
        let is_too_large = payload.len() > self.context.max_message;
        if is_too_large {
            let EndpointContext { shared, max_message, events, .. } = &self.context;
            let text = shared.rejections.add_too_large(&self.service, payload.len(), *max_message);
            if let Some(reason) = text {
                events.emit(Event::Refused { topic: self.service.clone(), reason });
            }
        }
        let Some((caller, request)) = Caller::from_request(payload, writer, info) else {
            return reject(Reason::NotCdr);
        };
        let call = self.context.calls.fetch_add(1, Ordering::Relaxed);
        let kept = kept_request(&self.service, &request);
        // A goal that is too large is reported without its content, so that its client gets a refusal.
        let (request, is_sent) = match (is_too_large, &kept) {
            (false, _) => (request, true),
            (true, Some(goal)) => (goal.clone(), false),
            (true, None) => return,
        };
        if !self.context.callers.with(|it| it.add(&self.service, call, caller, kept)) {
            return reject(Reason::TooManyCalls);
        }
        let service = self.service.clone();
        self.context.events.emit(match is_sent {
            true => Event::Called { service, call, request },
            false => Event::Interrupted { service, call, request },
        });
    }
}
