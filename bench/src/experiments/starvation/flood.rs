//! Simulates a target under a flood of calls, event by event. The scheduler is called in the same
//! way as by the gate.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tidegate::Lane;
use tidegate::policy::schedule::{Grant, Scheduler, Settled, Ticket};
use tidegate::protocol::Usage;
use tidegate::tokens::Demand;

use crate::virtual_time;

/// The pattern in which the calls of a [`Stream`] arrive.
#[derive(Clone, Copy, Debug)]
pub(super) enum ArrivalPattern {
    /// This number of calls waits at all times.
    Flood(usize),
    /// Poisson arrivals at this rate per second.
    Poisson(f64),
    /// Alternating periods: `Flood` with the number of calls in the first field, then no calls. The
    /// second field is the length of each period, in seconds.
    OnOff(usize, f64),
}

/// The calls of one tenant in one lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) tenant: &'static str,
    pub(super) lane: Lane,
    /// Shortest and longest service time, in seconds.
    pub(super) service: (f64, f64),
    /// Fewest and most tokens of a call. The cost of a call is its number of tokens.
    pub(super) tokens: (u64, u64),
    pub(super) comes: ArrivalPattern,
}

/// The records of one stream: the waits of its calls, and its use of slots.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    pub(super) came: usize,
    /// For each dispatched call, its wait in seconds, and the calls ahead of it when it arrived.
    pub(super) dispatched: Vec<(f64, Ahead)>,
    /// For each call that still waits at the end, its wait so far in seconds, and the calls ahead
    /// of it when it arrived.
    pub(super) left: Vec<(f64, Ahead)>,
    /// The longest time, in seconds, during which calls of the stream waited although it held fewer
    /// slots than are reserved for it (its floor).
    pub(super) below_floor: f64,
    /// The time that the stream's calls held slots, summed over the slots, in slot-seconds. The
    /// field `wanted` is the time in seconds in which the stream had calls waiting or running.
    pub(super) held: f64,
    pub(super) wanted: f64,
}

/// The calls that are ahead of a call in its own queue when it arrives.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    pub(super) calls: usize,
    pub(super) tokens: u64,
}

struct Call {
    stream: usize,
    at: Duration,
    tokens: u64,
    ahead: Ahead,
}

pub(super) struct Flood {
    scheduler: Scheduler<usize>,
    began: Instant,
    streams: Vec<Stream>,
    /// For each stream, the slots that are reserved for it.
    floors: Vec<usize>,
    calls: Vec<Call>,
    lines: Vec<VecDeque<usize>>,
    running: Vec<usize>,
    below: Vec<Option<Duration>>,
    accounts: Vec<Account>,
    ends: BinaryHeap<Reverse<(Duration, usize)>>,
    grants: HashMap<usize, Box<Grant>>,
    rng: Rng,
    seen: Duration,
}

impl Flood {
    pub(super) fn new(scheduler: Scheduler<usize>, streams: &[Stream], floors: &[usize], seed: u64) -> Self {
        let count = streams.len();
        Self {
            scheduler,
            began: virtual_time::time_origin(),
            streams: streams.to_vec(),
            floors: floors.to_vec(),
            calls: Vec::new(),
            lines: vec![VecDeque::new(); count],
            running: vec![0; count],
            below: vec![None; count],
            accounts: vec![Account::default(); count],
            ends: BinaryHeap::new(),
            grants: HashMap::new(),
            rng: Rng::with_seed(seed),
            seen: Duration::ZERO,
        }
    }

    /// Simulates the streams until `horizon`, and returns the records of each stream.
    pub(super) fn run(mut self, horizon: Duration) -> Vec<Account> {
        let mut next: Vec<Option<Duration>> = Vec::new();
        for stream in self.streams.clone() {
            next.push(self.pause(stream, Duration::ZERO));
        }
        let mut now = Duration::ZERO;
        loop {
            for (number, stream) in self.streams.clone().into_iter().enumerate() {
                while next.get(number).copied().flatten().is_some_and(|at| at <= now) {
                    self.arrive(now, number);
                    let pause = self.pause(stream, now);
                    if let Some(place) = next.get_mut(number) {
                        *place = pause;
                    }
                }
                self.fill(now, number, stream);
            }
            self.dispatch(now);
            self.watch(now);
            let wake = self.scheduler.next_wake(self.began + now).map(|at| at - self.began);
            let end = self.ends.peek().map(|Reverse((at, _))| *at);
            let turns = self.streams.iter().filter_map(|stream| match stream.comes {
                ArrivalPattern::OnOff(_, phase) => {
                    Some(Duration::from_secs_f64(((now.as_secs_f64() / phase).floor() + 1.0) * phase))
                }
                _ => None,
            });
            let soonest = turns
                .chain(next.iter().flatten().copied())
                .chain(end)
                .chain(wake.filter(|at| *at > now))
                .min();
            let Some(then) = soonest.filter(|at| *at <= horizon) else { break };
            now = then;
            while let Some(Reverse((_, id))) = self.ends.peek().copied().filter(|Reverse((at, _))| *at <= now)
            {
                self.ends.pop();
                self.end(now, id);
            }
        }
        self.watch(horizon);
        for (account, line) in self.accounts.iter_mut().zip(&self.lines) {
            let calls = line.iter().filter_map(|id| self.calls.get(*id));
            account.left = calls.map(|call| ((horizon - call.at).as_secs_f64(), call.ahead)).collect();
        }
        self.accounts
    }

