//! The script of a fake target. The same JSON keys are used in every language.
//!
//! All times are in seconds, and may be fractions. A time that is negative, not a number, or longer
//! than a year is an error.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The routes of a fake target. The first matching route answers; a request without a match fails
/// and is reported.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// The routes, in order of priority.
    pub routes: Vec<ScriptRoute>,
}

/// Conditions for requests, and their answers. Unset conditions match everything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptRoute {
    /// Host of the URL; `*` matches any run of characters.
    pub host: Option<String>,
    /// Path of the URL; `*` matches any run of characters.
    pub path: Option<String>,
    /// Model; `*` matches any run of characters.
    pub model: Option<String>,
    /// Text that the request body contains.
    pub contains: Option<String>,
    /// Answers given in order, each as often as its `times` says.
    pub answers: Vec<ScriptedAnswer>,
    /// Answer given when `answers` are used up. Without it, further requests fail as unmatched.
    pub otherwise: Option<ScriptedAnswer>,
    /// Maximum number of attempts in flight. A further attempt gets a 429 and uses up no answer.
    /// Default: unlimited.
    pub capacity: Option<usize>,
    /// Maximum number of attempts per minute. A further attempt gets a 429 with a `Retry-After`.
    /// Default: unlimited.
    pub rate: Option<usize>,
    /// `Retry-After` of the 429s because of `capacity`, in seconds. Default: none.
    #[serde(deserialize_with = "maybe_seconds")]
    pub retry_after: Option<Duration>,
}

/// One answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptedAnswer {
    /// An answer of a model, streamed if the request asks for a stream.
    Reply(ModelReply),
    /// Any status with any body.
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

/// An answer of a model.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelReply {
    /// Text of the answer. Default: `ok`.
    pub text: String,
    /// Chunks of the text for streaming, instead of `text`, which is streamed word by word.
    pub chunks: Vec<String>,
    /// Tool calls after the text.
    pub tool_calls: Vec<ToolCall>,
    /// Delay before the first chunk. An answer that is not streamed arrives when its stream would
    /// have ended.
    #[serde(deserialize_with = "seconds")]
    pub after: Duration,
    /// Delay between two chunks.
    #[serde(deserialize_with = "seconds")]
    pub every: Duration,
    /// How the answer ends.
    pub end: ReplyEnd,
    /// Number of chunks before an `end` other than `complete`. Default: all chunks.
    pub end_after: Option<usize>,
    /// How often the answer is given.
    pub times: usize,
}

impl Default for ModelReply {
    fn default() -> Self {
        Self {
            text: String::from("ok"),
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

/// How an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyEnd {
    /// The answer ends normally.
    Complete,
    /// The stream ends without its terminal event, or the body is shorter than its content length.
    Truncate,
    /// Nothing more is sent, and the answer never ends.
    Stall,
    /// The stream ends with an error event under status 200. An answer that is not streamed is a
    /// 500.
    Error,
    /// The connection breaks.
    Break,
}

/// A tool call of the model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// Name of the tool.
    pub name: String,
    /// Arguments of the call.
    #[serde(default)]
    pub arguments: Value,
}

/// Any status with any body.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusAnswer {
    /// HTTP status, 100 to 599.
    pub status: u16,
    /// Body: a string is sent as text, other values as JSON. Default: an error in the API's format.
    #[serde(default)]
    pub body: Option<Value>,
    /// Additional headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// `Retry-After` in seconds.
    #[serde(default, deserialize_with = "maybe_seconds")]
    pub retry_after: Option<Duration>,
    /// Delay before the response.
    #[serde(default, deserialize_with = "seconds")]
    pub after: Duration,
    /// How often the answer is given.
    #[serde(default = "once")]
    pub times: usize,
}

/// An overload error.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OverloadedAnswer {
    /// `Retry-After` in seconds.
    #[serde(deserialize_with = "maybe_seconds")]
    pub retry_after: Option<Duration>,
    /// Delay before the response.
    #[serde(deserialize_with = "seconds")]
    pub after: Duration,
    /// How often the answer is given.
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
    /// Delay before the refusal.
    #[serde(deserialize_with = "seconds")]
    pub after: Duration,
    /// How often the connection is refused.
    pub times: usize,
}

impl Default for RefusedConnection {
    fn default() -> Self {
        Self { after: Duration::ZERO, times: 1 }
    }
}

fn once() -> usize {
    1
}

/// Longer than any test, and safe to add to any instant.
const YEAR: f64 = 366.0 * 86_400.0;

fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    maybe_seconds(deserializer).map(Option::unwrap_or_default)
}

fn maybe_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let Some(seconds) = Option::<f64>::deserialize(deserializer)? else { return Ok(None) };
    Some(seconds)
        .filter(|seconds| *seconds <= YEAR)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .map(Some)
        .ok_or_else(|| {
            serde::de::Error::custom(format!("{seconds} is not a number of seconds from 0 to one year"))
        })
}
