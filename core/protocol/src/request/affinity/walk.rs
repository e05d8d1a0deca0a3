//! Hashes the parts of a JSON body that other requests may share, while the body is parsed.

use std::fmt;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Deserializer;

use super::chunk_hasher::{ChunkHasher, combine};
use crate::json::{Any, Json, Key, ReadAny, Scalar, read_object};

/// The hashes of the parts of one request body.
#[derive(Default)]
pub(super) struct PromptHashes {
    /// The `cache_salt`, or empty. Requests with different salts must not share cache entries.
    pub(super) salt: String,
    /// The `prompt_cache_key`, or empty.
    pub(super) session: String,
    tools: ChunkHasher,
    system: ChunkHasher,
    turns: Turns,
}

/// The hash of the messages of a conversation, or of a plain prompt.
#[derive(Default)]
struct Turns {
    text: ChunkHasher,
    /// Hash of the leading `system` and `developer` messages, or 0 without any.
    instructions: u64,
    /// Whether a message with another role has been read.
    is_past_instructions: bool,
    /// Whether the first user message has been read.
    begun: bool,
}

impl PromptHashes {
    /// Reads a body. Returns `None` if it is not a JSON object.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let mut hashes = read_object(Deserializer::from_slice(body), Self::default()).ok()?;
        if hashes.parts().iter().all(|part| part.ends.is_empty()) {
            hashes.turns.text.close();
        }
        Some(hashes)
    }

    /// Returns the length of the prompt in bytes, or `None` if it contains media, whose bytes say
    /// nothing about tokens.
    pub(super) fn length(&self) -> Option<u64> {
        let parts = self.parts();
        (!parts.iter().any(|part| part.opaque)).then(|| parts.iter().map(|part| part.length).sum())
    }

    /// Returns the length of the tools in bytes, and a hash of all instructions.
    pub(super) fn tools_and_instructions(&self) -> (u64, u64) {
        (self.tools.length, combine(self.system.hash(), self.turns.instructions))
    }

    /// Returns, for each chunk of tools, system instructions and messages in this order, the hash
    /// of everything before its end and the number of bytes before its end. All hashes depend on
    /// `seed`.
    pub(super) fn prefixes(self, seed: u64) -> impl Iterator<Item = (u64, u64)> {
        let (mut hash, mut bytes) = (seed, 0);
        [self.tools, self.system, self.turns.text].into_iter().flat_map(move |part| {
            let (before, start) = (hash, bytes);
            (hash, bytes) = (combine(hash, part.hash()), bytes + part.length);
            part.ends.into_iter().map(move |(end, length)| (combine(before, end), start + length))
        })
    }

    /// Returns the parts of the prompt in the order in which models read them.
    fn parts(&self) -> [&ChunkHasher; 3] {
        [&self.tools, &self.system, &self.turns.text]
    }
}

impl<'de> Visitor<'de> for PromptHashes {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while let Some(field) = map.next_key_seed(Key(Field::of))? {
            match field {
                Field::Tools => map.next_value_seed(Json(Walk { text: &mut self.tools, keys: true }))?,
                Field::System => map.next_value_seed(Json(Walk { text: &mut self.system, keys: false }))?,
                Field::Turns => map.next_value_seed(Json(&mut self.turns))?,
                Field::Salt => self.salt = map.next_value::<Any<_>>()?.0,
                Field::Session => self.session = map.next_value::<Any<_>>()?.0,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(self)
    }
}

/// The meaning of a JSON member, from its key.
enum Field {
    Tools,
    System,
    Turns,
    Salt,
    Session,
    Role,
    /// A value that the model does not read, or that changes between turns.
    Unread,
    /// Base64 data of an image, sound or file.
    Data,
    Other,
}

impl Field {
    #[inline]
    fn of(key: &str) -> Self {
        match key {
            "tools" | "functions" | "documents" | "chat_template_kwargs" => Self::Tools,
            "system" | "instructions" | "systemInstruction" | "system_instruction" => Self::System,
            "messages" | "prompt" | "input" | "contents" => Self::Turns,
            "cache_salt" => Self::Salt,
            "prompt_cache_key" => Self::Session,
            "role" => Self::Role,
            "cache_control" | "type" | "id" | "status" | "annotations" | "logprobs" | "detail" => {
                Self::Unread
            }
            "data" | "file_data" => Self::Data,
            _ => Self::Other,
        }
    }
}

/// Hashes one JSON value into `text`. If `keys` is `true`, the keys of objects are hashed too,
/// because the model reads the value as JSON.
struct Walk<'a> {
    text: &'a mut ChunkHasher,
    keys: bool,
}

impl Walk<'_> {
    /// Returns the meaning of a key. Hashes the key if `keys` is `true`.
    #[inline]
    fn field(&mut self, key: &str) -> Field {
        if !self.keys {
            Field::of(key)
        } else if key == "cache_control" {
            Field::Unread
        } else {
            self.text.add(key.as_bytes());
            Field::Other
        }
    }
}

impl<'de> ReadAny<'de> for Walk<'_> {
    type Output = ();

    #[inline]
    fn scalar(self, scalar: Scalar<'_>) {
        self.text.scalar(scalar);
    }

    fn array<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        while array.next_element_seed(Json(Walk { text: self.text, keys: self.keys }))?.is_some() {}
        Ok(())
    }

    #[inline]
    fn object<A: MapAccess<'de>>(mut self, mut object: A) -> Result<(), A::Error> {
        while let Some(field) = object.next_key_seed(Key(|key: &str| self.field(key)))? {
            match field {
                Field::Unread => drop(object.next_value::<IgnoredAny>()?),
                Field::Data => self.text.opaque(&object.next_value::<Any<String>>()?.0),
                _ => object.next_value_seed(Json(Walk { text: self.text, keys: self.keys }))?,
            }
        }
        Ok(())
    }
}

/// Hashes a prompt: a string, token ids, or messages.
impl<'de> ReadAny<'de> for &mut Turns {
    type Output = ();

    #[inline]
    fn scalar(self, scalar: Scalar<'_>) {
        if let Scalar::Text(_) | Scalar::Unsigned(_) = scalar {
            self.text.scalar(scalar);
        }
    }

    /// Reads messages, token ids, or several texts.
    fn array<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        while array.next_element_seed(Json(&mut *self))?.is_some() {}
        Ok(())
    }

    /// Reads one message.
    #[inline]
    fn object<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        let (mut is_user, mut instructs) = (false, false);
        while let Some(field) = object.next_key_seed(Key(Field::of))? {
            match field {
                Field::Unread => drop(object.next_value::<IgnoredAny>()?),
                Field::Role => {
                    let role = object.next_value::<Any<String>>()?.0;
                    is_user = role == "user";
                    instructs = matches!(&*role, "system" | "developer");
                    self.text.mark(role.len() as u64);
                    self.text.add(role.as_bytes());
                }
                _ => object.next_value_seed(Json(Walk { text: &mut self.text, keys: false }))?,
            }
        }
        self.is_past_instructions |= !instructs;
        if !self.is_past_instructions {
            self.instructions = self.text.hash();
        }
        if is_user && !self.begun {
            self.text.close();
            self.begun = true;
        }
        Ok(())
    }
}
