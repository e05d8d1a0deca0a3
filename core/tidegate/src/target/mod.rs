//! A target: its admission control, retry budget, cost estimates, replicas and metrics.

mod call_estimates;
mod keyed_cooldowns;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::admission::{Admission, BudgetSet, Hints};
use crate::budget::{BudgetView, RetryBudget};
use crate::clock;
use crate::config::{OnFull, TargetConfig};
use crate::error::Error;
use crate::kv::Kv;
use crate::metrics::TargetMetrics;
use crate::pool::{EngineMonitor, Engines, TargetPool};
use crate::schedule::{SchedulerSettings, SchedulerView};
use crate::share::Share;
use crate::transport::Transport;

pub(crate) use call_estimates::{CallEstimates, SlotTime};
pub(crate) use keyed_cooldowns::{KeyedCooldowns, key_of};
use keyed_cooldowns::{KeysChange, is_other_model};
/// A destination of model calls with its own capacity, such as a provider or a pool of servers.
pub(crate) struct Target {
    config: TargetConfig,
    admission: Arc<Admission>,
    retries: Mutex<RetryBudget>,
    estimates: Arc<CallEstimates>,
    /// The replicas. `None` if the target is not a pool.
    pool: Option<TargetPool>,
    /// Reads the metrics of the engine. `None` if the target is a pool, or if they are not read.
    engine: Option<EngineMonitor>,
    metrics: TargetMetrics,
    /// The cool-downs of each credential and model. `None` if the target is a pool.
    keyed_cooldowns: Option<KeyedCooldowns>,
}

impl Target {
    /// Creates a target. `budgets` are its rate budgets, which other targets may share.
    pub(crate) fn new(
        config: TargetConfig,
        budgets: Arc<BudgetSet>,
        metrics: TargetMetrics,
        now: Instant,
    ) -> Arc<Self> {
        Arc::new(Self::build(config, budgets, metrics, now))
    }

    /// Creates a target that several credentials and models share: its slots and queue are common,
    /// and each credential and model has its own cool-down.
    pub(crate) fn new_shared(
        config: TargetConfig,
        budgets: Arc<BudgetSet>,
        metrics: TargetMetrics,
        now: Instant,
    ) -> Arc<Self> {
        let keyed_cooldowns = Some(KeyedCooldowns::replacing_cooldown());
        Arc::new(Self { keyed_cooldowns, ..Self::build(config, budgets, metrics, now) })
    }

    fn build(config: TargetConfig, budgets: Arc<BudgetSet>, metrics: TargetMetrics, now: Instant) -> Self {
        let settings = SchedulerSettings::from(&config);
        let kv = config.kv_tokens.map(|tokens| Kv::new(tokens, config.kv_headroom));
        let hints = Hints::for_target(&config, &settings);
        let admission = Admission::new(config.name.clone(), &settings, budgets, kv, hints);
        let retries = Mutex::new(RetryBudget::new(config.retry.ratio, config.retry.reserve, now));
        let estimates = Arc::new(CallEstimates::new(&config));
        let pool = TargetPool::new(&config, &admission);
        let engine = EngineMonitor::new(&config, &admission, estimates.tracks_memory());
        let keyed_cooldowns = pool.is_none().then(KeyedCooldowns::new);
        Self { config, admission, retries, estimates, pool, engine, metrics, keyed_cooldowns }
    }

    /// Returns the pool of the target, with its replicas. `None` if the target is not a pool.
    pub(crate) fn pool(&self) -> Option<&TargetPool> {
        self.pool.as_ref()
    }

    /// Enables the discovery and polling of the replicas over `transport` if the target is a pool.
    /// `acting` is `true` in mode `enforce`. See [`TargetPool::start`].
    ///
    /// # Errors
    /// `Config` if the environment variable of the pool's `key_env` has no usable key, or if the
    /// crate was built without the feature `pool`.
    pub(crate) fn start_pool(&self, transport: &Transport, acting: bool) -> Result<(), Error> {
        match (&self.pool, &self.config.pool) {
            (Some(pool), Some(config)) => pool.start(config, transport, acting),
            (None, Some(_)) => Err(Error::config(format!(
                "targets.{}.pool: this build has no pools; enable the feature `pool` of the crate `tidegate`",
                self.config.name
            ))),
            (_, None) => Ok(()),
        }
    }

    /// Enables the polling of the engine's metrics. `engines` are those of the gate. Does nothing
    /// if they are not read.
    pub(crate) fn start_engine(&self, engines: &Arc<Engines>) {
        if let Some(engine) = &self.engine {
            engine.start(engines);
        }
    }

    /// Shares the limit with other processes, or, for a pool, the load of its replicas. Also shares
    /// the rates of the target. `name` is the name of the target among all processes.
    ///
    /// A target that refuses calls instead of queueing them shares only the load, because a process
    /// gets its part of the rest while a call waits.
    pub(crate) fn share(&self, share: &Arc<Share>, name: &str) {
        let queues = self.config.on_full != OnFull::Refuse;
        if queues && self.config.budget.is_none() {
            share.add_rates(&format!("target:{name}"), &self.admission.budgets);
        }
        if self.pool.is_some() {
            share.add_pool(format!("pool:{name}"), &self.admission);
        } else if queues {
            share.add(format!("target:{name}"), self.config.cap, &self.admission);
        }
    }

