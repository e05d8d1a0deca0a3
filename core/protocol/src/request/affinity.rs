//! What a request shares with others: its session, and the prefixes of its prompt.
//!
//! # Algorithm
//!
//! Models read tools first, then system instructions, then the turns, whatever their order in the
//! JSON. The hashes follow that order: each prefix is hashed with everything before its end,
//! starting with the model and the cache salt. A prefix ends after each [`CHUNK`] bytes of content,
//! and **after the first user message**: that is where conversations with the same system prompt
//! diverge, and without it a short first turn under a long system prompt would have no prefix of
//! its own. A shorter prompt has one prefix: itself.
//!
//! Only content and roles are hashed, and not ids, types or `cache_control`, which change from turn
//! to turn. A text and a list of one text are equal. So the next turn of a conversation has all the
//! prefixes of the previous one.
//!
//! # Guarantees
//!
//! Hashes are equal in all processes and versions that run side by side, because clients coordinate
//! by them. They are not cryptographic: two prompts that were made to collide share a replica and
//! count as sharing its memory, but answers are never shared.

mod chunk_hasher;
mod prefixes;
mod walk;

use std::sync::Arc;

use http::{HeaderMap, HeaderName};

use self::chunk_hasher::{ChunkHasher, combine};
use self::walk::PromptHashes;
use super::{Prefix, RequestFacts, decompress};

/// Bytes of prompt between two prefixes.
pub const CHUNK: usize = 1024;

/// What calls have in common and need not be computed twice, as hashes. No prompt text is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affinity {
    /// Hash of the session that the caller names.
    pub session: Option<u64>,
    /// Hash of each prefix of the prompt: its first [`CHUNK`] bytes, its first two chunks, and so
    /// on, each including the model and the cache salt. Empty if the prompt cannot be read.
    pub prefixes: Arc<[u64]>,
    /// The same prefixes with their lengths, for estimates of shared KV-cache memory. The default
    /// shares nothing and is used if the lengths are unknown.
    pub prefix: Prefix,
}

/// Reads the affinity of a request. `session` names the header that holds the session.
///
/// There are no prefixes if the body is missing, not JSON, or decompresses to more than 1 MiB. The
/// time is linear in the body: about 30 µs for a prompt of 100 KB. Turns are hashed up to 960 KB.
pub fn affinity(
    facts: &RequestFacts,
    headers: &HeaderMap,
    body: Option<&[u8]>,
    session: Option<&HeaderName>,
) -> Affinity {
    let content = body.and_then(|body| decompress(headers, body));
    let hashes = content.and_then(|content| PromptHashes::read(&content)).unwrap_or_default();
    let mut seed = ChunkHasher::default();
    seed.add(facts.model.as_deref().unwrap_or_default().as_bytes());
    seed.add(hashes.salt.as_bytes());
    let seed = seed.hash();
    let named = session.and_then(|name| headers.get(name)).filter(|value| !value.is_empty());
    let named = named.map_or(hashes.session.as_bytes(), |value| value.as_bytes());
    let session = (!named.is_empty()).then(|| {
        let mut session = ChunkHasher::after(!seed);
        session.add(named);
        session.hash()
    });
    // The bytes of media, and of content that the server stores, say nothing about tokens.
    let is_text = facts.prompt.as_ref().is_some_and(|prompt| prompt.media == 0 && !prompt.kept);
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
