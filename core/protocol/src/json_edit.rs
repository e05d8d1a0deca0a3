//! Edits members of a JSON object's text without changing any other byte.
//!
//! A request body belongs to its author: numbers keep their digits, keys their order and
//! duplicates, strings their escapes. Only the edited members are written anew.
//!
//! # Examples
//!
//! ```
//! use tidegate_protocol::json_edit::Object;
//!
//! let object = Object::read(br#"{"n": 1.0, "stream": false}"#).expect("a JSON object");
//! assert_eq!(object.set("stream", "true"), br#"{"n": 1.0, "stream": true}"#);
//! ```

use std::{borrow::Cow, ops::Range};

use serde::de::MapAccess;
use serde_json::value::RawValue;

use crate::lenient_json::{Key, ReadObject, read_object};

/// A JSON object, parsed into its members and their positions.
pub struct Object<'a> {
    text: &'a str,
    members: Vec<Member<'a>>,
}

/// One member of an [`Object`].
pub struct Member<'a> {
    /// The key, with escapes resolved.
    pub key: Cow<'a, str>,
    /// Byte position of the key's opening quote in the text.
    start: usize,
    /// Byte range of the value in the text.
    value_range: Range<usize>,
    /// The value, as JSON text.
    pub value: &'a str,
}

impl<'a> Object<'a> {
    /// Parses an object. Returns `None` if the text is not a JSON object.
    pub fn read(text: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let document = serde_json::Deserializer::from_str(text);
        let Entries(entries) = read_object(document, Entries(Vec::new())).ok()?;
        let mut members: Vec<Member<'a>> = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let value = value.get();
            let value_range = range_of(text, value)?;
            let before = members.last().map_or(0, |member| member.value_range.end);
            // A comma and white space stand between two members, a bracket before the first.
            let start = before + text.get(before..value_range.start)?.find('"')?;
            members.push(Member { key, start, value_range, value });
        }
        Some(Self { text, members })
    }

    /// Returns the last member with this key, which is the one that servers use, or `None` if there
    /// is none.
    pub fn last(&self, key: &str) -> Option<&Member<'a>> {
        self.members.iter().rev().find(|member| member.key == key)
    }

    /// Returns the text with the value of `key` set to `json`, which must be valid JSON. Replaces
    /// the value of each member with that key, or appends a member if there is none.
    pub fn set(&self, key: &str, json: &str) -> Vec<u8> {
        let members = self.members.iter().filter(|member| member.key == key);
        let edits: Vec<_> = members.map(|member| (member.value_range.clone(), json)).collect();
        if !edits.is_empty() {
            return edit(self.text, &edits);
        }
        let (comma, at) = match self.members.last() {
            Some(last) => (",", last.value_range.end),
            None => ("", self.text.find('{').map_or(self.text.len(), |bracket| bracket + 1)),
        };
        edit(self.text, &[(at..at, &format!("{comma}{}:{json}", quoted(key)))])
    }

    /// Returns the text with the value of one member replaced by `json`, which must be valid JSON.
    pub fn replace(&self, member: &Member<'_>, json: &str) -> Vec<u8> {
        edit(self.text, &[(member.value_range.clone(), json)])
    }

    /// Returns the text without the members for which `unwanted` is `true`, and without their
    /// commas.
    pub fn without(&self, unwanted: impl Fn(&Member<'a>) -> bool) -> Vec<u8> {
        let mut edits = Vec::new();
        // End of the member before this one. `None` until the first member that stays.
        let mut before = None;
        for (index, member) in self.members.iter().enumerate() {
            let end = member.value_range.end;
            if !unwanted(member) {
                before = Some(end);
                continue;
            }
            // Each member is removed with the comma before it. Before the first member that stays,
            // members are removed with the comma after them.
            edits.push(match (before, self.members.get(index + 1)) {
                (Some(before), _) => (before..end, ""),
                (None, Some(after)) => (member.start..after.start, ""),
                (None, None) => (member.start..end, ""),
            });
            before = before.map(|_| end);
        }
        edit(self.text, &edits)
    }
}

/// Returns `text` as a JSON string, with quotes and escapes.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns the byte range of `part`, a slice of `text`, within `text`. Returns `None` if `part` is
/// not a slice of `text`.
pub fn range_of(text: &str, part: &str) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    let range = start..start + part.len();
    (text.get(range.clone())? == part).then_some(range)
}

