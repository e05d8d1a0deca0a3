//! Tests of outages that are caused by calls that always fail, while all other calls would be
//! accepted.

use super::*;
use crate::cooldown::{CooldownState, Failure};
use crate::testing::epoch;

/// The maximum number of attempts of a call.
const ATTEMPTS: u32 = 4;

/// A simulated target that fails some calls and accepts all others. Times are in milliseconds.
#[derive(Clone, Copy)]
struct FailingTarget {
    failing: u64,
    /// Whether the failing calls belong to the same tenant as the others.
    shares_tenant: bool,
    fails_after: u64,
    accepts_after: u64,
    aging: u64,
    slots: usize,
}

/// A target with eight slots that fails three calls after 100 ms each, and accepts all other calls
/// after 100 ms.
const THREE: FailingTarget = FailingTarget {
    failing: 3,
    shares_tenant: false,
    fails_after: 100,
    accepts_after: 100,
    aging: 0,
    slots: 8,
};

struct Attempt {
    ends: u64,
    call: u64,
    number: u32,
    ticket: Ticket,
    grant: Box<Grant>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The longest wait of a good call, that is, one that the target accepts, in milliseconds.
    held: u64,
    /// The total time in milliseconds in which the target was cooling down or being probed.
    closed: u64,
    /// The number of times that the target changed from accepting calls to cooling down or being
    /// probed.
    outages: u32,
    accepted: u32,
}

/// Simulates one minute with 20 good calls per second, and with failing calls that all arrive at
/// the start and are retried. Returns the longest wait of a good call, and how often and how long
/// the target was cooling down or being probed.
fn play(target: FailingTarget) -> Seen {
    let zero = epoch();
    let settings = SchedulerSettings { aging: ms(target.aging), ..settings(target.slots) };
    let mut scheduler: Scheduler<(u64, u32, Ticket)> = Scheduler::new(&settings, zero);
    let mut first = admit(&mut scheduler, zero, &ticket("good", Lane::Interactive, zero));
    first.sent = true;
    scheduler.on_success(zero, &mut first);
    scheduler.release(zero, first);
    let mut flying: Vec<Attempt> = Vec::new();
    let (mut seen, mut before) = (Seen::default(), CooldownState::Open);
    let is_poisoned = |call: u64| call < target.failing;
    for t in (0..60_000).step_by(10) {
        let now = zero + ms(t);
        let failing = (0..target.failing).filter(|_| t == 0);
        let tenant = |call| if is_poisoned(call) && !target.shares_tenant { "failing" } else { "good" };
        for call in failing.chain((t % 50 == 0).then_some(1_000 + t)) {
            let ticket = ticket(tenant(call), Lane::Interactive, now);
            match scheduler.try_admit(now, &ticket).expect("not refused") {
                Some(grant) => fly(target, &mut flying, t, (call, 1, ticket), grant),
                None => _ = scheduler.enqueue(now, ticket.clone(), (call, 1, ticket)),
            }
        }
        while let Some(at) = flying.iter().position(|attempt| attempt.ends <= t) {
            let Attempt { call, number, mut ticket, mut grant, .. } = flying.swap_remove(at);
            if !is_poisoned(call) {
                scheduler.on_success(now, &mut grant);
                scheduler.release(now, grant);
                seen.accepted += 1;
                continue;
            }
            let _ = scheduler.on_failure(now, &mut grant, call, Failure::Other, None, 0.5);
            ticket.queue_tag = Some(grant.queue_tag());
            ticket.has_failed = true;
            scheduler.release(now, grant);
            if number < ATTEMPTS {
                scheduler.enqueue(now, ticket.clone(), (call, number + 1, ticket));
            }
        }
        while let Some(((call, number, ticket), grant)) = scheduler.next(now) {
            if !is_poisoned(call) {
                seen.held = seen.held.max(now.duration_since(ticket.queued_at).as_millis() as u64);
            }
            fly(target, &mut flying, t, (call, number, ticket), grant);
        }
        let wake = scheduler.next_wake(now);
        assert!(wake.is_none_or(|wake| wake > now), "all that is due was done");
        let state = scheduler.view(now).state;
        let is_closed = |state| matches!(state, CooldownState::Cooling | CooldownState::Probing);
        seen.closed += 10 * u64::from(is_closed(state));
        seen.outages += u32::from(is_closed(state) && !is_closed(before));
        before = state;
    }
    assert_eq!((scheduler.has_waiting(), before), (false, CooldownState::Open), "{seen:?}");
    seen
}

fn fly(
    target: FailingTarget,
    flying: &mut Vec<Attempt>,
    t: u64,
    (call, number, ticket): (u64, u32, Ticket),
    mut grant: Box<Grant>,
) {
    grant.sent = true;
    let takes = if call < target.failing { target.fails_after } else { target.accepts_after };
    flying.push(Attempt { ends: t + takes, call, number, ticket, grant });
}

#[test]
fn failing_calls_delay_good_ones_for_one_short_interval() {
    let seen = play(THREE);
    assert!(seen.held <= 500 && seen.outages == 1, "{seen:?}");
}

