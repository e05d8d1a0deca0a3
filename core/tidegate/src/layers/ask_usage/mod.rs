//! Usage of streams: requested if the target allows it, and hidden from callers that did not
//! request it.
//!
//! The chat and completions APIs of OpenAI report the usage of a stream only if the request has
//! `stream_options.include_usage`. Without usage, the tokens that were reserved for the call are
//! never corrected to the tokens that it used. For targets with `ask_usage`, this layer adds the
//! option (`ask.rs`) and removes its effects from the response (`strip_usage.rs`): the chunk that
//! contains only usage, and the `"usage": null` that some servers add to all others. Everything
//! else passes byte for byte.
//!
//! # Exceptions
//!
//! The layer does not change:
//!
//! - Requests that set `include_usage` themselves, even to `false`.
//! - Signed requests and compressed bodies.
//! - Requests over a client's own transport, which sends the client's own request.
//! - Usage that a server sends unasked, such as a `usage` member in the last chunk with text.
//!
//! # Limits
//!
//! A server that does not know `stream_options` answers with status 400, which the caller receives.
//! Do not set `ask_usage` for such a server.

mod ask;
mod body;
mod layer;
mod strip_usage;

pub(crate) use layer::AskUsageLayer;
