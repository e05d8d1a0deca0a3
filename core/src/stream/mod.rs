//! Streams: watched, never held up, never buffered.
//!
//! Bytes pass as they come. Beside them an observer sees the first token, usage, errors and the provider's own end. Three things are
//! done that a transport cannot do:
//!
//! - The *head* is held until the first event is seen: providers and vLLM send errors under status 200, and an error as first event is a
//!   failed attempt like any other. What was read meanwhile is played back untouched.
//! - A body that ends without the provider's terminal is *truncated*: an error to the caller, never a quiet success.
//! - Silence is bounded, while the reader asks: to the first token, and between chunks; more narrowly where the stream's replica is down.
//!
//! Of a pool's replica the head is held until the first *token*: until then the call can go to another, and nobody has missed anything.
//!
//! Backpressure is the reader's own: nothing is read that nobody asked for.

mod body;
mod cut;
mod layer;
mod outcome;
mod replay;

pub use layer::StreamLayer;
