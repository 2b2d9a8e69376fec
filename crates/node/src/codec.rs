// SPDX-License-Identifier: Apache-2.0
//! Compression, and translation between ROS 1 and ROS 2, on a thread of its own, so that work on a
//! large message delays no other topic. A second thread reads peers' type definitions, so that a
//! slow definition delays no message.

mod queue;

use crate::config::Config;
use crate::limits::{MAX_CODEC_BYTES_PER_PEER, MAX_CODEC_JOBS_PER_PEER};
use crate::node::{Inlet, Input};
use crate::topics::{Key, Outgoing, safe_message};
use bytes::Bytes;
use queue::{Owner, Queue, Share};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tautline_gateway::types::Dialect;
use tautline_gateway::types::compose::Fields;
use tautline_gateway::types::installed::Installed;
use tautline_gateway::types::translate::{
    LocalForm, ServiceTranslator, Translator, localize, localize_service,
};
use tautline_gateway::{CallId, Service, Source, Topic};
use tautline_proto::{Instant, PeerId};

/// Most bytes of this robot's own topics that may be queued; more are dropped and counted.
pub(crate) const OWN_BYTES: usize = 64 << 20;
const OWN_SHARE: Share = Share { jobs: 64, bytes: OWN_BYTES };
/// Limits of the queued jobs of each peer.
const PEER_SHARE: Share = Share { jobs: MAX_CODEC_JOBS_PER_PEER, bytes: MAX_CODEC_BYTES_PER_PEER };
/// Level of Zstandard: the fastest of the regular ones.
const LEVEL: i32 = 1;

/// A job of a worker.
pub(crate) enum Job {
    Compress(Outgoing),
    Decode(Incoming),
    /// Find the local form of a peer's topic.
    Translate {
        key: Key,
        topic: Topic,
    },
    /// The same for a service of the other ROS.
    TranslateService {
        key: Key,
        service: Service,
    },
    /// Compose the safe message of a topic.
    Compose {
        topic: Topic,
        fields: Arc<Fields>,
    },
    /// Translate a call, or its response, for the other side.
    Turn(Turning),
}

/// A call of a service of the other ROS, or its response.
#[derive(Debug)]
pub(crate) struct Turning {
    /// The peer at the other end.
    pub(crate) peer: PeerId,
    /// Local name.
    pub(crate) service: String,
    pub(crate) call: CallId,
    pub(crate) payload: Bytes,
    pub(crate) translator: Arc<ServiceTranslator>,
    pub(crate) is_answer: bool,
}

/// A message to be published here after decompression and translation. A message that needs neither
/// is queued only to keep the order of its topic.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) key: Key,
    pub(crate) topic: String,
    pub(crate) source: Source,
    pub(crate) payload: Bytes,
    pub(crate) encoded: bool,
    pub(crate) translator: Option<Arc<Translator>>,
    /// The end of its lifespan.
    pub(crate) expires: Option<Instant>,
}

impl Job {
    fn owner(&self) -> Owner {
        match self {
            Self::Compress(_) | Self::Compose { .. } => None,
            Self::Decode(message) => Some(message.key.0),
            Self::Turn(turning) => Some(turning.peer),
            Self::Translate { key, .. } | Self::TranslateService { key, .. } => Some(key.0),
        }
    }

    fn is_about_types(&self) -> bool {
        matches!(
            self,
            Self::Translate { .. } | Self::TranslateService { .. } | Self::Compose { .. }
        )
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Compress(message) => message.payload.len(),
            Self::Decode(message) => message.payload.len(),
            Self::Turn(turning) => turning.payload.len(),
            _ => 0,
        }
    }
}

/// The worker threads.
pub(crate) struct Codec {
    jobs: Arc<Queue<Job>>,
    questions: Arc<Queue<Job>>,
    /// Messages dropped because the worker was behind, or because they could not be read.
    pub(crate) dropped: Arc<AtomicU64>,
}

