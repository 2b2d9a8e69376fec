// SPDX-License-Identifier: Apache-2.0
//! Trust in a peer's definition of a type.
//!
//! An installed type takes precedence over a peer's text. A peer's text is used only if its hash is
//! the offered one.
//!
//! ROS 1's md5 is the same for `Point p` and `Point[] p`. Thus a peer can send a text with another
//! layout and a valid md5. That is harmless where the text serves to read that peer's messages. Code
//! that composes a message for other nodes needs [`certain_schema`].

use super::definition::{BaseType, Dialect, Schema, dialect_of};
use super::hash::{service_type_hash, type_hash};
use super::installed::InstalledTypes;
use super::service_parts::request_and_response;
use crate::{Service, Topic};
use std::sync::Arc;

/// Why a peer's definition is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    /// The text is of another type or version.
    #[error("its definition of {type_name} has the hash {found}; it offered {offered}")]
    OtherHash {
        /// The offered type.
        type_name: String,
        /// The offered hash.
        offered: String,
        /// The hash of the text.
        found: String,
    },
    /// The peer offered no hash.
    #[error("its definition of {0} came without a hash")]
    NoHash(String),
    /// The text is invalid.
    #[error("its definition cannot be read: {0}")]
    Unreadable(String),
}

/// The definition to use for a topic of a peer; empty if there is none. The error says why the
/// peer's definition is not used.
///
/// The result has only the parts of a peer's text that its hash covers, since ROS's tools generate
/// code from definitions.
pub fn trusted_definition(
    topic: &Topic,
    installed: &InstalledTypes,
) -> Result<Arc<str>, Untrusted> {
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
    check_hash(name, &topic.type_hash, type_hash(&schema))?;
    Ok(schema.to_text().into())
}

/// Like [`trusted_definition`], for a service. In ROS 2 the hash covers the request only. The
/// unverified text of the response is used only for the responses of that peer.
pub fn trusted_service(
    service: &Service,
    installed: &InstalledTypes,
) -> Result<Arc<str>, Untrusted> {
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
    check_hash(name, &service.type_hash, found)?;
    Ok(service.definition.clone())
}

/// The hash of a service: md5 in ROS 1, RIHS01 of its request in ROS 2.
pub fn service_hash(type_name: &str, text: &str, dialect: Dialect) -> Result<String, String> {
    let [request, response] = request_and_response(type_name, text, dialect)?;
    Ok(service_type_hash(&request, &response))
}

/// The type that a topic's definition describes; `None` without one. An empty text is the definition
/// of an empty message if that has the topic's hash; publishers of ROS 1 send it. The error is for a
/// person.
pub(crate) fn peers_schema(topic: &Topic) -> Result<Option<Schema>, String> {
    let name = &topic.type_name;
    let parsed = Schema::parse(name, &topic.definition, dialect_of(name));
    match topic.definition.is_empty() {
        true => Ok(parsed.ok().filter(|empty| type_hash(empty) == topic.type_hash)),
        false => parsed.map(Some).map_err(|error| error.to_string()),
    }
}

fn check_hash(type_name: &str, offered: &str, found: String) -> Result<(), Untrusted> {
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

/// The certain layout of a topic that is published here: that of the installed type, if its version
/// is the topic's, or of a text whose hash determines the layout. `topic.definition` must be
/// trusted. The error is for a person.
pub fn certain_schema(topic: &Topic, installed: &InstalledTypes) -> Result<Schema, String> {
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
                "{name} has another version at its origin ({there}) than here ({here}); install the \
                 same version on both"
            ));
        }
        Err(missing) => missing,
    };
    let Some(schema) = peers_schema(topic)? else {
        return Err(format!(
            "{name} is not installed here ({missing}), and no definition with its hash came with \
             it; install the package of {name} here"
        ));
    };
    if has_ambiguous_layout(&schema) {
        return Err(format!(
            "{name} is not installed here ({missing}), and the md5 of ROS 1 does not cover which \
             of its parts are arrays; install the package of {name} here"
        ));
    }
    Ok(schema)
}

/// Whether another layout has the same hash: ROS 1's md5 contains a nested type without its
/// brackets (`genmsg.gentools.compute_md5_text`).
pub fn has_ambiguous_layout(schema: &Schema) -> bool {
    let nested = |base| matches!(base, BaseType::Struct(_));
    schema.dialect == Dialect::Ros1 && schema.root().fields.iter().any(|field| nested(field.base))
}
