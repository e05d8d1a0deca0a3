use super::*;
use crate::testing::epoch;

const LIMIT: usize = 64;

fn secs(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

/// Returns the state that the last event left, whatever time has passed since.
fn recorded_state(target: &Cooldown) -> CooldownState {
    match target.phase {
        Phase::Open => CooldownState::Open,
        Phase::Cooling { .. } => CooldownState::Cooling,
        Phase::Probing { .. } => CooldownState::Probing,
        Phase::Ramping { .. } => CooldownState::Ramping,
    }
}

/// Returns an attempt of the current epoch sent at `sent`, of a call that has not failed before.
fn at(target: &Cooldown, sent: Instant) -> Attempt {
    Attempt { epoch: target.epoch, sent, has_failed: false, in_flight: 1, follows_outage: false }
}

/// Returns a target at which three calls failed, each `took` seconds after it was sent, and the
/// time of these failures. They start an outage.
fn down(took: f64) -> (Cooldown, Instant) {
    let (mut target, sent) = healthy(epoch());
    let (attempt, now) = (at(&target, sent), sent + secs(took));
    for call in 0..3 {
        target.on_failure(now, call, Failure::Other, attempt, None, 0.0);
    }
    assert_eq!(recorded_state(&target), CooldownState::Cooling);
    (target, now)
}

/// Advances `now` until the target is ready for an attempt, and admits the attempt. `has_failed` is
/// as in [`Attempt::has_failed`].
fn next(target: &mut Cooldown, mut now: Instant, has_failed: bool) -> Attempt {
    while let Err(due) = target.ready(now, LIMIT, has_failed) {
        assert!(due > now);
        now = due;
    }
    target.admit(now, has_failed, 1, false)
}

/// Returns a target with 20 successes per second for ten seconds from `start`, and the end of that
/// time.
fn healthy(start: Instant) -> (Cooldown, Instant) {
    let mut target = Cooldown::default();
    for k in 0..200 {
        let at_once = start + secs(f64::from(k) * 0.05);
        target.on_success(at_once, at(&target, at_once), LIMIT);
    }
    (target, start + secs(10.0))
}

/// Admits each attempt between two times as soon as it is allowed. Returns when each was admitted,
/// as time since `from`.
fn let_in(target: &mut Cooldown, from: Instant, until: Instant) -> Vec<Duration> {
    let mut now = from;
    let mut times = Vec::new();
    while now < until {
        match target.ready(now, LIMIT, false) {
            Ok(()) => {
                target.admit(now, false, 1, false);
                times.push(now - from);
                assert!(times.len() < 10_000);
            }
            Err(at) => now = at.max(now + Duration::from_nanos(1)),
        }
    }
    times
}

#[test]
fn jitter_is_added_to_retry_after() {
    for jitter in [0.0, 0.5, 0.999] {
        let (mut target, now) = healthy(epoch());
        let attempt = at(&target, now);
        assert_eq!(
            target.on_failure(now, 1, Failure::Other, attempt, Some(secs(3.0)), jitter),
            RetryPath::AfterCoolDown
        );
        let until = target.until().expect("cooling");
        assert!(until >= now + secs(3.0) && until <= now + secs(3.4));
        assert_eq!(target.ready(until - secs(0.001), LIMIT, false), Err(until));
        assert_eq!(target.ready(until, LIMIT, false), Ok(()));
    }
}

#[test]
fn shorter_retry_after_does_not_shorten_a_longer_one() {
    let (mut target, now) = healthy(epoch());
    let before = at(&target, now);
    target.on_failure(now, 1, Failure::Other, before, Some(secs(30.0)), 0.0);
    let until = target.until();
    target.on_failure(now, 2, Failure::Other, before, Some(secs(1.0)), 0.0);
    assert_eq!(target.until(), until);
    target.on_failure(now, 3, Failure::Other, before, Some(secs(60.0)), 0.0);
    assert!(target.until() > until);
}

#[test]
fn failed_probe_starts_another_cool_down() {
    let (mut target, now) = healthy(epoch());
    target.on_failure(now, 1, Failure::Other, at(&target, now), Some(secs(1.0)), 0.0);
    let after = now + secs(1.1);
    assert_eq!(target.ready(after, LIMIT, false), Ok(()));
    target.admit(after, false, 1, false);
    assert!(target.ready(after, LIMIT, false).is_err(), "the second waits for the probe");
    let probe = at(&target, after);
    assert_ne!(
        target.on_failure(after + secs(0.01), 2, Failure::Other, probe, None, 0.0),
        RetryPath::Backoff
    );
    assert_eq!(recorded_state(&target), CooldownState::Cooling);
    assert_ne!(target.epoch, probe.epoch);
}

#[test]
fn cancelled_probe_is_replaced() {
    let (mut target, now) = healthy(epoch());
    target.on_failure(now, 1, Failure::Other, at(&target, now), Some(secs(1.0)), 0.0);
    let after = now + secs(1.1);
    target.ready(after, LIMIT, false).expect("a probe");
    target.admit(after, false, 1, false);
    target.on_cancelled(at(&target, after));
    assert_eq!(target.ready(after, LIMIT, false), Ok(()));
}

#[test]
fn ramp_starts_at_the_previous_rate() {
    let (mut target, now) = healthy(epoch());
    target.on_failure(now, 1, Failure::Other, at(&target, now), Some(secs(3.0)), 0.0);
    let after = now + secs(3.1);
    target.ready(after, LIMIT, false).expect("a probe");
    target.admit(after, false, 1, false);
    target.on_success(after, at(&target, after), LIMIT);
    let times = let_in(&mut target, after, after + secs(2.0));
    let first = times.iter().filter(|at| **at < secs(1.0)).count();
    let second = times.len() - first;
    assert!((20..=30).contains(&first), "{first} in the first second, steady is 20");
    assert!(second > first, "and more in the second: {second}");
}

#[test]
fn unused_ramp_capacity_is_not_saved() {
    let (mut target, now) = healthy(epoch());
    target.on_failure(now, 1, Failure::Other, at(&target, now), Some(secs(1.0)), 0.0);
    let after = now + secs(1.1);
    target.ready(after, LIMIT, false).expect("a probe");
    target.admit(after, false, 1, false);
    target.on_success(after, at(&target, after), LIMIT);
    // After two seconds of silence at 20 to 40 per second, a burst gets the next second's worth,
    // not that of three.
    let burst = let_in(&mut target, after + secs(2.0), after + secs(3.0));
    assert!((35..=65).contains(&burst.len()), "{}", burst.len());
    assert!(burst.iter().filter(|at| **at < secs(0.1)).count() <= 10);
}

#[test]
fn hanging_probe_counts_as_accepted_if_failures_were_fast() {
    let (mut target, now) = healthy(epoch());
    target.on_failure(now, 1, Failure::Other, at(&target, now), Some(secs(1.0)), 0.0);
    let sent = next(&mut target, now, false).sent;
    let accepted = sent + MIN_FAILURE_TIME * PATIENCE_FACTOR;
    assert_eq!(target.ready(accepted - secs(0.001), LIMIT, false), Err(accepted));
    assert!(target.ready(accepted, LIMIT, false).is_err(), "the probe was the first of the ramp");
    assert_eq!(recorded_state(&target), CooldownState::Ramping);
}

#[test]
fn patience_follows_the_last_failure_time() {
    for (took, patience) in [(0.01, MIN_PATIENCE), (0.1, secs(0.4)), (0.35, secs(1.4))] {
        let (mut target, now) = down(0.0);
        let first = next(&mut target, now, false);
        target.on_failure(first.sent + secs(took), 3, Failure::Other, first, None, 0.0);
        let second = next(&mut target, first.sent, false).sent;
        assert_eq!(target.ready(second, LIMIT, false), Err(second + patience));
    }
}

#[test]
fn hanging_target_takes_one_slot_per_interval_and_stays_closed() {
    for (took, interval) in [(5.0, MAX_PROBE_INTERVAL), (30.0, secs(3.75))] {
        let (mut target, start) = down(took);
        let (mut in_flight, mut sent): (Vec<(Instant, Attempt)>, Vec<Instant>) = Default::default();
        let mut now = start;
        for call in 10..200 {
            let due = target.ready(now, LIMIT, false).err();
            match in_flight.first().copied().filter(|(fails, _)| due.is_some_and(|due| *fails <= due)) {
                Some((fails, probe)) => {
                    in_flight.remove(0);
                    now = now.max(fails);
                    assert_eq!(
                        target.on_failure(now, call, Failure::Other, probe, None, 0.0),
                        RetryPath::AfterOutage
                    );
                }
                None => {
                    now = due.unwrap_or(now);
                    if target.ready(now, LIMIT, false).is_ok() {
                        in_flight.push((now + secs(took), target.admit(now, false, 1, false)));
                        sent.push(now);
                    }
                }
            }
            assert!(
                matches!(recorded_state(&target), CooldownState::Cooling | CooldownState::Probing),
                "it was opened"
            );
            assert!(in_flight.len() <= MAX_HANGING_PROBES as usize);
        }
        assert!(sent.len() > 50);
        // The first probe ends the cool-down.
        for pair in sent[1..].windows(2) {
            assert!(pair[1] - pair[0] >= interval, "{:?}", pair[1] - pair[0]);
        }
        // Any of the probes may be accepted.
        target.on_success(now, in_flight[0].1, LIMIT);
        assert_eq!(recorded_state(&target), CooldownState::Ramping);
        let epoch = target.epoch;
        for (call, (_, late)) in in_flight.iter().skip(1).enumerate() {
            assert_eq!(
                target.on_failure(now, call as u64, Failure::Other, *late, None, 0.0),
                RetryPath::Backoff
            );
        }
        assert_eq!(
            (recorded_state(&target), target.epoch),
            (CooldownState::Ramping, epoch),
            "what hung before says nothing"
        );
    }
}

#[test]
fn call_that_fails_again_does_not_hold_up_the_next_probe() {
    let (mut target, now) = down(0.1);
    let mut now = next(&mut target, now, true).sent;
    for k in 0..20 {
        let probe = at(&target, now);
        let retry = Attempt { has_failed: true, ..probe };
        let failed = now + secs(0.01);
        assert_eq!(
            target.on_failure(failed, k % 3, Failure::Other, retry, None, 0.0),
            RetryPath::AfterOutage
        );
        let waits = target.ready(failed, LIMIT, false).expect_err("cooling") - failed;
        assert!(waits <= MIN_PROBE_INTERVAL, "{waits:?} after {k}");
        now = next(&mut target, failed, true).sent;
    }
    target.on_success(now, at(&target, now), LIMIT);
    assert_eq!(recorded_state(&target), CooldownState::Open, "there was no outage");
    for call in 0..30 {
        let retry = target.admit(now, true, 1, false);
        assert_eq!(
            target.on_failure(now, call, Failure::Other, retry, None, 0.0),
            RetryPath::Backoff,
            "no new witness"
        );
    }
    assert_eq!(recorded_state(&target), CooldownState::Open);
}

#[test]
fn retries_probe_a_down_target_as_rarely_as_new_calls() {
    let (mut target, start) = down(0.1);
    let (mut now, mut probes) = (start, 0);
    while now < start + secs(60.0) {
        let retry = next(&mut target, now, true);
        now = retry.sent + secs(0.01);
        target.on_failure(now, probes, Failure::Other, retry, None, 0.9);
        probes += 1;
    }
    assert!((35..=45).contains(&probes), "{probes}");
}

#[test]
fn repeated_failures_do_not_close_a_target_accepted_by_silence() {
    let (mut target, now) = down(0.1);
    let probe = next(&mut target, now, false);
    let mut now = next(&mut target, probe.sent, false).sent;
    assert_eq!(recorded_state(&target), CooldownState::Ramping);
    for call in 0..30 {
        let retry = next(&mut target, now, true);
        now = retry.sent;
        target.on_failure(now, call, Failure::Other, retry, None, 0.0);
        assert_ne!(recorded_state(&target), CooldownState::Cooling);
    }
    target.on_failure(now, 99, Failure::Other, probe, None, 0.0);
    assert_eq!(recorded_state(&target), CooldownState::Cooling, "but by its probe");
}

/// A target that counts as accepting because its probe hangs admits a call that fails again and
/// again. The result [`RetryPath::Backoff`] makes that call back off between its attempts.
#[test]
fn call_that_fails_again_at_a_target_accepted_by_silence_backs_off() {
    let (mut target, now) = down(0.1);
    let probe = next(&mut target, now, false);
    let retry = next(&mut target, probe.sent + secs(60.0), true);
    assert_eq!(recorded_state(&target), CooldownState::Ramping);
    assert_eq!(target.on_failure(retry.sent, 0, Failure::Other, retry, None, 0.0), RetryPath::Backoff);
    let retry = next(&mut target, retry.sent + MAX_RAMP, true);
    assert_eq!(recorded_state(&target), CooldownState::Open);
    assert_eq!(target.on_failure(retry.sent, 0, Failure::Other, retry, None, 0.0), RetryPath::Backoff);
}

#[test]
fn ramp_after_few_calls_is_as_fast_as_after_none() {
    let gone = |successes: u32| {
        let mut target = Cooldown::default();
        for k in 0..successes {
            let now = epoch() + secs(f64::from(k));
            target.on_success(now, at(&target, now), LIMIT);
        }
        let now = epoch() + secs(9.0);
        target.on_failure(now, 1, Failure::Other, at(&target, now), Some(secs(1.0)), 0.0);
        let probe = next(&mut target, now, false);
        target.on_success(probe.sent, probe, LIMIT);
        let_in(&mut target, probe.sent, probe.sent + secs(5.0))
    };
    let silence = gone(0);
    assert!(silence.len() > 60);
    for trickle in 1..8 {
        assert_eq!(gone(trickle), silence, "{trickle} successes");
    }
    // A known rate is kept for one second at most.
    for (known, cold) in gone(9).iter().zip(&silence) {
        assert!(*known <= *cold + secs(1.001), "{known:?} after {cold:?}");
    }
}

#[test]
fn expired_late_retry_after_does_not_close_the_target() {
    let (mut target, sent) = healthy(epoch());
    let late = at(&target, sent);
    target.on_failure(sent + secs(0.1), 1, Failure::Other, at(&target, sent), Some(secs(2.0)), 0.0);
    let probe = next(&mut target, sent, false);
    let back = probe.sent + secs(0.1);
    let over = |target: &mut Cooldown| target.on_failure(back, 2, Failure::Other, late, Some(secs(2.0)), 0.0);
    assert_eq!((over(&mut target), recorded_state(&target)), (RetryPath::Backoff, CooldownState::Probing));
    target.on_success(back, probe, LIMIT);
    assert_eq!((over(&mut target), recorded_state(&target)), (RetryPath::Backoff, CooldownState::Ramping));
    let longer = target.on_failure(back, 3, Failure::Other, late, Some(secs(5.0)), 0.0);
    assert_eq!(longer, RetryPath::Backoff, "the call waits for all of it");
    assert_eq!(target.until(), Some(sent + secs(5.0)), "the target for what is left of it");
}

#[test]
fn probe_counts_as_first_call_of_the_ramp() {
    let mut target = Cooldown::default();
    for k in 0..20 {
        let now = epoch() + secs(f64::from(k));
        target.on_success(now, at(&target, now), LIMIT);
    }
    let now = epoch() + secs(20.0);
    target.on_failure(now, 1, Failure::Other, at(&target, now), Some(secs(3.0)), 0.0);
    let after = now + secs(3.1);
    target.ready(after, LIMIT, false).expect("a probe");
    target.admit(after, false, 1, false);
    target.on_success(after, at(&target, after), LIMIT);
    let next = target.ready(after, LIMIT, false).expect_err("one a second was steady");
    assert!((secs(0.7)..secs(1.0)).contains(&(next - after)), "{:?}", next - after);
}

#[test]
fn outage_is_probed_as_rarely_if_the_upstream_asks_for_no_delay() {
    for (failure, delay) in [(Failure::Limited, 0.0), (Failure::Other, 0.001), (Failure::Other, 0.1)] {
        let (mut target, start) = down(0.0);
        let (mut now, mut probes) = (start, 0);
        while now < start + secs(60.0) {
            let probe = next(&mut target, now, false);
            (now, probes) = (probe.sent + secs(0.005), probes + 1);
            let path = target.on_failure(now, probes + 3, failure, probe, Some(secs(delay)), 0.0);
            assert_eq!(path, RetryPath::AfterOutage);
        }
        assert!(probes <= 45, "{failure:?}, {delay} s: {probes} probes in a minute");
    }
}

#[test]
fn outage_needs_three_calls_and_an_earlier_success() {
    let (mut target, now) = healthy(epoch());
    let e = at(&target, now);
    for _ in 0..10 {
        assert_eq!(
            target.on_failure(now, 1, Failure::Other, e, None, 0.0),
            RetryPath::Backoff,
            "one poisoned call is no outage"
        );
    }
    assert_eq!(target.on_failure(now, 2, Failure::Other, e, None, 0.0), RetryPath::Backoff);
    assert_eq!(target.on_failure(now, 3, Failure::Other, e, None, 0.0), RetryPath::AfterOutage);

    let mut never = Cooldown::default();
    for call in 0..10 {
        assert_eq!(
            never.on_failure(now, call, Failure::Other, at(&never, now), None, 0.0),
            RetryPath::Backoff,
            "a mistyped URL is no outage"
        );
    }
}

#[test]
fn target_that_only_reported_overload_is_waited_for() {
    let mut new = Cooldown::default();
    let (now, e) = (epoch(), at(&new, epoch()));
    for _ in 0..5 {
        assert_eq!(
            new.on_failure(now, 1, Failure::Unread { worth_waiting: true }, e, None, 0.0),
            RetryPath::Backoff,
            "one call is one witness, however often it fails"
        );
    }
    assert_eq!(
        new.on_failure(now, 2, Failure::Unread { worth_waiting: true }, e, None, 0.0),
        RetryPath::Backoff
    );
    assert_eq!(
        new.on_failure(now, 3, Failure::Unread { worth_waiting: true }, e, None, 0.0),
        RetryPath::AfterOutage
    );
}

#[test]
fn each_unread_rejection_of_a_working_target_is_a_witness() {
    for failure in [Failure::Unread { worth_waiting: true }, Failure::Unread { worth_waiting: false }] {
        let (mut target, now) = healthy(epoch());
        let e = at(&target, now);
        let holds: Vec<_> = (0..3).map(|_| target.on_failure(now, 1, failure, e, None, 0.0)).collect();
        assert_eq!(holds, [RetryPath::Backoff, RetryPath::Backoff, RetryPath::AfterOutage]);
    }
}

#[test]
fn outage_probes_follow_within_the_maximum_interval() {
    let (mut target, mut now) = healthy(epoch());
    let end = now + secs(60.0);
    let e = at(&target, now);
    for call in 0..3 {
        target.on_failure(now, call, Failure::Other, e, None, 0.9);
    }
    let mut probes = 0;
    while now < end {
        match target.ready(now, LIMIT, false) {
            Ok(()) => {
                target.admit(now, false, 1, false);
                assert_eq!(
                    target.on_failure(now, 100 + probes, Failure::Other, at(&target, now), None, 0.9),
                    RetryPath::AfterOutage
                );
                probes += 1;
            }
            Err(at) => {
                assert!(at - now <= MAX_PROBE_INTERVAL);
                now = at;
            }
        }
    }
    assert!((35..=45).contains(&probes), "{probes}");
    target.ready(now, LIMIT, false).expect("a probe");
    target.admit(now, false, 1, false);
    target.on_success(now, at(&target, now), LIMIT);
    let epoch = at(&target, now);
    for call in [7, 8] {
        assert_eq!(
            target.on_failure(now, call, Failure::Other, epoch, None, 0.0),
            RetryPath::Backoff,
            "a stray failure is no relapse"
        );
        assert_eq!(recorded_state(&target), CooldownState::Ramping);
    }
    assert_eq!(target.on_failure(now, 9, Failure::Other, epoch, None, 0.0), RetryPath::AfterOutage);
}

#[test]
fn late_failures_of_earlier_attempts_do_not_prolong_an_outage() {
    let (mut target, now) = healthy(epoch());
    let before = at(&target, now);
    for call in 0..3 {
        target.on_failure(now, call, Failure::Other, before, None, 0.0);
    }
    let until = target.until();
    for call in 3..50 {
        assert_eq!(
            target.on_failure(now + secs(0.1), call, Failure::Other, before, None, 0.9),
            RetryPath::AfterOutage
        );
    }
    assert_eq!(target.until(), until);
}

#[test]
fn wait_budgets_are_paused_while_closed() {
    let (mut target, now) = healthy(epoch());
    target.on_failure(now, 1, Failure::Other, at(&target, now), Some(secs(3.0)), 0.0);
    assert_eq!(target.closed(now + secs(2.0)), secs(2.0));
    target.ready(now + secs(3.5), LIMIT, false).expect("a probe");
    target.admit(now + secs(3.5), false, 1, false);
    target.on_success(now + secs(4.0), at(&target, now + secs(4.0)), LIMIT);
    assert_eq!(target.closed(now + secs(9.0)), secs(4.0));
}

#[test]
fn absurd_retry_after_does_not_close_the_target() {
    for absurd in [Duration::from_secs(1_000_000_000), Duration::MAX] {
        let (mut target, now) = healthy(epoch());
        assert_eq!(
            target.on_failure(now, 1, Failure::Other, at(&target, now), Some(absurd), 0.9),
            RetryPath::Backoff
        );
        assert_eq!(recorded_state(&target), CooldownState::Open);
    }
    let (mut target, now) = healthy(epoch());
    target.on_failure(now, 1, Failure::Other, at(&target, now), Some(MAX_DELAY), 0.0);
    assert_eq!(target.until(), Some(now + MAX_DELAY), "a day is believed");
}

/// A Retry-After of an attempt of an earlier epoch arrives late and starts a cool-down of an open
/// target. The attempts that were in flight at that time are not probes of this cool-down.
#[test]
fn cool_down_begun_by_late_failure_has_its_own_epoch() {
    let (mut target, now) = healthy(epoch());
    let first = at(&target, now);
    target.on_failure(now, 1, Failure::Other, first, Some(secs(1.0)), 0.0);
    let back = now + secs(1.0);
    target.ready(back, LIMIT, false).expect("a probe");
    target.admit(back, false, 1, true);
    target.on_success(back, at(&target, back), LIMIT);
    let open = back + MAX_RAMP;
    target.ready(open, LIMIT, false).expect("open");
    assert_eq!(recorded_state(&target), CooldownState::Open);
    let in_flight = at(&target, open);

    target.on_failure(open, 2, Failure::Other, first, Some(open - now + secs(1.0)), 0.0);
    let probing = open + secs(1.0);
    target.ready(probing, LIMIT, false).expect("a probe");
    target.admit(probing, false, 1, false);
    target.on_cancelled(in_flight);
    assert!(target.ready(probing, LIMIT, false).is_err(), "the probe is still out");
    target.on_success(probing, in_flight, LIMIT);
    assert_eq!(recorded_state(&target), CooldownState::Probing, "an answer from before is not the probe's");
}

/// Returns a target in the ramp after an outage of three failures, and the current time.
fn ramping(failure: Failure) -> (Cooldown, Instant) {
    let (mut target, now) = healthy(epoch());
    let attempt = at(&target, now);
    for call in 0..3 {
        target.on_failure(now, call, failure, attempt, None, 0.0);
    }
    let after = target.until().expect("an outage");
    target.ready(after, LIMIT, false).expect("a probe");
    let probe = target.admit(after, false, 1, false);
    target.on_success(after, probe, LIMIT);
    assert_eq!(recorded_state(&target), CooldownState::Ramping);
    (target, after)
}

const UNREACHABLE: Failure = Failure::Unread { worth_waiting: false };

/// Admits an attempt while `in_flight` others are in flight, and reports a 429 if `rejected`,
/// otherwise a success.
fn exchange(target: &mut Cooldown, now: Instant, call: u64, in_flight: usize, rejected: bool) {
    let slots_bind = in_flight + 1 >= target.slots(LIMIT);
    let attempt = target.admit(now, false, in_flight + 1, slots_bind);
    if rejected {
        assert_eq!(target.on_failure(now, call, Failure::Limited, attempt, None, 0.0), RetryPath::Backoff);
    } else {
        target.on_success(now, attempt, LIMIT);
    }
}

#[test]
fn calls_rejected_in_a_ramp_lower_the_slots_to_the_accepted_ones() {
    let (mut target, now) = ramping(UNREACHABLE);
    exchange(&mut target, now, 2, 12, true);
    exchange(&mut target, now, 3, 14, true);
    assert_eq!(target.slots(LIMIT), 12);
    exchange(&mut target, now, 4, 11, false);
    assert!(target.is_open(), "the accepted slots are used, so the ramp is over");
    (0..12).for_each(|_| exchange(&mut target, now, 4, 11, false));
    assert_eq!(target.slots(LIMIT), 13, "a round of accepted calls adds a slot");
    exchange(&mut target, now, 5, 12, true);
    assert_eq!(target.slots(LIMIT), 12);
}

#[test]
fn all_slots_are_used_again_after_accepted_slots_were_free_for_long() {
    let (mut target, now) = ramping(UNREACHABLE);
    exchange(&mut target, now, 2, 12, true);
    let later = now + secs(10.0);
    exchange(&mut target, later, 3, 11, false);
    assert_eq!(target.slots(LIMIT), 12);
    exchange(&mut target, later + secs(9.0), 3, 5, false);
    exchange(&mut target, later + secs(10.1), 3, 11, false);
    assert_eq!(target.slots(LIMIT), LIMIT);
    exchange(&mut target, later + secs(10.2), 4, 20, true);
    assert_eq!(target.slots(LIMIT), LIMIT, "a 429 lowers nothing without a ramp");
}

#[test]
fn accepted_slots_stay_while_long_calls_use_them_all() {
    let (mut target, now) = ramping(UNREACHABLE);
    exchange(&mut target, now, 2, 12, true);
    exchange(&mut target, now, 3, 11, false);
    let later = now + secs(60.0);
    target.on_ended(later, 12);
    exchange(&mut target, later, 4, 11, false);
    assert_eq!(target.slots(LIMIT), 12);
    target.on_ended(later + secs(1.0), 5);
    exchange(&mut target, later + secs(10.1), 5, 11, false);
    assert_eq!(target.slots(LIMIT), LIMIT, "some slots were free for long");
}

#[test]
fn calls_sent_in_a_ramp_lower_the_slots_also_when_it_is_over() {
    let (mut target, now) = ramping(UNREACHABLE);
    let last = target.admit(now, false, LIMIT, true);
    assert!(target.is_open());
    target.on_failure(now, 2, Failure::Limited, last, None, 0.0);
    assert_eq!(target.slots(LIMIT), LIMIT - 1);
}

#[test]
fn calls_rejected_in_a_ramp_after_rejections_only_lower_no_slots() {
    let (mut target, now) = ramping(Failure::Limited);
    exchange(&mut target, now, 2, 12, true);
    assert_eq!(target.slots(LIMIT), LIMIT);
}
