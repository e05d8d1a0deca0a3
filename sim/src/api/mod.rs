//! The wire formats of vLLM's server, of Anthropic and of Gemini. No I/O.
//!
//! [`request`] parses a body into a [`GenerationRequest`] or an [`ApiError`], and
//! [`answer_content`] chooses the content of the answer. [`Encoder`] encodes the generated tokens
//! as a stream or as one JSON document. Each of the five protocols has a module.

mod answer_content;
mod anthropic_messages;
mod encoder;
mod error;
mod gemini;
mod openai_chat;
mod openai_completions;
mod openai_responses;
mod prompt;
pub(crate) mod request;
mod sse;
mod tools;

pub(crate) use self::encoder::{Encoder, error_stream};
pub(crate) use self::error::ApiError;
pub(crate) use self::request::GenerationRequest;

use http::Uri;

/// The protocol of a request, given by its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Chat,
    Completions,
    Responses,
    Messages,
    Gemini,
}

impl Protocol {
    pub(crate) fn from_uri(uri: &Uri) -> Option<Self> {
        match uri.path() {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/completions" => Some(Self::Completions),
            "/v1/responses" => Some(Self::Responses),
            "/v1/messages" => Some(Self::Messages),
            path => gemini::ModelPath::from_path(path).map(|_| Self::Gemini),
        }
    }
}

/// Why the generation of an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    Length,
    Stop,
}

impl Finish {
    /// Returns the name that OpenAI's `finish_reason` and vLLM's metric label `finished_reason`
    /// use.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Stop => "stop",
        }
    }
}

/// Returns the text of the token at `index`. The same index always has the same text, so that tests
/// can check answers.
pub(crate) fn token_text(index: u32) -> &'static str {
    const WORDS: [&str; 8] = ["The", " tide", " comes", " in", " and", " goes", " out", "."];
    match index {
        0 => WORDS[0],
        _ => WORDS.get(index as usize % WORDS.len()).copied().unwrap_or(" "),
    }
}

/// Returns the concatenated texts of the first `tokens` tokens.
pub(crate) fn text(tokens: u32) -> String {
    (0..tokens).map(token_text).collect()
}
