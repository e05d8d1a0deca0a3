//! Tests of tenants that are not configured: they are added with their first call, and removed when
//! they are idle.

use super::*;
use crate::testing::epoch;

fn name(k: usize) -> Arc<str> {
    format!("tenant-{k}").into()
}

/// Returns the size of the table of tenants, which determines its memory and the cost of adding a
/// tenant.
fn table(scheduler: &Scheduler<usize>) -> usize {
    scheduler.queue.tenants.table_size
}

#[test]
fn million_unconfigured_tenants_fit_a_small_table() {
    let now = epoch();
    let mut scheduler = Scheduler::new(&settings(4), now);
    let mut call = ticket("", Lane::Standard, now);
    for k in 0..1_000_000 {
        call.tenant = name(k);
        let grant = admit(&mut scheduler, now, &call);
        scheduler.release(now, grant);
    }
    assert!(table(&scheduler) <= 1100, "{}", table(&scheduler));
}

/// Unconfigured tenants are removed under overload, too, although virtual time does not advance
/// while all calls are of new tenants.
#[test]
fn queued_unconfigured_tenants_are_forgotten() {
    let now = epoch();
    let mut scheduler = Scheduler::new(&settings(1), now);
    let mut held = Some(admit(&mut scheduler, now, &ticket("first", Lane::Standard, now)));
    for k in 0..50_000 {
        let now = now + Duration::from_micros(k as u64);
        queue(&mut scheduler, now, ticket(&name(k), Lane::Standard, now), k);
        if k >= 100 {
            scheduler.release(now, held.take().expect("a slot"));
            let (who, grant) = scheduler.next(now).expect("one waits");
            assert_eq!(who, k - 100, "of equal tags the oldest");
            held = Some(grant);
        }
    }
    assert!(table(&scheduler) <= 1600, "{}", table(&scheduler));
}

#[test]
fn tenants_with_calls_are_not_forgotten() {
    let now = epoch();
    let mut configured = settings(2);
    named(&mut configured, "named", 2.0, Some(1));
    let mut scheduler = Scheduler::new(&configured, now);
    let runs = admit(&mut scheduler, now, &ticket("runs", Lane::Batch, now));
    let held = admit(&mut scheduler, now, &ticket("named", Lane::Batch, now));
    queue(&mut scheduler, now, ticket("waits", Lane::Batch, now), 7);
    for k in 0..10_000 {
        let id = queue(&mut scheduler, now, ticket(&name(k), Lane::Batch, now), k);
        assert!(scheduler.withdraw(id));
    }
    let of = |scheduler: &Scheduler<usize>, name: &str| {
        let tenant = scheduler.view(now).tenants.into_iter().find(|t| &*t.name == name);
        tenant.map(|t| (t.in_flight, t.waiting))
    };
    assert_eq!(of(&scheduler, "runs"), Some((1, 0)));
    assert_eq!(of(&scheduler, "waits"), Some((0, 1)));
    scheduler.release(now, runs);
    let (who, grant) = scheduler.next(now).expect("the one that waits");
    assert_eq!(who, 7);
    assert_eq!(of(&scheduler, "waits"), Some((1, 0)));
    scheduler.release(now, grant);
    scheduler.release(now, held);
    assert_eq!(scheduler.view(now).in_flight, 0);
    assert!(of(&scheduler, "named").is_some(), "the configured stay");
}

/// After 20,000 tenants had waiting calls at the same time, idle tenants take at most about a
/// quarter of the table.
#[test]
fn many_idle_tenants_are_forgotten() {
    let now = epoch();
    let mut scheduler = Scheduler::new(&settings(0), now);
    let crowd: Vec<_> =
        (0..20_000).map(|k| queue(&mut scheduler, now, ticket(&name(k), Lane::Standard, now), k)).collect();
    assert!(crowd.into_iter().all(|id| scheduler.withdraw(id)));
    for k in 20_000..40_000 {
        let id = queue(&mut scheduler, now, ticket(&name(k), Lane::Standard, now), k);
        scheduler.withdraw(id);
    }
    assert!(scheduler.view(now).tenants.len() <= 5_100);
    assert!(table(&scheduler) <= 20_002, "and their places are used again");
}

/// A tenant is removed after its only waiting call, which waited for the tenant's own tokens, was
/// withdrawn. When the tokens are there again, other calls are admitted as usual.
#[test]
fn tenant_whose_parked_call_was_withdrawn_is_forgotten() {
    let now = epoch();
    let mut configured = settings(8);
    configured.default_tenant.tpm = Some(6_000);
    let mut scheduler = Scheduler::new(&configured, now);
    let visit = |scheduler: &mut Scheduler<usize>, tenant: &Arc<str>, input: u64, now: Instant| {
        let mut call = Ticket { tenant: tenant.clone(), ..ticket("", Lane::Standard, now) };
        call.demand.input = input;
        let mut grant = admit(scheduler, now, &call);
        grant.sent = true;
        scheduler.release(now, grant);
    };
    (0..1024).for_each(|k| visit(&mut scheduler, &name(k), 10, now));
    visit(&mut scheduler, &"parked".into(), 400, now);
    let mut call = ticket("parked", Lane::Standard, now);
    call.demand.input = 500;
    let id = queue(&mut scheduler, now, call, 0);
    assert!(scheduler.next(now).is_none());
    assert_eq!(scheduler.queue.lanes.parked.len(), 1, "the call waits for tokens");
    assert!(scheduler.withdraw(id));
    assert!(scheduler.queue.lanes.parked.is_empty());
    (1024..3024).for_each(|k| visit(&mut scheduler, &name(k), 10, now));
    assert!(scheduler.view(now).tenants.iter().all(|tenant| &*tenant.name != "parked"));
    visit(&mut scheduler, &"later".into(), 10, now + Duration::from_secs(60));
}

/// Tenants that have overdrawn their own tokens are kept until they have paid, and the table stays
/// small.
#[test]
fn tenants_in_debt_are_kept_until_they_have_paid() {
    let now = epoch();
    let mut configured = settings(4);
    configured.default_tenant.tpm = Some(60_000);
    let mut scheduler = Scheduler::new(&configured, now);
    let mut call = ticket("", Lane::Standard, now);
    // A bucket holds 6,000 tokens. After this call, its tenant owes 4,000, which take four seconds.
    call.demand.input = 10_000;
    let mut most = 0;
    for k in 0..1_000_000u64 {
        let now = now + Duration::from_micros(k * 500);
        call.tenant = name(k as usize);
        call.deadline = now + ms(1000);
        let mut grant = admit(&mut scheduler, now, &call);
        grant.sent = true;
        scheduler.release(now, grant);
        most = most.max(table(&scheduler));
        if k % 100_000 == 99_999 {
            let view = scheduler.view(now);
            let debt = |name: &str| view.tenants.iter().find(|t| &*t.name == name).map(|t| t.debt);
            assert!(
                debt(&name(k as usize - 5_000)).is_some_and(|debt| debt > 1_000),
                "not forgiven by others' coming"
            );
        }
    }
    // 2,000 per second for four seconds, and a few that were not checked yet.
    assert!(most <= 14_000, "{most}");
}
