// SPDX-License-Identifier: Apache-2.0
//! Pairs the fields of two definitions of a type.

use super::time::{Side, TimeKind};
use crate::types::definition::{Arity, BaseType, DUMMY_FIELD, Field, Primitive, Schema, Struct};
use std::collections::{HashMap, HashSet};

/// ROS 1's sequence number in a header, which ROS 2 has removed.
const SEQUENCE_NUMBER: (&str, &str) = ("std_msgs/Header", "seq");

/// Why two definitions are not of one type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Mismatch {
    /// The type and field (`sensor_msgs/Image.data`).
    pub field: String,
    /// The difference.
    pub problem: String,
}

/// The type of a value on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number of this size in bytes.
    Number(u8),
    /// 0 or 1.
    Bool,
    /// Text with ROS 2's limit in bytes.
    Text(Option<u32>),
    /// ROS 2 only.
    WideText,
    /// A time that both sides have.
    Time(TimeKind),
    /// The number of its steps in the plan.
    Struct(usize),
}

/// One field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub name: String,
    pub kind: Kind,
    pub arity: Arity,
    /// Only this side has it.
    pub only: Option<Side>,
}

/// The steps of each pair of types, the message's own first.
#[derive(Debug)]
pub struct Plan {
    structs: Vec<Vec<Step>>,
    one_sided: Vec<String>,
}

impl Plan {
    pub fn new(ros1: &Schema, ros2: &Schema) -> Result<Self, Mismatch> {
        let mut pairing = Pairing {
            ros1,
            ros2,
            known: HashMap::new(),
            structs: Vec::new(),
            one_sided: Vec::new(),
        };
        pairing.pair(Pair::Both(0, 0))?;
        Ok(Self { structs: pairing.structs, one_sided: pairing.one_sided })
    }

    pub fn steps(&self, number: usize) -> &[Step] {
        &self.structs[number]
    }

    pub fn one_sided(&self) -> &[String] {
        &self.one_sided
    }
}

/// Types that correspond, or one that the other side lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Pair {
    Both(usize, usize),
    Ros1(usize),
    Ros2(usize),
    /// ROS 1's time or duration, in a field that ROS 2 lacks.
    Time,
}

struct Pairing<'a> {
    ros1: &'a Schema,
    ros2: &'a Schema,
    known: HashMap<Pair, usize>,
    structs: Vec<Vec<Step>>,
    one_sided: Vec<String>,
}

