//! Simulations under constant overload: how much of the quota is used, and how many 429s occur.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::provider::{Announced, Policy, Provider, Rule};
use crate::budget::{Charge, RateBudgets};
use crate::testing::epoch;
use tidegate_config::{Counting, HeaderPolicy, RateConfig};
use tidegate_protocol::observe::Usage;
use tidegate_protocol::rate::{RateHeaders, RateWindow};
use tidegate_tokens::Demand;

/// The parameters of one simulation: the provider, its clients, and the configuration.
#[derive(Clone, Copy, Debug)]
struct Scene {
    policy: Policy,
    rule: Rule,
    counting: Counting,
    /// Configured limit as a fraction of the provider's real limit.
    configured: Option<f64>,
    headers: bool,
    header_policy: HeaderPolicy,
    /// Share of the quota that other clients use, in bursts of about one second.
    others: f64,
    /// Whether `remaining` is measured when the call is answered instead of when it arrives.
    at_answer: bool,
    /// Largest call as a fraction of the quota per minute.
    largest: f64,
    /// Mean time to the response headers, in seconds.
    latency: f64,
    /// Whether the client pauses at random times, for 5 to 45 s each.
    pauses: bool,
    minutes: f64,
    warm: f64,
}

const SCENE: Scene = Scene {
    policy: Policy::Bucket(60.0),
    rule: Rule::Sum,
    counting: Counting::Auto,
    configured: Some(1.0),
    headers: true,
    header_policy: HeaderPolicy::Follow,
    others: 0.0,
    at_answer: false,
    largest: 0.004,
    latency: 2.0,
    pauses: false,
    minutes: 10.0,
    warm: 4.0,
};

/// Results of a simulation. The warm-up is not included unless a field says so.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    /// Fraction of the quota used by this client and others.
    used: f64,
    refused: usize,
    calls: usize,
    /// Number of calls refused during the warm-up.
    cold_refused: usize,
    rule: Counting,
}

#[derive(Debug, PartialEq)]
enum Event {
    Arrive(usize),
    Answer(usize),
    Done(usize),
    Others,
}

struct Call {
    charge: Option<Charge>,
    demand: Demand,
    usage: Usage,
    sent: f64,
    announced: Option<Announced>,
    limited: bool,
}

#[derive(PartialEq)]
struct At(f64, Event);

impl Eq for At {}

