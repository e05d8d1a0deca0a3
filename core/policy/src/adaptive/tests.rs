//! Tests of the adaptive limit with simulated upstreams and with random events.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::testing::epoch;
use tidegate_config::{AdaptiveConfig, Decrease, Detector, Percentile};

mod batching_engine;
mod growing_prompts;

const STREAM: CallKind = CallKind { input: 100, output: 100, streams: true };
const WHOLE: CallKind = CallKind { input: 100, output: 100, streams: false };

fn settings(objective_ms: Option<u64>) -> LimitSettings {
    LimitSettings {
        max: 64,
        objective: objective_ms.map(Duration::from_millis),
        latency: None,
        tpot: None,
        adaptive: AdaptiveConfig::default(),
    }
}

/// An adaptive limit under test, together with the simulated current time.
struct Run {
    limit: Limit,
    now: Instant,
}

impl Run {
    fn new(settings: &LimitSettings) -> Self {
        let now = epoch();
        Self { limit: Limit::new(settings, now), now }
    }

    fn pass(&mut self, ms: u64) {
        let end = self.now + Duration::from_millis(ms);
        while let Some(at) = self.limit.next_wake().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.limit.on_tick(self.now);
        }
        self.now = end;
    }

    /// Sends calls of `kind` until the limit is full or `most` calls were sent. Returns their
    /// samples.
    fn fill(&mut self, kind: CallKind, most: usize) -> Vec<Sample> {
        let mut sent = Vec::new();
        while sent.len() < most && self.limit.has_room() {
            sent.push(self.limit.on_sent(self.now, kind));
        }
        sent
    }

    /// Sends calls of `kind` until the limit is full or `most` calls were sent. After `ms`
    /// milliseconds, reports the first token and the end of each of these calls.
    fn round(&mut self, kind: CallKind, most: usize, ms: u64) {
        let mut calls = self.fill(kind, most);
        self.pass(ms);
        calls.iter_mut().for_each(|call| self.limit.on_first_token(self.now, call));
        calls
            .into_iter()
            .for_each(|call| self.limit.on_ended(self.now, call, Ended::Completed { output: 100 }));
    }

    fn causes(&self) -> Vec<DecisionCause> {
        self.limit.view(self.now).decisions.iter().map(|decision| decision.cause).collect()
    }
}

#[test]
fn limit_doubles_while_full_and_in_time() {
    let mut run = Run::new(&settings(Some(1_000)));
    run.round(STREAM, 100, 100);
    assert_eq!(run.limit.slots(), 16);
    run.round(STREAM, 3, 100);
    assert_eq!(run.limit.slots(), 16, "nobody pressed");
    (0..5).for_each(|_| run.round(STREAM, 100, 100));
    assert_eq!((run.limit.slots(), run.causes()), (64, vec![DecisionCause::SlowStart]));
}

/// Streams that began one after the other keep all slots, so no call awaits a first token when
/// many calls arrive.
#[test]
fn slots_of_long_streams_grow_to_what_fills_the_first_token_capacity() {
    let mut run = Run::new(&settings(None));
    let mut grow = |most| {
        let mut calls = run.fill(STREAM, most);
        run.pass(250);
        calls.iter_mut().for_each(|call| run.limit.on_first_token(run.now, call));
        run.limit.slots()
    };
    (0..8).for_each(|_| _ = grow(1));
    let slots: Vec<_> = (0..6).map(|_| grow(100)).collect();
    assert!(slots[5] > 40, "one slot for each call in time would have left 15: {slots:?}");
}

#[test]
fn overdue_call_counts_before_it_is_answered() {
    let mut run = Run::new(&settings(Some(1_000)));
    (0..5).for_each(|_| run.round(STREAM, 100, 100));
    let calls = run.fill(STREAM, 100);
    run.pass(999);
    assert_eq!(run.limit.view(run.now).cuts, 0);
    run.pass(2);
    let view = run.limit.view(run.now);
    assert_eq!(view.cuts, 1, "three that are late are enough, and all are of one epoch");
    assert_eq!(view.decisions.last().map(|last| last.awaiting), Some(run.limit.first_token_limit()));
    assert!(
        run.limit.first_token_limit() < 64 && view.limit >= 32,
        "a cut halves at the most: {}",
        view.limit
    );
    run.pass(60_000);
    assert_eq!(run.limit.view(run.now).cuts, 1, "what was sent before a cut is judged no more");
    calls.into_iter().for_each(|call| run.limit.on_ended(run.now, call, Ended::Cancelled));
}

