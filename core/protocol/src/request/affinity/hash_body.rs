//! Hashes the parts of a JSON body that other requests may share, while the body is parsed.

use serde::de::{IgnoredAny, MapAccess, SeqAccess};
use serde_json::Deserializer;

use super::chunk_hasher::{ChunkHasher, combine};
use crate::lenient_json::{Any, Json, Key, ReadAny, ReadObject, Scalar, read_object};

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
    /// Hashes a body. Returns `None` if it is not a JSON object.
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

impl<'de> ReadObject<'de> for PromptHashes {
    fn members<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while let Some(Key(key)) = map.next_key()? {
            match &*key {
                "tools" | "functions" | "documents" | "chat_template_kwargs" => {
                    map.next_value_seed(Json(Walk { text: &mut self.tools, keys: true }))?
                }
                "system" | "instructions" | "systemInstruction" | "system_instruction" => {
                    map.next_value_seed(Json(Walk { text: &mut self.system, keys: false }))?
                }
                "messages" | "prompt" | "input" | "contents" => map.next_value_seed(Json(&mut self.turns))?,
                "cache_salt" => self.salt = map.next_value::<Any<_>>()?.0,
                "prompt_cache_key" => self.session = map.next_value::<Any<_>>()?.0,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(self)
    }
}

/// Returns `true` for keys whose value the model does not read, or that changes between turns.
fn is_unread(key: &str) -> bool {
    matches!(key, "cache_control" | "type" | "id" | "status" | "annotations" | "logprobs" | "detail")
}

/// A reader that hashes one JSON value into `text`. If `keys` is `true`, the keys of objects are
/// hashed too, because the model reads the value as JSON.
struct Walk<'a> {
    text: &'a mut ChunkHasher,
    keys: bool,
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
    fn object<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        let Walk { text, keys } = self;
        while let Some(Key(key)) = object.next_key()? {
            match &*key {
                "cache_control" => drop(object.next_value::<IgnoredAny>()?),
                key if keys => {
                    text.add(key.as_bytes());
                    object.next_value_seed(Json(Walk { text, keys }))?;
                }
                key if is_unread(key) => drop(object.next_value::<IgnoredAny>()?),
                // Base64 data of an image, sound or file.
                "data" | "file_data" => text.opaque(&object.next_value::<Any<String>>()?.0),
                _ => object.next_value_seed(Json(Walk { text, keys }))?,
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

    /// Hashes each element: messages, token ids, or several texts.
    fn array<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        while array.next_element_seed(Json(&mut *self))?.is_some() {}
        Ok(())
    }

    /// Hashes one message. Ends the current chunk after the first user message. Updates
    /// `instructions` if all messages so far are `system` or `developer` messages.
    #[inline]
    fn object<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        let (mut is_user, mut instructs) = (false, false);
        while let Some(Key(key)) = object.next_key()? {
            match &*key {
                key if is_unread(key) => drop(object.next_value::<IgnoredAny>()?),
                "role" => {
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
