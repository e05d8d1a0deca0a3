//! Tests of replicas that answer calls with errors that a retry would not change, such as 403.

use super::*;

/// Number of calls in a row after which a replica is found to be the cause.
const MAX_REJECTED: usize = 5;

/// Returns a pool of four replicas, of which the first three accept calls, and the time.
fn pool_with_three_good_replicas() -> (Placement, Instant) {
    let (mut pool, now) = pool(4);
    (0..3).for_each(|at| pool.accept(now, at));
    (pool, now)
}

#[test]
fn idle_replica_that_rejects_each_call_gets_few_calls() {
    let (mut pool, mut now) = pool_with_three_good_replicas();
    // The others have four calls in flight each.
    let mut busy = Vec::new();
    for at in (0..3).cycle().take(12) {
        let mut call = pool.on_sent(now, at, None, work(1_000)).unwrap();
        pool.on_accepted(now, &mut call);
        busy.push(call);
    }
    let mut rejected = 0;
    for _ in 0..100 {
        now += ms(100);
        let mut call = pool.place(now, None, work(1_000)).unwrap();
        if call.at == 3 {
            rejected += 1;
            pool.on_failed(now, &call, Fault::Rejected);
        } else {
            pool.on_accepted(now, &mut call);
        }
        pool.on_ended(call);
    }
    assert!(rejected < 20, "{rejected} of 100 calls");
    assert_ne!(pool.state(now, 3), "in");
    for call in busy {
        pool.on_ended(call);
    }
}

#[test]
fn calls_that_all_replicas_reject_eject_none() {
    let (mut pool, now) = pool(4);
    (0..4).for_each(|at| pool.accept(now, at));
    for round in 0..50 {
        for at in 0..4 {
            pool.fault(now + ms(10 * round), at, Fault::Rejected);
            assert_eq!(pool.eligible(now + ms(10 * round)).len(), 4, "round {round}");
        }
    }
}

#[test]
fn rejected_calls_between_accepted_ones_eject_none() {
    let (mut pool, now) = pool_with_three_good_replicas();
    for _ in 0..20 {
        (1..MAX_REJECTED).for_each(|_| pool.fault(now, 3, Fault::Rejected));
        pool.accept(now, 3);
        pool.accept(now, 0);
    }
    assert_eq!(pool.state(now, 3), "in");
}

#[test]
fn rejected_calls_eject_only_if_another_replica_accepts_calls() {
    let (mut pool, now) = pool(4);
    (0..20).for_each(|_| pool.fault(now, 3, Fault::Rejected));
    assert_eq!(pool.state(now, 3), "in", "no replica accepts calls");
    pool.accept(now, 0);
    pool.fault(now, 3, Fault::Rejected);
    assert_eq!(pool.state(now, 3), "suspect");
}

#[test]
fn rejected_call_fails_only_the_trial_of_a_replica_that_was_the_cause() {
    let (mut pool, now) = pool_with_three_good_replicas();
    pool.probe_all_ok(now);
    pool.take_down(now, 2);
    (0..MAX_REJECTED).for_each(|_| pool.fault(now, 3, Fault::Rejected));
    assert_eq!((pool.state(now, 2), pool.state(now, 3)), ("down", "suspect"));
    let later = now + ms(100);
    pool.probe_all_ok(later);
    assert_eq!((pool.state(later, 2), pool.state(later, 3)), ("trial", "trial"));
    (2..4).for_each(|at| pool.fault(later, at, Fault::Rejected));
    assert_eq!((pool.state(later, 2), pool.state(later, 3)), ("trial", "suspect"));
    let later = later + ms(2_000);
    pool.probe_all_ok(later);
    assert_eq!(pool.state(later, 3), "trial");
    (0..2).for_each(|_| pool.accept(later, 3));
    assert_eq!(pool.state(later, 3), "starting", "it accepts calls again");
    pool.fault(later, 3, Fault::Rejected);
    assert_eq!(pool.state(later, 3), "starting");
}

