//! The identity of the task that makes a call.

/// The identity of the task that makes a call: a tokio task, or a task or thread of another
/// runtime, by number.
///
/// Equal values denote the same task. Do not use a number for another task while a response of the
/// first task is still streaming.
///
/// ```
/// use tidegate::TaskId;
///
/// assert_eq!(TaskId::from_number(7), TaskId::from_number(7));
/// assert_eq!(TaskId::current(), None, "this code does not run in a tokio task");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Tokio(tokio::task::Id),
    Number(u64),
}

impl TaskId {
    /// Creates the identity of a task that tokio does not run, such as an asyncio task. The caller
    /// chooses the number.
    pub fn from_number(number: u64) -> Self {
        Self(Kind::Number(number))
    }

    /// Returns the identity of the current tokio task. `None` outside of tokio tasks.
    pub fn current() -> Option<Self> {
        tokio::task::try_id().map(|id| Self(Kind::Tokio(id)))
    }
}
