//! Tests of the adaptive limit with an engine that batches: all running calls get a token in each
//! step, and prompts lengthen the step in which they are read.

use std::collections::VecDeque;

use super::*;
use tidegate_protocol::vllm::EngineMetrics;

/// An engine that runs up to `places` calls at once, first come first served. Each of its steps
/// takes 30 ms, 0.5 ms per running call and 0.1 ms per prompt token, as a small GPU does.
struct BatchingEngine {
    run: Run,
    places: usize,
    waiting: VecDeque<Running>,
    running: Vec<Running>,
    /// Sum over the steps of the second half of the run of the calls that wait in the engine.
    waited: usize,
    /// Sum over the steps of the second half of the run of the calls that run.
    ran: usize,
    /// When the engine next reports its calls, or `None` if it does not.
    report_at: Option<Instant>,
    /// The factors by which steps take longer, at random.
    noise: Option<fastrand::Rng>,
}

/// A call in the engine.
struct Running {
    sample: Sample,
    /// Prompt tokens that were not read yet.
    prompt: u64,
    /// Output tokens that were not produced yet.
    left: u64,
}

/// Maximum number of prompt tokens that are read in one step.
const MAX_STEP_TOKENS: u64 = 1_024;

impl BatchingEngine {
    fn new(settings: &LimitSettings, places: usize) -> Self {
        let run = Run::new(settings);
        let (waiting, running) = (VecDeque::new(), Vec::new());
        Self { run, places, waiting, running, waited: 0, ran: 0, report_at: None, noise: None }
    }

    /// Lets the engine report its calls each second.
    fn reporting(self) -> Self {
        Self { report_at: Some(self.run.now), ..self }
    }

    /// Lets steps take up to 20 times as long, in phases of some steps, as on a busy machine.
    fn noisy(self, seed: u64) -> Self {
        Self { noise: Some(fastrand::Rng::with_seed(seed)), ..self }
    }

    /// Passes the calls of the engine to the limit if a report is due.
    fn report(&mut self) {
        let Run { limit, now } = &mut self.run;
        if let Some(at) = self.report_at.filter(|at| at <= now) {
            self.report_at = Some(at + Duration::from_secs(1));
            let (running, waiting) = (self.running.len() as f64, self.waiting.len() as f64);
            limit.on_engine_metrics(*now, &EngineMetrics { running, waiting, ..EngineMetrics::default() });
        }
    }

    /// Sends calls until the limit is full, then makes one step.
    fn step(&mut self, kind: CallKind) {
        for sample in self.run.fill(kind, usize::MAX) {
            self.waiting.push_back(Running { sample, prompt: kind.input, left: kind.output });
        }
        let mut budget = MAX_STEP_TOKENS;
        let mut read = |call: &mut Running| {
            let tokens = call.prompt.min(budget);
            call.prompt -= tokens;
            budget -= tokens;
        };
        self.running.iter_mut().for_each(&mut read);
        while self.running.len() < self.places
            && let Some(mut call) = self.waiting.pop_front()
        {
            read(&mut call);
            self.running.push(call);
        }
        let micros = 30_000 + 500 * self.running.len() as u64 + 100 * (MAX_STEP_TOKENS - budget);
        let slower = self.noise.as_mut().map_or(1.0, |rng| 19.0f64.mul_add(rng.f64().powi(12), 1.0));
        self.run.pass(((micros as f64 * slower) as u64).div_ceil(1_000));
        self.report();
        let Run { limit, now } = &mut self.run;
        for call in self.running.iter_mut().filter(|call| call.prompt == 0) {
            limit.on_first_token(*now, &mut call.sample);
            call.left -= 1;
        }
        for call in self.running.extract_if(.., |call| call.left == 0) {
            limit.on_ended(*now, call.sample, Ended::Completed { output: kind.output });
        }
    }

    /// Runs for `seconds`. Returns the number of cuts in the second half.
    fn cuts(&mut self, kind: CallKind, seconds: u64) -> u64 {
        let began = self.run.now;
        let mut cuts = None;
        while self.run.now < began + Duration::from_secs(seconds) {
            self.step(kind);
            if self.run.now > began + Duration::from_secs(seconds) / 2 {
                cuts.get_or_insert(self.run.limit.view(self.run.now).cuts);
                self.waited += self.waiting.len();
                self.ran += self.running.len();
            }
        }
        self.run.limit.view(self.run.now).cuts - cuts.unwrap_or(0)
    }
}

