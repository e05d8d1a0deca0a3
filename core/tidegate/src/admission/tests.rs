//! Tests of the admission driver with tokio tasks under the paused clock. At the end of most tests,
//! no slot is held and no call waits ([`assert_settled`]).

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::*;
use crate::config::RateConfig;
use crate::context::Lane;
use crate::error::{Error, ErrorKind, Reason};
use crate::schedule::{SchedulerSettings, Ticket};

mod cancel;
mod pools;
mod runtimes;
mod timing;

fn settings(limit: usize) -> SchedulerSettings {
    SchedulerSettings { queue: 100_000, ..SchedulerSettings::limited(limit) }
}

fn admission(limit: usize) -> Arc<Admission> {
    with_settings(&settings(limit))
}

fn with_settings(settings: &SchedulerSettings) -> Arc<Admission> {
    Admission::new("target".into(), settings, BudgetSet::new(&RateConfig::default(), now()), None, "")
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn ticket() -> Ticket {
    Ticket::new("a".into(), now(), now() + Duration::from_secs(600))
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Polls the future exactly once. Dropping the future afterwards simulates a task that is cancelled
/// before it is woken.
fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn reason(result: Result<Permit, Error>) -> Reason {
    match result.expect_err("refused").kind() {
        ErrorKind::Refused(reason) => reason,
        other => panic!("{other:?}"),
    }
}

/// Asserts that no slot is held, no call waits, and every slot can be acquired again.
async fn assert_settled(admission: &Arc<Admission>, limit: usize) {
    let view = admission.view();
    assert_eq!((view.in_flight, view.waiting), (0, 0));
    assert!(view.tenants.iter().all(|tenant| tenant.in_flight == 0 && tenant.waiting == 0));
    assert!(view.peak <= limit, "{} at once", view.peak);
    let mut all = Vec::new();
    for _ in 0..limit {
        let mut permit = admission.acquire(ticket()).await.expect("a slot");
        permit.on_success();
        all.push(permit);
    }
    assert_eq!(admission.view().in_flight, limit);
}
