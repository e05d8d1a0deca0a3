//! The script of a fake target. The JSON keys are the same in every language.
//!
//! All times are in seconds, and may be fractions. A time that is negative, not a number, or longer
//! than 366 days is an error. So are a status and a header that no response can have.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A list of routes. The first route that matches a request answers it. A request that no route
/// matches fails, and [`FakeTarget::unmatched`](crate::FakeTarget::unmatched) reports it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// The routes. If several match a request, the first one is used.
    pub routes: Vec<ScriptRoute>,
}

/// Conditions, and the answers to the requests that fulfil all of them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptRoute {
    /// Pattern for the host of the URL, where `*` stands for any number of characters. `None`: any
    /// host.
    pub host: Option<String>,
    /// Pattern for the path of the URL, where `*` stands for any number of characters. `None`: any
    /// path. Requests of the gate itself, such as health probes, only match a route with a pattern
    /// that does not end in `*`.
    pub path: Option<String>,
    /// Pattern for the model, where `*` stands for any number of characters. `None`: any model, or
    /// none.
    pub model: Option<String>,
    /// Text that the request body must contain. `None`: any body.
    pub contains: Option<String>,
    /// Answers in order. Each one is given as often as its `times` says. Default none.
    pub answers: Vec<ScriptedAnswer>,
    /// Answer that is given without limit after all `answers`. `None`: further requests fail as if
    /// no route matched.
    pub otherwise: Option<ScriptedAnswer>,
    /// Maximum number of scripted answers in flight. A further request gets a 429, which is not one
    /// of the `answers`. `None`: no limit.
    pub capacity: Option<usize>,
    /// Maximum number of requests within 60 s. A further request gets a 429 with `Retry-After`,
    /// which is not one of the `answers`. `None`: no limit.
    pub rate: Option<usize>,
    /// `Retry-After` of the 429s that `capacity` causes, in seconds. `None`: no such header.
    #[serde(deserialize_with = "retry_after")]
    pub retry_after: Option<Duration>,
}

/// One answer of a route.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptedAnswer {
    /// The answer of a model, streamed if the request asks for a stream.
    Reply(ModelReply),
    /// A response with any status and body.
    Status(StatusAnswer),
    /// An overload error: 529 in Anthropic's API, otherwise 503.
    Overloaded(OverloadedAnswer),
    /// A refused connection: the request is never sent.
    Refuse(RefusedConnection),
}

impl ScriptedAnswer {
    pub(crate) fn times(&self) -> usize {
        match self {
            ScriptedAnswer::Reply(reply) => reply.times,
            ScriptedAnswer::Status(status) => status.times,
            ScriptedAnswer::Overloaded(failure) => failure.times,
            ScriptedAnswer::Refuse(refusal) => refusal.times,
        }
    }
}

/// The answer of a model. Every key is optional.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelReply {
    /// Text of the answer. `None`: `ok`, or no text if there are tool calls.
    pub text: Option<String>,
    /// Text of the answer as the chunks in which it is streamed. If this is not empty, `text` is
    /// ignored; otherwise `text` is streamed word by word. Default empty.
    pub chunks: Vec<String>,
    /// Tool calls that follow the text. Default none.
    pub tool_calls: Vec<ToolCall>,
    /// Delay before the first chunk. An answer that is not streamed is sent when its last chunk
    /// would have been. Default 0.
    #[serde(deserialize_with = "after")]
    pub after: Duration,
    /// Delay between two chunks. Default 0.
    #[serde(deserialize_with = "every")]
    pub every: Duration,
    /// How the answer ends. Default [`ReplyEnd::Complete`].
    pub end: ReplyEnd,
    /// Number of chunks, tool calls included, before an `end` other than `Complete`. `None`: all
    /// chunks.
    pub end_after: Option<usize>,
    /// Number of times that the answer is given before the next one. Default 1.
    pub times: usize,
}

impl Default for ModelReply {
    fn default() -> Self {
        Self {
            text: None,
            chunks: Vec::new(),
            tool_calls: Vec::new(),
            after: Duration::ZERO,
            every: Duration::ZERO,
            end: ReplyEnd::Complete,
            end_after: None,
            times: 1,
        }
    }
}

/// How the answer of a model ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyEnd {
    /// The answer is complete.
    Complete,
    /// A stream ends without its last events. An answer that is not streamed ends after half of its
    /// body.
    Truncate,
    /// Nothing more is sent, but the connection stays open forever. An answer that is not streamed
    /// stops after half of its body, or after its head if [`ModelReply::end_after`] is 0.
    Stall,
    /// A stream with status 200 ends with an error event. An answer that is not streamed becomes a
    /// 500.
    Error,
    /// The connection breaks during the body.
    Break,
}

