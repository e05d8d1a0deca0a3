//! Counts prompt tokens with OpenAI's tokenizers, in this process.

use bytes::Bytes;
use http::HeaderMap;

use super::Counters;
use tidegate_protocol::RequestFacts;
use tidegate_tokens::exact_count;

/// Returns the number of tokens in the prompt of a request body. Returns `None` if the request has
/// no prompt that can be counted.
pub(super) async fn count(
    counters: &Counters,
    facts: &RequestFacts,
    headers: &HeaderMap,
    body: Bytes,
) -> Option<u64> {
    let prompt = facts.prompt?;
    let model = facts.model.clone();
    let count = move |content: &[u8]| exact_count::count(model.as_deref(), &prompt, content);
    counters.run(headers.clone(), body, count).await
}
