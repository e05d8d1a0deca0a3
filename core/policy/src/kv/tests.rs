mod shared_prefixes;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_protocol::prompt::{Prompt, Task};
use tidegate_protocol::{RequestFacts, Usage};
use tidegate_tokens::{Estimator, LengthSample};

fn demand(input: u64, output: u64) -> Demand {
    Demand { input, output, exact: true, ..Demand::default() }
}

/// A call in flight: input, what it has produced, and the lengths that it may come to.
type InFlight = (u64, u64, Vec<u64>);

/// Books with these calls, each of which had produced nothing when it was admitted.
fn books(capacity: u64, calls: &[InFlight]) -> (Kv, Vec<Place>) {
    let mut kv = Kv::new(capacity, 0.0);
    let places = calls
        .iter()
        .map(|(input, produced, lengths)| {
            let progress = Progress::default();
            let forecast = Forecast::of(lengths.iter().copied());
            let place = kv.admit_expecting(&demand(*input, 0), forecast, Prefix::default(), progress.clone());
            progress.reached(*produced);
            place
        })
        .collect();
    kv.survey();
    (kv, places)
}

/// The peak by simulation, token by token: over every combination of lengths, what is held at each moment; then of each moment the mean and
/// `CAUTION` deviations. `slack`: how much later than in truth a moment may count as come.
fn brute(calls: &[InFlight], slack: f64) -> f64 {
    let worlds = calls.iter().fold(vec![Vec::new()], |worlds: Vec<Vec<u64>>, (_, produced, lengths)| {
        let possible: Vec<u64> = lengths.iter().copied().filter(|length| length > produced).collect();
        let possible = if possible.is_empty() { vec![(2 * produced).max(produced + 1)] } else { possible };
        worlds
            .iter()
            .flat_map(|world| possible.iter().map(|length| [world.clone(), vec![*length]].concat()))
            .collect()
    });
    let last = worlds.iter().flatten().copied().max().unwrap_or(0);
    let mut peak = 0.0f64;
    for t in 1..=last {
        let later = t as f64 * (1.0 + slack);
        let held: Vec<f64> = worlds
            .iter()
            .map(|world| {
                let there = calls.iter().zip(world).filter(|((_, produced, _), end)| produced + t <= **end);
                there
                    .map(|((input, produced, _), _)| *input as f64 + *produced as f64 + BLOCK / 2.0 + later)
                    .sum()
            })
            .collect();
        let mean = held.iter().sum::<f64>() / held.len() as f64;
        let variance = held.iter().map(|held| (held - mean).powi(2)).sum::<f64>() / held.len() as f64;
        peak = peak.max(mean + CAUTION * variance.sqrt());
    }
    peak
}

/// Tokens of a beginning more than of the one before.
const CHUNK: u64 = 64;

/// Of a prompt of so many tokens, each of one byte.
fn prefix(hashes: &[u64], input: u64) -> Prefix {
    let ends = (1..=hashes.len() as u32).map(|nth| nth * CHUNK as u32).collect();
    Prefix::new(hashes.into(), ends, input)
}

const PLENTY: u64 = 1 << 40;

