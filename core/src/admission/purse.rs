//! The rate budgets that a door draws on, alone or with others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use super::Admission;
use crate::budget::RateBudgets;
use crate::config::RateConfig;

/// Budgets, and every door that draws on them: what one gives back, another may be waiting for.
pub struct Purse {
    budgets: Arc<Mutex<RateBudgets>>,
    /// Whether they bound anything now: as good as asking them, without their lock.
    bounds: Arc<AtomicBool>,
    doors: Mutex<Vec<Weak<Admission>>>,
}

impl Purse {
    /// The budgets of this configuration, full.
    pub fn new(rates: &RateConfig, now: Instant) -> Arc<Self> {
        Self::of(RateBudgets::new(rates, now))
    }

    /// These budgets.
    pub fn of(budgets: RateBudgets) -> Arc<Self> {
        let bounds = budgets.bounds();
        Arc::new(Self { budgets: Arc::new(Mutex::new(budgets)), bounds, doors: Mutex::default() })
    }

    pub(crate) fn budgets(&self) -> &Arc<Mutex<RateBudgets>> {
        &self.budgets
    }

    /// Whether there is any budget now. Takes no lock.
    pub(super) fn bounds_anything(&self) -> bool {
        self.bounds.load(Ordering::Acquire)
    }

    pub(super) fn join(&self, door: &Arc<Admission>) {
        let mut doors = self.doors.lock();
        // Targets that nobody configured come and go.
        doors.retain(|door| door.strong_count() > 0);
        doors.push(Arc::downgrade(door));
    }

    /// Has every door but this one look again, after something was given back.
    pub(super) fn changed(&self, by: &Admission) {
        // Not under the lock: looking again may wake anybody.
        let others: Vec<_> = {
            let doors = self.doors.lock();
            if doors.len() < 2 {
                return;
            }
            let others = doors.iter().filter_map(Weak::upgrade).filter(|door| !std::ptr::eq(&**door, by));
            others.collect()
        };
        others.iter().for_each(Admission::look_again);
    }
}
