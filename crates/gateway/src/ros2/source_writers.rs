// SPDX-License-Identifier: Apache-2.0
//! The writers of a transient local publisher of a peer: which of them write a message. Pure.
//!
//! A writer of DDS sends the last messages that it keeps to every reader that matches. Readers that
//! have messages already, from before a restart, or that must not get older ones, do not match it.
//! They have a writer of their own, and each later message is written by both. Thus a late joiner
//! gets as many messages as the publisher keeps, from one writer, and nobody gets one twice. (If the
//! publisher's policies change, or somebody has a newer message and lacks an older one, a second
//! writer follows the first. The first then ends as soon as both keep more than the publisher, and a
//! late joiner may get fewer.)

use crate::Class;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use tautline_dds::{Audience, Guid};

/// A writer for present readers keeps at least this many messages: it is created for one message, but
/// may match the readers only after further messages.
const MIN_PRESENT_DEPTH: u32 = 10;
/// Maximum number of writers of each of the two kinds for one publisher; a further writer ends the
/// oldest.
const MAX_WRITERS_PER_KIND: usize = 4;

/// What distinguishes writers of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policies {
    pub class: Class,
    pub depth: u32,
    pub lifespan: Option<Duration>,
}

/// A message to be written.
pub struct Message<'a> {
    pub identity: u64,
    /// Whether an earlier message with this identity was the same message.
    pub is_repeatable: bool,
    pub policies: &'a Policies,
    /// Readers that have the message already, or that must not get it.
    pub holders: &'a BTreeSet<Guid>,
    /// The present readers that ask for kept messages.
    pub present: &'a BTreeSet<Guid>,
}

/// The writers of one publisher; `W` is the writer of DDS.
pub struct SourceWriters<W> {
    /// Writers that late joiners match, oldest first; usually there is only one.
    late: Vec<LateWriter<W>>,
    present: Vec<PresentWriter<W>>,
}

struct LateWriter<W> {
    writer: W,
    policies: Policies,
    excluded: BTreeSet<Guid>,
    /// Identities of the messages that it keeps, oldest first.
    kept: VecDeque<u64>,
}

/// A writer for readers that a late writer excludes.
struct PresentWriter<W> {
    writer: W,
    class: Class,
    lifespan: Option<Duration>,
    readers: BTreeSet<Guid>,
}

/// Writers for a message.
pub struct SelectedWriters<W> {
    pub writers: Vec<W>,
    /// Writers that are no longer needed.
    pub outdated: Vec<W>,
}

impl<W> Default for SourceWriters<W> {
    fn default() -> Self {
        Self { late: Vec::new(), present: Vec::new() }
    }
}

impl<W: Clone> SourceWriters<W> {
    pub fn len(&self) -> usize {
        self.late.len() + self.present.len()
    }

    /// Whether any of the writers is of this class.
    pub fn has_class(&self, class: Class) -> bool {
        self.with_classes().any(|(of, _)| of == class)
    }

    pub fn with_classes(&self) -> impl Iterator<Item = (Class, &W)> {
        let late = self.late.iter().map(|it| (it.policies.class, &it.writer));
        late.chain(self.present.iter().map(|it| (it.class, &it.writer)))
    }

    /// The messages that a reader gets when it joins.
    pub fn kept_for(&self, reader: &Guid) -> impl Iterator<Item = u64> {
        let late = self.late.iter().filter(|it| !it.excluded.contains(reader));
        late.flat_map(|it| it.kept.iter().copied())
    }

    /// A reader has left. It may return under the same GUID, and then must not match a writer for present
    /// readers, which keeps more messages than the publisher. Returns the writers that ended.
    pub fn on_reader_gone(&mut self, reader: &Guid) -> Vec<W> {
        for it in &mut self.present {
            it.readers.remove(reader);
        }
        let ended = self.present.extract_if(.., |it| it.readers.is_empty());
        ended.map(|it| it.writer).collect()
    }

    /// Selects the writers for a message. `ready` returns a writer for all readers that has the policies
    /// of the message and has written nothing, if there is one; `create` makes others. Present readers
    /// do not match a new writer yet, so another writer serves them.
    ///
    /// # Errors
    /// The error of `create`; the message must not be written then.
    pub fn select<E>(
        &mut self,
        message: &Message<'_>,
        ready: impl FnOnce() -> Option<W>,
        mut create: impl FnMut(&Policies, Audience) -> Result<W, E>,
    ) -> Result<SelectedWriters<W>, E> {
        let left = |it: &mut PresentWriter<W>| it.readers.is_disjoint(message.present);
        let mut outdated: Vec<W> = self.present.extract_if(.., left).map(|it| it.writer).collect();
        let is_kept = |it: &LateWriter<W>| it.kept.contains(&message.identity);
        let known = self.late.iter().position(|it| message.is_repeatable && is_kept(it));
        let at = match known {
            Some(at) => at,
            None => {
                if !self.late.last().is_some_and(|it| it.may_write(message)) {
                    self.late.push(LateWriter::new(message, ready, &mut create)?);
                }
                self.late.len() - 1
            }
        };
        let late = known.is_none().then(|| self.late[at].writer.clone());
        let (present, unused) = self.present_writer(message, at, &mut create)?;
        outdated.extend(unused);
        if known.is_none() {
            outdated.extend(self.keep(message));
        }
        Ok(SelectedWriters { writers: late.into_iter().chain(present).collect(), outdated })
    }

