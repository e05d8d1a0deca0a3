//! The preflight call, made before the search: checks that the server exists, serves the model and
//! accepts the key. Without it, a wrong key would look like a limit.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use tidegate::{ErrorKind, Transport};
use tower::ServiceExt;

use super::call_state::CallState;
use super::event_hub::EventHub;
use super::metering::{CallTag, MeteringTransport};
use crate::endpoint::{Endpoint, OutputLimitKey};
use crate::error::SweepError;
use crate::journal::PreflightResult;
use crate::mix::Mix;
use crate::observation::FailureCause;

/// Maximum number of attempts of the preflight call if the server is busy (429, 503 or 529).
const MAX_TRIES: usize = 3;
/// Pause before the next attempt if the busy server sent no Retry-After, in seconds.
const DEFAULT_PAUSE_S: f64 = 2.0;
/// Maximum pause before the next attempt, whatever Retry-After says, in seconds.
const MAX_PAUSE_S: f64 = 60.0;
/// Maximum duration of one attempt of the preflight call.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum number of bytes read from a response.
const MAX_BYTES: usize = 1 << 20;

/// Makes the preflight call, and adjusts the prompt lengths of `mix` to the server's token count.
/// If the server stays busy (429, 503 or 529), token count, duration and server name are `None` in
/// the result.
///
/// # Errors
///
/// Returns `SweepError::Preflight`, which states what to do, if the call fails for another reason.
/// Returns `SweepError::Options` if a ceiling does not allow the call.
pub(crate) async fn preflight(
    transport: &Transport,
    endpoint: &Endpoint,
    mix: &mut Mix,
    model: &str,
    hub: &Arc<EventHub>,
) -> Result<PreflightResult, SweepError> {
    let metered = MeteringTransport::over(transport.clone(), hub.clone());
    let mut result = PreflightResult::default();
    for id in 0.. {
        let work = mix.preflight_work(endpoint);
        if let Some(ceiling) = hub.tracker.ceiling_of_next(work.input, work.output, 0) {
            return Err(SweepError::options(format!(
                "the ceiling {} does not allow a single call; raise it",
                ceiling.flag()
            )));
        }
        let call = CallState::new(id, 0, 1, 0, work.input, work.output, hub.clock.now());
        let mut request = endpoint.request(ask_usage(endpoint, &work.body));
        request.extensions_mut().insert(CallTag(call.clone()));
        let outcome = tokio::time::timeout(TIMEOUT, read_response(&metered, request))
            .await
            .unwrap_or(Err(CallError::Timeout));
        let (status, headers, body) = match outcome {
            Ok(response) => response,
            Err(error) => return Err(unreachable_error(endpoint, error)),
        };
        let history = call.history();
        let failure = history.attempts.last().and_then(|attempt| attempt.failure.clone());
        let Some(failure) = failure else {
            result.counted = history.stream.usage.map(|usage| usage.input);
            if let Some(counted) = result.counted.filter(|_| !mix.has_user_prompts()) {
                mix.calibrate(&work, counted);
            }
            result.seconds =
                history.attempts.last().and_then(|attempt| Some(attempt.ended_at? - attempt.sent_at));
            result.server =
                headers.get(http::header::SERVER).and_then(|v| v.to_str().ok()).map(str::to_owned);
            return Ok(result);
        };
        if matches!(failure.cause, FailureCause::Limited | FailureCause::Overloaded) {
            if id + 1 >= MAX_TRIES as u64 {
                return Ok(result);
            }
            let pause = failure.retry_after.unwrap_or(DEFAULT_PAUSE_S).clamp(0.0, MAX_PAUSE_S);
            tokio::time::sleep(Duration::from_secs_f64(pause)).await;
            continue;
        }
        let text = String::from_utf8_lossy(&body);
        if status == StatusCode::BAD_REQUEST
            && !result.completion_tokens
            && text.contains("max_completion_tokens")
        {
            // OpenAI's newer models only accept max_completion_tokens.
            result.completion_tokens = true;
            mix.set_output_limit_key(OutputLimitKey::CompletionTokens);
            continue;
        }
        let models = match status.as_u16() {
            400 | 404 | 422 => fetch_models(transport, endpoint).await,
            _ => None,
        };
        return Err(SweepError::Preflight(explain_response(
            endpoint,
            model,
            status,
            &error_message(&body),
            models.as_deref(),
        )));
    }
    Ok(result)
}

