//! What a call remembers of its pool's replicas.

use super::Call;
use crate::admission::Cause;
use crate::clock;
use crate::cooldown::Hold;
use crate::error::{Error, ErrorKind};
use crate::placement::{Placed, ReplicaId, Wants};

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

    /// What holds a failed attempt back, its replicas considered. `hold` is what its target's door said.
    ///
    /// [`Hold::Elsewhere`]: another replica is asked at once, since this one went down, or since nothing ran there; each is so only once, and then it is a failure like any
    /// other. From here on the replica that failed is avoided while there are others.
    pub(crate) fn hold_after(&self, hold: Hold, failed: &Ended, called_back: Option<Cause>) -> Hold {
        if called_back == Some(Cause::Fell) {
            return Hold::Elsewhere;
        }
        let Some(placed) = self.placed().filter(|_| failed.at_replica) else { return hold };
        let is_new = self.avoids(placed.id);
        let unread = failed.never_executed || hold == Hold::Elsewhere;
        match (self.has_others(), hold) {
            (true, _) if is_new && unread => Hold::Elsewhere,
            // All have been asked.
            (_, Hold::Elsewhere) => Hold::No,
            (_, hold) => hold,
        }
    }

    /// A replica failed it. Says whether it is the first time.
    pub(super) fn avoids(&self, replica: ReplicaId) -> bool {
        let mut story = self.story();
        let is_new = !story.tried.contains(&replica);
        if is_new {
            story.tried.push(replica);
        }
        is_new
    }

    /// Whether there is a replica in the choice that has not failed it: then its next attempt goes to none that has.
    fn has_others(&self) -> bool {
        let tried = self.story().tried.clone();
        let wants = Wants { model: self.0.facts.model.clone(), avoid: tried, ..Wants::default() };
        let others = self.0.target.admission().has_others(&wants, self.expected().least_input());
        self.story().avoid = if others { wants.avoid } else { Vec::new() };
        others
    }

    /// Until it is known which replicas its pool has, for as long as it may take.
    pub(crate) async fn replicas_known(&self) {
        let left = self.deadline().saturating_duration_since(clock::now());
        self.target().replicas_known(left).await;
    }
}

/// A failed attempt, as far as its replica is concerned.
pub(crate) struct Ended {
    /// It is one that may be mended by another try, and the replica had a part in it.
    pub(crate) at_replica: bool,
    /// Nothing ran.
    pub(crate) never_executed: bool,
}
