//! Start and finish tags for start-time fair queueing.
//!
//! The tags decide which tenant's call is dispatched next within one lane (priority class).
//!
//! Each waiting call has a start tag `S = max(V, F)`. `F` is the finish tag of the tenant's last
//! dispatched call, and `V` is the lane's virtual time when the tenant last began to wait. The call
//! with the least start tag is dispatched first. The dispatch sets `F = S + cost / weight` and
//! advances the virtual time to `S`. For two tenants that always have calls waiting, the work
//! received over any interval, divided by the weight, differs by at most the largest cost of one
//! call of each, also divided by the weight (Goyal, Vin, Cheng: Start-time Fair Queueing, 1996). A
//! tenant that was idle starts at the current virtual time, so idle time gives it no advantage.
//!
//! The first call of a tenant that begins to wait has the current virtual time as its start tag, so
//! its dispatch does not advance the virtual time. A retry does not advance it either. A stream of
//! such calls would stop the virtual time and starve every tenant with a higher tag. Therefore
//! their work advances the virtual time when they end: by the final cost, divided by the sum of the
//! weights of the waiting tenants and of the call's own tenant. This is the pace of ideal sharing
//! (as in WF2Q+: Bennett, Zhang, 1996). See `docs/design/fair-queueing.md`.
//!
//! A retry keeps its place in the order, that is, the start tag of its first dispatch. Each attempt
//! is charged. When no call waits or runs, the busy period of the lane ends. The tags of the next
//! one start at 0 again and are later than all earlier tags, which ends all debts. So tags stay
//! exact however much work a lane has done before.
//!
//! A start tag is determined when a call reaches the head of its tenant's queue, not when it
//! arrives, so that no tenant is charged for a cancelled call. Costs are estimates, which are
//! corrected in `F` once the actual costs are known ([`Account::correct`]). The bound then
//! holds for the corrected costs, plus the error of the estimates in flight.

use std::cmp::Ordering;

/// A point in the virtual time of a lane. Tags of a later busy period are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tag {
    /// The number of busy periods of the lane that ended before.
    period: u64,
    /// The work since the start of the busy period, in cost divided by weight. Never NaN, because
    /// costs and weights are checked before.
    work: f64,
}

impl Tag {
    /// Returns the point of the same busy period that is `work` later.
    fn plus(self, work: f64) -> Self {
        Self { work: self.work + work, ..self }
    }
}

impl Eq for Tag {}

impl PartialOrd for Tag {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Tag {
    fn cmp(&self, other: &Self) -> Ordering {
        self.period.cmp(&other.period).then(self.work.total_cmp(&other.work))
    }
}

/// The virtual time of one lane. See the [module documentation](self).
#[derive(Debug, Default)]
pub struct VirtualTime {
    /// Greatest start tag of the calls that were dispatched in order of their tags.
    started: Tag,
    /// Current virtual time: `started` or later.
    now: Tag,
}

/// The charges of one tenant in one lane.
#[derive(Debug, Default)]
pub struct Account {
    /// Finish tag of the last dispatched call.
    finish: Tag,
    /// Cost charged for the last dispatched call at its dispatch, divided by the weight of the
    /// tenant.
    last: f64,
}

/// The tags that determine how the dispatch of a call is charged and advances the virtual time.
#[derive(Clone, Copy, Debug)]
pub struct DispatchOrder {
    /// Start tag of the call. For a retry, the start tag of the first dispatch.
    pub tag: Tag,
    /// Virtual time at which the tenant began to wait.
    pub since: Tag,
    /// The least start tag of the other waiting tenants, if the call may be dispatched before its
    /// turn: it uses a reserved slot, or its tenant is in debt, so that the call may have overtaken
    /// others that do not fit. `None` if it is dispatched in turn or no other tenant waits.
    pub first: Option<Tag>,
}

impl VirtualTime {
    /// Returns the virtual time to record for a tenant that begins to wait now.
    ///
    /// `share` is the cost of the tenant's first call divided by its weight. `least` is the least
    /// start tag of the tenants that wait already, or `None` if no tenant waits. The result is the
    /// current virtual time, but at most `share` after the later of `least` and the start tag of
    /// the last call dispatched in turn. The bound keeps a single large cost of another call from
    /// delaying the tenant. A `least` far in the past, such as the tag of a retry, does not lower
    /// it.
    pub fn entry(&self, least: Option<Tag>, share: f64) -> Tag {
        least.map_or(self.now, |least| self.now.min(self.started.max(least).plus(share)))
    }

    /// Charges the account `cost / weight` for a dispatched call, and advances virtual time to the
    /// call's start tag.
    ///
    /// Returns `true` if the start tag does not include the earlier work of the tenant: the call is
    /// a retry, or the first one since the tenant began to wait. The caller must then pass the
    /// call's cost to [`VirtualTime::serve`] when it ends.
    ///
    /// A call that is dispatched before its turn does not advance virtual time beyond the least
    /// start tag that waits.
    pub fn dispatch(&mut self, account: &mut Account, order: DispatchOrder, cost: f64, weight: f64) -> bool {
        let start = account.start(order.since);
        let moves_by_work = order.tag < start || account.finish <= order.since;
        self.started = self.started.max(order.first.map_or(order.tag, |first| first.min(order.tag)));
        self.now = self.now.max(self.started);
        account.last = cost / weight;
        account.finish = start.plus(account.last);
        moves_by_work
    }

    /// Advances virtual time by `cost / weights`, the work of a call that has ended. `weights` is
    /// the sum of the weights of the waiting tenants and of the tenant of the call.
    pub fn serve(&mut self, cost: f64, weights: f64) {
        self.now = self.now.plus(cost / weights);
    }

    /// Starts a new busy period, which cancels all debts. Called when no call of the lane waits or
    /// runs.
    pub(crate) fn end_busy_period(&mut self) {
        self.now = Tag { period: self.now.period + 1, work: 0.0 };
        self.started = self.now;
    }

    /// Returns `true` if the tenant is in debt: its finish tag is ahead of the virtual time by more
    /// than the charge of its last dispatched call. This happens if calls cost more than was
    /// charged at their dispatch, or if retries were charged.
    pub(crate) fn is_in_debt(&self, account: &Account) -> bool {
        let is_current = account.finish.period == self.now.period;
        is_current && account.finish.work - self.now.work > account.last * (1.0 + 1e-9)
    }
}

impl Account {
    /// Adds `cost`, which may be negative, to the charges of the tenant, which has this weight.
    pub fn correct(&mut self, cost: f64, weight: f64) {
        self.finish = self.finish.plus(cost / weight);
    }

    /// Returns the start tag of the next call of this tenant. `since` is the virtual time at which
    /// the tenant began to wait.
    pub fn start(&self, since: Tag) -> Tag {
        since.max(self.finish)
    }
}
