//! What a call remembers of its pool's replicas.

use super::Call;
use crate::placement::Placed;

impl Call {
    /// The replica that has its present attempt, where its target is a pool.
    pub(crate) fn placed(&self) -> Option<Placed> {
        self.story().placed.clone()
    }

    /// Its replica failed it: its next attempt goes to one that has not, while one of those has room.
    pub(crate) fn avoid_replica(&self) {
        let mut story = self.story();
        if let Some(id) = story.placed.as_ref().map(|placed| placed.id)
            && !story.tried.contains(&id)
        {
            story.tried.push(id);
        }
    }
}
