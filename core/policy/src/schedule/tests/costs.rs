//! Tests of fair queueing on estimated costs, which are corrected when the actual cost is known.
//!
//! Let `D(t) = W_f(t) / w_f - W_g(t) / w_g`, where `W` is the sum of the charges of a tenant up to
//! `t` and `w` is its weight. A call goes to the tenant that was charged least, so `D` rises by at
//! most the sum of `maximum charge / weight` of both tenants f and g while both are backlogged.
//! Until the estimates of calls in flight are settled, their errors can add to `D`.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::testing::epoch;
use tidegate_protocol::Usage;

const NAMES: [&str; 2] = ["f", "g"];

/// The maximum cost of a call. Unless estimates are exact, the actual cost is 0.3 to 3 times the
/// estimate, and at most this.
const LARGEST: f64 = 100.0;

struct Run {
    /// The charges to each tenant so far, as corrected.
    work: [f64; 2],
    /// The maximum rise of `D` over any interval, in either direction.
    rise: f64,
    served: usize,
}

/// Simulates two tenants that always have calls waiting. If `exact` is `true`, the estimated costs
/// are the actual ones.
fn run(weights: [f64; 2], limit: usize, exact: bool, seed: u64) -> Run {
    let mut settings = settings(0);
    NAMES.iter().zip(weights).for_each(|(name, weight)| named(&mut settings, name, weight, None));
    let mut now = epoch();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut scheduler = Scheduler::new(&settings, now);
    let mut waiting = [0; 2];
    let mut running: BTreeMap<(Instant, u64), (usize, f64, Box<Grant>)> = BTreeMap::new();
    let mut run = Run { work: [0.0; 2], rise: 0.0, served: 0 };
    let (mut least, mut most) = (0.0f64, 0.0f64);
    for round in 0..1500u64 {
        for who in 0..2 {
            while waiting[who] < 20 {
                let cost = 1.0 + rng.f64() * (LARGEST - 1.0);
                let ticket = Ticket { cost, ..ticket(NAMES[who], Lane::Standard, now) };
                scheduler.enqueue(now, ticket, (who, cost));
                waiting[who] += 1;
            }
        }
        scheduler.set_limit(limit);
        while let Some(((who, cost), mut grant)) = scheduler.next(now) {
            grant.sent = true;
            waiting[who] -= 1;
            run.work[who] += cost;
            run.served += 1;
            running
                .insert((now + ms(rng.u64(1..50)), round * 100 + running.len() as u64), (who, cost, grant));
            let real = run.work[0] / weights[0] - run.work[1] / weights[1];
            run.rise = run.rise.max(real - least).max(most - real);
            (least, most) = (least.min(real), most.max(real));
        }
        let Some(((at, _), (who, cost, mut grant))) = running.pop_first() else { break };
        now = at;
        let real = if exact { cost } else { (cost * (0.3 + 2.7 * rng.f64())).min(LARGEST) };
        scheduler.settle(now, &mut grant, &Settled { usage: Usage::default(), cost: real });
        run.work[who] += real - cost;
        scheduler.release(now, grant);
        let real = run.work[0] / weights[0] - run.work[1] / weights[1];
        (least, most) = (least.min(real), most.max(real));
    }
    run
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn waiting_tenants_share_by_actual_charges(
        f in prop::sample::select(vec![1.0, 2.0, 4.0]), g in prop::sample::select(vec![1.0, 2.0, 4.0]),
        limit in 1usize..9, exact in any::<bool>(), seed in any::<u64>(),
    ) {
        let run = run([f, g], limit, exact, seed);
        prop_assert!(run.served > 1000);
        // With exact estimates, one charge each. Otherwise, also the errors of the calls in flight.
        let off = if exact { 0 } else { limit };
        let bound = (1.0 + off as f64) * (LARGEST / f + LARGEST / g) + 1e-6;
        prop_assert!(run.rise <= bound, "{} > {bound}", run.rise);
        let [f, g] = [run.work[0] / f, run.work[1] / g];
        prop_assert!((f - g).abs() <= bound, "{f} {g}");
    }
}

/// With one call at a time, each estimate is corrected before the next dispatch, so the same bound
/// holds as for exact estimates.
#[test]
fn estimates_settled_before_the_next_dispatch_cause_no_error() {
    for seed in 0..50 {
        let run = run([1.0, 2.0], 1, false, seed);
        assert!(run.rise <= 1.5 * LARGEST + 1e-6, "{}", run.rise);
    }
}

