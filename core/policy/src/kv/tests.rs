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

/// A call in flight: its prompt tokens, its output tokens so far, and its possible lengths in
/// tokens.
type InFlight = (u64, u64, Vec<u64>);

/// Returns a [`Kv`] with these calls in flight, and their reservations. The output so far of each
/// call is reported after its admission.
fn kv_with(capacity: u64, calls: &[InFlight]) -> (Kv, Vec<KvReservation>) {
    let mut kv = Kv::new(capacity, 0.0);
    let reservations = calls
        .iter()
        .map(|(input, produced, lengths)| {
            let progress = Progress::default();
            let forecast = Forecast::from_lengths(lengths.iter().copied());
            let reservation = kv.admit(&demand(*input, 0), forecast, Prefix::default(), progress.clone());
            progress.set(*produced);
            reservation
        })
        .collect();
    kv.survey();
    (kv, reservations)
}

/// Returns the exact peak, calculated for each step over all combinations of lengths: the mean plus
/// `CAUTION` standard deviations. With a `slack` above 0, the output at each step counts as larger
/// by this fraction, as after rounding of steps.
fn simulated_peak(calls: &[InFlight], slack: f64) -> f64 {
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

/// Number of tokens by which each prefix of a test prompt is longer than the previous one.
const CHUNK: u64 = 64;

/// Returns the prefixes of a prompt of `input` tokens, in which each token is one byte long. Each
/// hash stands for [`CHUNK`] more tokens.
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
        let (kv, _reservations) = kv_with(PLENTY, &calls);
        let peak = kv.peak();
        prop_assert!(peak >= simulated_peak(&calls, 0.0) - 1e-6, "{peak} is too low");
        prop_assert!(peak <= simulated_peak(&calls, 1.0 / 16.0) + 1e-6, "{peak} is too high");
    }

    #[test]
    fn peak_of_random_lengths_matches_mean_and_deviation(
        calls in vec((0..40u64, 0..12u64, vec(1..30u64, 1..4)), 1..5)
    ) {
        // Within 32 tokens no step is rounded.
        let (kv, _reservations) = kv_with(PLENTY, &calls);
        let (peak, exact) = (kv.peak(), simulated_peak(&calls, 0.0));
        prop_assert!((peak - exact).abs() <= 1e-6 * exact, "{peak} for {exact}");
    }

    #[test]
    fn incremental_state_equals_rebuilt_state(
        steps in vec((0..3u8, 0..20usize, 0..500u64, vec(1..2_000u64, 0..5), any::<bool>()), 1..60)
    ) {
        let mut kv = Kv::new(20_000, 0.1);
        let mut flying: Vec<(KvReservation, Progress)> = Vec::new();
        for (step, which, size, lengths, whole) in steps {
            let which = which.min(flying.len().saturating_sub(1));
            match step {
                0 => {
                    kv.available();
                    let before = kv.peak();
                    let forecast = Forecast::from_lengths(lengths);
                    let forecast = if whole { forecast.non_streaming() } else { forecast };
                    let progress = Progress::default();
                    flying.push((kv.admit(&demand(size, size), forecast, Prefix::default(), progress.clone()), progress));
                    prop_assert!(kv.peak() >= before - 1e-6, "an admission lowered the peak");
                }
                1 if !flying.is_empty() => {
                    kv.available();
                    let before = kv.peak();
                    kv.release(flying.swap_remove(which).0);
                    prop_assert!(kv.peak() <= before + 1e-6, "a release raised the peak");
                }
                2 => if let Some((_, progress)) = flying.get(which) { progress.add(size) },
                _ => {}
            }
            let incremental = kv.peak();
            // The incremental state differs only by the tokens produced since.
            kv.survey();
            prop_assert_eq!(kv.view().calls, flying.len());
            let rebuilt = kv.peak();
            prop_assert!(step == 2 || (incremental - rebuilt).abs() <= 1e-6 * rebuilt.max(1.0), "{} for {}", incremental, rebuilt);
        }
        flying.into_iter().for_each(|(reservation, _)| kv.release(reservation));
        prop_assert_eq!(kv.view(), KvView { capacity: 20_000, usable: 18_000, ..KvView::default() });
        prop_assert_eq!(kv.available(), 18_000);
    }

    #[test]
    fn call_fits_if_its_peak_is_usable_and_room_is_an_upper_bound(
        calls in vec((0..40u64, 0..12u64, vec(1..30u64, 1..4)), 1..4),
        (input, lengths) in (0..60u64, vec(1..30u64, 1..4)),
        capacity in 40..300u64
    ) {
        // Within 32 tokens no step is rounded.
        let (mut kv, _reservations) = kv_with(PLENTY, &calls);
        kv.resize(capacity, 0.0);
        let forecast = Forecast::from_lengths(lengths.iter().copied());
        let with = simulated_peak(&[calls, vec![(input, 0, lengths)]].concat(), 0.0);
        let fits = kv.fits(&demand(input, 0), &forecast, &Prefix::default());
        let room = kv.available();
        prop_assert!((with - capacity as f64).abs() < 1e-6 || fits == (with <= capacity as f64), "{with}");
        prop_assert!(!fits || kv.need(&demand(input, 0)) <= room, "{} fits, and {room} is room", input);
    }

    #[test]
    fn shared_prefixes_count_once_in_any_order_of_completion(
        steps in vec((any::<bool>(), 0..20usize, 0..3u64, 0..6usize, 0..100u64), 1..80)
    ) {
        let mut kv = Kv::new(PLENTY, 0.0);
        let mut flying: Vec<(KvReservation, Vec<u64>, u64)> = Vec::new();
        for (ends, which, branch, depth, tail) in steps {
            if ends && !flying.is_empty() {
                let before = kv.peak();
                let (reservation, ..) = flying.swap_remove(which % flying.len());
                kv.release(reservation);
                prop_assert!(kv.peak() <= before + 1e-6, "a release raised the peak");
            } else {
                // All prompts begin with the same two chunks.
                let hashes: Vec<u64> = (0..depth as u64).map(|k| if k < 2 { k } else { 10 * branch + k }).collect();
                let input = CHUNK * depth as u64 + 1 + tail;
                let before = kv.usable as f64 - kv.slack(&demand(input, 9), &Forecast::default(), &prefix(&hashes, input));
                let reservation = kv.admit(&demand(input, 9), Forecast::default(), prefix(&hashes, input), Progress::default());
                flying.push((reservation, hashes, 1 + tail));
                prop_assert!(flying.len() == 1 || (kv.peak() - before).abs() <= 1e-5, "{} for {}", kv.peak(), before);
            }
            let union: BTreeSet<u64> = flying.iter().flat_map(|(_, hashes, _)| hashes.iter().copied()).collect();
            let tails: u64 = flying.iter().map(|(.., tail)| tail).sum();
            prop_assert_eq!(kv.view().held, CHUNK * union.len() as u64 + tails);
            prop_assert_eq!(kv.prefixes.len(), union.len());
            let incremental = kv.peak();
            kv.survey();
            prop_assert!((incremental - kv.peak()).abs() <= 1e-6 * incremental.max(1.0), "{} for {}", incremental, kv.peak());
        }
        flying.into_iter().for_each(|(reservation, ..)| kv.release(reservation));
        prop_assert_eq!((kv.shared, kv.prefixes.len(), kv.peak()), (0, 0, 0.0));
    }

    #[test]
    fn more_input_never_lowers_the_peak(
        calls in vec((0..200u64, 0..50u64, vec(1..500u64, 1..5)), 1..10), which in 0..10usize, more in 1..500u64
    ) {
        let (kv, _a) = kv_with(PLENTY, &calls);
        let mut larger = calls.clone();
        let which = which.min(larger.len() - 1);
        larger[which].0 += more;
        let (more, _b) = kv_with(PLENTY, &larger);
        prop_assert!(more.peak() >= kv.peak());
    }
}

