//! The rates that a provider allows: requests and tokens, a minute and a day.
//!
//! Each is a [`Quota`](super::quota); this is all of a target's, or of several targets that share them. What is not configured is not
//! bounded, until a response's headers speak of it. A call is charged on admission what it is expected to cost by the provider's way of
//! counting; never sent, all of it comes back; once the provider has counted it is settled, once; and where it never does, the charge stands.
//!
//! # Which way of counting
//!
//! As configured. [`Counting::Auto`] begins with what the dialect's own provider is known to do and changes to another rule where the
//! provider's successive `remaining`s are foretold much better by it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::counting::{self, RULES, Tally};
use super::kind::{BudgetKind, DAY, MINUTE};
use super::provider_window::Report;
use super::quota::Quota;
use super::window_hint::WindowHint;
use super::{Need, Room};
use crate::config::{Counting, HeaderPolicy, RateConfig};
use crate::estimate::Demand;
use crate::wire::observe::Usage;
use crate::wire::rate::{RateHeaders, Window};
use crate::wire::request::Dialect;

const HOUR: Duration = Duration::from_secs(3_600);

/// What an attempt was charged: settled once, by [`RateBudgets::settle`], or it stands.
#[derive(Debug)]
pub struct Charge {
    pub(crate) need: Need,
    charged_at: Instant,
    rule: Counting,
    excludes_cached: bool,
    demand: Demand,
    /// What had been charged in all, this included.
    tally: Tally,
    settled: bool,
}

/// One budget as it stands, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetView {
    /// What it counts.
    pub kind: BudgetKind,
    /// The limit in force, in requests or tokens a window.
    pub limit: u64,
    /// The window.
    pub window: Duration,
    /// What may be taken at once; 0 where something is owed.
    pub level: u64,
    /// What is owed.
    pub debt: u64,
    /// Where the limit is from: `configured` or `headers`.
    pub source: &'static str,
    /// How much of the rate may go out at once, as time.
    pub burst: Duration,
    /// How a call is counted.
    pub counting: Counting,
}

/// All rate budgets of a target, or of several that share them.
#[derive(Debug)]
pub struct RateBudgets {
    quotas: Vec<Quota>,
    /// Whether there are any.
    has_limits: Arc<AtomicBool>,
    config: RateConfig,
    /// That of the last call, for whoever wants to see how calls are counted.
    dialect: Option<Dialect>,
    /// The rule that the headers have shown.
    learned: Option<usize>,
    tally: Tally,
    hints: [WindowHint; 2],
    /// Whether the headers' requests, and tokens, are a day's.
    daily: [bool; 2],
}

impl Default for RateBudgets {
    /// Nothing is bounded, until headers say otherwise.
    fn default() -> Self {
        Self::empty(&RateConfig::default())
    }
}

impl RateBudgets {
    /// As configured.
    pub fn new(config: &RateConfig, now: Instant) -> Self {
        let mut budgets = Self::empty(config);
        for (kind, limit) in [
            (BudgetKind::Requests, config.rpm),
            (BudgetKind::Tokens, config.tpm),
            (BudgetKind::InputTokens, config.itpm),
            (BudgetKind::OutputTokens, config.otpm),
            (BudgetKind::RequestsPerDay, config.rpd),
            (BudgetKind::TokensPerDay, config.tpd),
        ] {
            if let Some(limit) = limit {
                let mut quota = Quota::new(kind, limit, kind.window(), config.burst, now);
                quota.configured = Some(limit);
                budgets.quotas.push(quota);
            }
        }
        budgets.publish_has_limits();
        budgets
    }

    /// A tool's: `rps` calls a second, `rpm` a minute.
    pub fn for_tool(rps: Option<f64>, rpm: Option<u64>, now: Instant) -> Self {
        let config = RateConfig { rpm, headers: HeaderPolicy::Ignore, ..RateConfig::default() };
        let mut budgets = Self::new(&config, now);
        if let Some(rate) = rps.filter(|rate| rate.is_finite() && *rate > 0.0) {
            // Half a call a second is one every two seconds.
            let limit = rate.clamp(1e-6, 1e9).ceil();
            let window = Duration::from_secs_f64(limit / rate.clamp(1e-6, 1e9));
            budgets.quotas.push(Quota::new(BudgetKind::Requests, limit as u64, window, window, now));
        }
        budgets.publish_has_limits();
        budgets
    }

