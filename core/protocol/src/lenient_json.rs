//! Lenient JSON: a field of the wrong type is read as a missing field, and does not fail the
//! document.
//!
//! A reader of values of any type implements [`ReadAny`], which has one method for all scalars.
//! [`Json`] adapts it to the `Visitor` and the `DeserializeSeed` of serde.

use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A JSON value that is neither an array nor an object.
pub(super) enum Scalar<'a> {
    Null,
    Bool(bool),
    /// An integer of at least zero.
    Unsigned(u64),
    /// An integer below zero.
    Negative(i64),
    /// A number with a fraction or an exponent, or an integer outside of 64 bits.
    Float(f64),
    Text(&'a str),
}

/// Reads one JSON value of any type into an `Output`.
pub(super) trait ReadAny<'de>: Sized {
    type Output;

    fn scalar(self, scalar: Scalar<'_>) -> Self::Output;

    fn array<A: SeqAccess<'de>>(self, array: A) -> Result<Self::Output, A::Error>;

    fn object<A: MapAccess<'de>>(self, object: A) -> Result<Self::Output, A::Error>;
}

/// Adapts a [`ReadAny`] to the `Visitor` and the `DeserializeSeed` of serde.
pub(super) struct Json<R>(pub(super) R);

impl<'de, R: ReadAny<'de>> DeserializeSeed<'de> for Json<R> {
    type Value = R::Output;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<R::Output, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, R: ReadAny<'de>> Visitor<'de> for Json<R> {
    type Value = R::Output;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<R::Output, E> {
        Ok(self.0.scalar(Scalar::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<R::Output, E> {
        Ok(self.0.scalar(Scalar::Bool(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<R::Output, E> {
        Ok(self.0.scalar(Scalar::Unsigned(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<R::Output, E> {
        Ok(self.0.scalar(Scalar::Negative(value)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<R::Output, E> {
        Ok(self.0.scalar(Scalar::Float(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<R::Output, E> {
        Ok(self.0.scalar(Scalar::Text(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<R::Output, A::Error> {
        self.0.array(seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<R::Output, A::Error> {
        self.0.object(map)
    }
}

/// A key of an object, borrowed from the text if it contains no escapes.
#[derive(Deserialize)]
pub(super) struct Key<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// A type to which any JSON value can be converted. JSON values of an unsuitable type give the
/// default value.
pub(super) trait FromAny: Default {
    fn from_scalar(scalar: Scalar<'_>) -> Self;

    /// Returns the value for an array or object, whose content is skipped. `_is_empty` is `true` if
    /// it has no content. Types that do not override this method get their default value.
    fn from_nested(_is_empty: bool) -> Self {
        Self::default()
    }
}

/// Deserializes a `T` from any JSON, see [`FromAny`].
#[derive(Default)]
pub(super) struct Any<T>(pub(super) T);

impl<'de, T: FromAny> Deserialize<'de> for Any<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Json(PhantomData).deserialize(deserializer).map(Any)
    }
}

impl<'de, T: FromAny> ReadAny<'de> for PhantomData<T> {
    type Output = T;

    #[inline]
    fn scalar(self, scalar: Scalar<'_>) -> T {
        T::from_scalar(scalar)
    }

    fn array<A: SeqAccess<'de>>(self, mut array: A) -> Result<T, A::Error> {
        let is_empty = array.next_element::<IgnoredAny>()?.is_none();
        IgnoredAny.visit_seq(array)?;
        Ok(T::from_nested(is_empty))
    }

    fn object<A: MapAccess<'de>>(self, mut object: A) -> Result<T, A::Error> {
        let is_empty = object.next_entry::<IgnoredAny, IgnoredAny>()?.is_none();
        IgnoredAny.visit_map(object)?;
        Ok(T::from_nested(is_empty))
    }
}

/// A `T`, which is read from an object. The default value for other types of JSON.
#[derive(Default)]
pub(super) struct IfObject<T>(pub(super) T);

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for IfObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Json(Self::default()).deserialize(deserializer)
    }
}

impl<'de, T: Deserialize<'de>> ReadAny<'de> for IfObject<T> {
    type Output = Self;

    fn scalar(self, _: Scalar<'_>) -> Self {
        self
    }

    fn array<A: SeqAccess<'de>>(self, array: A) -> Result<Self, A::Error> {
        IgnoredAny.visit_seq(array)?;
        Ok(self)
    }

    fn object<A: MapAccess<'de>>(self, object: A) -> Result<Self, A::Error> {
        T::deserialize(MapAccessDeserializer::new(object)).map(Self)
    }
}

/// `true` if a JSON value is present and not empty: anything except `null`, `""`, `[]` and `{}`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Present(pub(super) bool);

impl FromAny for Present {
    fn from_scalar(scalar: Scalar<'_>) -> Self {
        Self(!matches!(scalar, Scalar::Null | Scalar::Text("")))
    }

    fn from_nested(is_empty: bool) -> Self {
        Self(!is_empty)
    }
}

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Json(PhantomData).deserialize(deserializer)
    }
}

/// `true` only for the JSON value `true`.
impl FromAny for bool {
    fn from_scalar(scalar: Scalar<'_>) -> Self {
        matches!(scalar, Scalar::Bool(true))
    }
}

/// A number of tokens, which some servers write as `12.0`. `None` for negative numbers and other
/// types.
impl FromAny for Option<u64> {
    fn from_scalar(scalar: Scalar<'_>) -> Self {
        match scalar {
            Scalar::Unsigned(value) => Some(value),
            // The cast saturates.
            Scalar::Float(value) if value >= 0.0 => Some(value as u64),
            _ => None,
        }
    }
}

/// A string. Empty for other types.
impl FromAny for String {
    fn from_scalar(scalar: Scalar<'_>) -> Self {
        if let Scalar::Text(text) = scalar { text.to_owned() } else { Self::new() }
    }
}

/// Reads the members of a JSON object. Other JSON is an error.
pub(super) trait ReadObject<'de>: Sized {
    fn members<A: MapAccess<'de>>(self, members: A) -> Result<Self, A::Error>;
}

/// Adapts a [`ReadObject`] to the `Visitor` of serde.
pub(super) struct Object<R>(pub(super) R);

impl<'de, R: ReadObject<'de>> Visitor<'de> for Object<R> {
    type Value = R;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<R, A::Error> {
        self.0.members(members)
    }
}

/// Parses a whole document that is an object. Returns an error for anything else, and if text
/// follows the object.
pub(super) fn read_object<'de, R: ReadObject<'de>>(
    mut document: serde_json::Deserializer<impl serde_json::de::Read<'de>>,
    reader: R,
) -> serde_json::Result<R> {
    let read = document.deserialize_map(Object(reader))?;
    document.end()?;
    Ok(read)
}

/// Parses a document, or returns `None` if it does not have the form of `T`.
///
/// Invalid UTF-8 is replaced, because some providers split a character between two events, and both
/// events contain output.
pub(super) fn parse<T: DeserializeOwned>(data: &[u8]) -> Option<T> {
    serde_json::from_slice(data).ok().or_else(|| match String::from_utf8_lossy(data) {
        Cow::Owned(repaired) => serde_json::from_str(&repaired).ok(),
        Cow::Borrowed(_) => None,
    })
}
