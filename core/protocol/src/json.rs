//! Lenient JSON: a field of the wrong type is a missing field, and never fails the document.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A value that can be made from any JSON. Methods that are not overridden return
/// [`FromAny::missing`].
pub(super) trait FromAny: Sized {
    /// Returns the value for `null` and for types without a meaning here.
    fn missing() -> Self;

    fn flag(_: bool) -> Self {
        Self::missing()
    }

    fn number(_: f64) -> Self {
        Self::missing()
    }

    fn text(_: &str) -> Self {
        Self::missing()
    }

    /// Returns the value for an array or object, which is skipped.
    fn nested(_empty: bool) -> Self {
        Self::missing()
    }
}

/// Deserializes a `T` from any JSON.
pub(super) struct Any<T>(pub(super) T);

impl<T: FromAny> Default for Any<T> {
    fn default() -> Self {
        Self(T::missing())
    }
}

impl<'de, T: FromAny> Deserialize<'de> for Any<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyVisitor(PhantomData)).map(Any)
    }
}

struct AnyVisitor<T>(PhantomData<T>);

impl<'de, T: FromAny> Visitor<'de> for AnyVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::missing())
    }

    fn visit_bool<E>(self, value: bool) -> Result<T, E> {
        Ok(T::flag(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<T, E> {
        Ok(T::number(value as f64))
    }

    fn visit_i64<E>(self, value: i64) -> Result<T, E> {
        Ok(T::number(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<T, E> {
        Ok(T::number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<T, E> {
        Ok(T::text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<T, A::Error> {
        let mut empty = true;
        while seq.next_element::<IgnoredAny>()?.is_some() {
            empty = false;
        }
        Ok(T::nested(empty))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut empty = true;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            empty = false;
        }
        Ok(T::nested(empty))
    }
}

/// Whether a value is present: not `null`, `""`, `[]` or `{}`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Present(pub(super) bool);

impl FromAny for Present {
    fn missing() -> Self {
        Present(false)
    }

    fn flag(_: bool) -> Self {
        Present(true)
    }

    fn number(_: f64) -> Self {
        Present(true)
    }

    fn text(text: &str) -> Self {
        Present(!text.is_empty())
    }

    fn nested(empty: bool) -> Self {
        Present(!empty)
    }
}

/// A number of tokens, which some servers write as `12.0`.
impl FromAny for Option<u64> {
    fn missing() -> Self {
        None
    }

    fn number(value: f64) -> Self {
        // The cast saturates; no provider counts beyond 2^53.
        (value >= 0.0).then_some(value as u64)
    }
}

impl FromAny for Option<String> {
    fn missing() -> Self {
        None
    }

    fn text(text: &str) -> Self {
        Some(text.to_owned())
    }
}

/// Parses a document. Invalid UTF-8 inside strings is replaced, because a provider that splits a
/// character has still sent a token.
pub(super) fn parse<T: DeserializeOwned>(data: &[u8]) -> Option<T> {
    match serde_json::from_slice(data) {
        Ok(value) => Some(value),
        Err(_) if std::str::from_utf8(data).is_err() => {
            serde_json::from_str(&String::from_utf8_lossy(data)).ok()
        }
        Err(_) => None,
    }
}
