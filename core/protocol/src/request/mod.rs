//! Reads what the gate needs to know of a request from its method, path and body.
//!
//! # Rationale
//!
//! Requests that are not known to be harmless are treated as inference: an unknown POST that waits
//! in the queue costs a little time, while a model call that bypasses the queue breaks the cap.
//! Likewise, only requests that are known to be safe are repeated.
//!
//! The body is read once. Only the model's name and the size of the prompt are kept.

mod affinity;
mod body_fields;
mod decompress;
mod multipart;
mod path;
mod prefix;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::header::HeaderMap;
use http::{Method, Uri};
use percent_encoding::percent_decode_str;

pub use self::affinity::{Affinity, CHUNK, affinity};
use self::body_fields::BodyFields;
pub use self::decompress::{MAX_DECOMPRESSED, decompress};
use self::path::Path;
pub use self::path::model_in_path;
pub use self::prefix::Prefix;
use crate::prompt::{Prompt, Task};

/// Maximum length of a model name in bytes. Longer names could fill maps and labels cheaply.
pub const MAX_MODEL: usize = 256;

/// API dialect: the format of the response stream and of its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// `chat/completions`.
    OpenAiChat,
    /// `completions`.
    OpenAiCompletions,
    /// `responses`.
    OpenAiResponses,
    /// `messages`, also Anthropic's models on Vertex.
    AnthropicMessages,
    /// `generateContent` and `streamGenerateContent`, on Google's own API and on Vertex.
    Gemini,
    /// Any other API. Its responses are forwarded and never judged as truncated.
    #[default]
    Other,
}

/// Whether a call takes a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// The call runs a model, or may run one: it takes a slot.
    Inference,
    /// The call is known to run no model (files, models, batches, counting tokens): it bypasses the
    /// queue.
    Bypass,
}

/// What admission and the observer need to know of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestFacts {
    /// Whether the call takes a slot.
    pub route: Route,
    /// The format of its response.
    pub dialect: Dialect,
    /// The model, from the path if it names one (Azure deployments, Gemini, Bedrock), otherwise
    /// from the body. `None` if neither names one, or if the body is absent, not JSON, or
    /// compressed in an unreadable way or to more than 1 MiB.
    pub model: Option<Arc<str>>,
    /// Whether the call requests a stream.
    pub stream: bool,
    /// Whether the request is known to be safe to repeat: an idempotent method, or an inference
    /// call of a known kind.
    pub repeatable: bool,
    /// What costs tokens in the request, or `None` if unknown, for the same reasons as the model.
    pub prompt: Option<Prompt>,
    /// The kind of work that the call requests.
    pub task: Task,
}

impl RequestFacts {
    /// Returns the facts of a call whose request is not visible: it runs a model, and nothing else
    /// is known.
    pub fn unknown() -> Self {
        Self {
            route: Route::Inference,
            dialect: Dialect::Other,
            model: None,
            stream: false,
            repeatable: false,
            prompt: None,
            task: Task::Other,
        }
    }

    /// Reads a request. `body` is `None` if it is not available, for example because it is a
    /// stream.
    ///
    /// The time is linear in the body: 0.14 ms per megabyte of plain text or base64, 0.45 ms for
    /// text with many escapes, and up to 3 ms for many small values. Counting a prompt of 100 KB
    /// takes 2 to 16 µs, or 0.2 ms if it consists of a thousand messages. Decompression takes
    /// another 8 ms per megabyte and is limited to 1 MiB.
    pub fn read(method: &Method, uri: &Uri, headers: &HeaderMap, body: Option<&[u8]>) -> Self {
        if method != Method::POST {
            // No provider runs a model with another method.
            let repeatable = method.is_idempotent();
            return Self { route: Route::Bypass, repeatable, ..Self::unknown() };
        }
        let Path { mut facts, model } = Path::read(uri.path());
        facts.model = model.and_then(|model| parse_model(&percent_decode_str(model).decode_utf8_lossy()));
        if facts.route == Route::Bypass {
            return facts;
        }
        let is_form = multipart::is_multipart(headers);
        let fields = match body.map(|body| decompress(headers, body)) {
            Some(Some(content)) if is_form => multipart::read(headers, &content, facts.task),
            Some(Some(content)) => BodyFields::json(&content),
            None if is_form => multipart::from_headers(headers, facts.task),
            _ => return facts,
        };
        facts.model = facts.model.or(fields.model);
        facts.stream |= fields.stream;
        facts.prompt = fields.prompt;
        facts
    }
}

fn parse_model(model: &str) -> Option<Arc<str>> {
    (!model.is_empty() && model.len() <= MAX_MODEL).then(|| model.into())
}
