// SPDX-License-Identifier: Apache-2.0
//! A separate thread for work on messages, so that a large message delays no other topic. The thread
//! compresses messages and translates them between ROS 1 and ROS 2. In large messages, it also renames
//! frames and moves stamps. A second thread reads peers' type definitions, so that a slow definition delays no
//! message.
//!
//! ```text
//! Topics ─▶ Order::Codec(Job) ─▶ queue of a thread ─▶ Worker ─▶ Input::Codec(JobResult) ─▶ Topics
//! ```

pub(crate) mod job;
mod queue;

pub(crate) use job::JobResult;

use crate::config::Config;
use crate::inlet::{Inlet, Input};
use crate::limits::{CODEC_BYTES_OF_OWN_TOPICS, MAX_CODEC_BYTES_PER_PEER, MAX_CODEC_JOBS_PER_PEER};
use crate::topics::imports::safe::safe_message;
use crate::topics::message::{Change, Outgoing};
use crate::treatment::Compression;
use bytes::Bytes;
use job::{ForeignCall, Incoming, Job, UnencodedMessage, claimed_size};
use queue::{Capacity, Owner, Queue};
use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tautline_gateway::types::Dialect;
use tautline_gateway::types::installed::InstalledTypes;
use tautline_gateway::types::translate::{LocalForm, localize, localize_service};
use tautline_gateway::{Outcome, Topic};

/// Capacity for the jobs of this robot's messages. It suffices even if many publishers leave at the
/// same time: each departure is also a job.
const OWN_CAPACITY: Capacity = Capacity { jobs: 320, bytes: CODEC_BYTES_OF_OWN_TOPICS };
/// Capacity for changes of publishers. Changes still fit while the queue of messages is full.
/// Further changes take effect without waiting for earlier messages.
const CHANGES_CAPACITY: Capacity = Capacity { jobs: 640, bytes: usize::MAX };
/// Capacity for the jobs of each peer.
const PEER_CAPACITY: Capacity =
    Capacity { jobs: MAX_CODEC_JOBS_PER_PEER, bytes: MAX_CODEC_BYTES_PER_PEER };
/// Capacity for jobs about types. Each of these jobs may hold a large definition.
const TYPES_CAPACITY: Capacity = Capacity { jobs: 16, bytes: usize::MAX };
/// Compression level of Zstandard: the fastest of the regular levels.
const ZSTD_LEVEL: i32 = 1;

impl Job {
    fn owner(&self) -> Owner {
        match self {
            Self::Change(Change::PeerWithdrawal(key)) => Some(key.peer),
            Self::Encode(_) | Self::Change(_) | Self::Compose { .. } => None,
            Self::Decode(message) => Some(message.key.peer),
            Self::TranslateCall(call) => Some(call.peer),
            Self::Localize { key, .. } | Self::LocalizeService { key, .. } => Some(key.peer),
        }
    }

    fn capacity(&self) -> Capacity {
        match self {
            Self::Change(_) => CHANGES_CAPACITY,
            _ if self.is_type_job() => TYPES_CAPACITY,
            _ if self.owner().is_some() => PEER_CAPACITY,
            _ => OWN_CAPACITY,
        }
    }

    fn is_type_job(&self) -> bool {
        matches!(self, Self::Localize { .. } | Self::LocalizeService { .. } | Self::Compose { .. })
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Encode(UnencodedMessage { message: Outgoing { payload, .. }, .. })
            | Self::Decode(Incoming { payload, .. })
            | Self::TranslateCall(ForeignCall { payload, .. }) => payload.len(),
            _ => 0,
        }
    }
}

pub(crate) struct Codec {
    jobs: Arc<Queue<Job>>,
    type_jobs: Arc<Queue<Job>>,
    /// Jobs dropped because the worker could not keep up, or because of a fault in this program.
    pub(crate) dropped: Arc<AtomicU64>,
}

impl Codec {
    /// Starts the workers, which end when this value is dropped.
    pub(crate) fn start(inlet: &Inlet, config: &Config) -> io::Result<Self> {
        let worker = Worker::new(config.limits.max_message, config.ros());
        let dropped = worker.failed.clone();
        let (jobs, type_jobs) = (Arc::new(Queue::new()), Arc::new(Queue::new()));
        for (name, queue) in [("codec", &jobs), ("types", &type_jobs)] {
            let (worker, queue, results) = (worker.clone(), queue.clone(), inlet.clone());
            inlet.spawn(name, move || {
                while let Some(job) = queue.pop() {
                    if let Some(done) = worker.run(job) {
                        results.hand_over(Input::Codec(done));
                    }
                }
            })?;
        }
        Ok(Self { jobs, type_jobs, dropped })
    }

