//! Detects output of the model in a JSON object, from its keys in any order.

use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess};

use crate::lenient_json::{Key, Object, Present, ReadObject};

/// The keys of a dialect whose values are output.
pub(super) trait OutputKeys {
    /// Returns `true` if the value under `key` is output of the model.
    fn is_output(key: &str) -> bool;
}

/// Whether a JSON object has a non-empty value under an output key.
pub(super) struct HasOutput<K>(pub(super) bool, PhantomData<K>);

impl<'de, K: OutputKeys> Deserialize<'de> for HasOutput<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Object(Self(false, PhantomData)))
    }
}

impl<'de, K: OutputKeys> ReadObject<'de> for HasOutput<K> {
    fn members<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while let Some(Key(key)) = map.next_key()? {
            if K::is_output(&key) {
                self.0 |= map.next_value::<Present>()?.0;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(self)
    }
}
