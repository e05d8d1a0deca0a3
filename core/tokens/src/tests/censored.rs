//! Tests of answers in flight and truncated answers, which are right-censored samples.

use proptest::prelude::*;

use super::super::learned_lengths::{BUCKETS, LengthCounts, LengthDistribution};
use super::super::output_distribution::Output;
use super::super::*;
use super::learned::{Noise, call, near, tenant, usage};
use tidegate_protocol::{Purpose, RequestFacts};

const MAX_TOKENS: u64 = 4_096;

/// A simulation of the answers to calls of one class, which produce tokens step by step.
struct Answers {
    estimator: Estimator,
    in_flight: Vec<Answer>,
    /// Whether answers in flight are passed to the estimator.
    in_flight_counts: bool,
    completed: usize,
}

struct Answer {
    length: u64,
    /// Tokens produced per step.
    speed: f64,
    produced: f64,
    sample: LengthSample,
}

impl Answers {
    fn new(in_flight_counts: bool) -> Self {
        Self { estimator: Estimator::new(), in_flight: Vec::new(), in_flight_counts, completed: 0 }
    }

    fn begin(&mut self, length: u64, speed: f64) {
        self.in_flight.push(Answer { length, speed, produced: 0.0, sample: LengthSample::default() });
    }

    fn step(&mut self) {
        let Self { estimator, in_flight, in_flight_counts, completed } = self;
        let (facts, a) = (call(100, Some(MAX_TOKENS)), tenant("a"));
        in_flight.retain_mut(|answer| {
            answer.produced += answer.speed;
            let produced = (answer.produced as u64).min(answer.length);
            if *in_flight_counts {
                estimator.observe(&facts, &a, &mut answer.sample, produced);
            }
            let is_complete = produced == answer.length;
            if is_complete {
                estimator.learn(&facts, &a, &mut answer.sample, &usage(30, answer.length));
                *completed += 1;
            }
            !is_complete
        });
    }

    fn expected(&self) -> Output {
        self.estimator.output(&call(100, Some(MAX_TOKENS)), &tenant("a"))
    }
}

fn heavy_tailed(seed: u64, count: usize) -> Vec<u64> {
    let mut noise = Noise(fastrand::Rng::with_seed(seed));
    (0..count).map(|_| noise.lognormal(400.0, 1.2).min(4_000)).collect()
}

fn quantile(lengths: &[u64], probability: f64) -> f64 {
    let mut sorted = lengths.to_vec();
    sorted.sort_unstable();
    sorted[(probability * sorted.len() as f64) as usize] as f64
}

/// Simulates a burst of 400 calls until `share` of them have completed. Returns the estimated
/// output at that time, and the true lengths of all answers. If `even`, each answer produces 1
/// token per step. Otherwise each has a random speed from 0.5 to 1.5 tokens per step.
fn burst(seed: u64, in_flight_counts: bool, even: bool, share: f64) -> (Output, Vec<u64>) {
    let lengths = heavy_tailed(seed, 400);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut answers = Answers::new(in_flight_counts);
    for length in &lengths {
        answers.begin(*length, if even { 1.0 } else { 0.5 + rng.f64() });
    }
    while (answers.completed as f64) < share * lengths.len() as f64 {
        answers.step();
    }
    (answers.expected(), lengths)
}

#[test]
fn estimates_during_a_burst_include_unfinished_calls() {
    for (seed, even) in (1..=6).flat_map(|seed| [(seed, true), (seed, false)]) {
        for share in [0.1, 0.25, 0.5] {
            let (expected, lengths) = burst(seed, true, even, share);
            let name = format!("seed {seed}, even {even}, {share} completed");
            // Observed quantiles are exact up to one bucket and the sampling error.
            for probability in [share * 0.5, share * 0.8] {
                let (found, exact) = (expected.quantile(probability) as f64, quantile(&lengths, probability));
                assert!(near(found, exact, 0.25), "{name}, p{probability}: {found} for {exact}");
            }
            // Other quantiles are neither below the true ones nor at the limit of the calls.
            for probability in [0.75, 0.9] {
                let (found, exact) = (expected.quantile(probability) as f64, quantile(&lengths, probability));
                assert!(found >= 0.9 * exact, "{name}, p{probability}: {found} for {exact}");
            }
            let median = expected.quantile(0.5) as f64 / quantile(&lengths, 0.5);
            assert!((0.8..2.0).contains(&median), "{name}, median: {median} of the exact one");
            let mean = expected.mean() as f64 * lengths.len() as f64 / lengths.iter().sum::<u64>() as f64;
            assert!((0.85..2.2).contains(&mean), "{name}, mean: {mean} of the exact one");
        }
    }
}