#[test]
fn dead_band_keeps_the_limit() {
    let mut run = Run::new(&settings(Some(1_000)));
    (0..2).for_each(|_| run.round(STREAM, 100, 100));
    let before = run.limit.first_token_limit();
    (0..50).for_each(|_| run.round(STREAM, 100, 800));
    let after = run.limit.first_token_limit();
    assert!((before..before + 4).contains(&after), "{before} may await their first token, then {after}");
    assert_eq!(run.limit.view(run.now).cuts, 0);
}

#[test]
fn cancelled_calls_are_not_samples() {
    let mut run = Run::new(&settings(Some(1_000)));
    for _ in 0..100 {
        let calls = run.fill(STREAM, 100);
        run.pass(500);
        calls.into_iter().for_each(|call| run.limit.on_ended(run.now, call, Ended::Cancelled));
    }
    let view = run.limit.view(run.now);
    assert_eq!((view.limit, view.cuts, view.raises, view.awaiting), (8, 0, 0, 0));
}

#[test]
fn concurrency_429s_cut_to_accepted_calls() {
    let mut run = Run::new(&settings(Some(1_000)));
    (0..5).for_each(|_| run.round(STREAM, 100, 100));
    // An upstream that accepts 40 calls.
    let mut calls = run.fill(STREAM, 100);
    assert_eq!(calls.len(), 64);
    run.pass(20);
    for call in calls.drain(40..) {
        run.limit.on_ended(run.now, call, Ended::Limited { by_rate: false });
    }
    assert_eq!((run.limit.slots(), run.causes().last().copied()), (40, Some(DecisionCause::Refused)));
    calls.into_iter().for_each(|call| run.limit.on_ended(run.now, call, Ended::Cancelled));
}

#[test]
fn rate_429s_and_429s_at_low_load_do_not_cut() {
    let mut run = Run::new(&settings(Some(1_000)));
    (0..5).for_each(|_| run.round(STREAM, 100, 100));
    for call in run.fill(STREAM, 100) {
        run.limit.on_ended(run.now, call, Ended::Limited { by_rate: true });
    }
    for call in run.fill(STREAM, 3) {
        run.limit.on_ended(run.now, call, Ended::Limited { by_rate: false });
    }
    assert_eq!(run.limit.slots(), 64);
}

#[test]
fn second_overload_response_cuts() {
    for (how, cause) in
        [(Ended::Overloaded, DecisionCause::Overloaded), (Ended::TimedOut, DecisionCause::TimedOut)]
    {
        let mut run = Run::new(&settings(Some(1_000)));
        (0..5).for_each(|_| run.round(STREAM, 100, 100));
        let mut calls = run.fill(STREAM, 100);
        for _ in 0..2 {
            assert_eq!(run.limit.slots(), 64);
            run.limit.on_ended(run.now, calls.pop().unwrap(), how);
        }
        assert_eq!((run.limit.slots(), run.causes().last().copied()), (57, Some(cause)));
        calls.into_iter().for_each(|call| run.limit.on_ended(run.now, call, Ended::Failed));
    }
}

/// A caller with a deadline below the usual latency loses its own calls, not the slots of the
/// others.
#[test]
fn deadline_that_passes_before_similar_calls_are_answered_does_not_cut() {
    for (kind, objective) in [(STREAM, None), (STREAM, Some(1_000)), (WHOLE, None)] {
        let cuts_after = |ms| {
            let mut run = Run::new(&settings(objective));
            (0..10).for_each(|_| run.round(kind, 100, 600));
            for _ in 0..20 {
                let calls = run.fill(kind, 100);
                run.pass(ms);
                calls.into_iter().for_each(|call| run.limit.on_ended(run.now, call, Ended::DeadlinePassed));
            }
            run.limit.view(run.now).cuts
        };
        assert_eq!(cuts_after(400), 0, "{kind:?}, {objective:?}");
        assert!(cuts_after(4_000) > 0, "{kind:?}, {objective:?}: the upstream hangs");
    }
}

