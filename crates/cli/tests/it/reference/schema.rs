// SPDX-License-Identifier: Apache-2.0
//! docs/reference/robot.schema.json, generated from the option table.

use serde_json::{Map, Value as Json, json};
use tautline::config::kind::Kind;
use tautline::config::relay;
use tautline::config::setting::{Preset, Setting, Shape};
use tautline::config::table::FILE;

/// Returns the schema (JSON Schema 2020-12) of the robot's file.
pub fn schema() -> Json {
    let mut schema = object(FILE);
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "Tautline: the robot's file".into();
    schema
}

/// Returns the schema of the relay's file.
pub fn relay_schema() -> Json {
    let mut schema = object(relay::table::FILE);
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "Tautline: the relay's file".into();
    schema
}

fn object(settings: &'static [Setting]) -> Json {
    let properties: Map<String, Json> =
        settings.iter().map(|setting| (setting.name.to_owned(), property(setting))).collect();
    let required: Vec<&str> =
        settings.iter().filter(|s| s.preset == Preset::Required).map(|s| s.name).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn property(setting: &Setting) -> Json {
    let mut schema = shape(setting);
    schema["description"] = setting.doc.into();
    if let Preset::Value(value) = setting.preset {
        // Numbers and booleans keep their type; quantities with a unit stay text.
        schema["default"] = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    }
    schema
}

fn shape(setting: &Setting) -> Json {
    match &setting.shape {
        Shape::Single(kind) => kind.schema(),
        Shape::List(kind) => one_or_more(kind),
        Shape::Typed(kind) => {
            let types = one_or_more(&Kind::TypeName);
            json!({ "anyOf": [
                one_or_more(kind),
                { "type": "object", "propertyNames": kind.schema(), "additionalProperties": types },
            ] })
        }
        Shape::Renames(kind) => {
            let names = Kind::PeerName.schema();
            json!({ "type": "object", "propertyNames": names, "additionalProperties": kind.schema() })
        }
        Shape::Fields => json!({ "type": ["object", "null"] }),
        Shape::Section(settings) => or_nothing(object(settings)),
        Shape::Switch(settings) => {
            json!({ "anyOf": [{ "type": ["boolean", "null"] }, object(settings)] })
        }
        Shape::Sections(settings) => {
            json!({ "type": "array", "items": object(settings), "minItems": 1 })
        }
        Shape::Named(names, keys) => named_schema(setting, names, keys),
    }
}

fn one_or_more(kind: &Kind) -> Json {
    json!({ "anyOf": [kind.schema(), { "type": "array", "items": kind.schema(), "minItems": 1 }] })
}

fn or_nothing(schema: Json) -> Json {
    json!({ "anyOf": [{ "type": "null" }, schema] })
}

fn named_schema(setting: &Setting, names: &Kind, keys: &'static [Setting]) -> Json {
    let mut forms = vec![json!({ "type": "null" }), object(keys)];
    let short = setting.short_for.and_then(|name| keys.iter().find(|key| key.name == name));
    forms.extend(short.map(shape));
    let map = json!({
        "type": "object",
        "propertyNames": names.schema(),
        "additionalProperties": { "anyOf": forms },
    });
    let list = setting.list_with.map(|name_key| list(names, keys, name_key));
    let whole: Vec<Json> = [json!({ "type": "null" }), map].into_iter().chain(list).collect();
    json!({ "anyOf": whole })
}

/// Returns the schema of the list form: names, or sections with their name under `name_key`.
fn list(names: &Kind, keys: &'static [Setting], name_key: &str) -> Json {
    let mut entry = object(keys);
    entry["properties"][name_key] = names.schema();
    entry["required"] = json!([name_key]);
    json!({ "type": "array", "items": { "anyOf": [names.schema(), entry] } })
}
