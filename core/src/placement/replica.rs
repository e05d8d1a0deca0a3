//! One replica, as the pool's policy knows it.

use std::sync::Arc;
use std::time::Instant;

use super::health::Health;
use super::load::Load;
use super::polls::PollState;
use super::rendezvous;
use super::types::{Member, Placed, ReplicaId};
use crate::wire::vllm::Model;

#[derive(Clone, Debug)]
pub(super) struct Replica {
    pub(super) placed: Placed,
    pub(super) member: Member,
    /// What all clients know it by, whatever place it has in their tables.
    pub(super) name: u64,
    /// It gets no more calls, and leaves with its last one.
    pub(super) draining: bool,
    pub(super) load: Load,
    pub(super) health: Health,
    pub(super) polled: PollState,
    /// What it said that it serves.
    pub(super) models: Option<Vec<Model>>,
}

impl Replica {
    /// Whether calls may go there now.
    pub(super) fn is_open(&self, now: Instant) -> bool {
        !self.draining && self.health.is_eligible() && !self.health.is_busy(now)
    }

    pub(super) fn new(id: ReplicaId, member: Member, now: Instant, starts: bool) -> Self {
        Self {
            placed: Placed { id, url: member.url.clone() },
            name: rendezvous::name(&member.url),
            member,
            draining: false,
            load: Load::new(),
            health: Health::new(now, starts),
            polled: PollState::default(),
            models: None,
        }
    }

    /// Whether it serves a model; `None`: not known. What somebody said of it holds before what it says itself.
    pub(super) fn serves(&self, model: &str) -> Option<bool> {
        match (&self.member.models, &self.models) {
            (Some(said), _) => Some(said.iter().any(|name| **name == *model)),
            (None, Some(models)) => Some(models.iter().any(|known| *known.name == *model)),
            (None, None) => None,
        }
    }

    /// Whether a prompt of so many tokens, and an answer of one, could be served, as far as is known. An adapter that does not say is as long as its parent.
    pub(super) fn takes(&self, model: Option<&str>, least_input: u64) -> bool {
        let Some(models) = &self.models else { return true };
        let of = |name: &str| models.iter().find(|known| *known.name == *name);
        let longest_of = |model: &Model| model.longest.or_else(|| of(model.parent.as_deref()?)?.longest);
        let longest = match model.and_then(of) {
            Some(model) => longest_of(model),
            // Not named, or not known here: no longer than the longest, where all of them say.
            None => models
                .iter()
                .map(longest_of)
                .collect::<Option<Vec<_>>>()
                .and_then(|all| all.into_iter().max()),
        };
        longest.is_none_or(|longest| least_input < longest)
    }

    pub(super) fn known_models(&self) -> Option<Vec<Arc<str>>> {
        let said = self.member.models.as_ref().map(|names| names.to_vec());
        said.or_else(|| Some(self.models.as_ref()?.iter().map(|model| model.name.clone()).collect()))
    }
}
