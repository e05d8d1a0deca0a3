//! What a request shares with others: its session, and the beginnings of its prompt.
//!
//! The model reads tools first, then the system's instructions, then the turns, whatever order they have in the JSON; so they are hashed in that order, each beginning
//! with all that stands before it, and model and cache salt before all. A beginning ends after each [`CHUNK`] bytes of content, and **after the first message of the
//! user**: that is where one conversation begins to differ from another, and without it a short first turn under a long system prompt would have no beginning of its
//! own. A prompt shorter than all that has one: itself.
//!
//! Only content is hashed, and who said it: not ids, types, or where caches are asked to be cut (`cache_control`), which move from turn to turn. A text and a list of one
//! text are the same. So the next turn of a conversation has all the beginnings of the one before.
//!
//! The hashes are the same in every process and version that runs beside this one, since clients agree by them. They are no secret and no proof: two prompts
//! that are made to have one hash share a replica, and count as sharing its memory; answers are never shared by them.

mod chunk_hasher;
mod prefixes;
mod walk;

use std::sync::Arc;

use http::{HeaderMap, HeaderName};

use self::chunk_hasher::{ChunkHasher, combine};
use self::walk::PromptHashes;
use super::{Prefix, RequestFacts, decompress};

/// Bytes of prompt from one beginning to the next.
pub const CHUNK: usize = 1024;

/// What calls have in common that does not have to be computed twice. All of it hashed: no prompt is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affinity {
    /// The session that it is part of, as its caller says.
    pub session: Option<u64>,
    /// Of its prompt, the hash of each beginning: of its first [`CHUNK`] bytes, of twice as many, and so on, each of all that stands before its end,
    /// with model and cache salt in the first. Empty where the prompt is shorter, or cannot be read.
    pub prefixes: Arc<[u64]>,
    /// The same beginnings with their lengths: what the call may share of an engine's memory. The default, where the lengths are not
    /// known, shares nothing.
    pub prefix: Prefix,
}

/// Reads a request. Nothing of the prompt is kept but hashes. Of a compressed body beyond 1 MiB, one that is no JSON, or none, there are no beginnings.
///
/// Takes time in proportion to the body: of a prompt of 100 KB some 30 µs. Of the turns nothing is hashed beyond 960 KB.
pub fn affinity(
    facts: &RequestFacts,
    headers: &HeaderMap,
    body: Option<&[u8]>,
    session: Option<&HeaderName>,
) -> Affinity {
    let content = body.and_then(|body| decompress(headers, body));
    let shared = content.and_then(|content| PromptHashes::read(&content)).unwrap_or_default();
    let mut whose = ChunkHasher::default();
    whose.text(facts.model.as_deref().unwrap_or_default());
    whose.text(shared.salt.as_deref().unwrap_or_default());
    let whose = whose.hash();
    let named = session.and_then(|name| headers.get(name)).filter(|value| !value.is_empty());
    let session = named.map(|value| value.as_bytes()).or(shared.session.as_deref().map(str::as_bytes));
    let session = session.map(|session| {
        let mut of = ChunkHasher::after(!whose);
        of.bytes(session);
        of.hash()
    });
    // Of media, and of what the server keeps, bytes say nothing of tokens.
    let is_text = facts.prompt.as_ref().is_some_and(|prompt| prompt.media == 0 && !prompt.kept);
    match shared.length().filter(|_| is_text) {
        Some(bytes) => {
            // Many engines put the instructions before the tools: in memory, tools are the same only
            // under the same instructions.
            let (tools, instructions) = shared.tools_and_instructions();
            let mut affinity = Affinity::from_hashes_with_lengths(session, shared.prefixes(whose), bytes);
            if tools > 0 {
                affinity.prefix = affinity.prefix.rehashed(tools, |hash| combine(instructions, hash));
            }
            affinity
        }
        None => Affinity::from_hashes(session, shared.prefixes(whose).map(|(hash, _)| hash)),
    }
}

#[cfg(test)]
mod tests;