impl Codec {
    /// Starts the workers, which end when this value is dropped.
    pub(crate) fn start(inlet: Inlet, config: &Config) -> io::Result<Self> {
        let dropped = Arc::<AtomicU64>::default();
        let worker = Worker {
            inlet: inlet.clone(),
            max_message: config.limits.max_message,
            ros: config.ros(),
            failed: dropped.clone(),
        };
        let (jobs, questions) = (Arc::new(Queue::new()), Arc::new(Queue::new()));
        for (name, queue) in [("codec", &jobs), ("types", &questions)] {
            let (worker, queue) = (worker.clone(), queue.clone());
            inlet.spawn(name, move || worker.run(&queue))?;
        }
        Ok(Self { jobs, questions, dropped })
    }

    /// Queues a job. Returns `false` if too many of its owner are queued: the job is dropped, and
    /// counted unless it is about types.
    pub(crate) fn push(&self, job: Job) -> bool {
        let (owner, bytes) = (job.owner(), job.bytes());
        let share = if owner.is_some() { PEER_SHARE } else { OWN_SHARE };
        if job.is_about_types() {
            // These are requested again later, if the queue is full.
            return self.questions.push(owner, share, job, bytes);
        }
        let taken = self.jobs.push(owner, share, job, bytes);
        if !taken {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }
}

impl Drop for Codec {
    fn drop(&mut self) {
        self.jobs.close();
        self.questions.close();
    }
}

#[derive(Clone)]
struct Worker {
    inlet: Inlet,
    max_message: usize,
    ros: Option<(Dialect, Installed)>,
    failed: Arc<AtomicU64>,
}

impl Worker {
    fn run(&self, jobs: &Queue<Job>) {
        while let Some(job) = jobs.pop() {
            self.work(job);
        }
    }

    /// Does a job. Peers' data is read here: if that panics, only the job fails.
    fn work(&self, job: Job) {
        match job {
            Job::Compress(message) => {
                // The message is this robot's own; a panic is counted and in the log.
                if let Ok(message) = self.contained(|| Ok(compressed(message))) {
                    let bytes = message.payload.len();
                    self.inlet.offer(Input::Encoded(message), bytes);
                }
            }
            Job::Decode(message) => match contained(|| self.decoded(&message)) {
                Ok(payload) => {
                    let bytes = payload.len();
                    self.inlet.offer(Input::Decoded(Incoming { payload, ..message }), bytes);
                }
                Err(reason) => self.complain(&message, reason),
            },
            Job::Translate { key, topic } => {
                let found = Box::new(self.contained(|| self.localized(&topic)));
                self.inlet.push(Input::Translated { key, foreign: topic, found });
            }
            Job::TranslateService { key, service } => {
                let Some((dialect, installed)) = &self.ros else { return };
                let localize = || localize_service(&service, *dialect, installed);
                let found = Box::new(self.contained(localize));
                self.inlet.push(Input::ServiceTranslated { key, foreign: service, found });
            }
            Job::Compose { topic, fields } => {
                let Some((_, installed)) = &self.ros else { return };
                let make = || safe_message(&topic, &fields, installed, self.max_message);
                let made = self.contained(make);
                self.inlet.push(Input::Composed { topic, made });
            }
            Job::Turn(Turning { service, call, payload, translator, is_answer, .. }) => {
                let outcome = self.contained(|| turned(&service, &payload, &translator, is_answer));
                self.inlet.push(Input::Turned { service, call, outcome, is_answer });
            }
        }
    }

    /// Runs `work` as [`contained`] does, and counts a panic.
    fn contained<T>(&self, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let mut done = false;
        let outcome = contained(|| {
            let outcome = work();
            done = true;
            outcome
        });
        self.failed.fetch_add(u64::from(!done), Ordering::Relaxed);
        outcome
    }

    fn localized(&self, topic: &Topic) -> Result<LocalForm, String> {
        match &self.ros {
            Some((dialect, installed)) => localize(topic, Some(*dialect), installed),
            None => localize(topic, None, &Installed::default()),
        }
    }

    fn decoded(&self, message: &Incoming) -> Result<Bytes, String> {
        let payload = match message.encoded {
            true => decompress(&message.payload, self.max_message)
                .map_err(|error| format!("a compressed message cannot be read: {error}"))?,
            false => message.payload.clone(),
        };
        match &message.translator {
            Some(translator) => translator
                .translate(&payload)
                .map(Bytes::from)
                .map_err(|error| format!("a message is not as its type says: {error}")),
            None => Ok(payload),
        }
    }

