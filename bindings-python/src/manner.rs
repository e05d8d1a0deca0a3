//! How a call's failures come back.

/// Which failures come back as the response that says them, marked `x-should-retry: false`; the others are raised.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Refusals and deadlines: they have a status, a reason and a time to come back.
    AnswerRefusals,
    /// All: an SDK that nobody told not to retry would repeat what it sees raised.
    AnswerAll,
}
