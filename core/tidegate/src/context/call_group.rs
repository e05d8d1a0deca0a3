//! Groups of calls that count how many of their calls wait for a slot.

use std::sync::Arc;

use tokio::sync::watch;

/// A group of calls, for example the calls of one batch, that counts its calls while they wait for
/// a slot.
///
/// A call belongs to the group in its [`Context::group`](crate::Context::group). Calls are counted
/// in mode `enforce` only, because calls do not wait in other modes. Clones are cheap and refer to
/// the same group.
///
/// ```
/// use tidegate::CallGroup;
///
/// let batch = CallGroup::new(None);
/// let context = tidegate::Context { group: Some(batch.clone()), ..Default::default() };
/// assert_eq!(batch.waits().waiting, 0);
/// ```
#[derive(Clone, Debug)]
pub struct CallGroup(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    waits: watch::Sender<Waits>,
    /// The group that also counts the calls of this group. `None` for an outermost group.
    parent: Option<CallGroup>,
}

/// The counters of a [`CallGroup`]. They include the calls of nested groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Number of calls of the group that wait for a slot now. Calls that sleep before a retry are
    /// not counted.
    pub waiting: usize,
    /// Number of slots granted to calls of the group since the group was created. A call that is
    /// retried gets one slot for each attempt.
    pub admitted: u64,
}

impl CallGroup {
    /// Creates a group with counters of 0. With a `parent`, the calls of the new group are also
    /// counted in the parent and in the groups above it.
    pub fn new(parent: Option<&CallGroup>) -> Self {
        Self(Arc::new(Inner { waits: watch::Sender::default(), parent: parent.cloned() }))
    }

    /// Returns the current counters of the group.
    pub fn waits(&self) -> Waits {
        *self.0.waits.borrow()
    }

    /// Waits until `holds` returns `true` for the counters of the group. Returns immediately if it
    /// does so for the current counters.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub async fn until(&self, mut holds: impl FnMut(Waits) -> bool) {
        // Fails only if the sender is dropped, and `self` owns it.
        let _ = self.0.waits.subscribe().wait_for(|waits| holds(*waits)).await;
    }

    /// Counts one call of the group as waiting, until the returned guard is dropped or
    /// [`GroupWait::admitted`] is called.
    pub(crate) fn begin_wait(&self) -> GroupWait {
        self.update(|waits| waits.waiting += 1);
        GroupWait(self.clone())
    }

    /// Applies `change` to the counters of this group and of all groups above it.
    fn update(&self, change: impl Fn(&mut Waits)) {
        let mut group = Some(self);
        while let Some(Self(inner)) = group {
            inner.waits.send_modify(&change);
            group = inner.parent.as_ref();
        }
    }
}

/// A guard that counts one call as waiting, in its group and the groups above, until it is dropped.
#[derive(Debug)]
pub(crate) struct GroupWait(CallGroup);

impl GroupWait {
    /// Counts a granted slot, and stops counting the call as waiting.
    pub(crate) fn admitted(self) {
        self.0.update(|waits| waits.admitted += 1);
    }
}

impl Drop for GroupWait {
    fn drop(&mut self) {
        self.0.update(|waits| waits.waiting = waits.waiting.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(waiting: usize, admitted: u64) -> Waits {
        Waits { waiting, admitted }
    }

    #[tokio::test]
    async fn waiting_calls_are_counted_in_their_group_and_its_parents() {
        let parent = CallGroup::new(None);
        let group = CallGroup::new(Some(&parent));
        let (first, second) = (group.begin_wait(), group.clone().begin_wait());
        let other = parent.begin_wait();
        assert_eq!((group.waits(), parent.waits()), (waits(2, 0), waits(3, 0)));
        first.admitted();
        drop(second);
        assert_eq!((group.waits(), parent.waits()), (waits(0, 1), waits(1, 1)));
        other.admitted();
        assert_eq!((group.waits(), parent.waits()), (waits(0, 1), waits(0, 2)));
        group.until(|waits| waits.admitted == 1).await;
    }

    #[tokio::test]
    async fn waiter_is_notified_of_changes_in_its_group() {
        let group = CallGroup::new(None);
        let wait = group.begin_wait();
        let waiter = tokio::spawn({
            let group = group.clone();
            async move { group.until(|waits| waits.admitted > 0).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        wait.admitted();
        waiter.await.unwrap();
    }
}
