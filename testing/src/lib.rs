//! Test doubles for programs that call language models. A [`FakeTarget`] answers requests from a
//! [`Script`], without a network, and records what it received.
//!
//! A fake target is a transport, so the gate on top of it is the real one, with its queueing,
//! retries, cool-downs and cancellation. The answers have the format of the API that the request
//! uses (chat completions, completions, Responses, Anthropic's messages, Gemini's generateContent,
//! embeddings), so that the official SDKs can parse them. All delays use tokio's clock: under the
//! paused clock, hours pass in milliseconds, and runs are deterministic.
#![cfg_attr(test, allow(clippy::expect_used, reason = "a test fails by panicking"))]

mod answer_router;
mod attempt_log;
mod fake_target;
mod in_flight;
pub mod replaced_network;
mod response;
mod script;
mod scripted_body;
mod text_pattern;
mod virtual_time;
mod wire;

pub use self::attempt_log::{AttemptState, RecordedAttempt};
pub use self::fake_target::FakeTarget;
pub use self::script::{
    ModelReply, OverloadedAnswer, RefusedConnection, ReplyEnd, Script, ScriptRoute, ScriptedAnswer,
    StatusAnswer, ToolCall,
};
pub use self::virtual_time::VirtualTime;
