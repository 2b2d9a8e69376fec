// SPDX-License-Identifier: Apache-2.0
//! Admission of clients to the control socket. Each user has a limited number of connections, and some
//! connections are reserved for root and the daemon's own user. An idle client is disconnected when its
//! slot is needed.

use rustix::net::SendFlags;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of clients of one user; a further client gets an error and is disconnected.
pub const MAX_CLIENTS_PER_USER: usize = 8;
/// Maximum number of clients of all users except root and the daemon's own user, which have slots
/// in addition.
pub const MAX_CLIENTS: usize = 24;
/// Time without a request after which a client is disconnected if another one needs its slot.
/// `tautline top` asks once per second.
pub const EVICTION_IDLE_TIME: Duration = Duration::from_secs(5);
/// Error sent to a client that is disconnected because it is idle.
const EVICTED_ERROR: &[u8] =
    b"{\"error\":\"this connection was idle and was closed for another client\"}\n";
const ROOT: u32 = 0;

#[derive(Debug)]
pub(super) struct Clients {
    own: u32,
    all: Mutex<Vec<Client>>,
}

#[derive(Debug)]
struct Client {
    uid: u32,
    stream: Arc<UnixStream>,
    /// Time of the last response; `None` while a request is processed.
    idle_since: Option<Instant>,
}

impl Clients {
    pub(super) fn new(own: u32) -> Arc<Self> {
        Arc::new(Self { own, all: Mutex::default() })
    }

    /// Admits a client of a user; the error is for the client.
    pub(super) fn admit(
        self: &Arc<Self>,
        now: Instant,
        uid: u32,
        stream: Arc<UnixStream>,
    ) -> Result<Slot, String> {
        let mut all = self.lock();
        let of_user = |it: &Client| it.uid == uid;
        if !make_room(&mut all, now, MAX_CLIENTS_PER_USER, of_user) {
            let most = MAX_CLIENTS_PER_USER;
            return Err(format!(
                "{most} clients of this user are connected already; close one of them"
            ));
        }
        let is_other = |it: &Client| !self.is_kept(it.uid);
        if !self.is_kept(uid) && !make_room(&mut all, now, MAX_CLIENTS, is_other) {
            return Err(format!("{MAX_CLIENTS} clients are connected already; try again later"));
        }
        all.push(Client { uid, stream: stream.clone(), idle_since: Some(now) });
        Ok(Slot { stream, clients: self.clone() })
    }

    /// Whether slots are reserved for this user.
    fn is_kept(&self, uid: u32) -> bool {
        uid == ROOT || uid == self.own
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Client>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether another client may connect because fewer than `most` clients match `counts`. If
/// necessary, first disconnects the matching client that has been idle for longest.
fn make_room(
    all: &mut Vec<Client>,
    now: Instant,
    most: usize,
    counts: impl Fn(&Client) -> bool,
) -> bool {
    if all.iter().filter(|it| counts(it)).count() < most {
        return true;
    }
    let idle = all.iter().enumerate().filter(|(_, it)| counts(it));
    let idle = idle.filter_map(|(index, it)| Some((it.idle_since?, index)));
    match idle.min() {
        Some((since, index)) if now.saturating_duration_since(since) >= EVICTION_IDLE_TIME => {
            disconnect(&all.swap_remove(index).stream);
            true
        }
        _ => false,
    }
}

fn disconnect(stream: &UnixStream) {
    // A client that does not read must not delay new clients: bytes that do not fit are discarded.
    let _ = rustix::net::send(stream, EVICTED_ERROR, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    let _ = stream.shutdown(Shutdown::Both);
}

/// A client's slot, freed when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    stream: Arc<UnixStream>,
    clients: Arc<Clients>,
}

impl Slot {
    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Marks the client as busy; returns `false` if it has just been disconnected.
    pub(super) fn mark_busy(&self) -> bool {
        self.set_idle(None)
    }

    pub(super) fn mark_idle(&self, now: Instant) {
        self.set_idle(Some(now));
    }

    fn set_idle(&self, since: Option<Instant>) -> bool {
        let mut all = self.clients.lock();
        let own = all.iter_mut().find(|it| Arc::ptr_eq(&it.stream, &self.stream));
        own.map(|client| client.idle_since = since).is_some()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.clients.lock().retain(|it| !Arc::ptr_eq(&it.stream, &self.stream));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    const OWN: u32 = 990;

    struct Fixture {
        clients: Arc<Clients>,
        start: Instant,
    }

    impl Fixture {
        fn new() -> Self {
            Self { clients: Clients::new(OWN), start: Instant::now() }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        fn admit(&self, seconds: u64, uid: u32) -> Result<(Slot, UnixStream), String> {
            let (here, there) = UnixStream::pair().unwrap();
            Ok((self.clients.admit(self.at(seconds), uid, here.into())?, there))
        }
    }

    #[test]
    fn connections_of_each_user_are_bounded() {
        let fixture = Fixture::new();
        let of_all = |uids: std::ops::Range<u32>| -> Vec<_> {
            let many = uids.flat_map(|uid| std::iter::repeat_n(uid, 20));
            many.filter_map(|uid| fixture.admit(0, uid).ok()).collect()
        };
        let first = of_all(1000..1001);
        assert_eq!(first.len(), MAX_CLIENTS_PER_USER);
        let error = fixture.admit(1, 1000).unwrap_err();
        assert!(error.contains("of this user"), "{error}");
        let more = of_all(1001..1020);
        assert_eq!(first.len() + more.len(), MAX_CLIENTS);
        for uid in [ROOT, OWN] {
            assert_eq!(of_all(uid..uid + 1).len(), MAX_CLIENTS_PER_USER, "{uid}");
        }
        drop(first);
        assert!(fixture.admit(1, 1000).is_ok(), "places are free again");
    }

    #[test]
    fn idle_clients_are_closed_oldest_first_and_active_ones_stay() {
        let fixture = Fixture::new();
        let mut served: Vec<_> = (0..MAX_CLIENTS_PER_USER as u64)
            .map(|second| fixture.admit(second, 1000).unwrap())
            .collect();
        let (polls, waits) = (&served[0].0, &served[1].0);
        assert!(polls.mark_busy() && waits.mark_busy());
        polls.mark_idle(fixture.at(8));
        assert!(
            fixture.admit(EVICTION_IDLE_TIME.as_secs() + 1, 1000).is_err(),
            "none idle for so long"
        );
        let new = fixture.admit(EVICTION_IDLE_TIME.as_secs() + 2, 1000).unwrap();
        let mut told = String::new();
        served[2].1.read_to_string(&mut told).unwrap();
        assert!(told.contains("closed for another client"), "{told}");
        assert!(!served[2].0.mark_busy(), "it has no slot any more");
        for other in [0, 1, 3, 4, 5, 6, 7] {
            assert!(served[other].0.mark_busy(), "{other}");
        }
        assert!(new.0.mark_busy());
    }

    #[test]
    fn idle_clients_of_any_user_are_closed_for_new_ones() {
        let fixture = Fixture::new();
        let idle: Vec<_> = (0..MAX_CLIENTS as u32)
            .map(|index| fixture.admit(0, 1000 + index / 8).unwrap())
            .collect();
        assert!(fixture.admit(1, 2000).unwrap_err().contains("try again later"));
        assert!(fixture.admit(60, 2000).is_ok());
        assert_eq!(idle.iter().filter(|(slot, _)| slot.mark_busy()).count(), MAX_CLIENTS - 1);
    }
}
