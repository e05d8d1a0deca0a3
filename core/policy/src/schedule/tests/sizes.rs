//! Tests of calls that differ in what they require: overtaking, reservations, and tenants' own
//! tokens.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::*;
use crate::budget::RateBudgets;
use crate::kv::{Forecast, Kv};
use crate::testing::epoch;
use tidegate_config::{Counting, Predict, RateConfig, TenantConfig};
use tidegate_protocol::Usage;
use tidegate_protocol::vllm::EngineMetrics;
use tidegate_share::LeaseTimes;

/// Creates a scheduler with more slots than needed, an ageing time of ten seconds, and a rate
/// budget of 600 tokens per minute that holds at most 60 tokens. `change` may change the settings
/// first. Also returns the rate budgets and the current time.
fn of_tokens(
    change: impl FnOnce(&mut SchedulerSettings),
) -> (Scheduler<&'static str>, Arc<Mutex<RateBudgets>>, Instant) {
    let now = epoch();
    let mut settings = SchedulerSettings { aging: Duration::from_secs(10), ..settings(100) };
    change(&mut settings);
    let rates = RateConfig { tpm: Some(600), counting: Counting::Actual, ..RateConfig::default() };
    let budgets = Arc::new(Mutex::new(RateBudgets::new(&rates, now)));
    (Scheduler::with(&settings, Resources { budgets: budgets.clone(), kv: None }, now), budgets, now)
}

fn sized(tenant: &str, tokens: u64, now: Instant) -> Ticket {
    let mut ticket = ticket(tenant, Lane::Standard, now);
    (ticket.demand.input, ticket.demand.exact) = (tokens, true);
    ticket
}

/// Dispatches the admissible calls one after the other, and releases each slot at once as sent, so
/// that the tokens of the call stay used. Returns the calls in dispatch order.
fn draw<W>(scheduler: &mut Scheduler<W>, now: Instant) -> Vec<W> {
    let mut drawn = Vec::new();
    while let Some((who, grant)) = scheduler.next(now) {
        spend(scheduler, now, grant);
        drawn.push(who);
    }
    drawn
}

fn spend<W>(scheduler: &mut Scheduler<W>, now: Instant, mut grant: Box<Grant>) {
    grant.sent = true;
    scheduler.release(now, grant);
}

