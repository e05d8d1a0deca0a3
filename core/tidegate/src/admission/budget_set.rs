//! A set of rate budgets (requests and tokens per time) that one or more targets share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::Admission;
use super::driver::State;
use super::share_link::{ShareEvent, ShareLink};
use crate::budget::{RateBudgets, SharedSet};
use crate::clock::now;
use crate::config::RateConfig;
use tidegate_share::LeaseTimes;
use tidegate_share::rates::{Advance, Draw, RateStock};

/// Rate budgets, and the targets that share them. When one target returns tokens or requests to the
/// budgets, a call that waits at another target may be admitted. What one target reserves for an
/// aged call may be taken by calls of the other targets.
pub struct BudgetSet {
    /// The budgets of requests and tokens. They admit every call if no rate is configured.
    pub(crate) rates: Arc<Mutex<RateBudgets>>,
    /// `true` while at least one rate is limited, by the configuration or by the headers of a
    /// response. Readable without locking the budgets.
    bounds: Arc<AtomicBool>,
    /// The targets that share the budgets. Targets that were dropped stay in the list until the
    /// next call of `add`.
    members: Mutex<Vec<BudgetUser>>,
    /// The connections to the other processes. Empty if the budgets are not shared.
    links: OnceLock<Links>,
}

/// A target that shares the budgets.
struct BudgetUser {
    target: Weak<Admission>,
    /// Whether calls of the target waited after its last event. Updated only if other processes
    /// share the budgets, too.
    has_waiting: bool,
}

impl BudgetUser {
    fn is(&self, target: &Admission) -> bool {
        std::ptr::eq(self.target.as_ptr(), target)
    }

    fn is_waiting(&self) -> bool {
        self.has_waiting && self.target.strong_count() > 0
    }
}

/// Connects a set of limits, which has this name, to the other processes.
type Connect = dyn Fn(SharedSet, &str) -> ShareLink + Send + Sync;

/// The connections of budgets to the other processes that share them.
struct Links {
    connect: Box<Connect>,
    /// A connection for each set.
    open: Mutex<Vec<(SharedSet, ShareLink)>>,
}

impl BudgetSet {
    /// Creates the budgets of the configuration `rates`, full at `now`. No target shares them yet.
    pub fn new(rates: &RateConfig, now: Instant) -> Arc<Self> {
        Self::from_budgets(RateBudgets::new(rates, now))
    }