    /// Notes the message at the newest late writer. Removes and returns the oldest late writers if
    /// together they keep more messages than the publisher, or are too many.
    fn keep(&mut self, message: &Message<'_>) -> Vec<W> {
        let depth = message.policies.depth as usize;
        let Some(newest) = self.late.last_mut() else { return Vec::new() };
        newest.kept.push_back(message.identity);
        if newest.kept.len() > depth {
            newest.kept.pop_front();
        }
        let mut count: usize = self.late.iter().map(|it| it.kept.len()).sum();
        let mut end = 0;
        while count > depth || self.late.len() - end > MAX_WRITERS_PER_KIND {
            count -= self.late[end].kept.len();
            end += 1;
        }
        self.late.drain(..end).map(|it| it.writer).collect()
    }

    /// The writer for the present readers that need a message and that the late writer excludes. It is
    /// created before they need one, since best-effort readers get nothing that was written before they
    /// match. Also returns a writer that is no longer needed.
    fn present_writer<E>(
        &mut self,
        message: &Message<'_>,
        late: usize,
        create: &mut impl FnMut(&Policies, Audience) -> Result<W, E>,
    ) -> Result<(Option<W>, Option<W>), E> {
        let Message { policies, holders, .. } = message;
        let excluded = self.late[late].excluded.intersection(message.present);
        let excluded: BTreeSet<Guid> = excluded.copied().collect();
        let recipients: BTreeSet<Guid> = excluded.difference(holders).copied().collect();
        let readers = if recipients.is_empty() { excluded } else { recipients.clone() };
        if readers.is_empty() {
            return Ok((None, None));
        }
        let suits = |it: &&PresentWriter<W>| {
            let same = (it.class, it.lifespan) == (policies.class, policies.lifespan);
            same && it.readers.is_superset(&readers)
                && (recipients.is_empty() || it.readers.is_disjoint(holders))
        };
        if let Some(known) = self.present.iter().find(suits) {
            return Ok(((!recipients.is_empty()).then(|| known.writer.clone()), None));
        }
        let depth = policies.depth.max(MIN_PRESENT_DEPTH);
        let writer =
            create(&Policies { depth, ..(*policies).clone() }, Audience::Only(readers.clone()))?;
        let Policies { class, lifespan, .. } = **policies;
        let needed = (!recipients.is_empty()).then(|| writer.clone());
        let unused =
            (self.present.len() >= MAX_WRITERS_PER_KIND).then(|| self.present.remove(0).writer);
        self.present.push(PresentWriter { writer, class, lifespan, readers });
        Ok((needed, unused))
    }
}

impl<W> LateWriter<W> {
    fn new<E>(
        message: &Message<'_>,
        ready: impl FnOnce() -> Option<W>,
        create: &mut impl FnMut(&Policies, Audience) -> Result<W, E>,
    ) -> Result<Self, E> {
        let policies = message.policies.clone();
        let ready = if message.holders.is_empty() { ready() } else { None };
        let (writer, excluded) = match ready {
            Some(writer) => (writer, BTreeSet::new()),
            None => {
                let excluded = message.holders | message.present;
                (create(&policies, Audience::AllBut(excluded.clone()))?, excluded)
            }
        };
        Ok(Self { writer, policies, excluded, kept: VecDeque::new() })
    }

