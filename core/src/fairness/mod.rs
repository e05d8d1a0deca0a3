//! Start-time fair queueing: which tenant's call goes next inside one lane.
//!
//! Each tenant's next call carries a start tag `S = max(V, F)`, where `F` is the finish tag of its last one and `V` the lane's virtual time when
//! the tenant last came to wait; dispatching it sets `F = S + cost / weight` and `V = S`. The least start tag goes first. For two tenants
//! that always have calls waiting, the work received over any interval differs, per weight, by at most one largest cost each (Goyal, Vin, Cheng:
//! Start-time Fair Queueing, 1996). A tenant that was away starts at `V`: it has earned nothing by being idle.
//!
//! Tags are taken when a call comes to the head of its tenant's queue, not when it arrives, so that a cancelled call charges nobody. Costs are
//! guesses, put right in `F` once they are known ([`Account::correct`]): the bound then holds for what was charged in the end, plus what the
//! guesses in flight are off by.

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

/// One lane's virtual time.
#[derive(Debug, Default)]
pub struct VirtualTime(Tag);

/// One tenant's account in one lane.
#[derive(Debug, Default)]
pub struct Account {
    finish: Tag,
    /// What its last call was charged, by its weight.
    last: f64,
}

impl VirtualTime {
    /// The start tag of the call that was dispatched last.
    pub fn now(&self) -> Tag {
        self.0
    }

    /// A call of that start tag is dispatched: charges `cost / weight`. One that overtook others does not take virtual time back. One that went out
    /// of turn, by a right of its own, does not take it past `first`, the tag that was to go: who comes next is not to wait behind that right.
    pub fn dispatch(
        &mut self,
        account: &mut Account,
        start: Tag,
        first: Option<Tag>,
        cost: f64,
        weight: f64,
    ) {
        self.0 = self.0.max(first.map_or(start, |first| first.min(start)));
        account.last = cost / weight;
        account.finish = Tag(start.0 + account.last);
    }

    /// Whether forgetting the account forgives more than the charge of its last call: it owes what its calls took beyond what was guessed.
    pub fn is_owed(&self, account: &Account) -> bool {
        account.finish.0 - self.0.0 > account.last * (1.0 + 1e-9)
    }
}

impl Account {
    /// The start tag of the tenant's next call, if the tenant came to wait at that virtual time.
    pub fn start(&self, since: Tag) -> Tag {
        since.max(self.finish)
    }

    /// A call that was charged turned out to cost so much more, or less where it is negative.
    pub fn correct(&mut self, cost: f64, weight: f64) {
        self.finish = Tag(self.finish.0 + cost / weight);
    }
}
