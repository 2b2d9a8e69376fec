// SPDX-License-Identifier: Apache-2.0
//! Resolution of the host names of local nodes. Any program can announce a name whose lookup
//! hangs, and a lookup cannot be cancelled. Therefore names in the hosts file need no lookup, and
//! names that resolved before and names that hung before have slots of their own.

use crate::lock::lock;
use std::collections::{BTreeSet, VecDeque};
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Mutex;
use tokio::sync::Semaphore;

/// Maximum number of concurrent lookups of names that never resolved, without the master's lookup. A
/// lookup that hangs keeps its slot.
const MAX_NEW_LOOKUPS: usize = 24;
/// Maximum number of concurrent lookups of names that resolved before: a flood of new names leaves
/// these slots free.
const MAX_KNOWN_LOOKUPS: usize = 8;
/// Maximum number of concurrent lookups of names that hung before.
const MAX_HUNG_LOOKUPS: usize = 4;
/// Maximum number of names remembered because they hung; beyond it the alphabetically first name is
/// forgotten.
const MAX_HUNG_NAMES: usize = 256;
/// Maximum number of names remembered because they resolved; beyond it the least recently used name is
/// forgotten.
const MAX_RESOLVED: usize = 256;
/// Maximum number of addresses tried of one name.
const MAX_ADDRESSES: usize = 8;
const HOSTS_FILE: &str = "/etc/hosts";
const MAX_HOSTS_BYTES: u64 = 64 * 1024;

#[derive(Debug)]
pub(super) struct Resolver {
    new_slots: Semaphore,
    known_slots: Semaphore,
    retry_slots: Semaphore,
    hung: Mutex<BTreeSet<String>>,
    /// In the order of use, the most recent last.
    resolved: Mutex<VecDeque<String>>,
}

/// Records a name as hung if it is dropped before the answer.
struct Lookup<'a> {
    resolver: &'a Resolver,
    host: &'a str,
    answered: bool,
}

impl Drop for Lookup<'_> {
    fn drop(&mut self) {
        let mut hung = lock(&self.resolver.hung);
        if self.answered {
            hung.remove(self.host);
            return;
        }
        hung.insert(self.host.to_owned());
        lock(&self.resolver.resolved).retain(|name| name != self.host);
        if hung.len() > MAX_HUNG_NAMES {
            hung.pop_first();
        }
    }
}

impl Resolver {
    pub const fn new() -> Self {
        Self {
            new_slots: Semaphore::const_new(MAX_NEW_LOOKUPS),
            known_slots: Semaphore::const_new(MAX_KNOWN_LOOKUPS),
            retry_slots: Semaphore::const_new(MAX_HUNG_LOOKUPS),
            hung: Mutex::new(BTreeSet::new()),
            resolved: Mutex::new(VecDeque::new()),
        }
    }

    pub async fn addresses(&'static self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let known = addresses_in_hosts_file(&hosts_file(), host);
        if !known.is_empty() {
            return Ok(known.into_iter().map(|address| (address, port).into()).collect());
        }
        let name = host.to_owned();
        let query = move || Ok((name, port).to_socket_addrs()?.take(MAX_ADDRESSES).collect());
        self.resolve_with(host, query).await
    }

    /// Runs a query, which keeps its slot until it ends, even if the caller has given up.
    async fn resolve_with<T: Send + 'static>(
        &'static self,
        host: &str,
        query: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let slot = self.slots(host).acquire().await.map_err(io::Error::other)?;
        let mut lookup = Lookup { resolver: self, host, answered: false };
        let result = tokio::task::spawn_blocking(move || {
            let _slot = slot;
            query()
        });
        let result = result.await;
        lookup.answered = true;
        let found = result??;
        self.remember(host);
        Ok(found)
    }

    fn slots(&self, host: &str) -> &Semaphore {
        if lock(&self.resolved).iter().any(|name| name == host) {
            &self.known_slots
        } else if lock(&self.hung).contains(host) {
            &self.retry_slots
        } else {
            &self.new_slots
        }
    }

    fn remember(&self, host: &str) {
        let mut resolved = lock(&self.resolved);
        resolved.retain(|name| name != host);
        if resolved.len() >= MAX_RESOLVED {
            resolved.pop_front();
        }
        resolved.push_back(host.to_owned());
    }
}