    fn complain(&self, message: &Incoming, reason: String) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let (topic, source) = (message.topic.clone(), message.source);
        self.inlet.push(Input::BadMessage { topic, source, reason });
    }
}

fn turned(
    service: &str,
    payload: &[u8],
    translator: &ServiceTranslator,
    is_answer: bool,
) -> Result<Bytes, String> {
    let turned = match is_answer {
        true => translator.response(payload),
        false => translator.request(payload),
    };
    turned.map(Bytes::from).map_err(|error| {
        format!("{service}: a call or its answer is not as its type says: {error}")
    })
}

/// Returns the result of `work`, or an error if it panics.
fn contained<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    // No partly changed state outlives the job.
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    let fault = "a fault in this program (its message is in the log; please report it)";
    done.unwrap_or_else(|_| Err(fault.into()))
}

/// Returns the message compressed, or unchanged if that is not smaller.
fn compressed(message: Outgoing) -> Outgoing {
    match zstd::bulk::compress(&message.payload, LEVEL) {
        Ok(smaller) if smaller.len() < message.payload.len() => {
            Outgoing { payload: smaller.into(), encoded: true, ..message }
        }
        _ => message,
    }
}

/// Returns the cost of a compressed payload before it is decompressed: the size that it claims,
/// which [`decompress`] does not exceed; at most `max_message`, and at least its own size.
pub(crate) fn decompressed_size(payload: &[u8], max_message: usize) -> usize {
    let claimed = zstd::zstd_safe::get_frame_content_size(payload).ok().flatten();
    let claimed = claimed.and_then(|n| usize::try_from(n).ok()).unwrap_or(max_message);
    claimed.min(max_message).max(payload.len())
}

/// Decompresses a payload to at most `max_message` bytes.
fn decompress(payload: &[u8], max_message: usize) -> io::Result<Bytes> {
    // The frame states its size (RFC 8878, 3.1.1.4); the limit and the decoder catch a false one.
    let claimed = zstd::zstd_safe::get_frame_content_size(payload).ok().flatten();
    let claimed = claimed.and_then(|n| usize::try_from(n).ok()).unwrap_or(max_message);
    if claimed > max_message {
        let text = format!("{claimed} bytes when decompressed; at most {max_message} are allowed");
        return Err(io::Error::other(text));
    }
    zstd::bulk::decompress(payload, claimed).map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_proto::Instant;

    fn message(payload: Vec<u8>) -> Outgoing {
        Outgoing {
            topic: "/x".into(),
            source: Source(0),
            payload: payload.into(),
            encoded: false,
            published: Instant(0),
        }
    }

    #[test]
    fn what_compresses_comes_back_and_what_does_not_is_left() {
        let text = vec![b'a'; 10_000];
        let small = compressed(message(text.clone()));
        assert!(small.encoded && small.payload.len() < 100);
        assert_eq!(decompress(&small.payload, 10_000).unwrap(), text);
        let noise: Vec<u8> =
            (0..1000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let raw = compressed(message(noise.clone()));
        assert!(!raw.encoded || raw.payload.len() < noise.len());
    }

    #[test]
    fn a_compressed_message_costs_what_it_becomes() {
        let small = zstd::bulk::compress(&vec![0; 5_000_000], 1).unwrap();
        assert_eq!(decompressed_size(&small, 8_000_000), 5_000_000);
        assert_eq!(decompressed_size(&small, 1_000_000), 1_000_000, "more is refused");
        assert_eq!(decompressed_size(b"not zstd", 1_000_000), 1_000_000);
    }

    #[test]
    fn a_job_that_panics_fails_alone() {
        let error = contained::<()>(|| panic!("of the test")).unwrap_err();
        assert!(error.contains("a fault in this program"), "{error}");
        assert_eq!(contained(|| Ok(1)), Ok(1));
        assert_eq!(contained::<()>(|| Err("no".into())), Err("no".into()));
    }

    #[test]
    fn a_bomb_is_refused_before_it_is_unpacked() {
        let bomb = zstd::bulk::compress(&vec![0; 50_000_000], 1).unwrap();
        let error = decompress(&bomb, 8_000_000).unwrap_err().to_string();
        assert!(error.contains("50000000") && error.contains("8000000"), "{error}");
        assert!(decompress(b"not zstd", 1000).is_err());
    }
}
