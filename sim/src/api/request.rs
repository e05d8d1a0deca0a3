//! Parses a request body into a [`GenerationRequest`].

use http::{HeaderMap, Uri};
use serde_json::{Map, Value};

use super::answer_content::Answer;
use super::{ApiError, Finish, Protocol, gemini, prompt};
use crate::config::{Adapter, SimConfig};

/// A valid request to generate an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GenerationRequest {
    pub(crate) protocol: Protocol,
    pub(crate) model: String,
    pub(crate) stream: bool,
    /// Whether a stream of this answer is a JSON list instead of server-sent events.
    pub(crate) list: bool,
    pub(crate) include_usage: bool,
    pub(crate) prompt_tokens: u32,
    /// Number of tokens that the simulator generates, at least 1.
    pub(crate) output_tokens: u32,
    /// Maximum number of output tokens that the request allows. A provider reserves this number in
    /// its rate budget.
    pub(crate) max_tokens: u32,
    pub(crate) finish: Finish,
    pub(crate) answer: Answer,
    /// The key `text` of a Responses request, which its answer repeats.
    pub(crate) text: Option<Value>,
    /// Hashes of the full blocks of the prompt. Empty if the prefix cache is off.
    pub(crate) blocks: Vec<u64>,
}

/// The parts of the configuration that requests are checked against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerLimits<'a> {
    /// Names of the served models. If empty, every name is served.
    pub(crate) models: &'a [String],
    pub(crate) adapters: &'a [Adapter],
    /// Tokens per KV block, or `None` if no block hashes are needed.
    pub(crate) block_size: Option<u32>,
    pub(crate) max_model_len: u32,
    pub(crate) default_output_tokens: u32,
    /// Whether answers call offered tools, see [`SimConfig::tool_calls`](crate::SimConfig).
    pub(crate) tool_calls: bool,
}

impl<'a> ServerLimits<'a> {
    pub(crate) fn from_config(config: &'a SimConfig) -> Self {
        Self {
            models: &config.models,
            adapters: &config.adapters,
            block_size: config.engine.prefix_cache.then_some(config.engine.block_size),
            max_model_len: config.engine.max_model_len,
            default_output_tokens: config.default_output_tokens,
            tool_calls: config.tool_calls,
        }
    }
}

/// Returns the number of prompt tokens of a request to `/tokenize`, which has the prompt of a chat
/// or of a completion. The body key `sim_prompt_tokens` or the header `x-sim-prompt-tokens`
/// overrides the number.
///
/// # Errors
///
/// Returns the error answer for a request without a prompt, or for an unknown model.
pub(crate) fn count_prompt(
    headers: &HeaderMap,
    body: &[u8],
    limits: ServerLimits<'_>,
) -> Result<u64, ApiError> {
    let body = object(body)?;
    let model = read_model(&body, limits)?;
    if !["messages", "prompt"].iter().any(|key| body.contains_key(*key)) {
        return Err(ApiError::bad_request("messages or prompt is missing"));
    }
    let overridden = overridden(headers, "x-sim-prompt-tokens", &body, "sim_prompt_tokens")?;
    Ok(overridden.unwrap_or_else(|| prompt::read(&model, &body, None).tokens).max(1))
}

/// Parses and validates a request.
///
/// The body keys `sim_prompt_tokens` and `sim_output_tokens`, or the headers `x-sim-prompt-tokens`
/// and `x-sim-output-tokens`, override the two lengths. Otherwise the prompt's length is computed
/// from its text, and the output's length is the request's maximum or the configured default. An
/// answer in JSON is as long as its text; a smaller maximum or override cuts it off.
///
/// # Errors
///
/// Returns the error answer for a request that vLLM would reject: 404 for an unknown model, 400
/// otherwise.
pub(crate) fn read(
    protocol: Protocol,
    uri: &Uri,
    headers: &HeaderMap,
    body: &[u8],
    limits: ServerLimits<'_>,
) -> Result<GenerationRequest, ApiError> {
    let body = object(body)?;
    let model_path = gemini::ModelPath::from_path(uri.path());
    let model = match &model_path {
        Some(model_path) => check_served(model_path.model.to_owned(), limits)?,
        None => read_model(&body, limits)?,
    };
    require_prompt(protocol, &body)?;
    let stream = match &model_path {
        Some(model_path) => model_path.stream,
        None => boolean(&body, "stream")?,
    };
    let empty = Map::new();
    // Gemini has a separate object for generation parameters.
    let parameters = match protocol {
        Protocol::Gemini => body.get("generationConfig").and_then(Value::as_object).unwrap_or(&empty),
        _ => &body,
    };
    let choices = if protocol == Protocol::Gemini { "candidateCount" } else { "n" };
    if integer(parameters, choices)?.is_some_and(|n| n != 1) {
        return Err(
            ApiError::bad_request(format!("this server generates one choice ({choices} = 1)")).param(choices)
        );
    }
    let options = body.get("stream_options").and_then(Value::as_object);
    let include_usage = options.and_then(|o| o.get("include_usage")?.as_bool()).unwrap_or(false);

    let length = u64::from(limits.max_model_len);
    let prompt_override = overridden(headers, "x-sim-prompt-tokens", &body, "sim_prompt_tokens")?;
    let read = prompt::read(&model, &body, limits.block_size);
    let prompt = prompt_override.unwrap_or(read.tokens).max(1);
    // vLLM keeps room for at least one generated token, and silently shortens a larger maximum.
    if prompt >= length {
        return Err(ApiError::bad_request(format!(
            "This model's maximum context length is {length} tokens. However, your request has {prompt} input tokens. \
             Please reduce the length of the input messages."
        ))
        .param("input_tokens"));
    }
    let room = length - prompt;
    let requested_max = max_tokens(protocol, parameters)?;
    let max_output = requested_max.unwrap_or(room).min(room);
    let output_override = overridden(headers, "x-sim-output-tokens", &body, "sim_output_tokens")?;
    let answer = Answer::choose(protocol, &body, limits.tool_calls)?;
    let wanted_output = match answer.tokens() {
        Some(length) => output_override.unwrap_or(length).min(length),
        None => output_override.or(requested_max).unwrap_or_else(|| u64::from(limits.default_output_tokens)),
    };
    let output = wanted_output.max(1).min(max_output);
    // The answer finishes with `stop` if it is complete or shorter than its maximum, and with
    // `length` if it reaches the maximum.
    let stops = answer.tokens().map_or(output < max_output, |length| output == length);
    Ok(GenerationRequest {
        protocol,
        model,
        stream,
        list: gemini::streams_json_list(uri),
        include_usage,
        prompt_tokens: saturating_u32(prompt),
        output_tokens: saturating_u32(output),
        max_tokens: saturating_u32(requested_max.unwrap_or(output).min(room)),
        finish: if stops { Finish::Stop } else { Finish::Length },
        answer,
        text: body.get("text").filter(|text| text.is_object()).cloned(),
        blocks: read.blocks,
    })
}