#[test]
fn idle_engine_admits_any_call_it_can_hold() {
    let mut kv = Kv::new(1_000, 0.1);
    assert_eq!((kv.capacity(), kv.available()), (1_000, 900));
    assert_eq!(kv.need(&demand(950, 50)), 900, "into the headroom, alone");
    assert_eq!(kv.need(&demand(1_001, 0)), 1_001);
    assert_eq!(kv.need(&demand(u64::MAX, u64::MAX)), u32::MAX);
    let reservation =
        kv.admit(&demand(500, 450), Forecast::default(), Prefix::default(), Progress::default());
    assert_eq!(kv.available(), 382, "for a prompt whose answer ends at once");
    assert!(!kv.fits(&demand(0, 450), &Forecast::default(), &Prefix::default()));
    kv.release(reservation);
    assert_eq!(kv.available(), 900);
    assert!(
        kv.fits(&demand(1_000, 0), &Forecast::default(), &Prefix::default())
            && !kv.fits(&demand(1_001, 0), &Forecast::default(), &Prefix::default())
    );
}

/// Each call holds 30,000 tokens that all calls share, and 1,500 tokens of its own.
#[test]
fn long_shared_prefix_is_counted_once() {
    let admitted = |prefix: &Prefix| {
        let mut kv = Kv::new(800_000, 0.1);
        let call = demand(31_500, 50);
        let mut reservations = Vec::new();
        while kv.fits(&call, &Forecast::default(), prefix) {
            reservations.push(kv.admit(&call, Forecast::default(), prefix.clone(), Progress::default()));
        }
        let count = reservations.len();
        reservations.into_iter().rev().for_each(|reservation| kv.release(reservation));
        assert_eq!(kv.view(), KvView { capacity: 800_000, usable: 720_000, ..KvView::default() });
        count
    };
    // A token has four bytes, and each hash covers 1,024 bytes.
    let hashes: Vec<u64> = (0..117).collect();
    let ends = (1..=117).map(|nth| 1_024 * nth).collect();
    assert_eq!(admitted(&Prefix::default()), 22);
    assert_eq!(admitted(&Prefix::new(hashes.into(), ends, 4 * 31_500)), 429);
}

