//! The identity of the task that makes a call.

/// The identity of a task: a tokio task, an asyncio task or a thread.
///
/// Two equal values denote the same task. A number must not be used for another task while a
/// response of the first task is still streaming.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Tokio(tokio::task::Id),
    Number(u64),
}

impl TaskId {
    /// Creates the identity of a task that tokio does not run, from a number that the caller
    /// chooses.
    pub fn from_number(number: u64) -> Self {
        Self(Kind::Number(number))
    }

    /// Returns the identity of the current tokio task. `None` outside of tokio tasks.
    pub fn current() -> Option<Self> {
        tokio::task::try_id().map(|id| Self(Kind::Tokio(id)))
    }
}