fn secs(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

#[test]
fn a_head_that_does_not_fit_is_overtaken_until_it_is_aged() {
    let (mut scheduler, _, now) = of_tokens(|_| ());
    let first = admit(&mut scheduler, now, &sized("a", 60, now));
    spend(&mut scheduler, now, first);
    let large = queue(&mut scheduler, now, sized("a", 50, now), "large");
    queue(&mut scheduler, now, sized("a", 10, now), "behind it");
    queue(&mut scheduler, now, sized("b", 20, now), "another's");
    let mut at = now;
    for (who, after) in [("behind it", 1.0), ("another's", 3.0)] {
        let wake = scheduler.next_wake(at).expect("timed");
        assert!((wake - now).abs_diff(secs(after)) < secs(1.2), "{who}: {:?}", wake - now);
        assert!(draw(&mut scheduler, wake - ms(50)).is_empty());
        assert_eq!(draw(&mut scheduler, wake), [who]);
        at = wake;
    }
    // Small calls keep arriving and going until the large one is aged.
    for second in 5..10u64 {
        let now = now + Duration::from_secs(second);
        let small = scheduler.try_admit(now, &sized("b", 8, now)).expect("not refused");
        spend(&mut scheduler, now, small.expect("it overtakes"));
    }
    let aged = now + secs(10.0);
    queue(&mut scheduler, aged, sized("b", 5, aged), "too late");
    let later = aged + secs(1.0);
    assert!(draw(&mut scheduler, later).is_empty(), "its tokens are kept");
    let why = scheduler.explain(later, large).expect("waits");
    assert_eq!((why.rule, why.waited), (Rule::Tokens, secs(11.0)));
    assert!(scheduler.view(later).held_for.is_some());
    let wake = scheduler.next_wake(later).expect("timed");
    assert!(draw(&mut scheduler, wake - ms(50)).is_empty());
    assert_eq!(draw(&mut scheduler, wake).first(), Some(&"large"));
}

#[test]
fn only_what_the_aged_call_lacks_is_reserved() {
    let (mut scheduler, _, now) = of_tokens(|settings| settings.aging = Duration::ZERO);
    let first = admit(&mut scheduler, now, &sized("a", 60, now));
    spend(&mut scheduler, now, first);
    let other = admit(&mut scheduler, now, &sized("b", 0, now));
    spend(&mut scheduler, now, other);
    queue(&mut scheduler, now, sized("a", 50, now), "large");
    let held = queue(&mut scheduler, now + ms(1), sized("b", 1, now + ms(1)), "takes of it");
    let free = admit(&mut scheduler, now, &sized("c", 0, now));
    spend(&mut scheduler, now, free);
    let later = now + secs(1.0);
    assert!(draw(&mut scheduler, later).is_empty());
    assert_eq!(scheduler.explain(later, held).map(|why| why.rule), Some(Rule::Reserved));
}

#[test]
fn call_larger_than_the_bucket_goes_when_it_is_full_and_leaves_debt() {
    let (mut scheduler, _, now) = of_tokens(|_| ());
    let first = admit(&mut scheduler, now, &sized("a", 10, now));
    spend(&mut scheduler, now, first);
    queue(&mut scheduler, now, sized("a", 200, now), "large");
    let full = scheduler.next_wake(now).expect("timed");
    assert!(full - now < secs(1.5));
    assert_eq!(draw(&mut scheduler, full), ["large"]);
    queue(&mut scheduler, full, sized("a", 10, full), "next");
    let wake = scheduler.next_wake(full).expect("timed");
    assert!(wake - full > secs(14.0) && wake - full < secs(60.0), "{:?}", wake - full);
}

#[test]
fn call_that_can_never_fit_is_refused_with_the_maximum() {
    let (mut scheduler, _, now) = of_tokens(|_| ());
    let refusal = scheduler.try_admit(now, &sized("a", 601, now)).expect_err("over a minute's tokens");
    assert_eq!((refusal.reason, refusal.max_tokens), (Reason::TooLarge, Some(600)));
    assert_eq!(refusal.why.map(|why| why.rule), Some(Rule::Tokens));
}

#[test]
fn nothing_is_reserved_for_a_call_that_is_estimated_to_exceed_a_budget() {
    let (mut scheduler, _, now) = of_tokens(|_| ());
    let first = admit(&mut scheduler, now, &sized("a", 60, now));
    spend(&mut scheduler, now, first);
    let mut large = sized("a", 700, now);
    large.demand.exact = false;
    queue(&mut scheduler, now, large, "large");
    // Long after the ageing time, calls of the same and of other tenants still go.
    for (second, tenant) in [(20, "a"), (30, "b"), (40, "a"), (50, "c")] {
        let now = now + Duration::from_secs(second);
        queue(&mut scheduler, now, sized(tenant, 50, now), tenant);
        let wake = scheduler.next_wake(now).expect("timed");
        assert_eq!(draw(&mut scheduler, wake.max(now + secs(8.0))), [tenant]);
    }
    // The provider decides about it once nothing else needs the budget.
    let wake = scheduler.next_wake(now + secs(60.0)).expect("timed");
    assert_eq!(draw(&mut scheduler, wake), ["large"]);
}

#[test]
fn unsent_charges_are_refunded_and_settled_ones_corrected() {
    let (mut scheduler, budgets, now) = of_tokens(|_| ());
    let level = || budgets.lock().view(now)[0].level;
    let full = level();
    let grant = admit(&mut scheduler, now, &sized("a", 40, now));
    assert!(level() + 40 <= full);
    scheduler.release(now, grant);
    assert_eq!(level(), full);
    let mut grant = admit(&mut scheduler, now, &sized("a", 40, now));
    grant.sent = true;
    let usage = Usage { input: 15, ..Usage::default() };
    for _ in 0..2 {
        scheduler.settle(now, &mut grant, &Settled { usage, cost: 15.0 });
    }
    let settled = level();
    assert!(full.abs_diff(settled + 15) <= 3, "once: {settled} of {full}");
    scheduler.release(now, grant);
    assert_eq!(level(), settled);
}

#[test]
fn tenant_out_of_tokens_blocks_no_other_tenant() {
    let (mut scheduler, _, now) = of_tokens(|settings| {
        settings.aging = Duration::ZERO;
        settings.tenants.insert("poor".into(), TenantConfig { tpm: Some(60), ..TenantConfig::default() });
    });
    let first = admit(&mut scheduler, now, &sized("poor", 10, now));
    spend(&mut scheduler, now, first);
    let owes =
        |scheduler: &Scheduler<_>, now| scheduler.view(now).tenants.iter().map(|t| t.debt).sum::<u64>();
    assert_eq!(owes(&scheduler, now), 4, "six at once, and the rest is owed");
    let waits = queue(&mut scheduler, now, sized("poor", 3, now), "poor");
    let other = admit(&mut scheduler, now, &sized("rich", 3, now));
    spend(&mut scheduler, now, other);
    let why = scheduler.explain(now, waits).expect("waits");
    assert_eq!((why.rule, why.expected.map(|wait| wait.as_millis())), (Rule::TenantTokens, Some(7_000)));
    let wake = scheduler.next_wake(now).expect("timed");
    assert!((wake - now).abs_diff(secs(7.0)) < ms(1), "{:?}", wake - now);
    assert!(draw(&mut scheduler, now + secs(6.9)).is_empty());
    assert_eq!(draw(&mut scheduler, wake), ["poor"]);
}

/// A tenant has ten tokens per second of its own, at most 60 at once. Its short batch calls would
/// always take them, and its long interactive call would never have enough. Returns the time at
/// which the long call is aged, the long call and the last short one. The tenant has 24 tokens
/// then.
fn starved_by_short_calls(
    change: impl FnOnce(&mut SchedulerSettings),
) -> (Scheduler<&'static str>, Instant, WaiterId, WaiterId) {
    let (mut scheduler, _, start) = of_tokens(|settings| {
        settings.tenants.insert("poor".into(), TenantConfig { tpm: Some(600), ..TenantConfig::default() });
        change(settings);
    });
    let first = admit(&mut scheduler, start, &poor(Lane::Standard, 60, start));
    spend(&mut scheduler, start, first);
    let long = queue(&mut scheduler, start, poor(Lane::Interactive, 50, start), "long");
    let short = || poor(Lane::Batch, 9, start);
    let shorts: Vec<_> = (0..10).map(|_| queue(&mut scheduler, start, short(), "short")).collect();
    let drawn: Vec<_> =
        (1..10).flat_map(|second| draw(&mut scheduler, start + secs(f64::from(second)))).collect();
    assert_eq!(drawn, ["short"; 9], "the long call has not waited for the ageing time");
    let now = start + secs(10.5);
    assert!(draw(&mut scheduler, now).is_empty());
    (scheduler, now, long, shorts[9])
}

fn poor(lane: Lane, tokens: u64, now: Instant) -> Ticket {
    Ticket { lane, ..sized("poor", tokens, now) }
}

#[test]
fn own_tokens_are_kept_for_an_aged_call_of_a_higher_lane() {
    let (mut scheduler, now, long, short) = starved_by_short_calls(|_| {});
    let why = scheduler.explain(now, short).expect("waits");
    assert_eq!(why.rule, Rule::TenantTokens);
    let wake = scheduler.next_wake(now).expect("timed");
    assert!((wake - now).abs_diff(secs(2.6)) < ms(1), "{:?}", wake - now);

    // If the long call leaves, the short one is dispatched at once.
    let is_kept = scheduler.explain(now, long).is_some();
    assert!(is_kept && scheduler.withdraw(long));
    assert_eq!(draw(&mut scheduler, now), ["short"]);
}

#[test]
fn own_tokens_are_not_kept_while_a_call_that_is_not_aged_comes_first() {
    let (mut scheduler, now, ..) = starved_by_short_calls(|settings| settings.short_bias = secs(600.0));
    queue(&mut scheduler, now, poor(Lane::Interactive, 30, now), "preferred");
    assert_eq!(draw(&mut scheduler, now), ["short"]);
}

/// A usage of 10^12 tokens, as a provider may report by mistake, does not block a tenant for years.
#[test]
fn tenant_debt_is_bounded() {
    let (mut scheduler, _, now) = of_tokens(|settings| settings.default_tenant.tpm = Some(60));
    let mut grant = admit(&mut scheduler, now, &sized("a", 1, now));
    grant.sent = true;
    let usage = Usage { input: 1_000_000_000_000, ..Usage::default() };
    scheduler.settle(now, &mut grant, &Settled { usage, cost: 1.0 });
    scheduler.release(now, grant);
    let debt = scheduler.view(now).tenants.iter().map(|t| t.debt).sum::<u64>();
    assert!(debt > 500 && debt <= 600, "{debt}");
}

#[test]
fn memory_is_reserved_for_an_aged_call() {
    let now = epoch();
    let resources = Resources { budgets: Arc::default(), kv: Some(Kv::new(1000, 0.1)) };
    let mut scheduler = Scheduler::with(&settings(10), resources, now);
    let running = [400, 400].map(|tokens| admit(&mut scheduler, now, &sized("a", tokens, now)));
    queue(&mut scheduler, now, sized("b", 600, now), "large");
    let small = queue(&mut scheduler, now, sized("c", 50, now), "small");
    assert!(scheduler.next(now).is_none());
    assert_eq!(scheduler.explain(now, small).map(|why| why.rule), Some(Rule::Reserved));
    let refused = scheduler.try_admit(now, &sized("a", 1001, now)).expect_err("never fits");
    assert_eq!((refused.reason, refused.why.map(|why| why.rule)), (Reason::TooLarge, Some(Rule::Kv)));
    let [first, second] = running;
    spend(&mut scheduler, now, first);
    assert!(scheduler.next(now).is_none(), "500 are free of 600");
    spend(&mut scheduler, now, second);
    assert_eq!(draw(&mut scheduler, now), ["large", "small"]);
}

#[test]
fn short_calls_go_first_in_their_line_within_the_bias() {
    let now = epoch();
    let configured = SchedulerSettings { short_bias: secs(1.0), ..settings(0) };
    let mut scheduler = Scheduler::new(&configured, now);
    for (name, tokens, after) in [("long", 5_000, 0.0), ("short", 100, 2.0), ("later", 100, 6.0)] {
        let at = now + secs(after);
        scheduler.enqueue(at, sized("a", tokens, at), name);
    }
    scheduler.set_limit(1);
    assert_eq!(draw(&mut scheduler, now + secs(6.0)), ["short", "long", "later"]);
}

/// 30,000 calls that do not fit wait ahead of each call that fits. The search must not check each
/// of them.
#[test]
fn calls_that_do_not_fit_are_not_looked_at() {
    let (mut scheduler, _, now) = of_tokens(|settings| settings.aging = Duration::from_secs(3600));
    let first = admit(&mut scheduler, now, &sized("a", 60, now));
    spend(&mut scheduler, now, first);
    for k in 0..30_000 {
        queue(&mut scheduler, now, sized(&format!("tenant-{}", k % 3_000), 50, now), "large");
    }
    for k in 0..3_000 {
        let id = queue(&mut scheduler, now + ms(1), sized(&format!("tenant-{k}"), 5, now), "small");
        assert!(scheduler.next(now + ms(300)).is_none());
        assert!(scheduler.next_wake(now + ms(300)).is_some());
        assert!(k % 2 == 0 || scheduler.withdraw(id));
    }
    let wake = scheduler.next_wake(now + ms(300)).expect("timed");
    assert_eq!(draw(&mut scheduler, wake), ["small"]);
}

/// 3,000 calls that need little memory at first and too much later wait ahead of each short call
/// that fits. The short calls are dispatched, and each decision checks only a few of the others.
#[test]
fn short_call_goes_before_many_whose_answers_have_no_room_and_few_of_these_are_looked_at() {
    let now = epoch();
    let resources = Resources { budgets: Arc::default(), kv: Some(Kv::new(1_000, 0.1)) };
    let configured = SchedulerSettings { aging: Duration::from_secs(3600), ..settings(10) };
    let mut scheduler = Scheduler::with(&configured, resources, now);
    let of = |tenant: &str, input, output| {
        let mut call = ticket(tenant, Lane::Standard, now);
        (call.demand.input, call.demand.output) = (input, output);
        call
    };
    let long = admit(&mut scheduler, now, &of("a", 100, 700));
    for k in 0..3_000 {
        queue(&mut scheduler, now, of(&format!("tenant-{}", k % 300), 300, 500), "large");
    }
    for k in 0..50 {
        // A new short call is admitted at once, and a waiting short call is dispatched when it
        // fits.
        let short = admit(&mut scheduler, now, &of("fresh", 100, 50));
        scheduler.enqueue(now, of(&format!("tenant-{k}"), 250, 50), "short");
        let (who, next) = scheduler.next(now).expect("it ends before the long one needs the memory");
        assert_eq!(who, "short");
        assert!(scheduler.next(now).is_none());
        assert!(
            scheduler.next_wake(now).is_some_and(|at| at > now),
            "nothing comes due before the deadlines"
        );
        [short, next].into_iter().for_each(|grant| scheduler.release(now, grant));
    }
    spend(&mut scheduler, now, long);
    assert_eq!(scheduler.next(now).map(|(who, _)| who), Some("large"));
}

/// A tenant whose calls cost more than was estimated is in debt, which its next start tag includes.
/// A small call of this tenant overtakes large calls that lack tokens. A new tenant must not have
/// to wait until virtual time reaches that tag.
#[test]
fn overtaking_call_of_a_tenant_in_debt_does_not_hold_up_newcomers() {
    for has_waited in [false, true] {
        let (mut scheduler, _, began) = of_tokens(|settings| settings.aging = secs(3_600.0));
        let mut grant = admit(&mut scheduler, began, &sized("debtor", 1, began));
        grant.sent = true;
        scheduler.settle(began, &mut grant, &Settled { usage: Usage::default(), cost: 10_000.0 });
        let all = admit(&mut scheduler, began, &sized("a", 58, began));
        for name in ["b", "c", "d"].into_iter().cycle().take(60) {
            queue(&mut scheduler, began, sized(name, 50, began), name);
        }
        scheduler.release(began, grant);
        let mut now = began;
        if has_waited {
            queue(&mut scheduler, now, sized("debtor", 2, now), "debtor");
            now += secs(3.0);
            assert_eq!(draw(&mut scheduler, now), ["debtor"]);
        } else {
            now += secs(3.0);
            let small = admit(&mut scheduler, now, &sized("debtor", 2, now));
            spend(&mut scheduler, now, small);
        }
        queue(&mut scheduler, now, sized("new", 50, now), "new");
        let before = std::iter::from_fn(|| {
            now += secs(5.0);
            draw(&mut scheduler, now).into_iter().all(|who| who != "new").then_some(())
        });
        assert!(before.count() <= 6, "has waited: {has_waited}");
        spend(&mut scheduler, now, all);
    }
}

/// A tenant with fewer slots than are reserved for it has many waiting calls that do not fit. The
/// first call in order belongs to another tenant, has a longer prompt, and fits.
#[test]
fn calls_below_a_floor_that_have_no_room_do_not_keep_the_front_from_being_looked_at() {
    let now = epoch();
    let resources = Resources { budgets: Arc::default(), kv: Some(Kv::new(1_000, 0.0)) };
    let mut configured = SchedulerSettings { aging: Duration::from_secs(3600), ..settings(10) };
    configured.tenants.insert("floor".into(), TenantConfig { floor: 0.5, ..TenantConfig::default() });
    let mut scheduler = Scheduler::with(&configured, resources, now);
    let of = |tenant: &str, input, output| {
        let mut call = ticket(tenant, Lane::Standard, now);
        (call.demand.input, call.demand.output) = (input, output);
        call
    };
    let long = admit(&mut scheduler, now, &of("floor", 100, 700));
    scheduler.enqueue(now, of("front", 100, 10), "front");
    for _ in 0..40 {
        scheduler.enqueue(now, of("floor", 10, 900), "floor");
    }
    let (who, next) = scheduler.next(now).expect("the front fits");
    assert_eq!(who, "front");
    [long, next].into_iter().for_each(|grant| scheduler.release(now, grant));
}

/// A decision checks only a few of 1,000 waiting calls that do not fit, even if all of them have
/// empty prompts.
#[test]
fn number_of_calls_looked_at_is_bounded_whatever_their_prompts_are() {
    for input in [0, 100] {
        let now = epoch();
        let resources = Resources { budgets: Arc::default(), kv: Some(Kv::new(1_000, 0.0)) };
        let configured = SchedulerSettings { aging: Duration::from_secs(3600), ..settings(10) };
        let mut scheduler = Scheduler::with(&configured, resources, now);
        let mut call = ticket("a", Lane::Standard, now);
        (call.demand.input, call.demand.output) = (100, 700);
        let long = admit(&mut scheduler, now, &call);
        let looks = Arc::new(AtomicUsize::new(0));
        let counter = looks.clone();
        call.forecast = Forecast::deferred(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            Forecast::exact(900)
        });
        call.demand.input = input;
        for k in 0..1_000 {
            let tenant = Arc::from(format!("tenant-{}", k % 100));
            scheduler.enqueue(now, Ticket { tenant, ..call.clone() }, ());
        }
        looks.store(0, Ordering::Relaxed);
        assert!(scheduler.next(now).is_none());
        let looks = looks.load(Ordering::Relaxed);
        assert!(looks <= 40, "{looks} looks at prompts of {input}");
        scheduler.release(now, long);
    }
}

