// SPDX-License-Identifier: Apache-2.0
//! State that a file keeps over a restart of this node. A thread writes the file after changes.

use crate::lock::lock;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fs, io};

/// Largest file that is read.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Pause after a write, as a multiple of its duration: a slow disk is busy a tenth of the time.
const PAUSE_PER_WRITE: u32 = 9;

/// State that a file keeps.
pub trait State: Default + Send + 'static {
    /// Name of the thread that writes the file.
    const THREAD: &str;
    /// What happens after a restart without the file, for the log.
    const WITHOUT_FILE: &str;
    /// Time in which changes share one write of the file. A killed process loses these changes.
    const SAVE_DELAY: Duration;

    /// Returns the content of the file.
    fn file_text(&self) -> String;

    /// Reads the content of a file; invalid lines are ignored.
    fn read(&mut self, text: &str);

    /// Whether the content of the file has changed since the last call.
    fn take_unsaved(&mut self) -> bool;
}

/// The state, shared by the parts of a gateway.
pub struct StateFile<S: State> {
    shared: Arc<Shared<S>>,
    _saver: Option<Arc<Saver<S>>>,
}

impl<S: State> Clone for StateFile<S> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), _saver: self._saver.clone() }
    }
}

impl<S: State> Default for StateFile<S> {
    fn default() -> Self {
        Self::open(None)
    }
}

#[derive(Default)]
struct Shared<S> {
    kept: Mutex<Kept<S>>,
    changed: Condvar,
}

#[derive(Default)]
struct Kept<S> {
    state: S,
    is_unsaved: bool,
    is_closed: bool,
}

impl<S: State> StateFile<S> {
    /// Reads the file at `path`, if there is one, and writes it after changes. Without a path,
    /// nothing is kept over a restart.
    pub fn open(path: Option<PathBuf>) -> Self {
        let shared = Arc::<Shared<S>>::default();
        let Some(path) = path else { return Self { shared, _saver: None } };
        match read(&path) {
            Ok(text) => lock(&shared.kept).state.read(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(path = %path.display(), %error, "{}", S::WITHOUT_FILE),
        }
        let saver = Saver::start(shared.clone(), path);
        Self { shared, _saver: saver.map(Arc::new) }
    }

    /// Reads or changes the state.
    pub fn with<R>(&self, work: impl FnOnce(&mut S) -> R) -> R {
        let mut kept = lock(&self.shared.kept);
        let result = work(&mut kept.state);
        if kept.state.take_unsaved() {
            kept.is_unsaved = true;
            drop(kept);
            self.shared.changed.notify_one();
        }
        result
    }
}

fn read(path: &Path) -> io::Result<String> {
    let bytes = fs::metadata(path)?.len();
    if bytes > MAX_FILE_BYTES {
        let text = format!("{bytes} bytes; allowed: {MAX_FILE_BYTES}");
        return Err(io::Error::other(text));
    }
    fs::read_to_string(path)
}

/// The thread that writes the file; the last changes are written when it is dropped.
struct Saver<S> {
    shared: Arc<Shared<S>>,
    thread: Option<JoinHandle<()>>,
}

impl<S: State> Saver<S> {
    fn start(shared: Arc<Shared<S>>, path: PathBuf) -> Option<Self> {
        let changes = shared.clone();
        let work = move || save_changes(&changes, &path);
        match std::thread::Builder::new().name(S::THREAD.into()).spawn(work) {
            Ok(thread) => Some(Self { shared, thread: Some(thread) }),
            Err(error) => {
                tracing::warn!(%error, "after a restart, {}", S::WITHOUT_FILE);
                None
            }
        }
    }
}

impl<S> Drop for Saver<S> {
    fn drop(&mut self) {
        lock(&self.shared.kept).is_closed = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn save_changes<S: State>(shared: &Shared<S>, path: &Path) {
    let mut has_failed = false;
    let mut took = Duration::ZERO;
    loop {
        let waits = |kept: &mut Kept<S>| !kept.is_unsaved && !kept.is_closed;
        let kept = lock(&shared.kept);
        let mut kept =
            shared.changed.wait_while(kept, waits).unwrap_or_else(PoisonError::into_inner);
        if !kept.is_closed && !S::SAVE_DELAY.is_zero() {
            // Changes that follow shortly are saved with these.
            drop(kept);
            std::thread::sleep(S::SAVE_DELAY.max(took * PAUSE_PER_WRITE));
            kept = lock(&shared.kept);
        }
        let is_last = kept.is_closed;
        if std::mem::take(&mut kept.is_unsaved) {
            let text = kept.state.file_text();
            drop(kept);
            let begun = Instant::now();
            let replaced = replace(path, &text);
            took = begun.elapsed();
            if let Err(error) = replaced
                && !std::mem::replace(&mut has_failed, true)
            {
                let path = path.display();
                tracing::warn!(%path, %error, "after a restart, {}", S::WITHOUT_FILE);
            }
        }
        if is_last {
            return;
        }
    }
}

/// Replaces a file, and creates its folder. After a power failure it has either the old or the new
/// text.
///
/// # Errors
/// Errors of the file system; the old text is then kept.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let mut file = fs::File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)
}