#[test]
fn slow_upstream_is_not_treated_as_congested_forever() {
    for objective in [None, Some(1_000)] {
        let mut run = Run::new(&settings(objective));
        (0..10).for_each(|_| run.round(STREAM, 100, 300));
        assert_eq!(run.limit.slots(), 64);
        let mut least = 64;
        for _ in 0..100 {
            run.round(STREAM, 100, 3_000);
            least = least.min(run.limit.slots());
        }
        assert!(least >= 8, "{objective:?}: it fell to {least}");
        (0..100).for_each(|_| run.round(STREAM, 100, 3_000));
        assert!(run.limit.slots() >= 32, "{objective:?}: it came back to {} only", run.limit.slots());
    }
}

#[test]
fn unary_calls_are_judged_by_output_length() {
    let mut run = Run::new(&settings(Some(1_000)));
    (0..10).for_each(|_| run.round(WHOLE, 100, 5_000));
    assert_eq!(run.limit.slots(), 64, "five seconds are what such an answer takes");
    assert_eq!(run.limit.view(run.now).awaiting, 0);
    run.round(WHOLE, 100, 30_000);
    assert_eq!(run.causes().last().copied(), Some(DecisionCause::Late));
}

#[test]
fn slow_tokens_cut_if_tpot_objective_is_set() {
    let tpot = Some(Duration::from_millis(50));
    let mut run = Run::new(&LimitSettings { tpot, ..settings(Some(1_000)) });
    let mut calls = run.fill(STREAM, 100);
    run.pass(100);
    calls.iter_mut().for_each(|call| run.limit.on_first_token(run.now, call));
    run.pass(99 * 80);
    calls.into_iter().for_each(|call| run.limit.on_ended(run.now, call, Ended::Completed { output: 100 }));
    assert!(run.causes().contains(&DecisionCause::Slow));
}

/// Tokens take 66 ms at any load, so no limit meets the objective of 60 ms.
#[test]
fn unreachable_tpot_objective_does_not_lower_the_limit() {
    let tpot = Some(Duration::from_millis(60));
    let mut run = Run::new(&LimitSettings { tpot, ..settings(Some(1_000)) });
    for _ in 0..40 {
        let mut calls = run.fill(STREAM, 40);
        run.pass(100);
        calls.iter_mut().for_each(|call| run.limit.on_first_token(run.now, call));
        run.pass(99 * 66);
        calls
            .into_iter()
            .for_each(|call| run.limit.on_ended(run.now, call, Ended::Completed { output: 100 }));
    }
    assert!(run.limit.slots() >= 40, "{}: {:?}", run.limit.slots(), run.causes());
}

/// As above, but a new call follows as soon as one ends, so that the limit is always full. It falls
/// to a quarter, where calls show what is usual, and returns.
#[test]
fn limit_that_is_always_full_recovers_from_an_unreachable_tpot_objective() {
    for output in [20, 40, 100, 300] {
        let tpot = Some(Duration::from_millis(60));
        let mut run = Run::new(&LimitSettings { max: 256, tpot, ..settings(Some(1_000)) });
        let mut calls: Vec<Sample> = Vec::new();
        let (began, took) = (run.now, Duration::from_millis(300 + (output - 1) * 66));
        while run.now < began + 60 * took {
            let idle = 40 - calls.len();
            calls.extend(run.fill(CallKind { output, ..STREAM }, idle));
            run.pass(50);
            let Run { limit, now } = &mut run;
            for call in calls.iter_mut().filter(|call| *now - call.sent.at >= Duration::from_millis(300)) {
                limit.on_first_token(*now, call);
            }
            for call in calls.extract_if(.., |call| *now - call.sent.at >= took) {
                limit.on_ended(*now, call, Ended::Completed { output });
            }
            let (slots, has_settled) = (limit.slots(), *now > began + 25 * took);
            assert!(slots >= if has_settled { 40 } else { 8 }, "{output}: {slots} slots, {:?}", run.causes());
        }
    }
}

