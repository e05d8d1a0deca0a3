//! What a fake target says: the same keys from JSON, in every language.
//!
//! All times are seconds, fractions allowed; a time that is negative, not a number or longer than a year is an error.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Routes, first match first. A request that none takes fails, and is told of.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// The routes.
    pub routes: Vec<ScriptRoute>,
}

/// Which requests are answered how. What is not set matches anything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptRoute {
    /// The URL's host, with `*` for any run of characters.
    pub host: Option<String>,
    /// The URL's path, with `*` for any run of characters.
    pub path: Option<String>,
    /// The model, with `*` for any run of characters.
    pub model: Option<String>,
    /// Text that the request's body contains.
    pub contains: Option<String>,
    /// Given in turn, each as often as it says.
    pub answers: Vec<ScriptedAnswer>,
    /// Given once `answers` are used up. None: whatever comes then fails as unmatched.
    pub otherwise: Option<ScriptedAnswer>,
    /// The most attempts at once; one more is answered 429, and uses up no answer. None: any number.
    pub capacity: Option<usize>,
    /// The most attempts a minute; one more is answered 429, saying when to come back. None: any number.
    pub rate: Option<usize>,
    /// The Retry-After of what `capacity` turns away. None: none.
    #[serde(deserialize_with = "maybe_seconds")]
    pub retry_after: Option<Duration>,
}

/// One answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptedAnswer {
    /// What a model says, as a stream where the request asks for one.
    Reply(ModelReply),
    /// Any status with any body.
    Status(StatusAnswer),
    /// "No room": 529 in Anthropic's API, else 503.
    Overloaded(OverloadedAnswer),
    /// No connection: the request was never sent.
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

/// What a model says.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelReply {
    /// The text. Default: `ok`.
    pub text: String,
    /// The text in the pieces in which it is streamed, instead of `text`, which is streamed in words.
    pub chunks: Vec<String>,
    /// Tools that the model asks for, after the text.
    pub tool_calls: Vec<ToolCall>,
    /// Until the first piece. An answer that is no stream comes whole, when its stream would have ended.
    #[serde(deserialize_with = "seconds")]
    pub after: Duration,
    /// Between two pieces.
    #[serde(deserialize_with = "seconds")]
    pub every: Duration,
    /// How it ends.
    pub end: ReplyEnd,
    /// After how many pieces, where it does not end as it should. Default: all of them.
    pub end_after: Option<usize>,
    /// How often it is given.
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
    /// As it should.
    Complete,
    /// Without the provider's terminal event; shorter than its length, where it is no stream.
    Truncate,
    /// Not at all: silence.
    Stall,
    /// With an error as an event, under status 200. What is no stream is a 500.
    Error,
    /// The connection breaks.
    Break,
}

/// A tool that the model asks for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// Its name.
    pub name: String,
    /// Its arguments.
    #[serde(default)]
    pub arguments: Value,
}

/// Any status with any body.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusAnswer {
    /// The status, 100 to 599.
    pub status: u16,
    /// The body: text as it is, anything else as JSON. Default: an error in the words of the API.
    #[serde(default)]
    pub body: Option<Value>,
    /// More headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The Retry-After.
    #[serde(default, deserialize_with = "maybe_seconds")]
    pub retry_after: Option<Duration>,
    /// Until it comes.
    #[serde(default, deserialize_with = "seconds")]
    pub after: Duration,
    /// How often it is given.
    #[serde(default = "once")]
    pub times: usize,
}

/// "No room".
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OverloadedAnswer {
    /// The Retry-After.
    #[serde(deserialize_with = "maybe_seconds")]
    pub retry_after: Option<Duration>,
    /// Until it comes.
    #[serde(deserialize_with = "seconds")]
    pub after: Duration,
    /// How often it is given.
    pub times: usize,
}

impl Default for OverloadedAnswer {
    fn default() -> Self {
        Self { retry_after: None, after: Duration::ZERO, times: 1 }
    }
}

/// No connection.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RefusedConnection {
    /// Until it is refused.
    #[serde(deserialize_with = "seconds")]
    pub after: Duration,
    /// How often.
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

/// Far beyond any test, and safe to add to any moment.
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
        .ok_or_else(|| serde::de::Error::custom(format!("{seconds} is no number of seconds, 0 to a year")))
}
