//! The state of one replica: its configuration, load, health, polls and models.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Model, Placed, ReplicaConfig, ReplicaId};
use super::{health::Health, load_estimate::Load, poll_schedule::PollState, rendezvous};

/// A replica of the pool, with everything that is known about it.
#[derive(Clone, Debug)]
pub(super) struct Replica {
    pub(super) placed: Placed,
    /// The replica's configuration.
    pub(super) member: ReplicaConfig,
    /// Hash of the URL: see [`rendezvous::name`].
    pub(super) name: u64,
    /// Whether the replica is no longer a member: it gets no more calls, and leaves when its last
    /// one ends.
    pub(super) draining: bool,
    pub(super) load: Load,
    pub(super) health: Health,
    pub(super) polled: PollState,
    /// The models that the replica reported, or `None` if it has reported none yet.
    pub(super) models: Option<Vec<Model>>,
    /// The models for which the replica answered 404 since it last accepted a call for them,
    /// without those that it has reported since. At most [`MAX_LACKING`].
    pub(super) lacking: Vec<Arc<str>>,
    /// The status of the last model poll if it returned no list of models, otherwise `None`.
    pub(super) models_status: Option<u16>,
}

/// Maximum number of models that are remembered because a replica answered 404 for them.
const MAX_LACKING: usize = 64;

impl Replica {
    /// Creates a replica without calls. `poll` is the interval between load polls, or `None` if the
    /// load is not polled.
    pub(super) fn new(id: ReplicaId, member: ReplicaConfig, health: Health, poll: Option<Duration>) -> Self {
        Self {
            placed: Placed { id, url: member.url.clone() },
            name: rendezvous::name(&member.url),
            member,
            draining: false,
            load: Load::new(poll),
            health,
            polled: PollState::default(),
            models: None,
            lacking: Vec::new(),
            models_status: None,
        }
    }

    /// Records that the replica answered 404 for a model. A model poll follows if the model was
    /// expected there, because the reported models are wrong or not known.
    pub(super) fn on_model_missing(&mut self, model: &Arc<str>) {
        if self.lacks(model) || self.lacking.len() >= MAX_LACKING {
            return;
        }
        if self.serves(model) != Some(false) {
            self.polled.forget_models();
        }
        self.lacking.push(model.clone());
    }

    /// Records that the replica accepted a call for a model.
    pub(super) fn on_model_served(&mut self, model: &str) {
        self.lacking.retain(|lacking| **lacking != *model);
    }

    /// Records the answer to a model poll: the models, or the status if there is no list of models.
    /// A replica that is still loading reports no models.
    pub(super) fn on_models(&mut self, answer: Result<Vec<Model>, u16>) {
        self.models_status = answer.as_ref().err().copied();
        // Without a list, calls show what has changed.
        let reported = answer.as_deref().unwrap_or_default();
        let is_reported =
            |name: &str| reported.is_empty() || reported.iter().any(|model| *model.name == *name);
        self.lacking.retain(|name| !is_reported(name));
        if let Ok(models) = answer {
            self.models = Some(models).filter(|models| !models.is_empty());
            self.polled.knows_models |= self.models.is_some();
        }
    }

    /// Returns `true` if calls may be sent to the replica now: it is healthy, not busy and not
    /// draining.
    pub(super) fn is_open(&self, now: Instant) -> bool {
        !self.draining && self.health.is_eligible() && !self.health.is_busy(now)
    }

    /// Returns `true` if the replica is draining and its last call has ended.
    pub(super) fn has_drained(&self) -> bool {
        self.draining && self.load.own_calls() == 0
    }

    /// Returns whether the replica serves a model, or `None` if that is not known. Configured
    /// models precede reported ones, and an answer 404 precedes both.
    pub(super) fn serves(&self, model: &str) -> Option<bool> {
        if self.lacks(model) {
            return Some(false);
        }
        match (&self.member.models, &self.models) {
            (Some(configured), _) => Some(configured.iter().any(|name| **name == *model)),
            (None, reported) => Some(reported.as_ref()?.iter().any(|known| *known.name == *model)),
        }
    }

    /// Returns `true` if the replica answered 404 for a model and nothing contradicts that: see
    /// [`Replica::lacking`].
    pub(super) fn lacks(&self, model: &str) -> bool {
        self.lacking.iter().any(|lacking| **lacking == *model)
    }

    /// Returns `true` if a prompt of `input` tokens and one token of output fit into the context of
    /// the model, as far as is known. An adapter without a context length has the length of its
    /// parent model. If `model` is `None` or not known, the longest context of all models is used,
    /// if all are known.
    pub(super) fn takes(&self, model: Option<&str>, input: u64) -> bool {
        let Some(models) = &self.models else { return true };
        let find = |name: &str| models.iter().find(|known| *known.name == *name);
        let context = |model: &Model| model.max_tokens.or_else(|| find(model.parent.as_deref()?)?.max_tokens);
        let longest = match model.and_then(find) {
            Some(model) => context(model),
            None => models.iter().try_fold(0, |longest, model| Some(context(model)?.max(longest))),
        };
        longest.is_none_or(|longest| input < longest)
    }

    /// Returns the names of the models that the replica is known to serve, or `None` if they are
    /// not known. Configured models precede reported ones.
    pub(super) fn known_models(&self) -> Option<Vec<Arc<str>>> {
        let configured = self.member.models.as_ref().map(|names| names.to_vec());
        configured.or_else(|| Some(self.models.as_ref()?.iter().map(|model| model.name.clone()).collect()))
    }
}
