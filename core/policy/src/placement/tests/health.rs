use super::*;

const S: Duration = Duration::from_secs(1);

fn no_probes() -> PoolConfig {
    PoolConfig { health: None, ..PoolConfig::default() }
}

#[test]
fn one_refused_connection_makes_a_replica_suspect_and_two_take_it_down() {
    let (mut pool, now) = pool(4);
    pool.probe_all_ok(now);
    pool.fault(now, 1, Fault::ConnectRefused);
    assert_eq!(pool.state(now, 1), "suspect");
    assert!(!pool.eligible(now).contains(1));
    assert!(pool.take_stranded().is_empty(), "nothing is called back yet");
    pool.observe_at(now, 1, Observation::ProbeOk);
    assert_eq!(pool.state(now, 1), "in", "it was one connection");
    pool.fault(now, 1, Fault::ConnectRefused);
    pool.observe_at(now, 1, Observation::ConnectRefused);
    assert_eq!(pool.state(now, 1), "down");
    assert_eq!(pool.take_stranded(), ReplicaSet::one(1));
    assert!(pool.take_stranded().is_empty(), "told once");
    pool.fault(now, 2, Fault::ConnectRefused);
    pool.fault(now, 2, Fault::ConnectRefused);
    assert_eq!(pool.take_stranded(), ReplicaSet::one(2), "two calls are as good as a probe");
    pool.observe_at(now, 3, Observation::ConnectRefused);
    assert_eq!(pool.state(now, 3), "suspect", "of probes one is not enough either");
    pool.observe_at(now, 3, Observation::ConnectRefused);
    assert_eq!(pool.take_stranded(), ReplicaSet::one(3));
}

#[test]
fn replicas_that_refuse_connections_are_all_ejected() {
    let (mut pool, now) = pool(4);
    pool.probe_all_ok(now);
    (0..4).for_each(|at| pool.observe_at(now, at, Observation::ConnectRefused));
    assert_eq!(pool.eligible(now).len(), 2, "one connection each may be something else");
    (0..4).for_each(|at| pool.observe_at(now, at, Observation::ConnectRefused));
    assert!(pool.eligible(now).is_empty());
    assert_eq!(pool.take_stranded().len(), 4);
}

#[test]
fn silence_ejects_at_most_half_of_the_pool() {
    let (mut pool, now) = pool(4);
    pool.wake(now);
    pool.poll_requests(now);
    for _ in 0..2 {
        (0..4).for_each(|at| pool.observe_at(now + S, at, Observation::ProbeTimeout));
    }
    assert_eq!(pool.eligible(now + S).len(), 2);
    pool.probe_all_ok(now + S);
    for _ in 0..2 {
        (0..4).for_each(|at| pool.observe_at(now + 2 * S, at, Observation::ProbeFailed));
    }
    let later = now + 5 * S;
    assert_eq!(pool.eligible(later).len(), 2);
    assert!(pool.view(later).iter().all(|replica| replica.state == ReplicaState::Down));
    assert_eq!(pool.take_stranded().len(), 2, "nor are the calls of the others called back");
}

#[test]
fn refusing_replicas_do_not_count_for_the_half_that_stays() {
    let (mut pool, now) = pool(2);
    pool.probe_all_ok(now);
    pool.take_down(now, 0);
    pool.observe_at(now, 1, Observation::ProbeFailed);
    assert_eq!(pool.eligible(now), ReplicaSet::one(1));
}

#[test]
fn exempt_replica_returns_without_a_trial() {
    for replicas in [1, 4] {
        let (mut pool, now) = pool(replicas);
        pool.probe_all_ok(now);
        for at in 0..replicas {
            pool.observe_at(now, at, Observation::ProbeFailed);
            pool.observe_at(now, at, Observation::ProbeFailed);
        }
        let later = now + 3 * S;
        let kept = pool.eligible(later);
        assert_eq!(kept.len(), replicas.div_ceil(2));
        assert_eq!(pool.take_stranded().len(), replicas / 2);
        for at in kept.iter() {
            assert_eq!(pool.state(later, at), "down");
            pool.observe_at(later, at, Observation::ProbeOk);
            assert_eq!((pool.state(later, at), pool.share(later, at)), ("in", 1.0));
        }
        pool.probe_all_ok(later);
        assert!(pool.take_stranded().is_empty(), "who fell and came back has not fallen");
    }
}

