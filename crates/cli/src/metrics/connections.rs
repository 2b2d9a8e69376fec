// SPDX-License-Identifier: Apache-2.0
//! Admission of connections to the metrics port. A connection that waits for its client (for the request or
//! for the client to read) is closed when a new one needs its slot. Silent connections exclude nobody,
//! whatever their number.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tautline_proto::Place;

/// Maximum number of connections.
pub const MAX_CONNECTIONS: usize = 32;
/// Maximum number of connections of one address (of IPv6: of one /64 network).
pub const MAX_CONNECTIONS_PER_ADDRESS: usize = 8;
/// Maximum number of threads, including those of closed connections that are about to end.
const MAX_THREADS: usize = 2 * MAX_CONNECTIONS;

/// All connections, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<Vec<Connection>>);

#[derive(Debug)]
struct Connection {
    owner: Vec<u8>,
    stream: Arc<TcpStream>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The connection waits for its client.
    Idle,
    /// The node produces the response.
    Busy,
    /// The connection was closed for another one; its thread has not ended yet.
    Closed,
}

impl Connections {
    /// Admits a connection. `None` if the connections that reach a limit are all at work, or if too many
    /// threads of closed connections have not ended.
    pub(super) fn admit(
        self: &Arc<Self>,
        stream: TcpStream,
        from: SocketAddr,
    ) -> Option<AdmittedConnection> {
        let owner = Place::from(from).owner();
        let stream = Arc::new(stream);
        let mut all = self.lock();
        let is_admitted = all.len() < MAX_THREADS
            && make_room(&mut all, MAX_CONNECTIONS_PER_ADDRESS, |it| it.owner == owner)
            && make_room(&mut all, MAX_CONNECTIONS, |_| true);
        if !is_admitted {
            return None;
        }
        all.push(Connection { owner, stream: stream.clone(), state: State::Idle });
        Some(AdmittedConnection { stream, connections: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether another connection is allowed because fewer than `most` open connections match `counts`.
/// If necessary, first closes the oldest matching connection that waits for its client.
fn make_room(all: &mut [Connection], most: usize, counts: impl Fn(&Connection) -> bool) -> bool {
    if all.iter().filter(|it| it.state != State::Closed && counts(it)).count() < most {
        return true;
    }
    let Some(oldest) = all.iter_mut().find(|it| it.state == State::Idle && counts(it)) else {
        return false;
    };
    oldest.state = State::Closed;
    let _ = oldest.stream.shutdown(Shutdown::Both);
    true
}

/// An admitted connection; frees its slot when dropped.
#[derive(Debug)]
pub(super) struct AdmittedConnection {
    stream: Arc<TcpStream>,
    connections: Arc<Connections>,
}

impl AdmittedConnection {
    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Runs `work`, which does not depend on the client; the connection stays open until `work` ends.
    /// Returns `None` if the connection was closed before.
    pub(super) fn work<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        if !self.set_state(State::Busy) {
            return None;
        }
        let done = work();
        self.set_state(State::Idle);
        Some(done)
    }

    /// Sets the state; returns whether the connection is still open.
    fn set_state(&self, state: State) -> bool {
        let mut all = self.connections.lock();
        let own = all.iter_mut().find(|it| Arc::ptr_eq(&it.stream, &self.stream));
        let open = own.filter(|it| it.state != State::Closed);
        open.map(|it| it.state = state).is_some()
    }
}

impl Drop for AdmittedConnection {
    fn drop(&mut self) {
        self.connections.lock().retain(|it| !Arc::ptr_eq(&it.stream, &self.stream));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{IpAddr, TcpListener};

    struct Fixture {
        listener: TcpListener,
        connections: Arc<Connections>,
    }

    impl Fixture {
        fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            Self { listener, connections: Arc::default() }
        }

        /// Admits a connection as if it came from `from`; returns it and its other end.
        fn admit(&self, from: &str) -> Option<(AdmittedConnection, TcpStream)> {
            let there = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
            let (here, _) = self.listener.accept().unwrap();
            let from = SocketAddr::new(from.parse::<IpAddr>().unwrap(), 1);
            Some((self.connections.admit(here, from)?, there))
        }
    }

    fn is_closed(there: &mut TcpStream) -> bool {
        there.set_nonblocking(true).unwrap();
        matches!(there.read(&mut [0]), Ok(0))
    }

    #[test]
    fn the_oldest_silent_connection_is_closed() {
        let fixture = Fixture::new();
        let mut of_one: Vec<_> =
            (0..MAX_CONNECTIONS_PER_ADDRESS).map(|_| fixture.admit("10.0.0.1").unwrap()).collect();
        let other = fixture.admit("10.0.0.2").unwrap();
        of_one[0].0.set_state(State::Busy);
        let new = fixture.admit("10.0.0.1").unwrap();
        let closed: Vec<_> = of_one.iter_mut().map(|(_, there)| is_closed(there)).collect();
        assert_eq!(closed.iter().filter(|it| **it).count(), 1);
        assert!(closed[1], "the oldest that waits: {closed:?}");
        assert_eq!(of_one[1].0.work(|| "an answer"), None, "whatever it had asked before");
        assert_eq!(of_one[2].0.work(|| "an answer"), Some("an answer"));
        drop(of_one.remove(1));
        assert!(of_one.iter().chain([&new]).all(|(served, _)| served.set_state(State::Busy)));
        assert!(fixture.admit("10.0.0.1").is_none(), "all are at work");
        assert!(fixture.admit("10.0.0.2").is_some(), "which is nothing to others");
        drop((of_one, other));
        assert!(fixture.admit("10.0.0.1").is_some(), "places are free again");
    }

    #[test]
    fn connections_of_many_addresses_have_a_common_limit() {
        let fixture = Fixture::new();
        let all: Vec<_> =
            (0..100).filter_map(|host| fixture.admit(&format!("10.0.1.{host}"))).collect();
        assert_eq!(all.len(), MAX_THREADS, "no thread has ended");
        let open = all.iter().filter(|(served, _)| served.set_state(State::Idle)).count();
        assert_eq!(open, MAX_CONNECTIONS);
        drop(all);
        assert_eq!(fixture.connections.lock().len(), 0);
    }
}
