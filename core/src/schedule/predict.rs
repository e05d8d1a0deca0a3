//! How long a call would wait, and whether that is longer than it can.
//!
//! A guess from the work ahead, the pace at which slots come free while they are short, and the
//! rates of the budgets, on the optimistic side: calls
//! of higher lanes that come later are not in it, and of chance's spread one standard deviation is taken in the call's favour. It is not
//! made before enough slots came free to know their pace.

use std::time::{Duration, Instant};

use super::claim::Claim;
use super::ids::TenantId;
use super::{Scheduler, Ticket};
use crate::config::Predict;
use crate::context::Lane;

impl<W> Scheduler<W> {
    /// How long a call waits while the target is open that has so many of its own line ahead; `None`: not enough was seen to tell.
    pub(super) fn predicted(
        &mut self,
        now: Instant,
        id: TenantId,
        lane: Lane,
        own_ahead: usize,
        claim: &Claim,
    ) -> Option<Duration> {
        let tenant = self.tenants.get(id)?;
        let ahead = self.load.ahead(lane, own_ahead, tenant.weight);
        let slots = self.lack().and_then(|_| self.pace().until(ahead + 1));
        let own = tenant.own.as_ref().map(|own| {
            let all = u64::from(claim.own).saturating_mul(own_ahead as u64 + 1);
            if own_ahead == 0 {
                own.ready_at(now, claim.own).saturating_duration_since(now)
            } else {
                own.time_for(now, all)
            }
        });
        let budgets = self.stock.is_bounded().then(|| {
            // Not before a budget has room for it at all: a day that is used up, or what is owed.
            let ready = self.stock.lacks(now, &claim.need).and_then(|(_, at)| at);
            let alone = ready.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
            if ahead == 0 {
                alone
            } else {
                let all =
                    self.stock.time_for(ahead, &self.load.mean(lane)) + self.stock.time_for(1, &claim.need);
                all.max(alone)
            }
        });
        [slots, own, budgets].into_iter().flatten().max()
    }

    /// Where a new call would wait longer than it can: how long it would, and how much too long that is.
    pub(super) fn too_late(
        &mut self,
        now: Instant,
        id: TenantId,
        ticket: &Ticket,
        claim: &Claim,
    ) -> Option<(Duration, Duration)> {
        let predict = self.settings.predict;
        // How fast a target comes back from a cool-down or an outage, nobody knows.
        if predict == Predict::Off || !self.is_open() {
            return None;
        }
        let own_ahead = self.tenants.get(id)?.lines[ticket.lane as usize].calls.len();
        let open = self.predicted(now, id, ticket.lane, own_ahead, claim)?;
        let closed =
            self.cooldown.until().map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        let all = open.saturating_add(closed);
        let objective = self.settings.lanes[ticket.lane as usize].ttft;
        let limits = [
            // The deadline never stops; the wait budget does, while the target is closed.
            Some((all, ticket.deadline.saturating_duration_since(now))),
            ticket.wait.map(|wait| (open, wait)),
            objective.filter(|_| predict == Predict::Objective).map(|objective| {
                (all, objective.saturating_sub(now.saturating_duration_since(ticket.queued_at)))
            }),
        ];
        let over = limits.into_iter().flatten().map(|(wait, most)| wait.saturating_sub(most)).max()?;
        (!over.is_zero()).then_some((all, over))
    }
}