proptest! {
    #[test]
    fn peak_of_fixed_lengths_matches_simulation(
        calls in vec((0..200u64, 0..300u64, 1..600u64), 1..12)
    ) {
        let calls: Vec<InFlight> = calls.into_iter().map(|(i, produced, left)| (i, produced, vec![produced + left])).collect();
        let (kv, _places) = books(PLENTY, &calls);
        let peak = kv.peak();
        prop_assert!(peak >= brute(&calls, 0.0) - 1e-6, "{peak} is too low");
        prop_assert!(peak <= brute(&calls, 1.0 / 16.0) + 1e-6, "{peak} is too high");
    }

    #[test]
    fn peak_of_random_lengths_matches_mean_and_deviation(
        calls in vec((0..40u64, 0..12u64, vec(1..30u64, 1..4)), 1..5)
    ) {
        // Within 32 tokens no moment is rounded.
        let (kv, _places) = books(PLENTY, &calls);
        let (peak, exact) = (kv.peak(), brute(&calls, 0.0));
        prop_assert!((peak - exact).abs() <= 1e-6 * exact, "{peak} for {exact}");
    }

    #[test]
    fn incremental_state_equals_rebuilt_state(
        steps in vec((0..3u8, 0..20usize, 0..500u64, vec(1..2_000u64, 0..5), any::<bool>()), 1..60)
    ) {
        let mut kv = Kv::new(20_000, 0.1);
        let mut flying: Vec<(Place, Progress)> = Vec::new();
        for (step, which, size, lengths, whole) in steps {
            let which = which.min(flying.len().saturating_sub(1));
            match step {
                0 => {
                    kv.room();
                    let before = kv.peak();
                    let forecast = Forecast::of(lengths);
                    let forecast = if whole { forecast.in_one_piece() } else { forecast };
                    let progress = Progress::default();
                    flying.push((kv.admit_expecting(&demand(size, size), forecast, Prefix::default(), progress.clone()), progress));
                    prop_assert!(kv.peak() >= before - 1e-6, "an admission lowered the peak");
                }
                1 if !flying.is_empty() => {
                    kv.room();
                    let before = kv.peak();
                    kv.release(flying.swap_remove(which).0);
                    prop_assert!(kv.peak() <= before + 1e-6, "a release raised the peak");
                }
                2 => if let Some((_, progress)) = flying.get(which) { progress.grew(size) },
                _ => {}
            }
            let kept = kv.peak();
            // What is kept up call by call was the same, but for what has been produced since.
            kv.survey();
            prop_assert_eq!(kv.view().calls, flying.len());
            let anew = kv.peak();
            prop_assert!(step == 2 || (kept - anew).abs() <= 1e-6 * anew.max(1.0), "{} for {}", kept, anew);
        }
        flying.into_iter().for_each(|(place, _)| kv.release(place));
        prop_assert_eq!(kv.view(), View { capacity: 20_000, usable: 18_000, ..View::default() });
        prop_assert_eq!(kv.room(), 18_000);
    }

    #[test]
    fn call_fits_if_its_peak_is_usable_and_room_is_an_upper_bound(
        calls in vec((0..40u64, 0..12u64, vec(1..30u64, 1..4)), 1..4),
        (input, lengths) in (0..60u64, vec(1..30u64, 1..4)),
        capacity in 40..300u64
    ) {
        // Within 32 tokens no moment is rounded.
        let (mut kv, _places) = books(PLENTY, &calls);
        kv.resize(capacity, 0.0);
        let forecast = Forecast::of(lengths.iter().copied());
        let with = brute(&[calls, vec![(input, 0, lengths)]].concat(), 0.0);
        let fits = kv.fits(&demand(input, 0), &forecast, &Prefix::default());
        let room = kv.room();
        prop_assert!((with - capacity as f64).abs() < 1e-6 || fits == (with <= capacity as f64), "{with}");
        prop_assert!(!fits || kv.need(&demand(input, 0)) <= room, "{} fits, and {room} is room", input);
    }

    #[test]
    fn shared_prefixes_count_once_in_any_order_of_completion(
        steps in vec((any::<bool>(), 0..20usize, 0..3u64, 0..6usize, 0..100u64), 1..80)
    ) {
        let mut kv = Kv::new(PLENTY, 0.0);
        let mut flying: Vec<(Place, Vec<u64>, u64)> = Vec::new();
        for (ends, which, branch, depth, tail) in steps {
            if ends && !flying.is_empty() {
                let before = kv.peak();
                let (place, ..) = flying.swap_remove(which % flying.len());
                kv.release(place);
                prop_assert!(kv.peak() <= before + 1e-6, "a release raised the peak");
            } else {
                // All begin with the same two; then they branch.
                let hashes: Vec<u64> = (0..depth as u64).map(|k| if k < 2 { k } else { 10 * branch + k }).collect();
                let input = CHUNK * depth as u64 + 1 + tail;
                let before = kv.usable as f64 - kv.slack(&demand(input, 9), &Forecast::default(), &prefix(&hashes, input));
                let place = kv.admit_expecting(&demand(input, 9), Forecast::default(), prefix(&hashes, input), Progress::default());
                flying.push((place, hashes, 1 + tail));
                prop_assert!(flying.len() == 1 || (kv.peak() - before).abs() <= 1e-5, "{} for {}", kv.peak(), before);
            }
            let union: BTreeSet<u64> = flying.iter().flat_map(|(_, hashes, _)| hashes.iter().copied()).collect();
            let tails: u64 = flying.iter().map(|(.., tail)| tail).sum();
            prop_assert_eq!(kv.view().held, CHUNK * union.len() as u64 + tails);
            prop_assert_eq!(kv.beginnings.len(), union.len());
            let kept = kv.peak();
            kv.survey();
            prop_assert!((kept - kv.peak()).abs() <= 1e-6 * kept.max(1.0), "{} for {}", kept, kv.peak());
        }
        flying.into_iter().for_each(|(place, ..)| kv.release(place));
        prop_assert_eq!((kv.shared, kv.beginnings.len(), kv.peak()), (0, 0, 0.0));
    }

    #[test]
    fn more_input_never_lowers_the_peak(
        calls in vec((0..200u64, 0..50u64, vec(1..500u64, 1..5)), 1..10), which in 0..10usize, more in 1..500u64
    ) {
        let (kv, _a) = books(PLENTY, &calls);
        let mut larger = calls.clone();
        let which = which.min(larger.len() - 1);
        larger[which].0 += more;
        let (more, _b) = books(PLENTY, &larger);
        prop_assert!(more.peak() >= kv.peak());
    }
}

