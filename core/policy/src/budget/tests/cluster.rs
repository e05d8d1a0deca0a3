//! Processes that share budgets, with their broker and a provider in virtual time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tidegate_share::rates::RateStock;
use tidegate_share::{Broker, LeaseTimes, MemberId, Predecessor, ToBroker, ToMember};

use super::provider::{Announced, Provider};
use crate::budget::{Charge, RateBudgets, SharedSet};
use crate::testing::epoch;
use tidegate_config::RateConfig;
use tidegate_protocol::observe::Usage;
use tidegate_protocol::rate::{RateHeaders, RateWindow};
use tidegate_tokens::Demand;

const STEP: Duration = Duration::from_millis(5);
const HEARTBEAT: Duration = Duration::from_millis(500);
/// The time for which no process sends a call after a 429.
const COOL_DOWN: Duration = Duration::from_secs(1);
pub(super) const WINDOW: Duration = Duration::from_secs(60);

/// A process with calls that wait, in order.
pub(super) struct Process {
    pub(super) budgets: RateBudgets,
    pub(super) waiting: VecDeque<Demand>,
    running: Vec<Running>,
    pub(super) id: MemberId,
    /// The sets of limits that the broker knows.
    joined: Vec<SharedSet>,
    cooled: Instant,
    pub(super) sent: u64,
}

/// A call in flight.
struct Running {
    charge: Charge,
    tokens: u64,
    sent: Instant,
    arrives: Instant,
    ends: Instant,
    /// What the provider has answered: whether it admitted the call, and what is left. `None` until
    /// the call arrives.
    answer: Option<(bool, Announced)>,
}

impl Process {
    pub(super) fn new(config: &RateConfig, now: Instant, id: u64, is_shared: bool) -> Self {
        let mut budgets = RateBudgets::new(config, now);
        if is_shared {
            budgets.share(now, false, LeaseTimes::LOCAL);
        }
        Self {
            budgets,
            waiting: VecDeque::new(),
            running: Vec::new(),
            id: MemberId(id),
            joined: Vec::new(),
            cooled: now,
            sent: 0,
        }
    }

    /// Returns the number of calls that wait or are in flight.
    pub(super) fn calls(&self) -> usize {
        self.waiting.len() + self.running.len()
    }

    /// Runs `event` on the amounts of each set.
    fn each_stock(&mut self, event: impl Fn(&mut RateStock)) {
        for set in self.budgets.shared_sets().collect::<Vec<_>>() {
            self.budgets.with_stock(set, &event);
        }
    }

    /// Joins the broker with the sets that it does not know. Returns the messages.
    fn join(&mut self, now: Instant) -> Vec<ToBroker> {
        let sets: Vec<_> = self.budgets.shared_sets().collect();
        let before = std::mem::replace(&mut self.joined, sets.clone());
        let new = sets.into_iter().filter(|set| !before.contains(set));
        new.filter_map(|set| {
            let resource: Arc<str> = self.budgets.shared_name(set).into();
            self.budgets.join(now, set).map(|draw| ToBroker::Draw { resource, draw })
        })
        .collect()
    }

    /// Returns the messages to the broker that are due.
    fn messages(&mut self, now: Instant, is_heartbeat: bool) -> Vec<ToBroker> {
        let mut messages = Vec::new();
        for set in self.budgets.shared_sets().collect::<Vec<_>>() {
            let resource: Arc<str> = self.budgets.shared_name(set).into();
            let mut draws: Vec<_> = self.budgets.draw(now, set, || 1.0).into_iter().collect();
            draws.extend(if is_heartbeat { self.budgets.correct_due(now, set) } else { None });
            messages
                .extend(draws.into_iter().map(|draw| ToBroker::Draw { resource: resource.clone(), draw }));
        }
        messages
    }

