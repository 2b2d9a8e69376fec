// SPDX-License-Identifier: Apache-2.0
//! tf between robots: filters and renames transforms, and merges the latest of each frame into one
//! message. Pure; messages are untrusted until parsed.
//!
//! ```text
//! message ─▶ Encoding::parse ─▶ Rules::apply ─▶ Merger ─▶ Encoding::emit ─▶ message
//! ```
//! The child frame identifies a transform, since a frame of tf has one parent at a time: when a frame
//! gets another parent, the new transform replaces the old one.
//!
//! [`fields`] renames the frames that other messages name.

pub mod fields;

use crate::Source;
use crate::pattern::Pattern;
use crate::types::transcode::cursor::{Layout, Reader, Writer};
use crate::types::transcode::{MAX_PADDING, TranscodeError, cdr_reader, cdr_writer, expect_end};
use std::borrow::Borrow;
use std::collections::BTreeMap;

/// Maximum number of transforms in one message, and of transforms kept for one topic.
pub const MAX_TRANSFORMS: usize = 4096;
/// Most bytes of a frame's name in a parsed message.
pub const MAX_FRAME_NAME: usize = 255;
/// Most bytes of [`Rules::prefix`].
pub const MAX_PREFIX: usize = 64;

/// The 64-bit numbers of a pose: three of the position, four of the orientation.
const POSE_NUMBERS: usize = 7;
/// The 32-bit words of a header: `seq` and two for the stamp. ROS 2 has no `seq`.
const HEADER_WORDS: usize = 3;
/// Most bytes of one transform: its names, their lengths, padding and final NULs, the numbers.
const MAX_TRANSFORM_BYTES: usize = 2 * (MAX_PREFIX + MAX_FRAME_NAME) + 128;
/// Most bytes of a message.
const MAX_MESSAGE_BYTES: usize = MAX_TRANSFORMS * MAX_TRANSFORM_BYTES;

/// The serialization of a tf type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// ROS 1 serialization of `tf2_msgs/TFMessage`, or of `tf/tfMessage`, which is the same.
    Ros1,
    /// CDR of `tf2_msgs/msg/TFMessage`, encapsulation included; emitted little-endian.
    Ros2,
}

/// The pose of a frame in its parent: one `geometry_msgs/TransformStamped`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transform {
    /// `seq`, seconds and nanoseconds, little-endian; `seq` is 0 in ROS 2.
    header: [u8; 4 * HEADER_WORDS],
    /// `header.frame_id`.
    parent: String,
    /// `child_frame_id`.
    child: String,
    /// The translation x, y, z, then the rotation x, y, z, w; little-endian.
    pose: [u8; 8 * POSE_NUMBERS],
}

impl Encoding {
    /// The encoding of a tf type by its name in its ROS; `None` for other types.
    pub fn of_type(type_name: &str) -> Option<Self> {
        match type_name {
            "tf2_msgs/TFMessage" | "tf/tfMessage" => Some(Self::Ros1),
            "tf2_msgs/msg/TFMessage" => Some(Self::Ros2),
            _ => None,
        }
    }

    /// The number of words in a header of this ROS; they are the last ones of [`HEADER_WORDS`].
    fn header_word_count(self) -> usize {
        match self {
            Self::Ros1 => HEADER_WORDS,
            Self::Ros2 => HEADER_WORDS - 1,
        }
    }

    /// The transforms of a message in its order, without the leading `/` that old tf adds to
    /// names. The error names the transform and the values allowed there.
    pub fn parse(self, message: &[u8]) -> Result<Vec<Transform>, TranscodeError> {
        let (mut from, padding) = match self {
            Self::Ros1 => (Reader::new(message, Layout::ROS1), 0),
            Self::Ros2 => (cdr_reader(message)?, MAX_PADDING),
        };
        let count = from.length().map_err(|error| error.with_outer_field("transforms"))?;
        if count > MAX_TRANSFORMS {
            let problem = format!("{count} elements; allowed: at most {MAX_TRANSFORMS}");
            return Err(TranscodeError::new(problem).with_outer_field("transforms"));
        }
        let each = (0..count).map(|index| {
            let read = self.read(&mut from);
            read.map_err(|error| error.with_outer_field(&format!("transforms[{index}]")))
        });
        let transforms = each.collect::<Result<_, _>>()?;
        expect_end(&from, padding)?;
        Ok(transforms)
    }

