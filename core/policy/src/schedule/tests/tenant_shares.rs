//! Tests of the division of an adaptive upstream among tenants, over an engine that prefills one
//! prompt at a time.

use std::collections::VecDeque;

use fastrand::Rng;

use super::*;
use crate::adaptive::{self, Ended};
use tidegate_config::AdaptiveConfig;

/// Time that the engine needs for one prompt.
const PREFILL: Duration = Duration::from_millis(100);
/// The usual time from the first token of a call to its end.
const DECODE: Duration = Duration::from_millis(1_000);

fn adaptive(max: usize) -> SchedulerSettings {
    let config = AdaptiveConfig { start: max, ..AdaptiveConfig::default() };
    let adaptive =
        adaptive::LimitSettings { max, objective: None, latency: None, tpot: None, adaptive: config };
    SchedulerSettings { adaptive: Some(adaptive), ..settings(max) }
}

/// A scheduler in front of the engine.
struct Engine {
    now: Instant,
    scheduler: Scheduler<(&'static str, Instant)>,
    /// The calls that await their first token, the oldest first, with the time of their arrival.
    prefilling: VecDeque<(&'static str, Instant, Box<Grant>)>,
    /// The calls that were answered, with the time of their end.
    decoding: VecDeque<(Instant, Box<Grant>)>,
    /// The maximum number of calls that the engine decodes. It reads no prompt meanwhile.
    batch: usize,
    /// Time from the first token of a call to its end.
    decode: Duration,
    /// The time at which the engine finishes the current prompt.
    prefilled_at: Option<Instant>,
    /// The tenants of the first tokens, with the time from the arrival of the call.
    first_tokens: Vec<(&'static str, Duration)>,
}

impl Engine {
    fn new(slots: usize) -> Self {
        let now = crate::testing::epoch();
        Self {
            now,
            scheduler: Scheduler::new(&adaptive(slots), now),
            prefilling: VecDeque::new(),
            decoding: VecDeque::new(),
            batch: usize::MAX,
            decode: DECODE,
            prefilled_at: None,
            first_tokens: Vec::new(),
        }
    }

    fn call(&mut self, tenant: &'static str) {
        let ticket = Ticket { streams: true, ..ticket(tenant, Lane::Standard, self.now) };
        match self.scheduler.try_admit(self.now, &ticket).expect("not refused") {
            Some(grant) => self.start(tenant, self.now, grant),
            None => {
                self.scheduler.enqueue(self.now, ticket, (tenant, self.now));
            }
        }
    }

    fn start(&mut self, tenant: &'static str, arrived: Instant, mut grant: Box<Grant>) {
        grant.sent = true;
        self.prefilling.push_back((tenant, arrived, grant));
        self.start_prefill();
    }

    /// Starts to read the next prompt if the engine reads none and can decode another call.
    fn start_prefill(&mut self) {
        if !self.prefilling.is_empty() && self.decoding.len() < self.batch {
            self.prefilled_at.get_or_insert(self.now + PREFILL);
        }
    }

    /// Lets time pass until `until`, and dispatches waiting calls after each event.
    fn run(&mut self, until: Instant) {
        loop {
            let ends = self.decoding.front().map(|(at, _)| *at);
            let Some(at) = ends.into_iter().chain(self.prefilled_at).min().filter(|at| *at <= until) else {
                break;
            };
            self.now = at;
            if self.prefilled_at == Some(at) {
                let (tenant, arrived, mut grant) = self.prefilling.pop_front().expect("a prompt");
                self.first_tokens.push((tenant, at - arrived));
                self.scheduler.on_first_token(at, &mut grant);
                self.decoding.push_back((at + self.decode, grant));
                self.prefilled_at = None;
            } else if let Some((_, mut grant)) = self.decoding.pop_front() {
                grant.outcome = Ended::Completed { output: 10 };
                self.scheduler.release(at, grant);
            }
            self.start_prefill();
            self.dispatch();
        }
        self.now = until;
    }

    fn dispatch(&mut self) {
        while let Some(((tenant, arrived), grant)) = self.scheduler.next(self.now) {
            self.start(tenant, arrived, grant);
        }
        self.check();
    }

    fn run_for(&mut self, time: Duration) {
        self.run(self.now + time);
    }

    /// Lets each tenant make one call per second for 20 s, so that the quiet time is learned.
    fn warm_up(&mut self, tenants: &[&'static str]) {
        for _ in 0..20 {
            for tenant in tenants {
                self.call(tenant);
                self.run_for(Duration::from_secs(1) / tenants.len() as u32);
            }
        }
        self.first_tokens.clear();
    }

    /// Checks the counters of tenants against the calls, and the guarantees for waiting calls.
    fn check(&self) {
        let Scheduler { queue, capacity, .. } = &self.scheduler;
        let slots = capacity.limits.slots;
        for (_, tenant) in queue.tenants.iter() {
            let name = &*tenant.name;
            let awaiting = self.prefilling.iter().filter(|(of, ..)| *of == name).count();
            assert_eq!(tenant.usage.awaiting, awaiting, "calls of {name} that await their first token");
            let has_no_share = tenant.in_flight == 0;
            assert!(!(has_no_share && tenant.is_held()), "{name} has no call and is held");
            let could_go = has_no_share && tenant.waiting > 0 && capacity.has_slot();
            assert!(!could_go, "{name} has no call, waits, and {slots} slots are not in use");
        }
        let held: Vec<_> = queue.tenants.iter().filter(|(_, tenant)| tenant.is_held()).collect();
        assert!(queue.has_exact_active_sums());
        let busy = !self.prefilling.is_empty() || capacity.in_flight > 0;
        assert!(held.is_empty() || busy, "an idle upstream holds {held:?}");
    }

    fn slowest(&self, tenant: &str) -> Duration {
        let of = self.first_tokens.iter().filter(|(of, _)| *of == tenant).map(|(_, took)| *took);
        of.max().expect("a first token")
    }
}

#[test]
fn burst_delays_first_tokens_of_others_by_few_prompts() {
    let mut engine = Engine::new(64);
    engine.warm_up(&["light", "burst"]);
    (0..100).for_each(|_| engine.call("burst"));
    for _ in 0..8 {
        engine.run_for(ms(730));
        engine.call("light");
    }
    engine.run_for(Duration::from_secs(30));
    assert!(engine.slowest("light") <= 4 * PREFILL, "{:?}", engine.slowest("light"));
    // The burst still keeps the engine busy.
    let served = engine.first_tokens.iter().filter(|(tenant, _)| *tenant == "burst").count();
    assert_eq!(served, 100);
    assert!(engine.slowest("burst") <= 112 * PREFILL, "{:?}", engine.slowest("burst"));
}

#[test]
fn single_tenant_is_not_held() {
    let mut engine = Engine::new(64);
    engine.warm_up(&["alone"]);
    engine.run_for(Duration::from_secs(90));
    (0..40).for_each(|_| engine.call("alone"));
    let view = engine.scheduler.view(engine.now);
    let adaptive = view.adaptive.expect("an adaptive limit").limit;
    assert_eq!(adaptive.awaiting, adaptive.awaiting_limit.min(40), "only the limits bound the calls");
}

#[test]
fn held_call_is_explained() {
    let mut engine = Engine::new(64);
    engine.warm_up(&["light", "burst"]);
    (0..8).for_each(|_| engine.call("burst"));
    let ticket = Ticket { streams: true, ..ticket("burst", Lane::Standard, engine.now) };
    let waits = queue(&mut engine.scheduler, engine.now, ticket, ("burst", engine.now));
    let why = engine.scheduler.explain(engine.now, waits).expect("it waits");
    assert_eq!(why.rule, Rule::TenantShare);
    let view = engine.scheduler.view(engine.now);
    let limit = view.adaptive.expect("an adaptive limit").limit;
    let capacity = limit.first_token_capacity.expect("the capacity is known");
    assert!(limit.awaiting_work > capacity / 2, "{} of {capacity} are used", limit.awaiting_work);
    let held: Vec<_> = view.tenants.iter().filter(|tenant| tenant.held_for.is_some()).collect();
    assert_eq!(held.iter().map(|tenant| &*tenant.name).collect::<Vec<_>>(), ["burst"]);
}

#[test]
fn spare_slots_are_kept_for_active_tenants() {
    let mut engine = Engine::new(16);
    engine.warm_up(&["light", "burst"]);
    for _ in 0..200 {
        engine.call("burst");
        engine.run_for(ms(25));
    }
    let burst = engine.scheduler.view(engine.now);
    let burst = burst.tenants.iter().find(|tenant| &*tenant.name == "burst").expect("a tenant");
    assert!(burst.peak < 16, "the burst used {} of 16 slots", burst.peak);
}

#[test]
fn burst_leaves_room_in_full_batch() {
    let mut engine = Engine { batch: 6, ..Engine::new(64) };
    engine.warm_up(&["light", "burst"]);
    (0..100).for_each(|_| engine.call("burst"));
    // The batch is found to be full.
    engine.run_for(Duration::from_secs(5));
    engine.first_tokens.clear();
    for _ in 0..8 {
        engine.call("light");
        engine.run_for(ms(730));
    }
    // In a full batch, it would wait for the end of a call.
    assert!(engine.slowest("light") <= 3 * PREFILL, "{:?}", engine.slowest("light"));
    let served = engine.first_tokens.iter().filter(|(tenant, _)| *tenant == "burst").count();
    assert!(served >= 20, "{served} calls of the burst in 6 s");
}

#[test]
fn calls_that_do_not_stream_leave_spare_slots() {
    let mut engine = Engine::new(16);
    engine.warm_up(&["light", "burst"]);
    engine.run_for(Duration::from_secs(5));
    let ticket = ticket("burst", Lane::Standard, engine.now);
    let grants: Vec<_> = (0..20)
        .map_while(|_| engine.scheduler.try_admit(engine.now, &ticket).expect("not refused"))
        .collect();
    // The light tenant used two slots, and uses none now.
    assert_eq!(grants.len(), 14);
}

/// The long calls of a tenant leave slots for another one. When that one has not been active for a
/// minute, the waiting calls get these slots although no call starts or ends.
#[test]
fn held_calls_use_spare_slots_when_no_other_tenant_is_active() {
    let mut engine = Engine::new(16);
    engine.warm_up(&["light", "burst"]);
    (0..8).for_each(|_| engine.call("light"));
    engine.run_for(Duration::from_secs(5));
    engine.decode = Duration::from_secs(1_200);
    (0..24).for_each(|_| engine.call("burst"));
    engine.run_for(Duration::from_secs(5));
    let in_flight = |engine: &mut Engine| engine.scheduler.view(engine.now).in_flight;
    assert!(in_flight(&mut engine) < 16, "slots are kept for the light tenant");
    let (end, mut wakes) = (engine.now + Duration::from_secs(600), 0);
    while let Some(wake) = engine.scheduler.next_wake(engine.now).filter(|wake| *wake <= end) {
        let early = wake - Duration::from_nanos(1);
        assert!(early <= engine.now || engine.scheduler.next(early).is_none(), "the wake-up was too late");
        engine.run(wake);
        engine.dispatch();
        wakes += 1;
        if in_flight(&mut engine) == 16 {
            break;
        }
    }
    assert_eq!(in_flight(&mut engine), 16);
    assert!(engine.now <= end - Duration::from_secs(530) && wakes <= 10, "{wakes} wake-ups");
}

/// Twelve tenants make one call every few seconds each, of which two at most are in flight at the
/// same time.
#[test]
fn burst_gets_slots_that_light_tenants_do_not_use_together() {
    let mut engine = Engine::new(16);
    for _ in 0..2 {
        for tenant in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"] {
            engine.call(tenant);
            engine.run_for(ms(600));
        }
    }
    engine.run_for(Duration::from_secs(5));
    let ticket = ticket("burst", Lane::Standard, engine.now);
    let grants: Vec<_> = (0..20)
        .map_while(|_| engine.scheduler.try_admit(engine.now, &ticket).expect("not refused"))
        .collect();
    assert!((12..16).contains(&grants.len()), "{} of 16 slots", grants.len());
}

#[test]
fn counters_match_calls_after_random_events() {
    for seed in 0..20 {
        let mut rng = Rng::with_seed(seed);
        let mut engine = Engine::new(12);
        let names = ["a", "b", "c", "d"];
        for _ in 0..600 {
            let burst = if rng.u8(..) < 20 { 30 } else { 1 };
            let tenant = names[rng.usize(..names.len())];
            (0..burst).for_each(|_| engine.call(tenant));
            engine.run_for(ms(rng.u64(0..400)));
            if rng.u8(..) < 8 {
                engine.run_for(Duration::from_secs(rng.u64(20..200)));
            }
        }
        engine.run_for(Duration::from_secs(3_600));
        assert!(!engine.scheduler.is_busy(), "seed {seed}: all calls end");
        assert!(engine.scheduler.queue.tenants.iter().all(|(_, tenant)| !tenant.is_held()), "seed {seed}");
    }
}
