//! What an engine tells.

use std::time::Duration;

/// Names a sequence; chosen by the caller, unique within an engine or a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(pub u64);

/// Something that happened to one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineEvent {
    /// Since the start.
    pub at: Duration,
    /// To whom.
    pub id: SequenceId,
    /// What.
    pub kind: EventKind,
}

/// Kinds of [`EngineEvent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// Left the waiting queue for the first time: its prompt is being computed.
    Admitted,
    /// A token was generated; `index` counts from 0, so 0 is the first token. A recomputed sequence does not
    /// repeat tokens.
    Token {
        /// Place among the generated tokens.
        index: u32,
    },
    /// Lost its KV blocks to an older sequence; it waits at the front of the queue.
    Preempted,
    /// The last token was generated (told right after it); its blocks are free.
    Finished,
}

/// A sequence that no engine could ever finish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{tokens} tokens of prompt and output exceed the longest sequence of {longest}")]
pub struct TooLong {
    /// Prompt and output.
    pub tokens: u64,
    /// The longest that fits.
    pub longest: u64,
}
