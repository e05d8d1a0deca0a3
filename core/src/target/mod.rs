//! A target: its door, its retry budget, what it expects of calls, and its figures.

mod expected;
mod shared;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::admission::{Admission, BudgetSet};
use crate::budget::{BudgetView, RetryBudget};
use crate::config::{ReplicaSource, TargetConfig};
use crate::error::Error;
use crate::kv::Kv;
use crate::observe::TargetMetrics;
use crate::pool::{Addresses, Keeper};
use crate::schedule::Settings;
use crate::transport::Transport;

pub(crate) use expected::{Expected, Stay};
pub(crate) use shared::SharedCooldowns;

/// What to change where a target is too narrow.
const HINT: &str =
    "raise `cap` if the provider can take more, `wait` or the deadline if the call can, or send less";
const POOL_HINT: &str = "add a replica, or raise `pool.cap` if each can take more, `wait` or the deadline if the call can, or send less";

/// Something with a capacity of its own that model calls go to.
pub struct Target {
    config: TargetConfig,
    admission: Arc<Admission>,
    retries: Mutex<RetryBudget>,
    expected: Arc<Expected>,
    /// Where its calls go, where it is a pool.
    addresses: Option<Addresses>,
    metrics: TargetMetrics,
    /// Where it is a pool, once its gate is open.
    keeper: OnceLock<Keeper>,
    /// The cool-downs of its keys, if several credentials and models share it.
    shared: Option<SharedCooldowns>,
}

impl Target {
    pub(crate) fn new(
        config: TargetConfig,
        budgets: Arc<BudgetSet>,
        metrics: TargetMetrics,
        now: Instant,
    ) -> Arc<Self> {
        Arc::new(Self::build(config, budgets, metrics, now))
    }

    /// Creates a target whose slots and queue several credentials and models share.
    pub(crate) fn new_shared(
        config: TargetConfig,
        budgets: Arc<BudgetSet>,
        metrics: TargetMetrics,
        now: Instant,
    ) -> Arc<Self> {
        let shared = Some(SharedCooldowns::new(&config));
        Arc::new(Self { shared, ..Self::build(config, budgets, metrics, now) })
    }

    fn build(config: TargetConfig, budgets: Arc<BudgetSet>, metrics: TargetMetrics, now: Instant) -> Self {
        let kv = config.kv_tokens.map(|tokens| Kv::new(tokens, config.kv_headroom));
        let admission = Admission::new(
            config.name.clone(),
            &Settings::from(&config),
            budgets,
            kv,
            if config.pool.is_some() { POOL_HINT } else { HINT },
        );
        if let Some(ReplicaSource::Listed(members)) = config.pool.as_ref().map(|pool| &pool.source) {
            admission.set_members(members);
        }
        let retries = Mutex::new(RetryBudget::new(config.retry.ratio, config.retry.reserve, now));
        let expected = Arc::new(Expected::new(&config));
        let addresses = config.pool.as_ref().map(|_| Addresses::new(&config));
        let keeper = OnceLock::new();
        Self { config, admission, retries, expected, addresses, metrics, keeper, shared: None }
    }

    /// From now on its replicas are looked after, where it is a pool: while calls come, by this transport. `acting`: whether the gate acts on calls.
    ///
    /// # Errors
    /// `Config`, where the pool's `key_env` names no usable key.
    pub(crate) fn keep(&self, transport: &Transport, acting: bool) -> Result<(), Error> {
        if let Some(pool) = &self.config.pool {
            // A gate opens once; another keeper would be dropped here.
            let _ = self.keeper.set(Keeper::new(&self.admission, pool, transport.clone(), acting)?);
        }
        Ok(())
    }

    /// A call comes: what is known of a pool's replicas is kept fresh from now on.
    pub(crate) fn called(&self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.called();
        }
    }

    /// Until it was looked once which replicas it has, or for so long; at once where it is no pool, or somebody said.
    pub(crate) async fn replicas_known(&self, longest: Duration) {
        if let Some(keeper) = self.keeper.get() {
            keeper.looked(longest).await;
        }
    }

    /// Why it is not known now which replicas there are, where somebody else names them. What was known before holds.
    pub(crate) fn replicas_problem(&self) -> Option<String> {
        self.keeper.get()?.problem()
    }

    /// A refusal, with what is missing where it is not known which replicas there are.
    pub(crate) fn admit_ignorance(&self, refusal: Error) -> Error {
        match self.replicas_problem() {
            Some(problem) => refusal.not_found(&problem),
            None if self.config.pool.is_some() && self.admission.replicas().is_empty() => {
                refusal.not_found("no replica was told or found")
            }
            None => refusal,
        }
    }

    /// The name in metrics and errors.
    pub fn name(&self) -> &Arc<str> {
        &self.config.name
    }

    /// What it was configured with.
    pub fn config(&self) -> &TargetConfig {
        &self.config
    }

    /// Its door.
    pub fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    /// The cool-downs of its keys, if several credentials and models share it.
    pub(crate) fn shared(&self) -> Option<&SharedCooldowns> {
        self.shared.as_ref()
    }

    /// Returns `true` if a cool-down would hold a call that comes now.
    pub(crate) fn is_cooling(&self) -> bool {
        self.admission.is_cooling() || self.shared.as_ref().is_some_and(SharedCooldowns::is_cooling)
    }

    /// Returns the number of calls that wait for a slot, or for their key's cool-down.
    pub(crate) fn waiting(&self) -> usize {
        self.admission.view().waiting + self.shared.as_ref().map_or(0, SharedCooldowns::held)
    }

    /// Rejects the calls that wait and that come; calls in flight go on.
    pub(crate) fn drain(&self) {
        self.admission.drain();
        if let Some(shared) = &self.shared {
            shared.drain();
        }
    }

    /// How many retries its recent calls have earned.
    pub fn retries(&self) -> &Mutex<RetryBudget> {
        &self.retries
    }

    /// The provider's rates, as they stand.
    pub(crate) fn budgets(&self, now: Instant) -> Vec<BudgetView> {
        self.admission.budgets().rates().lock().view(now)
    }

    /// Where its calls go; `None`: it is no pool.
    pub(crate) fn addresses(&self) -> Option<&Addresses> {
        self.addresses.as_ref()
    }

    /// What calls are expected to take.
    pub(crate) fn expected(&self) -> &Arc<Expected> {
        &self.expected
    }

    pub(crate) fn metrics(&self) -> &TargetMetrics {
        &self.metrics
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("name", self.name()).finish_non_exhaustive()
    }
}
