//! Why a call waits.

use std::time::{Duration, Instant};

use super::{Scheduler, WaiterId};

/// What stands in a waiting call's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Why {
    /// The rule.
    pub rule: Rule,
    /// For how long it has.
    pub since: Duration,
    /// For how long the call has waited in all.
    pub waited: Duration,
    /// How many calls go first.
    pub ahead: usize,
    /// In how long its turn is expected, where enough was seen.
    pub expected: Option<Duration>,
}

/// A rule that may stand in a call's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Rule {
    Slots,
    TenantCap,
    CoolDown,
    Outage,
    Turn,
}

impl Rule {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Rule::Slots => "slots",
            Rule::TenantCap => "tenant_cap",
            Rule::CoolDown => "cool_down",
            Rule::Outage => "outage",
            Rule::Turn => "turn",
        }
    }

    /// A sentence for people.
    pub fn sentence(self) -> &'static str {
        match self {
            Rule::Slots => "every slot is taken",
            Rule::TenantCap => "its tenant holds as many slots as it may",
            Rule::CoolDown => "the provider asked everybody to stay away",
            Rule::Outage => "the target is down",
            Rule::Turn => "others go first",
        }
    }
}

impl<W> Scheduler<W> {
    /// Why a call waits now; `None`: it does not.
    pub fn explain(&self, now: Instant, id: WaiterId) -> Option<Why> {
        let waiter = self.waiters.get(id)?;
        let waited = now.saturating_duration_since(waiter.ticket.queued_at);
        let tenant = self.tenants.get(waiter.tenant)?;
        let line = &tenant.lines[waiter.ticket.lane as usize].calls;
        let ahead = line.range(..(waiter.ticket.queued_at, id)).take(super::COUNTED).count();
        let rule = if self.cooldown.until().is_some_and(|until| until > now) {
            if self.cooldown.is_down() { Rule::Outage } else { Rule::CoolDown }
        } else if tenant.in_flight >= tenant.cap {
            Rule::TenantCap
        } else if self.in_flight >= self.limit {
            Rule::Slots
        } else {
            Rule::Turn
        };
        Some(Why { rule, since: waited, waited, ahead, expected: Some(self.pace.expected(ahead + 1)) })
    }
}
