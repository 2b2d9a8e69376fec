// SPDX-License-Identifier: Apache-2.0
//! The definition of a type in the other ROS, where only one definition is available.
//!
//! For types with equal fields that both ROS ship, the result has the md5 and RIHS01 of the
//! original.

use super::constants::converted_constant;
use super::definition::{
    Arity, BaseType, DUMMY_FIELD, Dialect, Field, Primitive, Schema, Struct, contained_types,
};
use std::collections::HashMap;

const HEADER: &str = "std_msgs/Header";
const TIME: &str = "builtin_interfaces/Time";
const DURATION: &str = "builtin_interfaces/Duration";

/// Fields that ROS 1 writes in capitals, which its md5 covers. No other type that both ROS ship has
/// such fields.
const UPPERCASE_FIELDS: &[(&str, &[&str])] =
    &[("sensor_msgs/CameraInfo", &["d", "k", "r", "p"]), ("stereo_msgs/DisparityImage", &["t"])];

/// A field that the other ROS cannot express.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct NoCounterpart {
    /// The type and field.
    pub field: String,
    /// What the other ROS lacks.
    pub problem: String,
}

/// Converts a ROS 1 definition to ROS 2's rules: no `seq`, no `time`, names in lower case. It is an
/// error if two fields then have the same name.
pub fn to_ros2(ros1: &Schema) -> Result<Schema, NoCounterpart> {
    let mut structs = ros1.structs.clone();
    let (time, duration) = (structs.len(), structs.len() + 1);
    for part in &mut structs {
        check_names(part)?;
        convert_constants(part, Dialect::Ros2);
        let header = part.name == HEADER;
        part.fields.retain(|field| !(header && field.name == "seq"));
        for field in &mut part.fields {
            let (base, name) = match field.base {
                BaseType::Primitive(Primitive::Time) => (BaseType::Struct(time), TIME),
                BaseType::Primitive(Primitive::Duration) => (BaseType::Struct(duration), DURATION),
                BaseType::Struct(inner) => (field.base, ros1.structs[inner].name.as_str()),
                _ => (field.base, ""),
            };
            field.base = base;
            field.name = snake_case(&field.name);
            if !name.is_empty() {
                field.type_text = format!("{name}{}", brackets(field.arity));
            }
        }
        if part.fields.is_empty() {
            let base = BaseType::Primitive(Primitive::UInt8);
            part.fields.push(plain(DUMMY_FIELD, base, "uint8"));
        }
    }
    for name in [TIME, DURATION] {
        let sec = plain("sec", BaseType::Primitive(Primitive::Int32), "int32");
        let nanosec = plain("nanosec", BaseType::Primitive(Primitive::UInt32), "uint32");
        let (name, fields) = (name.to_owned(), vec![sec, nanosec]);
        structs.push(Struct { name, fields, constants: Vec::new() });
    }
    Ok(Schema { dialect: Dialect::Ros2, structs: needed_types(&structs) })
}

/// Converts a ROS 2 definition to ROS 1's rules: `seq`, `time` and `duration`, no bounds.
pub fn to_ros1(ros2: &Schema) -> Result<Schema, NoCounterpart> {
    let mut structs = ros2.structs.clone();
    for part in &mut structs {
        convert_constants(part, Dialect::Ros1);
        part.fields.retain(|field| field.name != DUMMY_FIELD);
        for field in &mut part.fields {
            let (base, word) = match field.base {
                BaseType::Struct(inner) => match ros2.structs[inner].name.as_str() {
                    TIME => (BaseType::Primitive(Primitive::Time), Some("time")),
                    DURATION => (BaseType::Primitive(Primitive::Duration), Some("duration")),
                    _ => (field.base, None),
                },
                BaseType::String(_) => (BaseType::String(None), Some("string")),
                BaseType::WString(_) => {
                    let problem = format!("ROS 1 has no '{}'", field.type_text);
                    let field = format!("{}.{}", part.name, field.name);
                    return Err(NoCounterpart { field, problem });
                }
                BaseType::Primitive(_) => (field.base, None),
            };
            if let Arity::Sequence(bound) = &mut field.arity {
                *bound = None;
            }
            let element = field.type_text.split('[').next().unwrap_or_default();
            field.type_text = format!("{}{}", word.unwrap_or(element), brackets(field.arity));
            field.base = base;
        }
        let capitals = UPPERCASE_FIELDS.iter().find(|(name, _)| *name == part.name);
        let capitals = capitals.map_or(&[][..], |(_, fields)| fields);
        for field in part.fields.iter_mut().filter(|it| capitals.contains(&it.name.as_str())) {
            field.name.make_ascii_uppercase();
        }
        if part.name == HEADER {
            let base = BaseType::Primitive(Primitive::UInt32);
            part.fields.insert(0, plain("seq", base, "uint32"));
        }
    }
    Ok(Schema { dialect: Dialect::Ros1, structs: needed_types(&structs) })
}

/// Checks that all fields of a ROS 1 type have different names in ROS 2.
fn check_names(ros1: &Struct) -> Result<(), NoCounterpart> {
    let mut names = HashMap::new();
    for field in &ros1.fields {
        let name = snake_case(&field.name);
        if let Some(first) = names.insert(name.clone(), &field.name) {
            let problem =
                format!("it and '{first}' would both be '{name}' in ROS 2; rename one of the two");
            let field = format!("{}.{}", ros1.name, field.name);
            return Err(NoCounterpart { field, problem });
        }
    }
    Ok(())
}

fn convert_constants(part: &mut Struct, to: Dialect) {
    let constants = std::mem::take(&mut part.constants);
    part.constants = constants.iter().filter_map(|it| converted_constant(it, to)).collect();
}

fn plain(name: &str, base: BaseType, type_text: &str) -> Field {
    Field { name: name.into(), base, arity: Arity::One, type_text: type_text.into() }
}

fn brackets(arity: Arity) -> String {
    match arity {
        Arity::One => String::new(),
        Arity::Array(count) => format!("[{count}]"),
        Arity::Sequence(None) => "[]".into(),
        Arity::Sequence(Some(bound)) => format!("[<={bound}]"),
    }
}

/// `frameId` and `K` become `frame_id` and `k`.
fn snake_case(name: &str) -> String {
    let mut text = String::new();
    let mut before = '_';
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit()) {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
        before = letter;
    }
    text
}

/// The first type and the types that it needs, renumbered.
fn needed_types(structs: &[Struct]) -> Vec<Struct> {
    let order = contained_types(structs);
    let renumbered = |number: &usize| {
        let mut part = structs[*number].clone();
        for field in &mut part.fields {
            if let BaseType::Struct(inner) = &mut field.base {
                *inner = order.iter().position(|number| number == inner).unwrap_or(0);
            }
        }
        part
    };
    order.iter().map(renumbered).collect()
}