    /// Settles the calls that have ended. Returns `true` if one was refused.
    fn end_calls(&mut self, now: Instant) -> bool {
        let mut is_refused = false;
        for at in (0..self.running.len()).rev() {
            if self.running[at].ends > now {
                continue;
            }
            let Running { mut charge, tokens, sent, answer, .. } = self.running.swap_remove(at);
            let is_admitted = answer.is_none_or(|(is_admitted, _)| is_admitted);
            if let Some((_, announced)) = answer {
                let tokens = RateWindow {
                    limit: Some(announced.limit as u64),
                    remaining: Some(announced.remaining as u64),
                    reset: Some(Duration::from_secs_f64(announced.reset.max(0.0))),
                    period: None,
                };
                let headers = RateHeaders { tokens, ..RateHeaders::default() };
                self.budgets.on_response(now, &charge, sent, &headers, !is_admitted);
            }
            if is_admitted {
                let usage = Usage { input: tokens, output: 0, ..Usage::default() };
                self.budgets.settle(now, &mut charge, &usage);
            }
            is_refused |= !is_admitted;
        }
        is_refused
    }
}

/// Processes, their broker, and the messages on their way.
pub(super) struct Cluster {
    pub(super) now: Instant,
    pub(super) start: Instant,
    pub(super) broker: Broker,
    pub(super) processes: Vec<Process>,
    pub(super) to_broker: VecDeque<(Instant, MemberId, ToBroker)>,
    pub(super) to_member: VecDeque<(Instant, MemberId, ToMember)>,
    /// The provider that admits calls. `None` admits all.
    pub(super) provider: Option<Provider>,
    /// When calls reached the provider, and what it charges for them.
    pub(super) charged: Vec<(Instant, u64)>,
    /// When calls were refused.
    pub(super) refused: Vec<Instant>,
    pub(super) messages: usize,
    pub(super) is_shared: bool,
    /// The tokens that a call takes, divided by its estimate.
    pub(super) actual: f64,
}

impl Cluster {
    pub(super) fn new(config: &RateConfig, count: u64, is_shared: bool) -> Self {
        let start = epoch();
        Self {
            now: start,
            start,
            broker: Broker::new(start, Predecessor::None),
            processes: (0..count).map(|id| Process::new(config, start, id, is_shared)).collect(),
            to_broker: VecDeque::new(),
            to_member: VecDeque::new(),
            provider: None,
            charged: Vec::new(),
            refused: Vec::new(),
            messages: 0,
            is_shared,
            actual: 1.0,
        }
    }

    /// Lets time pass. `arrive` adds the calls of each process.
    pub(super) fn run(
        &mut self,
        time: Duration,
        rng: &mut Rng,
        mut arrive: impl FnMut(&mut Process, &mut Rng),
    ) {
        let until = self.now + time;
        while self.now < until {
            self.now += STEP;
            self.deliver();
            self.answer();
            let is_heartbeat = (self.now - self.start).as_millis().is_multiple_of(HEARTBEAT.as_millis());
            for nth in 0..self.processes.len() {
                arrive(&mut self.processes[nth], rng);
                self.advance(nth, is_heartbeat, rng);
            }
        }
    }

    fn deliver(&mut self) {
        let now = self.now;
        let mut messages = self.broker.on_tick(now);
        while self.to_broker.front().is_some_and(|(at, ..)| *at <= now)
            && let Some((_, from, message)) = self.to_broker.pop_front()
        {
            messages.extend(self.broker.on_message(now, from, &message));
        }
        self.messages += messages.len();
        self.to_member.extend(messages.into_iter().map(|(to, message)| (now + STEP, to, message)));
        while self.to_member.front().is_some_and(|(at, ..)| *at <= now)
            && let Some((_, to, message)) = self.to_member.pop_front()
        {
            let process = self.processes.iter_mut().find(|process| process.id == to);
            if let (Some(process), ToMember::Advance { resource, advance }) = (process, message) {
                let budgets = &mut process.budgets;
                let set = budgets.shared_sets().find(|set| *budgets.shared_name(*set) == *resource);
                set.map(|set| budgets.with_stock(set, |stock| stock.on_advance(now, &advance, STEP)));
            }
        }
    }

    /// Lets the provider answer the calls that have arrived, in order.
    fn answer(&mut self) {
        let now = self.now;
        let running = self.processes.iter_mut().flat_map(|process| &mut process.running);
        let mut arrived: Vec<_> =
            running.filter(|call| call.arrives <= now && call.answer.is_none()).collect();
        arrived.sort_by_key(|call| call.arrives);
        let Some(provider) = &mut self.provider else { return };
        for call in arrived {
            let at = (call.arrives - self.start).as_secs_f64();
            let is_admitted = provider.arrive(at, call.tokens as f64);
            call.answer = Some((is_admitted, provider.announced(at)));
            if is_admitted {
                self.charged.push((call.arrives, call.tokens));
            } else {
                self.refused.push(call.arrives);
                call.ends = now;
            }
        }
    }

