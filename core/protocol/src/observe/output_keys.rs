//! Decides whether a JSON object holds output, from its keys in any order.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::json::{Any, Present};

/// A key of such an object.
pub(super) trait Key {
    /// Returns `true` if a value under this key is output.
    fn is_output(&self) -> bool;
}

/// Whether the object has a non-empty value under an output key.
pub(super) struct HasOutput<K>(pub(super) bool, PhantomData<K>);

impl<'de, K: Key + Deserialize<'de>> Deserialize<'de> for HasOutput<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields(PhantomData))
    }
}

struct Fields<K>(PhantomData<K>);

impl<'de, K: Key + Deserialize<'de>> Visitor<'de> for Fields<K> {
    type Value = HasOutput<K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HasOutput<K>, A::Error> {
        let mut output = false;
        while let Some(key) = map.next_key::<K>()? {
            if key.is_output() {
                output |= map.next_value::<Any<Present>>()?.0.0;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(HasOutput(output, PhantomData))
    }
}
