//! The stream layer: classifies each attempt and observes its response, without delaying or
//! buffering tokens.
//!
//! Bytes pass unchanged. An observer parses a copy for the first token, usage, errors and the
//! provider's terminal event. The layer adds three things to a transport:
//!
//! - It holds the response *head* until the first token, because providers and vLLM send errors
//!   under status 200, some of them after an event without a token. An error before the first token
//!   is a failed attempt like any other, and the call can be retried without the caller noticing.
//!   The data read meanwhile is then passed on unchanged. Outside pools, the head is held for at
//!   most 2 s after the first event.
//! - It reports a body that ends without the provider's terminal event as *truncated*: an error,
//!   never a silent success.
//! - It limits how long the upstream may be silent while the reader waits: until the first token,
//!   and between chunks. A silent stream ends earlier if its replica is down.
//!
//! A body that was whole in memory, or whose end was read before the head was returned, is passed
//! on as bytes in memory, so that the layers above release the slot at once.
//!
//! Backpressure reaches the upstream: after the head was returned, nothing is read before the
//! reader polls for it.

mod body;
mod error_outcome;
mod idle_body;
mod layer;
mod replay;
mod silence;

pub(crate) use layer::StreamLayer;
