// SPDX-License-Identifier: Apache-2.0
//! Looking up the names of hosts of local nodes. Any program can tell a name whose look-up hangs,
//! and nobody can end one. So names in the file of hosts need no look-up; names that resolved
//! before, and those that hung before, have places of their own.

use super::door::locked;
use std::collections::{BTreeSet, VecDeque};
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Mutex;
use tokio::sync::Semaphore;

/// Names looked up at once that never resolved; the master's is looked up beside them. One that
/// hangs keeps its place.
const MAX_FIRST: usize = 24;
/// Names looked up at once that resolved before: endless new ones take none of these places.
const MAX_KNOWN: usize = 8;
/// Names looked up at once whose look-up hung before.
const MAX_AGAIN: usize = 4;
/// Names remembered that hung; beyond them the first by name is forgotten.
const MAX_HUNG: usize = 256;
/// Names remembered that resolved; beyond them the one asked for longest ago is forgotten.
const MAX_RESOLVED: usize = 256;
/// Addresses of one name that are tried.
const MAX_ADDRESSES: usize = 8;
/// Names of hosts that the machine itself knows.
const HOSTS: &str = "/etc/hosts";
/// What is read of them.
const MAX_HOSTS_BYTES: u64 = 64 * 1024;

/// Look-ups under way, and names that hung.
#[derive(Debug)]
pub(super) struct LookUps {
    first: Semaphore,
    known: Semaphore,
    again: Semaphore,
    hung: Mutex<BTreeSet<String>>,
    /// The one asked for last comes last.
    resolved: Mutex<VecDeque<String>>,
}

/// Remembers a name as hung when nobody waits for it any more.
struct Waiting<'a> {
    all: &'a LookUps,
    host: &'a str,
    answered: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut hung = locked(&self.all.hung);
        if self.answered {
            hung.remove(self.host);
            return;
        }
        hung.insert(self.host.to_owned());
        locked(&self.all.resolved).retain(|it| it != self.host);
        if hung.len() > MAX_HUNG {
            hung.pop_first();
        }
    }
}

impl LookUps {
    pub const fn new() -> Self {
        Self {
            first: Semaphore::const_new(MAX_FIRST),
            known: Semaphore::const_new(MAX_KNOWN),
            again: Semaphore::const_new(MAX_AGAIN),
            hung: Mutex::new(BTreeSet::new()),
            resolved: Mutex::new(VecDeque::new()),
        }
    }

    /// Where `host` is.
    pub async fn addresses(&'static self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let known = among_hosts(&hosts(), host);
        if !known.is_empty() {
            return Ok(known.into_iter().map(|address| (address, port).into()).collect());
        }
        let name = host.to_owned();
        let ask = move || Ok((name, port).to_socket_addrs()?.take(MAX_ADDRESSES).collect());
        self.look_up(host, ask).await
    }

    /// Each keeps its place until it ends, even if nobody waits any more.
    async fn look_up<T: Send + 'static>(
        &'static self,
        host: &str,
        ask: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let place = self.places(host).acquire().await.map_err(io::Error::other)?;
        let mut waiting = Waiting { all: self, host, answered: false };
        let asked = tokio::task::spawn_blocking(move || {
            let _place = place;
            ask()
        });
        let found = asked.await;
        waiting.answered = true;
        let found = found??;
        self.remember(host);
        Ok(found)
    }

    fn places(&self, host: &str) -> &Semaphore {
        if locked(&self.resolved).iter().any(|it| it == host) {
            &self.known
        } else if locked(&self.hung).contains(host) {
            &self.again
        } else {
            &self.first
        }
    }

    fn remember(&self, host: &str) {
        let mut resolved = locked(&self.resolved);
        resolved.retain(|it| it != host);
        if resolved.len() >= MAX_RESOLVED {
            resolved.pop_front();
        }
        resolved.push_back(host.to_owned());
    }
}

/// The text of the file of hosts; empty if it cannot be read.
fn hosts() -> String {
    let mut text = String::new();
    if let Ok(file) = std::fs::File::open(HOSTS) {
        // What is no text, or beyond the bound, is looked up.
        let _ = file.take(MAX_HOSTS_BYTES).read_to_string(&mut text);
    }
    text
}

/// Addresses of `host` in a file of hosts: `ADDRESS NAME NAME ... # COMMENT`.
fn among_hosts(text: &str, host: &str) -> Vec<IpAddr> {
    let address = |line: &str| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|name| name.eq_ignore_ascii_case(host)).then_some(address)
    };
    text.lines().filter_map(address).take(MAX_ADDRESSES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};
    use std::sync::{Arc, atomic::AtomicUsize, atomic::Ordering};
    use std::time::Duration;
    use tokio::time::timeout;

    #[test]
    fn names_of_the_file_of_hosts_are_read_from_it() {
        let text =
            "# 10.0.0.9 robot1\n127.0.0.1 localhost\n10.0.0.1\tRobot1 r1 # robot2\n::1 r1\nx r1";
        let of = |host: &str| among_hosts(text, host);
        assert_eq!(of("robot1"), ["10.0.0.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(of("r1").len(), 2);
        assert!(of("robot2").is_empty());
    }

    #[test]
    fn names_that_hung_hold_up_no_other() {
        static ALL: LookUps = LookUps::new();
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        let (end, ends) = channel::<()>();
        let ends = Arc::new(Mutex::new(ends));
        let hangs = |ends: Arc<Mutex<Receiver<()>>>| {
            move || {
                BEGUN.fetch_add(1, Ordering::Relaxed);
                let _ = locked(&ends).recv();
                Ok(0)
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for _ in 0..10 {
                let asked = ALL.look_up("hangs", hangs(ends.clone()));
                assert!(timeout(Duration::from_millis(10), asked).await.is_err());
            }
            assert!(BEGUN.load(Ordering::Relaxed) <= 1 + MAX_AGAIN);
            assert_eq!(ALL.first.available_permits(), MAX_FIRST - 1, "the others have theirs");
            assert_eq!(ALL.look_up("answers", || Ok(1)).await.unwrap(), 1);
            drop(end);
            assert_eq!(ALL.look_up("hangs", || Ok(2)).await.unwrap(), 2, "there is room again");
            assert!(locked(&ALL.hung).is_empty(), "it answered");
        });
    }
    #[test]
    fn endless_new_names_hold_up_none_that_resolved_before() {
        static ALL: LookUps = LookUps::new();
        let (end, ends) = channel::<()>();
        let ends = Arc::new(Mutex::new(ends));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            assert_eq!(ALL.look_up("robot2", || Ok(1)).await.unwrap(), 1);
            for number in 0..2 * MAX_FIRST {
                let (ends, name) = (ends.clone(), format!("new{number}"));
                let asked = ALL.look_up(&name, move || Ok(locked(&ends).recv().is_ok()));
                assert!(timeout(Duration::from_millis(1), asked).await.is_err());
            }
            assert_eq!(ALL.first.available_permits(), 0);
            assert_eq!(ALL.look_up("robot2", || Ok(2)).await.unwrap(), 2);
            drop(end);
        });
        for number in 0..2 * MAX_RESOLVED {
            ALL.remember(&number.to_string());
        }
        assert_eq!(locked(&ALL.resolved).len(), MAX_RESOLVED);
    }
}
