//! Tests of the adaptive limit with an engine that batches: all running calls get a token in each
//! step, and prompts lengthen the step in which they are read.

use std::collections::VecDeque;

use super::*;

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
        Self { run, places, waiting: VecDeque::new(), running: Vec::new(), waited: 0, ran: 0 }
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
        self.run.pass(micros.div_ceil(1_000));
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
                cuts.get_or_insert(self.run.limit.view().cuts);
                self.waited += self.waiting.len();
                self.ran += self.running.len();
            }
        }
        self.run.limit.view().cuts - cuts.unwrap_or(0)
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
            let (slots, view) = (engine.run.limit.slots(), engine.run.limit.view());
            let name = format!("{objective:?}, {prompt} tokens, {places} places: {slots} slots, {cuts} cuts");
            assert!(!view.slow_start && cuts <= 8, "{name}");
            assert!((places..=places + 4).contains(&slots), "{name}");
            assert!(4 * engine.waited <= engine.ran, "{name}: {} wait, {} run", engine.waited, engine.ran);
        }
    }
}