#[test]
fn percentile_and_aimd_variants_work() {
    let percentile = Detector::Percentile(Percentile::default());
    for (decrease, after) in [(Decrease::Factor(0.5), 4), (Decrease::Step(2), 6)] {
        let adaptive = AdaptiveConfig { detector: percentile.clone(), decrease, ..AdaptiveConfig::default() };
        let mut run = Run::new(&LimitSettings { adaptive, ..settings(Some(1_000)) });
        assert_eq!(run.limit.first_token_limit(), 64, "they bound what is in flight alone");
        (0..3).for_each(|_| run.round(STREAM, 100, 2_000));
        assert_eq!(run.limit.slots(), after);
        run.pass(60_000);
        let calls = run.fill(STREAM, 1);
        (0..20).for_each(|_| run.round(STREAM, 1, 500));
        assert!(run.limit.slots() > after, "in flight is demand");
        calls.into_iter().for_each(|call| run.limit.on_ended(run.now, call, Ended::Cancelled));
    }
}

#[derive(Clone, Debug)]
enum Event {
    Sent(CallKind),
    First(usize),
    MarkUnobservable(usize),
    Ended(usize, Ended),
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let kind = (0u64..100_000, 0u64..10_000, any::<bool>())
        .prop_map(|(input, output, streams)| Event::Sent(CallKind { input, output, streams }));
    let how = prop_oneof![
        4 => (0u64..1_000).prop_map(|output| Ended::Completed { output }),
        1 => Just(Ended::Cancelled),
        1 => any::<bool>().prop_map(|by_rate| Ended::Limited { by_rate }),
        1 => Just(Ended::Overloaded),
        1 => Just(Ended::TimedOut),
        1 => Just(Ended::DeadlinePassed),
        1 => Just(Ended::Failed),
    ];
    prop_oneof![
        8 => kind,
        5 => any::<usize>().prop_map(Event::First),
        1 => any::<usize>().prop_map(Event::MarkUnobservable),
        5 => (any::<usize>(), how).prop_map(|(which, how)| Event::Ended(which, how)),
        4 => (0u64..5_000).prop_map(Event::Pass),
    ]
}

fn any_settings() -> impl Strategy<Value = LimitSettings> {
    let some = prop::option::of::<std::ops::Range<u64>>;
    let detector = prop_oneof![
        3 => Just(Detector::Exceedance),
        1 => Just(Detector::Percentile(Percentile::default())),
    ];
    let decrease = prop_oneof![
        3 => Just(Decrease::Served),
        1 => (0.1f64..0.99).prop_map(Decrease::Factor),
        1 => (1usize..100).prop_map(Decrease::Step),
    ];
    let adaptive = (1usize..40, 1usize..10, detector, decrease, some(1u64..20)).prop_map(
        |(start, min, detector, decrease, awaiting)| AdaptiveConfig {
            start,
            min,
            detector,
            decrease,
            awaiting: awaiting.map(|most| most as usize),
        },
    );
    (1usize..100, some(1u64..3_000), some(1u64..3_000), some(1u64..100), adaptive).prop_map(
        |(max, objective, latency, tpot, adaptive)| LimitSettings {
            max,
            objective: objective.map(Duration::from_millis),
            latency: latency.map(Duration::from_millis),
            tpot: tpot.map(Duration::from_millis),
            adaptive,
        },
    )
}

