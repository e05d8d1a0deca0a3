//! Streams: classified and observed, without delay and without buffering.
//!
//! Bytes pass as they come. An observer beside them sees the first token, usage, errors and the
//! provider's own end. The layer does three things that a transport cannot do:
//!
//! - It holds the *head* until the first event: providers and vLLM send errors under status 200,
//!   and an error as the first event is a failed attempt like any other. What was read meanwhile is
//!   played back unchanged. For the replicas of a pool, the layer holds the head until the first
//!   *token*: until then the call can go to another replica, and its caller has missed nothing.
//! - It reports a body that ends without the provider's terminal event as *truncated*: an error,
//!   never a quiet success.
//! - It bounds silence while the reader waits: to the first token, and between chunks; more
//!   narrowly if the replica of the stream is down.
//!
//! Backpressure is the reader's: nothing is read that the reader has not asked for.

mod body;
mod layer;
mod outcome;
mod replay;
mod silence;

pub use layer::StreamLayer;