impl PartialOrd for At {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for At {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

const LIMIT: f64 = 1_000_000.0;

fn play(scene: &Scene, seed: u64) -> Outcome {
    let mut rng = Rng::with_seed(seed);
    let start = epoch();
    let at = |t: f64| start + Duration::from_secs_f64(t);
    let config = RateConfig {
        tpm: scene.configured.map(|share| (share * LIMIT) as u64),
        counting: scene.counting,
        headers: scene.header_policy,
        ..RateConfig::default()
    };
    let mut budgets = RateBudgets::new(&config, start);
    let mut provider = Provider::new(scene.policy, scene.rule, LIMIT, rng.f64() * 60.0);
    let mut calls: Vec<Call> = Vec::new();
    let mut events = BinaryHeap::new();
    let mut outcome = Outcome::default();
    let (warm, end) = (scene.warm * 60.0, scene.minutes * 60.0);
    let (mut now, mut cooled, mut head, mut flight, mut paused) = (0.0f64, 0.0f64, None, 0usize, 0.0f64);
    if scene.others > 0.0 {
        events.push(Reverse(At(0.0, Event::Others)));
    }
    while now < end {
        // Admit all calls that fit.
        let mut next = f64::MAX;
        while flight < 2_000 {
            let (demand, usage) = *head.get_or_insert_with(|| call(&mut rng, scene.largest));
            let free = cooled.max(paused);
            if now < free {
                next = free;
                break;
            }
            let need = budgets.need(&demand);
            if !need.fits(&budgets.available(at(now))) {
                let ready: Instant = budgets.ready_at(at(now), &need).expect("it does not fit").1;
                next = ready.duration_since(start).as_secs_f64().max(now + 1e-3);
                break;
            }
            assert!(budgets.ready_at(at(now), &need).is_none(), "it fits");
            head = None;
            flight += 1;
            let charge = Some(budgets.charge(at(now), &demand));
            let arrival = now + 0.005 + 0.1 * rng.f64() * rng.f64();
            events.push(Reverse(At(arrival, Event::Arrive(calls.len()))));
            calls.push(Call { charge, demand, usage, sent: now, announced: None, limited: false });
        }
        if scene.pauses && rng.f64() < 1e-3 && now > paused + 30.0 {
            paused = now + 5.0 + 40.0 * rng.f64();
        }
        let due = events.peek().map_or(f64::MAX, |Reverse(At(at, _))| *at);
        if next <= due {
            now = next;
            continue;
        }
        let Some(Reverse(At(then, event))) = events.pop() else { break };
        now = now.max(then);
        match event {
            Event::Others => {
                // Each burst of the other clients takes about one second of their share.
                let cost = scene.others * LIMIT / 60.0 * (0.5 + rng.f64());
                if provider.arrive(now, cost) && now >= warm {
                    outcome.used += cost;
                }
                events.push(Reverse(At(now + 0.5 + rng.f64(), Event::Others)));
            }
            Event::Arrive(id) => {
                let call = &mut calls[id];
                let cost = provider.cost(&call.demand, call.usage.input as f64, call.usage.output as f64);
                call.limited = !provider.arrive(now, cost);
                if now >= warm {
                    outcome.calls += 1;
                    if call.limited {
                        outcome.refused += 1;
                    } else {
                        outcome.used += cost;
                    }
                } else {
                    outcome.cold_refused += usize::from(call.limited);
                }
                call.announced = Some(provider.announced(now));
                let latency = if call.limited { 0.05 } else { scene.latency * (0.2 + 1.6 * rng.f64()) };
                events.push(Reverse(At(now + latency, Event::Answer(id))));
            }
            Event::Answer(id) => {
                let announced = provider.announced(now);
                let call = &mut calls[id];
                let announced = if scene.at_answer { Some(announced) } else { call.announced };
                let tokens = announced.filter(|_| scene.headers).map_or(RateWindow::default(), |announced| {
                    RateWindow {
                        limit: Some(announced.limit as u64),
                        remaining: Some(announced.remaining as u64),
                        reset: Some(Duration::from_secs_f64(announced.reset.max(0.0))),
                        period: None,
                    }
                });
                let headers = RateHeaders { tokens, ..RateHeaders::default() };
                let charge = call.charge.as_ref().expect("once");
                budgets.on_response(at(now), charge, at(call.sent), &headers, call.limited);
                if call.limited {
                    cooled = cooled.max(now + 1.0);
                }
                let produce = if call.limited { 0.0 } else { call.usage.output as f64 / 200.0 };
                events.push(Reverse(At(now + produce.min(30.0), Event::Done(id))));
            }
            Event::Done(id) => {
                flight -= 1;
                let call = &mut calls[id];
                let mut charge = call.charge.take().expect("once");
                if !call.limited {
                    budgets.settle(at(now), &mut charge, &call.usage);
                }
            }
        }
    }
    outcome.rule = budgets.view(at(now)).first().map_or(Counting::Auto, |view| view.counting);
    outcome.used /= LIMIT * (scene.minutes - scene.warm);
    outcome
}

/// Returns a random call: its estimated demand and its actual usage. The estimated input is wrong
/// by up to 15 %, and the estimated output is always the mean.
fn call(rng: &mut Rng, largest: f64) -> (Demand, Usage) {
    let size = largest * LIMIT * rng.f64() * rng.f64();
    let share = 0.2 + 0.6 * rng.f64();
    let (input, most) = ((size * share) as u64 + 10, (size * (1.0 - share)) as u64 + 10);
    let output = (most as f64 * rng.f64() * rng.f64()) as u64 + 1;
    let estimate = (input as f64 * (0.85 + 0.3 * rng.f64())) as u64;
    let demand =
        Demand { input: estimate, output: most / 4 + 1, max_output: Some(most), ..Demand::default() };
    (demand, Usage { input, output, cached_input: 0 })
}

/// Runs a simulation once per seed. Returns the lowest use of the quota in any of them, and the
/// total number of calls and refusals of all.
fn worst(scene: Scene, seeds: u64) -> Outcome {
    let all = (0..seeds).map(|seed| play(&scene, seed));
    all.reduce(|a, b| Outcome {
        used: a.used.min(b.used),
        refused: a.refused + b.refused,
        calls: a.calls + b.calls,
        cold_refused: a.cold_refused + b.cold_refused,
        rule: b.rule,
    })
    .unwrap_or_default()
}

const POLICIES: [Policy; 7] = [
    Policy::Bucket(60.0),
    Policy::Bucket(10.0),
    Policy::Bucket(1.0),
    Policy::HiddenBucket(10.0),
    Policy::HiddenBucket(1.0),
    Policy::Fixed,
    Policy::Sliding,
];

/// Asserts, for each provider policy, that at least the fraction `used` of the quota is used with
/// any seed, and that at most the fraction `refused` of the calls is refused.
fn holds(name: &str, scene: Scene, policies: &[Policy], used: f64, refused: f64) {
    for policy in policies {
        let worst = worst(Scene { policy: *policy, ..scene }, 2);
        assert!(worst.used >= used, "{policy:?}, {name}: {worst:?}");
        assert!(worst.refused as f64 <= refused * worst.calls as f64, "{policy:?}, {name}: {worst:?}");
    }
}

/// Policies whose headers describe all limits that they enforce.
const OPEN: [Policy; 5] =
    [Policy::Bucket(60.0), Policy::Bucket(10.0), Policy::Bucket(1.0), Policy::Fixed, Policy::Sliding];

#[test]
fn configured_quota_without_headers_is_used_without_429s() {
    holds("no headers", Scene { headers: false, ..SCENE }, &POLICIES, 0.96, 0.0);
    holds("heeds none", Scene { header_policy: HeaderPolicy::Ignore, ..SCENE }, &POLICIES, 0.96, 0.0);
    let pauses = Scene { headers: false, pauses: true, ..SCENE };
    holds("pauses", pauses, &POLICIES, 0.5, 0.0);
}

#[test]
fn retrying_a_longer_burst_costs_few_429s() {
    let hours = Scene { headers: false, minutes: 124.0, ..SCENE };
    holds("hours", hours, &[Policy::Bucket(1.0)], 0.96, 0.001);
}

#[test]
fn quota_with_headers_is_used_without_429s() {
    holds("of the arrival", SCENE, &OPEN, 0.95, 0.0);
    holds("of the answer", Scene { at_answer: true, ..SCENE }, &OPEN, 0.95, 0.0);
    holds("with slices that they do not show", SCENE, &POLICIES, 0.95, 0.001);
}

#[test]
fn long_latency_does_not_waste_quota() {
    let slow = Scene { latency: 10.0, ..SCENE };
    holds("of the arrival", slow, &OPEN, 0.95, 0.0);
    holds("of the answer", Scene { at_answer: true, ..slow }, &OPEN, 0.95, 0.0);
}

#[test]
fn each_counting_rule_uses_the_quota() {
    for (rule, counting) in [(Rule::Larger, Counting::Larger), (Rule::Actual, Counting::Actual)] {
        holds("configured", Scene { rule, counting, ..SCENE }, &OPEN, 0.95, 0.0);
    }
}

#[test]
fn wrong_configured_limit_is_corrected_by_headers() {
    for configured in [Some(0.5), Some(2.0), None] {
        holds("wrong", Scene { configured, ..SCENE }, &OPEN, 0.95, 0.0);
    }
    // Without headers the limit is found by probing, which costs a refusal every few minutes.
    holds("nobody says", Scene { configured: Some(2.0), headers: false, ..SCENE }, &OPEN, 0.93, 0.001);
}

#[test]
fn quota_shared_with_other_clients_is_respected() {
    let others = Scene { others: 0.3, ..SCENE };
    let deep = [Policy::Bucket(60.0), Policy::Bucket(10.0), Policy::Fixed];
    for (name, scene) in [("arrival", others), ("answer", Scene { at_answer: true, ..others })] {
        holds(name, scene, &deep, 0.97, 0.001);
    }
    holds(
        "slices",
        others,
        &[Policy::Bucket(1.0), Policy::HiddenBucket(10.0), Policy::HiddenBucket(1.0)],
        0.93,
        0.02,
    );
    holds("sliding", others, &[Policy::Sliding], 0.8, 0.02);
    holds("no headers", Scene { headers: false, ..others }, &POLICIES, 0.9, 0.001);
}

#[test]
fn counting_rule_is_learned_from_remaining() {
    for (rule, counting) in [(Rule::Larger, Counting::Larger), (Rule::Actual, Counting::Actual)] {
        let scene = Scene { rule, ..SCENE };
        holds("learned", scene, &[Policy::Bucket(60.0)], 0.9, 0.001);
        // Of two rules that explain the headers equally well, the one that charges more is kept.
        let found = worst(scene, 1).rule;
        assert!(found == counting || found == Counting::Larger, "{rule:?}: {found:?}");
    }
    assert_eq!(worst(SCENE, 1).rule, Counting::Sum);
}
