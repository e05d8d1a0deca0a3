//! Tests of fair queueing over every interval, not only over the whole run.
//!
//! Let `D(t) = W_f(t) / w_f - W_g(t) / w_g`, where `W` is the number of calls of a tenant that were
//! dispatched up to `t`, and `w` is its weight. While both tenants f and g are backlogged, `D`
//! changes by at most `1 / w_f + 1 / w_g` over any interval. While only g is backlogged, `D` still
//! never *rises* by more: time in which f was idle, at its cap or retrying gives f no advantage
//! over g.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::testing::epoch;

const NAMES: [&str; 3] = ["f", "g", "h"];

/// How a simulated tenant sends calls.
#[derive(Clone, Copy, Debug)]
struct Habit {
    weight: f64,
    cap: Option<usize>,
    /// Whether the tenant sends a few calls now and then. If `false`, it always has waiting calls.
    visits: bool,
    /// One in this many attempts fails and is retried. Zero: no attempt fails.
    fails: u8,
}

struct Run {
    scheduler: Scheduler<(usize, Ticket)>,
    now: Instant,
    rng: fastrand::Rng,
    waiting: [usize; 3],
    /// The attempts in flight, by when they end and by number. Each value is the tenant, the slot,
    /// and the ticket of the call, which a retry reuses.
    running: BTreeMap<(Instant, u64), (usize, Box<Grant>, Ticket)>,
    sent: u64,
    /// For each dispatch of a new call, the number of calls of each tenant that were dispatched up
    /// to then. Retries are not counted.
    work: Vec<[f64; 3]>,
}

fn run(habits: [Habit; 3], limit: usize, aging: Duration, seed: u64) -> Run {
    let mut settings = settings(0);
    settings.aging = aging;
    for (name, habit) in NAMES.iter().zip(habits) {
        named(&mut settings, name, habit.weight, habit.cap);
    }
    let now = epoch();
    let mut run = Run {
        scheduler: Scheduler::new(&settings, now),
        now,
        rng: fastrand::Rng::with_seed(seed),
        waiting: [0; 3],
        running: BTreeMap::new(),
        sent: 0,
        work: vec![[0.0; 3]],
    };
    // No call is dispatched before all have arrived.
    run.come(habits);
    run.scheduler.set_limit(limit);
    run.dispatch(habits);
    for _ in 0..1500 {
        let Some(((at, _), (who, mut grant, ticket))) = run.running.pop_first() else { break };
        grant.sent = true;
        run.now = at;
        let fails = habits[who].fails;
        let retried = (fails > 0 && run.rng.u8(..fails) == 0)
            .then(|| Ticket { queue_tag: Some(grant.queue_tag()), ..ticket });
        run.scheduler.release(at, grant);
        if let Some(ticket) = retried {
            run.waiting[who] += 1;
            run.scheduler.enqueue(at, ticket.clone(), (who, ticket));
        }
        run.come(habits);
        run.dispatch(habits);
    }
    run
}

impl Run {
    fn come(&mut self, habits: [Habit; 3]) {
        for (who, habit) in habits.iter().enumerate() {
            let missing = match habit.visits {
                false => 4usize.saturating_sub(self.waiting[who]),
                true if self.waiting[who] == 0 && self.rng.u8(..20) == 0 => self.rng.usize(1..8),
                true => 0,
            };
            for _ in 0..missing {
                let ticket = ticket(NAMES[who], Lane::Standard, self.now);
                self.scheduler.enqueue(self.now, ticket.clone(), (who, ticket));
                self.waiting[who] += 1;
            }
        }
    }

    fn dispatch(&mut self, habits: [Habit; 3]) {
        while let Some(((who, ticket), grant)) = self.scheduler.next(self.now) {
            self.waiting[who] -= 1;
            if ticket.queue_tag.is_none() {
                let mut work = *self.work.last().expect("the first");
                work[who] += 1.0;
                self.work.push(work);
            }
            self.sent += 1;
            let ends = self.now + ms(self.rng.u64(1..60));
            self.running.insert((ends, self.sent), (who, grant, ticket));
            self.come(habits);
        }
    }

    fn difference(&self, f: usize, g: usize, habits: &[Habit; 3]) -> impl Iterator<Item = f64> {
        let (w_f, w_g) = (habits[f].weight, habits[g].weight);
        self.work.iter().map(move |work| work[f] / w_f - work[g] / w_g)
    }
}

fn bound(habits: &[Habit; 3], f: usize, g: usize) -> f64 {
    1.0 / habits[f].weight + 1.0 / habits[g].weight + 1e-9
}