    /// Returns the time of the next call of a Poisson stream. `None` for other streams.
    fn pause(&mut self, stream: Stream, now: Duration) -> Option<Duration> {
        let ArrivalPattern::Poisson(rate) = stream.comes else { return None };
        Some(now + Duration::from_secs_f64(-self.rng.f64().max(1e-12).ln() / rate))
    }

    fn fill(&mut self, now: Duration, number: usize, stream: Stream) {
        let depth = match stream.comes {
            ArrivalPattern::Flood(depth) => depth,
            ArrivalPattern::OnOff(depth, phase) if (now.as_secs_f64() / phase + 1e-9) % 2.0 < 1.0 => depth,
            _ => 0,
        };
        while self.lines.get(number).is_some_and(|line| line.len() < depth) {
            self.arrive(now, number);
        }
    }

    fn arrive(&mut self, now: Duration, number: usize) {
        let (Some(stream), Some(line)) = (self.streams.get(number), self.lines.get_mut(number)) else {
            return;
        };
        let tokens = self.rng.u64(stream.tokens.0..=stream.tokens.1);
        let waiting = line.iter().filter_map(|id| self.calls.get(*id));
        let ahead = Ahead { calls: line.len(), tokens: waiting.map(|call| call.tokens).sum() };
        let id = self.calls.len();
        self.calls.push(Call { stream: number, at: now, tokens, ahead });
        if let Some(account) = self.accounts.get_mut(number) {
            account.came += 1;
        }
        let at = self.began + now;
        let ticket = Ticket {
            lane: stream.lane,
            demand: Demand { input: tokens, exact: true, ..Demand::default() },
            cost: tokens as f64,
            ..Ticket::new(Arc::from(stream.tenant), at, at + Duration::from_secs(24 * 3600))
        };
        line.push_back(id);
        match self.scheduler.try_admit(at, &ticket) {
            Ok(Some(grant)) => self.start(now, id, grant),
            Ok(None) => drop(self.scheduler.enqueue(at, ticket, id)),
            // No bound of the queue applies here.
            Err(_) => drop(line.pop_back()),
        }
    }

    fn dispatch(&mut self, now: Duration) {
        while let Some((id, grant)) = self.scheduler.next(self.began + now) {
            self.start(now, id, grant);
        }
    }

    fn start(&mut self, now: Duration, id: usize, mut grant: Box<Grant>) {
        grant.sent = true;
        self.grants.insert(id, grant);
        let Some(call) = self.calls.get(id) else { return };
        let number = call.stream;
        if let Some(line) = self.lines.get_mut(number) {
            line.retain(|waiting| *waiting != id);
        }
        if let Some(account) = self.accounts.get_mut(number) {
            account.dispatched.push(((now - call.at).as_secs_f64(), call.ahead));
        }
        if let Some(running) = self.running.get_mut(number) {
            *running += 1;
        }
        let Some(stream) = self.streams.get(number) else { return };
        let (from, to) = stream.service;
        let service = Duration::from_secs_f64(from + (to - from) * self.rng.f64());
        self.ends.push(Reverse((now + service, id)));
    }

    fn end(&mut self, now: Duration, id: usize) {
        let at = self.began + now;
        let (Some(mut grant), Some(call)) = (self.grants.remove(&id), self.calls.get(id)) else { return };
        let usage = Usage { input: call.tokens, output: 0, cached_input: 0 };
        self.scheduler.settle(at, &mut grant, &Settled { usage, cost: call.tokens as f64 });
        self.scheduler.on_success(at, &mut grant);
        self.scheduler.release(at, grant);
        if let Some(running) = self.running.get_mut(call.stream) {
            *running -= 1;
        }
    }

    /// Adds the time since the last call of this function to the fields `below_floor`, `held` and
    /// `wanted` of each stream's records. Must be called after all possible dispatches of a moment.
    fn watch(&mut self, now: Duration) {
        let passed = (now - self.seen).as_secs_f64();
        self.seen = now;
        for (number, account) in self.accounts.iter_mut().enumerate() {
            let running = self.running.get(number).copied().unwrap_or_default();
            let waiting = self.lines.get(number).map_or(0, VecDeque::len);
            let floor = self.floors.get(number).copied().unwrap_or_default();
            if waiting + running > 0 {
                account.wanted += passed;
                account.held += passed * running as f64;
            }
            let Some(below) = self.below.get_mut(number) else { continue };
            if let Some(since) = *below {
                account.below_floor = account.below_floor.max((now - since).as_secs_f64());
            }
            *below = (waiting > 0 && running < floor).then(|| below.unwrap_or(now));
        }
    }
}