/// Returns `body` with the option that makes the server report token counts, if its API has such an
/// option. The gate adds the option to all other calls.
fn ask_usage(endpoint: &Endpoint, body: &bytes::Bytes) -> bytes::Bytes {
    use crate::endpoint::Api;
    let asks = matches!(endpoint.api(), Api::Chat | Api::Completions);
    match serde_json::from_slice::<Value>(body) {
        Ok(Value::Object(mut fields)) if asks => {
            fields.insert("stream_options".to_owned(), serde_json::json!({"include_usage": true}));
            Value::Object(fields).to_string().into()
        }
        _ => body.clone(),
    }
}

enum CallError {
    /// No complete response arrived within [`TIMEOUT`].
    Timeout,
    /// The connection could not be opened, or broke.
    Transport(tidegate::Error),
}

type FullResponse = (StatusCode, http::HeaderMap, Vec<u8>);

/// Sends a request, and returns the status, the headers and up to [`MAX_BYTES`] of the body. If the
/// body breaks off, returns the part that was read.
async fn read_response(
    transport: &Transport,
    request: http::Request<tidegate::RequestBody>,
) -> Result<FullResponse, CallError> {
    let response = transport.clone().oneshot(request).await.map_err(CallError::Transport)?;
    let (head, mut body) = response.into_parts();
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { break };
        if let Some(bytes) = frame.data_ref() {
            let room = MAX_BYTES.saturating_sub(read.len());
            read.extend_from_slice(bytes.get(..room.min(bytes.len())).unwrap_or_default());
        }
    }
    Ok((head.status, head.headers, read))
}

/// Returns the identifiers of the models that the server lists, or `None` if it returns no list
/// within 10 s.
async fn fetch_models(transport: &Transport, endpoint: &Endpoint) -> Option<Vec<String>> {
    let ask = async {
        let response = transport.clone().oneshot(endpoint.models()?).await.ok()?;
        let body = Limited::new(response.into_body(), MAX_BYTES).collect().await.ok()?.to_bytes();
        serde_json::from_slice::<Value>(&body).ok()
    };
    let list = tokio::time::timeout(Duration::from_secs(10), ask).await.ok()??;
    let ids = list.get("data")?.as_array()?.iter().filter_map(|model| model.get("id")?.as_str());
    Some(ids.map(printable).collect())
}

/// Returns the message of a JSON error body, shortened to 300 characters and with API keys masked.
/// Returns an empty string if there is none.
fn error_message(body: &[u8]) -> String {
    const MAX_CHARS: usize = 300;
    let value: Option<Value> = serde_json::from_slice(body).ok();
    let of = |value: &Value| {
        let error = value.get("error").unwrap_or(value);
        let text = error.get("message").or_else(|| error.get("detail")).unwrap_or(error);
        text.as_str().map(str::to_owned)
    };
    let text = value.as_ref().and_then(of).unwrap_or_default();
    let words = text.split_whitespace().map(|word| if looks_like_a_key(word) { "(key)" } else { word });
    printable(&words.collect::<Vec<_>>().join(" ")).chars().take(MAX_CHARS).collect()
}

/// Returns a text of the server without control characters, which could change the terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|char| !char.is_control()).collect()
}

