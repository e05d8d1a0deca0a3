//! The lines that could go: which lane is next, by priority and age; inside a lane, by start-time fair queueing.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::claim::Claim;
use super::ids::{TenantId, WaiterId};
use super::ranked::Ranked;
use super::rooms::Rooms;
use super::tardy::Tardy;
use super::tenants::Line;
use crate::context::Lane;
use crate::fairness::{Tag, VirtualTime};

/// Where a line stands in its lane: by its start tag, and of equal ones by the age of its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Spot {
    tag: Tag,
    age: Instant,
    pub(super) tenant: TenantId,
}

/// Where a line stands, and the virtual time when it came to stand: as long as it does not leave, it keeps what it had earned then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) spot: Spot,
    pub(super) since: Tag,
    pub(super) head: Head,
}

/// What a lane has to know of a line's head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) call: WaiterId,
    /// What it takes.
    pub(super) claim: Claim,
    /// When it was queued.
    pub(super) age: Instant,
    /// Of a retry, the tag of its first dispatch.
    pub(super) charged: Option<Tag>,
    /// The least that a call of the line takes.
    pub(super) least: Claim,
}

/// The lines of one lane that have a call waiting, and whose tenant is not held back by its own cap or tokens.
#[derive(Debug, Default)]
struct Ready {
    time: VirtualTime,
    by_tag: Ranked<Spot>,
    ages: Tardy<Instant>,
}

impl Ready {
    /// When the oldest head was queued.
    fn oldest(&mut self) -> Option<Instant> {
        Some(self.ages.order().first()?.0)
    }
}

#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: [Ready; 3],
    /// The lane that went last.
    last: usize,
    /// Lines whose tenant has used up its own tokens, and until when.
    parked: BTreeSet<(Instant, Lane, TenantId)>,
}