    /// Whether the writer may write a message: no reader that has the message matches the writer.
    fn may_write(&self, message: &Message<'_>) -> bool {
        self.policies == *message.policies && message.holders.is_subset(&self.excluded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELIABLE: Class = Class { transient_local: true, reliable: true };
    const A: Guid = [1; 16];
    const B: Guid = [2; 16];
    const LATER: Guid = [9; 16];

    /// The DDS writers, identified by their places in `writers`.
    struct World {
        writers: Vec<(Policies, Audience, Vec<u64>)>,
        of_source: SourceWriters<usize>,
        policies: Policies,
        /// Whether a writer waits for the first message.
        has_ready: bool,
        present: BTreeSet<Guid>,
    }

    impl World {
        fn new(depth: u32, has_ready: bool, present: &[Guid]) -> Self {
            let policies = Policies { class: RELIABLE, depth, lifespan: None };
            let everyone = Audience::AllBut(BTreeSet::new());
            let writers = vec![(policies.clone(), everyone, Vec::new())];
            let present = present.iter().copied().collect();
            Self { writers, of_source: SourceWriters::default(), policies, has_ready, present }
        }

        /// Writes a message that some readers have already; returns writers that ended.
        fn write(&mut self, identity: u64, holders: &[Guid]) -> Vec<usize> {
            let Self { writers, of_source, policies, has_ready, present } = self;
            let holders = &holders.iter().copied().collect();
            let message = Message { identity, is_repeatable: true, policies, holders, present };
            let create = |policies: &Policies, audience: Audience| {
                writers.push((policies.clone(), audience, Vec::new()));
                Ok::<_, ()>(writers.len() - 1)
            };
            let ready = || std::mem::take(has_ready).then_some(0);
            let selected = of_source.select(&message, ready, create).unwrap();
            for at in selected.writers {
                self.writers[at].2.push(identity);
            }
            selected.outdated
        }

        /// The messages that a reader gets if it matches only now.
        fn joins(&self, reader: Guid) -> Vec<u64> {
            let there: Vec<usize> = self.of_source.with_classes().map(|(_, at)| *at).collect();
            let all = self.writers.iter().enumerate();
            let matched = all.filter(|(at, it)| there.contains(at) && it.1.includes(&reader));
            let kept = |written: &[u64], depth: u32| {
                written[written.len().saturating_sub(depth as usize)..].to_vec()
            };
            matched.flat_map(|(_, it)| kept(&it.2, it.0.depth)).collect()
        }
    }

    #[test]
    fn a_waiting_writer_gets_all_messages_of_its_publisher() {
        let mut world = World::new(2, true, &[A]);
        for identity in 1..=3 {
            assert!(world.write(identity, &[]).is_empty());
        }
        assert_eq!(world.of_source.len(), 1);
        assert_eq!(world.joins(LATER), [2, 3]);
        assert_eq!(world.of_source.kept_for(&LATER).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn late_joiners_get_as_many_messages_as_the_publisher_keeps() {
        let mut world = World::new(5, true, &[A, B]);
        (1..=3).for_each(|old| drop(world.write(old, &[A, B])));
        assert!(world.joins(A).is_empty());
        assert_eq!(world.joins(LATER), [1, 2, 3]);
        for new in 4..=7 {
            assert!(world.write(new, &[]).is_empty());
            let expected: Vec<u64> = (new.saturating_sub(4).max(1)..=new).collect();
            assert_eq!(world.joins(LATER), expected);
            assert_eq!(world.joins(A), (4..=new).collect::<Vec<_>>());
        }
        assert_eq!(world.of_source.len(), 2);
        assert_eq!(world.of_source.kept_for(&A).count(), 0);
        world.present = [LATER].into();
        assert_eq!(world.write(8, &[]).len(), 1, "the writer for those that have left ends");
        assert_eq!(world.joins(LATER), [4, 5, 6, 7, 8]);
    }

    #[test]
    fn present_readers_miss_nothing_while_a_new_writer_is_not_matched() {
        let mut world = World::new(1, false, &[A]);
        world.write(1, &[]);
        world.write(2, &[]);
        assert_eq!(world.joins(A), [1, 2]);
        assert_eq!(world.joins(LATER), [2]);
    }

    #[test]
    fn a_repeated_message_reaches_only_readers_that_lack_the_message() {
        let mut world = World::new(3, true, &[A, B]);
        world.write(1, &[A]);
        assert_eq!(
            (world.joins(A), world.joins(B), world.joins(LATER)),
            (vec![], vec![1], vec![1])
        );
        world.write(1, &[A, B]);
        world.write(2, &[]);
        assert_eq!((world.joins(A), world.joins(B)), (vec![2], vec![1, 2]));
        assert_eq!(world.joins(LATER), [1, 2]);
    }

    #[test]
    fn a_writer_for_late_joiners_keeps_no_more_messages_than_its_publisher() {
        let mut world = World::new(2, true, &[A]);
        (1..=2).for_each(|new| drop(world.write(new, &[])));
        assert_eq!(world.write(3, &[A]), [0]);
        assert_eq!(world.joins(LATER), [3]);
        assert!(world.joins(A).is_empty());
    }

    #[test]
    fn writers_for_present_readers_are_bounded() {
        let readers: Vec<Guid> = (10..30).map(|number| [number; 16]).collect();
        let mut world = World::new(1, true, &readers);
        for (at, reader) in readers.iter().enumerate() {
            world.write(at as u64, &[*reader]);
        }
        assert!(world.of_source.len() <= 1 + MAX_WRITERS_PER_KIND);
    }

    #[test]
    fn a_publisher_whose_policies_change_with_each_message_has_few_writers() {
        let mut world = World::new(1000, true, &[]);
        for identity in 0..100 {
            world.policies.lifespan = Some(Duration::from_secs(identity % 2));
            world.write(identity, &[]);
        }
        assert_eq!(world.of_source.len(), MAX_WRITERS_PER_KIND);
    }

    #[test]
    fn a_returning_reader_does_not_match_its_former_writer() {
        let mut world = World::new(1, true, &[A, B]);
        world.write(1, &[A, B]);
        world.write(2, &[]);
        assert!(world.of_source.on_reader_gone(&A).is_empty());
        assert_eq!(world.of_source.on_reader_gone(&B).len(), 1);
        assert_eq!(world.of_source.len(), 1);
    }
}
