//! Calls that belong together: how many of them wait for a slot.

use std::sync::Arc;

use tokio::sync::watch;

/// Calls that belong together, those of a batch say, counted while they wait for a slot. Its own calls, and nobody else's: a gate with a queue at another target, or
/// for other tenants, says nothing of what this batch lacks. Cheap to clone; clones are one crowd.
///
/// Counted where a gate's mode is `enforce`, the only one in which anybody waits.
#[derive(Clone, Debug)]
pub struct Crowd(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    waits: watch::Sender<Waits>,
    around: Option<Crowd>,
}

/// What a crowd has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// How many of its calls wait for a slot now, backing off excepted.
    pub waiting: usize,
    /// How many slots its calls were given so far: one for each attempt.
    pub admitted: u64,
}

impl Crowd {
    /// One of its own. What it counts is counted by the one around it as well.
    pub fn within(around: Option<&Crowd>) -> Self {
        Self(Arc::new(Inner { waits: watch::Sender::default(), around: around.cloned() }))
    }

    /// What it has come to.
    pub fn waits(&self) -> Waits {
        *self.0.waits.borrow()
    }

    /// Resolves as soon as this is so, at once if it is so now.
    ///
    /// *Cancellation safety*: dropping the future changes nothing.
    pub async fn until(&self, mut holds: impl FnMut(Waits) -> bool) {
        // Fails only where the sender is gone, and that is `self`.
        let _ = self.0.waits.subscribe().wait_for(|waits| holds(*waits)).await;
    }

    /// One of its calls asks for a slot.
    pub(crate) fn asks(&self) -> Asking {
        self.tell(|waits| waits.waiting += 1);
        Asking(self.clone())
    }

    fn tell(&self, change: impl Fn(&mut Waits)) {
        let mut crowd = Some(self);
        while let Some(Self(inner)) = crowd {
            inner.waits.send_modify(&change);
            crowd = inner.around.as_ref();
        }
    }
}

/// A call of a crowd that waits; until dropped.
#[derive(Debug)]
pub(crate) struct Asking(Crowd);

impl Asking {
    /// It got its slot.
    pub(crate) fn admitted(self) {
        self.0.tell(|waits| waits.admitted += 1);
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.tell(|waits| waits.waiting = waits.waiting.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(waiting: usize, admitted: u64) -> Waits {
        Waits { waiting, admitted }
    }

    #[tokio::test]
    async fn calls_are_counted_while_they_wait_here_and_around() {
        let around = Crowd::within(None);
        let crowd = Crowd::within(Some(&around));
        let (first, second) = (crowd.asks(), crowd.clone().asks());
        let other = around.asks();
        assert_eq!((crowd.waits(), around.waits()), (waits(2, 0), waits(3, 0)));
        first.admitted();
        drop(second);
        assert_eq!((crowd.waits(), around.waits()), (waits(0, 1), waits(1, 1)));
        other.admitted();
        assert_eq!((crowd.waits(), around.waits()), (waits(0, 1), waits(0, 2)));
        crowd.until(|waits| waits.admitted == 1).await;
    }

    #[tokio::test]
    async fn who_waits_for_news_is_told() {
        let crowd = Crowd::within(None);
        let asking = crowd.asks();
        let told = tokio::spawn({
            let crowd = crowd.clone();
            async move { crowd.until(|waits| waits.admitted > 0).await }
        });
        tokio::task::yield_now().await;
        assert!(!told.is_finished());
        asking.admitted();
        told.await.unwrap();
    }
}