    /// Creates a set with these budgets. No target shares them yet.
    pub fn from_budgets(budgets: RateBudgets) -> Arc<Self> {
        let bounds = budgets.limits_flag();
        Arc::new(Self {
            rates: Arc::new(Mutex::new(budgets)),
            bounds,
            members: Mutex::default(),
            links: OnceLock::new(),
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
        members.retain(|member| member.target.strong_count() > 0);
        members.push(BudgetUser { target: Arc::downgrade(member), has_waiting: false });
    }

    /// Returns `true` if several targets share the budgets.
    pub(crate) fn has_several_targets(&self) -> bool {
        self.members.lock().iter().filter(|member| member.target.strong_count() > 0).nth(1).is_some()
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
        let members: Vec<_> =
            self.members.lock().iter().filter_map(|member| member.target.upgrade()).collect();
        members.iter().filter(|member| picked(member)).for_each(Admission::admit_waiting);
    }

    /// Shares the budgets with other processes from the first call on. `connect` connects a set of
    /// limits by its name.
    pub(crate) fn share(
        &self,
        strict: bool,
        times: LeaseTimes,
        connect: impl Fn(SharedSet, &str) -> ShareLink + Send + Sync + 'static,
    ) {
        self.rates.lock().share(now(), strict, times);
        let _ = self.links.set(Links { connect: Box::new(connect), open: Mutex::default() });
    }

    /// Asks the broker for what the calls of a target lack, if the budgets are shared. Call this
    /// function after each event of its scheduler, under the lock. If no call waits at any target,
    /// and `may_withdraw`, nothing more is asked for.
    pub(super) fn report(&self, target: &Admission, state: &State, now: Instant, may_withdraw: bool) {
        let Some(links) = self.links.get().filter(|_| self.bounds_anything()) else { return };
        // Not while the rates are locked. If a call begins to wait at another target meanwhile,
        // what it needs is withdrawn, and asked for again after some milliseconds.
        let is_idle = !self.has_waiting(target, state) && may_withdraw;
        let mut rates = self.rates.lock();
        for (set, link) in links.update(&rates).iter() {
            link.join();
            if is_idle {
                rates.with_stock(*set, RateStock::lack_nothing);
            }
            if let Some(draw) = rates.draw(now, *set, || state.scheduler.waiting_weight()) {
                link.send(ShareEvent::Drawn(draw));
            }
        }
    }

    /// Records whether calls of a target wait. Returns `true` if calls of any target wait.
    fn has_waiting(&self, target: &Admission, state: &State) -> bool {
        let mut members = self.members.lock();
        let reporting = members.iter_mut().find(|member| member.is(target));
        reporting.into_iter().for_each(|member| member.has_waiting = state.scheduler.has_waiting());
        members.iter().any(BudgetUser::is_waiting)
    }

    /// Joins a broker. Returns what it must be told, or `None` if the set is not shared any more.
    pub(crate) fn join_share(&self, set: SharedSet) -> Option<Draw> {
        let draw = self.rates.lock().join(now(), set);
        // The waiting calls can draw now. What they ask for is sent later.
        self.notify(|_| true);
        draw
    }

    /// Records that the broker has answered what was sent at `sent_at`.
    pub(crate) fn on_share_alive(&self, set: SharedSet, sent_at: Instant) {
        self.rates.lock().with_stock(set, |stock| stock.on_alive(sent_at));
    }

    /// Sets the number of processes that share the limits, as last heard.
    pub(crate) fn set_processes(&self, set: SharedSet, processes: usize) {
        self.rates.lock().with_stock(set, |stock| stock.set_members(processes));
    }

    /// Adds what the broker has advanced before the time `age`, and admits the calls that fit now.
    pub(crate) fn on_advance(&self, set: SharedSet, advance: &Advance, age: Duration) {
        self.on_share_event(set, |stock, now| stock.on_advance(now, advance, age));
    }

    /// Records that the broker was lost.
    pub(crate) fn on_share_lost(&self, set: SharedSet) {
        self.on_share_event(set, RateStock::on_lost);
    }

    /// Lets this process use the whole budgets, because there can be no broker.
    pub(crate) fn on_share_alone(&self, set: SharedSet) {
        self.on_share_event(set, |stock, _| stock.on_alone());
    }

    /// Returns what was not used, and tells the broker how charges have changed.
    pub(crate) fn on_share_heartbeat(&self, set: SharedSet) {
        let Some(links) = self.links.get() else { return };
        let mut rates = self.rates.lock();
        let open = links.open.lock();
        if let Some((_, link)) = open.iter().find(|(open, _)| *open == set)
            && let Some(draw) = rates.correct_due(now(), set)
        {
            link.send(ShareEvent::Drawn(draw));
        }
    }

    /// Returns `true` if this process has charged something to a set of limits within their
    /// windows.
    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "the members of a local broker send heartbeats")
    )]
    pub(crate) fn has_shared_charges(&self, set: SharedSet) -> bool {
        self.rates.lock().has_charges(now(), set)
    }

    fn on_share_event(&self, set: SharedSet, event: impl FnOnce(&mut RateStock, Instant)) {
        self.rates.lock().with_stock(set, |stock| event(stock, now()));
        self.notify(|_| true);
    }
}

impl Links {
    /// Opens and closes connections, so that there is one for each set of limits that is shared
    /// now. Returns them.
    fn update(&self, rates: &RateBudgets) -> MutexGuard<'_, Vec<(SharedSet, ShareLink)>> {
        let mut open = self.open.lock();
        if !rates.shared_sets().eq(open.iter().map(|(set, _)| *set)) {
            let mut before = std::mem::take(&mut *open);
            for set in rates.shared_sets() {
                let known = before.iter().position(|(open, _)| *open == set);
                open.push(match known {
                    Some(at) => before.swap_remove(at),
                    None => (set, (self.connect)(set, &rates.shared_name(set))),
                });
            }
        }
        open
    }
}
