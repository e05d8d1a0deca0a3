//! The events that an engine reports, and its error type.

use std::time::Duration;

/// Identifier of a sequence. The caller chooses it, unique within an engine or pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(pub u64);

/// An event of one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineEvent {
    /// Time of the event since the start of the run.
    pub at: Duration,
    /// The sequence that the event is about.
    pub id: SequenceId,
    /// What happened to the sequence.
    pub kind: EventKind,
}

/// What can happen to a sequence in an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The sequence entered the batch for the first time, and the computation of its prompt begins.
    Admitted,
    /// The sequence generated a token. After a preemption, tokens that were reported before are not
    /// reported again.
    Token {
        /// Index of the token among the generated tokens, from 0.
        index: u32,
    },
    /// The sequence lost its KV blocks to a sequence that was admitted before it. It waits at the
    /// front of the queue.
    Preempted,
    /// The sequence generated its last token, which was reported just before, and its blocks were
    /// freed.
    Finished,
}

/// A sequence is longer than the engine allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{tokens} tokens of prompt and output exceed the longest sequence of {max_tokens}")]
pub struct TooLong {
    /// Length of the sequence's prompt and output, in tokens.
    pub tokens: u64,
    /// Maximum length of prompt and output on this engine, in tokens.
    pub max_tokens: u64,
}
