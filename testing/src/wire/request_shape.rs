//! The properties of a request on which its answer depends.

use http::StatusCode;
use serde_json::Value;
use tidegate::protocol::Dialect;
use tidegate::protocol::request::RequestFacts;

use crate::script::{ModelReply, ToolCall};

/// The API that a request uses, given by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    /// Chat completions. Also used for a path of no known API.
    Chat,
    Completions,
    Responses,
    Messages,
    Gemini,
    Embeddings,
}

/// The properties of a request on which its answer depends.
pub(crate) struct RequestShape {
    pub(crate) api: Api,
    pub(crate) stream: bool,
    pub(super) model: String,
    /// Number of the attempt at this target. Identifiers in the answer contain the number, so they
    /// are unique and deterministic.
    pub(super) number: usize,
    pub(super) include_usage: bool,
    pub(super) input_tokens: usize,
    /// Number of texts in an embeddings request.
    pub(super) inputs: usize,
    pub(super) base64: bool,
}

impl RequestShape {
    pub(crate) fn from_request(path: &str, facts: &RequestFacts, body: &[u8], number: usize) -> Self {
        let api = match facts.dialect {
            Dialect::OpenAiCompletions => Api::Completions,
            Dialect::OpenAiResponses => Api::Responses,
            Dialect::AnthropicMessages => Api::Messages,
            Dialect::Gemini => Api::Gemini,
            _ if path.ends_with("/embeddings") => Api::Embeddings,
            _ => Api::Chat,
        };
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        Self {
            api,
            stream: facts.stream,
            model: facts.model.as_deref().unwrap_or("fake").to_owned(),
            number,
            include_usage: value.pointer("/stream_options/include_usage").is_some_and(|on| *on == true),
            input_tokens: body.len().div_ceil(4),
            inputs: value.get("input").and_then(Value::as_array).map_or(1, Vec::len),
            base64: value.get("encoding_format").is_some_and(|format| format == "base64"),
        }
    }

    /// Returns the status with which this API reports an overload: 529 for Anthropic's, 503 for the
    /// others.
    pub(crate) fn overloaded_status(&self) -> StatusCode {
        let overloaded = StatusCode::from_u16(529).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        if self.api == Api::Messages { overloaded } else { StatusCode::SERVICE_UNAVAILABLE }
    }
}

/// A part of a model's answer that is streamed at once: a chunk of text, or a tool call with its
/// index among the tool calls.
#[derive(Clone, Copy)]
pub(super) enum Piece<'a> {
    Text(&'a str),
    Tool(usize, &'a ToolCall),
}

/// Returns the pieces of an answer, at least one: the chunks or words of its text, then its tool
/// calls. The first piece opens the stream, so an answer without a text has an empty piece.
pub(super) fn pieces(reply: &ModelReply) -> Vec<Piece<'_>> {
    let text: Vec<&str> = if !reply.chunks.is_empty() {
        reply.chunks.iter().map(String::as_str).collect()
    } else {
        let default = if reply.tool_calls.is_empty() { "ok" } else { "" };
        reply.text.as_deref().unwrap_or(default).split_inclusive(' ').collect()
    };
    let tools = reply.tool_calls.iter().enumerate().map(|(index, tool)| Piece::Tool(index, tool));
    let pieces: Vec<_> = text.into_iter().map(Piece::Text).chain(tools).collect();
    if pieces.is_empty() { vec![Piece::Text("")] } else { pieces }
}

pub(super) fn text(pieces: &[Piece<'_>]) -> String {
    pieces.iter().filter_map(|piece| if let Piece::Text(text) = piece { Some(*text) } else { None }).collect()
}

pub(super) fn tools<'a>(pieces: &'a [Piece<'a>]) -> impl Iterator<Item = (usize, &'a ToolCall)> {
    pieces
        .iter()
        .filter_map(|piece| if let Piece::Tool(index, tool) = piece { Some((*index, *tool)) } else { None })
}

pub(super) fn has_tools(pieces: &[Piece<'_>]) -> bool {
    tools(pieces).next().is_some()
}

impl ToolCall {
    /// Returns the arguments as JSON text, the form in which most APIs send them. Returns `{}` if
    /// there are none. A text in the script is returned unchanged, even if it is not JSON.
    pub(super) fn argument_text(&self) -> String {
        match &self.arguments {
            Value::Null => String::from("{}"),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        }
    }

    /// Returns the arguments as a JSON value, or null if the script's text is not valid JSON.
    pub(super) fn argument_value(&self) -> Value {
        serde_json::from_str(&self.argument_text()).unwrap_or_default()
    }
}
