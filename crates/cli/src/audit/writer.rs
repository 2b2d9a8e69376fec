// SPDX-License-Identifier: Apache-2.0
//! The queue of records and the thread that writes them.

use super::files::RotatingFiles;
use super::journal::{JOURNAL_SOCKET, Journal};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tautline::audit::{Audit, AuditSink, Event, Record, Text};
use tautline::config::AuditConfig;

/// Maximum number of records queued for the writer; further records are counted as lost.
pub const MAX_QUEUED: usize = 1024;
/// Interval at which the number of lost records is written while there is no other record.
const LOST_REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum interval between two log lines about a failed write.
const ERROR_LOG_INTERVAL: Duration = Duration::from_secs(30);

/// The reason why the audit log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error(
    "audit: {place}: {error}; set 'audit: {{ file: PATH }}' in a folder that this user may write to, or 'audit: false'"
)]
pub struct AuditError {
    place: String,
    error: io::Error,
}

#[derive(Debug)]
enum Input {
    Record(Box<Record>),
    Stop,
}

/// The writer's queue.
#[derive(Debug, Clone)]
struct WriterQueue {
    sender: SyncSender<Input>,
    lost: Arc<AtomicU64>,
}

impl AuditSink for WriterQueue {
    fn take(&self, record: Record) {
        if self.sender.try_send(Input::Record(Box::new(record))).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The audit log. Dropping it writes the queued records.
#[derive(Debug)]
pub struct AuditLog {
    /// `None` if the configuration has no audit log.
    queue: Option<WriterQueue>,
    thread: Option<JoinHandle<()>>,
}

impl AuditLog {
    /// Opens the configured log and starts its thread.
    pub fn start(config: &AuditConfig) -> Result<Self, AuditError> {
        let failed = |place: &Path| {
            let place = place.display().to_string();
            move |error| AuditError { place, error }
        };
        let sink = match config {
            AuditConfig::Off => return Ok(Self { queue: None, thread: None }),
            AuditConfig::Files { path, size, files } => {
                Sink::Files(RotatingFiles::open(path, *size, *files).map_err(failed(path))?)
            }
            AuditConfig::Journald => {
                let path = Path::new(JOURNAL_SOCKET);
                Sink::Journal(Journal::open(path).map_err(failed(path))?)
            }
        };
        Self::spawn(sink).map_err(failed(Path::new("starting a thread")))
    }

    fn spawn(sink: Sink) -> io::Result<Self> {
        let (sender, inputs) = sync_channel(MAX_QUEUED);
        let lost = Arc::new(AtomicU64::new(0));
        let writer = Writer { sink, lost: lost.clone(), last_complaint: None };
        let run = move || writer.run(&inputs);
        let thread = std::thread::Builder::new().name("audit".into()).spawn(run)?;
        Ok(Self { queue: Some(WriterQueue { sender, lost }), thread: Some(thread) })
    }

    /// Returns a handle that accepts records.
    pub fn audit(&self) -> Audit {
        self.queue.clone().map_or_else(Audit::default, |queue| Audit::with_sink(Arc::new(queue)))
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        let (Some(queue), Some(thread)) = (self.queue.take(), self.thread.take()) else { return };
        // Blocks until the queue has a free slot. If the writer has panicked, the send fails and
        // there is no thread to stop.
        if queue.sender.send(Input::Stop).is_ok() {
            let _ = thread.join();
        }
    }
}

#[derive(Debug)]
enum Sink {
    Files(RotatingFiles),
    Journal(Journal),
}

struct Writer {
    sink: Sink,
    lost: Arc<AtomicU64>,
    last_complaint: Option<Instant>,
}

impl Writer {
    fn run(mut self, inputs: &Receiver<Input>) {
        loop {
            let input = inputs.recv_timeout(LOST_REPORT_INTERVAL);
            if let Ok(Input::Record(record)) = &input {
                self.write(record, 1);
            }
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                self.write(&Record::new(None, Event::Lost { count: lost }), lost);
            }
            if matches!(input, Ok(Input::Stop) | Err(RecvTimeoutError::Disconnected)) {
                return;
            }
        }
    }

    /// Writes a record that stands for `count` events.
    fn write(&mut self, record: &Record, count: u64) {
        if let Err(error) = self.try_write(record) {
            self.lost.fetch_add(count, Ordering::Relaxed);
            if self.last_complaint.is_none_or(|at| at.elapsed() >= ERROR_LOG_INTERVAL) {
                self.last_complaint = Some(Instant::now());
                tracing::error!(%error, "the audit log cannot be written");
            }
        }
    }

    fn try_write(&mut self, record: &Record) -> io::Result<()> {
        let line = serde_json::to_string(record)?;
        match &mut self.sink {
            Sink::Files(files) => files.write(&line),
            Sink::Journal(journal) => {
                let peer = record.peer.as_ref().map(Text::as_str);
                journal.write(&line, record.event.name(), peer)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::net::UnixDatagram;

    fn moved_event(address: &str) -> Event {
        Event::Moved { address: address.into() }
    }

    #[test]
    fn records_are_always_lines_of_json() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("robot.audit");
        let config = AuditConfig::Files { path: path.clone(), size: 1 << 20, files: 4 };
        let log = AuditLog::start(&config).unwrap();
        let hostile = format!("\"}}\n{{\"event\":\"forged\"}}\u{1b}[2J{}", "x".repeat(10_000));
        log.audit().record(Some("base"), moved_event(&hostile));
        log.audit().record(None, Event::Lost { count: 7 });
        drop(log);
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!((&lines[0]["event"], &lines[0]["peer"]), (&"moved".into(), &"base".into()));
        let address = lines[0]["address"].as_str().unwrap();
        assert!(address.starts_with("\"}\\n{\"event\":\"forged\"}\\u{1b}[2Jxxx"), "{address}");
        assert_eq!(address.len(), tautline::audit::MAX_TEXT);
        assert_eq!((&lines[1]["count"], lines[1].get("peer")), (&7.into(), None));
        assert_eq!(lines[0]["time"].as_str().unwrap().len(), "2026-11-23T15:04:05.678Z".len());
        assert!(text.is_ascii());
    }

    #[test]
    fn unwritable_records_are_counted_without_blocking() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let journald = UnixDatagram::bind(&path).unwrap();
        let log = AuditLog::spawn(Sink::Journal(Journal::open(&path).unwrap())).unwrap();
        // The kernel and the queue hold some of the records; nobody reads them.
        let total = 4 * MAX_QUEUED as u64;
        (0..total).for_each(|_| log.audit().record(None, moved_event("there")));
        assert!(log.queue.as_ref().unwrap().lost.load(Ordering::Relaxed) > 0);
        let (written, lost) = std::thread::scope(|scope| {
            scope.spawn(|| drop(log));
            let (mut written, mut lost) = (0, 0);
            let mut buffer = vec![0; 10_000];
            while written + lost < total {
                let length = journald.recv(&mut buffer).unwrap();
                let text = std::str::from_utf8(&buffer[..length]).unwrap();
                let line = text.lines().next().unwrap().strip_prefix("MESSAGE=").unwrap();
                let record: serde_json::Value = serde_json::from_str(line).unwrap();
                match record["event"].as_str().unwrap() {
                    "moved" => written += 1,
                    "lost" => lost += record["count"].as_u64().unwrap(),
                    other => panic!("{other}"),
                }
            }
            (written, lost)
        });
        assert_eq!(written + lost, total);
        assert!(lost > 0 && written > MAX_QUEUED as u64 / 2);
    }

    #[test]
    fn an_unwritable_place_is_reported_with_a_remedy() {
        let path = "/proc/nowhere/robot.audit".into();
        let config = AuditConfig::Files { path, size: 1 << 20, files: 4 };
        let error = AuditLog::start(&config).unwrap_err().to_string();
        for word in ["/proc/nowhere/robot.audit", "audit: { file: PATH }", "audit: false"] {
            assert!(error.contains(word), "{error}");
        }
    }
}