/// A shared prefix counts once until the last call that has it ends, even if the first one has
/// ended.
#[test]
fn shared_prefix_stays_counted_after_its_first_call_ends() {
    let mut kv = Kv::new(10_000, 0.0);
    let admit = |kv: &mut Kv| {
        kv.admit(&demand(650, 10), Forecast::default(), prefix(&[1, 2, 3, 4], 650), Progress::default())
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

/// Two prompts begin with the same 256 bytes, and the rest of the second one has more tokens per
/// byte. In either order of admission, sharing the prefix saves only the 64 tokens that it counts
/// for in the first prompt.
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
        let reservations = order.map(|which| {
            let (demand, prefix) = &calls[which];
            kv.admit(demand, Forecast::default(), prefix.clone(), Progress::default())
        });
        assert_eq!(kv.view().held, 256 + 448 - 64, "{order:?}");
        reservations.into_iter().for_each(|reservation| kv.release(reservation));
        assert_eq!(kv.view().peak, 0);
    }
}

#[test]
fn short_call_fits_beside_one_long_call() {
    let mut kv = Kv::new(33_334, 0.1);
    let long = Demand { max_output: Some(8_000), ..demand(14_000, 8_000) };
    let reservation = kv.admit(&long, Forecast::default(), Prefix::default(), Progress::default());
    assert_eq!((kv.view().usable, kv.view().peak), (30_000, 22_200));
    assert!(u64::from(kv.available()) >= 7_500, "{}", kv.available());
    assert!(kv.fits(&demand(7_500, 100), &Forecast::default(), &Prefix::default()));
    assert!(
        kv.fits(&demand(14_000, 200), &Forecast::default(), &Prefix::default()),
        "it ends long before the peak"
    );
    assert!(!kv.fits(&demand(14_000, 8_000), &Forecast::default(), &Prefix::default()));
    kv.release(reservation);
}

#[test]
fn invalid_events_leave_no_usage_behind() {
    let mut kv = Kv::new(90_000, 0.1);
    let progress = Progress::default();
    let good =
        kv.admit(&demand(100, 0), Forecast::from_lengths([50, 100]), Prefix::default(), progress.clone());
    let before = kv.peak();
    let decreasing = kv.admit(
        &demand(u64::MAX, u64::MAX),
        Forecast::from_lengths([u64::MAX, 0, 1_000_000_000_000]),
        Prefix::new([1, 2].into(), vec![u32::MAX, 0], 1),
        Progress::default(),
    );
    assert!(kv.available() == 0 && !kv.fits(&demand(0, 1), &Forecast::default(), &Prefix::default()));
    kv.release(decreasing);
    assert!((kv.peak() - before).abs() <= 1.0, "{} for {before}", kv.peak());
    progress.set(u64::MAX);
    assert_eq!(kv.available(), 0, "an answer without end");
    kv.release(good);
    assert_eq!(kv.available(), 81_000);
}

#[test]
fn produced_tokens_never_decrease() {
    let mut kv = Kv::new(10_000, 0.0);
    let progress = Progress::default();
    let reservation = kv.admit(&demand(100, 0), Forecast::exact(400), Prefix::default(), progress.clone());
    progress.set(300);
    kv.survey();
    progress.set(0);
    assert_eq!(kv.view().held, 400);
    kv.release(reservation);
}

