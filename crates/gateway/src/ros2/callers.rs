// SPDX-License-Identifier: Apache-2.0
//! Local clients that wait for a response of a peer's service. They outlive our endpoints for the
//! service, which are deleted while its server is away. A file keeps the clients that wait for a
//! response about a goal over a restart of this node: DDS does not give their requests to a new reader.

use super::pairing::Caller;
use crate::CallId;
use crate::state_file::{self, StateFile};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::time::Duration;
use tautline_dds::Guid;

/// Maximum number of pending calls of one service; further calls are counted and not answered.
pub const MAX_CALLERS: usize = 1024;
/// Maximum total number of calls that are kept over a restart.
const MAX_SAVED_CALLS: usize = 1024;
/// Largest request that is read from the file, in bytes.
const MAX_REQUEST_BYTES: usize = 64;

pub type Callers = StateFile<PendingCalls>;

/// The pending calls of each service.
#[derive(Default)]
pub struct PendingCalls {
    services: BTreeMap<String, HashMap<CallId, Call>>,
    /// Calls from before a restart, until their service is served again.
    interrupted: Vec<(String, Caller, Bytes)>,
    saved_count: usize,
    is_unsaved: bool,
}

#[derive(Debug)]
struct Call {
    caller: Caller,
    /// The request, if it is kept over a restart.
    request: Option<Bytes>,
    was_interrupted: bool,
    is_answered: bool,
}

/// A caller whose response has arrived.
#[derive(Debug, Clone, Copy)]
pub struct AnsweredCaller {
    pub caller: Caller,
    /// Whether it called before a restart of this node, whose endpoints it has to find again.
    pub was_interrupted: bool,
}

impl PendingCalls {
    /// Adds a call, with its request if that is kept over a restart; `false` if the service has
    /// too many.
    pub fn add(
        &mut self,
        service: &str,
        call: CallId,
        caller: Caller,
        request: Option<Bytes>,
    ) -> bool {
        self.insert(
            service,
            call,
            Call { caller, request, was_interrupted: false, is_answered: false },
        )
    }

    fn insert(&mut self, service: &str, id: CallId, mut call: Call) -> bool {
        let calls = self.services.entry(service.to_owned()).or_default();
        if calls.len() >= MAX_CALLERS {
            return false;
        }
        call.request = call.request.filter(|_| self.saved_count < MAX_SAVED_CALLS);
        if call.request.is_some() {
            self.saved_count += 1;
            self.is_unsaved = true;
        }
        calls.insert(id, call);
        true
    }

    /// Returns the caller of a pending call whose outcome is known, once for each call.
    pub fn answer(&mut self, service: &str, call: CallId) -> Option<AnsweredCaller> {
        let call = self.services.get_mut(service)?.get_mut(&call)?;
        let is_first = !std::mem::replace(&mut call.is_answered, true);
        let Call { caller, was_interrupted, .. } = *call;
        is_first.then_some(AnsweredCaller { caller, was_interrupted })
    }

    /// Removes a call whose response was sent, or that will not have one.
    pub fn remove(&mut self, service: &str, call: CallId) {
        self.remove_if(service, |id, _| *id == call);
    }

    /// Removes the calls of a client that has left.
    pub fn forget(&mut self, client: Guid) {
        for service in self.services.keys().cloned().collect::<Vec<_>>() {
            self.remove_if(&service, |_, call| call.caller.writer == client);
        }
    }

    fn remove_if(&mut self, service: &str, is_over: impl Fn(&CallId, &Call) -> bool) {
        let Some(calls) = self.services.get_mut(service) else { return };
        let removed = calls.extract_if(|id, call| is_over(id, call));
        let kept = removed.filter(|(_, call)| call.request.is_some()).count();
        if calls.is_empty() {
            self.services.remove(service);
        }
        self.saved_count -= kept;
        self.is_unsaved |= kept > 0;
    }

    /// Resumes the calls of a service that a restart interrupted. `next_id` returns a new number for
    /// each call.
    pub fn resume(
        &mut self,
        service: &str,
        mut next_id: impl FnMut() -> CallId,
    ) -> Vec<(CallId, Bytes)> {
        let interrupted = self.interrupted.extract_if(.., |(name, ..)| name == service);
        let interrupted: Vec<_> = interrupted.collect();
        self.saved_count -= interrupted.len();
        let mut resumed = Vec::new();
        for (_, caller, request) in interrupted {
            let id = next_id();
            let kept = Some(request.clone());
            let call = Call { caller, request: kept, was_interrupted: true, is_answered: false };
            if self.insert(service, id, call) {
                resumed.push((id, request));
            }
        }
        resumed
    }
}

