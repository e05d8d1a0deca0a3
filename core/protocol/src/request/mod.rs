//! Reads the facts of a request that admission and the observer use, from its method, path, headers
//! and body.
//!
//! # Rationale
//!
//! A POST request is treated as inference, unless its path is known to run no model. Queuing a
//! harmless request delays it a little, while a model call that bypasses the queue breaks the
//! concurrency limit. For the same reason, only requests that are known to be safe are repeated.
//!
//! Prompts are not stored: only the model's name and the size of the prompt are.

mod affinity;
mod body_fields;
mod decompress;
mod multipart;
mod path;
mod prefix;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::{Method, Uri, header::HeaderMap};
use percent_encoding::percent_decode_str;

pub use self::affinity::{Affinity, CHUNK, affinity};
pub use self::decompress::{MAX_DECOMPRESSED, decompress};
pub use self::path::model_in_path;
pub use self::prefix::Prefix;
use self::{body_fields::BodyFields, path::Path};
use crate::prompt::{Prompt, Task};

/// Maximum length of a model name in bytes. A longer name is treated as no name, because it would
/// take memory in maps and metric labels.
pub const MAX_MODEL: usize = 256;

/// The API format of a request, which defines how its response streams and ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// OpenAI chat completions (`/chat/completions`).
    OpenAiChat,
    /// OpenAI legacy completions (`/completions`).
    OpenAiCompletions,
    /// OpenAI Responses (`/responses`).
    OpenAiResponses,
    /// Anthropic Messages (`/messages`), including Anthropic models on Vertex AI.
    AnthropicMessages,
    /// Gemini `generateContent` and `streamGenerateContent`, on Google's own API and on Vertex AI.
    Gemini,
    /// Any other API. Its responses are forwarded and never reported as truncated.
    #[default]
    Other,
}

/// What a call is for, which decides whether it passes through admission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The call runs a model, or may run one. It waits for a slot.
    #[default]
    Inference,
    /// The call is known to run no model (for example files, models, batches or token counting). It
    /// bypasses the queue.
    Other,
}

/// The facts of a request that admission and the observer use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFacts {
    /// What the call is for. Calls that run no model do not wait for a slot.
    pub purpose: Purpose,
    /// The format of the response.
    pub dialect: Dialect,
    /// The model named in the path (Azure deployments, Gemini, Bedrock), otherwise the one named in
    /// the body.
    ///
    /// `None` if neither names one of at most [`MAX_MODEL`] bytes. The body is ignored if it is
    /// unavailable, is neither JSON nor a form, or cannot be decompressed to at most 1 MiB.
    pub model: Option<Arc<str>>,
    /// Whether the call requests a streamed response.
    pub stream: bool,
    /// Whether sending the request twice is known to be safe: the method is idempotent, or the path
    /// is a known inference endpoint.
    pub repeatable: bool,
    /// The parts of the request that cost tokens. `None` if the body was ignored, for the same
    /// reasons as in [`RequestFacts::model`].
    pub prompt: Option<Prompt>,
    /// The kind of work that the endpoint performs.
    pub task: Task,
}

impl RequestFacts {
    /// Returns the facts of a call whose request is not visible: an inference call of an unknown
    /// format and model that must not be repeated.
    pub fn unknown() -> Self {
        Self::default()
    }

    /// Reads the facts of a request. `body` is `None` if the body is unavailable, for example
    /// because it is a stream.
    ///
    /// The time is linear in the length of the body: 0.14 ms per megabyte of plain text or base64,
    /// 0.45 ms for text with many escapes, and up to 3 ms for many small values. Counting a prompt
    /// of 100 KB takes 2 to 16 µs, or 0.2 ms if it consists of a thousand messages. Decompression
    /// takes another 8 ms per megabyte of output, which is limited to 1 MiB.
    pub fn read(method: &Method, uri: &Uri, headers: &HeaderMap, body: Option<&[u8]>) -> Self {
        if method != Method::POST {
            // No provider runs a model with another method.
            let repeatable = method.is_idempotent();
            return Self { purpose: Purpose::Other, repeatable, ..Self::unknown() };
        }
        let Path { mut facts, model, needs_inputs } = Path::read(uri.path());
        facts.model = model.and_then(|model| parse_model(&percent_decode_str(model).decode_utf8_lossy()));
        if facts.purpose == Purpose::Other {
            return facts;
        }
        let is_form = multipart::is_multipart(headers);
        let fields = match body.map(|body| decompress(headers, body)) {
            Some(Some(content)) if is_form => multipart::read(headers, &content, facts.task),
            Some(Some(content)) => BodyFields::json(&content),
            None if is_form => multipart::from_headers(headers, facts.task),
            _ => return facts,
        };
        if needs_inputs && !fields.has_inputs {
            return Path::bypass().facts;
        }
        facts.model = facts.model.or(fields.model);
        facts.stream |= fields.stream;
        facts.prompt = fields.prompt;
        facts
    }
}

/// Returns the model name, or `None` if it is empty or longer than [`MAX_MODEL`] bytes.
fn parse_model(model: &str) -> Option<Arc<str>> {
    (!model.is_empty() && model.len() <= MAX_MODEL).then(|| model.into())
}
