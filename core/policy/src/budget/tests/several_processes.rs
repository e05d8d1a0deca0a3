//! Budgets that several processes share, with a broker in virtual time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tidegate_share::rates::RateStock;
use tidegate_share::{Broker, LeaseTimes, MemberId, Predecessor, ToBroker, ToMember};

use crate::budget::RateBudgets;
use crate::testing::epoch;
use tidegate_config::{Counting, RateConfig};
use tidegate_protocol::observe::Usage;
use tidegate_protocol::rate::{RateHeaders, RateWindow};
use tidegate_tokens::Demand;

const STEP: Duration = Duration::from_millis(5);
const HEARTBEAT: Duration = Duration::from_millis(500);
const WINDOW: Duration = Duration::from_secs(60);

/// A process with calls that wait, in order.
struct Process {
    budgets: RateBudgets,
    waiting: VecDeque<Demand>,
    /// Charges in flight, by when their calls end.
    running: Vec<(Instant, crate::budget::Charge, u64)>,
    id: MemberId,
    has_joined: bool,
    sent: u64,
}

impl Process {
    fn new(config: &RateConfig, now: Instant, id: u64, is_shared: bool) -> Self {
        let mut budgets = RateBudgets::new(config, now);
        assert!(!is_shared || budgets.share(now, false, LeaseTimes::LOCAL));
        let (waiting, running) = (VecDeque::new(), Vec::new());
        Self { budgets, waiting, running, id: MemberId(id), has_joined: false, sent: 0 }
    }
}

/// Processes, their broker, and the messages on their way.
struct Cluster {
    now: Instant,
    start: Instant,
    broker: Broker,
    processes: Vec<Process>,
    to_broker: VecDeque<(Instant, MemberId, ToBroker)>,
    to_member: VecDeque<(Instant, MemberId, ToMember)>,
    /// When calls reached the provider, and what it charges for them.
    charged: Vec<(Instant, u64)>,
    messages: usize,
    is_shared: bool,
    /// The tokens that a call takes, divided by its estimate.
    actual: f64,
}

impl Cluster {
    fn new(config: &RateConfig, count: u64, is_shared: bool) -> Self {
        let start = epoch();
        Self {
            now: start,
            start,
            broker: Broker::new(start, Predecessor::None),
            processes: (0..count).map(|id| Process::new(config, start, id, is_shared)).collect(),
            to_broker: VecDeque::new(),
            to_member: VecDeque::new(),
            charged: Vec::new(),
            messages: 0,
            is_shared,
            actual: 1.0,
        }
    }

    /// Lets time pass. `arrive` adds the calls of each process.
    fn run(&mut self, time: Duration, rng: &mut Rng, mut arrive: impl FnMut(&mut Process, &mut Rng)) {
        let until = self.now + time;
        while self.now < until {
            self.now += STEP;
            self.deliver();
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
            if let (Some(process), ToMember::Advance { advance, .. }) = (process, message) {
                process.budgets.with_stock(|stock| stock.on_advance(now, &advance, STEP));
            }
        }
    }

    /// Sends the calls of a process that fit, and its messages.
    fn advance(&mut self, nth: usize, is_heartbeat: bool, rng: &mut Rng) {
        let now = self.now;
        let process = &mut self.processes[nth];
        let mut messages = Vec::new();
        if self.is_shared && !process.has_joined {
            process.has_joined = true;
            messages.extend(process.budgets.join(now));
        }
        for at in (0..process.running.len()).rev() {
            if process.running[at].0 <= now {
                let (_, mut charge, tokens) = process.running.swap_remove(at);
                let usage = Usage { input: tokens, output: 0, ..Usage::default() };
                process.budgets.settle(now, &mut charge, &usage);
            }
        }
        if is_heartbeat {
            process.budgets.with_stock(|stock| stock.on_alive(now));
        }
        if process.waiting.is_empty() {
            process.budgets.with_stock(RateStock::lack_nothing);
        }
        while let Some(call) = process.waiting.front().copied() {
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
            self.charged.push((now + Duration::from_millis(rng.u64(0..100)), tokens));
            process.running.push((now + Duration::from_millis(rng.u64(100..3_000)), charge, tokens));
        }
        messages.extend(process.budgets.draw(now, || 1.0));
        if is_heartbeat {
            messages.extend(process.budgets.correct_due(now));
        }
        self.messages += messages.len();
        let resource: Arc<str> = "rates".into();
        let from = process.id;
        let draws = messages.into_iter().map(|draw| ToBroker::Draw { resource: resource.clone(), draw });
        self.to_broker.extend(draws.map(|message| (now + STEP, from, message)));
    }