fn saturating_u32(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

/// Parses a body as a JSON object.
fn object(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    let value: Value = serde_json::from_slice(body).map_err(|e| {
        ApiError::bad_request(format!("[{{'type': 'json_invalid', 'msg': 'JSON decode error: {e}'}}]"))
    })?;
    match value {
        Value::Object(body) => Ok(body),
        _ => Err(ApiError::bad_request("the body must be a JSON object")),
    }
}

fn read_model(body: &Map<String, Value>, limits: ServerLimits<'_>) -> Result<String, ApiError> {
    let model = match body.get("model") {
        Some(Value::String(model)) => model.clone(),
        // As in vLLM, a request without a model uses the model that is served.
        None | Some(Value::Null) => limits.models.first().map_or_else(|| "sim".to_owned(), String::clone),
        Some(_) => return Err(ApiError::bad_request("model must be a string").param("model")),
    };
    check_served(model, limits)
}

fn check_served(model: String, limits: ServerLimits<'_>) -> Result<String, ApiError> {
    let adapted = limits.adapters.iter().any(|adapter| adapter.name == model);
    if limits.models.is_empty() || limits.models.contains(&model) || adapted {
        return Ok(model);
    }
    let message = format!("The model `{model}` does not exist.");
    Err(ApiError::new(404, "NotFoundError", message).param("model"))
}

fn require_prompt(protocol: Protocol, body: &Map<String, Value>) -> Result<(), ApiError> {
    let key = match protocol {
        Protocol::Chat | Protocol::Messages => "messages",
        Protocol::Completions => "prompt",
        Protocol::Responses => "input",
        Protocol::Gemini => "contents",
    };
    let is_valid = match (protocol, body.get(key)) {
        (Protocol::Chat | Protocol::Messages | Protocol::Gemini, Some(Value::Array(messages))) => {
            !messages.is_empty()
        }
        (Protocol::Completions, Some(Value::Array(prompt))) => {
            prompt.len() == 1 || prompt.iter().all(Value::is_number)
        }
        (Protocol::Completions, Some(Value::String(_))) => true,
        (Protocol::Responses, Some(Value::String(_) | Value::Array(_))) => true,
        _ => false,
    };
    if is_valid {
        Ok(())
    } else {
        Err(ApiError::bad_request(format!("{key} is missing or has the wrong type")).param(key))
    }
}

fn max_tokens(protocol: Protocol, body: &Map<String, Value>) -> Result<Option<u64>, ApiError> {
    let keys: &[&'static str] = match protocol {
        Protocol::Chat => &["max_completion_tokens", "max_tokens"],
        Protocol::Completions | Protocol::Messages => &["max_tokens"],
        Protocol::Responses => &["max_output_tokens"],
        Protocol::Gemini => &["maxOutputTokens"],
    };
    for &key in keys {
        match integer(body, key)? {
            Some(0) => {
                return Err(ApiError::bad_request(format!("{key} must be at least 1, got 0.")).param(key));
            }
            Some(max_output) => return Ok(Some(max_output)),
            None => {}
        }
    }
    Ok(None)
}

fn integer(body: &Map<String, Value>, key: &'static str) -> Result<Option<u64>, ApiError> {
    match body.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(n) => Ok(Some(n)),
            None => Err(ApiError::bad_request(format!("{key} must be a non-negative integer")).param(key)),
        },
    }
}

fn boolean(body: &Map<String, Value>, key: &'static str) -> Result<bool, ApiError> {
    match body.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(_) => Err(ApiError::bad_request(format!("{key} must be true or false")).param(key)),
    }
}

fn overridden(
    headers: &HeaderMap,
    header: &'static str,
    body: &Map<String, Value>,
    key: &'static str,
) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get(header) else { return integer(body, key) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| ApiError::bad_request(format!("{header} must be a non-negative integer")))
}