/// Returns the maximum difference between a value and an earlier one, or 0 if no value is greater
/// than an earlier one.
fn rise(values: impl Iterator<Item = f64>) -> f64 {
    let (mut least, mut most) = (f64::INFINITY, 0.0f64);
    for value in values {
        least = least.min(value);
        most = most.max(value - least);
    }
    most
}

fn weight() -> impl Strategy<Value = f64> {
    prop::sample::select(vec![1.0, 2.0, 4.0])
}

fn greedy() -> impl Strategy<Value = Habit> {
    weight().prop_map(|weight| Habit { weight, cap: None, visits: false, fails: 0 })
}

fn any_habit() -> impl Strategy<Value = Habit> {
    (weight(), prop::option::of(1usize..3), any::<bool>(), prop::sample::select(vec![0u8, 2, 5]))
        .prop_map(|(weight, cap, visits, fails)| Habit { weight, cap, visits, fails })
}

/// Generates ageing times: zero (disabled), or short enough that calls often wait for longer.
fn aging() -> impl Strategy<Value = Duration> {
    prop::sample::select(vec![Duration::ZERO, ms(20), ms(200)])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Tenants with waiting calls get work in proportion to their weights over every interval, for
    /// any service times and any calls of a third tenant.
    #[test]
    fn waiting_tenants_share_by_weight_over_every_interval(
        f in greedy(), g in greedy(), h in any_habit(), limit in 1usize..9, aging in aging(), seed in any::<u64>(),
    ) {
        let habits = [f, g, h];
        let run = run(habits, limit, aging, seed);
        prop_assert!(run.work.len() > 500);
        for (f, g) in [(0, 1), (1, 0)] {
            let rise = rise(run.difference(f, g, &habits));
            prop_assert!(rise <= bound(&habits, f, g), "{} rose by {rise} over {}", NAMES[f], NAMES[g]);
        }
    }

    /// A tenant that was idle, was at its cap, or retried calls gains no advantage over a tenant
    /// that always had waiting calls.
    #[test]
    fn idle_or_retrying_tenants_gain_no_credit(
        g in greedy(), f in any_habit(), h in any_habit(), limit in 1usize..9, aging in aging(), seed in any::<u64>(),
    ) {
        let habits = [f, g, h];
        let run = run(habits, limit, aging, seed);
        for f in [0, 2] {
            let rise = rise(run.difference(f, 1, &habits));
            prop_assert!(rise <= bound(&habits, f, 1), "{} rose by {rise}", NAMES[f]);
        }
    }
}

/// If all tenants always have waiting calls, a tenant of weight 4 gets four times the work of a
/// tenant of weight 1.
#[test]
fn four_times_the_weight_is_four_times_the_work() {
    let habit = |weight| Habit { weight, cap: None, visits: false, fails: 0 };
    let run = run([habit(4.0), habit(1.0), habit(1.0)], 3, Duration::ZERO, 7);
    let [f, g, h] = *run.work.last().expect("work");
    assert!((f / g - 4.0).abs() < 0.1 && (g - h).abs() <= 2.0, "{f} {g} {h}");
}

