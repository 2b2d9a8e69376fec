// SPDX-License-Identifier: Apache-2.0
//! Definitions from the connection headers of local publishers. Equal texts are kept once, within
//! limits. A definition that does not fit is read from the installed types, or left out. Without
//! it, the topic still passes between robots with ROS 1.

use super::connection::TypeVersion;
use super::shown::for_logs;
use crate::lock::lock;
use crate::log_limit::log_limited;
use crate::types::hash::type_hash;
use crate::types::installed::InstalledTypes;
use crate::types::{Dialect, Schema};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// Maximum bytes of the definition of one topic; the definitions of the largest common types have about
/// 64 KiB.
const MAX_BYTES: usize = 256 << 10;
/// Maximum bytes of all definitions except those of installed types.
const MAX_ALL_BYTES: usize = 32 << 20;
/// Maximum bytes of the definitions of one publisher's topics; part of [`MAX_ALL_BYTES`].
const MAX_PUBLISHER_BYTES: usize = 4 << 20;
/// Maximum number of definitions kept, however short they are.
const MAX_DEFINITIONS: usize = 8192;

#[derive(Debug)]
pub(super) struct Definitions {
    installed: InstalledTypes,
    /// Each with the publisher that sent it first; `None`: it is installed.
    texts: Mutex<HashMap<Arc<str>, Option<String>>>,
    /// Files are read outside the gateway's thread, one type at a time.
    reading: Semaphore,
}

impl Definitions {
    pub fn new(installed: InstalledTypes) -> Arc<Self> {
        Arc::new(Self { installed, texts: Mutex::default(), reading: Semaphore::new(1) })
    }

    /// The definition to use for a `topic` of the publisher at `uri`, which sent `text`.
    pub async fn keep(
        &self,
        uri: &str,
        topic: &str,
        version: &TypeVersion,
        text: &str,
    ) -> Arc<str> {
        let full = match self.add(text, uri) {
            Ok(kept) => return kept,
            Err(full) => full,
        };
        if let Some(text) = self.installed_text(version).await {
            let mut texts = lock(&self.texts);
            if let Some((known, _)) = texts.get_key_value(&*text) {
                return known.clone();
            }
            let kept: Arc<str> = text.into();
            texts.insert(kept.clone(), None);
            return kept;
        }
        log_limited!(
            warn,
            {topic = for_logs(topic),},
            "the definition of {} is omitted, since {full}: robots with ROS 2 need their own \
             definition; install its package on this robot",
            for_logs(&version.name)
        );
        "".into()
    }

    fn add(&self, text: &str, uri: &str) -> Result<Arc<str>, String> {
        let mut texts = lock(&self.texts);
        if let Some((known, _)) = texts.get_key_value(text) {
            return Ok(known.clone());
        }
        if text.len() > MAX_BYTES {
            return Err(format!("it has {} bytes; allowed: {MAX_BYTES}", text.len()));
        }
        texts.retain(|text, _| Arc::strong_count(text) > 1);
        let owner = for_logs(uri);
        let (mut all, mut own) = (0, 0);
        for (known, publisher) in texts.iter() {
            let Some(publisher) = publisher else { continue };
            all += known.len();
            own += if *publisher == owner { known.len() } else { 0 };
        }
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

    /// The installed definition, if it is the same version.
    async fn installed_text(&self, version: &TypeVersion) -> Option<String> {
        // The semaphore is never closed.
        let _permit = self.reading.acquire().await;
        let (installed, TypeVersion { name, md5 }) = (self.installed.clone(), version.clone());
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

    fn version(md5: &str) -> TypeVersion {
        TypeVersion { name: "std_msgs/String".into(), md5: md5.into() }
    }

    fn take(all: &Definitions, uri: &str, text: &str) -> Arc<str> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(all.keep(uri, "/a", &version(MD5), text))
    }

    fn definition_of(number: usize) -> String {
        format!("{number:09}{}", "x".repeat(MAX_BYTES - 9))
    }

    #[test]
    fn equal_definitions_are_stored_once_within_a_limit() {
        let all = Definitions::new(InstalledTypes::new(vec![]));
        let (one, two) = (take(&all, "a", "int32 x"), take(&all, "b", "int32 x"));
        assert!(Arc::ptr_eq(&one, &two));
        assert_eq!(&*take(&all, "a", &"x".repeat(MAX_BYTES + 1)), "", "of one topic");
        let of_one: Vec<_> =
            (0..100).map(|number| take(&all, "a", &definition_of(number))).collect();
        let bytes = |kept: &[Arc<str>]| kept.iter().map(|text| text.len()).sum::<usize>();
        assert!(bytes(&of_one) <= MAX_PUBLISHER_BYTES && !take(&all, "b", "int32 y").is_empty());
        let publishers: Vec<String> = (0..200).map(|number| number.to_string()).collect();
        let all_publishers = publishers.iter().enumerate();
        let kept: Vec<_> =
            all_publishers.map(|(n, uri)| take(&all, uri, &definition_of(1000 + n))).collect();
        let found = bytes(&of_one) + bytes(&kept);
        assert!((MAX_ALL_BYTES - MAX_BYTES..=MAX_ALL_BYTES).contains(&found), "{found}");
        assert!(Arc::ptr_eq(&kept[0], &take(&all, "c", &definition_of(1000))), "known is known");
        drop((of_one, kept));
        assert!(!take(&all, "c", &definition_of(1)).is_empty(), "the bytes are free again");
    }

    #[test]
    fn short_definitions_are_bounded_in_number() {
        let all = Definitions::new(InstalledTypes::new(vec![]));
        let kept = |number: usize| all.add(&number.to_string(), "a");
        let held: Vec<_> = (0..=MAX_DEFINITIONS).map(kept).collect();
        assert_eq!(held.iter().filter(|result| result.is_err()).count(), 1);
    }

    #[test]
    fn a_definition_that_does_not_fit_is_replaced_by_the_installed_one() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("share/std_msgs/msg");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("String.msg"), "string data\n").unwrap();
        let all = Definitions::new(InstalledTypes::new(vec![root.path().into()]));
        let long = format!("# {}\nstring data\n", "x".repeat(MAX_BYTES));
        let (one, two) = (take(&all, "a", &long), take(&all, "b", &long));
        assert_eq!(&*one, "string data\n");
        assert!(Arc::ptr_eq(&one, &two));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let other = version("another md5");
        let other = all.keep("a", "/a", &other, &long);
        assert_eq!(&*runtime.block_on(other), "", "another version");
    }
}