    /// Queues a job. If too many jobs of its owner are queued, a message is dropped and counted, a
    /// call fails with the returned result, and a change is returned immediately. A job about types
    /// is dropped, and requested again later.
    pub(crate) fn push(&self, job: Job) -> Option<JobResult> {
        let (owner, capacity, bytes) = (job.owner(), job.capacity(), job.bytes());
        if job.is_type_job() {
            let _ = self.type_jobs.push(owner, capacity, job, bytes);
            return None;
        }
        let refused = self.jobs.push(owner, capacity, job, bytes).err()?;
        if let Job::Change(change) = refused {
            return Some(JobResult::Changed(change));
        }
        self.dropped.fetch_add(1, Ordering::Relaxed);
        let Job::TranslateCall(ForeignCall { service, call, is_response, .. }) = refused else {
            return None;
        };
        let outcome = Err("the queue of calls and messages to be translated is full".into());
        Some(JobResult::CallTranslated { service, call, outcome, is_response })
    }
}

impl Drop for Codec {
    fn drop(&mut self) {
        self.jobs.close();
        self.type_jobs.close();
    }
}

#[derive(Clone)]
pub(crate) struct Worker {
    max_message: usize,
    ros: Option<(Dialect, InstalledTypes)>,
    failed: Arc<AtomicU64>,
}

impl Worker {
    pub(crate) fn new(max_message: usize, ros: Option<(Dialect, InstalledTypes)>) -> Self {
        Self { max_message, ros, failed: Arc::default() }
    }

    /// Does a job. A job reads peers' data: if that panics, only the job fails.
    pub(crate) fn run(&self, job: Job) -> Option<JobResult> {
        Some(match job {
            // The message is this robot's own. A panic is counted and logged.
            Job::Encode(plain) => self.run_contained(|| Ok(encode(plain))).ok()?,
            Job::Change(change) => JobResult::Changed(change),
            Job::Decode(message) => match self.run_contained(|| self.decode(&message)) {
                Ok(payload) => JobResult::Decoded(Incoming { payload, ..message }),
                Err(reason) => {
                    JobResult::Unreadable { key: message.key, topic: message.topic, reason }
                }
            },
            Job::Localize { key, topic: peer_form } => {
                let found = Box::new(self.run_contained(|| self.local_form(&peer_form)));
                JobResult::Localized { key, peer_form, found }
            }
            Job::LocalizeService { key, service: peer_form } => {
                let (own, installed) = self.dialect_and_types();
                let localize = || localize_service(&peer_form, own, &installed);
                let found = Box::new(self.run_contained(localize));
                JobResult::ServiceLocalized { key, peer_form, found }
            }
            Job::Compose { topic, fields } => {
                let (_, installed) = self.ros.as_ref()?;
                let make = || safe_message(&topic, &fields, installed, self.max_message);
                let composed = self.run_contained(make);
                JobResult::Composed { topic, composed }
            }
            Job::TranslateCall(call) => {
                let outcome = self.run_contained(|| translate_call(&call));
                let ForeignCall { service, call, is_response, .. } = call;
                JobResult::CallTranslated { service, call, outcome, is_response }
            }
        })
    }

    /// Returns the result of `work`; a panic is counted and becomes an error.
    fn run_contained<T>(&self, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        // The closure changes no state that outlives the job.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.unwrap_or_else(|_| {
            self.count_failure();
            Err("a fault in this program (its message is in the log; please report it)".into())
        })
    }

    fn count_failure(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    fn local_form(&self, topic: &Topic) -> Result<LocalForm, String> {
        let (own, installed) = self.dialect_and_types();
        localize(topic, own, &installed)
    }

    fn dialect_and_types(&self) -> (Option<Dialect>, Cow<'_, InstalledTypes>) {
        match &self.ros {
            Some((dialect, installed)) => (Some(*dialect), Cow::Borrowed(installed)),
            None => (None, Cow::default()),
        }
    }

    fn decode(&self, message: &Incoming) -> Result<Bytes, String> {
        let payload = match message.encoded {
            true => decompress(&message.payload, self.max_message)
                .map_err(|error| format!("it is compressed and cannot be read: {error}"))?,
            false => message.payload.clone(),
        };
        let payload = match &message.change {
            Some(change) => change.apply(payload),
            None => payload,
        };
        let checked = match (&message.translator, &message.checker) {
            (Some(translator), _) => translator.translate(&payload).map(Bytes::from),
            (None, Some(checker)) => checker.check(&payload).map(|()| payload),
            (None, None) => Ok(payload),
        };
        checked.map_err(|error| format!("it does not match its type: {error}"))
    }
}

fn translate_call(call: &ForeignCall) -> Outcome {
    let ForeignCall { service, payload, translator, .. } = call;
    let (what, translated) = match call.is_response {
        true => ("response", translator.response(payload)),
        false => ("call", translator.request(payload)),
    };
    let mismatch = |error| format!("{service}: the {what} does not match its type: {error}");
    translated.map(Bytes::from).map_err(mismatch)
}

