//! A set of rate budgets (requests and tokens per time) that one or more targets share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Admission;
use super::driver::State;
use super::share_link::{ShareEvent, ShareLink};
use crate::budget::RateBudgets;
use crate::clock::now;
use crate::config::RateConfig;
use tidegate_share::LeaseTimes;
use tidegate_share::rates::{Advance, Draw, RateStock};

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
    /// The connection to the other processes that share the budgets. Empty if they are not shared.
    share: OnceLock<ShareLink>,
}

impl BudgetSet {
    /// Creates the budgets of the configuration `rates`, full at `now`. No target shares them yet.
    pub fn new(rates: &RateConfig, now: Instant) -> Arc<Self> {
        Self::from_budgets(RateBudgets::new(rates, now))
    }

    /// Creates a set with these budgets. No target shares them yet.
    pub fn from_budgets(budgets: RateBudgets) -> Arc<Self> {
        let bounds = budgets.has_limits();
        Arc::new(Self {
            rates: Arc::new(Mutex::new(budgets)),
            bounds,
            members: Mutex::default(),
            share: OnceLock::new(),
        })
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
        if self.members.lock().len() > 1 {
            self.notify(|member| !std::ptr::eq(member, by));
        }
    }

    /// Admits waiting calls at the targets that `picked` accepts.
    fn notify(&self, picked: impl Fn(&Admission) -> bool) {
        // Outside the lock, because admitting a call wakes tasks.
        let members: Vec<_> = self.members.lock().iter().filter_map(Weak::upgrade).collect();
        members.iter().filter(|member| picked(member)).for_each(Admission::admit_waiting);
    }

    /// Shares the configured budgets with other processes from the first call on. `link` connects them by
    /// the names of their limits. Has no effect without limits.
    pub(crate) fn share(&self, strict: bool, times: LeaseTimes, link: impl FnOnce(String) -> ShareLink) {
        let mut rates = self.rates.lock();
        if rates.share(now(), strict, times) {
            let _ = self.share.set(link(rates.shared_names()));
        }
    }

    /// Asks the broker for what the calls of a target lack, if the budgets are shared. Call this function
    /// after each event of its scheduler, under the lock. If the target is the only one, none of its calls
    /// waits, and `may_withdraw`, nothing more is asked for.
    pub(super) fn report(&self, state: &State, now: Instant, may_withdraw: bool) {
        let Some(link) = self.share.get() else { return };
        link.join();
        // Not while the rates are locked.
        let is_only = self.members.lock().len() == 1;
        let mut rates = self.rates.lock();
        if is_only && may_withdraw && !state.scheduler.has_waiting() {
            rates.with_stock(RateStock::lack_nothing);
        }
        if let Some(draw) = rates.draw(now, || state.scheduler.waiting_weight()) {
            link.send(ShareEvent::Drawn(draw));
        }
    }

    /// Joins a broker. Returns what it must be told, or `None` if the budgets are not shared.
    pub(crate) fn join_share(&self) -> Option<Draw> {
        let draw = self.rates.lock().join(now());
        // The waiting calls can draw now. What they ask for is sent later.
        self.notify(|_| true);
        draw
    }

    /// Records that the broker has answered what was sent at `sent_at`.
    pub(crate) fn on_share_alive(&self, sent_at: Instant) {
        self.rates.lock().with_stock(|stock| stock.on_alive(sent_at));
    }

    /// Sets the number of processes that share the budgets, as last heard.
    pub(crate) fn set_processes(&self, processes: usize) {
        self.rates.lock().with_stock(|stock| stock.set_members(processes));
    }

    /// Adds what the broker has advanced before the time `age`, and admits the calls that fit now.
    pub(crate) fn on_advance(&self, advance: &Advance, age: Duration) {
        self.on_share_event(|stock, now| stock.on_advance(now, advance, age));
    }

    /// Records that the broker was lost.
    pub(crate) fn on_share_lost(&self) {
        self.on_share_event(RateStock::on_lost);
    }

    /// Lets this process use the whole budgets, because there can be no broker.
    pub(crate) fn on_share_alone(&self) {
        self.on_share_event(|stock, _| stock.on_alone());
    }

    /// Returns what was not used, and tells the broker how charges have changed.
    pub(crate) fn on_share_heartbeat(&self) {
        let Some(link) = self.share.get() else { return };
        let mut rates = self.rates.lock();
        if let Some(draw) = rates.correct_due(now()) {
            link.send(ShareEvent::Drawn(draw));
        }
    }

    fn on_share_event(&self, event: impl FnOnce(&mut RateStock, Instant)) {
        self.rates.lock().with_stock(|stock| event(stock, now()));
        self.notify(|_| true);
    }
}