#[test]
fn idle_engine_admits_any_call_it_can_hold() {
    let mut kv = Kv::new(1_000, 0.1);
    assert_eq!((kv.most(), kv.room()), (1_000, 900));
    assert_eq!(kv.need(&demand(950, 50)), 900, "into the headroom, alone");
    assert_eq!(kv.need(&demand(1_001, 0)), 1_001);
    assert_eq!(kv.need(&demand(u64::MAX, u64::MAX)), u32::MAX);
    let place = kv.admit(&demand(500, 450), Progress::default());
    assert_eq!(kv.room(), 382, "for a prompt whose answer ends at once");
    assert!(!kv.fits(&demand(0, 450), &Forecast::default(), &Prefix::default()));
    kv.release(place);
    assert_eq!(kv.room(), 900);
    assert!(
        kv.fits(&demand(1_000, 0), &Forecast::default(), &Prefix::default())
            && !kv.fits(&demand(1_001, 0), &Forecast::default(), &Prefix::default())
    );
}

/// Each holds 30,000 tokens that all have, and 1,500 of its own.
#[test]
fn long_shared_prefix_is_counted_once() {
    let admitted = |prefix: &Prefix| {
        let mut kv = Kv::new(800_000, 0.1);
        let call = demand(31_500, 50);
        let mut places = Vec::new();
        while kv.fits(&call, &Forecast::default(), prefix) {
            places.push(kv.admit_expecting(&call, Forecast::default(), prefix.clone(), Progress::default()));
        }
        let count = places.len();
        places.into_iter().rev().for_each(|place| kv.release(place));
        assert_eq!(kv.view(), View { capacity: 800_000, usable: 720_000, ..View::default() });
        count
    };
    // Four bytes a token; the hashes are of 1,024 bytes each.
    let hashes: Vec<u64> = (0..117).collect();
    let ends = (1..=117).map(|nth| 1_024 * nth).collect();
    assert_eq!(admitted(&Prefix::default()), 22);
    assert_eq!(admitted(&Prefix::new(hashes.into(), ends, 4 * 31_500)), 429);
}

