//! Events that an engine reports.

use std::time::Duration;

/// Identifier of a sequence, chosen by the caller and unique within an engine or pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(pub u64);

/// An event of one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineEvent {
    /// Time since the start.
    pub at: Duration,
    /// The sequence.
    pub id: SequenceId,
    /// What happened.
    pub kind: EventKind,
}

/// Kinds of [`EngineEvent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The sequence left the waiting queue for the first time, and its prompt is being computed.
    Admitted,
    /// A token was generated. A recomputed sequence does not repeat tokens.
    Token {
        /// Index among the generated tokens, from 0.
        index: u32,
    },
    /// The sequence lost its KV blocks to an older sequence, and waits at the front of the queue.
    Preempted,
    /// The last token was generated, and the blocks are free. Follows the last `Token` directly.
    Finished,
}

/// A sequence that is too long for the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{tokens} tokens of prompt and output exceed the longest sequence of {longest}")]
pub struct TooLong {
    /// Length of prompt and output, in tokens.
    pub tokens: u64,
    /// Maximum length, in tokens.
    pub longest: u64,
}