/// During a burst, the estimated median is far too low if answers in flight are not passed to the
/// estimator.
#[test]
fn completed_answers_alone_underestimate_a_burst() {
    for seed in 1..=6 {
        for (share, most) in [(0.1, 0.25), (0.25, 0.45), (0.5, 0.65)] {
            let (expected, lengths) = burst(seed, false, true, share);
            let median = expected.quantile(0.5) as f64 / quantile(&lengths, 0.5);
            assert!(median < most, "seed {seed}, {share} completed: {median} of the exact median");
        }
    }
}

/// Answers in flight have the same weight as completed answers that began at the same time, even if
/// many later answers have reduced the counts since.
#[test]
fn estimates_hold_with_more_calls_in_flight_than_remembered() {
    let mut noise = Noise(fastrand::Rng::with_seed(3));
    let mut answers = Answers::new(true);
    let mut begun = Vec::new();
    let (mut medians, mut nineties, mut means) = (Vec::new(), Vec::new(), Vec::new());
    for step in 0..2_500 {
        // The first answers begin one after the other.
        while answers.in_flight.len() < 500.min(1 + step) {
            let length = noise.lognormal(150.0, 0.9);
            begun.push(length);
            answers.begin(length, 1.0);
        }
        answers.step();
        if step > 1_500 && step % 100 == 0 {
            let expected = answers.expected();
            medians.push(expected.quantile(0.5) as f64);
            nineties.push(expected.quantile(0.9) as f64);
            means.push(expected.mean() as f64);
        }
    }
    let middle = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    let mean = begun.iter().sum::<u64>() as f64 / begun.len() as f64;
    assert!(near(middle(&medians), quantile(&begun, 0.5), 0.1), "{medians:?}");
    assert!(near(middle(&nineties), quantile(&begun, 0.9), 0.15), "{nineties:?}");
    assert!(near(middle(&means), mean, 0.1), "{means:?} for {mean}");
}

/// Passes an answer to the estimator at each doubling of its length, and at its full length,
/// without completing it. Returns the sample of the answer.
fn produce(estimator: &mut Estimator, facts: &tidegate_protocol::RequestFacts, length: u64) -> LengthSample {
    let mut sample = LengthSample::default();
    for doubling in (0..64).map(|bit| 1_u64 << bit).take_while(|tokens| *tokens < length) {
        estimator.observe(facts, &tenant("a"), &mut sample, doubling);
    }
    estimator.observe(facts, &tenant("a"), &mut sample, length);
    sample
}

#[test]
fn truncated_answers_are_censored_and_expire_like_others() {
    let mut estimator = Estimator::new();
    let (facts, a) = (call(100, None), tenant("a"));
    for _ in 0..100 {
        estimator.learn(&facts, &a, &mut LengthSample::default(), &usage(30, 20));
        produce(&mut estimator, &facts, 2_000);
    }
    let expected = estimator.output(&facts, &a);
    assert!(expected.quantile(0.4) <= 24, "{}", expected.quantile(0.4));
    assert!(expected.quantile(0.6) >= 2_000, "{}", expected.quantile(0.6));
    assert!(estimator.demand(&facts, &a).output >= 1_000);
    for _ in 0..2_000 {
        estimator.learn(&facts, &a, &mut LengthSample::default(), &usage(30, 20));
    }
    assert!(estimator.output(&facts, &a).quantile(0.95) <= 24);
    assert!(near(estimator.demand(&facts, &a).output as f64, 20.0, 0.2));
}