/// A beginning that its first holder leaves to others counts once until the last of these ends.
#[test]
fn shared_prefix_stays_counted_after_its_first_call_ends() {
    let mut kv = Kv::new(10_000, 0.0);
    let admit = |kv: &mut Kv| {
        kv.admit_expecting(
            &demand(650, 10),
            Forecast::default(),
            prefix(&[1, 2, 3, 4], 650),
            Progress::default(),
        )
    };
    let [first, second, third] = [(); 3].map(|()| admit(&mut kv));
    assert_eq!(kv.view().held, 256 + 3 * 394);
    kv.release(first);
    assert_eq!(kv.view().held, 256 + 2 * 394);
    kv.release(third);
    assert_eq!(kv.view().held, 650);
    assert_eq!(kv.view().peak, 650 + 8 + 10);
    kv.release(second);
    assert_eq!(kv.view().held, 0);
}

/// The reserve is what the call itself may take, whatever the calls before took.
/// The same 256 bytes, once before text and once before a rest with more tokens for its bytes.
#[test]
fn shared_prefix_saves_at_most_what_it_was_counted_for() {
    let hashes = [1, 2, 3, 4];
    let ends = || vec![64, 128, 192, 256];
    let calls = [
        (demand(256, 10), Prefix::new(hashes.into(), ends(), 1_024)),
        (demand(448, 10), Prefix::new(hashes.into(), ends(), 512)),
    ];
    for order in [[0, 1], [1, 0]] {
        let mut kv = Kv::new(10_000, 0.0);
        let places = order.map(|which| {
            let (demand, prefix) = &calls[which];
            kv.admit_expecting(demand, Forecast::default(), prefix.clone(), Progress::default())
        });
        assert_eq!(kv.view().held, 256 + 448 - 64, "{order:?}");
        places.into_iter().for_each(|place| kv.release(place));
        assert_eq!(kv.view().peak, 0);
    }
}

#[test]
fn short_call_fits_beside_one_long_call() {
    let mut kv = Kv::new(33_334, 0.1);
    let long = Demand { max_output: Some(8_000), ..demand(14_000, 8_000) };
    let place = kv.admit(&long, Progress::default());
    assert_eq!((kv.view().usable, kv.view().peak), (30_000, 22_200));
    assert!(u64::from(kv.room()) >= 7_500, "{}", kv.room());
    assert!(kv.fits(&demand(7_500, 100), &Forecast::default(), &Prefix::default()));
    assert!(
        kv.fits(&demand(14_000, 200), &Forecast::default(), &Prefix::default()),
        "it ends long before the peak"
    );
    assert!(!kv.fits(&demand(14_000, 8_000), &Forecast::default(), &Prefix::default()));
    kv.release(place);
}

#[test]
fn invalid_events_leave_no_usage_behind() {
    let mut kv = Kv::new(90_000, 0.1);
    let progress = Progress::default();
    let good =
        kv.admit_expecting(&demand(100, 0), Forecast::of([50, 100]), Prefix::default(), progress.clone());
    let before = kv.peak();
    let mad = kv.admit_expecting(
        &demand(u64::MAX, u64::MAX),
        Forecast::of([u64::MAX, 0, 1_000_000_000_000]),
        Prefix::new([1, 2].into(), vec![u32::MAX, 0], 1),
        Progress::default(),
    );
    assert!(kv.room() == 0 && !kv.fits(&demand(0, 1), &Forecast::default(), &Prefix::default()));
    kv.release(mad);
    assert!((kv.peak() - before).abs() <= 1.0, "{} for {before}", kv.peak());
    progress.reached(u64::MAX);
    assert_eq!(kv.room(), 0, "an answer without end");
    kv.release(good);
    assert_eq!(kv.room(), 81_000);
}