fn encode(plain: UnencodedMessage) -> JobResult {
    let UnencodedMessage { message, renaming, compression } = plain;
    let (message, problem) = match &renaming {
        Some(renaming) => renaming.apply(message),
        None => (message, None),
    };
    let message = match compression {
        Compression::Zstd => compress(message),
        Compression::None => message,
    };
    JobResult::Encoded { message, renaming, problem }
}

/// Returns the message compressed, or unchanged if that is not smaller.
fn compress(message: Outgoing) -> Outgoing {
    match zstd::bulk::compress(&message.payload, ZSTD_LEVEL) {
        Ok(smaller) if smaller.len() < message.payload.len() => {
            Outgoing { payload: smaller.into(), encoded: true, ..message }
        }
        _ => message,
    }
}

/// Decompresses a payload to at most `max_message` bytes. If the payload claims a false size, the
/// limit or the decoder detects it.
fn decompress(payload: &[u8], max_message: usize) -> io::Result<Bytes> {
    let claimed = claimed_size(payload, max_message);
    if claimed > max_message {
        let text = format!("{claimed} bytes when decompressed; allowed: at most {max_message}");
        return Err(io::Error::other(text));
    }
    zstd::bulk::decompress(payload, claimed).map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::job::decompressed_size;
    use super::*;
    use crate::topics::key::ChannelKey;
    use tautline_gateway::{Origin, Source};
    use tautline_proto::{ChannelId, Instant, PeerId};

    fn message(payload: Vec<u8>) -> Outgoing {
        Outgoing {
            topic: "/x".into(),
            source: Source::local(0),
            payload: payload.into(),
            origin: Origin::default(),
            encoded: false,
            published: Instant(0),
        }
    }

    #[test]
    fn compressible_payloads_round_trip_and_others_stay_raw() {
        let text = vec![b'a'; 10_000];
        let small = compress(message(text.clone()));
        assert!(small.encoded && small.payload.len() < 100);
        assert_eq!(decompress(&small.payload, 10_000).unwrap(), text);
        let noise: Vec<u8> =
            (0..1000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let raw = compress(message(noise.clone()));
        assert!(!raw.encoded || raw.payload.len() < noise.len());
    }

    #[test]
    fn a_compressed_message_is_charged_its_decompressed_size() {
        let small = zstd::bulk::compress(&vec![0; 5_000_000], 1).unwrap();
        assert_eq!(decompressed_size(&small, 8_000_000), 5_000_000);
        assert_eq!(decompressed_size(&small, 1_000_000), 1_000_000, "more is refused");
        assert_eq!(decompressed_size(b"not zstd", 1_000_000), 1_000_000);
    }

    #[test]
    fn a_job_that_panics_fails_alone() {
        let worker = Worker::new(0, None);
        let error = worker.run_contained::<()>(|| panic!("of the test")).unwrap_err();
        assert!(error.contains("a fault in this program"), "{error}");
        assert_eq!(worker.run_contained(|| Ok(1)), Ok(1));
        assert_eq!(worker.run_contained::<()>(|| Err("no".into())), Err("no".into()));
        assert_eq!(worker.failed.load(Ordering::Relaxed), 1, "only the panic");
    }

    #[test]
    fn delayed_small_messages_fit_and_large_ones_are_bounded() {
        let codec = Codec {
            jobs: Arc::new(Queue::new()),
            type_jobs: Arc::new(Queue::new()),
            dropped: Arc::default(),
        };
        let push = |peer, bytes| {
            codec.push(Job::Decode(incoming(peer, bytes)));
            codec.dropped.load(Ordering::Relaxed)
        };
        assert_eq!((0..500).map(|_| push(PeerId(1), 1000)).max(), Some(0));
        assert_eq!([4 << 20, 4 << 20].map(|bytes| push(PeerId(1), bytes)), [0, 1]);
        assert_eq!(push(PeerId(2), 4 << 20), 1, "another peer");
    }

    fn incoming(peer: PeerId, bytes: usize) -> Incoming {
        Incoming {
            key: ChannelKey { peer, channel: ChannelId(0) },
            topic: "/x".into(),
            source: Source::at_peer(peer.0, 0),
            payload: vec![0; bytes].into(),
            origin: Origin::default(),
            encoded: true,
            translator: None,
            checker: None,
            change: None,
            expires: None,
            arrived: Instant(0),
            revision: 0,
        }
    }

    #[test]
    fn a_bomb_is_refused_before_it_is_unpacked() {
        let bomb = zstd::bulk::compress(&vec![0; 50_000_000], 1).unwrap();
        let error = decompress(&bomb, 8_000_000).unwrap_err().to_string();
        assert!(error.contains("50000000") && error.contains("8000000"), "{error}");
        assert!(decompress(b"not zstd", 1000).is_err());
    }
}
