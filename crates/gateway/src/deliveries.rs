// SPDX-License-Identifier: Apache-2.0
//! Which local subscribers have which messages that publishers keep for late joiners. Such a message
//! may come again, after an outage or a restart of a peer or of this node: each subscriber gets it
//! once. A file keeps this knowledge over a restart of this node.

use crate::state_file::{self, StateFile};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Identifies a subscriber while its process lives.
pub type Subscriber = u128;

/// Maximum number of topics whose deliveries are remembered. Kept messages of further topics may reach a
/// subscriber twice.
const MAX_TOPICS: usize = 4096;
/// Maximum number of remembered messages of one topic: the newest.
const MAX_MESSAGES: usize = 1024;
/// Maximum number of remembered messages of all topics; further messages are not remembered.
const MAX_ALL_MESSAGES: usize = 65_536;
/// Maximum number of remembered subscribers of one message; further subscribers are not remembered.
const MAX_SUBSCRIBERS: usize = 256;

/// The deliveries so far, shared by the parts of a gateway.
#[derive(Clone, Default)]
pub struct Deliveries(StateFile<State>);

#[derive(Default)]
struct State {
    /// The messages of each topic, oldest first.
    topics: BTreeMap<String, VecDeque<Delivery>>,
    messages: usize,
    is_unsaved: bool,
}

struct Delivery {
    identity: u64,
    subscribers: BTreeSet<Subscriber>,
}

impl Deliveries {
    /// Reads the file at `path`, if there is one, and writes it after changes. Without a path,
    /// nothing is kept over a restart.
    pub fn open(path: Option<PathBuf>) -> Self {
        Self(StateFile::open(path))
    }

    /// Whether any message of a topic was delivered.
    pub fn has_deliveries(&self, topic: &str) -> bool {
        self.0.with(|state| state.topics.contains_key(topic))
    }

    /// The subscribers that have a message.
    pub fn subscribers(&self, topic: &str, identity: u64) -> BTreeSet<Subscriber> {
        let found = |state: &mut State| Some(state.delivery(topic, identity)?.subscribers.clone());
        self.0.with(found).unwrap_or_default()
    }

    /// The subscribers that have any message of a topic.
    pub fn all_subscribers(&self, topic: &str) -> BTreeSet<Subscriber> {
        self.0.with(|state| {
            let messages = state.topics.get(topic).into_iter().flatten();
            messages.flat_map(|it| &it.subscribers).copied().collect()
        })
    }

    /// Whether a subscriber has a message.
    pub fn was_delivered(&self, topic: &str, identity: u64, subscriber: Subscriber) -> bool {
        let has = |it: &Delivery| it.subscribers.contains(&subscriber);
        self.0.with(|state| state.delivery(topic, identity).is_some_and(has))
    }

    /// Forgets the deliveries to a subscriber of a topic that has left. If it returns, it gets all messages.
    pub fn forget(&self, topic: &str, subscriber: Subscriber) {
        self.0.with(|state| {
            for message in state.topics.get_mut(topic).into_iter().flatten() {
                state.is_unsaved |= message.subscribers.remove(&subscriber);
            }
        });
    }

    /// Forgets the unknown subscribers of all topics, and returns them.
    pub fn forget_unknown(&self, is_known: impl Fn(Subscriber) -> bool) -> BTreeSet<Subscriber> {
        self.0.with(|state| {
            let mut gone = BTreeSet::new();
            for message in state.topics.values_mut().flatten() {
                gone.extend(message.subscribers.extract_if(.., |it| !is_known(*it)));
            }
            state.is_unsaved |= !gone.is_empty();
            gone
        })
    }

    /// Records that subscribers have a message.
    pub fn add(
        &self,
        topic: &str,
        identity: u64,
        subscribers: impl IntoIterator<Item = Subscriber>,
    ) {
        self.0.with(|state| state.add(topic, identity, subscribers));
    }
}

impl State {
    fn delivery(&self, topic: &str, identity: u64) -> Option<&Delivery> {
        self.topics.get(topic)?.iter().rev().find(|it| it.identity == identity)
    }

