//! The provider's rate budgets as a scheduler uses them. Several schedulers may share them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::rule::Rule;
use crate::budget::{AvailableBudget, Charge, Need, RateBudgets};
use crate::kv::Kv;
use tidegate_protocol::Usage;
use tidegate_protocol::rate::RateHeaders;
use tidegate_tokens::Demand;

/// The budgets and the memory of a target. The lock of the budgets is taken inside the scheduler's.
#[derive(Debug)]
pub struct Resources {
    /// The provider's rate budgets.
    pub budgets: Arc<Mutex<RateBudgets>>,
    /// The engine's memory, if its size is known. Not used for pools: each replica has its own.
    pub kv: Option<Kv>,
}

/// The rate budgets of a target, if it has any.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    budgets: Option<Arc<Mutex<RateBudgets>>>,
    /// Whether the budgets limit anything now. Equal to asking them, without their lock.
    limits: Arc<AtomicBool>,
}

impl Budgets {
    pub(super) fn new(budgets: Arc<Mutex<RateBudgets>>) -> Self {
        let limits = budgets.lock().has_limits();
        Self { budgets: Some(budgets), limits }
    }

    /// Returns `true` if no budget limits a call, now or ever.
    pub(super) fn is_none(&self) -> bool {
        self.budgets.is_none()
    }

    /// Returns `true` if a budget limits calls now. A response's headers may add one later.
    pub(super) fn is_limiting(&self) -> bool {
        self.limiting().is_some()
    }

    /// Returns the budgets if they limit anything.
    fn limiting(&self) -> Option<&Mutex<RateBudgets>> {
        self.budgets.as_deref().filter(|_| self.limits.load(Ordering::Acquire))
    }

    /// Returns what a call takes from each budget.
    pub(super) fn need(&self, demand: &Demand) -> Need {
        self.budgets.as_ref().map_or(Need::ZERO, |budgets| budgets.lock().need(demand))
    }

    /// Returns the room in all budgets.
    pub(super) fn room(&self, now: Instant) -> AvailableBudget {
        self.limiting().map_or(AvailableBudget::UNBOUNDED, |budgets| budgets.lock().available(now))
    }

    /// Returns the budget that is too small for the call even when full, and its size in tokens.
    pub(super) fn oversize(&self, demand: &Demand) -> Option<(Rule, u64)> {
        let (kind, most) = self.limiting()?.lock().oversize(demand)?;
        Some((kind.into(), most))
    }

    /// Returns `true` if the budgets have no room now for another call with that charge.
    pub(super) fn is_spent(&self, now: Instant, charge: &Charge) -> bool {
        self.limiting().is_some_and(|budgets| budgets.lock().ready_at(now, &charge.need).is_some())
    }

    /// Returns the budget without room for the call, and when it has room if no other call goes.
    pub(super) fn lacking(&self, now: Instant, need: &Need) -> Option<(Rule, Instant)> {
        let (kind, at) = self.limiting()?.lock().ready_at(now, need)?;
        Some((kind.into(), at))
    }

    /// Returns when the budgets have room for the call if no other call goes.
    pub(super) fn ready_at(&self, now: Instant, need: &Need) -> Instant {
        self.lacking(now, need).map_or(now, |(_, at)| at)
    }

    /// Returns the time in which that many calls get through the budgets.
    pub(super) fn time_for(&self, calls: usize, need: &Need) -> Duration {
        self.limiting().map_or(Duration::ZERO, |budgets| budgets.lock().time_for(calls, need))
    }

    /// Charges a call, or returns `None` if there are no budgets.
    pub(super) fn charge(&self, now: Instant, demand: &Demand) -> Option<Box<Charge>> {
        self.budgets.as_ref().map(|budgets| Box::new(budgets.lock().charge(now, demand)))
    }

    /// Refunds the charge of a call that was never sent.
    pub(super) fn refund(&self, now: Instant, charge: Charge) {
        if let Some(budgets) = &self.budgets {
            budgets.lock().refund(now, charge);
        }
    }

    /// Corrects a charge to the provider's count.
    pub(super) fn settle(&self, now: Instant, charge: &mut Charge, usage: &Usage) {
        if let Some(budgets) = &self.budgets {
            budgets.lock().settle(now, charge, usage);
        }
    }

    /// Applies the rate headers of a response.
    pub(super) fn on_headers(
        &self,
        now: Instant,
        charge: &Charge,
        sent_at: Instant,
        headers: &RateHeaders,
        limited: bool,
    ) {
        if let Some(budgets) = &self.budgets {
            budgets.lock().on_response(now, charge, sent_at, headers, limited);
        }
    }
}