/// The calls are dispatched as if the memory had been known from the start.
#[test]
fn memory_that_is_reported_while_calls_wait_applies_to_them() {
    for seed in 0..50 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let now = epoch();
        let configured = SchedulerSettings { kv_headroom: 0.0, aging: secs(3600.0), ..settings(1) };
        let known = Resources { budgets: Arc::default(), kv: Some(Kv::new(1_000, 0.0)) };
        let mut schedulers = [
            Scheduler::with(&configured, known, now),
            Scheduler::with(&configured, Resources { budgets: Arc::default(), kv: None }, now),
        ];
        let calls: Vec<Ticket> = (0..20)
            .map(|_| Ticket {
                lane: Lane::ALL[rng.usize(..3)],
                ..sized(["a", "b"][rng.usize(..2)], rng.u64(1..900), now)
            })
            .collect();
        let orders = schedulers.each_mut().map(|scheduler| {
            let first = admit(scheduler, now, &ticket("a", Lane::Standard, now));
            for (nth, call) in calls.iter().enumerate() {
                scheduler.enqueue(now, call.clone(), nth);
            }
            let metrics = EngineMetrics { kv_tokens: Some(1_000), ..EngineMetrics::default() };
            scheduler.on_engine_metrics(now, &metrics);
            scheduler.set_limit(100);
            scheduler.release(now, first);
            let mut order = Vec::new();
            let mut running = VecDeque::new();
            while order.len() < calls.len() {
                match scheduler.next(now) {
                    Some((nth, grant)) => {
                        order.push(nth);
                        running.push_back(grant);
                    }
                    None => scheduler.release(now, running.pop_front().expect("a call runs")),
                }
            }
            running.into_iter().for_each(|grant| scheduler.release(now, grant));
            order
        });
        let [known, reported] = orders;
        assert_eq!(reported, known, "seed {seed}");
    }
}

