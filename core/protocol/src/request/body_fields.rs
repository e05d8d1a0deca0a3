//! Reads the model, the stream flag and the prompt size from a JSON body.

use std::sync::Arc;

use serde::de::{IgnoredAny, MapAccess};
use serde_json::Deserializer;

use super::parse_model;
use crate::lenient_json::{Any, FromAny, Key, ReadObject, Scalar, read_object};
use crate::prompt::{Prompt, Role};

/// The facts that a body adds to those of the path.
#[derive(Default)]
pub(super) struct BodyFields {
    pub(super) model: Option<Arc<str>>,
    pub(super) stream: bool,
    /// Whether the body has a field `inputs`.
    pub(super) has_inputs: bool,
    pub(super) prompt: Option<Prompt>,
}

impl BodyFields {
    /// Reads a JSON body. Returns the default if the body is not a JSON object.
    ///
    /// If counting fails, `prompt` is `None` and the other fields are read without counting.
    pub(super) fn json(body: &[u8]) -> Self {
        let read = |prompt| read_object(Deserializer::from_slice(body), Self { prompt, ..Self::default() });
        // Counting parses values that are otherwise skipped, and may fail on invalid UTF-8 or deep
        // nesting.
        read(Some(Prompt::default())).or_else(|_| read(None)).unwrap_or_default()
    }
}

/// A model name. `None` if it is empty, too long or not a string.
impl FromAny for Option<Arc<str>> {
    fn from_scalar(scalar: Scalar<'_>) -> Self {
        if let Scalar::Text(text) = scalar { parse_model(text) } else { None }
    }
}

/// Reads the fields of an object. Written by hand, because a derived implementation rejects
/// duplicate keys, while all known servers use the last one.
impl<'de> ReadObject<'de> for BodyFields {
    fn members<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while let Some(Key(key)) = map.next_key()? {
            self.has_inputs |= key == "inputs";
            match (&*key, Role::of_field(&key), &mut self.prompt) {
                ("model", ..) => self.model = map.next_value::<Any<_>>()?.0,
                ("stream", ..) => self.stream = map.next_value::<Any<_>>()?.0,
                (_, Some(role), Some(prompt)) => prompt.count(role, &mut map)?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(self)
    }
}