/// Until the first answer completes, the defaults of an unknown model stay in force.
#[test]
fn answers_in_flight_do_not_shorten_a_cold_estimate() {
    let mut estimator = Estimator::new();
    let facts = call(100, Some(MAX_TOKENS));
    for _ in 0..50 {
        produce(&mut estimator, &facts, 10);
    }
    let expected = estimator.output(&facts, &tenant("a"));
    assert_eq!((expected.quantile(0.01), expected.quantile(0.5)), (MAX_TOKENS, MAX_TOKENS));
    assert!(near(expected.mean() as f64, MAX_TOKENS as f64, 0.1));
    // Answers that are longer than the default are expected to end within about one more doubling.
    let facts = call(100, None);
    for _ in 0..50 {
        produce(&mut estimator, &facts, 5_000);
    }
    let expected = estimator.output(&facts, &tenant("a"));
    assert!(expected.quantile(0.9) > 5_000 && expected.quantile(1.0) <= 12_000);
}

/// If the entry of a tenant is dropped while an answer of the tenant is in flight, the rest of the
/// answer does not distort the estimates.
#[test]
fn answer_longer_than_expected_is_censored_at_its_length() {
    let mut estimator = Estimator::new();
    let (facts, a) = (call(100, None), tenant("a"));
    let mut sample = produce(&mut estimator, &facts, 300);
    for n in 0..3_000 {
        let other = tenant(&format!("t{n}"));
        estimator.learn(&facts, &other, &mut LengthSample::default(), &usage(30, 300));
    }
    estimator.observe(&facts, &a, &mut sample, 500);
    estimator.learn(&facts, &a, &mut sample, &usage(30, 600));
    let expected = estimator.output(&facts, &a);
    assert!((250..=360).contains(&expected.quantile(0.5)), "{}", expected.quantile(0.5));
}

/// Returns the product-limit estimate by its definition: the probability of each bucket, and the
/// probability beyond the last. Samples are (length, complete).
fn product_limit(samples: &[(u64, bool)]) -> (Vec<f64>, f64) {
    let rounded = |length: u64| (0..BUCKETS).rev().find(|k| (length as f64) >= (*k as f64 / 4.0).exp2());
    let samples: Vec<(usize, bool)> =
        samples.iter().map(|(length, complete)| (rounded(*length).unwrap_or(0), *complete)).collect();
    let mut left = 1.0;
    let shares = (0..BUCKETS).map(|at| {
        let at_risk = samples.iter().filter(|(length, _)| *length >= at).count();
        let events = samples.iter().filter(|sample| **sample == (at, true)).count();
        let share = if at_risk == 0 { 0.0 } else { left * events as f64 / at_risk as f64 };
        left -= share;
        share
    });
    (shares.collect(), left)
}

