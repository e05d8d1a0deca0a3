//! Which line goes next: lane first, raised by age; inside a lane, start-time fair queueing.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::ids::TenantId;
use super::tenants::Line;
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
    /// The lane that went last.
    last: usize,
}

impl Lanes {
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.by_age.is_empty())
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
    ///
    /// Age raises a lane, not a call: the highest lane, and each lower one whose oldest call has been raised as high, take turns. So none
    /// of them shuts another out, however deep its backlog is, and inside each lane fair queueing holds whatever the ages are.
    pub(super) fn next(&mut self, now: Instant, aging: Duration) -> Option<(Lane, TenantId)> {
        let top = self.lanes.iter().position(|lane| !lane.by_age.is_empty())?;
        let turns = (1..=self.lanes.len()).map(|step| (self.last + step) % self.lanes.len());
        let (index, tenant) = turns
            .filter_map(|index| {
                let ready = self.lanes.get(index)?;
                let (oldest, _) = ready.by_age.first()?;
                let raised =
                    index.saturating_sub(steps(now.saturating_duration_since(*oldest), aging)) <= top;
                let (_, _, tenant) = ready.by_tag.first().filter(|_| raised)?;
                Some((index, *tenant))
            })
            .next()?;
        self.last = index;
        Some((*Lane::ALL.get(index)?, tenant))
    }
}

/// How many lanes a call of that age has been raised by.
fn steps(age: Duration, aging: Duration) -> usize {
    if aging.is_zero() { 0 } else { (age.as_nanos() / aging.as_nanos()) as usize }
}
