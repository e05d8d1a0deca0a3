//! Tests of the wait budgets that follow from a TTFT objective.

use super::*;
use crate::adaptive::Ended;
use crate::testing::epoch;
use tidegate_config::{AdaptiveConfig, LaneConfig, LimitConfig, TargetConfig};

/// Returns a target with one slot and an objective of one second.
fn target() -> TargetConfig {
    TargetConfig {
        cap: 1,
        limit: LimitConfig::Fixed,
        ttft: Some(ms(1_000)),
        predict: Predict::Off,
        ..TargetConfig::new("model")
    }
}

/// Returns how long a call of `lane` waits in vain at a target whose first tokens took
/// `first_token` milliseconds so far. `None`: it waits until its deadline.
fn wait_in_vain(target: &TargetConfig, first_tokens: &[u64], lane: Lane) -> Option<Duration> {
    let mut now = epoch();
    let mut scheduler = Scheduler::new(&SchedulerSettings::from(target), now);
    let stream = |now| Ticket { streams: true, ..ticket("tenant", Lane::Standard, now) };
    for took in first_tokens {
        let mut grant = admit(&mut scheduler, now, &stream(now));
        now += ms(*took);
        assert!(grant.is_tracked());
        scheduler.on_first_token(now, &mut grant);
        scheduler.release(now, grant);
    }
    let held = admit(&mut scheduler, now, &stream(now));
    queue(&mut scheduler, now, ticket("tenant", lane, now), ());
    let wake = scheduler.next_wake(now).unwrap();
    let expired = scheduler.expired(wake);
    assert_eq!(expired.len(), 1);
    drop(held);
    (expired[0].1.reason == Reason::WaitBudget).then(|| wake - now)
}

#[test]
fn objective_bounds_the_wait_by_what_the_upstream_leaves() {
    assert_eq!(wait_in_vain(&target(), &[], Lane::Standard), Some(ms(500)), "nothing was measured");
    let steady = wait_in_vain(&target(), &[100; 50], Lane::Standard).unwrap();
    assert!((ms(890)..=ms(900)).contains(&steady), "{steady:?}");
    let slow = wait_in_vain(&target(), &[800; 50], Lane::Standard).unwrap();
    assert!((ms(190)..=ms(200)).contains(&slow), "{slow:?}");
    let too_slow = wait_in_vain(&target(), &[3_000; 50], Lane::Standard);
    assert_eq!(too_slow, Some(ms(500)), "no wait is short enough");
    let uneven = wait_in_vain(&target(), &[20, 20, 20, 900, 20, 20, 20, 900, 20], Lane::Standard).unwrap();
    assert_eq!(uneven, ms(500), "the deviation takes half of the objective at most");
}

/// The objective is 1 s. Nothing is known about the spread of the first tokens after the first one.
#[test]
fn slow_first_token_within_the_objective_leaves_time_to_wait() {
    let waits = [400, 600, 1_100].map(|took| wait_in_vain(&target(), &[took], Lane::Standard).unwrap());
    assert!(waits.iter().all(|wait| *wait >= ms(100)), "{waits:?}");
    let just_in_time = wait_in_vain(&target(), &[980; 50], Lane::Standard).unwrap();
    assert_eq!(just_in_time, ms(125), "an eighth of the objective");
}

#[test]
fn configured_wait_and_batch_lane_are_not_bounded() {
    let with_wait = TargetConfig { wait: Some(ms(9_000)), ..target() };
    assert_eq!(wait_in_vain(&with_wait, &[], Lane::Standard), None, "the ticket has the wait");
    assert_eq!(wait_in_vain(&target(), &[], Lane::Batch), None);
    let mut of_lane = target();
    of_lane.lanes[Lane::Batch as usize] = LaneConfig { ttft: Some(ms(4_000)), ..LaneConfig::default() };
    assert_eq!(wait_in_vain(&of_lane, &[], Lane::Batch), Some(ms(2_000)));
}

/// Each answer ends after 10 s, and that of a stream has its first token then. The objective is 1
/// s.
#[test]
fn objective_bounds_the_wait_but_not_the_answer_of_calls_that_do_not_stream() {
    for streams in [false, true] {
        let limit = LimitConfig::Adaptive(AdaptiveConfig::default());
        let target = TargetConfig { cap: 64, limit, ..target() };
        let mut now = epoch();
        let mut scheduler = Scheduler::new(&SchedulerSettings::from(&target), now);
        let call = |now| Ticket { streams, ..ticket("tenant", Lane::Standard, now) };
        for _ in 0..20 {
            let grants: Vec<_> =
                std::iter::from_fn(|| scheduler.try_admit(now, &call(now)).expect("it may wait")).collect();
            queue(&mut scheduler, now, call(now), ());
            assert!(scheduler.expired(now + ms(499)).is_empty());
            assert_eq!(scheduler.expired(now + ms(500))[0].1.reason, Reason::WaitBudget);
            now += ms(10_000);
            for mut grant in grants {
                if streams {
                    scheduler.on_first_token(now, &mut grant);
                }
                grant.outcome = Ended::Completed { output: 0 };
                scheduler.release(now, grant);
            }
        }
        let limit = scheduler.view(now).adaptive.expect("it adapts").limit;
        assert_eq!(limit.cuts > 0, streams, "{limit:?}");
    }
}

#[test]
fn retries_are_not_bounded_by_the_objective() {
    let now = epoch();
    let mut scheduler = Scheduler::new(&SchedulerSettings::from(&target()), now);
    let first = admit(&mut scheduler, now, &ticket("tenant", Lane::Standard, now));
    let retry = Ticket { queue_tag: Some(first.queue_tag()), ..ticket("tenant", Lane::Standard, now) };
    queue(&mut scheduler, now, retry, ());
    assert!(scheduler.expired(now + ms(5_000)).is_empty());
    scheduler.release(now, first);
    assert!(scheduler.next(now + ms(5_000)).is_some());
}

#[test]
fn prediction_by_objective_leaves_the_upstream_its_time() {
    let target = TargetConfig { predict: Predict::Objective, wait: Some(ms(60_000)), ..target() };
    let mut now = epoch();
    let mut scheduler = Scheduler::new(&SchedulerSettings::from(&target), now);
    let stream = |now| Ticket { streams: true, wait: target.wait, ..ticket("tenant", Lane::Standard, now) };
    // Each call holds the slot for 150 ms, so that the sixth in the queue waits 0.9 s.
    let mut held = admit(&mut scheduler, now, &stream(now));
    for _ in 0..60 {
        queue(&mut scheduler, now, stream(now), ());
        now += ms(140);
        scheduler.on_first_token(now, &mut held);
        now += ms(10);
        scheduler.release(now, held);
        held = scheduler.next(now).unwrap().1;
    }
    let queued = (0..).find(|_| match scheduler.try_admit(now, &stream(now)) {
        Ok(admitted) => {
            assert!(admitted.is_none());
            scheduler.enqueue(now, stream(now), ());
            false
        }
        Err(refusal) => refusal.reason == Reason::PredictedWait,
    });
    // Predictions are one standard deviation below the mean.
    assert!(
        (6..=8).contains(&queued.unwrap()),
        "{queued:?} calls can be in time, and the 0.14 s of the upstream"
    );
}
