// SPDX-License-Identifier: Apache-2.0
//! The emulator's threads, each on its own processor. The thread that is awake when work is due does the
//! work.

use super::emulator::Emulator;
use crate::rig::clock::{cpu_of_this_thread, monotonic_ns};
use crate::rig::punctual::{Rank, be_punctual, processors, stay_on};
use anyhow::{Context, Result, anyhow};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tautline_medium::Nanos;

/// Time before a deadline at which the first thread wakes to poll the clock. It covers the
/// remaining error of a timer (measured: 45-60 us on a virtual processor that has gone to sleep).
const AWAKE_BEFORE: Duration = Duration::from_micros(70);

/// State that the threads share.
struct Bridge {
    helm: Mutex<Helm>,
    /// Readable when a new frame is held.
    held: OwnedFd,
    /// Wakes a thread that would sleep past a new deadline.
    nudges: Vec<OwnedFd>,
    stop: AtomicBool,
}

/// State that only one thread at a time may use.
struct Helm {
    emulator: Emulator,
    /// Time at which each thread wakes at the latest.
    asleep_until: Vec<Nanos>,
}

/// Runs an emulator until it is dropped or [`Crew::stop`]ped.
pub struct Crew {
    bridge: Arc<Bridge>,
    threads: Vec<JoinHandle<Result<()>>>,
    /// Whether every thread has real-time priority.
    pub real_time: bool,
}

impl Crew {
    /// Starts the threads.
    pub fn start(emulator: Emulator) -> Result<Self> {
        let processors = processors()?;
        let nudge = |_| eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let nudges = processors.iter().map(nudge).collect::<Result<_, Errno>>()?;
        let bridge = Arc::new(Bridge {
            held: emulator.as_fd().try_clone_to_owned()?,
            helm: Mutex::new(Helm { emulator, asleep_until: vec![0; processors.len()] }),
            nudges,
            stop: AtomicBool::new(false),
        });
        let (ready, started) = sync_channel(processors.len());
        let mut crew = Self { bridge, threads: Vec::new(), real_time: true };
        for (hand, processor) in processors.into_iter().enumerate() {
            let (bridge, ready) = (crew.bridge.clone(), ready.clone());
            let name = format!("emulator {hand}");
            let work = move || bridge.work(hand, processor, &ready);
            crew.threads.push(std::thread::Builder::new().name(name).spawn(work)?);
        }
        // A thread that fails before it is ready then closes the channel.
        drop(ready);
        for _ in &crew.threads {
            crew.real_time &= started.recv().context("the emulator did not start")?;
        }
        Ok(crew)
    }

    /// Pauses the emulator and runs a task on it.
    pub fn with<T>(&self, task: impl FnOnce(&mut Emulator) -> T) -> T {
        task(&mut self.bridge.helm().emulator)
    }

    /// Whether all threads still run; if not, [`Crew::stop`] returns the reason.
    pub fn runs(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_finished())
    }

    /// Ends the threads; returns the error of the first that failed.
    pub fn stop(&mut self) -> Result<()> {
        self.bridge.stop.store(true, Ordering::Release);
        let mut outcome = Ok(());
        for thread in self.threads.drain(..) {
            let ended = thread.join().map_err(|_| anyhow!("the emulator panicked"));
            outcome = outcome.and(ended.and_then(|ended| ended));
        }
        outcome
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // The error has no recipient here.
        let _ = self.stop();
    }
}

impl Bridge {
    fn helm(&self) -> MutexGuard<'_, Helm> {
        self.helm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, hand: usize, processor: usize, ready: &SyncSender<bool>) -> Result<()> {
        stay_on(processor)?;
        let _ = ready.send(be_punctual(Rank::Emulator)?);
        let mut used = cpu_of_this_thread();
        while !self.stop.load(Ordering::Acquire) {
            let used_before = std::mem::replace(&mut used, cpu_of_this_thread());
            let next = self.turn(hand, used - used_before)?;
            self.sleep(hand, next)?;
        }
        Ok(())
    }

    /// Does the work that is due; returns the machine's monotonic time of the next work.
    fn turn(&self, hand: usize, used: Duration) -> Result<u64> {
        let mut helm = self.helm();
        let Helm { emulator, asleep_until } = &mut *helm;
        emulator.charge(used);
        emulator.turn()?;
        let next = emulator.next_event();
        asleep_until[hand] = next;
        for (other, until) in asleep_until.iter_mut().enumerate() {
            if *until > next {
                *until = next;
                self.nudge(other)?;
            }
        }
        Ok(emulator.origin() + next)
    }

    fn nudge(&self, hand: usize) -> Result<()> {
        match rustix::io::write(&self.nudges[hand], &1_u64.to_ne_bytes()) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error).context("cannot wake the emulator's other thread"),
        }
    }

    /// Sleeps until an event or the deadline.
    fn sleep(&self, hand: usize, until: u64) -> Result<()> {
        let ahead = if hand == 0 { AWAKE_BEFORE } else { Duration::ZERO };
        loop {
            let left = Duration::from_nanos(until.saturating_sub(monotonic_ns()));
            if left.is_zero() || self.wait(hand, left.saturating_sub(ahead))? {
                return Ok(());
            }
        }
    }

    /// Waits for a held frame or a nudge; returns false if neither occurred.
    fn wait(&self, hand: usize, longest: Duration) -> Result<bool> {
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(longest.subsec_nanos()) };
        let (held, nudged) = (&self.held, &self.nudges[hand]);
        let mut waited = [PollFd::new(held, PollFlags::IN), PollFd::new(nudged, PollFlags::IN)];
        let came = match poll(&mut waited, Some(&timeout)) {
            Ok(came) => came > 0,
            Err(Errno::INTR) => false,
            Err(error) => return Err(error).context("cannot wait for frames"),
        };
        if waited[1].revents().contains(PollFlags::IN) {
            let mut count = [0; 8];
            // Only this thread reads the nudge; at worst the thread runs one empty turn.
            let _ = rustix::io::read(nudged, &mut count);
        }
        Ok(came)
    }
}
