//! Splits a JSON list that arrives in pieces into its objects. Gemini streams such a list unless
//! server-sent events are requested.

use std::mem;

use crate::sse::Event;

/// Splits a JSON list into its objects, incrementally. Buffers at most one object of up to `limit`
/// bytes.
#[derive(Default)]
pub(super) struct ElementSplitter {
    limit: usize,
    /// Number of open brackets within the current object, or 0 between objects.
    depth: usize,
    in_string: bool,
    escaped: bool,
    element: Vec<u8>,
    /// Whether the current object exceeds the limit and is dropped.
    oversized: bool,
}

impl ElementSplitter {
    /// Creates a splitter that keeps objects of up to `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Reads the next bytes of the body. Calls `on_element` with each completed object as an event
    /// without a name. The data of an object beyond the limit is empty.
    pub(super) fn push(&mut self, chunk: &[u8], mut on_element: impl FnMut(Event<'_>)) {
        let mut rest = chunk;
        while let Some(at) = rest.iter().position(|byte| self.depth > 0 || *byte == b'{') {
            let part = rest.get(at..).unwrap_or_default();
            let Some((last, after)) = self.walk(part).and_then(|end| part.split_at_checked(end)) else {
                return self.keep(part);
            };
            self.keep(last);
            on_element(Event { name: b"", data: &self.element, oversized: mem::take(&mut self.oversized) });
            self.element.clear();
            rest = after;
        }
    }

    /// Returns the number of bytes of `part` up to and including the end of the current object, or
    /// `None` if the object does not end in `part`.
    fn walk(&mut self, part: &[u8]) -> Option<usize> {
        for (at, byte) in part.iter().enumerate() {
            if mem::take(&mut self.escaped) {
                continue;
            }
            match byte {
                b'"' => self.in_string = !self.in_string,
                b'\\' => self.escaped = self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth -= 1,
                _ => {}
            }
            if self.depth == 0 {
                return Some(at + 1);
            }
        }
        None
    }

    /// Appends bytes to the current object, or drops it if it exceeds the limit.
    fn keep(&mut self, part: &[u8]) {
        if !self.oversized && self.element.len() + part.len() <= self.limit {
            self.element.extend_from_slice(part);
        } else {
            self.oversized = true;
            self.element = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn split<'a>(pieces: impl Iterator<Item = &'a [u8]>, limit: usize) -> Vec<(Vec<u8>, bool)> {
        let mut elements = ElementSplitter::new(limit);
        let mut found = Vec::new();
        for piece in pieces {
            elements.push(piece, |event| found.push((event.data.to_vec(), event.oversized)));
        }
        found
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(json!(null)), "[a\"\\\\{}\\[\\],:]{0,6}".prop_map(Value::from)];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::hash_map("[a\"{\\]]{0,3}", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_split_yields_the_written_elements(
            objects in prop::collection::vec(prop::collection::hash_map("[a}]{0,3}", value(), 0..3), 0..5),
            pretty in any::<bool>(),
            size in 1usize..30,
        ) {
            let objects: Vec<Value> =
                objects.into_iter().map(|map| Value::Object(map.into_iter().collect())).collect();
            let list = Value::Array(objects.clone());
            let text = if pretty { serde_json::to_string_pretty(&list) } else { serde_json::to_string(&list) }.unwrap();
            let found = split(text.as_bytes().chunks(size), usize::MAX);
            let found: Vec<Value> = found.iter().map(|(text, _)| serde_json::from_slice(text).unwrap()).collect();
            prop_assert_eq!(found, objects);
        }

        #[test]
        fn any_split_of_nonsense_is_equal(
            bytes in prop::collection::vec(prop::sample::select(&b"{}[]\"\\a,"[..]), 0..60),
            size in 1usize..8,
            limit in 0usize..20,
        ) {
            prop_assert_eq!(
                split(bytes.chunks(size), limit),
                split(std::iter::once(&bytes[..]), limit)
            );
        }
    }
}