impl Pairing<'_> {
    /// The number of a pair's steps.
    fn pair(&mut self, pair: Pair) -> Result<usize, Mismatch> {
        if let Some(number) = self.known.get(&pair) {
            return Ok(*number);
        }
        let number = self.structs.len();
        self.structs.push(Vec::new());
        self.known.insert(pair, number);
        let (ros1, ros2) = (self.ros1, self.ros2);
        self.structs[number] = match pair {
            Pair::Both(one, two) => self.steps_of_both(&ros1.structs[one], &ros2.structs[two])?,
            Pair::Ros1(one) => self.one_sided_steps(Side::Ros1, &ros1.structs[one])?,
            Pair::Ros2(two) => self.one_sided_steps(Side::Ros2, &ros2.structs[two])?,
            Pair::Time => ["sec", "nanosec"].map(word).to_vec(),
        };
        Ok(number)
    }

    /// The fields of both in one order, which must be the order of each.
    fn steps_of_both(&mut self, one: &Struct, two: &Struct) -> Result<Vec<Step>, Mismatch> {
        let mut steps = Vec::new();
        let mut rest = two.fields.as_slice();
        let names: HashSet<&str> = one.fields.iter().map(|field| field.name.as_str()).collect();
        for field in &one.fields {
            let Some(at) = position(rest, &field.name, &names) else {
                if let Some(other) = position(&two.fields, &field.name, &names) {
                    let other = &two.fields[other].name;
                    let problem = format!("comes after '{other}' in ROS 2, before in ROS 1");
                    return Err(Mismatch {
                        field: format!("{}.{}", one.name, field.name),
                        problem,
                    });
                }
                steps.push(self.one_sided_step(Side::Ros1, one, field)?);
                continue;
            };
            for skipped in &rest[..at] {
                steps.push(self.one_sided_step(Side::Ros2, two, skipped)?);
            }
            steps.push(self.step_of_pair(one, field, &rest[at])?);
            rest = &rest[at + 1..];
        }
        for left in rest {
            steps.push(self.one_sided_step(Side::Ros2, two, left)?);
        }
        let shared = steps.iter().any(|step| step.only.is_none());
        let empty = |part: &Struct| part.fields.iter().all(|field| field.name == DUMMY_FIELD);
        if !shared && !empty(one) && !empty(two) {
            let problem = "the two definitions share no field".to_owned();
            return Err(Mismatch { field: one.name.clone(), problem });
        }
        Ok(steps)
    }

    fn step_of_pair(&mut self, owner: &Struct, one: &Field, two: &Field) -> Result<Step, Mismatch> {
        let mismatch = || Mismatch {
            field: format!("{}.{}", owner.name, one.name),
            problem: format!("'{}' in ROS 1, '{}' in ROS 2", one.type_text, two.type_text),
        };
        let arity = match (one.arity, two.arity) {
            // With ROS 2's bound.
            (Arity::Sequence(_), Arity::Sequence(bound)) => Arity::Sequence(bound),
            (a, b) if a == b => a,
            _ => return Err(mismatch()),
        };
        let kind = match (one.base, two.base) {
            (BaseType::Primitive(a), BaseType::Primitive(b)) => {
                if class(a) != class(b) {
                    return Err(mismatch());
                }
                number(a)
            }
            (BaseType::Primitive(a), BaseType::Struct(two)) => {
                Kind::Time(time(a, &self.ros2.structs[two]).ok_or_else(mismatch)?)
            }
            (BaseType::String(_), BaseType::String(bound)) => Kind::Text(bound),
            (BaseType::Struct(a), BaseType::Struct(b)) => {
                Kind::Struct(self.pair(Pair::Both(a, b))?)
            }
            _ => return Err(mismatch()),
        };
        Ok(Step { name: one.name.clone(), kind, arity, only: None })
    }

    /// A field that the other side lacks.
    fn one_sided_step(
        &mut self,
        side: Side,
        owner: &Struct,
        field: &Field,
    ) -> Result<Step, Mismatch> {
        let expected = field.name == DUMMY_FIELD
            || (owner.name.as_str(), field.name.as_str()) == SEQUENCE_NUMBER;
        if !expected {
            let side = if side == Side::Ros1 { "ROS 1" } else { "ROS 2" };
            self.one_sided.push(format!("{}.{}, {side} only", owner.name, field.name));
        }
        Ok(Step { only: Some(side), ..self.one_sided_step_of_field(side, field)? })
    }

    /// The steps of a type that the other side lacks.
    fn one_sided_steps(&mut self, side: Side, part: &Struct) -> Result<Vec<Step>, Mismatch> {
        part.fields.iter().map(|field| self.one_sided_step_of_field(side, field)).collect()
    }

    fn one_sided_step_of_field(&mut self, side: Side, field: &Field) -> Result<Step, Mismatch> {
        let kind = match field.base {
            BaseType::Primitive(Primitive::Time | Primitive::Duration) => {
                Kind::Struct(self.pair(Pair::Time)?)
            }
            BaseType::Primitive(primitive) => number(primitive),
            BaseType::String(bound) => Kind::Text(bound),
            BaseType::WString(_) => Kind::WideText,
            BaseType::Struct(inner) => Kind::Struct(self.pair(match side {
                Side::Ros1 => Pair::Ros1(inner),
                Side::Ros2 => Pair::Ros2(inner),
            })?),
        };
        Ok(Step { name: field.name.clone(), kind, arity: field.arity, only: None })
    }
}

/// The field of that name, else one that differs in case and underscores only
/// (`sensor_msgs/CameraInfo`: `K` in ROS 1, `k` in ROS 2), and that has none of the names on the
/// other side.
fn position(fields: &[Field], name: &str, others: &HashSet<&str>) -> Option<usize> {
    let plain = |name: &str| name.replace('_', "").to_ascii_lowercase();
    let similar =
        |field: &Field| plain(&field.name) == plain(name) && !others.contains(field.name.as_str());
    let exact = fields.iter().position(|field| field.name == name);
    exact.or_else(|| fields.iter().position(similar))
}

fn word(name: &str) -> Step {
    Step { name: name.into(), kind: Kind::Number(4), arity: Arity::One, only: None }
}

fn number(primitive: Primitive) -> Kind {
    match primitive {
        Primitive::Bool => Kind::Bool,
        _ => Kind::Number(primitive.bytes() as u8),
    }
}

/// Types of one class have the same bytes: `byte` and `char` differ in sign between ROS 1 and ROS 2.
fn class(primitive: Primitive) -> Primitive {
    match primitive {
        Primitive::Byte | Primitive::Char | Primitive::Int8 => Primitive::UInt8,
        other => other,
    }
}

/// The time that a primitive type of ROS 1 and a type of ROS 2 have in common.
fn time(ros1: Primitive, ros2: &Struct) -> Option<TimeKind> {
    let (kind, name) = match ros1 {
        Primitive::Time => (TimeKind::Instant, "builtin_interfaces/Time"),
        Primitive::Duration => (TimeKind::Duration, "builtin_interfaces/Duration"),
        _ => return None,
    };
    let parts = ros2.fields.iter().map(|field| (field.base, field.arity));
    let [sec, nanosec] = [Primitive::Int32, Primitive::UInt32].map(BaseType::Primitive);
    let expected = [(sec, Arity::One), (nanosec, Arity::One)];
    (ros2.name == name && parts.eq(expected)).then_some(kind)
}
