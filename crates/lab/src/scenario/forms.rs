// SPDX-License-Identifier: Apache-2.0
//! Values of a scenario file that are written in one of two forms. The doc comments here are part of the
//! schema and of `docs/reference/scenarios.md`.

use super::reader::At;
use super::value::{Reference, Share, inline_schema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// A loss: uniform or in bursts.
#[derive(Debug)]
pub enum Loss {
    /// The same probability for each trial.
    Share(f64),
    /// In bursts.
    Bursts(Bursts),
}

/// Loss in bursts: a good state without loss, and a bad state in which everything is lost.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bursts {
    /// Probability of the transition from good to bad, for each attempt, frame or packet.
    pub enter: Share,
    /// Probability of the transition from bad to good, for each attempt, frame or packet; more than 0.
    pub leave: At<Share>,
}

impl<'de> Deserialize<'de> for Loss {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Loss;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("0% to 100%, or { enter: SHARE, leave: SHARE }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Loss, E> {
                let share: Result<Share, String> = super::value::FromText::from_text(text);
                share
                    .map(|share| Loss::Share(share.0))
                    .map_err(|_| E::custom(&self as &dyn de::Expected))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Loss, A::Error> {
                Bursts::deserialize(MapAccessDeserializer::new(map)).map(Loss::Bursts)
            }
        }
        from.deserialize_any(Either)
    }
}

inline_schema! {
    [] Loss, "Loss",
    |it| json_schema!({ "anyOf": [it.subschema_for::<Share>(), it.subschema_for::<Bursts>()] })
}

/// An outage of one station or of a pair.
#[derive(Debug)]
pub enum Outage {
    /// A station cut off from all others.
    Station(String),
    /// Two stations cut off from each other.
    Pair([String; 2]),
}

impl<'de> Deserialize<'de> for Outage {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OneOrTwo;
        impl<'de> Visitor<'de> for OneOrTwo {
            type Value = Outage;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a station, or a pair of stations [one, other]")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Outage, E> {
                Ok(Outage::Station(text.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Outage, A::Error> {
                let mut stations: Vec<String> = Vec::new();
                while let Some(Reference(station)) = list.next_element()? {
                    stations.push(station);
                }
                let count = stations.len();
                let pair = stations.try_into();
                pair.map(Outage::Pair).map_err(|_| de::Error::invalid_length(count, &self))
            }
        }
        from.deserialize_any(OneOrTwo)
    }
}

inline_schema! {
    [] Outage, "Outage",
    |_| json_schema!({ "title": "a station, or a pair of stations [one, other]", "anyOf": [
        { "type": "string" },
        { "type": "array", "items": { "type": "string" }, "minItems": 2, "maxItems": 2 },
    ] })
}