#[test]
fn failing_calls_delay_good_ones_for_two_seconds_at_most() {
    for shares_tenant in [false, true] {
        for aging in [0, 30_000] {
            for (failing, slots) in [(3, 8), (8, 8), (30, 64), (200, 512)] {
                let target = FailingTarget { failing, slots, aging, shares_tenant, ..THREE };
                let seen = play(target);
                assert!(seen.held <= 2_000 && seen.outages == 1, "{failing} of {slots} slots: {seen:?}");
            }
        }
    }
}

#[test]
fn failing_calls_of_another_tenant_alternate_as_probes_with_good_ones() {
    let seen = play(FailingTarget { failing: 30, ..THREE });
    assert!(seen.held <= 2_000, "{seen:?}");
}

#[test]
fn failing_calls_do_not_close_a_slow_target_repeatedly() {
    for failing in [3, 30] {
        let seen = play(FailingTarget { failing, accepts_after: 5_000, slots: 512, ..THREE });
        assert!(seen.closed <= 2_000 && seen.outages == 1, "{failing}: {seen:?}");
    }
}

#[test]
fn new_call_is_the_probe_if_only_failed_calls_wait() {
    for lane in Lane::ALL {
        let (zero, settings) = (epoch(), SchedulerSettings { aging: Duration::ZERO, ..settings(4) });
        let mut scheduler: Scheduler<u64> = Scheduler::new(&settings, zero);
        let mut grant = admit(&mut scheduler, zero, &ticket("a", lane, zero));
        scheduler.on_success(zero, &mut grant);
        scheduler.release(zero, grant);
        let fail = |scheduler: &mut Scheduler<u64>, now, mut grant: Box<Grant>, call| {
            let _ = scheduler.on_failure(now, &mut grant, call, Failure::Other, None, 0.0);
            let queue_tag = Some(grant.queue_tag());
            scheduler.release(now, grant);
            let retry = Ticket { queue_tag, has_failed: true, ..ticket("a", lane, zero) };
            scheduler.enqueue(now, retry, call);
        };
        let grants: Vec<_> = (0..3).map(|_| admit(&mut scheduler, zero, &ticket("a", lane, zero))).collect();
        for (call, grant) in grants.into_iter().enumerate() {
            fail(&mut scheduler, zero, grant, call as u64);
        }
        // No other call waits, so one of the failed calls is the probe.
        let now = scheduler.next_wake(zero).expect("it cools");
        let (call, grant) = scheduler.next(now).expect("a probe");
        fail(&mut scheduler, now, grant, call);
        // The next failed call has to wait longer than a new call.
        let now = scheduler.next_wake(now).expect("it cools");
        assert!(scheduler.next(now).is_none(), "it has failed here");
        let retries = scheduler.next_wake(now).expect("they come to be the probe");
        assert!(retries > now);
        let why = scheduler.try_admit(now, &Ticket { has_failed: true, ..ticket("b", lane, now) });
        assert!(matches!(why, Ok(None)), "another that has failed waits");
        let probe = admit(&mut scheduler, now, &ticket("a", lane, now));
        assert!(matches!(scheduler.try_admit(now, &ticket("a", lane, now)), Ok(None)), "one goes");
        scheduler.release(now, probe);
        let (_, grant) = scheduler.next(retries).expect("the probe of last resort");
        scheduler.release(retries, grant);
    }
}

/// After a cool-down, the only slot is used by a call that was sent before it, so no probe can be
/// sent. Calls wait for the slot then, as they would without the cool-down.
#[test]
fn waits_go_on_while_the_probe_after_a_cool_down_lacks_a_slot() {
    let zero = epoch();
    let mut scheduler: Scheduler<&str> = Scheduler::new(&settings(2), zero);
    let long = admit(&mut scheduler, zero, &ticket("a", Lane::Standard, zero));
    let mut limited = admit(&mut scheduler, zero, &ticket("a", Lane::Standard, zero));
    let _ = scheduler.on_failure(zero, &mut limited, 1, Failure::Limited, Some(ms(1_000)), 0.0);
    scheduler.release(zero, limited);
    scheduler.set_limit(1);
    let waiting = Ticket { wait: Some(ms(2_000)), ..ticket("a", Lane::Standard, zero) };
    assert!(matches!(scheduler.try_admit(zero, &waiting), Ok(None)));
    scheduler.enqueue(zero, waiting, "waits");
    let reopens = scheduler.next_wake(zero).expect("the cool-down ends");
    assert!(reopens <= zero + ms(1_200), "{:?}", reopens - zero);
    assert!(scheduler.next(reopens).is_none() && scheduler.expired(reopens).is_empty());
    let ends = scheduler.next_wake(reopens).expect("the wait ends");
    assert_eq!(ends, reopens + ms(2_000), "it stood still during the cool-down only");
    assert!(scheduler.expired(ends - ms(1)).is_empty());
    let expired = scheduler.expired(ends);
    let [(_, refusal)] = &expired[..] else { panic!("{expired:?}") };
    assert_eq!(refusal.reason, Reason::WaitBudget);
    // The next call is the probe once the slot is free.
    scheduler.release(ends, long);
    let mut probe = admit(&mut scheduler, ends, &ticket("a", Lane::Standard, ends));
    scheduler.on_success(ends, &mut probe);
    scheduler.release(ends, probe);
    assert_ne!(scheduler.view(ends).state, CooldownState::Probing);
}
