//! What a call remembers of its pool's replicas.

use super::Call;
use crate::placement::{Placed, Wants};

impl Call {
    /// The replica that has its present attempt, where its target is a pool.
    pub(crate) fn placed(&self) -> Option<Placed> {
        self.story().placed.clone()
    }

    /// Its replica failed it: its next attempt goes to one that has not, where there is one in the choice. Says whether there is, and this one had not
    /// failed it before.
    pub(crate) fn leaves_replica(&self) -> bool {
        let (tried, is_new) = {
            let mut story = self.story();
            let Some(id) = story.placed.as_ref().map(|placed| placed.id) else { return false };
            let is_new = !story.tried.contains(&id);
            if is_new {
                story.tried.push(id);
            }
            (story.tried.clone(), is_new)
        };
        let wants = Wants { model: self.0.facts.model.clone(), avoid: tried, ..Wants::default() };
        let others = self.0.target.admission().has_others(&wants, self.expected().least_input());
        self.story().avoid = if others { wants.avoid } else { Vec::new() };
        others && is_new
    }
}
