//! What providers say: request facts, rate headers, Retry-After, SSE events, errors, terminals.
//!
//! Pure functions and small state machines. Nothing here waits, reads a clock or touches a socket: wall time comes in as an
//! argument, bytes come in as slices. Everything that is read here comes from outside and may be nonsense; nonsense has a
//! documented meaning and never a panic.
//!
//! Prompts and answers are looked at and not kept. What leaves this module is facts: a model's name, a class of error, a
//! number of tokens.

pub mod base_url;
pub mod classify;
pub mod duration;
pub mod headers;
mod json;
pub mod json_edit;
pub mod observe;
pub mod prompt;
pub mod rate;
pub mod request;
pub mod retry_after;
pub mod sse;
#[cfg(test)]
mod testing;
mod time;
pub mod url;
pub mod vllm;

pub use classify::{Class, Verdict, classify, classify_event};
pub use observe::{End, Observer, Signal, Usage};
pub use rate::RateHeaders;
pub use request::{Dialect, RequestFacts, Route};
pub use sse::{Event, Scanner};