proptest! {
    #[test]
    fn invariants_hold_for_any_events(events in prop::collection::vec(event(), 1..400), settings in any_settings()) {
        let mut run = Run::new(&settings);
        let least = settings.adaptive.min.min(settings.max);
        let mut calls: Vec<(Sample, bool)> = Vec::new();
        for event in events {
            match event {
                // Observers also send calls beyond the limit.
                Event::Sent(kind) => calls.push((run.limit.on_sent(run.now, kind), kind.streams)),
                Event::First(which) if !calls.is_empty() => {
                    let which = which % calls.len();
                    run.limit.on_first_token(run.now, &mut calls[which].0);
                    calls[which].1 = false;
                }
                Event::MarkUnobservable(which) if !calls.is_empty() => {
                    let which = which % calls.len();
                    run.limit.mark_unobservable(run.now, &mut calls[which].0, 7);
                    calls[which].1 = false;
                }
                Event::Ended(which, how) if !calls.is_empty() => {
                    let (call, _) = calls.swap_remove(which % calls.len());
                    run.limit.on_ended(run.now, call, how);
                }
                Event::Pass(ms) => run.pass(ms),
                _ => {}
            }
            let view = run.limit.view(run.now);
            prop_assert!((least..=settings.max).contains(&view.limit), "{view:?}");
            prop_assert!(run.limit.first_token_limit() >= 1);
            prop_assert_eq!(view.awaiting, calls.iter().filter(|(_, awaits)| *awaits).count());
            prop_assert!(view.evidence.is_finite() && view.late.is_none_or(|late| (0.0..=1.0).contains(&late)));
            let free = calls.len() < view.limit && view.awaiting < run.limit.first_token_limit();
            prop_assert_eq!(run.limit.has_room(), free);
            run.limit.on_tick(run.now);
            prop_assert!(run.limit.next_wake().is_none_or(|wake| wake > run.now), "all that is due was done");
        }
        for pair in run.limit.view(run.now).decisions.windows(2) {
            prop_assert_eq!(pair[0].to, pair[1].from);
            prop_assert!(pair[1].cause.raises() == (pair[1].to > pair[1].from), "{pair:?}");
        }
        for (call, _) in calls {
            run.limit.on_ended(run.now, call, Ended::Cancelled);
        }
        prop_assert_eq!(run.limit.view(run.now).awaiting, 0);
        run.pass(1_000_000);
        prop_assert!(run.limit.next_wake().is_none(), "an idle limit wakes nobody");
    }
}

/// A simulated upstream without congestion: latencies are random and independent of load. Calls
/// arrive evenly and queue in front of the limit while it is full.
struct UncongestedUpstream {
    run: Run,
    rng: fastrand::Rng,
    kind: CallKind,
    /// Draws the time from the sending of a call to its first token or, if it does not stream, to
    /// its end, in seconds.
    takes: fn(&mut fastrand::Rng) -> f64,
    stream_s: f64,
    /// Deadline of the calls, in seconds after they are sent.
    deadline_s: f64,
    flying: Vec<(Instant, bool, Ended, Sample)>,
    queue: usize,
    served: usize,
}

