//! Tests of adaptive limits in the scheduler: calls that await their first token, and calls that
//! the limit does not track.

use super::*;
use crate::adaptive::{self, Ended};
use tidegate_config::{AdaptiveConfig, PoolConfig, TargetConfig};

fn found(start: usize, awaiting: Option<usize>) -> SchedulerSettings {
    let config = AdaptiveConfig { start, awaiting, ..AdaptiveConfig::default() };
    let adaptive = adaptive::LimitSettings {
        max: 64,
        objective: Some(ms(500)),
        latency: None,
        tpot: None,
        adaptive: config,
    };
    SchedulerSettings { adaptive: Some(adaptive), ..settings(64) }
}

fn streaming(tenant: &str, now: Instant) -> Ticket {
    Ticket { streams: true, ..ticket(tenant, Lane::Standard, now) }
}

#[test]
fn first_token_admits_the_next_call() {
    let now = crate::testing::epoch();
    let mut scheduler = Scheduler::new(&found(8, Some(2)), now);
    let mut first = admit(&mut scheduler, now, &streaming("a", now));
    let second = admit(&mut scheduler, now, &streaming("a", now));
    let waits = queue(&mut scheduler, now, streaming("a", now), "third");
    assert_eq!(scheduler.explain(now, waits).unwrap().rule, Rule::FirstTokens);
    assert!(scheduler.next(now).is_none());
    let now = now + ms(100);
    scheduler.on_first_token(now, &mut first);
    let (who, third) = scheduler.next(now).expect("its turn");
    assert_eq!((who, scheduler.view(now).adaptive.unwrap().limit.awaiting), ("third", 2));
    // A repeated first token counts once.
    scheduler.on_first_token(now, &mut first);
    assert_eq!(scheduler.view(now).adaptive.unwrap().limit.awaiting, 2);
    [first, second, third].into_iter().for_each(|grant| scheduler.release(now, grant));
    assert_eq!(scheduler.view(now).adaptive.unwrap().limit.awaiting, 0);
}

#[test]
fn only_streamed_readable_answers_await_a_first_token() {
    let now = crate::testing::epoch();
    let mut scheduler = Scheduler::<()>::new(&found(8, Some(1)), now);
    let whole = admit(&mut scheduler, now, &ticket("a", Lane::Standard, now));
    assert_eq!(scheduler.view(now).adaptive.unwrap().limit.awaiting, 0);
    let mut sealed = admit(&mut scheduler, now, &streaming("a", now));
    queue(&mut scheduler, now, streaming("a", now), ());
    scheduler.mark_unobservable(now, &mut sealed);
    let (_, mut untold) = scheduler.next(now).expect("nobody awaits a token");
    scheduler.mark_unobservable(now, &mut untold);
    assert_eq!(scheduler.view(now).adaptive.unwrap().limit.awaiting, 0);
    [whole, sealed, untold].into_iter().for_each(|grant| scheduler.release(now, grant));
    assert_eq!(scheduler.view(now).in_flight, 0);
}

#[test]
fn fixed_limit_tracks_no_calls() {
    let now = crate::testing::epoch();
    let mut scheduler = Scheduler::<()>::new(&settings(2), now);
    let mut grant = admit(&mut scheduler, now, &streaming("a", now));
    assert!(!grant.is_tracked());
    scheduler.on_first_token(now, &mut grant);
    grant.outcome = Ended::Overloaded;
    scheduler.release(now, grant);
    assert!(scheduler.view(now).adaptive.is_none() && scheduler.take_limit_changes().is_empty());
}

#[test]
fn the_limit_of_a_pool_is_bounded_by_the_cap_of_a_replica() {
    let pool = PoolConfig { cap: 4, ..PoolConfig::default() };
    let target = TargetConfig { pool: Some(pool), ..TargetConfig::new("llama") };
    assert_eq!(SchedulerSettings::from(&target).adaptive.unwrap().max, 4);
}
