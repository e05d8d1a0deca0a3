//! The wire: what vLLM's server reads and writes, without any I/O.
//!
//! [`request`] turns a body into a [`GenerationRequest`] or an [`ApiError`]; [`Encoder`] turns generated tokens into
//! server-sent events or one JSON answer. One file for each of the five shapes: vLLM's own four, and Gemini's.

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

/// The shape of a call.
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

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    Length,
    Stop,
}

impl Finish {
    /// As in OpenAI's `finish_reason` and vLLM's `finished_reason` label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Stop => "stop",
        }
    }
}

/// The text of the token at `index`: always the same, so that an answer can be checked.
pub(crate) fn token_text(index: u32) -> &'static str {
    const WORDS: [&str; 8] = ["The", " tide", " comes", " in", " and", " goes", " out", "."];
    match index {
        0 => WORDS[0],
        _ => WORDS.get(index as usize % WORDS.len()).copied().unwrap_or(" "),
    }
}

/// The text of the first `tokens` tokens.
pub(crate) fn text(tokens: u32) -> String {
    (0..tokens).map(token_text).collect()
}