    /// Ends and sends calls of a process, and sends its messages.
    fn advance(&mut self, nth: usize, is_heartbeat: bool, rng: &mut Rng) {
        let now = self.now;
        let mut messages = Vec::new();
        if self.is_shared {
            messages.extend(self.processes[nth].join(now));
        }
        if self.processes[nth].end_calls(now) {
            // A cool-down is pushed to all processes of a share.
            let all = 0..self.processes.len();
            let cooled = if self.is_shared { all } else { nth..nth + 1 };
            self.processes[cooled].iter_mut().for_each(|process| process.cooled = now + COOL_DOWN);
        }
        let process = &mut self.processes[nth];
        if is_heartbeat {
            process.each_stock(|stock| stock.on_alive(now));
        }
        if process.waiting.is_empty() {
            process.each_stock(RateStock::lack_nothing);
        }
        while process.cooled <= now
            && let Some(call) = process.waiting.front().copied()
        {
            let need = process.budgets.need(&call);
            if !need.fits(&process.budgets.available(now)) {
                process.budgets.want(now, &need);
                break;
            }
            let charge = process.budgets.charge(now, &call);
            process.waiting.pop_front();
            process.sent += 1;
            let tokens = (call.input as f64 * self.actual) as u64;
            // The way to the provider takes a while.
            let arrives = now + Duration::from_millis(rng.u64(0..100));
            let ends = now + Duration::from_millis(rng.u64(100..3_000));
            if self.provider.is_none() {
                self.charged.push((arrives, tokens));
            }
            process.running.push(Running { charge, tokens, sent: now, arrives, ends, answer: None });
        }
        messages.extend(process.messages(now, is_heartbeat));
        self.messages += messages.len();
        let from = process.id;
        self.to_broker.extend(messages.into_iter().map(|message| (now + STEP, from, message)));
    }

    /// Replaces the broker by one that knows nothing.
    pub(super) fn replace_broker(&mut self) {
        self.broker = Broker::new(self.now, Predecessor::None);
        self.to_broker.clear();
        self.to_member.clear();
        self.lose_broker();
    }

    /// Lets all processes lose the broker.
    pub(super) fn lose_broker(&mut self) {
        for process in &mut self.processes {
            process.each_stock(|stock| stock.on_lost(self.now));
            process.joined.clear();
        }
    }

    /// Ends a process. Its calls remain charged at the provider.
    pub(super) fn kill(&mut self, nth: usize) {
        let id = self.processes[nth].id;
        self.processes.remove(nth);
        let messages = self.broker.on_disconnect(self.now, id);
        self.to_member.extend(messages.into_iter().map(|(to, message)| (self.now + STEP, to, message)));
    }

    /// Returns the largest sum of charges within any window.
    pub(super) fn most_in_window(&self) -> u64 {
        let mut charged = self.charged.clone();
        charged.sort_unstable();
        let (mut sum, mut most, mut first) = (0, 0, 0);
        for (at, tokens) in &charged {
            sum += tokens;
            while charged[first].0 + WINDOW <= *at {
                sum -= charged[first].1;
                first += 1;
            }
            most = most.max(sum);
        }
        most
    }

    /// Returns what was charged from `from` on, per window.
    pub(super) fn charged_per_window(&self, from: Duration) -> f64 {
        let from = self.start + from;
        let sum: u64 = self.charged.iter().filter(|(at, _)| *at >= from).map(|(_, tokens)| tokens).sum();
        sum as f64 * WINDOW.as_secs_f64() / (self.now - from).as_secs_f64()
    }
}

pub(super) fn call(input: u64) -> Demand {
    Demand { input, exact: true, ..Demand::default() }
}

/// Keeps `count` calls waiting.
pub(super) fn overload(count: usize, sizes: std::ops::Range<u64>) -> impl FnMut(&mut Process, &mut Rng) {
    move |process, rng| {
        while process.waiting.len() < count {
            process.waiting.push_back(call(rng.u64(sizes.clone())));
        }
    }
}