    fn read(self, from: &mut Reader<'_>) -> Result<Transform, TranscodeError> {
        let mut header = [0; 4 * HEADER_WORDS];
        let numbers = self.header_word_count();
        let read = from.numbers(4, numbers).map_err(|error| error.with_outer_field("header"))?;
        header[4 * (HEADER_WORDS - numbers)..].copy_from_slice(&read);
        let parent = name(from).map_err(|error| error.with_outer_field("header.frame_id"))?;
        let child = name(from).map_err(|error| error.with_outer_field("child_frame_id"))?;
        let mut pose = [0; 8 * POSE_NUMBERS];
        let read =
            from.numbers(8, POSE_NUMBERS).map_err(|error| error.with_outer_field("transform"))?;
        pose.copy_from_slice(&read);
        Ok(Transform { header, parent, child, pose })
    }

    /// A message with these transforms, at most [`MAX_TRANSFORMS`].
    pub fn emit<T: Borrow<Transform>>(self, transforms: &[T]) -> Result<Vec<u8>, TranscodeError> {
        let mut to = match self {
            Self::Ros1 => Writer::new(&[], Layout::ROS1, MAX_MESSAGE_BYTES),
            Self::Ros2 => cdr_writer(MAX_MESSAGE_BYTES),
        };
        to.length(transforms.len())?;
        for transform in transforms {
            let Transform { header, parent, child, pose } = transform.borrow();
            to.numbers(4, &header[4 * (HEADER_WORDS - self.header_word_count())..])?;
            to.string(parent.as_bytes())?;
            to.string(child.as_bytes())?;
            to.numbers(8, pose)?;
        }
        Ok(to.finish())
    }
}

fn name(from: &mut Reader<'_>) -> Result<String, TranscodeError> {
    let bytes = from.string()?;
    let found = bytes.len();
    if found > MAX_FRAME_NAME {
        let problem = format!("a name of {found} bytes; allowed: at most {MAX_FRAME_NAME}");
        return Err(TranscodeError::new(problem));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|_| TranscodeError::new("a name that is not UTF-8; allowed: UTF-8 text"))?;
    Ok(text.trim_start_matches('/').to_owned())
}

/// The transforms that leave a robot, and their names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// Child frames whose transforms leave, by their names on this robot; empty: all.
    pub frames: Vec<Pattern>,
    /// The prefix of each name (`robot1/`), which may be empty; at most [`MAX_PREFIX`] bytes.
    pub prefix: String,
    /// Frames that keep their names, since all robots share them.
    pub shared: Vec<Pattern>,
}

impl Rules {
    /// Whether every transform leaves unchanged.
    pub fn change_nothing(&self) -> bool {
        self.frames.is_empty() && self.prefix.is_empty()
    }

    /// The transforms that leave, with their new names. All tf implementations ignore transforms
    /// without names, so these do not leave.
    pub fn apply(&self, transforms: Vec<Transform>) -> Vec<Transform> {
        let leaves = |t: &Transform| {
            let named = self.frames.is_empty() || any_matches(&self.frames, &t.child);
            named && !t.child.is_empty() && !t.parent.is_empty()
        };
        let renamed = |t: Transform| Transform {
            parent: self.new_name(&t.parent),
            child: self.new_name(&t.child),
            ..t
        };
        transforms.into_iter().filter(leaves).map(renamed).collect()
    }