#[test]
fn first_returning_replica_starts_at_once_and_others_slowly() {
    let (mut pool, now) = pool(3);
    pool.probe_all_ok(now);
    (0..3).for_each(|at| pool.take_down(now, at));
    assert!(pool.eligible(now).is_empty());
    pool.observe_at(now + S, 1, Observation::ProbeOk);
    assert_eq!((pool.state(now + S, 1), pool.share(now + S, 1)), ("in", 1.0), "there is nobody beside it");
    (0..3).for_each(|_| pool.observe_at(now + S, 0, Observation::ProbeOk));
    assert_eq!(pool.state(now + S, 0), "starting");
    assert!(pool.share(now + S, 0) <= 0.1);
    pool.take_down(now + S, 1);
    assert_eq!(pool.share(now + S, 0), 1.0, "as long as it is alone");
}

#[test]
fn one_lost_probe_after_a_pause_of_the_client_strands_no_call() {
    let (mut pool, now) = pool(2);
    pool.probe_all_ok(now);
    pool.wake(now + 3 * S);
    pool.poll_requests(now + 3 * S);
    // The answer came long ago, but this client was not running.
    pool.observe_at(now + 9 * S, 1, Observation::ProbeTimeout);
    assert_eq!(pool.state(now + 9 * S, 1), "suspect");
    assert!(pool.take_stranded().is_empty());
    pool.observe_at(now + 9 * S + ms(10), 1, Observation::ProbeOk);
    assert_eq!(pool.state(now + 9 * S + ms(10), 1), "in");
    assert!(pool.take_stranded().is_empty());
}

#[test]
fn least_bad_replicas_stay_eligible() {
    let (mut pool, now) = pool(4);
    pool.wake(now);
    pool.poll_requests(now);
    pool.observe_at(now + S, 0, Observation::ProbeTimeout);
    pool.observe_at(now + S, 1, Observation::ProbeTimeout);
    assert_eq!(pool.eligible(now + S), [2, 3].into_iter().collect());
    for _ in 0..5 {
        pool.fault(now + S, 2, Fault::Broke);
    }
    assert_eq!(pool.eligible(now + S), [2, 3].into_iter().collect());
    assert_eq!(pool.state(now + S, 2), "suspect");
}

#[test]
fn silent_replica_goes_down_and_returns_by_trial_and_slow_start() {
    let (mut pool, now) = pool(4);
    pool.probe_all_ok(now - S);
    pool.wake(now);
    let asked = pool
        .poll_requests(now)
        .due
        .into_iter()
        .filter(|poll_request| poll_request.kind == PollKind::Health)
        .count();
    assert_eq!(asked, 4);
    pool.observe_at(now + ms(500), 3, Observation::ProbeTimeout);
    assert_eq!(pool.state(now + ms(500), 3), "suspect");
    assert!(pool.take_stranded().is_empty());
    pool.observe_at(now + ms(1_200), 3, Observation::ProbeTimeout);
    assert_eq!(pool.next_wake(now + ms(1_200)), Some(now + 2 * S), "down_after its first miss was asked");
    assert!(!pool.eligible(now + 2 * S).contains(3));
    assert_eq!(pool.state(now + 2 * S, 3), "down");
    assert_eq!(pool.take_stranded(), ReplicaSet::one(3));
    pool.observe_at(now + 3 * S, 3, Observation::ProbeOk);
    assert_eq!(pool.state(now + 3 * S, 3), "trial");
    // One call at a time.
    assert!(pool.eligible(now + 3 * S).contains(3));
    let mut call = pool.on_sent(now + 3 * S, 3, None, work(1)).unwrap();
    assert!(!pool.eligible(now + 3 * S).contains(3));
    pool.on_accepted(now + 3 * S, &mut call);
    assert!(pool.eligible(now + 3 * S).contains(3));
    pool.observe_at(now + 4 * S, 3, Observation::ProbeOk);
    assert_eq!(pool.state(now + 4 * S, 3), "starting");
    assert!(pool.share(now + 4 * S, 3) <= 0.1);
    assert!((pool.share(now + 9 * S, 3) - 0.5).abs() < 1e-9);
    pool.eligible(now + 14 * S);
    assert_eq!(pool.share(now + 14 * S, 3), 1.0);
    assert_eq!(pool.state(now + 14 * S, 3), "in");
    assert!(pool.on_ended(call).is_none());
}

