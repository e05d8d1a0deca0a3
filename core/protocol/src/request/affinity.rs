//! Hashes that show what a request has in common with other requests: its session, and the prefixes
//! of its prompt.
//!
//! # Algorithm
//!
//! Models read tools first, then system instructions, then the messages, whatever their order in
//! the JSON. The hashes follow that order. The hash of a prefix covers everything before its end,
//! and starts with the model and the cache salt.
//!
//! Prefixes end after every [`CHUNK`] bytes of content (later in a long prompt, after every two,
//! four or eight times as many), and **after the first user message**: conversations with the same
//! system prompt diverge there, and a short first message after a long system prompt would
//! otherwise end no prefix. A prompt without any such end has one prefix, the whole prompt.
//!
//! Only content and roles are hashed. Ids, types and `cache_control` change from turn to turn and
//! are left out, and a string is equal to a list of one text. Therefore the next turn of a
//! conversation has all the prefixes of the previous turn.
//!
//! # Guarantees
//!
//! Hashes are equal in all processes and in all versions that run side by side, because clients use
//! them to choose the same replica without communication. They are not cryptographic: two prompts
//! that were made to collide are sent to the same replica and counted as sharing memory, but never
//! receive each other's answers.

mod chunk_hasher;
mod hash_body;
mod prefixes;

use std::sync::Arc;

use http::{HeaderMap, HeaderName};

use self::chunk_hasher::{ChunkHasher, combine};
use self::hash_body::PromptHashes;
use super::{Prefix, RequestFacts, decompress};

/// Length in bytes of a full chunk of prompt content. Prefixes end at the ends of chunks.
pub const CHUNK: usize = 1024;

/// Hashes that show what a call has in common with other calls. Contains no prompt text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affinity {
    /// Hash of the session that the caller names in a header or in `prompt_cache_key`. `None` if it
    /// names none.
    pub session: Option<u64>,
    /// Hash of each prefix of the prompt, from the shortest to the longest. Empty if the prompt
    /// cannot be read.
    pub prefixes: Arc<[u64]>,
    /// The same prefixes with their lengths, for estimates of shared KV-cache memory. The default
    /// value, which shares nothing, if the lengths in tokens cannot be estimated.
    pub prefix: Prefix,
}

/// Computes the affinity of a request. `session` is the name of the header that identifies the
/// session, or `None` if no header does.
///
/// The prefixes are empty if the body is missing, is not a JSON object, or cannot be decompressed
/// to at most 1 MiB. The time is linear in the body: about 30 µs for a prompt of 100 KB. At most
/// the first 960 KB of a prompt have prefixes.
pub fn affinity(
    facts: &RequestFacts,
    headers: &HeaderMap,
    body: Option<&[u8]>,
    session: Option<&HeaderName>,
) -> Affinity {
    let content = body.and_then(|body| decompress(headers, body));
    let hashes = content.and_then(|content| PromptHashes::read(&content)).unwrap_or_default();
    let model = facts.model.as_deref().unwrap_or_default();
    let seed = ChunkHasher::hash_parts(0, &[model.as_bytes(), hashes.salt.as_bytes()]);
    let named = session.and_then(|name| headers.get(name)).filter(|value| !value.is_empty());
    let named = named.map_or(hashes.session.as_bytes(), |value| value.as_bytes());
    let session = (!named.is_empty()).then(|| ChunkHasher::hash_parts(!seed, &[named]));
    // The bytes of media, and of content that the server stores, say nothing about tokens.
    let is_text = facts.prompt.as_ref().is_some_and(|prompt| prompt.media == 0 && !prompt.has_stored_context);
    let Some(bytes) = hashes.length().filter(|_| is_text) else {
        return Affinity::from_hashes(session, hashes.prefixes(seed).map(|(hash, _)| hash));
    };
    // Many engines place the instructions before the tools, so in memory, tools are shared only
    // under the same instructions.
    let (tools, instructions) = hashes.tools_and_instructions();
    let mut affinity = Affinity::from_hashes_with_lengths(session, hashes.prefixes(seed), bytes);
    if tools > 0 {
        affinity.prefix = affinity.prefix.rehashed(tools, |hash| combine(instructions, hash));
    }
    affinity
}

#[cfg(test)]
mod tests;
