//! Reads the relevant fields of a JSON body.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::parse_model;
use crate::json::{Any, FromAny};
use crate::prompt::{Prompt, Role};

/// The relevant fields of a body.
#[derive(Default)]
pub(super) struct BodyFields {
    pub(super) model: Option<Arc<str>>,
    pub(super) stream: bool,
    pub(super) prompt: Option<Prompt>,
}

impl BodyFields {
    pub(super) fn json(body: &[u8]) -> Self {
        let read = |fields: Fields| {
            let mut json = serde_json::Deserializer::from_slice(body);
            let fields = fields.deserialize(&mut json)?;
            json.end().map(|()| fields)
        };
        // Counting parses values that are otherwise skipped, and may fail on invalid UTF-8 or deep
        // nesting.
        read(Fields { counted: true }).or_else(|_| read(Fields { counted: false })).unwrap_or_default()
    }
}

enum Key {
    Model,
    Stream,
    Counted(Role),
    Other,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;

        impl Visitor<'_> for Name {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E>(self, key: &str) -> Result<Key, E> {
                Ok(match key {
                    "model" => Key::Model,
                    "stream" => Key::Stream,
                    key => Role::of_field(key).map_or(Key::Other, Key::Counted),
                })
            }
        }

        deserializer.deserialize_identifier(Name)
    }
}

impl FromAny for Option<Arc<str>> {
    fn missing() -> Self {
        None
    }

    fn text(text: &str) -> Self {
        parse_model(text)
    }
}

impl FromAny for bool {
    fn missing() -> Self {
        false
    }

    fn flag(value: bool) -> Self {
        value
    }
}

/// Reads the fields of a body, with or without counting it. Written by hand, because a derived
/// reader rejects duplicate keys, while all known servers use the last one.
struct Fields {
    counted: bool,
}

impl<'de> DeserializeSeed<'de> for Fields {
    type Value = BodyFields;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<BodyFields, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields {
    type Value = BodyFields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<BodyFields, A::Error> {
        let mut fields = BodyFields { prompt: self.counted.then(Prompt::default), ..BodyFields::default() };
        while let Some(key) = map.next_key()? {
            match (key, &mut fields.prompt) {
                (Key::Model, _) => fields.model = map.next_value::<Any<_>>()?.0,
                (Key::Stream, _) => fields.stream = map.next_value::<Any<_>>()?.0,
                (Key::Counted(role), Some(prompt)) => prompt.take(role, &mut map)?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(fields)
    }
}
