//! Which task asks.

/// A task, as its own world knows tasks: what waits in one is waited for by all that it holds.
///
/// Two that are equal are the same task. So a number must not come again for another task while one of the first's streams is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Tokio(tokio::task::Id),
    Given(u64),
}

impl TaskId {
    /// A task of a world that is not tokio's (an asyncio task, a thread), by a number of the caller's own.
    pub fn given(number: u64) -> Self {
        Self(Kind::Given(number))
    }

    /// The tokio task that runs this, if one does.
    pub fn current() -> Option<Self> {
        tokio::task::try_id().map(|id| Self(Kind::Tokio(id)))
    }
}
