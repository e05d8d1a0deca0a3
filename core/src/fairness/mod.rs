//! Start-time fair queueing: which tenant's call goes next inside one lane.
//!
//! Each tenant's next call carries a start tag `S = max(V, F)`, where `F` is the finish tag of its last one; dispatching it sets
//! `F = S + cost / weight` and the lane's virtual time `V = S`. The least start tag goes first. For two tenants that always have calls waiting,
//! the work received over any interval differs, per weight, by at most one largest cost each (Goyal, Vin, Cheng: Start-time Fair Queueing,
//! 1996). A tenant that was away starts at `V`: it has earned nothing by being idle.
//!
//! Tags are taken when a call comes to the head of its tenant's queue, not when it arrives, so that a cancelled call charges nobody.

use std::cmp::Ordering;

/// A point on a lane's virtual time. Totally ordered; never NaN, since costs and weights are checked where they enter.
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

impl Account {
    /// A call that was charged turned out to cost so much more, or less where it is negative.
    pub fn correct(&mut self, cost: f64, weight: f64) {
        self.finish = Tag(self.finish.0 + cost / weight);
    }
}

/// One lane's virtual time.
#[derive(Debug, Default)]
pub struct VirtualTime(Tag);

/// One tenant's account in one lane.
#[derive(Debug, Default)]
pub struct Account {
    finish: Tag,
}

impl VirtualTime {
    /// The start tag of a tenant's next call.
    pub fn start(&self, account: &Account) -> Tag {
        self.0.max(account.finish)
    }

    /// A call of that start tag is dispatched: charges `cost / weight`.
    pub fn dispatch(&mut self, account: &mut Account, start: Tag, cost: f64, weight: f64) {
        self.0 = self.0.max(start);
        account.finish = Tag(start.0 + cost / weight);
    }
}
