// SPDX-License-Identifier: Apache-2.0
//! Compression, and translation between the two kinds of ROS, on a thread of its own, so that
//! a large message being worked on holds up no other topic.

use crate::config::Config;
use crate::node::{Inlet, Input};
use crate::topics::{Key, Outgoing, safe_message};
use bytes::Bytes;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use tautline_gateway::types::Dialect;
use tautline_gateway::types::compose::Fields;
use tautline_gateway::types::installed::Installed;
use tautline_gateway::types::translate::{
    ServiceTranslator, Translator, translate, translate_service,
};
use tautline_gateway::{CallId, Service, Source, Topic};

/// Messages that wait to be worked on; more are dropped and counted.
const MAX_JOBS: usize = 64;
/// Bytes of them, unless it is one message alone.
const MAX_JOB_BYTES: usize = 64 << 20;
/// Zstandard's level: the fastest of the regular ones.
const LEVEL: i32 = 1;

/// One message to work on.
pub(crate) enum Job {
    Compress(Outgoing),
    Decode(Incoming),
    /// Find out what a topic of the other ROS is here.
    Translate {
        key: Key,
        topic: Topic,
    },
    /// The same of a service.
    TranslateService {
        key: Key,
        service: Service,
    },
    /// Make the safe message of a topic.
    Compose {
        topic: Topic,
        fields: Arc<Fields>,
    },
    /// Make a call, or its answer, what the other side takes.
    Turn(Turning),
}

/// A call of a service of the other ROS on its way there, or its answer on its way back.
#[derive(Debug)]
pub(crate) struct Turning {
    /// Local name.
    pub(crate) service: String,
    pub(crate) call: CallId,
    pub(crate) payload: Bytes,
    pub(crate) translator: Arc<ServiceTranslator>,
    pub(crate) is_answer: bool,
}

/// A message to be published here, once it is as it was, and as this robot's ROS has it. One
/// that is so already only takes its turn behind others of its topic.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) topic: String,
    pub(crate) source: Source,
    pub(crate) payload: Bytes,
    pub(crate) encoded: bool,
    pub(crate) translator: Option<Arc<Translator>>,
}

impl Job {
    fn bytes(&self) -> usize {
        match self {
            Self::Compress(message) => message.payload.len(),
            Self::Decode(message) => message.payload.len(),
            Self::Turn(turning) => turning.payload.len(),
            Self::Translate { .. } | Self::TranslateService { .. } | Self::Compose { .. } => 0,
        }
    }
}

/// The worker.
pub(crate) struct Codec {
    jobs: SyncSender<Job>,
    waiting_bytes: Arc<AtomicUsize>,
    /// Messages dropped because the worker was behind, or that could not be read.
    pub(crate) dropped: Arc<AtomicU64>,
}

impl Codec {
    /// Starts the worker, which ends with this value.
    pub(crate) fn start(inlet: Inlet, config: &Config) -> io::Result<Self> {
        let (jobs, queue) = sync_channel(MAX_JOBS);
        let (dropped, waiting_bytes) = (Arc::<AtomicU64>::default(), Arc::<AtomicUsize>::default());
        let worker = Worker {
            inlet,
            max_message: config.limits.max_message,
            ros: config.ros(),
            failed: dropped.clone(),
            waiting_bytes: waiting_bytes.clone(),
        };
        let work = move || worker.run(&queue);
        std::thread::Builder::new().name("codec".into()).spawn(work)?;
        Ok(Self { jobs, waiting_bytes, dropped })
    }

    /// `false`: too much waits already, and the job is dropped and counted.
    pub(crate) fn push(&self, job: Job) -> bool {
        let bytes = job.bytes();
        let before = self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = before == 0 || before + bytes <= MAX_JOB_BYTES;
        let taken = fits && self.jobs.try_send(job).is_ok();
        if !taken {
            self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }
}

struct Worker {
    inlet: Inlet,
    max_message: usize,
    ros: Option<(Dialect, Installed)>,
    failed: Arc<AtomicU64>,
    waiting_bytes: Arc<AtomicUsize>,
}

impl Worker {
    fn run(&self, jobs: &Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            let bytes = job.bytes();
            self.work(job);
            self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    fn work(&self, job: Job) {
        match job {
            Job::Compress(message) => {
                let message = compressed(message);
                let bytes = message.payload.len();
                self.inlet.offer(Input::Encoded(message), bytes);
            }
            Job::Decode(message) => match self.decoded(&message) {
                Ok(payload) => {
                    let Incoming { topic, source, .. } = message;
                    let bytes = payload.len();
                    self.inlet.offer(Input::Decoded { topic, source, payload }, bytes);
                }
                Err(error) => self.complain(&message.topic, &error),
            },
            Job::Translate { key, topic } => {
                let Some((dialect, installed)) = &self.ros else { return };
                let found = Box::new(translate(&topic, *dialect, installed));
                self.inlet.push(Input::Translated { key, foreign: topic, found });
            }
            Job::TranslateService { key, service } => {
                let Some((dialect, installed)) = &self.ros else { return };
                let found = Box::new(translate_service(&service, *dialect, installed));
                self.inlet.push(Input::ServiceTranslated { key, foreign: service, found });
            }
            Job::Compose { topic, fields } => {
                let Some((_, installed)) = &self.ros else { return };
                let made = safe_message(&topic, &fields, installed, self.max_message);
                self.inlet.push(Input::Composed { topic, made });
            }
            Job::Turn(Turning { service, call, payload, translator, is_answer }) => {
                let turned = match is_answer {
                    true => translator.response(&payload),
                    false => translator.request(&payload),
                };
                let outcome = turned.map(Bytes::from).map_err(|error| {
                    format!("{service}: a call or its answer is not as its type says: {error}")
                });
                self.inlet.push(Input::Turned { service, call, outcome, is_answer });
            }
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

    fn complain(&self, topic: &str, error: &str) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let text = format!("{topic}: {error}");
        self.inlet.push(Input::Notice(text));
    }
}

/// The message compressed, or as it was where that is not smaller.
fn compressed(message: Outgoing) -> Outgoing {
    match zstd::bulk::compress(&message.payload, LEVEL) {
        Ok(smaller) if smaller.len() < message.payload.len() => {
            Outgoing { payload: smaller.into(), encoded: true, ..message }
        }
        _ => message,
    }
}

/// The original of a compressed payload of at most `max_message` bytes.
fn decompress(payload: &[u8], max_message: usize) -> io::Result<Bytes> {
    // The frame tells its size (RFC 8878, 3.1.1.4); a lie is caught by the bound and by the decoder.
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
    fn a_bomb_is_refused_before_it_is_unpacked() {
        let bomb = zstd::bulk::compress(&vec![0; 50_000_000], 1).unwrap();
        let error = decompress(&bomb, 8_000_000).unwrap_err().to_string();
        assert!(error.contains("50000000") && error.contains("8000000"), "{error}");
        assert!(decompress(b"not zstd", 1000).is_err());
    }
}