/// Returns the text with each range in `edits` replaced by its new text. The ranges must be in
/// ascending order.
fn edit(text: &str, edits: &[(Range<usize>, &str)]) -> Vec<u8> {
    let mut edited =
        String::with_capacity(text.len() + edits.iter().map(|(_, new)| new.len()).sum::<usize>());
    let mut copied = 0;
    for (range, new) in edits {
        edited += text.get(copied..range.start).unwrap_or_default();
        edited += new;
        copied = range.end;
    }
    edited += text.get(copied..).unwrap_or_default();
    edited.into_bytes()
}

/// Reads all members of an object in order, including those with duplicate keys.
struct Entries<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> ReadObject<'de> for Entries<'de> {
    fn members<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while let Some((Key(key), value)) = map.next_entry()? {
            self.0.push((key, value));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    fn set(text: &str, key: &str, json: &str) -> Option<String> {
        Some(String::from_utf8(Object::read(text.as_bytes())?.set(key, json)).unwrap())
    }

    fn without(text: &str, key: &str) -> Option<String> {
        Some(String::from_utf8(Object::read(text.as_bytes())?.without(|member| member.key == key)).unwrap())
    }

    #[test]
    fn set_changes_only_the_value() {
        for (text, expected) in [
            (r#"{"model":"a","n":1.0}"#, r#"{"model":"b","n":1.0}"#),
            ("{ \"n\" : 1e3 ,\n \"model\" : \"a\\u0062\" }\n", "{ \"n\" : 1e3 ,\n \"model\" : \"b\" }\n"),
            (r#"{"mod\u0065l":"a"}"#, r#"{"mod\u0065l":"b"}"#),
            (r#"{"model":"a","model":{"x":[1]}}"#, r#"{"model":"b","model":"b"}"#),
            (
                r#"{"m":{"model":"a"},"t":"\"model\":\"a\""}"#,
                r#"{"m":{"model":"a"},"t":"\"model\":\"a\"","model":"b"}"#,
            ),
            ("{ }", "{\"model\":\"b\" }"),
            (r#"{"half":"\ud83d","model":null}"#, r#"{"half":"\ud83d","model":"b"}"#),
        ] {
            assert_eq!(set(text, "model", "\"b\"").as_deref(), Some(expected), "{text}");
        }
        for text in ["", "[]", "{\"model\":", "{} {}", "\u{feff}{}", "nonsense"] {
            assert_eq!(set(text, "model", "\"b\""), None, "{text}");
        }
    }

    #[test]
    fn without_removes_members_with_their_commas() {
        for (text, expected) in [
            (r#"{"a":1,"u":null,"b":2}"#, r#"{"a":1,"b":2}"#),
            (r#"{"a": 1, "u": null}"#, r#"{"a": 1}"#),
            (r#"{ "u": null, "b": 2 }"#, r#"{ "b": 2 }"#),
            (r#"{"u":null,"u":1,"b":2,"u":3}"#, r#"{"b":2}"#),
            (r#"{ "u":null }"#, r#"{  }"#),
        ] {
            assert_eq!(without(text, "u").as_deref(), Some(expected), "{text}");
        }
    }

    fn object() -> impl Strategy<Value = Map<String, Value>> {
        let value = prop_oneof![
            Just(json!(null)),
            Just(json!(-1.5)),
            "[a\"\\\\{}\\[\\]:,\u{e9}]{0,6}".prop_map(Value::from),
            Just(json!([{"u": 1}, "u"])),
            Just(json!({"u": {"v": []}})),
        ];
        prop::collection::hash_map("u|v|[a\"{\\\\:]{0,3}", value, 0..6)
            .prop_map(|map| map.into_iter().collect())
    }

    proptest! {
        #[test]
        fn edited_text_parses_to_the_edited_object(object in object(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&object) } else { serde_json::to_string(&object) };
            let text = text.unwrap();
            let parsed = |text: &str| serde_json::from_str::<Map<String, Value>>(text).unwrap();
            let mut with = object.clone();
            with.insert("u".into(), json!("new"));
            prop_assert_eq!(parsed(&set(&text, "u", "\"new\"").unwrap()), with);
            let mut rest = object.clone();
            rest.shift_remove("u");
            prop_assert_eq!(parsed(&without(&text, "u").unwrap()), rest);
        }

        #[test]
        fn invalid_text_is_unchanged(bytes in prop::collection::vec(prop::sample::select(&b"{}[]\"\\u:,1 \xff"[..]), 0..40)) {
            if let Some(object) = Object::read(&bytes) {
                prop_assert_eq!(object.without(|_| false), bytes);
            }
        }
    }
}
