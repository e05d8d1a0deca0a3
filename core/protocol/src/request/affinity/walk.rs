//! Hashes the shared parts of a request body while it is parsed.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::chunk_hasher::{ChunkHasher, combine};
use crate::json::{Any, FromAny};

/// The parts of a request body that other requests may share.
#[derive(Default)]
pub(super) struct PromptHashes {
    /// Cache salt: requests with different salts must not share cache entries.
    pub(super) salt: Option<Box<str>>,
    pub(super) session: Option<Box<str>>,
    tools: ChunkHasher,
    system: ChunkHasher,
    turns: Turns,
}

#[derive(Default)]
struct Turns {
    text: ChunkHasher,
    /// Hash of the leading messages with instructions.
    instructions: u64,
    /// Whether a message without instructions has been read.
    is_past_instructions: bool,
    /// Whether the first user message has been read.
    begun: bool,
}

impl PromptHashes {
    /// Reads a body. Returns `None` if it is not a JSON object.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let mut shared = Self::default();
        let mut json = serde_json::Deserializer::from_slice(body);
        json.deserialize_map(Body(&mut shared)).ok()?;
        json.end().ok()?;
        if shared.tools.ends.is_empty() && shared.system.ends.is_empty() && shared.turns.text.ends.is_empty()
        {
            shared.turns.text.close();
        }
        Some(shared)
    }

    /// Returns the bytes of the prompt, or `None` if they say nothing about its tokens.
    pub(super) fn length(&self) -> Option<u64> {
        let all = [&self.tools, &self.system, &self.turns.text];
        (!all.iter().any(|text| text.opaque)).then(|| all.iter().map(|text| text.length).sum())
    }

    /// Returns the bytes of the tools, and the hash of all instructions.
    pub(super) fn tools_and_instructions(&self) -> (u64, u64) {
        (self.tools.length, combine(self.system.hash(), self.turns.instructions))
    }

    /// Returns the hash of everything before the end of each chunk, starting from `whose`, with the
    /// number of bytes.
    pub(super) fn prefixes(self, whose: u64) -> impl Iterator<Item = (u64, u64)> {
        let tools = combine(whose, self.tools.hash());
        let system = combine(tools, self.system.hash());
        let of = |before: u64, bytes: u64, text: ChunkHasher| {
            let ends = text.ends.into_iter().zip(text.lengths);
            ends.map(move |(end, length)| (combine(before, end), bytes + length))
        };
        let (of_tools, of_system) = (self.tools.length, self.tools.length + self.system.length);
        let first = of(whose, 0, self.tools).chain(of(tools, of_tools, self.system));
        first.chain(of(system, of_system, self.turns.text))
    }
}

impl FromAny for Option<Box<str>> {
    fn missing() -> Self {
        None
    }

    fn text(text: &str) -> Self {
        (!text.is_empty()).then(|| text.into())
    }
}

struct Body<'a>(&'a mut PromptHashes);

impl<'de> Visitor<'de> for Body<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let shared = self.0;
        while let Some(key) = map.next_key::<Name>()? {
            match key {
                Name::Tools => map.next_value_seed(Walk { text: &mut shared.tools, all: true })?,
                Name::System => map.next_value_seed(Walk { text: &mut shared.system, all: false })?,
                Name::Turns => map.next_value_seed(Conversation(&mut shared.turns))?,
                Name::Salt => shared.salt = map.next_value::<Any<_>>()?.0,
                Name::Session => shared.session = map.next_value::<Any<_>>()?.0,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// The role of a member, from its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    Tools,
    System,
    Turns,
    Salt,
    Session,
    Role,
    /// Values that the model does not read, or that change between turns.
    Aside,
    Data,
    Other,
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;

        impl Visitor<'_> for Read {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E>(self, key: &str) -> Result<Name, E> {
                Ok(match key {
                    "tools" | "functions" | "documents" | "chat_template_kwargs" => Name::Tools,
                    "system" | "instructions" | "systemInstruction" | "system_instruction" => Name::System,
                    "messages" | "prompt" | "input" | "contents" => Name::Turns,
                    "cache_salt" => Name::Salt,
                    "prompt_cache_key" => Name::Session,
                    "role" => Name::Role,
                    "cache_control" | "type" | "id" | "status" | "annotations" | "logprobs" | "detail" => {
                        Name::Aside
                    }
                    "data" | "file_data" => Name::Data,
                    _ => Name::Other,
                })
            }
        }

        deserializer.deserialize_identifier(Read)
    }
}

/// Hashes one value. With `all`, keys are included, because the model reads the value as JSON.
struct Walk<'a> {
    text: &'a mut ChunkHasher,
    all: bool,
}

impl Walk<'_> {
    fn number(self, bits: u64) {
        self.text.mark(bits);
        // A token id, or a few digits.
        self.text.bytes(&[0; 4]);
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.text.mark(1 + u64::from(value));
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.number(value);
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.number(value as u64);
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.number(value.to_bits());
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if text.starts_with("data:") {
            self.text.opaque(text)
        } else {
            self.text.text(text)
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Walk { text, all } = self;
        while seq.next_element_seed(Walk { text, all })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Walk { text, all } = self;
        if all {
            while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
                if key == "cache_control" {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                text.text(&key);
                map.next_value_seed(Walk { text, all })?;
            }
            return Ok(());
        }
        while let Some(key) = map.next_key::<Name>()? {
            match key {
                Name::Aside => drop(map.next_value::<IgnoredAny>()?),
                Name::Data => {
                    text.opaque(map.next_value::<Any<Option<Box<str>>>>()?.0.as_deref().unwrap_or_default())
                }
                _ => map.next_value_seed(Walk { text, all })?,
            }
        }
        Ok(())
    }
}

/// A prompt: a text, token ids, or messages.
struct Conversation<'a>(&'a mut Turns);

impl<'de> DeserializeSeed<'de> for Conversation<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Conversation<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        Walk { text: &mut self.0.text, all: false }.visit_str(text)
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        Walk { text: &mut self.0.text, all: false }.visit_u64(value)
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    /// Reads messages, token ids, or several texts.
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Conversation(self.0))?.is_some() {}
        Ok(())
    }

    /// Reads one message.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Turns { text, instructions, is_past_instructions, begun } = self.0;
        let (mut user, mut instructs) = (false, false);
        while let Some(key) = map.next_key::<Name>()? {
            match key {
                Name::Aside => drop(map.next_value::<IgnoredAny>()?),
                Name::Role => {
                    let role = map.next_value::<Any<Option<Box<str>>>>()?.0.unwrap_or_default();
                    user = &*role == "user";
                    instructs = matches!(&*role, "system" | "developer");
                    text.mark(role.len() as u64);
                    text.text(&role);
                }
                _ => map.next_value_seed(Walk { text, all: false })?,
            }
        }
        *is_past_instructions |= !instructs;
        if !*is_past_instructions {
            *instructions = text.hash();
        }
        if user && !*begun {
            text.close();
            *begun = true;
        }
        Ok(())
    }
}
