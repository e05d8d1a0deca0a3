//! A target: its door, its retry budget, what it expects of calls, and its figures.

mod expected;

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::admission::{Admission, Purse};
use crate::budget::{BudgetView, RetryBudget};
use crate::config::{Source, TargetConfig};
use crate::kv::Kv;
use crate::observe::TargetMetrics;
use crate::pool::Addresses;
use crate::schedule::Settings;

pub(crate) use expected::{Expected, Stay};

/// Something with a capacity of its own that model calls go to.
pub struct Target {
    config: TargetConfig,
    admission: Arc<Admission>,
    retries: Mutex<RetryBudget>,
    expected: Arc<Expected>,
    /// Where its calls go, where it is a pool.
    addresses: Option<Addresses>,
    metrics: TargetMetrics,
}

impl Target {
    pub(crate) fn new(
        config: TargetConfig,
        purse: Arc<Purse>,
        metrics: TargetMetrics,
        now: Instant,
    ) -> Arc<Self> {
        let kv = config.kv_tokens.map(|tokens| Kv::new(tokens, config.kv_headroom));
        let admission = Admission::new(
            config.name.clone(),
            &Settings::from(&config),
            purse,
            kv,
            "raise `cap` if the provider can take more, `wait` or the deadline if the call can, or send less",
        );
        if let Some(Source::Listed(members)) = config.pool.as_ref().map(|pool| &pool.source) {
            admission.set_members(members);
        }
        let retries = Mutex::new(RetryBudget::new(config.retry.ratio, config.retry.reserve, now));
        let expected = Arc::new(Expected::new(&config));
        let addresses = config.pool.as_ref().map(|_| Addresses::new(&config));
        Arc::new(Self { config, admission, retries, expected, addresses, metrics })
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

    /// How many retries its recent calls have earned.
    pub fn retries(&self) -> &Mutex<RetryBudget> {
        &self.retries
    }

    /// The provider's rates, as they stand.
    pub(crate) fn budgets(&self, now: Instant) -> Vec<BudgetView> {
        self.admission.purse().budgets().lock().view(now)
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