    fn empty(config: &RateConfig) -> Self {
        Self {
            quotas: Vec::new(),
            has_limits: Arc::default(),
            config: config.clone(),
            dialect: None,
            learned: None,
            tally: Tally::default(),
            hints: Default::default(),
            daily: [false; 2],
        }
    }

    /// Whether anything is bounded: for those who want to know without a lock on all this. It is behind by a [`RateBudgets::heard`] at most.
    pub(crate) fn has_limits(&self) -> Arc<AtomicBool> {
        self.has_limits.clone()
    }

    fn publish_has_limits(&self) {
        self.has_limits.store(!self.quotas.is_empty(), Ordering::Release);
    }

    /// What a call will be charged, by the provider's own way of counting.
    pub fn need(&self, demand: &Demand) -> Need {
        counting::need(self.rule(demand), demand)
    }

    /// The most that one call may take now.
    pub fn available(&mut self, now: Instant) -> Room {
        let mut room = Room::UNBOUNDED;
        for quota in &mut self.quotas {
            let fits = u32::try_from(quota.available(now, &quota.kind.charged_by_rule(&self.tally)))
                .unwrap_or(u32::MAX);
            match quota.kind.field_mut(&mut room.most) {
                Some(most) => *most = fits.min(*most),
                None => room.open &= fits > 0,
            }
        }
        room
    }

    /// Which budget a call could never fit, and its size: by what is certain of the call, and of how it is counted. A guess that was too high would
    /// otherwise refuse calls for ever, and so never be put right.
    pub fn oversize(&self, demand: &Demand) -> Option<(BudgetKind, u64)> {
        let input = demand.least_input();
        let known = self.config.counting != Counting::Auto || self.learned.is_some();
        let most = demand.max_output.filter(|_| known).unwrap_or(0);
        let least = |kind| match (kind, self.rule(demand)) {
            (BudgetKind::Tokens | BudgetKind::TokensPerDay, Counting::Sum) => input.saturating_add(most),
            (BudgetKind::Tokens | BudgetKind::TokensPerDay, Counting::Larger) => input.max(most),
            (BudgetKind::Tokens | BudgetKind::TokensPerDay | BudgetKind::InputTokens, _)
                if !counting::excludes_cached(demand) =>
            {
                input
            }
            _ => 0,
        };
        // A limit from headers may be another model's, or another window's: the provider itself says no to what it cannot take.
        let over = |quota: &&Quota| !quota.from_headers && least(quota.kind) > quota.max_call();
        self.quotas.iter().find(over).map(|quota| (quota.kind, quota.max_call()))
    }

    /// Which budget keeps a call of that size waiting longest, and until when, if nothing else goes. `None`: it fits now.
    pub fn ready_at(&mut self, now: Instant, need: &Need) -> Option<(BudgetKind, Instant)> {
        let tally = self.tally;
        let times = self.quotas.iter_mut().map(|quota| {
            let kind = quota.kind;
            (kind, quota.ready_at(now, &kind.charged_by_rule(&tally), kind.cost(need)))
        });
        times.max_by_key(|(_, at)| *at).filter(|(_, at)| *at > now)
    }

    /// How long so many calls of that size in all take to fit, from an empty budget: what waits are predicted from. Zero where nothing bounds them.
    pub fn time_for(&self, calls: usize, need: &Need) -> Duration {
        let time =
            |quota: &Quota| quota.time_for(u64::from(quota.kind.cost(need)).saturating_mul(calls as u64));
        self.quotas.iter().map(time).max().unwrap_or_default()
    }

    /// Takes what a call that is admitted now is expected to cost: into debt, if the driver insists.
    pub fn charge(&mut self, now: Instant, demand: &Demand) -> Charge {
        self.dialect = demand.dialect.or(self.dialect);
        let rule = self.rule(demand);
        let need = counting::need(rule, demand);
        self.tally = self.tally.plus(&Tally::from_demand(demand));
        for quota in &mut self.quotas {
            quota.charge(now, quota.kind.cost(&need));
        }
        let excludes_cached = counting::excludes_cached(demand);
        Charge {
            need,
            charged_at: now,
            rule,
            excludes_cached,
            demand: *demand,
            tally: self.tally,
            settled: false,
        }
    }

