//! Tests of the scheduler. Each test is the driver: it supplies all events and times. An oracle
//! checks the results for random events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use crate::Lane;
use tidegate_config::{OnFull, Predict, TenantConfig};

mod ageing;
mod costs;
mod fairness;
mod fit_set;
mod limits;
mod oracle;
mod outages;
mod predicted_waits;
mod rules;
mod shared_adaptive;
mod shares;
mod sizes;
mod tenant_shares;
mod ttft_wait_budget;
mod unconfigured_tenants;

/// Returns settings with `limit` slots and no other limit: no configured tenants, queues for a
/// million calls, no ageing between lanes, and no refusals because of predicted waits.
pub(super) fn settings(limit: usize) -> SchedulerSettings {
    SchedulerSettings {
        queue: 1_000_000,
        backlog: 1_000_000,
        aging: Duration::ZERO,
        predict: Predict::Off,
        ..SchedulerSettings::limited(limit)
    }
}

fn named(settings: &mut SchedulerSettings, name: &str, weight: f64, cap: Option<usize>) {
    settings.tenants.insert(name.into(), TenantConfig { weight, cap, ..TenantConfig::default() });
}

pub(super) fn ticket(tenant: &str, lane: Lane, now: Instant) -> Ticket {
    Ticket { lane, ..Ticket::new(Arc::from(tenant), now, now + Duration::from_secs(3600)) }
}

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Queues a call and returns its ID. Panics if the scheduler admits or refuses the call.
pub(super) fn queue<W>(scheduler: &mut Scheduler<W>, now: Instant, ticket: Ticket, who: W) -> WaiterId {
    assert!(matches!(scheduler.try_admit(now, &ticket), Ok(None)), "it was to wait");
    scheduler.enqueue(now, ticket, who)
}

/// Admits a call and returns its slot. Panics if the call is refused or has to wait.
pub(super) fn admit<W>(scheduler: &mut Scheduler<W>, now: Instant, ticket: &Ticket) -> Box<Grant> {
    scheduler.try_admit(now, ticket).expect("not refused").expect("not queued")
}
