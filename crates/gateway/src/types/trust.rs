// SPDX-License-Identifier: Apache-2.0
//! Which definition of a peer's type may be used.
//!
//! A definition belongs to its hash. An installed type comes before a peer's text; a peer's text
//! counts only where the hash computed of it is the one that was offered.
//!
//! ROS 1's md5 leaves one thing open: it is the same for `Point p` and `Point[] p`. A peer can so
//! make a text of another layout under a true md5. That does no harm where only that peer's own
//! messages are read by it; whoever makes a message for others needs [`certain_schema`].

use super::definition::{Base, Dialect, Schema};
use super::hash::{service_type_hash, type_hash};
use super::installed::Installed;
use super::translate::{dialect_of, parts};
use crate::{Service, Topic};
use std::sync::Arc;

/// Why a peer's definition is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    /// Its text is of another type or version.
    #[error("its definition of {type_name} has the hash {found}; it offered {offered}")]
    OtherHash {
        /// As offered.
        type_name: String,
        /// The hash that was offered.
        offered: String,
        /// The hash of the text.
        found: String,
    },
    /// There is no hash to compare with.
    #[error("its definition of {0} came without a hash")]
    NoHash(String),
    /// The text makes no sense.
    #[error("its definition cannot be read: {0}")]
    Unreadable(String),
}

/// The definition to use for a topic as a peer offers it: empty where there is none. The error is
/// for a definition that came and is not to be used.
///
/// Of a peer's text only what its hash covers is handed on: ROS's tools make code from definitions.
pub fn trusted_definition(topic: &Topic, installed: &Installed) -> Result<Arc<str>, Untrusted> {
    let name = &topic.type_name;
    let dialect = dialect_of(name);
    let parse = |text: &str| Schema::parse(name, text, dialect);
    if !topic.type_hash.is_empty()
        && let Ok(text) = installed.definition(name, dialect)
        && parse(&text).is_ok_and(|schema| type_hash(&schema) == topic.type_hash)
    {
        return Ok(text.into());
    }
    if topic.definition.is_empty() {
        return Ok("".into());
    }
    let schema =
        parse(&topic.definition).map_err(|error| Untrusted::Unreadable(error.to_string()))?;
    belongs(name, &topic.type_hash, type_hash(&schema))?;
    Ok(schema.text().into())
}

/// The same for a service. The hash of ROS 2 is that of the request, so that the text of its
/// response is the peer's word; it is used for the responses of that peer alone.
pub fn trusted_service(service: &Service, installed: &Installed) -> Result<Arc<str>, Untrusted> {
    let name = &service.type_name;
    let dialect = dialect_of(name);
    let hash = |text: &str| service_hash(name, text, dialect);
    if !service.type_hash.is_empty()
        && let Ok(text) = installed.service(name, dialect)
        && hash(&text).is_ok_and(|hash| hash == service.type_hash)
    {
        return Ok(text.into());
    }
    if service.definition.is_empty() {
        return Ok("".into());
    }
    let found = hash(&service.definition).map_err(Untrusted::Unreadable)?;
    belongs(name, &service.type_hash, found)?;
    Ok(service.definition.clone())
}

/// The hash by which a service is known: md5 in ROS 1, RIHS01 of its request in ROS 2.
pub fn service_hash(type_name: &str, text: &str, dialect: Dialect) -> Result<String, String> {
    let [request, response] = parts(type_name, text, dialect)?;
    Ok(service_type_hash(&request, &response))
}

fn belongs(type_name: &str, offered: &str, found: String) -> Result<(), Untrusted> {
    match offered {
        "" => Err(Untrusted::NoHash(type_name.into())),
        _ if offered == found => Ok(()),
        _ => Err(Untrusted::OtherHash {
            type_name: type_name.into(),
            offered: offered.into(),
            found,
        }),
    }
}

/// The layout of a topic that is published here, beyond doubt: the installed type, which has to
/// be of the topic's version; or a text whose hash leaves nothing open. `topic.definition` has
/// to be trusted already. The error is for a person.
pub fn certain_schema(topic: &Topic, installed: &Installed) -> Result<Schema, String> {
    let name = &topic.type_name;
    let dialect = dialect_of(name);
    let parse = |text: &str| Schema::parse(name, text, dialect).map_err(|error| error.to_string());
    let missing = match installed.definition(name, dialect) {
        Ok(text) => {
            let schema = parse(&text)?;
            let here = type_hash(&schema);
            if topic.type_hash.is_empty() || topic.type_hash == here {
                return Ok(schema);
            }
            let there = &topic.type_hash;
            return Err(format!(
                "{name} is another version where it comes from ({there}) than here ({here}); \
                 install the same version on both"
            ));
        }
        Err(missing) => missing,
    };
    if topic.definition.is_empty() {
        return Err(format!(
            "{name} is not installed here ({missing}), and no definition with its hash came with \
             it; install the package of {name} here"
        ));
    }
    let schema = parse(&topic.definition)?;
    if leaves_layout_open(&schema) {
        return Err(format!(
            "{name} is not installed here ({missing}), and the md5 of ROS 1 does not cover which \
             of its parts are arrays; install the package of {name} here"
        ));
    }
    Ok(schema)
}

/// Whether another layout has the same hash: ROS 1's md5 names a nested type without its
/// brackets (`genmsg.gentools.compute_md5_text`).
pub fn leaves_layout_open(schema: &Schema) -> bool {
    let nested = |base| matches!(base, Base::Struct(_));
    schema.dialect == Dialect::Ros1 && schema.root().fields.iter().any(|field| nested(field.base))
}