/// Returns a pool of two replicas and the time `now`. The first replica is on trial from `now + S`
/// on.
fn pool_on_trial() -> (Placement, Instant) {
    let (mut pool, now) = pool(2);
    pool.probe_all_ok(now);
    pool.take_down(now, 0);
    pool.observe_at(now + S, 0, Observation::ProbeOk);
    (pool, now)
}

#[test]
fn trial_call_without_a_result_is_followed_by_another() {
    let (mut pool, now) = pool_on_trial();
    let call = pool.on_sent(now + S, 0, None, work(1)).unwrap();
    assert!(!pool.eligible(now + S).contains(0));
    pool.on_ended(call);
    assert!(pool.eligible(now + S).contains(0));
}

#[test]
fn trial_call_that_takes_long_is_followed_by_another() {
    let (mut pool, now) = pool_on_trial();
    let mut slow = pool.on_sent(now + S, 0, None, work(1)).unwrap();
    assert!(!pool.eligible(now + 6 * S - ms(1)).contains(0));
    assert!(pool.next_wake(now + 6 * S - ms(1)).is_some_and(|at| at <= now + 6 * S));
    assert!(pool.eligible(now + 6 * S).contains(0));
    let mut next = pool.on_sent(now + 6 * S, 0, None, work(1)).unwrap();
    assert!(!pool.eligible(now + 7 * S).contains(0));
    // Both are accepted, and end the trial.
    pool.on_accepted(now + 8 * S, &mut slow);
    assert!(!pool.eligible(now + 8 * S).contains(0), "the second one is in flight");
    pool.on_accepted(now + 9 * S, &mut next);
    assert_eq!(pool.state(now + 9 * S, 0), "starting");
}

#[test]
fn any_byte_is_a_sign_of_life() {
    let (mut pool, now) = pool(2);
    pool.wake(now);
    pool.poll_requests(now);
    pool.on_alive(now + ms(100), 0);
    pool.observe_at(now + ms(500), 0, Observation::ProbeTimeout);
    assert_eq!(pool.state(now + ms(500), 0), "in", "the probe was lost, the replica is not");
    pool.observe_at(now + ms(500), 1, Observation::ProbeTimeout);
    pool.on_alive(now + ms(600), 1);
    assert_eq!(pool.state(now + ms(600), 1), "in");
}

#[test]
fn five_failures_in_a_minute_eject_unless_most_calls_are_accepted() {
    let (mut pool, now) = pool(4);
    for n in 0..5 {
        assert!(pool.eligible(now).contains(0));
        pool.fault(now + S * n, 0, Fault::Broke);
    }
    assert_eq!(pool.state(now + 4 * S, 0), "suspect");
    for n in 0..50 {
        pool.fault(now + 16 * S * n, 1, Fault::Broke);
    }
    assert_eq!(pool.state(now + 800 * S, 1), "in", "too few for a minute");
    for n in 0..200 {
        pool.accept(now, 2);
        if n % 10 == 0 {
            pool.fault(now, 2, Fault::Broke);
        }
    }
    assert_eq!(pool.state(now, 2), "in", "a tenth of many");
}