/// Without corrections, a tenant whose calls cost ten times their estimate would get ten times its
/// share.
#[test]
fn underestimated_tenant_gets_no_larger_share() {
    let now = epoch();
    let mut scheduler = Scheduler::new(&settings(0), now);
    let mut took = [0.0; 2];
    for k in 0..2000 {
        scheduler.enqueue(now, Ticket { cost: 1.0, ..ticket(NAMES[k % 2], Lane::Standard, now) }, k % 2);
    }
    scheduler.set_limit(1);
    for _ in 0..500 {
        let (who, mut grant) = scheduler.next(now).expect("work");
        grant.sent = true;
        let real = if who == 0 { 10.0 } else { 1.0 };
        took[who] += real;
        scheduler.settle(now, &mut grant, &Settled { usage: Usage::default(), cost: real });
        scheduler.release(now, grant);
    }
    assert!((took[0] - took[1]).abs() <= 20.0, "{took:?}");
}

/// Costs that are not finite, negative or very large do not keep a tenant from being served.
#[test]
fn implausible_costs_do_not_block_a_tenant() {
    let now = epoch();
    let mut scheduler: Scheduler<()> = Scheduler::new(&settings(1), now);
    for cost in [f64::NAN, f64::INFINITY, -5.0, f64::NEG_INFINITY] {
        let mut grant = admit(&mut scheduler, now, &ticket("a", Lane::Standard, now));
        grant.sent = true;
        scheduler.settle(now, &mut grant, &Settled { usage: Usage::default(), cost });
        assert_eq!(grant.tenant.cost, 1.0, "{cost}");
        scheduler.release(now, grant);
    }
    let mut grant = admit(&mut scheduler, now, &ticket("a", Lane::Standard, now));
    scheduler.settle(now, &mut grant, &Settled { usage: Usage::default(), cost: 1e300 });
    assert!(grant.tenant.cost <= 10_000.0);
    scheduler.release(now, grant);
}

/// A call that is cancelled before it is sent costs its tenant nothing.
#[test]
fn calls_never_sent_are_not_charged() {
    let now = epoch();
    let mut scheduler = Scheduler::new(&settings(1), now);
    let held = admit(&mut scheduler, now, &ticket("x", Lane::Standard, now));
    for k in 0..6 {
        queue(&mut scheduler, now, ticket("a", Lane::Standard, now), ("a", k));
        queue(&mut scheduler, now, ticket("b", Lane::Standard, now), ("b", k));
    }
    scheduler.release(now, held);
    let mut order = Vec::new();
    while let Some(((who, k), mut grant)) = scheduler.next(now) {
        // The first three calls of a are cancelled when they are dispatched.
        if who == "b" || k >= 3 {
            grant.sent = true;
        }
        order.push(who);
        scheduler.release(now, grant);
    }
    assert_eq!(order, ["a", "a", "a", "a", "b", "a", "b", "a", "b", "b", "b", "b"]);
}

/// An hour after its last call, a tenant whose call cost a thousand times its estimate is treated
/// like any other.
#[test]
fn debt_ends_with_the_busy_period() {
    let began = epoch();
    let mut scheduler = Scheduler::new(&settings(1), began);
    let mut grant =
        admit(&mut scheduler, began, &Ticket { cost: 100.0, ..ticket("a", Lane::Standard, began) });
    grant.sent = true;
    let settled = Settled { usage: Usage::default(), cost: 100_000.0 };
    scheduler.settle(began, &mut grant, &settled);
    scheduler.release(began, grant);
    let now = began + Duration::from_secs(3600);
    let grant = admit(&mut scheduler, now, &ticket("c", Lane::Standard, now));
    for k in 0..300 {
        let who = if k == 0 { "a" } else { "b" };
        queue(&mut scheduler, now, Ticket { cost: 1000.0, ..ticket(who, Lane::Standard, now) }, who);
    }
    scheduler.release(now, grant);
    let before = std::iter::from_fn(|| {
        let (who, mut grant) = scheduler.next(now)?;
        grant.sent = true;
        scheduler.release(now, grant);
        (who != "a").then_some(())
    });
    assert!(before.count() <= 1);
}
