//! Decides whether a JSON object holds output, from its keys in any order.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::json::{Key, Present};

/// The keys of such an object.
pub(super) trait OutputKeys {
    /// Returns `true` if a value under this key is output.
    fn is_output(key: &str) -> bool;
}

/// Whether the object has a non-empty value under an output key.
pub(super) struct HasOutput<K>(pub(super) bool, PhantomData<K>);

impl<'de, K: OutputKeys> Deserialize<'de> for HasOutput<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self(false, PhantomData))
    }
}

impl<'de, K: OutputKeys> Visitor<'de> for HasOutput<K> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while let Some(is_output) = map.next_key_seed(Key(K::is_output))? {
            if is_output {
                self.0 |= map.next_value::<Present>()?.0;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(self)
    }
}