impl Lanes {
    /// Whether no line stands: parked ones do not.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.by_tag.is_empty())
    }

    pub(super) fn time(&self, lane: Lane) -> &VirtualTime {
        &self.lanes[lane as usize].time
    }

    pub(super) fn time_mut(&mut self, lane: Lane) -> &mut VirtualTime {
        &mut self.lanes[lane as usize].time
    }

    /// Puts a line where it belongs now: among those that stand, or nowhere.
    pub(super) fn place(&mut self, lane: Lane, tenant: TenantId, line: &mut Line, head: Option<Head>) {
        let Some(head) = head else { return self.leave(lane, tenant, line) };
        let ready = &mut self.lanes[lane as usize];
        let before = line.standing;
        let since = before.map_or(ready.time.now(), |standing| standing.since);
        let tag = head.charged.unwrap_or_else(|| line.account.start(since));
        let spot = Spot { tag, age: head.age, tenant };
        line.standing = Some(Standing { spot, since, head });
        match before {
            // It stands where it stood: what was found out about it since holds.
            Some(Standing { spot: old, head: was, .. }) if old == spot && was.call == head.call => {
                if was.least != head.least {
                    self.set(lane, &spot, head.least);
                }
                return;
            }
            Some(Standing { spot: old, .. }) => {
                ready.by_tag.remove(&old);
            }
            None => self.unpark(lane, tenant, line),
        }
        let ready = &mut self.lanes[lane as usize];
        ready.by_tag.insert(spot, Claim { own: 0, ..head.least });
        ready.ages.set(tenant, Some(head.age));
    }

    /// Takes a line out until its tenant has tokens of its own again. It earns nothing meanwhile.
    pub(super) fn park(&mut self, lane: Lane, tenant: TenantId, line: &mut Line, until: Instant) {
        self.leave(lane, tenant, line);
        self.parked.insert((until, lane, tenant));
        line.parked = Some(until);
    }

    fn leave(&mut self, lane: Lane, tenant: TenantId, line: &mut Line) {
        self.unpark(lane, tenant, line);
        if let Some(standing) = line.standing.take() {
            let ready = &mut self.lanes[lane as usize];
            ready.by_tag.remove(&standing.spot);
            ready.ages.set(tenant, None);
        }
    }

    fn unpark(&mut self, lane: Lane, tenant: TenantId, line: &mut Line) {
        if let Some(until) = line.parked.take() {
            self.parked.remove(&(until, lane, tenant));
        }
    }

    /// A line that is parked until then or earlier.
    pub(super) fn due(&self, now: Instant) -> Option<(Lane, TenantId)> {
        let (_, lane, tenant) = self.parked.first().copied().filter(|(until, ..)| *until <= now)?;
        Some((lane, tenant))
    }

    /// Every parked line, the first to come back first.
    pub(super) fn parked(&self) -> impl Iterator<Item = (Instant, Lane, TenantId)> {
        self.parked.iter().copied()
    }

    /// The lanes that have lines, the next to go first.
    ///
    /// Age raises a lane, not a call: the highest lane, and each lower one whose oldest call has been raised as high, take turns. So none
    /// of them shuts another out, however deep its backlog is, and inside each lane fair queueing holds whatever the ages are.
    pub(super) fn order(&mut self, now: Instant, aging: Duration) -> impl Iterator<Item = Lane> + use<> {
        let mut order = [None; 6];
        if let Some(top) = self.top() {
            for step in 1..=3 {
                let index = (self.last + step) % 3;
                let lane = &mut self.lanes[index];
                if lane.by_tag.is_empty() {
                    continue;
                }
                // How old the highest lane is makes no difference.
                let raised = index == top
                    || lane.oldest().is_some_and(|oldest| {
                        let age = now.saturating_duration_since(oldest);
                        index.saturating_sub(steps(age, aging)) <= top
                    });
                order[if raised { step - 1 } else { 3 + index }] = Some(Lane::ALL[index]);
            }
        }
        order.into_iter().flatten()
    }

    fn top(&self) -> Option<usize> {
        self.lanes.iter().position(|lane| !lane.by_tag.is_empty())
    }

    /// When the next lane will have been raised to the highest: from then on others may be first.
    pub(super) fn next_raise(&mut self, now: Instant, aging: Duration) -> Option<Instant> {
        let top = self.top()?;
        let raises =
            self.lanes.iter_mut().enumerate().skip(top + 1).filter_map(|(index, lane)| {
                lane.oldest()?.checked_add(aging.checked_mul((index - top) as u32)?)
            });
        raises.filter(|at| *at > now && !aging.is_zero()).min()
    }

    /// That lane has had its turn.
    pub(super) fn went(&mut self, lane: Lane) {
        self.last = lane as usize;
    }

    /// The tenant whose line is first in a lane.
    pub(super) fn first(&self, lane: Lane) -> Option<TenantId> {
        Some(self.lanes[lane as usize].by_tag.first()?.0.tenant)
    }

    /// The tag of the first line of a lane but that tenant's.
    pub(super) fn first_tag_but(&self, lane: Lane, tenant: TenantId) -> Option<Tag> {
        let by_tag = &self.lanes[lane as usize].by_tag;
        let first = (0..2).filter_map(|at| by_tag.nth(at)).find(|spot| spot.tenant != tenant)?;
        Some(first.tag)
    }

    /// The first line behind `after` with a call that may fit.
    pub(super) fn next_fit(&self, lane: Lane, after: Option<&Spot>, rooms: &Rooms) -> Option<Spot> {
        self.lanes[lane as usize].by_tag.next_fit(after, rooms, u32::MAX)
    }

    /// The least that a call of a line takes turned out to be more: only its head may go.
    pub(super) fn set(&mut self, lane: Lane, spot: &Spot, least: Claim) {
        self.lanes[lane as usize].by_tag.set(spot, Claim { own: 0, ..least });
    }

    /// See [`Ranked::soonest`].
    pub(super) fn soonest(
        &self,
        lane: Lane,
        best: Option<Instant>,
        bound: &mut dyn FnMut(&Claim) -> Option<Instant>,
        of: &mut dyn FnMut(TenantId) -> Option<Instant>,
    ) -> Option<Instant> {
        self.lanes[lane as usize].by_tag.soonest(best, bound, &mut |spot, _| of(spot.tenant))
    }
}

/// How many lanes a call of that age has been raised by.
fn steps(age: Duration, aging: Duration) -> usize {
    if aging.is_zero() { 0 } else { (age.as_nanos() / aging.as_nanos()) as usize }
}