#[test]
fn trials_become_rarer_while_calls_fail_and_probes_succeed() {
    let (mut pool, mut now) = pool(4);
    (0..5).for_each(|_| pool.fault(now, 0, Fault::Broke));
    let mut trials = 0;
    for _ in 0..400 {
        now += ms(250);
        pool.observe_at(now, 0, Observation::ProbeOk);
        if pool.state(now, 0) == "trial" {
            trials += 1;
            let call = pool.on_sent(now, 0, None, work(1)).unwrap();
            pool.fault(now, 0, Fault::Broke);
            pool.on_ended(call);
            assert_eq!(pool.state(now, 0), "suspect");
        }
    }
    assert!((5..=8).contains(&trials), "in a hundred seconds: {trials}");
}

#[test]
fn without_probes_time_opens_a_trial() {
    let (mut pool, now) = with(4, no_probes());
    pool.fault(now, 0, Fault::ConnectRefused);
    pool.fault(now, 0, Fault::ConnectRefused);
    assert_eq!(pool.next_wake(now), Some(now + S));
    assert!(pool.eligible(now + S).contains(0));
    assert_eq!(pool.state(now + S, 0), "trial");
    pool.fault(now + S, 0, Fault::ConnectRefused);
    assert!(!pool.eligible(now + 2 * S).contains(0));
    assert!(pool.eligible(now + 3 * S).contains(0), "twice as long");
    pool.accept(now + 3 * S, 0);
    pool.accept(now + 3 * S, 0);
    assert_eq!(pool.state(now + 3 * S, 0), "starting");
}

#[test]
fn every_ejection_ends() {
    // Without polls and answers: time alone.
    for config in [PoolConfig::default(), no_probes()] {
        let (mut pool, now) = with(8, config);
        pool.take_down(now, 0);
        pool.observe_at(now, 1, Observation::ProbeTimeout);
        pool.observe_at(now, 2, Observation::ProbeFailed);
        (0..5).for_each(|_| pool.fault(now, 3, Fault::Broke));
        pool.fault(now, 4, Fault::ConnectRefused);
        pool.fault(now, 5, Fault::Full(None));
        pool.fault(now, 6, Fault::Limited(Some(20 * S)));
        assert_eq!(pool.eligible(now).iter().filter(|at| [5, 6].contains(at)).count(), 0);
        assert!(pool.eligible(now).len() <= 4);
        let mut at = now;
        while let Some(next) = pool.next_wake(at) {
            assert!(next > at);
            at = next;
            pool.eligible(at);
        }
        assert_eq!(pool.eligible(at).len(), 8, "{:?}", pool.view(at));
        for place in 0..8 {
            pool.accept(at, place);
            pool.accept(at, place);
        }
        assert!(
            pool.view(at + 60 * S)
                .iter()
                .all(|replica| [ReplicaState::In, ReplicaState::Starting].contains(&replica.state))
        );
        pool.eligible(at + 60 * S);
        assert!(pool.view(at + 60 * S).iter().all(|replica| replica.state == ReplicaState::In));
    }
}

#[test]
fn busy_replica_is_healthy() {
    let (mut pool, now) = pool(2);
    for _ in 0..20 {
        pool.fault(now, 0, Fault::Full(None));
    }
    assert_eq!(pool.state(now, 0), "in");
    assert!(!pool.eligible(now).contains(0));
    assert!(pool.eligible(now + ms(100)).contains(0), "a moment, however many they were");
    pool.fault(now, 1, Fault::Full(Some(3 * S)));
    assert!(!pool.eligible(now + 3 * S).contains(1), "as long as it says");
    assert!(pool.eligible(now + 3 * S + ms(100)).contains(1));
    assert!(pool.next_wake(now + S).is_some_and(|at| at > now + 3 * S && at <= now + 3 * S + ms(100)));
    assert!(pool.take_stranded().is_empty());
}