/// The text of the hosts file; empty if it cannot be read.
fn hosts_file() -> String {
    let mut text = String::new();
    if let Ok(file) = std::fs::File::open(HOSTS_FILE) {
        // Names in a file that is not UTF-8, or beyond the limit, are looked up.
        let _ = file.take(MAX_HOSTS_BYTES).read_to_string(&mut text);
    }
    text
}

/// Addresses of `host` in a hosts file: `ADDRESS NAME NAME ... # COMMENT`.
fn addresses_in_hosts_file(text: &str, host: &str) -> Vec<IpAddr> {
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
    fn names_in_the_hosts_file_need_no_name_server() {
        let text =
            "# 10.0.0.9 robot1\n127.0.0.1 localhost\n10.0.0.1\tRobot1 r1 # robot2\n::1 r1\nx r1";
        let of = |host: &str| addresses_in_hosts_file(text, host);
        assert_eq!(of("robot1"), ["10.0.0.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(of("r1").len(), 2);
        assert!(of("robot2").is_empty());
    }

    #[test]
    fn hanging_name_lookups_do_not_delay_others() {
        static RESOLVER: Resolver = Resolver::new();
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        let (end, ends) = channel::<()>();
        let ends = Arc::new(Mutex::new(ends));
        let hangs = |ends: Arc<Mutex<Receiver<()>>>| {
            move || {
                BEGUN.fetch_add(1, Ordering::Relaxed);
                let _ = lock(&ends).recv();
                Ok(0)
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for _ in 0..10 {
                let asked = RESOLVER.resolve_with("hangs", hangs(ends.clone()));
                assert!(timeout(Duration::from_millis(10), asked).await.is_err());
            }
            assert!(BEGUN.load(Ordering::Relaxed) <= 1 + MAX_HUNG_LOOKUPS);
            assert_eq!(
                RESOLVER.new_slots.available_permits(),
                MAX_NEW_LOOKUPS - 1,
                "the others have theirs"
            );
            assert_eq!(RESOLVER.resolve_with("answers", || Ok(1)).await.unwrap(), 1);
            drop(end);
            assert_eq!(
                RESOLVER.resolve_with("hangs", || Ok(2)).await.unwrap(),
                2,
                "the slots are free again"
            );
            assert!(lock(&RESOLVER.hung).is_empty(), "it answered");
        });
    }
    #[test]
    fn endless_new_names_do_not_delay_known_names() {
        static RESOLVER: Resolver = Resolver::new();
        let (end, ends) = channel::<()>();
        let ends = Arc::new(Mutex::new(ends));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            assert_eq!(RESOLVER.resolve_with("robot2", || Ok(1)).await.unwrap(), 1);
            for number in 0..2 * MAX_NEW_LOOKUPS {
                let (ends, name) = (ends.clone(), format!("new{number}"));
                let asked = RESOLVER.resolve_with(&name, move || Ok(lock(&ends).recv().is_ok()));
                assert!(timeout(Duration::from_millis(1), asked).await.is_err());
            }
            assert_eq!(RESOLVER.new_slots.available_permits(), 0);
            assert_eq!(RESOLVER.resolve_with("robot2", || Ok(2)).await.unwrap(), 2);
            drop(end);
        });
        for number in 0..2 * MAX_RESOLVED {
            RESOLVER.remember(&number.to_string());
        }
        assert_eq!(lock(&RESOLVER.resolved).len(), MAX_RESOLVED);
    }
}