/// Calls of equal length that begin together also end together, and the burst that follows gets its
/// first tokens at once. The limit must not grow back above the capacity in each such burst.
#[test]
fn equal_calls_do_not_keep_the_limit_above_the_capacity() {
    for (objective, prompt) in [(None, 300), (Some(1_000), 300), (None, 100), (Some(500), 100)] {
        for places in [8, 16, 24] {
            let mut engine = BatchingEngine::new(&LimitSettings { max: 256, ..settings(objective) }, places);
            let kind = CallKind { input: prompt, output: 50, streams: true };
            let cuts = engine.cuts(kind, 120);
            let (slots, view) = (engine.run.limit.slots(), engine.run.limit.view(engine.run.now));
            let name = format!("{objective:?}, {prompt} tokens, {places} places: {slots} slots, {cuts} cuts");
            assert!(!view.slow_start && cuts <= 8, "{name}");
            assert!((places..=places + 4).contains(&slots), "{name}");
            assert!(4 * engine.waited <= engine.ran, "{name}: {} wait, {} run", engine.waited, engine.ran);
        }
    }
}

/// Without an objective, latencies that vary for other reasons would raise the limit or cut it. The
/// queue that the engine reports does neither.
#[test]
fn reports_of_the_engine_keep_the_limit_at_the_capacity_despite_noise() {
    for places in [4, 8, 16, 64] {
        for (prompt, seed) in [(20, 1), (300, 2), (100, 3)] {
            let settings = LimitSettings { max: 256, ..settings(None) };
            let mut engine = BatchingEngine::new(&settings, places).noisy(seed).reporting();
            let cuts = engine.cuts(CallKind { input: prompt, output: 50, streams: true }, 120);
            let slots = engine.run.limit.slots();
            let name = format!("{prompt} tokens, {places} places: {slots} slots, {cuts} cuts");
            assert!(cuts <= 4, "{name}");
            assert!((places..=places + 2 + places / 8).contains(&slots), "{name}");
            assert!(
                5 * engine.waited <= 2 * engine.ran,
                "{name}: {} wait, {} run",
                engine.waited,
                engine.ran
            );
        }
    }
}

/// Other clients fill the engine, and leave it again.
#[test]
fn reports_make_room_for_other_clients() {
    let mut limit = Run::new(&LimitSettings { max: 256, ..settings(None) });
    let kind = CallKind { input: 100, output: 50, streams: true };
    let report = |run: &mut Run, running: f64, waiting: f64| {
        for _ in 0..4 {
            run.pass(1_000);
            let metrics = EngineMetrics { running, waiting, ..EngineMetrics::default() };
            run.limit.on_engine_metrics(run.now, &metrics);
        }
    };
    let calls = limit.fill(kind, 8);
    report(&mut limit, 16.0, 16.0);
    assert_eq!(limit.limit.slots(), 4, "the batch of 16, and 1 in the queue, are shared by 32");
    report(&mut limit, 16.0, 16.0);
    assert_eq!(limit.limit.slots(), 4, "calls in flight are not counted twice");
    drop(calls);
}

/// A burst of prompts waits to be read, while the batch has room for their answers.
#[test]
fn waiting_calls_are_no_queue_while_the_batch_grows() {
    let mut run = Run::new(&LimitSettings { max: 256, ..settings(None) });
    let calls = run.fill(CallKind { input: 100, output: 50, streams: true }, 8);
    let mut slots_after = |running: f64| {
        run.pass(1_000);
        let metrics = EngineMetrics { running, waiting: 8.0 - running, ..EngineMetrics::default() };
        run.limit.on_engine_metrics(run.now, &metrics);
        run.limit.slots()
    };
    assert_eq!([3.0, 4.0, 5.0, 6.0].map(&mut slots_after), [8; 4]);
    assert_eq!([6.0, 6.0].map(&mut slots_after), [8, 7], "6 run and 2 wait; 1 may");
    drop(calls);
}

/// An address with several engines reports those of one of them.
#[test]
fn reports_of_one_of_several_engines_are_ignored() {
    let mut run = Run::new(&LimitSettings { max: 256, ..settings(None) });
    let calls = run.fill(CallKind { input: 100, output: 50, streams: true }, 8);
    for _ in 0..10 {
        run.pass(1_000);
        let metrics = EngineMetrics { running: 2.0, waiting: 1.0, ..EngineMetrics::default() };
        run.limit.on_engine_metrics(run.now, &metrics);
    }
    assert_eq!((run.limit.slots(), calls.len()), (8, 8));
}
