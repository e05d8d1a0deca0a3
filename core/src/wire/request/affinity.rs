//! What a request shares with others: its session, and the beginnings of its prompt.

use http::{HeaderMap, HeaderName};

use super::RequestFacts;
use crate::placement::Affinity;

/// Bytes of prompt from one beginning to the next.
pub const CHUNK: usize = 1024;

/// Reads a request. Nothing of the prompt is kept but hashes.
pub(crate) fn affinity(
    facts: &RequestFacts,
    headers: &HeaderMap,
    body: Option<&[u8]>,
    session: Option<&HeaderName>,
) -> Affinity {
    let _ = (facts, headers, body, session);
    Affinity::default()
}
