//! Recognizes the answers of vLLM.

use std::sync::LazyLock;

use memchr::memmem::Finder;

/// Members that vLLM adds to the answers of OpenAI's API: to streams, to complete answers also of
/// older versions, and the fingerprint of newer ones.
const MARKS: [&[u8]; 3] =
    [b"\"prompt_token_ids\":", b"\"prompt_logprobs\":", b"\"system_fingerprint\":\"vllm-"];

/// Returns `true` if `answer`, the body of an answer or a part of it, is from vLLM. Quotes are
/// escaped in text that a model writes, so it does not look like one.
///
/// # Examples
///
/// ```
/// use tidegate_protocol::vllm::identifies_vllm;
///
/// assert!(identifies_vllm(br#"{"choices":[],"system_fingerprint":"vllm-0.32.0-3f88"}"#));
/// assert!(!identifies_vllm(br#"{"choices":[{"text":"\"prompt_token_ids\":"}]}"#));
/// ```
pub fn identifies_vllm(answer: &[u8]) -> bool {
    static FINDERS: LazyLock<[Finder<'static>; 3]> = LazyLock::new(|| MARKS.map(Finder::new));
    FINDERS.iter().any(|finder| finder.find(answer).is_some())
}
