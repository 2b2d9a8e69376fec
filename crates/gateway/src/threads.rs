// SPDX-License-Identifier: Apache-2.0
//! Threads that the daemon cannot do without.

use std::io;
use std::thread::{Builder, JoinHandle};

/// How a thread ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The work of the thread is complete.
    Returned,
    /// The thread panicked; the message went to standard error.
    Panicked,
}

/// Starts a thread that reports its end, whatever the cause, as its last action.
pub fn spawn(
    name: &str,
    ended: impl FnOnce(&str, End) + Send + 'static,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let report = EndReport { name: name.to_owned(), ended: Some(ended) };
    Builder::new().name(name.into()).spawn(move || {
        let _report = report;
        work();
    })
}

/// Reports the end of the thread on drop, also after a panic.
struct EndReport<F: FnOnce(&str, End)> {
    name: String,
    ended: Option<F>,
}

impl<F: FnOnce(&str, End)> Drop for EndReport<F> {
    fn drop(&mut self) {
        let end = if std::thread::panicking() { End::Panicked } else { End::Returned };
        if let Some(ended) = self.ended.take() {
            ended(&self.name, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_reports_its_end() {
        let (sender, ends) = channel();
        for (name, panics) in [("calm", false), ("wild", true)] {
            let sender = sender.clone();
            let ended = move |name: &str, end| sender.send((name.to_owned(), end)).unwrap();
            let work = move || assert!(!panics, "a panic of the test");
            let _ = spawn(name, ended, work).unwrap().join();
        }
        assert_eq!(ends.recv().unwrap(), ("calm".into(), End::Returned));
        assert_eq!(ends.recv().unwrap(), ("wild".into(), End::Panicked));
    }
}
