//! How many tokens a request costs, before anybody has counted them.
//!
//! A count by tokenizer takes 5 to 9 ms for a prompt of 100 KB, and is right for one family of models only. So the text is measured in
//! UTF-8 bytes, in the same pass over the body that finds the model's name, and a ratio makes tokens of them.
//!
//! # The ratio
//!
//! [`COLD_RATIO`] is what a target starts with. Against OpenAI's `o200k` it is above the truth for prose in English (by 30 %), German
//! (31 %) and Chinese (14 to 26 %) and for code (30 to 37 %), so that a budget is not overrun by calls of which nothing is known yet; close
//! to it for Markdown and the JSON of APIs (6 and 1 %); and below it for tables of figures (24 %) and JSON full of UUIDs (46 %).
//!
//! An [`Estimator`] learns the ratio of each model, and how long its answers are, from what its provider counts. Where a target asks for it, prompts
//! are counted exactly instead (feature `bpe`, or the server's own tokenizer).
//!
//! # What is counted
//!
//! - Text by its bytes once unescaped: prompts, messages, system instructions, documents; and each message with [`MESSAGE`](tidegate_protocol::prompt::MESSAGE) tokens for what
//!   separates it from the next.
//! - Tools, schemas and the arguments of tool calls as compact JSON, which is what the model reads.
//! - Input that comes as token ids: one each.
//! - Images, sound, video and files by rules of their own (see [`Media`](tidegate_protocol::prompt::Media)), never as the text of their base64.
//! - Not what only the provider reads: roles, ids, types, signatures, encrypted reasoning.
//!
//! # Nonsense
//!
//! A field of an unexpected shape counts as the text that is in it, or as nothing. Sums saturate. A body that is not JSON, or nested deeper
//! than 128 levels, has no estimate, and neither has a compressed one of more than 1 MiB, which would take too long to decode; finding that out costs no more than reading it twice.
//!
//! Longer text never lowers an estimate.

mod answer;
mod average;
mod demand;
mod estimator;
#[cfg(feature = "bpe")]
pub mod exact;
mod lengths;
mod line;
mod output;
mod recent;
#[cfg(test)]
mod tests;

pub use demand::Demand;
pub use estimator::Estimator;
pub use lengths::LengthSample;
pub use output::Output;

/// Tokens for each UTF-8 byte of text, where nothing is known of a target yet.
pub const COLD_RATIO: f64 = 0.3;

/// Output of one answer, in tokens, where a call does not bound it and nothing is known of its model: well above what chat answers take in the mean
/// (200 to 500).
pub const COLD_OUTPUT: u64 = 1_024;

/// Input, in tokens, of a call that nobody sees (slots held by name, bodies that cannot be read), until something is known of its model.
pub const UNSEEN_INPUT: u64 = 1_024;
