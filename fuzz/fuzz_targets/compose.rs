// SPDX-License-Identifier: Apache-2.0
#![no_main]
//! A definition, a NUL, and choices of values for its fields. A composed message must be valid for
//! that type and within the size limit.
use tautline_gateway::types::compose::{Fields, YamlValue, compose};
use tautline_gateway::types::definition::{BaseType, Field};
use tautline_gateway::types::derive::to_ros2;
use tautline_gateway::types::{Dialect, Schema, Transcoder};

const LIMIT: usize = 4096;
const TEXTS: &[&str] =
    &["", "0", "1", "-1", "256", "1e400", "nan", "true", "a b", "\u{1f916}", "\0"];

struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn next(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first)
    }

    fn fields(&mut self, schema: &Schema, number: usize, depth: usize) -> Fields {
        let mut fields = Fields::new();
        for field in &schema.structs[number].fields {
            if self.next() % 4 != 0 {
                fields.push((field.name.clone(), self.value(schema, field, depth)));
            }
        }
        fields
    }

    fn value(&mut self, schema: &Schema, field: &Field, depth: usize) -> YamlValue {
        match (self.next() % 8, field.base) {
            (0..3, _) => YamlValue::One(TEXTS[self.next() % TEXTS.len()].into()),
            (3, _) if depth < 4 => {
                let count = self.next() % 5;
                YamlValue::List((0..count).map(|_| self.value(schema, field, depth + 1)).collect())
            }
            (_, BaseType::Struct(inner)) if depth < 4 => {
                YamlValue::Map(self.fields(schema, inner, depth + 1))
            }
            (choice, _) => YamlValue::One(choice.to_string()),
        }
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let Some(end) = rest.iter().position(|byte| *byte == 0) else { return };
    let text = String::from_utf8_lossy(&rest[..end]);
    let dialect = if first % 2 == 0 { Dialect::Ros1 } else { Dialect::Ros2 };
    let Ok(schema) = Schema::parse("a/A", &text, dialect) else { return };
    let fields = Choices(&rest[end + 1..]).fields(&schema, 0, 0);
    let Ok(message) = compose(&schema, &fields, LIMIT) else { return };
    assert!(message.len() <= LIMIT + 4, "{} bytes", message.len());
    if dialect == Dialect::Ros1 {
        // Two fields may have one name there.
        let Ok(ros2) = to_ros2(&schema) else { return };
        let transcoder = Transcoder::new(&schema, &ros2).expect("its own counterpart");
        transcoder.to_ros2(&message).expect("a message of its type");
    }
});
