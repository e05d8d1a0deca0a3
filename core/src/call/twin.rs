//! A second try of a call whose first goes on.
//!
//! The two share who asks what, until when. Each has a story of its own, so that each settles its own slot; in the end the call has both, whichever came first.

use std::sync::Arc;

use super::{Call, Inner, Story};
use crate::observe::Attempt;

impl Call {
    /// One that goes to another replica than its present attempt, at once or not at all.
    pub(crate) fn twin(&self) -> Self {
        let story = {
            let story = self.story();
            let mut avoid = story.tried.clone();
            avoid.extend(story.placed.as_ref().map(|placed| placed.id));
            Story { spare: true, exact_input: story.exact_input, tried: avoid, ..Story::default() }
        };
        // It never waits, and so its crowd need not count it.
        Self(Arc::new(Inner { is_twin: true, crowd: None, ..self.0.again(story) }))
    }

    /// Whether it takes a free slot or none.
    pub(crate) fn is_twin(&self) -> bool {
        self.0.is_twin
    }

    /// Whether a twin of it came first: it gets no other.
    pub(crate) fn has_twin(&self) -> bool {
        self.0.winner.get().is_some()
    }

    /// Its twin failed: the replica that had it is one that failed the call.
    pub(crate) fn avoids_replica_of(&self, twin: &Self) {
        if let Some(placed) = twin.placed() {
            self.avoids(placed.id);
        }
    }

    /// Its twin came too late, or not at all: what it tried is among what the call did, before its present attempt. To be told once the twin is over.
    pub(crate) fn came_before(&self, twin: &Self) {
        let theirs = twin.story().attempts.clone();
        let mut story = self.story();
        let at = story.attempts.len().saturating_sub(1);
        story.attempts.splice(at..at, theirs.into_iter().filter(was_admitted));
    }

    /// Its twin came first: from here on that one's story is the call's. To be told once the call's own attempt is over.
    pub(crate) fn goes_on_as(&self, twin: &Self) {
        let mut ours = self.take_attempts();
        {
            let mut story = twin.story();
            ours.append(&mut story.attempts);
            story.attempts = ours;
        }
        // A call has one twin that comes first: none is made after that.
        let _ = self.0.winner.set(twin.clone());
    }
}

fn was_admitted(attempt: &Attempt) -> bool {
    attempt.admitted_at.is_some()
}
