//! What an answer contains: words, JSON for a schema, or a tool call.

use serde_json::{Map, Value};

use super::prompt::TOKEN_BYTES;
use super::tools::{self, Choice, Tool};
use super::{ApiError, Protocol, token_text};
use crate::json_schema;

/// The content of an answer. Its tokens are pieces of four bytes if it is JSON.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    /// As many words as tokens are generated.
    Words,
    /// Text in JSON, or a bare value of an `enum`.
    Text(String),
    ToolCall {
        name: String,
        /// The arguments in JSON.
        arguments: String,
    },
}

impl Answer {
    /// Chooses the answer to a request. With `calls_tools`, the answer calls an offered tool that
    /// the conversation has not called since its last user message, even if the request leaves the
    /// choice open.
    ///
    /// # Errors
    ///
    /// Returns a 400 if a tool choice or an output format is not supported, or if no value was
    /// found for its schema.
    pub(super) fn choose<'a>(
        protocol: Protocol,
        body: &'a Map<String, Value>,
        calls_tools: bool,
    ) -> Result<Self, ApiError> {
        let offered = tools::offered(protocol, body);
        let called = tools::called(protocol, body, &offered);
        let uncalled = |allowed: &[Tool<'a>]| -> Option<Tool<'a>> {
            allowed.iter().find(|tool| !called.contains(&tool.name)).copied()
        };
        let tool = match tools::choice(protocol, body)? {
            Choice::Required(names) => {
                let allowed = tools::allowed(&offered, &names)?;
                // The last tool is called again if all were called: it often takes the final
                // result.
                uncalled(&allowed).or(allowed.last().copied())
            }
            Choice::Auto(names) if calls_tools && !offered.is_empty() => {
                uncalled(&tools::allowed(&offered, &names)?)
            }
            Choice::Auto(_) | Choice::Never => None,
        };
        if let Some(tool) = tool {
            return Ok(Self::ToolCall { name: tool.name.to_owned(), arguments: arguments(tool)? });
        }
        Ok(output_text(protocol, body)?.map_or(Self::Words, Self::Text))
    }

    fn json(&self) -> Option<&str> {
        match self {
            Self::Words => None,
            Self::Text(text) => Some(text),
            Self::ToolCall { arguments, .. } => Some(arguments),
        }
    }

    /// Returns the number of tokens of the whole answer, or `None` if it has any length.
    pub(super) fn tokens(&self) -> Option<u64> {
        self.json().map(|text| (text.len() as u64).div_ceil(TOKEN_BYTES).max(1))
    }

    /// Returns the text of the token at `index`, counted from 0.
    pub(super) fn token_text(&self, index: u32) -> &str {
        match self.json() {
            Some(text) => text.get(end(text, index)..end(text, index.saturating_add(1))).unwrap_or_default(),
            None => token_text(index),
        }
    }

    /// Returns the concatenated texts of the first `tokens` tokens.
    pub(super) fn text(&self, tokens: u32) -> String {
        match self.json() {
            Some(text) => text.get(..end(text, tokens)).unwrap_or_default().to_owned(),
            None => super::text(tokens),
        }
    }
}

/// Returns the offset at which the first `tokens` tokens of `text` end. A character that would be
/// split belongs to the earlier token.
fn end(text: &str, tokens: u32) -> usize {
    let offset = (tokens as usize).saturating_mul(TOKEN_BYTES as usize);
    (offset..text.len()).find(|offset| text.is_char_boundary(*offset)).unwrap_or(text.len())
}

fn arguments(tool: Tool<'_>) -> Result<String, ApiError> {
    // Arguments are an object, even if the schema leaves the type open.
    let mut schema = tool.schema.and_then(Value::as_object).cloned().unwrap_or_default();
    if schema.is_empty() {
        return Ok("{}".to_owned());
    }
    schema.entry("type").or_insert_with(|| "object".into());
    let value = instance(&Value::Object(schema), "tools")?;
    Ok(value.to_string())
}

fn instance(schema: &Value, param: &'static str) -> Result<Value, ApiError> {
    json_schema::instance(schema).map_err(|reason| {
        ApiError::bad_request(format!(
            "the simulator finds no value for the JSON schema in {param}: {reason}"
        ))
        .param(param)
    })
}

/// Returns the text that a requested output format asks for. Returns `None` for plain text.
fn output_text(protocol: Protocol, body: &Map<String, Value>) -> Result<Option<String>, ApiError> {
    let (param, format) = match protocol {
        Protocol::Chat | Protocol::Completions => ("response_format", body.get("response_format")),
        Protocol::Responses => ("text", body.get("text").and_then(|text| text.get("format"))),
        Protocol::Messages => {
            let current = body.get("output_config").and_then(|config| config.get("format"));
            ("output_config", current.or(body.get("output_format")))
        }
        Protocol::Gemini => return gemini_text(body),
    };
    let Some(format) = format.filter(|format| !format.is_null()) else { return Ok(None) };
    match format.get("type").and_then(Value::as_str) {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some("{}".to_owned())),
        Some("json_schema") => {
            let schema = format.get("schema").or_else(|| format.get("json_schema")?.get("schema"));
            let missing = || ApiError::bad_request(format!("{param} has no `schema`")).param(param);
            Ok(Some(instance(schema.ok_or_else(missing)?, param)?.to_string()))
        }
        _ => {
            let message = format!("{param} must have the type `text`, `json_object` or `json_schema`");
            Err(ApiError::bad_request(message).param(param))
        }
    }
}

fn gemini_text(body: &Map<String, Value>) -> Result<Option<String>, ApiError> {
    let parameter = |key| body.get("generationConfig")?.get(key).filter(|value: &&Value| !value.is_null());
    let schema = parameter("responseJsonSchema").or_else(|| parameter("responseSchema"));
    let value = match (parameter("responseMimeType").and_then(Value::as_str), schema) {
        (Some("text/plain"), _) | (None, None) => return Ok(None),
        (Some("application/json"), None) => return Ok(Some("{}".to_owned())),
        (_, Some(schema)) => instance(schema, "generationConfig")?,
        (Some(other), None) => {
            let message = format!("responseMimeType {other:?} needs a responseSchema");
            return Err(ApiError::bad_request(message).param("generationConfig"));
        }
    };
    match (parameter("responseMimeType").and_then(Value::as_str), &value) {
        (Some("text/x.enum"), Value::String(name)) => Ok(Some(name.clone())),
        _ => Ok(Some(value.to_string())),
    }
}
