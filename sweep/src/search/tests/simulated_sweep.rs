//! A fast model of a server, of a gate with retries, and of a client that keeps calls waiting.
//! Pure, and deterministic for a seed.
//!
//! The server shares its speed among all calls, depending on their number. A call ends when the
//! server's virtual time has advanced by the duration of the call.

mod server;

use std::collections::{BinaryHeap, VecDeque};

use fastrand::Rng;

use super::server_models::ServerModel;
use crate::normal_distribution;
use crate::observation::{
    AttemptFailure, AttemptObservation, BlockedBy, CallObservation, EngineObservation, LoadSample,
};
use crate::search::{Search, SearchAction};

/// Time to first token of a call that is alone on the server, in seconds.
const FIRST: f64 = 0.4;
/// Output tokens per second of a call that is alone on the server.
const SPEED: f64 = 60.0;
/// Prompt tokens of every call.
const PROMPT: f64 = 300.0;

struct Call {
    work: usize,
    step: usize,
    queued: f64,
    admitted: Option<f64>,
    slot: f64,
    attempts: u32,
    tokens: u64,
    seconds: f64,
}

struct Open {
    ends: f64,
    sent: f64,
    position: usize,
    call: Call,
    pause: f64,
}

impl PartialEq for Open {
    fn eq(&self, other: &Self) -> bool {
        self.ends == other.ends
    }
}
impl Eq for Open {}
impl PartialOrd for Open {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Open {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.ends.total_cmp(&self.ends)
    }
}

/// State of a simulated sweep: the search, the simulated server and the calls.
pub(crate) struct Play {
    model: ServerModel,
    search: Search,
    rng: Rng,
    seed: u64,
    now: f64,
    virtual_time: f64,
    cap: usize,
    step: usize,
    next_work: usize,
    sending: bool,
    open: BinaryHeap<Open>,
    refused: VecDeque<(f64, Open, AttemptFailure)>,
    waiting: VecDeque<Call>,
    backing_off: Vec<(f64, Call)>,
    closed_until: f64,
    probing: Option<f64>,
    ramp: Option<(f64, f64, f64)>,
    retries: VecDeque<f64>,
    recent_calls: VecDeque<f64>,
    level: f64,
    level_at: f64,
    /// State of [`ServerModel::growth`]: the number of concurrent calls that the server accepts
    /// now, and the simulated time at which it was last updated, in seconds.
    grown: (f64, f64),
    overloaded_until: f64,
    most: VecDeque<(f64, usize)>,
    sent: VecDeque<f64>,
    /// The current burst of [`ServerModel::bursts`] or the pause before the next one: its end in
    /// seconds, and the factor on the duration of calls.
    burst: (f64, f64),
    burst_rng: Rng,
    /// Metrics of the engine, and the time at which they were polled.
    polled: (f64, EngineObservation),
    preemptions: u64,
    sent_calls: usize,
    pub(crate) calls: usize,
    pub(crate) attempts: usize,
    pub(crate) trace: bool,
}

/// Result of a simulated sweep. `seconds` is its simulated duration.
pub(crate) struct SweepRun {
    pub(crate) search: Search,
    pub(crate) calls: usize,
    pub(crate) attempts: usize,
    /// Number of calls of which at least one attempt was sent.
    pub(crate) sent: usize,
    pub(crate) seconds: f64,
}

impl Play {
    pub(crate) fn new(model: ServerModel, seed: u64) -> Self {
        let search = Search::new(model.settings.clone());
        let level = model.bucket.map_or(0.0, |bucket| bucket.seconds);
        Self {
            model,
            search,
            rng: Rng::with_seed(seed ^ 0x9e37_79b9),
            seed,
            now: 0.0,
            virtual_time: 0.0,
            cap: 0,
            step: 0,
            next_work: 0,
            sending: false,
            open: BinaryHeap::new(),
            refused: VecDeque::new(),
            waiting: VecDeque::new(),
            backing_off: Vec::new(),
            closed_until: 0.0,
            probing: None,
            ramp: None,
            retries: VecDeque::new(),
            recent_calls: VecDeque::new(),
            level,
            level_at: 0.0,
            grown: (0.0, 0.0),
            overloaded_until: f64::NEG_INFINITY,
            most: VecDeque::new(),
            sent: VecDeque::new(),
            burst: (0.0, 1.0),
            burst_rng: Rng::with_seed(seed ^ 0x51ed_270b),
            polled: (0.0, EngineObservation::default()),
            preemptions: 0,
            sent_calls: 0,
            calls: 0,
            attempts: 0,
            trace: false,
        }
    }

