//! What a program's own tests put where its models are: a [`FakeTarget`] answers from a [`Script`], without a network, and remembers what it saw.
//!
//! It is a transport like any other, so queueing, retries, cool-downs and cancelling above it are the real ones. Its answers have the
//! shapes of the API that the request speaks (chat completions, completions, Responses, Anthropic's messages, Gemini's generateContent, embeddings), as the official SDKs
//! parse them. All of its waiting is on tokio's clock: under the paused clock hours pass in milliseconds, the same each time.
#![cfg_attr(test, allow(clippy::expect_used, reason = "a test fails by panicking"))]

mod attempt_log;
mod fake_target;
mod pattern;
mod router;
mod script;
mod scripted_body;
mod virtual_time;
mod wire;
pub mod world;

pub use self::attempt_log::{AttemptState, RecordedAttempt};
pub use self::fake_target::FakeTarget;
pub use self::script::{
    ModelReply, OverloadedAnswer, RefusedConnection, ReplyEnd, Script, ScriptRoute, ScriptedAnswer,
    StatusAnswer, ToolCall,
};
pub use self::virtual_time::VirtualTime;