/// One tenant has a second call waiting at a target with one slot, and a call of a new tenant
/// arrives in each service time. The waiting call is dispatched after a few service times.
#[test]
fn newcomers_do_not_starve_a_tenant_that_waits() {
    let began = epoch();
    let mut scheduler = Scheduler::new(&settings(1), began);
    let mut held = Some(admit(&mut scheduler, began, &ticket("a", Lane::Standard, began)));
    queue(&mut scheduler, began, ticket("a", Lane::Standard, began), 0);
    queue(&mut scheduler, began, ticket("new", Lane::Standard, began), 1);
    let place = (1..500).find(|k| {
        let now = began + ms(1000 * k);
        queue(&mut scheduler, now, ticket(&format!("new{k}"), Lane::Standard, now), 1);
        let mut over = held.take().expect("one runs");
        over.sent = true;
        scheduler.release(now, over);
        let (who, grant) = scheduler.next(now).expect("work");
        held = Some(grant);
        who == 0
    });
    assert!(place.is_some_and(|place| place <= 6), "after {place:?} service times");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Once a call is the first waiting call of its tenant, at most two calls of each waiting
    /// tenant are dispatched before it, in addition to the calls in flight.
    #[test]
    fn first_call_of_a_line_waits_at_most_two_rounds(
        limit in 1usize..9, tenants in 1usize..6, newcomers in 0u8..40, seed in any::<u64>(),
    ) {
        let mut now = epoch();
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut scheduler = Scheduler::new(&settings(0), now);
        let mut lines: BTreeMap<String, usize> = BTreeMap::new();
        let come = |scheduler: &mut Scheduler<String>, lines: &mut BTreeMap<String, usize>, now, name: String| {
            scheduler.enqueue(now, ticket(&name, Lane::Standard, now), name.clone());
            *lines.entry(name).or_default() += 1;
        };
        for name in (0..tenants).flat_map(|tenant| [tenant; 40]) {
            come(&mut scheduler, &mut lines, now, format!("t{name}"));
        }
        scheduler.set_limit(limit);
        // For each waiting tenant, the number of dispatches before its first waiting call became
        // the first. In `waiting`, the number of waiting tenants at each dispatch.
        let mut heads: BTreeMap<String, usize> = lines.keys().map(|name| (name.clone(), 0)).collect();
        let mut waiting = vec![lines.len()];
        let mut running = std::collections::VecDeque::new();
        for step in 0..400 {
            while let Some((name, mut grant)) = scheduler.next(now) {
                grant.sent = true;
                running.push_back(grant);
                let since = heads.remove(&name).expect("it waited");
                let most = waiting[since..].iter().max().expect("one at least");
                let went = waiting.len() - 1 - since;
                prop_assert!(went <= 2 * (most + 1) + limit, "{name} after {went} with {most} waiting");
                let left = lines.get_mut(&name).expect("it waited");
                *left -= 1;
                if *left == 0 {
                    lines.remove(&name);
                } else {
                    heads.insert(name, waiting.len());
                }
                waiting.push(lines.len());
            }
            let Some(over) = running.pop_front() else { break };
            now += ms(rng.u64(1..50));
            // Up to seven newcomers for each call that ends.
            for new in 0..rng.u8(..=newcomers) / 5 {
                let name = format!("n{step}-{new}");
                come(&mut scheduler, &mut lines, now, name.clone());
                heads.insert(name, waiting.len() - 1);
                *waiting.last_mut().expect("one at least") = lines.len();
            }
            scheduler.release(now, over);
        }
        for (name, since) in heads {
            let most = waiting[since..].iter().max().expect("one at least");
            prop_assert!(waiting.len() - 1 - since <= 2 * (most + 1) + limit, "{name} waits");
        }
    }
}

/// Returns the numbers of attempts that two tenants with waiting calls made at a target with one
/// slot. The first three attempts of each call of the first tenant end with `how` and are retried
/// at once. `sent` is whether these attempts were sent.
fn attempts_of_a_failing_tenant(how: crate::adaptive::Ended, sent: bool) -> [usize; 2] {
    let (began, mut now) = (epoch(), epoch());
    let mut scheduler = Scheduler::new(&settings(0), now);
    for name in ["f", "g"] {
        for _ in 0..400 {
            scheduler.enqueue(now, ticket(name, Lane::Standard, now), (name, 0));
        }
    }
    scheduler.set_limit(1);
    let mut attempts = [0; 2];
    for _ in 0..400 {
        let ((name, failed), mut grant) = scheduler.next(now).expect("work");
        now += ms(1000);
        attempts[usize::from(name == "g")] += 1;
        let again = name == "f" && failed < 3;
        if sent || !again {
            grant.sent = true;
        }
        grant.outcome = if again { how } else { crate::adaptive::Ended::Completed { output: 1 } };
        let retry = Ticket { queue_tag: Some(grant.queue_tag()), ..ticket(name, Lane::Standard, began) };
        scheduler.on_failure(
            now,
            &mut grant,
            1,
            crate::cooldown::Failure::Unread { worth_waiting: false },
            None,
            0.0,
        );
        scheduler.on_success(now, &mut grant);
        scheduler.release(now, grant);
        if again {
            scheduler.enqueue(now, retry, (name, failed + 1));
        }
    }
    attempts
}

#[test]
fn each_attempt_is_charged_to_its_tenant() {
    let [f, g] = attempts_of_a_failing_tenant(crate::adaptive::Ended::Failed, true);
    assert!(f.abs_diff(g) <= 8, "{f} attempts against {g}");
}

/// A tenant whose calls need four attempts each completes as many calls as another tenant, because
/// rejected attempts are not charged.
#[test]
fn attempt_rejected_unread_is_not_charged() {
    use crate::adaptive::Ended;
    for (how, sent) in
        [(Ended::Overloaded, true), (Ended::Limited { by_rate: true }, true), (Ended::Failed, false)]
    {
        let [f, g] = attempts_of_a_failing_tenant(how, sent);
        assert!(f.abs_diff(4 * g) <= 8, "{how:?}: {f} attempts against {g}");
    }
}

/// Queues a call of the tenant `name`. Returns how many calls are dispatched before one of this
/// tenant.
fn place_of_a_call(scheduler: &mut Scheduler<&'static str>, now: Instant, name: &'static str) -> usize {
    scheduler.enqueue(now, ticket(name, Lane::Standard, now), name);
    let before = std::iter::from_fn(|| {
        let (who, mut grant) = scheduler.next(now)?;
        grant.sent = true;
        scheduler.release(now, grant);
        (who != name).then_some(())
    });
    before.count()
}

