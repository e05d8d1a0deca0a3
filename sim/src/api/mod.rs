//! The wire formats of vLLM's server and of Gemini, without I/O.
//!
//! [`request`] parses a body into a [`GenerationRequest`] or an [`ApiError`]. [`Encoder`] encodes
//! generated tokens as server-sent events or as one JSON answer. Each of the five protocols has a
//! module.

mod chat;
mod completions;
mod encoder;
mod error;
mod gemini;
mod messages;
mod prompt;
pub(crate) mod request;
mod responses;
mod sse;

pub(crate) use self::encoder::{Encoder, error_stream};
pub(crate) use self::error::ApiError;
pub(crate) use self::request::GenerationRequest;

use http::Uri;

/// The wire protocol of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Chat,
    Completions,
    Responses,
    Messages,
    Gemini,
}

impl Protocol {
    pub(crate) fn of(uri: &Uri) -> Option<Self> {
        match uri.path() {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/completions" => Some(Self::Completions),
            "/v1/responses" => Some(Self::Responses),
            "/v1/messages" => Some(Self::Messages),
            path => gemini::ModelPath::of(path).map(|_| Self::Gemini),
        }
    }
}

/// Why generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    Length,
    Stop,
}

impl Finish {
    /// Returns the value of OpenAI's `finish_reason` and of vLLM's `finished_reason` label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Stop => "stop",
        }
    }
}

/// Returns the text of the token at `index`. The text is deterministic, so that tests can check
/// answers.
pub(crate) fn token_text(index: u32) -> &'static str {
    const WORDS: [&str; 8] = ["The", " tide", " comes", " in", " and", " goes", " out", "."];
    match index {
        0 => WORDS[0],
        _ => WORDS.get(index as usize % WORDS.len()).copied().unwrap_or(" "),
    }
}

/// Returns the text of the first `tokens` tokens.
pub(crate) fn text(tokens: u32) -> String {
    (0..tokens).map(token_text).collect()
}
