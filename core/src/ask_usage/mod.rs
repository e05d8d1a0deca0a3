//! Usage of streams: asked for where the user allows it, and not shown to a caller who did not ask.
//!
//! OpenAI's chat and completions streams say what they cost only where the request has `stream_options.include_usage`. Without it a call's
//! reservation stands, however little it used. Where a target has `ask_usage`, we add the option (`ask.rs`), and take out of the
//! answer what came of it (`hide.rs`): the chunk that holds nothing but usage, and the `"usage": null` that some servers then put into every other.
//! All else passes byte for byte, and the caller reads what would have come without us.
//!
//! Left alone: who asks, or says `include_usage: false`; signed requests and compressed bodies; a client's own transport, which sends the client's
//! own request; and whatever a server puts beside the usage chunk without being asked (a `usage` in the last chunk with text).
//!
//! A server that does not know `stream_options` answers 400, which is the caller's then: do not set `ask_usage` for one.

mod ask;
mod body;
mod hide;
mod layer;

pub use layer::AskUsageLayer;