/// A conversation returns to its replica, so its calls say no more than one of them.
#[test]
fn calls_of_one_conversation_count_once() {
    let (mut pool, now) = pool(4);
    for conversation in 0..200 {
        let (at, wants) = (conversation as usize % 3, wants(&[1_000 + conversation]));
        let mut call = pool.on_sent(now, at, Some(&wants), work(100)).unwrap();
        pool.on_accepted(now, &mut call);
        pool.on_ended(call);
    }
    let reject = |pool: &mut Placement, conversation| {
        let call = pool.on_sent(now, 3, Some(&wants(&[conversation])), work(100)).unwrap();
        pool.on_failed(now, &call, Fault::Rejected);
        pool.on_ended(call);
    };
    (0..40).for_each(|_| reject(&mut pool, 1));
    assert_eq!(pool.state(now, 3), "in");
    (0..20).for_each(|call| reject(&mut pool, 1 + call % 2));
    assert_eq!(pool.state(now, 3), "in", "two conversations in turn");
    (3..6).for_each(|conversation| reject(&mut pool, conversation));
    assert_eq!(pool.state(now, 3), "suspect");
}

#[test]
fn replica_that_rejects_a_call_is_alive() {
    let (mut pool, now) = pool(2);
    pool.wake(now);
    pool.poll_requests(now);
    let call = pool.on_sent(now, 1, None, work(1)).unwrap();
    pool.observe_at(now + ms(500), 1, Observation::ProbeTimeout);
    assert_eq!(pool.state(now + ms(500), 1), "suspect");
    pool.on_failed(now + ms(600), &call, Fault::Rejected);
    pool.on_ended(call);
    assert_eq!(pool.state(now + ms(600), 1), "in");
}

#[test]
fn prompt_of_a_rejected_call_is_not_cached() {
    let (mut pool, now) = pool(4);
    let same = wants(&[1, 2]);
    let call = pool.on_sent(now, 2, Some(&same), work(4_000)).unwrap();
    pool.on_failed(now, &call, Fault::Rejected);
    pool.on_ended(call);
    assert_eq!(pool.candidates(now, Some(&same), work(4_000), ReplicaSet::one(2))[0].cached, 0);
}

/// Several replicas may have the same fault, such as a wrong path, also after a time without it.
#[test]
fn replicas_that_reject_each_call_do_not_excuse_each_other() {
    for accepted_before in [0, 1] {
        let (mut pool, now) = pool(4);
        for at in (0..4).cycle().take(4 * accepted_before) {
            pool.accept(now, at);
        }
        for _ in 0..=MAX_REJECTED {
            (0..2).for_each(|at| pool.accept(now, at));
            (2..4).for_each(|at| pool.fault(now, at, Fault::Rejected));
        }
        let states: Vec<_> = (0..4).map(|at| pool.state(now, at)).collect();
        assert_eq!(states, ["in", "in", "suspect", "suspect"], "{accepted_before}");
    }
}

#[test]
fn faults_that_the_caller_may_have_caused_count_if_others_accept_calls() {
    for fault in [Fault::Rejected, Fault::Unauthenticated, Fault::Unanswered] {
        let (mut pool, now) = pool(2);
        for round in 0..20 {
            (0..2).for_each(|at| pool.fault(now, at, fault));
            assert_eq!(pool.eligible(now).len(), 2, "{fault:?}: both in round {round}");
        }
        (0..2).for_each(|at| pool.accept(now, at));
        (0..MAX_REJECTED).for_each(|_| pool.fault(now, 1, fault));
        assert_eq!((pool.state(now, 0), pool.state(now, 1)), ("in", "suspect"), "{fault:?}");
    }
}

#[test]
fn call_without_an_answer_is_no_sign_of_life() {
    let (mut pool, now) = pool(2);
    pool.wake(now);
    pool.poll_requests(now);
    pool.observe_at(now + ms(500), 1, Observation::ProbeTimeout);
    pool.fault(now + ms(600), 1, Fault::Unanswered);
    assert_eq!(pool.state(now + ms(600), 1), "suspect");
}
