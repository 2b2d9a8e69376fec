// SPDX-License-Identifier: Apache-2.0
//! One wait for several subscriptions, servers and events of a program.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// An object that [`wait()`] can wait for: any [`Receiver`](crate::Receiver).
pub trait Wait {
    /// Returns a descriptor that is readable while something has arrived, or once the node has stopped. It is
    /// for `poll`, `epoll` or the event loop of a language; do not read from it. A request that has expired
    /// makes it readable as well. Fails if the process may open no more files.
    fn descriptor(&self) -> io::Result<BorrowedFd<'_>>;
}

/// Waits until one of several receivers has something, or its node has stopped; `false` if neither happens
/// within `timeout`. Then take what has arrived from each receiver with [`Receiver::try_recv`].
///
/// [`Receiver::try_recv`]: crate::Receiver::try_recv
pub fn wait(receivers: &[&dyn Wait], timeout: Duration) -> io::Result<bool> {
    let deadline = Instant::now().checked_add(timeout);
    let descriptors: Vec<_> =
        receivers.iter().map(|it| it.descriptor()).collect::<Result<_, _>>()?;
    let poll_of = |it| PollFd::from_borrowed_fd(it, PollFlags::IN);
    let mut polled: Vec<PollFd<'_>> = descriptors.into_iter().map(poll_of).collect();
    loop {
        let left = deadline.map(|it| it.saturating_duration_since(Instant::now()));
        // A deadline too late to be represented is treated as none.
        let left = left.and_then(|it| Timespec::try_from(it).ok());
        match poll(&mut polled, left.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            done => return Ok(done? > 0),
        }
    }
}

/// A descriptor that is created when somebody asks for it. Its owner must use it under a lock.
#[derive(Debug, Default)]
pub(super) struct Readable(OnceLock<OwnedFd>);

impl Readable {
    pub(super) fn set(&self, is_readable: bool) {
        let Some(descriptor) = self.0.get() else { return };
        // Both fail only if the descriptor is already in the wanted state.
        let _ = match is_readable {
            true => rustix::io::write(descriptor, &1u64.to_ne_bytes()),
            false => rustix::io::read(descriptor, &mut [0u8; 8]),
        };
    }

    pub(super) fn descriptor(&self, is_readable: bool) -> io::Result<BorrowedFd<'_>> {
        if self.0.get().is_none() {
            let made =
                eventfd(u32::from(is_readable), EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
            let _ = self.0.set(made);
        }
        self.0.get().map(AsFd::as_fd).ok_or_else(|| io::ErrorKind::Other.into())
    }
}
