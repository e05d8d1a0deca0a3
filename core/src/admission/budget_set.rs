//! The rate rates that a member draws on, alone or with others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use super::Admission;
use crate::budget::RateBudgets;
use crate::config::RateConfig;

/// Budgets, and every member that draws on them: what one gives back, another may be waiting for.
pub struct BudgetSet {
    rates: Arc<Mutex<RateBudgets>>,
    /// Whether they bound anything now: as good as asking them, without their lock.
    bounds: Arc<AtomicBool>,
    members: Mutex<Vec<Weak<Admission>>>,
}

impl BudgetSet {
    /// The rates of this configuration, full.
    pub fn new(rates: &RateConfig, now: Instant) -> Arc<Self> {
        Self::from_budgets(RateBudgets::new(rates, now))
    }

    /// These rates.
    pub fn from_budgets(budgets: RateBudgets) -> Arc<Self> {
        let bounds = budgets.has_limits();
        Arc::new(Self { rates: Arc::new(Mutex::new(budgets)), bounds, members: Mutex::default() })
    }

    pub(crate) fn rates(&self) -> &Arc<Mutex<RateBudgets>> {
        &self.rates
    }

    /// Whether there is any budget now. Takes no lock.
    pub(super) fn bounds_anything(&self) -> bool {
        self.bounds.load(Ordering::Acquire)
    }

    pub(super) fn add(&self, member: &Arc<Admission>) {
        let mut members = self.members.lock();
        // Targets that nobody configured come and go.
        members.retain(|member| member.strong_count() > 0);
        members.push(Arc::downgrade(member));
    }

    /// Has every member but this one look again, after something was given back.
    pub(super) fn notify_others(&self, by: &Admission) {
        // Not under the lock: looking again may wake anybody.
        let others: Vec<_> = {
            let members = self.members.lock();
            if members.len() < 2 {
                return;
            }
            let others =
                members.iter().filter_map(Weak::upgrade).filter(|member| !std::ptr::eq(&**member, by));
            others.collect()
        };
        others.iter().for_each(Admission::admit_waiting);
    }
}