/// Calls in different phases do not reach their maximum memory use at the same time, so the
/// predicted peak is far below the sum of their maxima.
#[test]
fn calls_in_different_phases_reuse_future_memory() {
    let phases: Vec<InFlight> = (0..10).map(|k| (0, 100 * k, vec![1_000])).collect();
    let (kv, _reservations) = kv_with(PLENTY, &phases);
    let reserved = 10.0 * 1_000.0;
    assert!(kv.peak() < 0.65 * reserved, "{}", kv.peak());
}

/// The progress of an answer in one piece is not observed, so its whole length counts at every
/// step.
#[test]
fn unary_answer_counts_in_full() {
    let mut kv = Kv::new(10_000, 0.0);
    let forecast = Forecast::exact(400).non_streaming();
    let first = kv.admit(&demand(100, 0), forecast.clone(), Prefix::default(), Progress::default());
    let second = kv.admit(&demand(100, 0), forecast, Prefix::default(), Progress::default());
    let progress = Progress::default();
    let seen = kv.admit(&demand(0, 0), Forecast::exact(300), Prefix::default(), progress.clone());
    progress.set(299);
    assert_eq!(kv.view().peak, 2 * 508 + 308);
    [first, second, seen].into_iter().for_each(|reservation| kv.release(reservation));
}

/// A forecast from the learned output lengths has their mean, within 5 %, and their maximum.
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
    assert_eq!(forecast.remaining(0).next(), Some(900));
}

/// A call may be queued before anything is learned about its target. Its forecast is computed when
/// it is admitted, so it uses what is known by then.
#[test]
fn forecast_is_taken_at_admission() {
    let known = Arc::new(AtomicU64::new(4_096));
    let forecast = Forecast::deferred({
        let known = known.clone();
        move || Forecast::exact(known.load(Ordering::Relaxed)).with_input(80)
    });
    let mut kv = Kv::new(10_000, 0.0);
    let cold = demand(100, 4_096);
    let first = kv.admit(&cold, forecast.clone(), Prefix::default(), Progress::default());
    kv.available();
    assert!(kv.fits(&cold, &forecast, &Prefix::default()), "4,204 each of 10,000");
    let second = kv.admit(&cold, forecast.clone(), Prefix::default(), Progress::default());
    kv.available();
    assert!(!kv.fits(&cold, &forecast, &Prefix::default()));
    kv.release(second);
    known.store(50, Ordering::Relaxed);
    kv.release(first);
    let reservations: Vec<KvReservation> =
        (0..20).map(|_| kv.admit(&cold, forecast.clone(), Prefix::default(), Progress::default())).collect();
    assert!(kv.peak() < 20.0 * 140.0, "{}", kv.peak());
    kv.available();
    assert!(
        kv.fits(&cold, &forecast, &Prefix::default())
            && kv.fits(&demand(6_000, 50), &Forecast::default(), &Prefix::default())
    );
    reservations.into_iter().for_each(|reservation| kv.release(reservation));
}

#[test]
fn reported_use_corrects_what_fits() {
    let (mut kv, _calls) = kv_with(1_000, &[(300, 100, vec![100])]);
    let fits = |kv: &mut Kv, input| {
        kv.available();
        kv.fits(&demand(input, 1), &Forecast::exact(1), &Prefix::default())
    };
    assert!(fits(&mut kv, 500) && !fits(&mut kv, 700));
    (0..9).for_each(|_| kv.calibrate(700, false));
    assert!(fits(&mut kv, 200) && !fits(&mut kv, 400), "others hold 300");
    (0..9).for_each(|_| kv.calibrate(200, true));
    assert!(!fits(&mut kv, 400), "calls that wait in the engine hold nothing yet");
    (0..9).for_each(|_| kv.calibrate(200, false));
    assert!(fits(&mut kv, 700), "calls share 200");
}

#[test]
fn as_many_calls_fit_as_the_peak_of_those_in_flight_shows() {
    // Each call needs 92 tokens, half of a block, and 100 tokens for its answer.
    let call = (92, 0, vec![100]);
    let (few, _kept) = kv_with(2_000, &vec![call.clone(); 7]);
    assert_eq!(few.max_calls(), None, "too few to say");
    let (kv, _kept) = kv_with(2_000, &vec![call.clone(); 8]);
    assert_eq!(kv.max_calls(), Some(10));
    let (full, _kept) = kv_with(1_000, &vec![call; 8]);
    assert_eq!(full.max_calls(), Some(5), "more are in flight than fit");
}
