//! Reads selected top-level members of a JSON document of any length, incrementally and in bounded
//! memory.

use std::mem;

use memchr::memchr2;

/// Maximum length in bytes of a key that is compared with the wanted keys, including its quotes.
const LONGEST_KEY: usize = 32;

/// Keeps the wanted top-level members of a JSON document that arrives in pieces.
#[derive(Default)]
pub(super) struct MemberReader {
    /// Keys of the wanted members.
    wanted: &'static [&'static str],
    /// Maximum number of bytes of members that are kept.
    limit: usize,
    /// Number of brackets that are open at the current position in the document.
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Whether any byte has arrived.
    has_bytes: bool,
    /// Whether the document has begun: a byte other than white space has arrived.
    begun: bool,
    /// Whether the document is an object. Strings at the top of a list are not keys.
    is_object: bool,
    position: Position,
    /// The key of the current member with its quotes, as far as it has arrived.
    key: Vec<u8>,
    /// The wanted members so far, as an object without its closing brace.
    kept: Vec<u8>,
    /// Length of `kept` in bytes before the current member. If the member is dropped, `kept` is
    /// truncated to this length.
    member: usize,
}

/// What the next byte belongs to: the key of a member, or the value of a wanted or unwanted member.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Position {
    #[default]
    Key,
    Wanted,
    Unwanted,
}