#[test]
fn produced_tokens_never_decrease() {
    let mut kv = Kv::new(10_000, 0.0);
    let progress = Progress::default();
    let place =
        kv.admit_expecting(&demand(100, 0), Forecast::exact(400), Prefix::default(), progress.clone());
    progress.reached(300);
    kv.survey();
    progress.reached(0);
    assert_eq!(kv.view().held, 400);
    kv.release(place);
}

/// What sets it apart from a reservation: calls in different phases do not hold their most at the same time.
#[test]
fn calls_in_different_phases_reuse_future_memory() {
    let phases: Vec<InFlight> = (0..10).map(|k| (0, 100 * k, vec![1_000])).collect();
    let (kv, _places) = books(PLENTY, &phases);
    let reserved = 10.0 * 1_000.0;
    assert!(kv.peak() < 0.65 * reserved, "{}", kv.peak());
}

/// An answer in one piece is not seen to grow: it counts whole, at every moment.
#[test]
fn unary_answer_counts_in_full() {
    let mut kv = Kv::new(10_000, 0.0);
    let forecast = Forecast::exact(400).in_one_piece();
    let first = kv.admit_expecting(&demand(100, 0), forecast.clone(), Prefix::default(), Progress::default());
    let second = kv.admit_expecting(&demand(100, 0), forecast, Prefix::default(), Progress::default());
    let progress = Progress::default();
    let seen = kv.admit_expecting(&demand(0, 0), Forecast::exact(300), Prefix::default(), progress.clone());
    progress.reached(299);
    assert_eq!(kv.view().peak, 2 * 508 + 308);
    [first, second, seen].into_iter().for_each(|place| kv.release(place));
}

/// What a target learns of its answers is what memory is planned with.
#[test]
fn learned_forecast_keeps_mean_and_maximum() {
    let mut estimator = Estimator::new();
    let prompt = Prompt { text_bytes: 40, messages: 1, max_tokens: Some(900), ..Prompt::default() };
    let facts = RequestFacts { prompt: Some(prompt), task: Task::Text, ..RequestFacts::unknown() };
    let tenant: Arc<str> = "a".into();
    for round in 0..200u64 {
        let usage = Usage { input: 8, output: 50 + 10 * (round % 100), ..Usage::default() };
        estimator.learn(&facts, &tenant, &mut LengthSample::default(), &usage);
    }
    let output = estimator.output(&facts, &tenant);
    let forecast = Forecast::from(&output);
    let (mean, learned) = (forecast.mean(), output.mean() as f64);
    assert!((mean / learned - 1.0).abs() < 0.05, "{mean} for {learned}");
    assert_eq!(forecast.remaining(0).descending().next(), Some(900));
}

/// A call may have waited since nothing was known of its target.
#[test]
fn forecast_is_taken_at_admission() {
    let known = Arc::new(AtomicU64::new(4_096));
    let forecast = Forecast::later({
        let known = known.clone();
        move || Forecast::exact(known.load(Ordering::Relaxed)).of_input(80)
    });
    let mut kv = Kv::new(10_000, 0.0);
    let cold = demand(100, 4_096);
    let first = kv.admit_expecting(&cold, forecast.clone(), Prefix::default(), Progress::default());
    kv.room();
    assert!(kv.fits(&cold, &forecast, &Prefix::default()), "4,204 each of 10,000");
    let second = kv.admit_expecting(&cold, forecast.clone(), Prefix::default(), Progress::default());
    kv.room();
    assert!(!kv.fits(&cold, &forecast, &Prefix::default()));
    kv.release(second);
    known.store(50, Ordering::Relaxed);
    kv.release(first);
    let places: Vec<Place> = (0..20)
        .map(|_| kv.admit_expecting(&cold, forecast.clone(), Prefix::default(), Progress::default()))
        .collect();
    assert!(kv.peak() < 20.0 * 140.0, "{}", kv.peak());
    kv.room();
    assert!(
        kv.fits(&cold, &forecast, &Prefix::default())
            && kv.fits(&demand(6_000, 50), &Forecast::default(), &Prefix::default())
    );
    places.into_iter().for_each(|place| kv.release(place));
}