    fn in_flight(&self) -> usize {
        self.open.len() + self.refused.len()
    }

    fn mean_tokens(&self) -> f64 {
        200.0 * (self.model.lengths * self.model.lengths / 2.0).exp()
    }

    fn new_call(&mut self) -> Call {
        let work = self.next_work;
        self.next_work += 1;
        self.calls += 1;
        if let Some((after, then)) = self.model.drift.clone()
            && self.calls > after
        {
            self.model = *then;
        }
        let mut rng = Rng::with_seed(self.seed.wrapping_mul(1_000_003).wrapping_add(work as u64));
        let tokens = (200.0 * (self.model.lengths * normal_distribution::draw(&mut rng)).exp()).max(1.0);
        let noise = (self.model.noise * normal_distribution::draw(&mut self.rng)).exp();
        Call {
            work,
            step: self.step,
            queued: self.now,
            admitted: None,
            slot: 0.0,
            attempts: 0,
            tokens: tokens as u64,
            seconds: (FIRST + tokens / SPEED) * noise,
        }
    }

    /// Runs the sweep until the search is done, or until `most_calls` calls were started. Returns
    /// the result.
    pub(crate) fn play(mut self, most_calls: usize) -> SweepRun {
        loop {
            match self.search.next(self.now) {
                SearchAction::Done => break,
                SearchAction::Rest { seconds } => {
                    self.sending = false;
                    self.waiting.clear();
                    self.backing_off.clear();
                    while self.in_flight() > 0 {
                        self.advance();
                    }
                    self.now += seconds;
                    if self.trace {
                        println!("{:8.1} rest {seconds:.1}", self.now);
                    }
                }
                SearchAction::Measure { step, cap, purpose } => {
                    self.step = step;
                    self.cap = cap;
                    self.next_work = 0;
                    self.sending = true;
                    while !self.search.is_settled() && self.calls < most_calls {
                        self.advance();
                    }
                    if self.trace {
                        println!("{:8.1} calls {:5} held {cap:4} for {purpose:?}", self.now, self.calls);
                    }
                    if self.calls >= most_calls {
                        break;
                    }
                }
            }
        }
        if self.trace {
            for step in self.search.steps() {
                println!(
                    "  step {} cap {} {:?} {:?} calls {} attempts {} failures {:?} X {:?} in flight {:.1} forbidden {:.2}",
                    step.step,
                    step.cap,
                    step.purpose,
                    step.verdict,
                    step.calls,
                    step.attempts,
                    step.failures,
                    step.throughput.map(|x| (x.value, x.high - x.value)),
                    step.in_flight,
                    step.forbidden
                );
            }
        }
        SweepRun {
            search: self.search,
            calls: self.calls,
            attempts: self.attempts,
            sent: self.sent_calls,
            seconds: self.now,
        }
    }

