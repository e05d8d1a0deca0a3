//! Reads the wire protocols of LLM providers: the facts of a request (such as its model and size),
//! rate headers, Retry-After, server-sent events, errors, and whether a response is complete.
//!
//! The crate consists of pure functions and small state machines. Nothing here waits, reads a clock
//! or opens a socket: wall time is an argument and bytes are slices. All input is untrusted, and
//! invalid input has a documented meaning and never panics.
//!
//! Prompts and answers are read and not kept. The results are facts: a model's name, the class of
//! an error, a number of tokens.

pub mod api_key;
pub mod base_url;
pub mod classify;
pub mod duration;
pub mod json_edit;
mod lenient_json;
pub mod observe;
pub mod prompt;
pub mod rate;
pub mod request;
pub mod retry_after;
pub mod server;
pub mod signed_or_compressed;
pub mod sse;
#[cfg(test)]
mod testing;
mod time_formats;
pub mod url_check;
pub mod vllm;

pub use classify::{Class, Verdict, classify, classify_event};
pub use observe::{End, Observer, Signal, Usage, choice_error};
pub use rate::RateHeaders;
pub use request::{Dialect, Purpose, RequestFacts};
pub use sse::{Event, Scanner};