#[test]
fn busy_replica_without_retry_after_is_left_alone_for_a_growing_delay() {
    let (mut pool, mut now) = pool(1);
    let mut holds = Vec::new();
    for _ in 0..8 {
        pool.fault(now, 0, Fault::Full(Some(Duration::ZERO)));
        assert!(!pool.eligible(now + ms(49)).contains(0));
        let until = pool.next_wake(now).unwrap();
        holds.push(until - now);
        now = until;
    }
    assert!(holds[0] <= ms(100) && holds[7] >= ms(250) && holds[7] <= ms(500), "{holds:?}");
    pool.accept(now, 0);
    pool.fault(now, 0, Fault::Full(None));
    assert!(pool.eligible(now + ms(100)).contains(0), "it took one in");
}

#[test]
fn busy_period_ends_with_the_process() {
    let (mut pool, now) = pool(2);
    pool.probe_all_ok(now);
    pool.fault(now, 0, Fault::Full(Some(3_600 * S)));
    pool.take_down(now + S, 0);
    pool.observe_at(now + 2 * S, 0, Observation::ProbeOk);
    assert!(pool.eligible(now + 2 * S).contains(0));
}

#[test]
fn each_cause_has_its_own_cure() {
    let (mut pool, now) = pool(4);
    pool.probe_all_ok(now);
    pool.observe_at(now, 0, Observation::ProbeFailed);
    pool.on_alive(now + ms(1), 0);
    assert_eq!(pool.state(now + ms(1), 0), "suspect", "streams go on where probes say that it is unwell");
    pool.observe_at(now + ms(2), 0, Observation::ProbeOk);
    assert_eq!(pool.state(now + ms(2), 0), "in");
    (0..5).for_each(|_| pool.fault(now, 1, Fault::Broke));
    pool.observe_at(now + ms(1), 1, Observation::ConnectRefused);
    pool.observe_at(now + ms(2), 1, Observation::ProbeOk);
    assert_eq!(pool.state(now + ms(2), 1), "trial", "a probe that is well does not mend what failed before");
    pool.observe_at(now + ms(3), 1, Observation::ProbeOk);
    pool.observe_at(now + ms(4), 1, Observation::ProbeOk);
    assert_eq!(pool.state(now + ms(4), 1), "trial");
}

#[test]
fn slow_start_continues_after_a_lost_probe() {
    let (mut pool, now) = pool(2);
    pool.probe_all_ok(now);
    pool.take_down(now, 1);
    (0..3).for_each(|_| pool.observe_at(now + S, 1, Observation::ProbeOk));
    assert_eq!(pool.state(now + S, 1), "starting");
    pool.observe_at(now + 2 * S, 1, Observation::ProbeFailed);
    pool.observe_at(now + 3 * S, 1, Observation::ProbeOk);
    assert_eq!(pool.state(now + 3 * S, 1), "starting");
    assert!(pool.share(now + 3 * S, 1) <= 0.21);
}

#[test]
fn later_accepted_call_overrules_a_refused_connection() {
    let (mut pool, now) = pool(2);
    pool.probe_all_ok(now);
    let mut before = pool.on_sent(now, 0, None, work(1)).unwrap();
    pool.take_down(now + ms(1), 0);
    pool.on_accepted(now + ms(2), &mut before);
    assert_eq!(pool.state(now + ms(2), 0), "down", "its listener is gone, and what it has begun goes on");
    let mut since = pool.on_sent(now + ms(2), 0, None, work(1)).unwrap();
    pool.on_first_token(now + ms(3), &mut since);
    assert_eq!(pool.state(now + ms(3), 0), "trial");
    pool.on_accepted(now + ms(4), &mut since);
    pool.accept(now + ms(5), 0);
    assert_eq!(pool.state(now + ms(5), 0), "starting");
    assert_eq!((pool.on_ended(before), pool.on_ended(since)), (None, None));
}