    /// Starts and sends as many calls as the backlog and the cap allow, and advances the simulated
    /// time to the next event.
    fn advance(&mut self) {
        if self.sending {
            let total = self.cap + (self.cap / 4).max(8);
            while self.waiting.len() + self.backing_off.len() + self.in_flight() < total
                && self.sent_calls + self.waiting.len() < self.search.max_calls()
            {
                let call = self.new_call();
                self.recent_calls.push_back(self.now);
                self.waiting.push_back(call);
            }
        }
        let held_by = self.dispatch();
        let sample = LoadSample {
            at: self.now,
            cap: self.cap,
            in_flight: self.in_flight(),
            waiting: self.waiting.len(),
            held_by,
            client_cpu: None,
            client_lag: if self.burst.1 > 1.0 { 0.02 * self.burst.1 } else { 0.0 },
            machine_cpu: None,
            engine: self.engine(),
            sent: self.sent_calls,
        };
        self.search.on_load_sample(&sample);
        self.update_burst();
        let speed = self.model.speed(self.open.len().max(1)) * self.slowness();
        let done = self.open.peek().map(|open| self.now + (open.ends - self.virtual_time).max(0.0) / speed);
        let refused = self.refused.front().map(|refused| refused.0);
        let back = self.backing_off.iter().map(|back| back.0).min_by(f64::total_cmp);
        let next = [done, refused, back, Some(self.now + 0.1)]
            .into_iter()
            .flatten()
            .min_by(f64::total_cmp)
            .unwrap_or(self.now);
        self.virtual_time += (next - self.now) * speed;
        self.now = next;
        if refused == Some(next) {
            if let Some((_, open, failure)) = self.refused.pop_front() {
                self.fail(open, failure);
            }
        } else if done == Some(next) {
            if let Some(open) = self.open.pop() {
                self.complete(open);
            }
        } else if back == Some(next)
            && let Some(at) = self.backing_off.iter().position(|back| back.0 == next)
        {
            let (_, call) = self.backing_off.swap_remove(at);
            self.waiting.push_front(call);
        }
    }

    /// Returns the engine's metrics as of the last poll, or `None` if the server has none.
    fn engine(&mut self) -> Option<EngineObservation> {
        if !self.model.metrics {
            return None;
        }
        if self.now >= self.polled.0 + 0.5 {
            let open = self.open.len();
            let running = [self.model.running, self.model.kv].into_iter().flatten().fold(open, usize::min);
            let kv = self.model.kv.or(self.model.running.filter(|_| self.model.is_kv_bound));
            let kv_usage = kv.map_or(0.3, |kv| (open as f64 / kv as f64).min(0.98));
            self.polled = (
                self.now,
                EngineObservation {
                    preemptions: Some(self.preemptions),
                    kv_usage: Some(kv_usage),
                    waiting: Some((open - running) as u64),
                    running: Some(running as u64),
                },
            );
        }
        Some(self.polled.1)
    }

    /// Begins and ends the bursts of another program, up to the current time.
    fn update_burst(&mut self) {
        let Some(bursts) = self.model.bursts else { return };
        while self.now >= self.burst.0 {
            let mut between = |low: f64, high: f64| low * (high / low).powf(self.burst_rng.f64());
            self.burst = if self.burst.1 > 1.0 {
                (self.burst.0 + between(bursts.pauses.0, bursts.pauses.1), 1.0)
            } else {
                (self.burst.0 + between(0.1, bursts.longest), between(2.0, bursts.slowest))
            };
        }
    }

    fn slowness(&self) -> f64 {
        let overloaded = self.model.hysteresis.filter(|_| self.now < self.overloaded_until);
        let stumbles = self.model.stumble.filter(|&(from, to, _)| (from..to).contains(&self.now));
        overloaded.map_or(1.0 / self.burst.1, |overload| 1.0 / (overload.slower * self.burst.1))
            * stumbles.map_or(1.0, |(_, _, slower)| 1.0 / slower)
    }