    /// Ends a process. Its calls remain charged at the provider.
    fn kill(&mut self, nth: usize) {
        let id = self.processes[nth].id;
        self.processes.remove(nth);
        let messages = self.broker.on_disconnect(self.now, id);
        self.to_member.extend(messages.into_iter().map(|(to, message)| (self.now + STEP, to, message)));
    }

    /// Returns the largest sum of charges within any window.
    fn most_in_window(&self) -> u64 {
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
    fn charged_per_window(&self, from: Duration) -> f64 {
        let from = self.start + from;
        let sum: u64 = self.charged.iter().filter(|(at, _)| *at >= from).map(|(_, tokens)| tokens).sum();
        sum as f64 * WINDOW.as_secs_f64() / (self.now - from).as_secs_f64()
    }
}

fn tokens_per_minute(tpm: u64) -> RateConfig {
    RateConfig { tpm: Some(tpm), counting: Counting::Sum, ..RateConfig::default() }
}

fn call(input: u64) -> Demand {
    Demand { input, exact: true, ..Demand::default() }
}

/// Keeps `count` calls waiting.
fn overload(count: usize, sizes: std::ops::Range<u64>) -> impl FnMut(&mut Process, &mut Rng) {
    move |process, rng| {
        while process.waiting.len() < count {
            process.waiting.push_back(call(rng.u64(sizes.clone())));
        }
    }
}

#[test]
fn processes_use_budget_together_and_never_exceed_it() {
    for (seed, (processes, tpm, sizes)) in [
        (1, 90_000, 100..900),
        (4, 90_000, 100..900),
        (16, 1_000_000, 500..4_500),
        (32, 60_000, 2_000..5_000),
    ]
    .into_iter()
    .enumerate()
    {
        let mut cluster = Cluster::new(&tokens_per_minute(tpm), processes, true);
        let mut rng = Rng::with_seed(seed as u64);
        cluster.run(Duration::from_secs(180), &mut rng, overload(50, sizes));
        let most = cluster.most_in_window();
        assert!(most <= tpm, "{processes} processes used {most} of {tpm}");
        let used = cluster.charged_per_window(Duration::from_secs(60)) / tpm as f64;
        assert!((0.95..=1.0).contains(&used), "{processes} processes used {used}");
        let messages = cluster.messages as f64 / 180.0 / processes as f64;
        assert!(messages <= 2.0 * 3.0, "{messages} messages per second and process");
        let mut sent: Vec<u64> = cluster.processes.iter().map(|process| process.sent).collect();
        sent.sort_unstable();
        assert!(sent[0] * 5 / 4 + 2 >= sent[sent.len() - 1], "{sent:?}");
    }
}

#[test]
fn each_process_uses_whole_budget_if_it_is_not_shared() {
    let mut cluster = Cluster::new(&tokens_per_minute(90_000), 4, false);
    cluster.run(Duration::from_secs(120), &mut Rng::with_seed(5), overload(50, 100..900));
    assert!(cluster.most_in_window() > 3 * 90_000);
}

#[test]
fn budget_moves_to_process_with_calls() {
    let tpm = 90_000;
    let mut cluster = Cluster::new(&tokens_per_minute(tpm), 8, true);
    let mut rng = Rng::with_seed(6);
    cluster.run(Duration::from_secs(120), &mut rng, overload(50, 100..900));
    // All but the first have no more calls.
    cluster.processes.iter_mut().for_each(|process| process.waiting.clear());
    let begins = cluster.now - cluster.start;
    let mut more = overload(50, 100..900);
    cluster.run(Duration::from_secs(120), &mut rng, |process, rng| {
        if process.id == MemberId(0) {
            more(process, rng);
        }
    });
    assert!(cluster.most_in_window() <= tpm);
    let used = cluster.charged_per_window(begins + Duration::from_secs(2)) / tpm as f64;
    assert!(used >= 0.95, "one process used {used}");
}

#[test]
fn estimates_are_corrected_for_all_processes() {
    let tpm = 300_000;
    for actual in [0.5, 1.3] {
        let mut cluster = Cluster::new(&tokens_per_minute(tpm), 8, true);
        cluster.actual = actual;
        cluster.run(Duration::from_secs(180), &mut Rng::with_seed(7), overload(50, 100..900));
        // Whole windows, because the pattern of the first one repeats.
        let used = cluster.charged_per_window(Duration::from_secs(60)) / tpm as f64;
        assert!(used >= 0.96, "{used} with {actual} of the estimates");
        // The calls in flight are not corrected yet.
        let most = cluster.most_in_window() as f64 / tpm as f64;
        assert!(most <= 1.01, "{most} with {actual} of the estimates");
    }
}

#[test]
fn processes_that_end_and_begin_do_not_exceed_budget() {
    let tpm = 90_000;
    let mut rng = Rng::with_seed(8);
    let mut cluster = Cluster::new(&tokens_per_minute(tpm), 6, true);
    for ids in 6..26 {
        cluster.run(Duration::from_secs(7), &mut rng, overload(20, 100..900));
        cluster.kill(rng.usize(0..cluster.processes.len()));
        cluster.processes.push(Process::new(&tokens_per_minute(tpm), cluster.now, ids, true));
    }
    assert!(cluster.most_in_window() <= tpm, "{}", cluster.most_in_window());
    assert!(cluster.charged_per_window(Duration::from_secs(60)) >= 0.9 * tpm as f64);
}

/// Small and very large calls, many of which are cancelled while they wait.
#[test]
fn cancelled_calls_take_nothing_from_others() {
    let tpm = 90_000;
    let mut cluster = Cluster::new(&tokens_per_minute(tpm), 8, true);
    let mut rng = Rng::with_seed(13);
    cluster.run(Duration::from_secs(180), &mut rng, |process, rng| {
        if rng.f64() < 0.05 {
            process.waiting.pop_front();
        }
        while process.waiting.len() < 20 {
            let is_large = process.id.0 < 2 && rng.f64() < 0.3;
            process.waiting.push_back(call(if is_large {
                rng.u64(20_000..120_000)
            } else {
                rng.u64(100..900)
            }));
        }
        if process.id.0 < 2
            && process.waiting.front().is_some_and(|call| call.input > 10_000)
            && rng.f64() < 0.2
        {
            process.waiting.pop_front();
        }
    });
    assert!(cluster.most_in_window() <= tpm, "{}", cluster.most_in_window());
    let used = cluster.charged_per_window(Duration::from_secs(60)) / tpm as f64;
    assert!(used >= 0.85, "{used}");
    let small: Vec<u64> = cluster.processes[2..].iter().map(|process| process.sent).collect();
    assert!(small.iter().all(|sent| *sent >= 40), "{small:?}");
}

#[test]
fn new_broker_knows_what_members_have_used() {
    let tpm = 90_000;
    let mut rng = Rng::with_seed(9);
    let mut cluster = Cluster::new(&tokens_per_minute(tpm), 4, true);
    for _ in 0..6 {
        cluster.run(Duration::from_secs(20), &mut rng, overload(50, 100..900));
        cluster.broker = Broker::new(cluster.now, Predecessor::None);
        cluster.to_broker.clear();
        cluster.to_member.clear();
        for process in &mut cluster.processes {
            process.budgets.with_stock(|stock| stock.on_lost(cluster.now));
            process.has_joined = false;
        }
    }
    assert!(cluster.most_in_window() <= tpm, "{}", cluster.most_in_window());
}

#[test]
fn part_of_budget_is_in_force_without_broker() {
    let tpm = 90_000;
    let mut rng = Rng::with_seed(10);
    let mut cluster = Cluster::new(&tokens_per_minute(tpm), 4, true);
    cluster.run(Duration::from_secs(120), &mut rng, overload(50, 100..900));
    cluster.is_shared = false;
    for process in &mut cluster.processes {
        process.budgets.with_stock(|stock| stock.on_lost(cluster.now));
    }
    let begins = cluster.now - cluster.start;
    cluster.run(Duration::from_secs(120), &mut rng, overload(50, 100..900));
    let used = cluster.charged_per_window(begins + Duration::from_secs(60)) / tpm as f64;
    assert!((0.9..=1.0).contains(&used), "{used}");
}

/// Requests and tokens are limited together, and per second as well.
#[test]
fn all_limits_hold_at_once() {
    let config =
        RateConfig { rpm: Some(300), tpm: Some(90_000), counting: Counting::Sum, ..RateConfig::default() };
    for (sizes, limit, per_call) in [(100..200, 300.0, true), (600..900, 90_000.0, false)] {
        let mut cluster = Cluster::new(&config, 8, true);
        cluster.run(Duration::from_secs(180), &mut Rng::with_seed(11), overload(20, sizes));
        assert!(cluster.most_in_window() <= 90_000);
        if per_call {
            cluster.charged.iter_mut().for_each(|(_, tokens)| *tokens = 1);
            assert!(cluster.most_in_window() <= 300);
        }
        let used = cluster.charged_per_window(Duration::from_secs(60)) / limit;
        assert!(used >= 0.95, "{used}");
    }
}

#[test]
fn hostile_draws_do_not_enlarge_budget() {
    let tpm = 90_000;
    let mut cluster = Cluster::new(&tokens_per_minute(tpm), 4, true);
    let mut rng = Rng::with_seed(12);
    let resource: Arc<str> = "rates".into();
    for _ in 0..60 {
        cluster.run(Duration::from_secs(2), &mut rng, overload(20, 100..900));
        let mut draw = cluster.processes[0].budgets.join(cluster.now).expect("the budgets are shared");
        for limit in &mut draw.limits {
            (limit.per_window, limit.per_second, limit.burst_ms) = (u64::MAX, f64::INFINITY, u64::MAX);
        }
        draw.weight = [f64::NAN, -1.0, f64::INFINITY][rng.usize(0..3)];
        draw.corrections = vec![tidegate_share::rates::Correction {
            age_ms: rng.u64(0..70_000),
            amounts: vec![-(rng.i64(0..i64::MAX))],
        }];
        let message = ToBroker::Draw { resource: resource.clone(), draw };
        cluster.to_broker.push_back((cluster.now, MemberId(99), message));
    }
    let by_others: BTreeMap<MemberId, u64> =
        cluster.processes.iter().map(|process| (process.id, process.sent)).collect();
    assert!(cluster.most_in_window() <= tpm, "{by_others:?}");
}

/// The provider says that a day is left of the limit, whatever the broker has counted in the last 24 hours.
#[test]
fn limit_per_day_is_not_asked_of_broker_if_provider_announces_it() {
    let now = epoch();
    let config = RateConfig { rpm: Some(600), rpd: Some(1_000), ..RateConfig::default() };
    let mut budgets = Process::new(&config, now, 0, true).budgets;
    budgets.join(now);
    let need = budgets.need(&call(100));
    let asked = |budgets: &mut RateBudgets| {
        budgets.want(now, &need);
        budgets.draw(now, || 1.0).map(|draw| draw.least)
    };
    assert_eq!(asked(&mut budgets), Some(vec![1, 1]));
    let charge = budgets.charge(now, &call(100));
    let day = RateWindow { limit: Some(1_000), remaining: Some(999), reset: None, ..RateWindow::default() };
    let headers = RateHeaders { requests_per_day: day, ..RateHeaders::default() };
    budgets.on_response(now, &charge, now, &headers, false);
    assert_eq!(asked(&mut budgets), Some(vec![1, 0]));
}
