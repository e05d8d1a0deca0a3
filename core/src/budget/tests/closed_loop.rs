//! Always more calls waiting than fit, sizes and latencies at random, many in flight: how much of the quota is used, and how many 429s.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::provider::{Policy, Provider, Rule, Told};
use crate::budget::{Charge, RateBudgets};
use crate::config::{Counting, Headers, RateConfig};
use crate::estimate::Demand;
use crate::testing::epoch;
use crate::wire::observe::Usage;
use crate::wire::rate::{RateHeaders, Window};

/// What goes on.
#[derive(Clone, Copy, Debug)]
struct Scene {
    policy: Policy,
    rule: Rule,
    counting: Counting,
    /// What is configured, as a share of the truth.
    configured: Option<f64>,
    headers: bool,
    heeds: Headers,
    /// The share of the quota that others take, in clumps.
    others: f64,
    /// Whether `remaining` is of the answer and not of the arrival.
    at_answer: bool,
    /// The largest call, as a share of a minute's quota.
    largest: f64,
    /// Seconds to the headers, on average.
    latency: f64,
    /// Every so often nobody calls for a while.
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
    heeds: Headers::Follow,
    others: 0.0,
    at_answer: false,
    largest: 0.01,
    latency: 2.0,
    pauses: false,
    minutes: 20.0,
    warm: 4.0,
};

/// What came of it, once warm.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    /// Of the quota, what was admitted of ours and others'.
    used: f64,
    refused: usize,
    calls: usize,
    /// From the beginning.
    cold_refused: usize,
}

#[derive(Debug, PartialEq, PartialOrd)]
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
    told: Option<Told>,
    limited: bool,
}

#[derive(PartialEq, PartialOrd)]
struct At(f64, Event);
impl Eq for At {}
impl Ord for At {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal)
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
        headers: scene.heeds,
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
        // Admit what fits.
        let mut next = f64::MAX;
        while flight < 2_000 {
            let (demand, usage) = *head.get_or_insert_with(|| call(&mut rng, scene.largest));
            let free = cooled.max(paused);
            if now < free {
                next = free;
                break;
            }
            let need = budgets.need(&demand);
            if !need.fits(&budgets.room(at(now))) {
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
            calls.push(Call { charge, demand, usage, sent: now, told: None, limited: false });
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
                // Clumps of about a second's worth of what they take.
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
                call.told = Some(provider.told(now));
                let latency = if call.limited { 0.05 } else { scene.latency * (0.2 + 1.6 * rng.f64()) };
                events.push(Reverse(At(now + latency, Event::Answer(id))));
            }
            Event::Answer(id) => {
                let told = provider.told(now);
                let call = &mut calls[id];
                let told = if scene.at_answer { Some(told) } else { call.told };
                let tokens = told.filter(|_| scene.headers).map_or(Window::default(), |told| Window {
                    limit: Some(LIMIT as u64),
                    remaining: Some(told.remaining as u64),
                    reset: Some(Duration::from_secs_f64(told.reset.max(0.0))),
                });
                let headers = RateHeaders { tokens, ..RateHeaders::default() };
                let charge = call.charge.as_ref().expect("once");
                budgets.heard(at(now), charge, at(call.sent), &headers, call.limited);
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
    outcome.used /= LIMIT * (scene.minutes - scene.warm);
    outcome
}

/// A call with its estimate: input off by up to 15 % either way, output unknown but for its mean.
fn call(rng: &mut Rng, largest: f64) -> (Demand, Usage) {
    let size = largest * LIMIT * rng.f64() * rng.f64();
    let share = 0.2 + 0.6 * rng.f64();
    let (input, most) = ((size * share) as u64 + 10, (size * (1.0 - share)) as u64 + 10);
    let output = (most as f64 * rng.f64() * rng.f64()) as u64 + 1;
    let estimate = (input as f64 * (0.85 + 0.3 * rng.f64())) as u64;
    let demand = Demand { input: estimate, output: most / 4 + 1, max_output: Some(most) };
    (demand, Usage { input, output, cached_input: 0 })
}

/// The worst over many seeds: least used, most refused.
fn worst(scene: Scene, seeds: u64) -> (f64, usize, usize, usize) {
    let all: Vec<_> = (0..seeds).map(|seed| play(&scene, seed)).collect();
    let used = all.iter().map(|outcome| outcome.used).fold(f64::MAX, f64::min);
    let refused = all.iter().map(|outcome| outcome.refused).sum();
    let cold = all.iter().map(|outcome| outcome.cold_refused).sum();
    (used, refused, all.iter().map(|outcome| outcome.calls).sum(), cold)
}

#[test]
fn table() {
    let policies = [
        Policy::Bucket(60.0),
        Policy::Bucket(10.0),
        Policy::Bucket(1.0),
        Policy::HiddenBucket(10.0),
        Policy::HiddenBucket(1.0),
        Policy::Fixed,
        Policy::Sliding,
    ];
    for policy in policies {
        let largest = 0.004;
        for (name, scene) in [
            ("plain", SCENE),
            ("no headers", Scene { headers: false, ..SCENE }),
            ("at answer", Scene { at_answer: true, ..SCENE }),
            ("slow", Scene { latency: 10.0, ..SCENE }),
            ("slow at answer", Scene { latency: 10.0, at_answer: true, ..SCENE }),
            ("others .3", Scene { others: 0.3, ..SCENE }),
            ("others .3 slow", Scene { others: 0.3, latency: 10.0, ..SCENE }),
            ("others .3 at answer", Scene { others: 0.3, at_answer: true, ..SCENE }),
            ("others none", Scene { others: 0.3, headers: false, ..SCENE }),
            ("half", Scene { configured: Some(0.5), ..SCENE }),
            ("double", Scene { configured: Some(2.0), ..SCENE }),
            ("absent", Scene { configured: None, ..SCENE }),
            ("double none", Scene { configured: Some(2.0), headers: false, ..SCENE }),
            ("actual", Scene { rule: Rule::Actual, ..SCENE }),
            ("actual said", Scene { rule: Rule::Actual, counting: Counting::Actual, ..SCENE }),
            ("larger", Scene { rule: Rule::Larger, ..SCENE }),
            ("pauses", Scene { pauses: true, ..SCENE }),
            ("pauses none", Scene { pauses: true, headers: false, ..SCENE }),
        ] {
            let (used, refused, calls, cold) = worst(Scene { policy, largest, ..scene }, 4);
            println!("{policy:?} {name:20} used {used:.3} refused {refused} of {calls} cold {cold}");
        }
    }
}
