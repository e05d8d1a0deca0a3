//! Tests of the oracle itself: it reports a call as stuck if the driver does not dispatch all
//! admissible calls, and it reports a tenant that is not held as expected.

use super::*;

/// Sends calls faster than tokens arrive, and lets time pass. Returns a description of the first
/// admissible call that is left waiting, or `None` if there is none.
fn overload(oracle: &mut Oracle) -> Option<String> {
    for k in 0..40 {
        let (tenant, lane) = (k % 4, k % 3);
        let mut ticket = ticket(TENANTS[tenant].0, Lane::ALL[lane], oracle.now);
        ticket.demand.input = 50 + (k as u64 * 37) % 200;
        oracle.numbers += 1;
        let call =
            Call { number: oracle.numbers, tenant, ticket, id: None, queued_open: oracle.open, tag: None };
        match oracle.scheduler.try_admit(oracle.now, &call.ticket) {
            Ok(Some(grant)) => {
                let moment = oracle.moment();
                oracle.admitted(call, grant, &moment, false);
            }
            Ok(None) => {
                let id = oracle.scheduler.enqueue(oracle.now, call.ticket.clone(), call.number);
                oracle.waiting.insert(call.number, Call { id: Some(id), ..call });
            }
            Err(_) => {}
        }
        for _ in 0..2 {
            oracle.advance(ms(150));
            if let Some((call, mut grant)) = oracle.running.pop() {
                grant.sent = true;
                oracle.scheduler.release(oracle.now, grant);
                oracle.model.release(oracle.now, &call, true, Ended::Cancelled);
            }
            oracle.settle();
            if let Some(stuck) = oracle.stuck() {
                return Some(stuck);
            }
        }
    }
    None
}

#[test]
fn diligent_driver_leaves_no_call_stuck() {
    assert_eq!(overload(&mut Oracle::new(TargetConfig::of_tokens(3_000))), None);
}

#[test]
fn lazy_driver_leaves_calls_stuck() {
    let mut oracle = Oracle::new(TargetConfig::of_tokens(3_000));
    oracle.patience = 0;
    assert!(overload(&mut oracle).is_some());
    let mut oracle = Oracle::new(TargetConfig::of_tokens(30_000));
    oracle.patience = 1;
    oracle.model.fix(0);
    oracle.scheduler.set_limit(0);
    for tenant in [2, 3] {
        oracle.apply(Event::Arrive {
            tenant,
            lane: 1,
            deadline: 60_000,
            wait: None,
            tokens: 10,
            streams: false,
        });
    }
    oracle.model.fix(2);
    oracle.scheduler.set_limit(2);
    assert_eq!(oracle.settle(), 1);
    assert!(oracle.stuck().is_some(), "one of two went");
    oracle.patience = usize::MAX;
    assert_eq!(oracle.settle(), 1);
    assert_eq!(oracle.stuck(), None);
}

/// Returns a server that tenants share, after it has learned that the first token of a prompt of
/// 600 tokens takes 5 s.
fn shared_oracle() -> Oracle {
    let mut oracle = Oracle::new(TargetConfig::of_tokens(1_000_000).shared());
    warm_up(30, 5_000, 600).for_each(|event| oracle.apply(event));
    oracle
}

/// Lets tenant d use up the first-token capacity, and tenant c fill the slots and its queue. One
/// call of tenant c awaits its first token, so that only its waiting calls exceed its share.
fn exceed_share(oracle: &mut Oracle) {
    let streamed = [(2, true), (3, true), (3, true)];
    for (tenant, streams) in streamed.into_iter().chain([(2, false); 11]) {
        let (deadline, wait, tokens) = (60_000, None, 600);
        oracle.apply(Event::Arrive { tenant, lane: 1, deadline, wait, tokens, streams });
    }
    assert!(oracle.model.is_held(2), "c demands more than its share");
}

#[test]
fn scheduler_that_holds_tenants_is_accepted() {
    exceed_share(&mut shared_oracle());
}

#[test]
#[should_panic(expected = "held tenants")]
fn scheduler_that_holds_no_tenant_is_reported() {
    let mut oracle = shared_oracle();
    // A scheduler with a fixed limit holds no tenant.
    oracle.scheduler.settings.adaptive = None;
    exceed_share(&mut oracle);
}

#[test]
#[should_panic(expected = "held tenants")]
fn scheduler_that_counts_waiting_calls_differs_from_rule_without_them() {
    let mut oracle = shared_oracle();
    oracle.model.shares.as_mut().expect("adaptive").counts_waiting = false;
    exceed_share(&mut oracle);
}
