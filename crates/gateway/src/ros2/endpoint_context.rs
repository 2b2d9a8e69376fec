// SPDX-License-Identifier: Apache-2.0
//! What readers and writers of the gateway need.

use super::callers::Callers;
use super::options::Ros2Options;
use super::readers::KnownReaders;
use super::writers::KnownWriters;
use crate::Events;
use crate::deliveries::Deliveries;
use crate::shared::Shared;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;
use tautline_dds::Participant;

/// The participant, and what its readers and writers share.
#[derive(Clone)]
pub struct EndpointContext {
    pub participant: Arc<Participant>,
    pub shared: Arc<Shared>,
    pub events: Arc<dyn Events>,
    pub writers: KnownWriters,
    pub readers: KnownReaders,
    pub started: Instant,
    pub deliveries: Deliveries,
    pub callers: Callers,
    pub tautline_name: Arc<str>,
    pub max_message: usize,
    /// Calls by local clients so far.
    pub calls: Arc<AtomicU64>,
}

impl EndpointContext {
    /// For a gateway that starts now.
    pub fn new(
        options: &Ros2Options,
        participant: Arc<Participant>,
        shared: Arc<Shared>,
        events: Arc<dyn Events>,
    ) -> Self {
        Self {
            participant,
            shared,
            events,
            writers: KnownWriters::default(),
            readers: KnownReaders::default(),
            started: Instant::now(),
            deliveries: Deliveries::open(options.deliveries.clone()),
            callers: Callers::open(options.goals.clone()),
            tautline_name: options.tautline_name.as_str().into(),
            max_message: options.max_message,
            calls: Arc::default(),
        }
    }
}