proptest! {
    #[test]
    fn lengths_equal_the_kaplan_meier_estimate(
        samples in prop::collection::vec((2_u64..6_000, prop::bool::weighted(0.6)), 8..60),
    ) {
        // All answers begin before the first ends, so all have the same weight.
        let mut observed = LengthCounts::default();
        let mut begun = vec![0; samples.len()];
        for next in &mut begun {
            observed.learn(next, 1, u64::MAX, false);
        }
        for ((length, complete), next) in samples.iter().zip(&mut begun) {
            for doubling in (1..13).map(|bit| 1 << bit).take_while(|doubling| doubling < length) {
                observed.learn(next, doubling, u64::MAX, false);
            }
            observed.learn(next, *length, u64::MAX, *complete);
        }
        let found = observed.blended_with(LengthDistribution::single(1 << 15), true);
        let (exact, left) = product_limit(&samples);
        let longest = exact.iter().rposition(|share| *share > 0.0).map_or(0, |at| at + 1);
        for (at, share) in exact.iter().enumerate().take(longest) {
            let found = f64::from(found.shares[at + 1]);
            prop_assert!((found - share).abs() < 1e-4, "{}: {} for {}", at, found, share);
        }
        let beyond: f32 = found.shares[longest + 1..].iter().sum();
        prop_assert!((f64::from(beyond) - left).abs() < 1e-4, "{} for {} left", beyond, left);
        if samples.iter().all(|(_, complete)| *complete) {
            let mean = samples.iter().map(|(length, _)| *length as f64).sum::<f64>() / samples.len() as f64;
            prop_assert!(near(found.mean, mean, 1e-4), "{} for {}", found.mean, mean);
        }
    }

    /// For any observations in any order, the shares add up to 1 and the mean is finite.
    #[test]
    fn any_observations_yield_a_valid_distribution(
        steps in prop::collection::vec((0..6_usize, any::<bool>(), 0..64_u32, any::<bool>()), 0..80),
        cold in 0_u64..10_000,
        most in prop_oneof![Just(u64::MAX), 1_u64..5_000],
        prior_is_cold in any::<bool>(),
    ) {
        let mut observed = LengthCounts::default();
        let mut begun = [0; 6];
        for (answer, complete, shift, anew) in steps {
            if anew {
                begun[answer] = 0;
            }
            observed.learn(&mut begun[answer], u64::MAX >> shift, most, complete);
        }
        let found = observed.blended_with(LengthDistribution::single(cold), prior_is_cold);
        let sum: f32 = found.shares.iter().sum();
        prop_assert!((sum - 1.0).abs() < 1e-4 && found.shares.iter().all(|share| *share >= 0.0), "{:?}", found);
        prop_assert!(found.mean.is_finite() && found.mean >= 0.0, "{:?}", found);
        if let Some(mean) = observed.blended_mean(cold as f64, prior_is_cold) {
            prop_assert_eq!(mean, found.mean, "the mean alone");
        }
    }
}

#[test]
fn mean_of_complete_answers_needs_no_prior() {
    let (mut observed, mut begun) = (LengthCounts::default(), 0);
    assert_eq!(observed.blended_mean(7.0, true), Some(7.0), "nothing was observed");
    observed.learn(&mut 0, 100, u64::MAX, true);
    assert!(observed.blended_mean(7.0, true).is_some());
    observed.learn(&mut begun, 200, u64::MAX, false);
    assert_eq!(observed.blended_mean(7.0, true), None, "an answer in flight is longer");
    observed.learn(&mut begun, 300, u64::MAX, true);
    assert!(observed.blended_mean(7.0, true).is_some());
}

#[test]
fn calls_that_run_no_model_are_not_observed() {
    let beside = RequestFacts { purpose: Purpose::Other, ..call(100, None) };
    let mut estimator = Estimator::new();
    let cold = estimator.output(&call(100, None), &tenant("a")).mean();
    for _ in 0..50 {
        estimator.observe(&beside, &tenant("a"), &mut LengthSample::default(), 9_000);
    }
    assert_eq!(estimator.output(&call(100, None), &tenant("a")).mean(), cold);
}

#[test]
fn ignored_answer_is_not_processed_per_token() {
    let mut facts = call(100, None);
    let mut prompt = facts.prompt.take().unwrap_or_default();
    prompt.answers = Some(100_000);
    facts.prompt = Some(prompt);
    let mut sample = LengthSample::default();
    Estimator::new().observe(&facts, &tenant("a"), &mut sample, 100);
    assert!(!sample.is_due(101));
}

#[test]
fn new_answers_do_not_shorten_the_first_complete_ones() {
    let (facts, a) = (call(100, Some(MAX_TOKENS)), tenant("a"));
    let mut estimator = Estimator::new();
    for _ in 0..200 {
        estimator.observe(&facts, &a, &mut LengthSample::default(), 1);
    }
    for whole in 1..=10 {
        estimator.learn(&facts, &a, &mut LengthSample::default(), &usage(30, 2_000));
        let mean = estimator.output(&facts, &a).mean() as f64;
        assert!(near(mean, 2_000.0, 0.1), "{whole} of 2,000 tokens: {mean}");
    }
}
