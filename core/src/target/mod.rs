//! A target: its admission control, retry budget, cost estimates, replicas and metrics.

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

/// The advice in rejections for lack of slots.
const HINT: &str =
    "raise `cap` if the provider can take more, `wait` or the deadline if the call can, or send less";
/// The advice in rejections for lack of slots at a pool.
const POOL_HINT: &str = "add a replica, or raise `pool.cap` if each can take more, `wait` or the deadline if the call can, or send less";

/// A destination of model calls with its own capacity, such as a provider or a pool of servers.
pub struct Target {
    config: TargetConfig,
    admission: Arc<Admission>,
    retries: Mutex<RetryBudget>,
    expected: Arc<Expected>,
    /// The addresses of requests, if the target is a pool.
    addresses: Option<Addresses>,
    metrics: TargetMetrics,
    /// Keeps the state of the replicas up to date. Set for pools when the gate is created.
    keeper: OnceLock<Keeper>,
    /// The cool-downs of each key, if several credentials and models share the target.
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

    /// Starts to keep the state of the pool's replicas up to date while calls come, with polls over
    /// `transport`. Does nothing if the target is not a pool. `acting` is `true` in mode `enforce`.
    ///
    /// # Errors
    /// `Config` if the variable of the pool's `key_env` has no usable key.
    pub(crate) fn keep(&self, transport: &Transport, acting: bool) -> Result<(), Error> {
        if let Some(pool) = &self.config.pool {
            // A gate is created once, so this never replaces a keeper.
            let _ = self.keeper.set(Keeper::new(&self.admission, pool, transport.clone(), acting)?);
        }
        Ok(())
    }

    /// Records that a call was made, so that the state of the pool's replicas is kept up to date.
    pub(crate) fn called(&self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.called();
        }
    }

    /// Waits for the first discovery of the pool's replicas, at most `longest`. Returns at once if
    /// the target is not a pool, or if the replicas are already known.
    pub(crate) async fn replicas_known(&self, longest: Duration) {
        if let Some(keeper) = self.keeper.get() {
            keeper.looked(longest).await;
        }
    }

    /// Returns why the latest discovery of the replicas failed, if it did. The replicas found
    /// before stay in use.
    pub(crate) fn replicas_problem(&self) -> Option<String> {
        self.keeper.get()?.problem()
    }

    /// Adds to a rejection that the replicas of the pool are not known, if so.
    pub(crate) fn admit_ignorance(&self, refusal: Error) -> Error {
        match self.replicas_problem() {
            Some(problem) => refusal.not_found(&problem),
            None if self.config.pool.is_some() && self.admission.replicas().is_empty() => {
                refusal.not_found("no replica was told or found")
            }
            None => refusal,
        }
    }

    /// Returns the name, as in metrics and errors.
    pub fn name(&self) -> &Arc<str> {
        &self.config.name
    }

    /// Returns the configuration.
    pub fn config(&self) -> &TargetConfig {
        &self.config
    }

    /// Returns the admission control.
    pub fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    /// Returns the cool-downs of each key, if several credentials and models share the target.
    pub(crate) fn shared(&self) -> Option<&SharedCooldowns> {
        self.shared.as_ref()
    }

    /// Returns `true` if a new call would have to wait for a cool-down.
    pub(crate) fn is_cooling(&self) -> bool {
        self.admission.is_cooling() || self.shared.as_ref().is_some_and(SharedCooldowns::is_cooling)
    }

    /// Returns the number of calls that wait for a slot, or for the end of their key's cool-down.
    pub(crate) fn waiting(&self) -> usize {
        self.admission.view().waiting + self.shared.as_ref().map_or(0, SharedCooldowns::held)
    }

    /// Rejects queued and new calls from now on. Calls in flight continue.
    pub(crate) fn drain(&self) {
        self.admission.drain();
        if let Some(shared) = &self.shared {
            shared.drain();
        }
    }

    /// Returns the retry budget: the retries that recent calls have earned.
    pub fn retries(&self) -> &Mutex<RetryBudget> {
        &self.retries
    }

    /// Returns the state of the rate budgets.
    pub(crate) fn budgets(&self, now: Instant) -> Vec<BudgetView> {
        self.admission.budgets().rates().lock().view(now)
    }

    /// Returns the addresses of requests to a pool. `None` if the target is not a pool.
    pub(crate) fn addresses(&self) -> Option<&Addresses> {
        self.addresses.as_ref()
    }

    /// Returns the estimates of what calls take.
    pub(crate) fn expected(&self) -> &Arc<Expected> {
        &self.expected
    }

    /// Returns the metrics of the target.
    pub(crate) fn metrics(&self) -> &TargetMetrics {
        &self.metrics
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("name", self.name()).finish_non_exhaustive()
    }
}