/// A tool call of the model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// Name of the tool.
    pub name: String,
    /// Arguments of the call: a JSON value, or a string that contains the arguments as JSON.
    /// Default an empty object.
    #[serde(default)]
    pub arguments: Value,
}

/// A response with any status and body.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusAnswer {
    /// HTTP status, from 100 to 599.
    #[serde(deserialize_with = "status")]
    pub status: StatusCode,
    /// Body. A string is sent as text, any other value as JSON. `None`: for a status of 400 or
    /// above, an error in the format of the request's API; otherwise an empty body.
    #[serde(default)]
    pub body: Option<Value>,
    /// Additional headers. Default none.
    #[serde(default, deserialize_with = "headers")]
    pub headers: HeaderMap,
    /// `Retry-After`, in seconds. `None`: no such header.
    #[serde(default, deserialize_with = "retry_after")]
    pub retry_after: Option<Duration>,
    /// Delay before the response. Default 0.
    #[serde(default, deserialize_with = "after")]
    pub after: Duration,
    /// Number of times that the answer is given before the next one. Default 1.
    #[serde(default = "once")]
    pub times: usize,
}

/// An overload error: status 529 in Anthropic's API, otherwise 503.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OverloadedAnswer {
    /// `Retry-After`, in seconds. `None`: no such header.
    #[serde(deserialize_with = "retry_after")]
    pub retry_after: Option<Duration>,
    /// Delay before the response. Default 0.
    #[serde(deserialize_with = "after")]
    pub after: Duration,
    /// Number of times that the answer is given before the next one. Default 1.
    pub times: usize,
}

impl Default for OverloadedAnswer {
    fn default() -> Self {
        Self { retry_after: None, after: Duration::ZERO, times: 1 }
    }
}

/// A refused connection.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RefusedConnection {
    /// Delay before the connection is refused. Default 0.
    #[serde(deserialize_with = "after")]
    pub after: Duration,
    /// Number of times that the connection is refused before the next answer. Default 1.
    pub times: usize,
}

impl Default for RefusedConnection {
    fn default() -> Self {
        Self { after: Duration::ZERO, times: 1 }
    }
}

/// Reads an HTTP status.
fn status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<StatusCode, D::Error> {
    let invalid = |why: &dyn Display| D::Error::custom(format!("status: {why}"));
    let code = u16::deserialize(deserializer).map_err(|error| invalid(&error))?;
    StatusCode::from_u16(code)
        .ok()
        .filter(|status| status.as_u16() < 600)
        .ok_or_else(|| invalid(&format_args!("{code} is not a status from 100 to 599")))
}

/// Reads headers by their names.
fn headers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<HeaderMap, D::Error> {
    let invalid = |why: &dyn Display| D::Error::custom(format!("headers: {why}"));
    let mut headers = HeaderMap::new();
    for (name, value) in BTreeMap::<String, String>::deserialize(deserializer)? {
        let value = HeaderValue::try_from(value)
            .map_err(|_| invalid(&format_args!("{name:?} has a value that no header can have")))?;
        let name = HeaderName::try_from(&name)
            .map_err(|_| invalid(&format_args!("{name:?} is not the name of a header")))?;
        headers.insert(name, value);
    }
    Ok(headers)
}

fn once() -> usize {
    1
}

/// Maximum for times in a script, in seconds: longer than any test, and safe to add to any instant.
const YEAR: f64 = 366.0 * 86_400.0;

fn after<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    seconds("after", deserializer).map(Option::unwrap_or_default)
}

fn every<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    seconds("every", deserializer).map(Option::unwrap_or_default)
}

fn retry_after<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    seconds("retry_after", deserializer)
}

/// Reads a time in seconds. `key` is the name of the key in the error message.
fn seconds<'de, D: Deserializer<'de>>(key: &str, deserializer: D) -> Result<Option<Duration>, D::Error> {
    let invalid = |why: &dyn Display| D::Error::custom(format!("{key}: {why}"));
    let Some(seconds) = Option::<f64>::deserialize(deserializer).map_err(|error| invalid(&error))? else {
        return Ok(None);
    };
    Some(seconds)
        .filter(|seconds| *seconds <= YEAR)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .map(Some)
        .ok_or_else(|| invalid(&format_args!("{seconds} is not a number of seconds from 0 to one year")))
}
