//! Start-time fair queueing: which tenant's call is dispatched next within one lane.
//!
//! Each call of a tenant has a start tag `S = max(V, F)`. `F` is the finish tag of the tenant's last
//! call, and `V` is the lane's virtual time when the tenant last began to wait. The call with the
//! least start tag is dispatched first. Dispatching a call sets `F = S + cost / weight` and moves `V` forward to `S`. For two
//! tenants that always have calls waiting, the work received over any interval differs, per weight,
//! by at most one largest cost each (Goyal, Vin, Cheng: Start-time Fair Queueing, 1996). A tenant
//! that was away starts at `V`: being idle has earned it nothing.
//!
//! The first call of a tenant that has just come starts at `V`, so its dispatch does not move `V`;
//! nor does a retry's. A stream of such calls would hold `V` still and starve every tenant with a
//! higher tag. So `V` moves by their work when they end, at the pace at which ideal sharing would
//! serve those who wait: by the final cost, divided by the weights of the waiting tenants and of the
//! call's own (as in WF2Q+: Bennett, Zhang, 1996). See `docs/design/fair-queueing.md`.
//!
//! A retry keeps its order, that is, the start tag of its first dispatch. Each attempt is charged.
//! When nothing waits or runs, `V` moves to the greatest finish tag: debts end with the busy period.
//!
//! Tags are taken when a call comes to the head of its tenant's queue, not when it arrives, so that
//! a cancelled call charges nobody. Costs are estimates, put right in `F` once they are known
//! ([`VirtualTime::correct`]): the bound then holds for what was charged in the end, plus the error
//! of the estimates in flight.

use std::cmp::Ordering;

/// A point in the virtual time of a lane, in cost divided by weight. Never NaN, because costs and
/// weights are checked before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tag(f64);

impl Eq for Tag {}

impl PartialOrd for Tag {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Tag {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The virtual time of one lane. See the [module documentation](self).
#[derive(Debug, Default)]
pub struct VirtualTime {
    /// Greatest start tag of a call that was dispatched in its turn.
    started: Tag,
    /// Current virtual time: `started` or later.
    now: Tag,
    /// Greatest finish tag of any tenant.
    latest: Tag,
}

/// The charges of one tenant in one lane.
#[derive(Debug, Default)]
pub struct Account {
    /// Finish tag of the last dispatched call.
    finish: Tag,
    /// Cost of the last dispatched call, divided by the weight of the tenant.
    last: f64,
}

/// The tags of a call that is dispatched.
#[derive(Clone, Copy, Debug)]
pub struct DispatchOrder {
    /// Start tag of the call. For a retry, the start tag of the first dispatch.
    pub tag: Tag,
    /// Virtual time at which the tenant began to wait.
    pub since: Tag,
    /// The least start tag of the other waiting tenants, if the call is dispatched out of turn (for
    /// a reserved share, or because its tenant is in debt). `None` if it is dispatched in turn or
    /// no other tenant waits.
    pub first: Option<Tag>,
}

impl VirtualTime {
    /// Returns the virtual time at which a tenant begins to wait.
    ///
    /// `share` is the cost of its first call divided by its weight. `least` is the least start tag
    /// of the tenants that wait already, or `None` if no tenant waits. The result is at most
    /// `share` after the later of `least` and the start tag of the last call dispatched in turn, so
    /// that a single large cost of another call does not delay the tenant. Tags of retries may be
    /// far in the past and are not counted.
    pub fn entry(&self, least: Option<Tag>, share: f64) -> Tag {
        least.map_or(self.now, |least| self.now.min(Tag(self.started.max(least).0 + share)))
    }

    /// Charges a dispatched call `cost / weight`, and advances virtual time to its start tag.
    ///
    /// Returns `true` if the start tag does not include the earlier work of the tenant: the call is
    /// a retry, or the first one since the tenant began to wait. The caller must then pass the call
    /// to [`VirtualTime::serve`] when it ends.
    ///
    /// A call that is dispatched out of turn does not advance virtual time beyond the least waiting
    /// tag.
    pub fn dispatch(&mut self, account: &mut Account, order: DispatchOrder, cost: f64, weight: f64) -> bool {
        let start = account.start(order.since);
        let moves_by_work = order.tag < start || account.finish <= order.since;
        self.started = self.started.max(order.first.map_or(order.tag, |first| first.min(order.tag)));
        self.now = self.now.max(self.started);
        account.last = cost / weight;
        account.finish = Tag(start.0 + account.last);
        self.latest = self.latest.max(account.finish);
        moves_by_work
    }

    /// Advances virtual time by the work of a call that has ended. `weights` is the sum of the
    /// weights of the waiting tenants and of the tenant of the call.
    pub fn serve(&mut self, cost: f64, weights: f64) {
        self.now = Tag(self.now.0 + cost / weights);
    }

    /// Adds `cost`, which may be negative, to the charges of a tenant with this weight.
    pub fn correct(&mut self, account: &mut Account, cost: f64, weight: f64) {
        account.finish = Tag(account.finish.0 + cost / weight);
        self.latest = self.latest.max(account.finish);
    }

    /// Advances virtual time to the greatest finish tag, which forgives all debts. Called when no
    /// call of the lane waits or runs.
    pub fn end_busy_period(&mut self) {
        self.now = self.now.max(self.latest);
        self.started = self.now;
    }

    /// Returns `true` if the tenant is in debt: its calls cost more than was charged at dispatch,
    /// or it was charged for retries.
    pub fn is_owed(&self, account: &Account) -> bool {
        account.finish.0 - self.now.0 > account.last * (1.0 + 1e-9)
    }
}

impl Account {
    /// Returns the start tag of the next call of a tenant that began to wait at the virtual time
    /// `since`.
    pub fn start(&self, since: Tag) -> Tag {
        since.max(self.finish)
    }
}
