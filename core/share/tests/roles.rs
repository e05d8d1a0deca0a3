//! Which role a lease reports to the next broker, and to the one that divides another resource.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use std::time::Instant;

use tidegate_share::{Appointment, Lease, LeaseTimes, LeaseUpdate, LimitRole, SlotUse};

const IDLE: SlotUse = SlotUse { in_flight: 0, waiting: 0, weight: 1.0 };

fn appointed(role: LimitRole) -> LeaseUpdate {
    let appointment = Some(Appointment { role, term: 1 });
    LeaseUpdate { cap: 8, members: 2, appointment, ..LeaseUpdate::default() }
}

#[test]
fn role_is_claimed_until_a_broker_has_answered() {
    let now = Instant::now();
    let mut lease = Lease::new(8, false, LeaseTimes::REMOTE);
    lease.set_adaptive(8);
    assert_eq!(lease.join(now, &IDLE).role, None);
    lease.on_update(now, appointed(LimitRole::Leader));
    // The first attempts to join again fail.
    for _ in 0..3 {
        lease.on_lost(now);
        assert_eq!(lease.join(now, &IDLE).role, Some(LimitRole::Leader));
    }
    lease.on_update(now, appointed(LimitRole::Follower));
    lease.on_lost(now);
    assert_eq!(lease.join(now, &IDLE).role, Some(LimitRole::Follower));
}

#[test]
fn role_that_another_lease_decides_is_told_after_each_join() {
    let now = Instant::now();
    let mut lease = Lease::new(8, false, LeaseTimes::REMOTE);
    lease.join(now, &IDLE);
    lease.set_role(LimitRole::Leader);
    assert_eq!(lease.report(now, &IDLE).and_then(|report| report.role), Some(LimitRole::Leader));
    assert_eq!(lease.report(now, &IDLE), None, "once");
    lease.on_update(now, appointed(LimitRole::Leader));
    lease.on_lost(now);
    lease.join(now, &IDLE);
    assert_eq!(lease.report(now, &IDLE).and_then(|report| report.role), Some(LimitRole::Leader));
}