#[test]
fn probes_that_never_succeeded_are_ignored_once_calls_are_accepted() {
    for bad in [Observation::ConnectRefused, Observation::ProbeFailed, Observation::ProbeTimeout] {
        let (mut pool, mut now) = pool(4);
        let knock = |pool: &mut Placement, now| {
            pool.wake(now);
            for poll_request in pool.poll_requests(now).due {
                if poll_request.kind == PollKind::Health {
                    pool.observe(now, poll_request.to, bad.clone());
                }
            }
        };
        let mut waited = 0;
        for _ in 0..600 {
            now += ms(10);
            knock(&mut pool, now);
            let eligible = pool.eligible(now);
            waited += usize::from(eligible.is_empty());
            now += ms(1);
            eligible.iter().for_each(|at| pool.accept(now, at));
        }
        assert_eq!(waited, 0, "{bad:?}");
        assert!(
            pool.view(now).iter().all(|replica| replica.state == ReplicaState::In),
            "{bad:?}: {:?}",
            pool.view(now)
        );
        // As soon as a probe succeeds, probes count again.
        pool.probe_all_ok(now);
        pool.take_down(now, 0);
        assert_eq!(pool.state(now, 0), "down");
    }
}

#[test]
fn refused_probes_that_never_succeeded_need_a_refused_call() {
    let (mut pool, now) = pool(2);
    (0..2).for_each(|at| pool.take_down(now, at));
    assert_eq!(pool.eligible(now).len(), 1);
    let kept = pool.eligible(now).iter().next().unwrap();
    pool.fault(now, kept, Fault::ConnectRefused);
    assert_eq!(pool.state(now, kept), "down");
    assert_eq!(pool.take_stranded(), ReplicaSet::one(kept));
}

#[test]
fn return_of_a_replica_is_expected_after_its_next_probe() {
    let (mut pool, now) = pool(1);
    pool.wake(now);
    pool.poll_requests(now);
    pool.probe_all_ok(now);
    assert_eq!(pool.returns_at(now), None, "it accepts calls");
    pool.take_down(now, 0);
    assert_eq!(pool.returns_at(now), Some(now + ms(50) + S), "new evidence is checked soon");
    assert_eq!(pool.poll_requests(now + ms(50)).due.len(), 1);
    assert_eq!(pool.returns_at(now + ms(60)), Some(now + ms(60) + S), "the probe is not answered yet");
    pool.observe_at(now + ms(70), 0, Observation::ConnectRefused);
    let next = pool.returns_at(now + ms(70)).unwrap() - (now + ms(50) + S);
    assert!((ms(800)..=S).contains(&next), "{next:?}");
    pool.set_members(now + S, &[]);
    assert_eq!(pool.returns_at(now + S), None);
}

#[test]
fn return_of_a_replica_whose_trial_failed_is_expected_after_its_pause() {
    let (mut pool, now) = pool(4);
    pool.probe_all_ok(now);
    (0..5).for_each(|_| pool.fault(now, 0, Fault::Broke));
    assert_eq!(pool.returns_at(now), Some(now + S));
    pool.observe_at(now, 0, Observation::ProbeOk);
    pool.fault(now, 0, Fault::Broke);
    assert_eq!(pool.returns_at(now), Some(now + 3 * S), "a probe counts after 2 s");
    pool.observe_at(now + ms(1_900), 0, Observation::ProbeOk);
    assert!(!pool.eligible(now + ms(1_900)).contains(0));
    pool.observe_at(now + 2 * S, 0, Observation::ProbeOk);
    assert!(pool.eligible(now + 2 * S).contains(0));
    let (mut pool, now) = with(4, no_probes());
    pool.fault(now, 0, Fault::ConnectRefused);
    assert_eq!(pool.returns_at(now), Some(now + S), "time alone opens a trial");
}

#[test]
fn replica_that_is_down_or_has_left_counts_as_down() {
    let (mut pool, now) = pool(2);
    pool.probe_all_ok(now);
    let ids: Vec<ReplicaId> = pool.view(now).iter().map(|replica| replica.id).collect();
    let call = pool.on_sent(now, 1, None, work(1)).unwrap();
    pool.set_members(now, &members(1));
    assert!(!pool.is_down(ids[0]) && !pool.is_down(ids[1]), "it drains, and answers");
    pool.take_down(now, 1);
    assert_eq!(pool.state(now, 1), "draining");
    assert!(pool.is_down(ids[1]));
    assert_eq!(pool.on_ended(call), Some(1));
    assert!(pool.is_down(ids[1]), "it is not there any more");
}

