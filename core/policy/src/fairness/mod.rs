//! Start-time fair queueing: which tenant's call goes next inside one lane.
//!
//! Each call of a tenant has a start tag `S = max(V, F)`. `F` is the finish tag of the tenant's last
//! call, and `V` is the lane's virtual time when the tenant last came to wait. The least start tag
//! goes first. Dispatching a call sets `F = S + cost / weight` and moves `V` forward to `S`. For two
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
//! A retry keeps its place, that is, the start tag of its first dispatch. Each attempt is charged.
//! When nothing waits or runs, `V` moves to the greatest finish tag: debts end with the busy period.
//!
//! Tags are taken when a call comes to the head of its tenant's queue, not when it arrives, so that
//! a cancelled call charges nobody. Costs are estimates, put right in `F` once they are known
//! ([`VirtualTime::correct`]): the bound then holds for what was charged in the end, plus the error
//! of the estimates in flight.

use std::cmp::Ordering;

/// A point in a lane's virtual time. Totally ordered and never NaN, because costs and weights are
/// checked on entry.
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

/// The virtual time of one lane.
#[derive(Debug, Default)]
pub struct VirtualTime {
    /// Greatest start tag of a call that was dispatched in its turn.
    started: Tag,
    /// Current virtual time: `started`, or later by the work of retries and of newly arrived
    /// tenants.
    now: Tag,
    /// Greatest finish tag of any account.
    latest: Tag,
}

/// The account of one tenant in one lane.
#[derive(Debug, Default)]
pub struct Account {
    finish: Tag,
    /// Charge of its last call, divided by its weight.
    last: f64,
}

/// The position of a dispatched call in the fair order.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Start tag that the call was ordered by. A retry keeps the tag of its first dispatch.
    pub tag: Tag,
    /// Virtual time when its tenant began to wait.
    pub since: Tag,
    /// For a call that is dispatched out of turn (a reserved share, or a tenant in debt): the least
    /// other tag.
    pub first: Option<Tag>,
}

impl VirtualTime {
    /// Returns the virtual time from which a tenant is served that comes to wait with a call of
    /// `cost / weight = share`; `least` is the least tag of those that wait already.
    ///
    /// The tenant stands behind at most one such call of each of them, whatever a single large cost
    /// has added to virtual time. A retry's tag may be far in the past, and does not count.
    pub fn entry(&self, least: Option<Tag>, share: f64) -> Tag {
        least.map_or(self.now, |least| self.now.min(Tag(self.started.max(least).0 + share)))
    }

    /// Charges a dispatched call `cost / weight`. Returns `true` if its start tag does not include
    /// its tenant's earlier work, so that its own work has to move virtual time
    /// ([`VirtualTime::serve`]): a retry, or the first call of a tenant that has just arrived.
    ///
    /// Virtual time never goes back. A call that is dispatched out of turn does not move it past
    /// the least waiting tag, so that a new tenant does not wait for another tenant's share or
    /// debt.
    pub fn dispatch(&mut self, account: &mut Account, place: Place, cost: f64, weight: f64) -> bool {
        let start = account.start(place.since);
        let moves_by_work = place.tag < start || account.finish <= place.since;
        self.started = self.started.max(place.first.map_or(place.tag, |first| first.min(place.tag)));
        self.now = self.now.max(self.started);
        account.last = cost / weight;
        account.finish = Tag(start.0 + account.last);
        self.latest = self.latest.max(account.finish);
        moves_by_work
    }

    /// Moves virtual time by the work of a call that has ended; `weights` is the sum of the waiting
    /// tenants' weights and its own.
    pub fn serve(&mut self, cost: f64, weights: f64) {
        self.now = Tag(self.now.0 + cost / weights);
    }

    /// Adds `cost` to a charged call, or subtracts it if `cost` is negative.
    pub fn correct(&mut self, account: &mut Account, cost: f64, weight: f64) {
        account.finish = Tag(account.finish.0 + cost / weight);
        self.latest = self.latest.max(account.finish);
    }

    /// Forgives all debts, because no call of the lane waits or runs.
    pub fn end_busy_period(&mut self) {
        self.now = self.now.max(self.latest);
        self.started = self.now;
    }

    /// Returns `true` if the account owes more than the charge of its last call: what its calls took
    /// beyond the estimates, or what its retries took.
    pub fn is_owed(&self, account: &Account) -> bool {
        account.finish.0 - self.now.0 > account.last * (1.0 + 1e-9)
    }
}

impl Account {
    /// Returns the start tag of the tenant's next call, if the tenant came to wait at that virtual
    /// time.
    pub fn start(&self, since: Tag) -> Tag {
        since.max(self.finish)
    }
}