    /// It was never sent: all of it goes back.
    pub fn refund(&mut self, now: Instant, charge: Charge) {
        if charge.settled {
            return;
        }
        let own = Tally::from_demand(&charge.demand);
        self.tally = self.tally.minus(&own);
        for quota in &mut self.quotas {
            quota.refund(now, charge.charged_at, quota.kind.cost(&charge.need));
            quota.provider_window.on_refund(charge.charged_at, &quota.kind.charged_by_rule(&own));
        }
    }

    /// The provider has counted: what was too much goes back, what was too little becomes debt. Only the first time; a count that cannot be
    /// changes nothing.
    pub fn settle(&mut self, now: Instant, charge: &mut Charge, usage: &Usage) {
        let Some(counted) = counting::actual_demand(&charge.demand, usage, charge.excludes_cached) else {
            return;
        };
        if std::mem::replace(&mut charge.settled, true) {
            return;
        }
        let need = counting::need(charge.rule, &counted);
        self.tally =
            self.tally.plus(&Tally::from_demand(&counted)).minus(&Tally::from_demand(&charge.demand));
        for quota in &mut self.quotas {
            let cost = |need| quota.kind.cost(need);
            let (charged, cost) = (cost(&charge.need), cost(&need));
            quota.settle(now, charge.charged_at, charged, cost);
        }
        charge.need = need;
    }

    /// What the answer to an attempt, sent at `sent_at`, said of the provider's own books; `limited` if it was refused for its rate.
    pub fn on_response(
        &mut self,
        now: Instant,
        charge: &Charge,
        sent_at: Instant,
        headers: &RateHeaders,
        limited: bool,
    ) {
        let (mut explained, mut is_other_kind) = (false, false);
        if self.config.headers != HeaderPolicy::Ignore {
            let sent_at = sent_at.clamp(charge.charged_at.min(now), now);
            for (kind, report) in [
                (BudgetKind::Requests, &headers.requests),
                (BudgetKind::Tokens, &headers.tokens),
                (BudgetKind::InputTokens, &headers.input_tokens),
                (BudgetKind::OutputTokens, &headers.output_tokens),
                (BudgetKind::RequestsPerDay, &headers.requests_per_day),
                (BudgetKind::TokensPerDay, &headers.tokens_per_day),
            ] {
                let explains = self.on_window(now, charge, sent_at, kind, report);
                explained |= explains;
                is_other_kind |= explains && kind != BudgetKind::Tokens;
            }
            self.learn_rule();
            self.publish_has_limits();
        }
        // How tokens are counted has nothing to do with a refusal for want of requests.
        let distrust = limited && !is_other_kind && self.learned.take().is_some();
        for quota in &mut self.quotas {
            if distrust {
                quota.provider_window.require_more_evidence(now);
            }
            if !limited {
                quota.on_success(now);
            } else {
                quota.on_rate_limited(now, charge.charged_at, explained || distrust);
            }
        }
    }

    /// How each budget stands.
    pub fn view(&mut self, now: Instant) -> Vec<BudgetView> {
        let last = Demand { dialect: self.dialect, ..Demand::default() };
        let (counting, tally) = (self.rule(&last), self.tally);
        let view = |quota: &mut Quota| {
            let level = quota.level(now, &quota.kind.charged_by_rule(&tally));
            BudgetView {
                kind: quota.kind,
                limit: quota.limit,
                window: quota.window,
                level: level as u64,
                debt: (-level).ceil() as u64,
                source: if quota.from_headers { "headers" } else { "configured" },
                burst: quota.burst(),
                counting,
            }
        };
        self.quotas.iter_mut().map(view).collect()
    }

    /// The rule that calls like this one are counted by now.
    fn rule(&self, demand: &Demand) -> Counting {
        if self.config.counting != Counting::Auto {
            return self.config.counting;
        }
        let shown = self.learned.and_then(|rule| RULES.get(rule).copied());
        shown.or(demand.dialect.map(counting::rule_of_dialect)).unwrap_or(Counting::Sum)
    }

