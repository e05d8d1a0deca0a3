//! A set of rate budgets (requests and tokens per time) that one or more targets share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use super::Admission;
use crate::budget::RateBudgets;
use crate::config::RateConfig;

/// Rate budgets, and the targets that share them. When one target returns tokens or requests to the
/// budgets, a call that waits at another target may be admitted.
pub struct BudgetSet {
    /// The budgets of requests and tokens. They admit every call if no rate is configured.
    pub(crate) rates: Arc<Mutex<RateBudgets>>,
    /// `true` while at least one rate is limited, by the configuration or by the headers of a
    /// response. Readable without locking the budgets.
    bounds: Arc<AtomicBool>,
    /// The targets that share the budgets. Targets that were dropped stay in the list until the
    /// next call of `add`.
    members: Mutex<Vec<Weak<Admission>>>,
}

impl BudgetSet {
    /// Creates the budgets of the configuration `rates`, full at `now`. No target shares them yet.
    pub fn new(rates: &RateConfig, now: Instant) -> Arc<Self> {
        Self::from_budgets(RateBudgets::new(rates, now))
    }

    /// Creates a set with these budgets. No target shares them yet.
    pub fn from_budgets(budgets: RateBudgets) -> Arc<Self> {
        let bounds = budgets.has_limits();
        Arc::new(Self { rates: Arc::new(Mutex::new(budgets)), bounds, members: Mutex::default() })
    }

    /// Returns `true` while at least one rate is limited. Takes no lock.
    pub(super) fn bounds_anything(&self) -> bool {
        self.bounds.load(Ordering::Acquire)
    }

    /// Adds a target that shares the budgets.
    pub(super) fn add(&self, member: &Arc<Admission>) {
        let mut members = self.members.lock();
        // Targets that are not configured are dropped when they are idle.
        members.retain(|member| member.strong_count() > 0);
        members.push(Arc::downgrade(member));
    }

    /// Admits waiting calls at the targets that share the budgets. Skips the target `by`, which has
    /// returned tokens or requests to the budgets.
    pub(super) fn notify_others(&self, by: &Admission) {
        // Outside the lock, because admitting a call wakes tasks.
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
