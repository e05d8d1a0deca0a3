//! Which line goes next: lane first, raised by age; inside a lane, start-time fair queueing.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::tenants::{Line, TenantId};
use crate::context::Lane;
use crate::fairness::{Tag, VirtualTime};

/// The lines of one lane that could go now: they have a call waiting, and their tenant has room.
#[derive(Debug, Default)]
struct Ready {
    time: VirtualTime,
    by_tag: BTreeSet<(Tag, Instant, TenantId)>,
    by_age: BTreeSet<(Instant, TenantId)>,
}

#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: [Ready; 3],
    /// Whether the last choice between a raised call and one that belongs there fell on the raised one: they take turns, so that a long
    /// backlog of aged calls cannot shut out the lane that it was raised to.
    raised_last: bool,
}

impl Lanes {
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.by_age.is_empty())
    }

    pub(super) fn time(&self, lane: Lane) -> &VirtualTime {
        &self.lanes[lane as usize].time
    }

    pub(super) fn time_mut(&mut self, lane: Lane) -> &mut VirtualTime {
        &mut self.lanes[lane as usize].time
    }

    /// Puts a line where it belongs now: among the ready ones if it `may` go, by the head's age and tag, or nowhere.
    pub(super) fn place(
        &mut self,
        lane: Lane,
        tenant: TenantId,
        line: &mut Line,
        head: Option<(Instant, Option<Tag>)>,
    ) {
        let ready = &mut self.lanes[lane as usize];
        if let Some((tag, age)) = line.standing.take() {
            ready.by_tag.remove(&(tag, age, tenant));
            ready.by_age.remove(&(age, tenant));
        }
        if let Some((age, charged)) = head {
            let tag = charged.unwrap_or_else(|| ready.time.start(&line.account));
            ready.by_tag.insert((tag, age, tenant));
            ready.by_age.insert((age, tenant));
            line.standing = Some((tag, age));
        }
    }

    /// The next line, with its lane. Does not take it out.
    pub(super) fn next(&mut self, now: Instant, aging: Duration) -> Option<(Lane, TenantId)> {
        let own = Lane::ALL.into_iter().find_map(|lane| {
            let (_, _, tenant) = self.lanes[lane as usize].by_tag.first()?;
            Some((lane, *tenant))
        });
        // The oldest call of each lower lane, at the level to which its age has raised it.
        let raised = Lane::ALL.into_iter().skip(1).filter_map(|lane| {
            let (age, tenant) = self.lanes[lane as usize].by_age.first()?;
            let steps = steps(now.saturating_duration_since(*age), aging);
            (steps > 0).then(|| ((lane as usize).saturating_sub(steps), *age, lane, *tenant))
        });
        let (own_lane, own_tenant) = own?;
        match raised.min() {
            Some((level, _, lane, tenant)) if level < own_lane as usize => Some((lane, tenant)),
            Some((level, _, lane, tenant)) if level == own_lane as usize && lane != own_lane => {
                self.raised_last = !self.raised_last;
                Some(if self.raised_last { (lane, tenant) } else { (own_lane, own_tenant) })
            }
            _ => Some((own_lane, own_tenant)),
        }
    }
}

fn steps(age: Duration, aging: Duration) -> usize {
    if aging.is_zero() { 0 } else { (age.as_nanos() / aging.as_nanos()) as usize }
}
