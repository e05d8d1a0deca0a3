//! Detects output of the model in a JSON object, from its keys in any order.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::json::{Key, Present};

/// The keys of a dialect whose values are output.
pub(super) trait OutputKeys {
    /// Returns `true` if the value under `key` is output of the model.
    fn is_output(key: &str) -> bool;
}

/// Whether a JSON object has a non-empty value under an output key.
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