#[test]
fn request_without_a_slot_goes_to_a_busy_replica() {
    let (mut pool, now) = pool(2);
    pool.probe_all_ok(now);
    pool.take_down(now, 0);
    assert_eq!(pool.pick_without_slot(now).unwrap().id, ReplicaId(2));
    pool.fault(now, 1, Fault::Full(None));
    assert!(pool.eligible(now).is_empty());
    assert_eq!(pool.pick_without_slot(now).unwrap().id, ReplicaId(2), "it only asked to be left alone");
    pool.take_down(now, 1);
    assert!(pool.pick_without_slot(now).is_none());
}

#[test]
fn replica_with_failing_probes_goes_down() {
    let (mut pool, now) = pool(4);
    pool.probe_all_ok(now);
    pool.observe_at(now, 0, Observation::ProbeFailed);
    assert_eq!(pool.state(now, 0), "suspect");
    pool.observe_at(now + ms(250), 0, Observation::ProbeFailed);
    pool.observe_at(now + 2 * S, 0, Observation::ProbeFailed);
    assert_eq!(pool.state(now + 2 * S, 0), "down");
    assert_eq!(pool.take_stranded(), ReplicaSet::one(0));
}

#[test]
fn restarted_process_has_an_empty_cache() {
    let (mut pool, now) = pool(4);
    let same = wants(&[1, 2]);
    let mut call = pool.on_sent(now, 2, Some(&same), work(4_000)).unwrap();
    pool.on_first_token(now, &mut call);
    pool.on_ended(call);
    assert!(pool.candidates(now, Some(&same), work(4_000), ReplicaSet::one(2))[0].cached > 3_000);
    pool.probe_all_ok(now);
    pool.take_down(now, 2);
    assert_eq!(pool.candidates(now, Some(&same), work(4_000), ReplicaSet::one(2))[0].cached, 0);
    let name = pool.replica(2).map(|replica| replica.load.cache.name);
    (0..5).for_each(|_| pool.observe_at(now, 2, Observation::ConnectRefused));
    assert_eq!(pool.replica(2).map(|replica| replica.load.cache.name), name, "it ends once");
}

/// Two of three replicas fail each call at once, and would be idle all the time.
#[test]
fn replicas_that_fail_each_call_are_ejected_beyond_half_of_the_pool() {
    let (mut pool, now) = pool(3);
    pool.probe_all_ok(now);
    for _ in 0..5 {
        (0..3).for_each(|at| if at == 0 { pool.accept(now, at) } else { pool.fault(now, at, Fault::Broke) });
    }
    assert_eq!(pool.eligible(now), ReplicaSet::one(0));
    // They return by a trial, like any other replica.
    pool.probe_all_ok(now);
    (1..3).for_each(|at| assert_eq!(pool.state(now, at), "trial"));
    (1..3).for_each(|at| pool.fault(now, at, Fault::Broke));
    pool.probe_all_ok(now + S);
    assert_eq!(pool.eligible(now + S), ReplicaSet::one(0), "the next trial is later");
    // Without a healthy replica, they are better than nothing.
    pool.take_down(now + S, 0);
    assert_eq!(pool.eligible(now + S).len(), 1);
}

#[test]
fn replicas_that_accept_some_calls_are_ejected_up_to_half_of_the_pool() {
    let (mut pool, now) = pool(3);
    for _ in 0..5 {
        (0..3).for_each(|at| pool.accept(now, at));
        (1..3).for_each(|at| pool.fault(now, at, Fault::Broke));
    }
    assert_eq!((pool.state(now, 1), pool.state(now, 2)), ("suspect", "suspect"));
    assert_eq!(pool.eligible(now).len(), 2);
}
