// SPDX-License-Identifier: Apache-2.0
//! Definitions that local publishers tell in their connection headers: equal texts are kept once,
//! and all together within bounds. What finds no room is read from the installed types, or left
//! out: the topic then still passes between robots of ROS 1.

use super::door::locked;
use super::shown;
use crate::sparing::Sparing;
use crate::types::hash::type_hash;
use crate::types::installed::Installed;
use crate::types::{Dialect, Schema};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// Longest definition of one topic; those of the largest common types have around 64 KiB.
const MAX_BYTES: usize = 256 << 10;
/// Bytes of all definitions that are not those of installed types.
const MAX_ALL_BYTES: usize = 32 << 20;
/// Of these, of one publisher's topics.
const MAX_PUBLISHER_BYTES: usize = 4 << 20;
/// Definitions kept, however short.
const MAX_DEFINITIONS: usize = 8192;

/// All definitions in use, shared with whoever uses them.
#[derive(Debug)]
pub(super) struct Definitions {
    installed: Installed,
    /// Each with the publisher that was the first to tell it; `None`: it is installed.
    texts: Mutex<HashMap<Arc<str>, Option<String>>>,
    /// Files are read beside the gateway's thread, one type at a time.
    reading: Semaphore,
}

impl Definitions {
    pub fn new(installed: Installed) -> Arc<Self> {
        Arc::new(Self { installed, texts: Mutex::default(), reading: Semaphore::new(1) })
    }

    /// What to keep of `text`, which the publisher at `uri` tells of its `topic`.
    pub async fn take(
        &self,
        (uri, topic): (&str, &str),
        (type_name, md5): (&str, &str),
        text: &str,
    ) -> Arc<str> {
        let full = match self.keep(text, uri) {
            Ok(kept) => return kept,
            Err(full) => full,
        };
        if let Some(text) = self.installed(type_name, md5).await {
            return self.insert(&text, None);
        }
        static SPARING: Sparing = Sparing::new();
        if let Some(left_out) = SPARING.next() {
            let (topic, type_name) = (shown(topic), shown(type_name));
            tracing::warn!(
                topic,
                left_out,
                "the definition of {type_name} is left out, since {full}: robots of ROS 2 have to \
                 know the type themselves; install its package here"
            );
        }
        "".into()
    }

    fn keep(&self, text: &str, uri: &str) -> Result<Arc<str>, String> {
        let mut texts = locked(&self.texts);
        if let Some((known, _)) = texts.get_key_value(text) {
            return Ok(known.clone());
        }
        if text.len() > MAX_BYTES {
            return Err(format!("it has {} bytes; allowed: {MAX_BYTES}", text.len()));
        }
        texts.retain(|text, _| Arc::strong_count(text) > 1);
        let owner = shown(uri);
        let told = || texts.iter().filter_map(|(text, owner)| Some((text.len(), owner.as_ref()?)));
        let all: usize = told().map(|(bytes, _)| bytes).sum();
        let own: usize = told().filter(|(_, it)| **it == owner).map(|(bytes, _)| bytes).sum();
        if own + text.len() > MAX_PUBLISHER_BYTES {
            return Err(format!("those of {owner} have {MAX_PUBLISHER_BYTES} bytes already"));
        }
        if all + text.len() > MAX_ALL_BYTES || texts.len() >= MAX_DEFINITIONS {
            return Err(format!(
                "those of all publishers are {MAX_DEFINITIONS} or have {MAX_ALL_BYTES} bytes already"
            ));
        }
        let kept: Arc<str> = text.into();
        texts.insert(kept.clone(), Some(owner));
        Ok(kept)
    }

    fn insert(&self, text: &str, owner: Option<String>) -> Arc<str> {
        let mut texts = locked(&self.texts);
        if let Some((known, _)) = texts.get_key_value(text) {
            return known.clone();
        }
        let kept: Arc<str> = text.into();
        texts.insert(kept.clone(), owner);
        kept
    }

    /// The installed definition, if it is of the same version.
    async fn installed(&self, type_name: &str, md5: &str) -> Option<String> {
        // Fails only if it were closed.
        let _reading = self.reading.acquire().await;
        let (installed, name, md5) = (self.installed.clone(), type_name.to_owned(), md5.to_owned());
        let read = move || {
            let text = installed.definition(&name, Dialect::Ros1).ok()?;
            let schema = Schema::parse(&name, &text, Dialect::Ros1).ok()?;
            (type_hash(&schema) == md5).then_some(text)
        };
        tokio::task::spawn_blocking(read).await.ok()?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD5: &str = "992ce8a1687cec8c8bd883ec73ca41d1";

    fn take(all: &Definitions, uri: &str, text: &str) -> Arc<str> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(all.take((uri, "/a"), ("std_msgs/String", MD5), text))
    }

    fn text(number: usize) -> String {
        format!("{number:09}{}", "x".repeat(MAX_BYTES - 9))
    }

    #[test]
    fn equal_definitions_are_kept_once_and_all_together_are_bounded() {
        let all = Definitions::new(Installed::new(vec![]));
        let (one, two) = (take(&all, "a", "int32 x"), take(&all, "b", "int32 x"));
        assert!(Arc::ptr_eq(&one, &two));
        assert_eq!(&*take(&all, "a", &"x".repeat(MAX_BYTES + 1)), "", "of one topic");
        let of_one: Vec<_> = (0..100).map(|number| take(&all, "a", &text(number))).collect();
        let bytes = |kept: &[Arc<str>]| kept.iter().map(|it| it.len()).sum::<usize>();
        assert!(bytes(&of_one) <= MAX_PUBLISHER_BYTES && !take(&all, "b", "int32 y").is_empty());
        let publishers: Vec<String> = (0..200).map(|number| number.to_string()).collect();
        let told = publishers.iter().enumerate();
        let kept: Vec<_> = told.map(|(n, uri)| take(&all, uri, &text(1000 + n))).collect();
        let found = bytes(&of_one) + bytes(&kept);
        assert!((MAX_ALL_BYTES - MAX_BYTES..=MAX_ALL_BYTES).contains(&found), "{found}");
        assert!(Arc::ptr_eq(&kept[0], &take(&all, "c", &text(1000))), "known is known");
        drop((of_one, kept));
        assert!(!take(&all, "c", &text(1)).is_empty(), "there is room again");
    }

    #[test]
    fn short_definitions_are_bounded_in_number() {
        let all = Definitions::new(Installed::new(vec![]));
        let kept = |number: usize| all.keep(&number.to_string(), "a");
        let held: Vec<_> = (0..=MAX_DEFINITIONS).map(kept).collect();
        assert_eq!(held.iter().filter(|it| it.is_err()).count(), 1);
    }

    #[test]
    fn what_finds_no_room_is_taken_from_the_installed_types() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("share/std_msgs/msg");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("String.msg"), "string data\n").unwrap();
        let all = Definitions::new(Installed::new(vec![root.path().into()]));
        let long = format!("# {}\nstring data\n", "x".repeat(MAX_BYTES));
        let (one, two) = (take(&all, "a", &long), take(&all, "b", &long));
        assert_eq!(&*one, "string data\n");
        assert!(Arc::ptr_eq(&one, &two));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let other = all.take(("a", "/a"), ("std_msgs/String", "another md5"), &long);
        assert_eq!(&*runtime.block_on(other), "", "another version");
    }
}