    /// Sends as many waiting calls as possible. Returns what keeps the next call waiting although a
    /// slot is free, or `None` if no call waits or no slot is free.
    fn dispatch(&mut self) -> Option<BlockedBy> {
        while self.in_flight() < self.cap && !self.waiting.is_empty() {
            if self.now < self.closed_until {
                return Some(BlockedBy::CoolDown);
            }
            if let Some(since) = self.probing {
                if self.in_flight() > 0 && self.now < since + 0.5 && since > self.closed_until {
                    return Some(BlockedBy::CoolDown);
                }
                if since > self.closed_until {
                    self.probing = None;
                    let rate = self.sent.len() as f64 / 10.0;
                    self.ramp = Some((self.now, rate.max(0.5), 0.0));
                } else {
                    self.probing = Some(self.now);
                }
            }
            if let Some((since, rate, admitted)) = self.ramp {
                let elapsed = self.now - since;
                let due = rate * 2.0 / std::f64::consts::LN_2 * ((elapsed / 2.0).exp2() - 1.0) + 1.0;
                if elapsed > 10.0 {
                    self.ramp = None;
                } else if admitted + 1.0 > due {
                    return Some(BlockedBy::CoolDown);
                } else {
                    self.ramp = Some((since, rate, admitted + 1.0));
                }
            }
            if self.model.client.is_some_and(|most| self.in_flight() >= most) {
                return Some(BlockedBy::Nothing);
            }
            if let Some(bucket) = self.model.bucket.filter(|bucket| bucket.headers)
                && !self.has_room()
            {
                return Some(if bucket.by_tokens { BlockedBy::Tokens } else { BlockedBy::Requests });
            }
            if let Some(call) = self.waiting.pop_front() {
                self.send(call);
            }
        }
        if self.in_flight() >= self.cap {
            self.ramp = None;
        }
        None
    }

    fn fail(&mut self, mut open: Open, failure: AttemptFailure) {
        let seen = AttemptObservation {
            sent_at: open.sent,
            ended_at: self.now,
            position: open.position,
            failure: Some(failure.clone()),
            rates: self.told(),
        };
        self.search.on_attempt(&seen);
        open.call.slot += self.now - open.sent;
        if let Some(after) = failure.retry_after {
            self.closed_until = self.closed_until.max(self.now + after * (1.0 + 0.1 * self.rng.f64()));
            self.probing = Some(f64::NEG_INFINITY);
            self.ramp = None;
        }
        if open.call.attempts >= 4 {
            return self.give_up(open, failure);
        }
        if failure.retry_after.is_some() {
            self.waiting.push_front(open.call);
            return;
        }
        for times in [&mut self.retries, &mut self.recent_calls] {
            while times.front().is_some_and(|&at| at < self.now - 10.0) {
                times.pop_front();
            }
        }
        if self.retries.len() as f64 >= 0.2 * self.recent_calls.len() as f64 + 10.0 {
            return self.give_up(open, failure);
        }
        self.retries.push_back(self.now);
        let bound = 0.5 * f64::from(1 << (open.call.attempts - 1));
        self.backing_off.push((self.now + bound * self.rng.f64(), open.call));
    }

    fn give_up(&mut self, open: Open, failure: AttemptFailure) {
        self.ended(open.call, None, Some(failure));
    }

    fn complete(&mut self, mut open: Open) {
        open.call.slot += self.now - open.sent;
        let seen = AttemptObservation {
            sent_at: open.sent,
            ended_at: self.now,
            position: open.position,
            failure: None,
            rates: self.told(),
        };
        self.search.on_attempt(&seen);
        // A burst also stops the streams for a while.
        let pause = if self.burst.1 > 1.0 { open.pause.max(0.1 * self.burst.1) } else { open.pause };
        self.ended(open.call, Some(pause), None);
    }

    fn ended(&mut self, call: Call, pause: Option<f64>, failure: Option<AttemptFailure>) {
        let admitted = call.admitted.unwrap_or(call.queued);
        let took = call.slot;
        let seen = CallObservation {
            work: call.work,
            step: call.step,
            queued_at: call.queued,
            admitted_at: admitted,
            ended_at: self.now,
            slot_seconds: took,
            attempts: call.attempts,
            ttft: failure.is_none().then_some(took * FIRST / (FIRST + call.tokens as f64 / SPEED)),
            tpot: failure.is_none().then_some(took / (call.tokens as f64 + FIRST * SPEED)),
            longest_pause: pause,
            input_tokens: PROMPT as u64,
            output_tokens: if failure.is_none() { call.tokens } else { 0 },
            counted: true,
            failure,
        };
        self.search.on_call(&seen);
    }
}
