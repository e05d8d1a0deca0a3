//! What a request is, from its method, path and the two fields of its body that matter here.
//!
//! Whatever is not known to be harmless is treated as inference: an unknown POST that waits in the queue costs a little time,
//! a model call that passes beside it breaks the cap. The same caution, the other way round, decides what may be repeated.
//!
//! The body is walked once and nothing of it is kept but the model's name, and how much of it there is for the model to read.

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

/// The longest model name that is believed, in bytes. A longer one would be a cheap way to fill maps and labels.
pub const MAX_MODEL: usize = 256;

/// The shape of the answer: how its stream looks and what it ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// Everything else: passed on as it is, never judged truncated.
    Other,
}

/// Whether a call takes a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// Runs a model, or may: waits its turn.
    Inference,
    /// Known to run none (files, models, batches, counting tokens): passes beside the queue.
    Bypass,
}

/// What admission and the observer need to know of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestFacts {
    /// Whether it takes a slot.
    pub route: Route,
    /// The shape its answer will have.
    pub dialect: Dialect,
    /// The model: from the path where the path names one (Azure deployments, Gemini, Bedrock), else from the body. `None`
    /// where neither does, or where the body is absent, not JSON, or compressed and longer than 1 MiB, or in a way that cannot be read.
    pub model: Option<Arc<str>>,
    /// Whether it asks for a stream.
    pub stream: bool,
    /// Whether sending it twice is known to be safe: an idempotent method, or an inference call of a known kind.
    pub repeatable: bool,
    /// What in it costs tokens; `None` where that is not known, as for the model.
    pub prompt: Option<Prompt>,
    /// What kind of work it asks for.
    pub task: Task,
}

impl RequestFacts {
    /// Of a call whose request does not pass through here: it runs a model, and nothing else is known.
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

    /// Reads a request. `body` is `None` where it is not at hand, as when it is itself a stream.
    ///
    /// Takes time in proportion to the body: a megabyte of plain text or base64 0.14 ms, of text with many escapes 0.45 ms, of many small values up
    /// to 3 ms. Of a prompt of 100 KB counting is 2 to 16 µs, of as much in a thousand messages 0.2 ms. Compressed,
    /// a megabyte of what is in it takes 8 ms more, so of more than 1 MiB nothing is known. Keeps only the name.
    pub fn read(method: &Method, uri: &Uri, headers: &HeaderMap, body: Option<&[u8]>) -> Self {
        if method != Method::POST {
            // No provider runs a model behind another method.
            return Self {
                route: Route::Bypass,
                dialect: Dialect::Other,
                model: None,
                stream: false,
                repeatable: method.is_idempotent(),
                prompt: None,
                task: Task::Other,
            };
        }
        let path = Path::read(uri.path());
        let mut facts = Self {
            route: path.route,
            dialect: path.dialect,
            model: path.model.and_then(name),
            stream: path.stream,
            repeatable: path.route == Route::Inference && path.known,
            prompt: None,
            task: path.task,
        };
        if facts.route == Route::Inference {
            match body {
                Some(body) => facts.read_body(headers, body),
                None if multipart::is_multipart(headers) => {
                    facts.prompt = multipart::from_headers(headers, facts.task)
                }
                None => {}
            }
        }
        facts
    }

    fn read_body(&mut self, headers: &HeaderMap, body: &[u8]) {
        let Some(content) = decompress(headers, body) else { return };
        let fields = if multipart::is_multipart(headers) {
            multipart::read(headers, &content, self.task)
        } else {
            BodyFields::json(&content)
        };
        self.model = self.model.take().or(fields.model);
        self.stream |= fields.stream;
        self.prompt = fields.prompt;
    }
}

/// A model's name out of a path segment.
fn name(segment: &str) -> Option<Arc<str>> {
    parse_model(&percent_decode_str(segment).decode_utf8_lossy())
}

fn parse_model(model: &str) -> Option<Arc<str>> {
    (!model.is_empty() && model.len() <= MAX_MODEL).then(|| model.into())
}
