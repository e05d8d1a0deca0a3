//! One replica, as known to the policy.

use std::sync::Arc;
use std::time::Instant;
use tidegate_config::ReplicaConfig;

use super::health::Health;
use super::load::Load;
use super::polls::PollState;
use super::rendezvous;
use super::types::{Placed, ReplicaId};
use tidegate_protocol::vllm::Model;

#[derive(Clone, Debug)]
pub(super) struct Replica {
    pub(super) placed: Placed,
    pub(super) member: ReplicaConfig,
    /// The hash by which all clients know the replica.
    pub(super) name: u64,
    /// Whether the replica gets no more calls and leaves with its last one.
    pub(super) draining: bool,
    pub(super) load: Load,
    pub(super) health: Health,
    pub(super) polled: PollState,
    /// The models that the replica reported.
    pub(super) models: Option<Vec<Model>>,
}

impl Replica {
    /// Returns `true` if calls may go to the replica now.
    pub(super) fn is_open(&self, now: Instant) -> bool {
        !self.draining && self.health.is_eligible() && !self.health.is_busy(now)
    }

    pub(super) fn new(id: ReplicaId, member: ReplicaConfig, now: Instant, starts: bool) -> Self {
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

    /// Returns whether the replica serves a model, or `None` if that is not known. Configured
    /// models precede reported ones.
    pub(super) fn serves(&self, model: &str) -> Option<bool> {
        match (&self.member.models, &self.models) {
            (Some(said), _) => Some(said.iter().any(|name| **name == *model)),
            (None, Some(models)) => Some(models.iter().any(|known| *known.name == *model)),
            (None, None) => None,
        }
    }

    /// Returns `true` if a prompt of that many tokens and one token of output fit into the context,
    /// as far as is known. An adapter without a length has that of its parent.
    pub(super) fn takes(&self, model: Option<&str>, least_input: u64) -> bool {
        let Some(models) = &self.models else { return true };
        let of = |name: &str| models.iter().find(|known| *known.name == *name);
        let longest_of =
            |model: &Model| model.max_tokens.or_else(|| of(model.parent.as_deref()?)?.max_tokens);
        let longest = match model.and_then(of) {
            Some(model) => longest_of(model),
            // No model, or an unknown one: at most the longest context, if all are known.
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