    /// What was said of one budget; whether that explains a refusal of the call.
    fn on_window(
        &mut self,
        now: Instant,
        charge: &Charge,
        sent_at: Instant,
        kind: BudgetKind,
        report: &Window,
    ) -> bool {
        if report.limit == Some(0)
            || report.remaining.zip(report.limit).is_some_and(|(left, limit)| left > limit)
        {
            return false;
        }
        let Some((kind, window)) = self.resolve_window(now, kind, report) else { return false };
        let index = match self.quotas.iter().position(|quota| quota.kind == kind) {
            Some(index) => index,
            None => {
                let Some(limit) = report.limit else { return false };
                let mut quota = Quota::new(kind, limit, window, self.config.burst, now);
                quota.from_headers = true;
                // What is in flight already was taken from the provider, and from nothing here.
                self.quotas.push(quota);
                self.quotas.len() - 1
            }
        };
        let rule = RULES.iter().position(|rule| *rule == charge.rule).unwrap_or(0);
        let tally = self.tally;
        let Some(quota) = self.quotas.get_mut(index) else { return false };
        if let Some(limit) = report.limit {
            let scale = window.as_secs_f64() / kind.window().as_secs_f64();
            // As much of what was configured as is due in the window that was heard of.
            let most = quota.configured.filter(|_| self.config.headers == HeaderPolicy::Lower);
            let limit = limit.min(most.map_or(u64::MAX, |most| (most as f64 * scale) as u64)).max(1);
            // What takes longer than the window to come back is of another: not to be trusted with more.
            let fits = report.reset.is_none_or(|reset| reset <= window + window / 10);
            if fits || quota.is_lower_rate(limit, window) {
                quota.on_limit(now, limit, window);
            }
        }
        let Some(remaining) = report.remaining else { return false };
        if self.learned.is_none() {
            quota.provider_window.assume_rule(rule);
        }
        let hint = match kind {
            BudgetKind::Requests => self.hints.first(),
            BudgetKind::Tokens => self.hints.get(1),
            _ => None,
        };
        quota.set_token_bucket(hint.is_some_and(WindowHint::is_token_bucket));
        quota.on_report(
            &Report {
                remaining: remaining as f64,
                sent: (sent_at, kind.charged_by_rule(&charge.tally)),
                received: (now, kind.charged_by_rule(&tally)),
            },
            report,
        );
        remaining < u64::from(kind.cost(&charge.need))
    }

    /// Which budget is spoken of, and over which window.
    fn resolve_window(
        &mut self,
        now: Instant,
        kind: BudgetKind,
        report: &Window,
    ) -> Option<(BudgetKind, Duration)> {
        if let Some(over) = report.over {
            return Some((kind, over));
        }
        let (nth, daily) = match kind {
            BudgetKind::Requests => (0, BudgetKind::RequestsPerDay),
            BudgetKind::Tokens => (1, BudgetKind::TokensPerDay),
            _ => {
                let known = self.quotas.iter().find(|quota| quota.kind == kind).map(|quota| quota.window);
                // What was told to be of a second stays so when a response leaves the telling name out.
                return Some((kind, known.unwrap_or(kind.window())));
            }
        };
        let known = self.quotas.iter().find(|quota| quota.kind == kind).map(|quota| quota.window);
        let mut inferred = self.hints.get_mut(nth)?.observe(report);
        // Nobody's requests a minute take more than an hour to come back.
        if kind == BudgetKind::Requests && report.reset.is_some_and(|reset| reset > HOUR) {
            inferred = Some(DAY);
        }
        let is_daily = self.daily.get_mut(nth)?;
        match inferred {
            Some(window) if (window == DAY) != *is_daily => {
                *is_daily = window == DAY;
                let wrong = if *is_daily { kind } else { daily };
                self.quotas.retain_mut(|quota| {
                    if quota.kind == wrong {
                        quota.restore_configured(now);
                    }
                    quota.kind != wrong || quota.configured.is_some()
                });
            }
            _ => {}
        }
        if *is_daily {
            return Some((daily, DAY));
        }
        Some((kind, inferred.or(known).unwrap_or(MINUTE)))
    }

    fn learn_rule(&mut self) {
        if self.config.counting != Counting::Auto {
            return;
        }
        let tokens = self.quotas.iter_mut().find(|quota| quota.kind == BudgetKind::Tokens);
        if let Some(quota) = tokens
            && let Some(rule) = quota.provider_window.learned_rule()
        {
            quota.provider_window.assume_rule(rule);
            self.learned = Some(rule);
        }
    }
}
