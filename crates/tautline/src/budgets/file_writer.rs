// SPDX-License-Identifier: Apache-2.0
//! The thread that writes the budget file. The data plane never waits for the disk, except when it ends.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tautline_gateway::state_file;
use tautline_gateway::threads::{self, End};

/// Writes the file on a thread of its own. Dropping this value waits until the last text is written.
#[derive(Debug)]
pub(crate) struct FileWriter {
    texts: Option<SyncSender<String>>,
    thread: Option<JoinHandle<()>>,
    failure: Arc<Mutex<Option<String>>>,
}

impl FileWriter {
    /// Starts the thread; `ended` is called when it ends.
    pub(crate) fn start(
        path: PathBuf,
        ended: impl FnOnce(&str, End) + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, texts) = sync_channel(1);
        let failure = Arc::default();
        let shared = Arc::clone(&failure);
        let thread = threads::spawn("budgets", ended, move || run(&path, &texts, &shared))?;
        Ok(Self { texts: Some(sender), thread: Some(thread), failure })
    }

    /// Queues a text that replaces the content of the file. Never blocks; returns whether the queue
    /// had space.
    pub(crate) fn save(&self, text: String) -> bool {
        self.texts.as_ref().is_some_and(|texts| texts.try_send(text).is_ok())
    }

    /// Queues the last text; waits until the queue has space.
    pub(crate) fn save_last(&self, text: String) {
        // An error means that the thread has ended. That has its own notice.
        let _ = self.texts.as_ref().map(|texts| texts.send(text));
    }

    /// The error of the last write.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        // Without a sender the thread ends after the texts in the queue.
        self.texts = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(path: &Path, texts: &Receiver<String>, failure: &Mutex<Option<String>>) {
    for text in texts {
        let error = state_file::replace(path, &text).err().map(|error| error.to_string());
        *failure.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn new_writer(path: &Path) -> FileWriter {
        FileWriter::start(path.into(), |_, _| {}).unwrap()
    }

    #[test]
    fn only_the_last_text_is_in_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/robot.budgets");
        let writer = new_writer(&path);
        writer.save_last("one".into());
        writer.save_last("two".into());
        writer.save_last("three".into());
        assert_eq!(writer.failure(), None);
        drop(writer);
        assert_eq!(fs::read_to_string(&path).unwrap(), "three");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn an_unwritable_file_is_reported_and_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("robot.budgets");
        fs::write(&path, "old").unwrap();
        fs::create_dir(folder.path().join("robot.budgets.new")).unwrap();
        let writer = new_writer(&path);
        // The second text is taken after the first was written.
        (0..3).for_each(|_| writer.save_last("new".into()));
        assert!(writer.failure().is_some());
        drop(writer);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    }
}
