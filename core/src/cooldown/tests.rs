use super::*;
use crate::testing::epoch;

const LIMIT: usize = 64;

fn secs(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

/// Twenty successes a second for ten seconds.
fn healthy(start: Instant) -> (Cooldown, Instant) {
    let mut target = Cooldown::default();
    for k in 0..200 {
        target.succeeded(start + secs(f64::from(k) * 0.05), target.epoch(), LIMIT);
    }
    (target, start + secs(10.0))
}

/// Admits everything that the policy lets in over a time, as a pump would, and says when.
fn let_in(target: &mut Cooldown, from: Instant, until: Instant) -> Vec<Duration> {
    let mut now = from;
    let mut times = Vec::new();
    while now < until {
        match target.ready(now, LIMIT) {
            Ok(()) => {
                target.admitted(now, false);
                times.push(now - from);
                assert!(times.len() < 10_000);
            }
            Err(Some(at)) => now = at.max(now + Duration::from_nanos(1)),
            Err(None) => break,
        }
    }
    times
}

#[test]
fn a_retry_after_is_a_floor_and_jitter_lies_above_it() {
    for jitter in [0.0, 0.5, 0.999] {
        let (mut target, now) = healthy(epoch());
        let epoch = target.epoch();
        assert_eq!(target.failed(now, 1, Failure::Other, epoch, Some(secs(3.0)), jitter), Hold::CoolDown);
        let until = target.until().expect("cooling");
        assert!(until >= now + secs(3.0) && until <= now + secs(3.4));
        assert_eq!(target.ready(until - secs(0.001), LIMIT), Err(Some(until)));
        assert_eq!(target.ready(until, LIMIT), Ok(()));
    }
}

#[test]
fn a_shorter_retry_after_never_shortens_a_longer_one() {
    let (mut target, now) = healthy(epoch());
    let before = target.epoch();
    target.failed(now, 1, Failure::Other, before, Some(secs(30.0)), 0.0);
    let until = target.until();
    target.failed(now, 2, Failure::Other, before, Some(secs(1.0)), 0.0);
    assert_eq!(target.until(), until);
    target.failed(now, 3, Failure::Other, before, Some(secs(60.0)), 0.0);
    assert!(target.until() > until);
}

#[test]
fn one_probe_goes_first_and_its_failure_cools_again() {
    let (mut target, now) = healthy(epoch());
    target.failed(now, 1, Failure::Other, target.epoch(), Some(secs(1.0)), 0.0);
    let after = now + secs(1.1);
    assert_eq!(target.ready(after, LIMIT), Ok(()));
    target.admitted(after, false);
    assert!(target.ready(after, LIMIT).is_err(), "the second waits for the probe");
    let probe = target.epoch();
    assert_ne!(target.failed(after + secs(0.01), 2, Failure::Other, probe, None, 0.0), Hold::No);
    assert_eq!(target.state(), State::Cooling);
    assert_ne!(target.epoch(), probe);
}

#[test]
fn a_cancelled_probe_is_replaced() {
    let (mut target, now) = healthy(epoch());
    target.failed(now, 1, Failure::Other, target.epoch(), Some(secs(1.0)), 0.0);
    let after = now + secs(1.1);
    target.ready(after, LIMIT).expect("a probe");
    target.admitted(after, false);
    target.inconclusive(target.epoch());
    assert_eq!(target.ready(after, LIMIT), Ok(()));
}

#[test]
fn the_way_back_is_a_flow_at_the_old_rate() {
    let (mut target, now) = healthy(epoch());
    target.failed(now, 1, Failure::Other, target.epoch(), Some(secs(3.0)), 0.0);
    let after = now + secs(3.1);
    target.ready(after, LIMIT).expect("a probe");
    target.admitted(after, false);
    target.succeeded(after, target.epoch(), LIMIT);
    let times = let_in(&mut target, after, after + secs(2.0));
    let first = times.iter().filter(|at| **at < secs(1.0)).count();
    let second = times.len() - first;
    assert!((20..=30).contains(&first), "{first} in the first second, steady is 20");
    assert!(second > first, "and more in the second: {second}");
}

#[test]
fn a_ramp_that_nobody_used_is_not_saved_up_for_a_herd() {
    let (mut target, now) = healthy(epoch());
    target.failed(now, 1, Failure::Other, target.epoch(), Some(secs(1.0)), 0.0);
    let after = now + secs(1.1);
    target.ready(after, LIMIT).expect("a probe");
    target.admitted(after, false);
    target.succeeded(after, target.epoch(), LIMIT);
    // Two seconds of silence at 20 a second, rising to 40: a burst then gets the next second's worth, not that of three.
    let burst = let_in(&mut target, after + secs(2.0), after + secs(3.0));
    assert!((35..=65).contains(&burst.len()), "{}", burst.len());
    assert!(burst.iter().filter(|at| **at < secs(0.1)).count() <= 10);
}

#[test]
fn a_probe_that_hangs_is_taken_as_accepted() {
    let (mut target, now) = healthy(epoch());
    target.failed(now, 1, Failure::Other, target.epoch(), Some(secs(1.0)), 0.0);
    let after = now + secs(1.1);
    target.ready(after, LIMIT).expect("a probe");
    target.admitted(after, false);
    assert_eq!(target.ready(after + MOST_PATIENCE - secs(0.001), LIMIT), Err(Some(after + MOST_PATIENCE)));
    assert!(target.ready(after + MOST_PATIENCE, LIMIT).is_err(), "the probe was the first of the ramp");
    assert_eq!(target.state(), State::Ramping);
}

#[test]
fn patience_with_a_probe_follows_how_fast_the_last_one_failed() {
    for (took, patience) in [(0.01, LEAST_PATIENCE), (0.1, secs(0.4)), (5.0, MOST_PATIENCE)] {
        let (mut target, now) = healthy(epoch());
        target.failed(now, 1, Failure::Other, target.epoch(), Some(secs(1.0)), 0.0);
        let first = now + secs(1.1);
        target.ready(first, LIMIT).expect("a probe");
        target.admitted(first, false);
        target.failed(first + secs(took), 2, Failure::Other, target.epoch(), None, 0.0);
        let second = target.until().expect("cooling");
        target.ready(second, LIMIT).expect("a probe");
        target.admitted(second, false);
        assert_eq!(target.ready(second, LIMIT), Err(Some(second + patience)));
    }
}

#[test]
fn the_probe_counts_as_the_first_of_the_ramp() {
    let mut target = Cooldown::default();
    for k in 0..20 {
        target.succeeded(epoch() + secs(f64::from(k)), target.epoch(), LIMIT);
    }
    let now = epoch() + secs(20.0);
    target.failed(now, 1, Failure::Other, target.epoch(), Some(secs(3.0)), 0.0);
    let after = now + secs(3.1);
    target.ready(after, LIMIT).expect("a probe");
    target.admitted(after, false);
    target.succeeded(after, target.epoch(), LIMIT);
    let next = target.ready(after, LIMIT).expect_err("one a second was steady").expect("a time");
    assert!((secs(0.7)..secs(1.0)).contains(&(next - after)), "{:?}", next - after);
}

#[test]
fn an_outage_needs_three_different_calls_and_an_earlier_success() {
    let (mut target, now) = healthy(epoch());
    let e = target.epoch();
    for _ in 0..10 {
        assert_eq!(
            target.failed(now, 1, Failure::Other, e, None, 0.0),
            Hold::No,
            "one poisoned call is no outage"
        );
    }
    assert_eq!(target.failed(now, 2, Failure::Other, e, None, 0.0), Hold::No);
    assert_eq!(target.failed(now, 3, Failure::Other, e, None, 0.0), Hold::Outage);

    let mut never = Cooldown::default();
    for call in 0..10 {
        assert_eq!(
            never.failed(now, call, Failure::Other, never.epoch(), None, 0.0),
            Hold::No,
            "a mistyped URL is no outage"
        );
    }
}

#[test]
fn a_target_that_only_ever_said_that_it_has_no_room_is_waited_for() {
    let mut new = Cooldown::default();
    let (now, e) = (epoch(), new.epoch());
    for _ in 0..5 {
        assert_eq!(
            new.failed(now, 1, Failure::Unread { worth_waiting: true }, e, None, 0.0),
            Hold::No,
            "one call alone is told"
        );
    }
    assert_eq!(new.failed(now, 2, Failure::Unread { worth_waiting: true }, e, None, 0.0), Hold::No);
    assert_eq!(new.failed(now, 3, Failure::Unread { worth_waiting: true }, e, None, 0.0), Hold::Outage);
}

#[test]
fn what_a_working_target_turns_away_unread_bears_witness_each_time() {
    for failure in [Failure::Unread { worth_waiting: true }, Failure::Unread { worth_waiting: false }] {
        let (mut target, now) = healthy(epoch());
        let e = target.epoch();
        let holds: Vec<_> = (0..3).map(|_| target.failed(now, 1, failure, e, None, 0.0)).collect();
        assert_eq!(holds, [Hold::No, Hold::No, Hold::Outage]);
    }
}

#[test]
fn probes_of_an_outage_stay_within_their_longest_interval_of_each_other() {
    let (mut target, mut now) = healthy(epoch());
    let end = now + secs(60.0);
    let e = target.epoch();
    for call in 0..3 {
        target.failed(now, call, Failure::Other, e, None, 0.9);
    }
    let mut probes = 0;
    while now < end {
        match target.ready(now, LIMIT) {
            Ok(()) => {
                target.admitted(now, false);
                assert_eq!(
                    target.failed(now, 100 + probes, Failure::Other, target.epoch(), None, 0.9),
                    Hold::Outage
                );
                probes += 1;
            }
            Err(at) => {
                let at = at.expect("a time");
                assert!(at - now <= LAST_INTERVAL);
                now = at;
            }
        }
    }
    assert!((35..=45).contains(&probes), "{probes}");
    target.ready(now, LIMIT).expect("a probe");
    target.admitted(now, false);
    target.succeeded(now, target.epoch(), LIMIT);
    let epoch = target.epoch();
    for call in [7, 8] {
        assert_eq!(
            target.failed(now, call, Failure::Other, epoch, None, 0.0),
            Hold::No,
            "a stray failure is no relapse"
        );
        assert_eq!(target.state(), State::Ramping);
    }
    assert_eq!(target.failed(now, 9, Failure::Other, epoch, None, 0.0), Hold::Outage);
}

#[test]
fn late_failures_of_what_was_in_flight_do_not_prolong_an_outage() {
    let (mut target, now) = healthy(epoch());
    let before = target.epoch();
    for call in 0..3 {
        target.failed(now, call, Failure::Other, before, None, 0.0);
    }
    let until = target.until();
    for call in 3..50 {
        assert_eq!(target.failed(now + secs(0.1), call, Failure::Other, before, None, 0.9), Hold::Outage);
    }
    assert_eq!(target.until(), until);
}

#[test]
fn wait_budgets_stand_still_while_closed() {
    let (mut target, now) = healthy(epoch());
    target.failed(now, 1, Failure::Other, target.epoch(), Some(secs(3.0)), 0.0);
    assert_eq!(target.closed(now + secs(2.0)), secs(2.0));
    target.ready(now + secs(3.5), LIMIT).expect("a probe");
    target.admitted(now + secs(3.5), false);
    target.succeeded(now + secs(4.0), target.epoch(), LIMIT);
    assert_eq!(target.closed(now + secs(9.0)), secs(4.0));
}

#[test]
fn an_absurd_retry_after_does_not_close_the_target_for_years() {
    for absurd in [Duration::from_secs(1_000_000_000), Duration::MAX] {
        let (mut target, now) = healthy(epoch());
        assert_eq!(target.failed(now, 1, Failure::Other, target.epoch(), Some(absurd), 0.9), Hold::No);
        assert_eq!(target.state(), State::Open);
    }
    let (mut target, now) = healthy(epoch());
    target.failed(now, 1, Failure::Other, target.epoch(), Some(LONGEST), 0.0);
    assert_eq!(target.until(), Some(now + LONGEST), "a day is believed");
}

/// A Retry-After that arrives late, from an attempt of an earlier epoch, closes an open target. What was in flight then is not the probe.
#[test]
fn a_cool_down_begun_by_a_late_failure_has_an_epoch_of_its_own() {
    let (mut target, now) = healthy(epoch());
    let first = target.epoch();
    target.failed(now, 1, Failure::Other, first, Some(secs(1.0)), 0.0);
    let back = now + secs(1.0);
    target.ready(back, LIMIT).expect("a probe");
    target.admitted(back, true);
    target.succeeded(back, target.epoch(), LIMIT);
    let open = back + RAMP;
    target.ready(open, LIMIT).expect("open");
    assert_eq!(target.state(), State::Open);
    let in_flight = target.epoch();

    target.failed(open, 2, Failure::Other, first, Some(secs(1.0)), 0.0);
    let probing = open + secs(1.0);
    target.ready(probing, LIMIT).expect("a probe");
    target.admitted(probing, false);
    target.inconclusive(in_flight);
    assert!(target.ready(probing, LIMIT).is_err(), "the probe is still out");
    target.succeeded(probing, in_flight, LIMIT);
    assert_eq!(target.state(), State::Probing, "an answer from before is not the probe's");
}