/// Draws a number from a log-normal distribution with this median. `sigma` is the standard
/// deviation of its logarithm.
fn spread(rng: &mut fastrand::Rng, median: f64, sigma: f64) -> f64 {
    let normal = (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0;
    median * (sigma * normal).exp()
}

impl UncongestedUpstream {
    /// Creates an idle upstream whose streams take `stream_s` seconds after their first token. With
    /// 0, calls do not stream.
    fn new(
        objective_ms: Option<u64>,
        seed: u64,
        stream_s: f64,
        takes: fn(&mut fastrand::Rng) -> f64,
    ) -> Self {
        let settings = LimitSettings { max: 256, ..settings(objective_ms) };
        let rng = fastrand::Rng::with_seed(seed);
        let (run, kind) = (Run::new(&settings), if stream_s > 0.0 { STREAM } else { WHOLE });
        let deadline_s = f64::MAX;
        Self { run, rng, kind, takes, stream_s, deadline_s, flying: Vec::new(), queue: 0, served: 0 }
    }

    fn step(&mut self) {
        self.run.pass(10);
        let now = self.run.now;
        for (at, has_token, _, sample) in &mut self.flying {
            if *at <= now && !*has_token {
                self.run.limit.on_first_token(now, sample);
                *has_token = true;
                *at = now + Duration::from_secs_f64(self.stream_s);
            }
        }
        let over = |flight: &mut (Instant, bool, Ended, Sample)| flight.1 && flight.0 <= now;
        for (_, _, how, sample) in self.flying.extract_if(.., over) {
            self.run.limit.on_ended(now, sample, how);
            self.served += 1;
        }
        while self.queue > 0 && self.run.limit.has_room() {
            self.queue -= 1;
            let takes = (self.takes)(&mut self.rng);
            let is_in_time = takes <= self.deadline_s;
            let how = if is_in_time { Ended::Completed { output: 100 } } else { Ended::DeadlinePassed };
            let at = now + Duration::from_secs_f64(takes.min(self.deadline_s));
            self.flying.push((at, false, how, self.run.limit.on_sent(now, self.kind)));
        }
    }

    /// Runs the simulation for four minutes, in which `a_second` calls arrive per second. Returns
    /// the mean number of calls per second that ended in the last two minutes.
    fn rate(mut self, a_second: f64) -> f64 {
        let mut due = 0.0;
        for step in 0..24_000 {
            if step == 12_000 {
                self.served = 0;
            }
            due += a_second / 100.0;
            // At most the calls of one second wait. The others give up.
            self.queue = (self.queue + due as usize).min(a_second as usize);
            due = due.fract();
            self.step();
        }
        self.served as f64 / 120.0
    }
}

#[test]
fn inherent_variance_of_calls_without_streams_is_not_congestion() {
    type Upstream = (&'static str, fn(&mut fastrand::Rng) -> f64);
    let upstreams: [Upstream; 4] = [
        ("some spread", |rng| spread(rng, 0.7, 0.5)),
        ("much spread", |rng| 0.2 + spread(rng, 0.6, 1.0)),
        ("a twentieth uses a tool", |rng| spread(rng, 0.5, 0.3) + if rng.f64() < 0.05 { 5.0 } else { 0.0 }),
        ("a sixth is slow", |rng| if rng.f64() < 0.16 { 3.0 } else { 0.2 }),
    ];
    for (name, takes) in upstreams {
        for deadline_s in [f64::MAX, 2.5] {
            let upstream =
                |seed| UncongestedUpstream { deadline_s, ..UncongestedUpstream::new(None, seed, 0.0, takes) };
            let rates = [1, 2, 3, 4, 5, 6].map(|seed| upstream(seed).rate(40.0));
            assert!(rates.iter().all(|rate| *rate >= 36.0), "{name}, {deadline_s} s: {rates:?}");
        }
    }
}

#[test]
fn inherent_variance_is_not_congestion() {
    type Upstream = (&'static str, Option<u64>, fn(&mut fastrand::Rng) -> f64, f64);
    // The last number is the minimum of calls served per second if ten arrive per second. Growth is
    // slow if no call can meet the objective.
    let upstreams: [Upstream; 8] = [
        ("some spread", None, |rng| spread(rng, 0.5, 0.4), 9.0),
        ("much spread", None, |rng| spread(rng, 0.5, 0.7), 8.0),
        ("half of the objective", Some(1_000), |rng| spread(rng, 0.4, 0.5), 9.0),
        ("near the objective", Some(1_000), |rng| spread(rng, 0.8, 0.3), 9.0),
        ("a tenth is slow", Some(1_000), |rng| if rng.f64() < 0.1 { 3.0 } else { 0.2 }, 9.0),
        ("a sixth is slow", Some(1_000), |rng| if rng.f64() < 0.16 { 3.0 } else { 0.2 }, 9.0),
        ("it thinks", Some(1_000), |rng| spread(rng, 8.0, 0.4), 0.3),
        ("it thinks, and nobody minds", None, |rng| spread(rng, 8.0, 0.4), 9.0),
    ];
    for (name, objective, takes, least) in upstreams {
        let rates =
            [1, 2, 3, 4, 5, 6].map(|seed| UncongestedUpstream::new(objective, seed, 2.0, takes).rate(10.0));
        assert!(rates.iter().all(|rate| *rate >= least), "{name}: {rates:?}");
    }
}

/// Calls are sent to one of four queues at random, so late calls are overtaken in other queues.
#[test]
fn congestion_of_several_queues_is_noticed() {
    for seed in 1..=4 {
        let mut run = Run::new(&LimitSettings { max: 256, ..settings(Some(1_000)) });
        let mut rng = fastrand::Rng::with_seed(seed);
        // When each queue has served its calls, one after the other at 0.1 s each.
        let mut free_at = [run.now; 4];
        let mut flying: Vec<(Instant, Instant, Sample)> = Vec::new();
        let (mut late, mut of) = (0, 0);
        for step in 0..24_000 {
            run.pass(10);
            let now = run.now;
            for (at, sent_at, mut sample) in flying.extract_if(.., |(at, ..)| *at <= now) {
                run.limit.on_first_token(now, &mut sample);
                run.limit.on_ended(now, sample, Ended::Completed { output: 100 });
                if step >= 12_000 {
                    late += usize::from(at - sent_at > Duration::from_secs(1));
                    of += 1;
                }
            }
            for sample in run.fill(STREAM, 256) {
                let queue = rng.usize(..4);
                free_at[queue] = free_at[queue].max(now) + Duration::from_millis(100);
                flying.push((free_at[queue], now, sample));
            }
        }
        assert!(late < of / 20, "seed {seed}: {late} of {of} are late");
        assert!(of > 3_000, "seed {seed}: {of} of 4,800 are served");
    }
}

/// Calls that do not stream, with work that varies, at a server that runs ten at full speed. More
/// of them wait, or slow each other down.
#[test]
fn congestion_of_calls_without_streams_is_noticed() {
    let servers = [(true, 0.5, 1), (true, 1.0, 2), (false, 0.5, 3), (false, 1.0, 4)];
    for ((slows_down, sigma, seed), tells_work) in
        servers.into_iter().flat_map(|of| [(of, false), (of, true)])
    {
        let mut run = Run::new(&LimitSettings { max: 256, ..settings(None) });
        let mut rng = fastrand::Rng::with_seed(seed);
        // The seconds of work that each call has left, and its output tokens, in the order in which
        // the calls were sent.
        let mut flying: Vec<(f64, u64, Sample)> = Vec::new();
        let (mut in_flight, mut work) = (0, 0.0);
        for step in 0..30_000 {
            run.pass(10);
            let running = if slows_down { flying.len() } else { flying.len().min(10) };
            let speed = (10.0 / running.max(1) as f64).min(1.0);
            for (left, ..) in flying.iter_mut().take(running) {
                *left -= 0.01 * speed;
            }
            for (_, output, sample) in flying.extract_if(.., |(left, ..)| *left <= 0.0) {
                run.limit.on_ended(run.now, sample, Ended::Completed { output });
            }
            for sample in run.fill(WHOLE, 256) {
                let work = 0.2 + spread(&mut rng, 0.4, sigma);
                let output = if tells_work { (150.0 * work) as u64 } else { 100 };
                flying.push((work, output, sample));
            }
            if step >= 15_000 {
                in_flight += flying.len();
                work += 0.01 * speed * running as f64;
            }
        }
        let (in_flight, used) = (in_flight as f64 / 15_000.0, work / 1_500.0);
        assert!(in_flight < 50.0 && used > 0.9, "{slows_down}, {sigma}, {tells_work}: {in_flight}, {used}");
    }
}

#[test]
fn initial_queue_is_not_learned_as_baseline() {
    let mut run = Run::new(&LimitSettings { max: 256, ..settings(Some(1_000)) });
    let mut late = 0;
    // The upstream serves one call after the other, 0.1 s each, and the first hundred arrive at
    // once.
    let mut calls: Vec<_> = (0..100).map(|_| run.limit.on_sent(run.now, STREAM)).collect();
    for round in 0..400 {
        run.pass(100);
        let Some(mut call) = (!calls.is_empty()).then(|| calls.remove(0)) else { break };
        run.limit.on_first_token(run.now, &mut call);
        run.limit.on_ended(run.now, call, Ended::Completed { output: 100 });
        calls.extend(run.fill(STREAM, 1));
        late += usize::from(round > 200 && calls.len() > 10);
    }
    assert!(late < 20, "{late} of the last two hundred were behind ten others");
    calls.into_iter().for_each(|call| run.limit.on_ended(run.now, call, Ended::Cancelled));
}

#[test]
fn few_bad_samples_cut_idle_upstream_little() {
    for how in [Ended::Limited { by_rate: false }, Ended::Overloaded, Ended::TimedOut] {
        let mut run = Run::new(&settings(Some(1_000)));
        (0..10).for_each(|_| run.round(STREAM, 100, 100));
        run.pass(60_000);
        for _ in 0..5 {
            let calls = run.fill(STREAM, 3);
            calls.into_iter().for_each(|call| run.limit.on_ended(run.now, call, how));
            run.pass(10_000);
        }
        assert!(run.limit.slots() >= 8, "{how:?}: {}", run.limit.slots());
    }
}

/// Whether the calls to the simulated engine stream, do not stream, or alternate.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answers {
    Streamed,
    Whole,
    Mixed,
}

/// Runs a limit against a simulated engine with an endless backlog of calls. The engine runs
/// `places` calls at the same time, first come first served. It runs each for 1.05 s, with the
/// first token after 0.05 s. The other calls that the limit permits wait in the engine.
///
/// Returns the mean number of calls in flight over the second half of `seconds`. Checks that each
/// counted cut lowered the slots or the first-token limit.
fn mean_in_flight(settings: &LimitSettings, answers: Answers, places: usize, seconds: u64) -> f64 {
    const STEP: u64 = 10;
    let mut run = Run::new(settings);
    let (mut queue, mut running) = (std::collections::VecDeque::new(), Vec::new());
    let (mut sum, mut number) = (0, 0);
    let mut before = (run.limit.view(run.now).cuts, run.limit.slots(), run.limit.first_token_limit());
    let mut check = |run: &Run| {
        let limit = &run.limit;
        let after = (limit.view(run.now).cuts, limit.slots(), limit.first_token_limit());
        let lowered = after.1 < before.1 || after.2 < before.2;
        assert!(after.0 == before.0 || lowered, "{answers:?}: a cut from {before:?} to {after:?}");
        before = after;
    };
    for at in (0..seconds * 1_000).step_by(STEP as usize) {
        while run.limit.has_room() {
            number += 1;
            let streams = answers == Answers::Streamed || answers == Answers::Mixed && number % 2 == 0;
            queue.push_back(run.limit.on_sent(run.now, CallKind { streams, ..STREAM }));
            check(&run);
        }
        while running.len() < places
            && let Some(call) = queue.pop_front()
        {
            running.push((at, call));
        }
        let end = run.now + Duration::from_millis(STEP);
        if let Some(wake) = run.limit.next_wake().filter(|wake| *wake <= end) {
            run.limit.on_tick(run.now.max(wake));
            check(&run);
        }
        run.now = end;
        for (since, call) in &mut running {
            if at - *since == 50 {
                run.limit.on_first_token(run.now, call);
                check(&run);
            }
        }
        while let Some(ended) = running.iter().position(|(since, _)| at - since >= 1_050) {
            run.limit.on_ended(run.now, running.swap_remove(ended).1, Ended::Completed { output: 100 });
            check(&run);
        }
        sum += if at >= seconds * 500 { queue.len() + running.len() } else { 0 };
    }
    sum as f64 / (seconds * 500 / STEP) as f64
}

/// Expects between one and one and a half times as many calls in flight as the engine runs at the
/// same time, within a further factor of 1.5. Calls that wait in the engine for up to half a call's
/// latency still meet the objective.
///
/// An engine that runs a quarter of the initial limit is tested with the percentile detector only,
/// because the other detector learns its initial latency as the baseline.
#[test]
fn each_detector_and_decrease_finds_engine_capacity() {
    let percentile = Detector::Percentile(Percentile::default());
    let mut missed = Vec::new();
    for places in [2, 4, 16] {
        for detector in [Detector::Exceedance, percentile.clone()] {
            for decrease in [Decrease::Served, Decrease::Factor(0.7), Decrease::Step(2)] {
                for answers in [Answers::Streamed, Answers::Whole, Answers::Mixed] {
                    let adaptive =
                        AdaptiveConfig { detector: detector.clone(), decrease, ..AdaptiveConfig::default() };
                    let settings = LimitSettings {
                        latency: Some(Duration::from_millis(1_600)),
                        adaptive,
                        ..settings(Some(550))
                    };
                    if places == 2 && detector == Detector::Exceedance {
                        continue;
                    }
                    let mean = mean_in_flight(&settings, answers, places, 600);
                    let right = places as f64..=1.5 * places as f64;
                    if mean < right.start() / 1.5 || mean > right.end() * 1.5 {
                        missed.push(format!("{places} {detector:?} {decrease:?} {answers:?}: {mean}"));
                    }
                }
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
