//! What a call remembers of its pool's replicas.

use super::Call;
use crate::clock;
use crate::error::{Error, ErrorKind};
use crate::placement::{Placed, ReplicaId};

impl Call {
    /// The replica that has its present attempt, where its target is a pool.
    pub(crate) fn placed(&self) -> Option<Placed> {
        self.story().placed.clone()
    }

    /// An error of its present attempt, with where it happened.
    pub(crate) fn happened(&self, error: Error) -> Error {
        let error = error.at(self.target().name());
        match self.placed() {
            Some(placed) => error.at_replica(&placed.url),
            None => error,
        }
    }

    /// Whether an attempt was ended by its caller's own limit, which says nothing of who was to answer: another would have waited on.
    pub(crate) fn was_impatient(&self, error: &Error) -> bool {
        let config = self.target().config();
        let limit = match error.kind() {
            ErrorKind::FirstTokenTimeout => config.first_token.filter(|_| self.facts().stream),
            ErrorKind::IdleTimeout => config.idle,
            _ => return false,
        };
        let limit = limit.filter(|_| self.is_enforced());
        limit.is_none_or(|limit| self.timeouts().read.is_some_and(|own| own < limit))
    }

    /// Its replica failed it: its next attempt goes to one that has not, while one of those has room.
    pub(crate) fn avoid_replica(&self) {
        let placed = self.placed();
        if let Some(placed) = placed {
            self.avoids(placed.id);
        }
    }

    /// A replica failed it.
    pub(super) fn avoids(&self, replica: ReplicaId) {
        let mut story = self.story();
        if !story.tried.contains(&replica) {
            story.tried.push(replica);
        }
    }

    /// Until it is known which replicas its pool has, for as long as it may take.
    pub(crate) async fn replicas_known(&self) {
        let left = self.deadline().saturating_duration_since(clock::now());
        self.target().replicas_known(left).await;
    }
}
