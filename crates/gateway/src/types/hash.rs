// SPDX-License-Identifier: Apache-2.0
//! Hashes that identify the version of a type: md5 in ROS 1, RIHS01 in ROS 2 (REP 2011).

use super::action::is_part_of_action;
use super::definition::{Arity, BaseType, Dialect, Primitive, Schema, Struct};
use md5::{Digest, Md5};
use sha2::Sha256;
use std::collections::BTreeSet;
use std::fmt::Write;

/// `package/msg/Type` of `package/Type`, `package/action/Type` if it is a part of an action.
pub fn ros2_name(name: &str) -> String {
    named_under(name, "msg")
}

fn named_under(name: &str, folder: &str) -> String {
    let folder = if is_part_of_action(name) { "action" } else { folder };
    name.split_once('/').map_or_else(|| name.to_owned(), |(p, t)| format!("{p}/{folder}/{t}"))
}

/// The hash of a message type in its ROS: 32 hexadecimal digits, or `RIHS01_` and 64.
pub fn type_hash(schema: &Schema) -> String {
    match schema.dialect {
        Dialect::Ros1 => md5_of(schema, 0, &mut vec![None; schema.structs.len()]),
        Dialect::Ros2 => rihs01(schema, "msg"),
    }
}

/// The hash of a service: md5 in ROS 1; in ROS 2 that of its request, which discovery carries.
pub fn service_type_hash(request: &Schema, response: &Schema) -> String {
    match request.dialect {
        Dialect::Ros1 => service_md5(request, response),
        Dialect::Ros2 => rihs01(request, "srv"),
    }
}

/// The md5 of a service in ROS 1: that of both parts' texts, concatenated.
pub fn service_md5(request: &Schema, response: &Schema) -> String {
    let texts = [request, response].map(|part| {
        let known = &mut vec![None; part.structs.len()];
        md5_text(part, 0, known)
    });
    hexadecimal(&Md5::digest(texts.concat()))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The md5 of the constants and then the fields. A nested type is represented by its own md5, and,
/// unlike a primitive one, without its brackets. Each type's md5 is computed once, since types
/// share others.
fn md5_of(schema: &Schema, number: usize, known: &mut [Option<String>]) -> String {
    if let Some(hash) = &known[number] {
        return hash.clone();
    }
    let hash = hexadecimal(&Md5::digest(md5_text(schema, number, known)));
    known[number] = Some(hash.clone());
    hash
}

fn md5_text(schema: &Schema, number: usize, known: &mut [Option<String>]) -> String {
    let part = &schema.structs[number];
    let mut lines = part.constants.clone();
    for field in &part.fields {
        lines.push(match field.base {
            BaseType::Struct(inner) => format!("{} {}", md5_of(schema, inner, known), field.name),
            _ => format!("{} {}", field.type_text, field.name),
        });
    }
    lines.join("\n")
}

/// SHA-256 of a JSON text with fixed spaces and key order, without default values.
fn rihs01(schema: &Schema, folder: &str) -> String {
    let mut needed = BTreeSet::new();
    collect(schema, schema.root(), &mut needed);
    let referenced: Vec<String> = needed
        .iter()
        .map(|(name, number)| type_description(schema, &schema.structs[*number], name))
        .collect();
    let text = format!(
        r#"{{"type_description": {}, "referenced_type_descriptions": [{}]}}"#,
        type_description(schema, schema.root(), &named_under(&schema.root().name, folder)),
        referenced.join(", ")
    );
    format!("RIHS01_{}", hexadecimal(&Sha256::digest(text)))
}

/// Adds the types that a type needs.
fn collect(schema: &Schema, part: &Struct, needed: &mut BTreeSet<(String, usize)>) {
    for field in &part.fields {
        if let BaseType::Struct(inner) = field.base {
            let inner_part = &schema.structs[inner];
            if needed.insert((ros2_name(&inner_part.name), inner)) {
                collect(schema, inner_part, needed);
            }
        }
    }
}

fn type_description(schema: &Schema, part: &Struct, name: &str) -> String {
    let fields: Vec<String> = part.fields.iter().map(|field| {
        let (id, string_capacity, nested) = match field.base {
            BaseType::Primitive(primitive) => (type_id(primitive), 0, String::new()),
            BaseType::String(None) => (17, 0, String::new()),
            BaseType::WString(None) => (18, 0, String::new()),
            BaseType::String(Some(bound)) => (21, bound, String::new()),
            BaseType::WString(Some(bound)) => (22, bound, String::new()),
            BaseType::Struct(inner) => (1, 0, ros2_name(&schema.structs[inner].name)),
        };
        let (shift, capacity) = match field.arity {
            Arity::One => (0, 0),
            Arity::Array(count) => (48, count),
            Arity::Sequence(Some(bound)) => (96, bound),
            Arity::Sequence(None) => (144, 0),
        };
        format!(
            r#"{{"name": "{}", "type": {{"type_id": {}, "capacity": {capacity}, "string_capacity": {string_capacity}, "nested_type_name": "{nested}"}}}}"#,
            field.name,
            id + shift
        )
    }).collect();
    format!(r#"{{"type_name": "{name}", "fields": [{}]}}"#, fields.join(", "))
}

/// Numbers of type_description_interfaces/msg/FieldType.
fn type_id(primitive: Primitive) -> u32 {
    match primitive {
        Primitive::Int8 => 2,
        // rosidl maps `char` to an unsigned byte.
        Primitive::UInt8 | Primitive::Char => 3,
        Primitive::Int16 => 4,
        Primitive::UInt16 => 5,
        Primitive::Int32 => 6,
        Primitive::UInt32 => 7,
        // ROS 1's time and duration do not occur in ROS 2.
        Primitive::Int64 | Primitive::Time | Primitive::Duration => 8,
        Primitive::UInt64 => 9,
        Primitive::Float32 => 10,
        Primitive::Float64 => 11,
        Primitive::Bool => 15,
        Primitive::Byte => 16,
    }
}