    /// The name of a frame in messages that leave, without the leading `/` that old tf adds.
    pub fn new_name(&self, name: &str) -> String {
        let name = name.trim_start_matches('/');
        let stays = name.is_empty() || self.has_prefix(name) || any_matches(&self.shared, name);
        let prefix = if stays { "" } else { &self.prefix };
        format!("{prefix}{name}")
    }

    /// The name on this robot of a frame in messages that arrive: without the prefix.
    pub fn own_name<'a>(&self, name: &'a str) -> &'a str {
        let bare = name.trim_start_matches('/');
        let rest = bare.strip_prefix(self.prefix.as_str()).filter(|_| self.has_prefix(bare));
        rest.filter(|rest| !rest.is_empty()).unwrap_or(name)
    }

    /// Whether a name has the prefix already. With a prefix such as `r`, that cannot be known: the
    /// frame `roof` begins with it as well.
    fn has_prefix(&self, name: &str) -> bool {
        let last = self.prefix.chars().next_back();
        last.is_some_and(|last| !last.is_ascii_alphanumeric()) && name.starts_with(&self.prefix)
    }
}

fn any_matches(patterns: &[Pattern], name: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(name))
}

/// The latest transform of each frame from each publisher of one topic.
#[derive(Debug, Default)]
pub struct Merger {
    /// By child frame and publisher; at most [`MAX_TRANSFORMS`].
    kept: BTreeMap<(String, Source), Kept>,
    /// The number of changes so far.
    changes: u64,
    has_news: bool,
}

#[derive(Debug)]
struct Kept {
    /// The last change of the frame, in [`Merger::changes`].
    change: u64,
    transform: Transform,
}

impl Merger {
    /// Adds transforms in the order of publication; returns the number that did not fit.
    pub fn add(&mut self, source: Source, transforms: Vec<Transform>) -> usize {
        let rejected = |transform| usize::from(!self.keep(source, transform));
        transforms.into_iter().map(rejected).sum()
    }

    fn keep(&mut self, source: Source, transform: Transform) -> bool {
        let key = (transform.child.clone(), source);
        let known = self.kept.get(&key);
        if known.is_none() && self.kept.len() >= MAX_TRANSFORMS {
            return false;
        }
        let is_unchanged = |known: &&Kept| {
            let known = &known.transform;
            (&known.parent, known.pose) == (&transform.parent, transform.pose)
        };
        let change = match known.filter(is_unchanged) {
            Some(same) => same.change,
            None => {
                self.changes += 1;
                self.has_news = true;
                self.changes
            }
        };
        self.kept.insert(key, Kept { change, transform });
        true
    }

    /// Gives a publisher another number.
    pub fn rename(&mut self, source: Source, successor: Source) {
        let of_source = self.kept.extract_if(.., |(_, from), _| *from == source);
        let renamed: Vec<_> =
            of_source.map(|((child, _), kept)| ((child, successor), kept)).collect();
        self.kept.extend(renamed);
    }

    /// Removes the transforms of a publisher.
    pub fn remove(&mut self, source: Source) {
        let before = self.kept.len();
        self.kept.retain(|(_, from), _| *from != source);
        self.has_news |= self.kept.len() < before;
    }

    /// Removes all transforms.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether [`Merger::latest`] differs from the last sent message in more than its stamps.
    pub fn has_news(&self) -> bool {
        self.has_news
    }

    /// One transform of each frame, ordered by frame. If a frame has several publishers, the transform
    /// that changed last is returned.
    pub fn latest(&self) -> Vec<&Transform> {
        let all: Vec<&Kept> = self.kept.values().collect();
        let frames = all.chunk_by(|one, two| one.transform.child == two.transform.child);
        let newest = frames.filter_map(|of_frame| of_frame.iter().max_by_key(|kept| kept.change));
        newest.map(|kept| &kept.transform).collect()
    }

    /// Records that [`Merger::latest`] was sent. With `keep`, its transforms stay for late joiners.
    pub fn mark_sent(&mut self, keep: bool) {
        self.has_news = false;
        if !keep {
            self.kept.clear();
        }
    }
}