    fn add(
        &mut self,
        topic: &str,
        identity: u64,
        subscribers: impl IntoIterator<Item = Subscriber>,
    ) {
        if !self.topics.contains_key(topic) {
            if self.topics.len() >= MAX_TOPICS {
                return;
            }
            self.topics.insert(topic.to_owned(), VecDeque::new());
        }
        let Some(messages) = self.topics.get_mut(topic) else { return };
        let at = match messages.iter().rposition(|it| it.identity == identity) {
            Some(at) => at,
            None => {
                if messages.len() >= MAX_MESSAGES {
                    messages.pop_front();
                    self.messages -= 1;
                }
                if self.messages >= MAX_ALL_MESSAGES {
                    return;
                }
                self.messages += 1;
                self.is_unsaved = true;
                messages.push_back(Delivery { identity, subscribers: BTreeSet::new() });
                messages.len() - 1
            }
        };
        let known = &mut messages[at].subscribers;
        let room = MAX_SUBSCRIBERS.saturating_sub(known.len());
        let before = known.len();
        known.extend(subscribers.into_iter().take(room));
        self.is_unsaved |= known.len() != before;
    }
}

impl state_file::State for State {
    const THREAD: &str = "latched";
    const WITHOUT_FILE: &str = "latched messages may arrive twice";
    const SAVE_DELAY: Duration = Duration::from_millis(100);

    /// A line for each message, with its topic, its identity and its subscribers, in hexadecimal
    /// digits.
    fn file_text(&self) -> String {
        let mut text = String::new();
        for (topic, messages) in &self.topics {
            // No ROS name contains white space.
            if topic.contains(char::is_whitespace) {
                continue;
            }
            for Delivery { identity, subscribers } in messages {
                let _ = write!(text, "{topic} {identity:x}");
                for subscriber in subscribers {
                    let _ = write!(text, " {subscriber:x}");
                }
                text.push('\n');
            }
        }
        text
    }

    fn read(&mut self, text: &str) {
        for line in text.lines() {
            let mut words = line.split(' ');
            let (Some(topic), Some(identity)) = (words.next(), words.next()) else { continue };
            let Ok(identity) = u64::from_str_radix(identity, 16) else { continue };
            let subscribers = words.filter_map(|it| Subscriber::from_str_radix(it, 16).ok());
            self.add(topic, identity, subscribers);
        }
        self.is_unsaved = false;
    }

    fn take_unsaved(&mut self) -> bool {
        std::mem::take(&mut self.is_unsaved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state_file::State as _;

    #[test]
    fn deliveries_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/robot.latched");
        let first = Deliveries::open(Some(path.clone()));
        first.add("/map", 7, [1, u128::MAX]);
        first.add("/map", 7, [2]);
        first.add("/goal", 7, []);
        drop(first);
        let second = Deliveries::open(Some(path.clone()));
        assert_eq!(second.subscribers("/map", 7), [1, 2, u128::MAX].into());
        assert!(second.was_delivered("/map", 7, 2) && !second.was_delivered("/map", 8, 2));
        second.add("/map", 8, [3]);
        assert_eq!(second.all_subscribers("/map"), [1, 2, 3, u128::MAX].into());
        assert!(second.has_deliveries("/goal") && !second.has_deliveries("/scan"));
        assert_eq!(second.forget_unknown(|it| it < 3), [3, u128::MAX].into());
        assert_eq!(second.all_subscribers("/map"), [1, 2].into());
        second.add("/scan", 1, [5]);
        // Another instance reads the change while `second` is still open.
        let other = || Deliveries::open(Some(path.clone())).has_deliveries("/scan");
        let start = std::time::Instant::now();
        while !other() {
            assert!(start.elapsed() < Duration::from_secs(40), "never saved");
            std::thread::sleep(State::SAVE_DELAY);
        }
    }

    #[test]
    fn remembered_deliveries_are_bounded() {
        let known = Deliveries::open(None);
        for identity in 0..2 * MAX_MESSAGES as u64 {
            known.add("/log", identity, 0..2 * MAX_SUBSCRIBERS as u128);
        }
        let last = 2 * MAX_MESSAGES as u64 - 1;
        assert_eq!(known.subscribers("/log", last).len(), MAX_SUBSCRIBERS);
        assert!(
            !known.was_delivered("/log", 0, 0)
                && known.was_delivered("/log", MAX_MESSAGES as u64, 0)
        );
        for topic in 0..2 * MAX_TOPICS {
            known.add(&format!("/t{topic}"), 1, [1]);
        }
        assert_eq!(known.0.with(|state| state.topics.len()), MAX_TOPICS);
    }

    proptest::proptest! {
        #[test]
        fn any_file_is_read(text: String) {
            State::default().read(&text);
        }
    }
}