/// The cost of a large call advances virtual time when the call ends. A new tenant does not have to
/// wait for that cost: its start tag is close to the start tags of the waiting tenants.
#[test]
fn newcomers_do_not_wait_for_the_cost_of_one_large_call() {
    let now = epoch();
    let mut scheduler = Scheduler::new(&settings(1), now);
    let large = Ticket { cost: 100_000.0, ..ticket("large", Lane::Standard, now) };
    let mut grant = admit(&mut scheduler, now, &large);
    for _ in 0..500 {
        scheduler.enqueue(now, ticket("busy", Lane::Standard, now), "busy");
    }
    grant.sent = true;
    scheduler.release(now, grant);
    for name in ["q", "r", "s"] {
        let place = place_of_a_call(&mut scheduler, now, name);
        assert!(place <= 2, "{name} after {place}");
    }
}

/// Calls of enormous cost are charged to a tenant of little weight. Once the lane has been idle,
/// two tenants of large weight get equal shares, although the calls of one of them came first.
#[test]
fn enormous_costs_do_not_end_fairness() {
    let now = epoch();
    let mut settings = settings(1);
    for (name, weight) in [("enormous", 0.001), ("a", 1_000.0), ("b", 1_000.0)] {
        named(&mut settings, name, weight, None);
    }
    let mut scheduler = Scheduler::new(&settings, now);
    let enormous = Ticket { cost: (1_u64 << 40) as f64, ..ticket("enormous", Lane::Standard, now) };
    for _ in 0..1_000 {
        let mut grant = admit(&mut scheduler, now, &enormous);
        grant.sent = true;
        scheduler.release(now, grant);
    }
    let held = admit(&mut scheduler, now, &ticket("first", Lane::Standard, now));
    for name in ["a", "b"] {
        for _ in 0..200 {
            let call = Ticket { cost: 100.0, ..ticket(name, Lane::Standard, now) };
            queue(&mut scheduler, now, call, name);
        }
    }
    scheduler.release(now, held);
    let of_a = (0..200).filter(|_| {
        let (who, mut grant) = scheduler.next(now).expect("work");
        grant.sent = true;
        scheduler.release(now, grant);
        who == "a"
    });
    assert!((99..=101).contains(&of_a.count()));
}

/// A call of the tenant has cost more than its estimate. The next call of the tenant waits for at
/// most eight rounds. A round is one dispatch for each waiting tenant. If ageing is disabled, the
/// call waits until the whole debt is paid.
#[test]
fn a_tenant_in_debt_waits_for_eight_rounds_at_most() {
    for (aging, cost, calls) in [(30, 1_000.0, 32..=33), (30, 4.0, 9..=13), (0, 100.0, 290..=300)] {
        let began = epoch();
        let settings = SchedulerSettings { aging: Duration::from_secs(aging), ..settings(1) };
        let mut scheduler = Scheduler::new(&settings, began);
        let mut grant = admit(&mut scheduler, began, &ticket("debtor", Lane::Standard, began));
        for name in ["a", "b", "c"] {
            for _ in 0..500 {
                scheduler.enqueue(began, ticket(name, Lane::Standard, began), name);
            }
        }
        let usage = tidegate_protocol::Usage::default();
        grant.sent = true;
        scheduler.settle(began, &mut grant, &Settled { usage, cost });
        scheduler.release(began, grant);
        // The debtor's call is queued from now on, and a minute passes before any dispatch.
        scheduler.enqueue(began, ticket("debtor", Lane::Standard, began), "debtor");
        let place = place_of_a_call(&mut scheduler, began + Duration::from_secs(60), "debtor");
        assert!(calls.contains(&place), "after {place} calls");
    }
}

/// The age of its waiting calls gives a tenant no priority. Only a tenant whose calls cost more
/// than was estimated gets priority, after it was passed over for eight rounds.
#[test]
fn the_age_of_a_backlog_does_not_change_the_shares() {
    let began = epoch();
    let mut settings = SchedulerSettings { aging: Duration::from_secs(1), ..settings(1) };
    named(&mut settings, "heavy", 100.0, None);
    let mut scheduler = Scheduler::new(&settings, began);
    for name in ["heavy", "light"] {
        for _ in 0..2_000 {
            scheduler.enqueue(began, ticket(name, Lane::Standard, began), name);
        }
    }
    let now = began + Duration::from_secs(3_000);
    let light = (0..1_010).filter(|_| {
        let (who, mut grant) = scheduler.next(now).expect("work");
        grant.sent = true;
        scheduler.release(now, grant);
        who == "light"
    });
    assert!((9..=11).contains(&light.count()));
}