    /// Records that a call was made, which starts the polling of a pool's replicas if necessary.
    pub(crate) fn on_call(&self) {
        if let Some(pool) = &self.pool {
            pool.on_call();
        }
    }

    /// Returns the monitor of the engine's metrics. `None` if the target is a pool, or if they are
    /// not read.
    pub(crate) fn engine(&self) -> Option<&EngineMonitor> {
        self.engine.as_ref()
    }

    /// Waits until the first DNS lookup of the pool's replicas has finished, at most `timeout`.
    /// Returns immediately if the target is not a pool, or if its replicas are not discovered by
    /// DNS.
    pub(crate) async fn wait_for_first_lookup(&self, timeout: Duration) {
        if let Some(pool) = &self.pool {
            pool.wait_for_first_lookup(timeout).await;
        }
    }

    /// Adds to the rejection of a call that waited for a replica what is wrong with the pool and
    /// its replicas. If the target is not a pool, but down, adds how the last call failed. Returns
    /// other rejections unchanged.
    pub(crate) fn explain_rejection(&self, rejection: Error) -> Error {
        match &self.pool {
            Some(pool) => pool.explain_rejection(rejection),
            None => self.admission.explain_outage(rejection),
        }
    }

    /// Returns the name of the target, as used in metrics and errors.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.config.name
    }

    pub(crate) fn config(&self) -> &TargetConfig {
        &self.config
    }

    pub(crate) fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    /// Returns the cool-downs of each credential and model. `None` if only one of them has used the
    /// target, or if the target is a pool.
    pub(crate) fn keyed_cooldowns(&self) -> Option<&KeyedCooldowns> {
        self.keyed_cooldowns.as_ref().filter(|cooldowns| cooldowns.has_several_keys())
    }

    /// Records a call with the key, which identifies its credential and model. When the first call
    /// with another key comes, a `Retry-After` that is in force is limited to the first key, unless
    /// a call without a key may have received it. When only one key is left, a cool-down of the key
    /// continues as that of the target.
    pub(crate) fn on_key(&self, key: u64) {
        let Some(cooldowns) = &self.keyed_cooldowns else { return };
        let first = match cooldowns.on_call(clock::now(), key) {
            Some(KeysChange::Several { first }) => first,
            Some(KeysChange::One) => {
                self.admission.set_several_keys(false);
                if let Some(until) = cooldowns.until(key) {
                    self.admission.resume_cooldown(until);
                }
                return;
            }
            None => return,
        };
        self.admission.set_several_keys(true);
        if let Some(until) = self.admission.waits_until().filter(|_| !cooldowns.has_keyless_wait()) {
            cooldowns.resume(first, until);
            self.admission.end_retry_after();
        }
        if is_other_model(first, key) && self.admission.view().adaptive.is_some() {
            tracing::warn!(
                target = %self.name(),
                "calls of several models use this target, and its adaptive limit compares their latencies with each other; give each model a target of its own (`models`), unless all run on the same engine"
            );
        }
    }

    /// Records that a call without a key was asked to wait: see [`Target::on_key`].
    pub(crate) fn on_keyless_wait(&self) {
        if let Some(cooldowns) = &self.keyed_cooldowns {
            cooldowns.on_keyless_wait();
        }
    }

    /// Returns `true` if the target, or any of its credentials and models, is in a cool-down.
    pub(crate) fn is_cooling(&self) -> bool {
        self.admission.is_cooling() || self.keyed_cooldowns().is_some_and(KeyedCooldowns::is_cooling)
    }

    /// Returns the current state of the limit, the cool-down, the lanes and the tenants. Includes
    /// the calls that wait for the end of a cool-down of their credential and model, and the time
    /// until the last of these cool-downs ends.
    pub(crate) fn view(&self) -> SchedulerView {
        let mut view = self.admission.view();
        if let Some(cooldowns) = self.keyed_cooldowns() {
            cooldowns.add_to(&mut view);
        }
        view
    }

    /// Returns the number of calls that wait for a slot, or for the end of a cool-down.
    pub(crate) fn waiting(&self) -> usize {
        self.view().waiting
    }

    /// Rejects queued and new calls from now on. Calls in flight continue.
    pub(crate) fn drain(&self) {
        self.admission.drain();
        if let Some(cooldowns) = &self.keyed_cooldowns {
            cooldowns.drain();
        }
    }

    /// Returns the retry budget, which limits the number of retries in relation to the recent
    /// calls.
    pub(crate) fn retries(&self) -> &Mutex<RetryBudget> {
        &self.retries
    }

    /// Returns the retry budget with the part of the reserve that this process has now.
    pub(crate) fn divided_retries(&self) -> MutexGuard<'_, RetryBudget> {
        let processes = self.admission.processes();
        let mut retries = self.retries.lock();
        retries.divide(processes);
        retries
    }

    /// Returns the state of the rate budgets at `now`.
    pub(crate) fn budgets(&self, now: Instant) -> Vec<BudgetView> {
        self.admission.budgets.rates.lock().view(now)
    }

    /// Returns the learned estimates of the tokens, memory and cost of calls.
    pub(crate) fn estimates(&self) -> &Arc<CallEstimates> {
        &self.estimates
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