/// Returns `true` if a word looks like an API key. Providers repeat keys in error messages.
fn looks_like_a_key(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    word.starts_with("sk-")
        || word.contains("****")
        || (word.len() >= 24 && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'))
}

fn unreachable_error(endpoint: &Endpoint, error: CallError) -> SweepError {
    let url = endpoint.url();
    let text = match error {
        CallError::Timeout => format!(
            "{url} did not answer within {} s; check that the server works and is not overloaded",
            TIMEOUT.as_secs()
        ),
        CallError::Transport(error)
            if matches!(error.kind(), ErrorKind::Connect | ErrorKind::ConnectTimeout) =>
        {
            format!(
                "{url} cannot be reached ({error}); check that the server is running and that the port is correct"
            )
        }
        CallError::Transport(error) => format!(
            "{url} closed the connection ({error}); check that it is an HTTP server, and whether the URL needs https:// or http://"
        ),
    };
    SweepError::Preflight(text)
}

/// Returns the error message for the user after a failed preflight call: what the server returned,
/// and what to do. `message` is the server's message, and `models` are the models that it lists, or
/// `None` if unknown.
fn explain_response(
    endpoint: &Endpoint,
    model: &str,
    status: StatusCode,
    message: &str,
    models: Option<&[String]>,
) -> String {
    let url = endpoint.url();
    let server_message = if message.is_empty() { String::new() } else { format!(" (\"{message}\")") };
    let known = models.is_some_and(|models| models.iter().any(|known| known == model));
    match (status.as_u16(), models) {
        (401 | 403, _) => {
            let usual = endpoint.usual_key_env().unwrap_or("OPENAI_API_KEY");
            format!(
                "{url} rejected the API key: {status}{server_message}; pass the variable that holds the key, as in --key-env {usual}"
            )
        }
        (402, _) => format!("{url} requires payment: {status}{server_message}; check the account's billing"),
        (429, _) => format!("the quota of this API key is exhausted: {status}{server_message}"),
        (400 | 404 | 422, Some(models)) if !known && !models.is_empty() => {
            format!(
                "{url} has no model {model}: {status}{server_message}; available models: {}",
                list_models(models)
            )
        }
        (404 | 405, _) => {
            let api = endpoint.api().as_str();
            format!(
                "{url} is not an endpoint for {api}: {status}{server_message}; check the path (most base URLs end in /v1) and --api {api}"
            )
        }
        (code, _) if (500..600).contains(&code) => {
            format!("{url} returned an error: {status}{server_message}; a sweep needs a working server")
        }
        (200..=299, _) => {
            format!(
                "{url} answered, but not with a stream of {}; check the path and --api {}",
                endpoint.api().as_str(),
                endpoint.api().as_str()
            )
        }
        _ => format!(
            "{url} rejected the call: {status}{server_message}; check --model, --api and the request itself"
        ),
    }
}

fn list_models(models: &[String]) -> String {
    const MAX_LISTED: usize = 12;
    let listed: Vec<&str> = models.iter().take(MAX_LISTED).map(String::as_str).collect();
    let more = models.len().saturating_sub(MAX_LISTED);
    if more == 0 { listed.join(", ") } else { format!("{}, and {more} more", listed.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_in_error_messages_are_masked() {
        let body = br#"{"error": {"message": "Incorrect API key provided: sk-abc***xyz. You can find yours at https://x"}}"#;
        let text = error_message(body);
        assert_eq!(error_message(br#"{"error":{"message":"bad\u001b]0;x\u0007"}}"#), "bad]0;x");
        assert!(text.contains("Incorrect API key") && !text.contains("abc"), "{text}");
    }

    #[test]
    fn preflight_errors_say_what_to_do() {
        let endpoint = Endpoint::new("https://api.openai.com/v1", None).unwrap();
        let models = vec!["a".to_owned(), "b".to_owned()];
        for (status, models, expected) in [
            (401, None, "--key-env OPENAI_API_KEY"),
            (404, Some(models.as_slice()), "models: a, b"),
            (404, None, "--api chat"),
            (429, None, "quota"),
            (500, None, "returned an error"),
            (200, None, "not with a stream"),
        ] {
            let text = explain_response(&endpoint, "m", StatusCode::from_u16(status).unwrap(), "why", models);
            assert!(text.contains(expected), "{text}");
        }
    }
}