impl state_file::State for PendingCalls {
    const THREAD: &str = "goals";
    const WITHOUT_FILE: &str = "clients that waited for a response about a goal get none";
    /// No delay: a goal whose client has its response must not be refused after a restart.
    const SAVE_DELAY: Duration = Duration::ZERO;

    /// A line for each call, with the service, the caller, and the request in hexadecimal digits.
    fn file_text(&self) -> String {
        let calls = self.services.iter().flat_map(|(service, calls)| {
            let kept =
                calls.values().filter_map(|call| Some((call.caller, call.request.as_ref()?)));
            kept.map(move |(caller, request)| (service, caller, request))
        });
        let interrupted = self.interrupted.iter();
        let interrupted = interrupted.map(|(service, caller, request)| (service, *caller, request));
        let mut text = String::new();
        for (service, caller, request) in calls.chain(interrupted) {
            let _ = writeln!(text, "{service} {} {}", caller.file_text(), encode_hex(request));
        }
        text
    }

    fn read(&mut self, text: &str) {
        for line in text.lines().take(MAX_SAVED_CALLS) {
            let mut words = line.splitn(3, ' ');
            let (Some(service), Some(caller), Some(request)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let (Some(caller), Some(request)) = (Caller::read(caller), decode_hex(request)) else {
                continue;
            };
            if request.len() <= MAX_REQUEST_BYTES {
                self.interrupted.push((service.to_owned(), caller, request.into()));
            }
        }
        self.saved_count = self.interrupted.len();
    }

    fn take_unsaved(&mut self) -> bool {
        std::mem::take(&mut self.is_unsaved)
    }
}

/// Bytes as hexadecimal digits.
pub fn encode_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of hexadecimal digits.
pub fn decode_hex(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ros2::pairing::tests::callers_of_both_kinds;
    use state_file::State;

    fn request(goal: u8) -> Bytes {
        vec![goal; 20].into()
    }

    fn resume(waiting: &mut PendingCalls, service: &str) -> Vec<(CallId, Bytes)> {
        let mut last = 100;
        waiting.resume(service, || {
            last += 1;
            last
        })
    }

    #[test]
    fn calls_about_goals_are_kept_across_restarts_until_answered() {
        let [one, two] = callers_of_both_kinds();
        let mut first = PendingCalls::default();
        assert!(first.add("/a", 1, one, Some(request(1))));
        assert!(first.add("/a", 2, two, Some(request(2))));
        assert!(first.add("/b", 3, one, Some(request(3))));
        assert!(first.add("/b", 4, one, None));
        first.remove("/b", 3);
        assert!(first.take_unsaved() && !first.take_unsaved());
        first.remove("/b", 4);
        assert!(!first.take_unsaved(), "it was not kept");

        let mut second = PendingCalls::default();
        second.read(&first.file_text());
        assert!(resume(&mut second, "/b").is_empty());
        // A service that does not return before the next restart.
        let mut third = PendingCalls::default();
        third.read(&second.file_text());
        let mut resumed = resume(&mut third, "/a");
        resumed.sort_by_key(|(_, request)| request.clone());
        assert_eq!([&resumed[0].1, &resumed[1].1], [&request(1), &request(2)]);
        assert!(resume(&mut third, "/a").is_empty(), "once");
        for ((call, _), caller) in resumed.iter().zip([one, two]) {
            let found = third.answer("/a", *call).unwrap();
            assert!(third.answer("/a", *call).is_none(), "once");
            assert!(found.was_interrupted);
            assert_eq!(found.caller.file_text(), caller.file_text());
        }
        assert_eq!(third.file_text().lines().count(), 2);
        third.remove("/a", resumed[0].0);
        third.forget(two.writer);
        assert_eq!((third.file_text().as_str(), third.saved_count), ("", 0));
    }

    #[test]
    fn calls_are_bounded() {
        let [caller, _] = callers_of_both_kinds();
        let mut waiting = PendingCalls::default();
        for service in ["/a", "/b"] {
            let added = (0..2 * MAX_CALLERS as u64)
                .filter(|id| waiting.add(service, *id, caller, Some(request(1))));
            assert_eq!(added.count(), MAX_CALLERS);
        }
        assert_eq!(waiting.file_text().lines().count(), MAX_SAVED_CALLS);
    }

    proptest::proptest! {
        #[test]
        fn any_file_is_read(text: String, digits in "[0-9a-fi+ /\n-]*") {
            let mut waiting = PendingCalls::default();
            waiting.read(&text);
            waiting.read(&digits);
            waiting.file_text();
        }
    }
}