/// A process in strict mode admits nothing without the store, and nobody knows when the store is
/// back.
#[test]
fn call_waits_for_a_lost_store_of_shared_rates() {
    let (mut scheduler, budgets, now) = of_tokens(|settings| settings.predict = Predict::Deadline);
    let lose_store = |budgets: &mut RateBudgets| {
        budgets.share(now, true, LeaseTimes::REMOTE);
        let set = budgets.shared_sets().next()?;
        budgets.join(now, set)?;
        budgets.with_stock(set, |stock| stock.on_alive(now))?;
        budgets.with_stock(set, |stock| stock.on_lost(now))
    };
    lose_store(&mut budgets.lock()).expect("the rate is shared");
    for later in [secs(0.5), secs(2.0)] {
        let now = now + later;
        let call = Ticket { deadline: now + secs(60.0), ..sized("a", 10, now) };
        let waiter = queue(&mut scheduler, now, call, "a");
        let why = scheduler.explain(now, waiter).expect("it waits");
        assert_eq!(why.rule, Rule::Share);
        assert!(why.expected.is_none_or(|expected| expected < secs(1.0)), "{why:?}");
    }
    assert!(scheduler.next(now + secs(2.0)).is_none());
    let (mut scheduler, budgets, now) = of_tokens(|settings| settings.on_full = OnFull::Refuse);
    lose_store(&mut budgets.lock()).expect("the rate is shared");
    let refusal = scheduler.try_admit(now + secs(2.0), &sized("a", 10, now)).expect_err("it may not wait");
    assert_eq!(refusal.reason, Reason::NoBudget);
}