impl MemberReader {
    /// Creates a reader of the members with the keys `wanted` that keeps up to `limit` bytes.
    pub(super) fn new(wanted: &'static [&'static str], limit: usize) -> Self {
        Self { wanted, limit, ..Self::default() }
    }

    /// Reads the next bytes of the document.
    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.has_bytes |= !chunk.is_empty();
        let mut rest = chunk;
        while let Some((byte, tail)) = rest.split_first() {
            rest = tail;
            self.step(*byte);
            if self.position == Position::Unwanted && !self.escaped {
                rest = rest.get(self.skippable(rest)..).unwrap_or_default();
            }
        }
    }

    /// Returns the wanted members as an object, or `None` if the document is incomplete.
    ///
    /// An empty body gives an empty object, because the HTTP framing already shows whether bytes
    /// are missing.
    pub(super) fn finish(&mut self) -> Option<Vec<u8>> {
        if self.has_bytes && (!self.begun || self.depth > 0 || self.in_string) {
            return None;
        }
        if self.kept.is_empty() {
            self.kept.push(b'{');
        }
        self.kept.push(b'}');
        Some(mem::take(&mut self.kept))
    }

    /// Returns how many bytes at the start of `rest` can be skipped: text and numbers inside an
    /// unwanted member.
    fn skippable(&self, rest: &[u8]) -> usize {
        let next = match (self.in_string, self.depth) {
            (true, _) => memchr2(b'"', b'\\', rest),
            (false, 0 | 1) => return 0,
            (false, _) => rest.iter().position(|byte| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']')),
        };
        next.unwrap_or(rest.len())
    }

    /// Reads one byte and updates the state of the reader.
    fn step(&mut self, byte: u8) {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return self.copy(byte);
        }
        let at_top = self.depth == 1 && self.is_object;
        match byte {
            b'{' | b'[' if self.depth == 0 => {
                (self.depth, self.begun, self.is_object) = (1, true, byte == b'{');
                return self.begin(if self.is_object { Position::Key } else { Position::Unwanted });
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' if self.depth <= 1 => return self.depth = 0,
            b'}' | b']' => self.depth -= 1,
            b':' if at_top && self.position == Position::Key => return self.start_value(),
            b',' if at_top => return self.begin(Position::Key),
            b' ' | b'\t' | b'\r' | b'\n' => return,
            _ => {
                self.in_string = byte == b'"';
                self.begun = true;
            }
        }
        self.copy(byte);
    }

    /// Starts the next member of an object, or a document that is a list, in which nothing is
    /// wanted. `position` is what the next byte belongs to.
    fn begin(&mut self, position: Position) {
        self.key.clear();
        self.position = position;
        self.member = self.kept.len();
    }

    /// Decides, at the colon after a key, whether the member is wanted. Once the limit is reached,
    /// no member is.
    fn start_value(&mut self) {
        let name = self.key.strip_prefix(b"\"").and_then(|key| key.strip_suffix(b"\""));
        let is_wanted = name.is_some_and(|name| self.wanted.iter().any(|wanted| wanted.as_bytes() == name));
        if !is_wanted || self.kept.len() >= self.limit {
            self.position = Position::Unwanted;
            return;
        }
        self.position = Position::Wanted;
        self.kept.push(if self.kept.is_empty() { b'{' } else { b',' });
        self.kept.append(&mut self.key);
        self.kept.push(b':');
    }

    /// Appends a byte to the key or to the kept members. Drops the current member if its key is too
    /// long, or if the kept members would exceed their limit.
    fn copy(&mut self, byte: u8) {
        match self.position {
            Position::Key if self.key.len() < LONGEST_KEY => self.key.push(byte),
            Position::Wanted if self.kept.len() < self.limit => self.kept.push(byte),
            Position::Unwanted => {}
            // A key that is too long cannot be wanted, and a member that is too long is dropped as
            // a whole.
            Position::Key | Position::Wanted => {
                self.kept.truncate(self.member);
                self.position = Position::Unwanted;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>, limit: usize) -> Option<Vec<u8>> {
        let mut members = MemberReader::new(&["usage", "a"], limit);
        pieces.for_each(|piece| members.push(piece));
        members.finish()
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            Just(json!(-1.5e3)),
            "[a\"\\\\{}\\[\\]:,]{0,6}".prop_map(Value::from),
            Just(json!("usage")),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map("usage|a|[a\"{\\\\:]{0,3}|x{40}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_split_finds_the_members_that_parsing_finds(
            document in value(),
            pretty in any::<bool>(),
            size in 1usize..30,
            at in any::<prop::sample::Index>(),
        ) {
            let text =
                if pretty { serde_json::to_string_pretty(&document) } else { serde_json::to_string(&document) };
            let text = text.unwrap();
            let expected: Map<String, Value> = match &document {
                Value::Object(map) => {
                    map.iter().filter(|(key, _)| ["usage", "a"].contains(&&***key)).map(|(k, v)| (k.clone(), v.clone())).collect()
                }
                _ => Map::new(),
            };
            let found = read(text.as_bytes().chunks(size), usize::MAX).expect("whole");
            prop_assert_eq!(serde_json::from_slice::<Value>(&found).unwrap(), Value::Object(expected));
            // Half a document is incomplete, unless it is a number or a literal. An empty half
            // counts as complete.
            let half = &text.as_bytes()[..at.index(text.len())];
            if half.is_empty() {
                prop_assert_eq!(read(half.chunks(size), usize::MAX), Some(b"{}".to_vec()));
            } else if matches!(document, Value::Object(_) | Value::Array(_) | Value::String(_)) {
                prop_assert_eq!(read(half.chunks(size), usize::MAX), None);
            }
        }

        #[test]
        fn any_split_of_nonsense_is_equal_and_bounded(
            bytes in prop::collection::vec(prop::sample::select(&b"{}[]\"\\a:, "[..]), 0..80),
            size in 1usize..8,
            limit in 0usize..40,
        ) {
            let found = read(bytes.chunks(size), limit);
            prop_assert_eq!(&found, &read(std::iter::once(&bytes[..]), limit));
            // A wanted key with its colon, and the closing bracket, may exceed the limit.
            prop_assert!(found.is_none_or(|found| found.len() <= limit + 12));
        }
    }

    #[test]
    fn keys_without_values_are_bounded() {
        let text = format!("{{{}", r#""usage":,"#.repeat(100_000));
        let mut members = MemberReader::new(&["usage"], 64);
        members.push(text.as_bytes());
        assert!(members.kept.len() <= 64 + 12, "{} bytes", members.kept.len());
    }

    #[test]
    fn oversized_member_is_dropped_and_the_next_is_kept() {
        let text = format!(r#"{{"a": "{}", "usage": [1]}}"#, "x".repeat(1000));
        assert_eq!(read(text.as_bytes().chunks(7), 64).as_deref(), Some(&br#"{"usage":[1]}"#[..]));
    }
}
