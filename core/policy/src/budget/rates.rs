//! Rate budgets of a target: requests and tokens per minute and per day.
//!
//! # Algorithm
//!
//! - Each limit is one quota (`quota.rs`). A limit that is not configured does not exist until a
//!   response announces it.
//! - A call is charged its estimated cost on admission, under the counting rule of its provider. A
//!   call that was never sent is refunded in full. After the provider has counted the call, the
//!   charge is settled, once. If the provider never reports a count, the charge stands.
//! - The counting rule is the configured one. [`Counting::Auto`] starts with the rule that the
//!   dialect's own provider uses, and changes to another rule if that rule predicts the provider's
//!   successive `remaining` headers much better.
//!
//! # Guarantees
//!
//! A charge is settled or refunded at most once, and an impossible count changes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::counting::{self, RULES, Tally};
use super::kind::{BudgetKind, DAY, MINUTE};
use super::provider_window::Report;
use super::quota::Quota;
use super::window_hint::WindowHint;
use super::{Need, Room};
use tidegate_config::{Counting, HeaderPolicy, RateConfig};
use tidegate_protocol::observe::Usage;
use tidegate_protocol::rate::{RateHeaders, Window};
use tidegate_protocol::request::Dialect;
use tidegate_tokens::Demand;

const HOUR: Duration = Duration::from_secs(3_600);

/// The charge of one attempt, which is [settled](RateBudgets::settle) or
/// [refunded](RateBudgets::refund) at most once.
#[derive(Debug)]
pub struct Charge {
    pub(crate) need: Need,
    charged_at: Instant,
    rule: Counting,
    excludes_cached: bool,
    demand: Demand,
    /// Total charged when this charge was made, including it.
    tally: Tally,
    settled: bool,
}

/// The state of one budget, for snapshots and metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetView {
    /// What the budget limits.
    pub kind: BudgetKind,
    /// The limit in force, in requests or tokens per window.
    pub limit: u64,
    /// The window of the limit.
    pub window: Duration,
    /// Requests or tokens that may be used at once, or 0 if there is debt.
    pub level: u64,
    /// Debt in requests or tokens, or 0.
    pub debt: u64,
    /// Origin of the limit: `"configured"` or `"headers"`.
    pub source: &'static str,
    /// Time at the limit's rate that may be used at once.
    pub burst: Duration,
    /// Rule by which a call's tokens are counted.
    pub counting: Counting,
}

/// All rate budgets of a target, or of several targets that share them.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use tidegate_policy::budget::RateBudgets;
/// use tidegate_config::RateConfig;
/// use tidegate_tokens::Demand;
///
/// let now = Instant::now();
/// let config = RateConfig { tpm: Some(6_000), ..RateConfig::default() };
/// let mut budgets = RateBudgets::new(&config, now);
/// let call = Demand { input: 500, output: 100, ..Demand::default() };
///
/// let need = budgets.need(&call);
/// assert!(need.fits(&budgets.available(now)));
/// let charge = budgets.charge(now, &call);
/// assert!(!need.fits(&budgets.available(now)), "the burst of a few seconds is used");
/// budgets.refund(now, charge);
/// ```
#[derive(Debug)]
pub struct RateBudgets {
    quotas: Vec<Quota>,
    /// Whether any budget exists.
    has_limits: Arc<AtomicBool>,
    config: RateConfig,
    /// Dialect of the last call, which [`RateBudgets::view`] uses to report the counting rule.
    dialect: Option<Dialect>,
    /// Index of the counting rule learned from headers.
    learned: Option<usize>,
    tally: Tally,
    hints: [WindowHint; 2],
    /// Whether the `requests` and `tokens` headers are limits per day.
    daily: [bool; 2],
}

impl Default for RateBudgets {
    /// Creates no budgets. Nothing is limited until headers announce a limit.
    fn default() -> Self {
        Self::empty(&RateConfig::default())
    }
}

impl RateBudgets {
    /// Creates the configured budgets, each of them full.
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

    /// Creates the budgets of a tool: `rps` calls per second and `rpm` calls per minute.
    pub fn for_tool(rps: Option<f64>, rpm: Option<u64>, now: Instant) -> Self {
        let config = RateConfig { rpm, headers: HeaderPolicy::Ignore, ..RateConfig::default() };
        let mut budgets = Self::new(&config, now);
        if let Some(rate) = rps.filter(|rate| rate.is_finite() && *rate > 0.0) {
            // A rate of 0.5 calls per second is one call every two seconds.
            let limit = rate.clamp(1e-6, 1e9).ceil();
            let window = Duration::from_secs_f64(limit / rate.clamp(1e-6, 1e9));
            budgets.quotas.push(Quota::new(BudgetKind::Requests, limit as u64, window, window, now));
        }
        budgets.publish_has_limits();
        budgets
    }

    /// Creates budgets without any limit.
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

    /// Returns a flag that is `true` while any budget exists.
    ///
    /// Reading the flag needs no lock on the budgets. It is updated by
    /// [`RateBudgets::on_response`].
    pub fn has_limits(&self) -> Arc<AtomicBool> {
        self.has_limits.clone()
    }

    /// Publishes whether any budget exists.
    fn publish_has_limits(&self) {
        self.has_limits.store(!self.quotas.is_empty(), Ordering::Release);
    }

    /// Returns what a call will be charged, under the counting rule of its provider.
    pub fn need(&self, demand: &Demand) -> Need {
        counting::need(self.rule(demand), demand)
    }

    /// Returns the most that one call may take now.
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

    /// Returns the budget that the call can never fit, with the largest call that it admits.
    ///
    /// Only what is certain about the call and its counting rule is compared. If an estimate that
    /// is too high rejected calls, no call would ever be sent to correct it.
    pub fn oversize(&self, demand: &Demand) -> Option<(BudgetKind, u64)> {
        let input = demand.min_input();
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
        // A limit from headers may belong to another model or window. The provider itself rejects
        // calls that are too large for it.
        let over = |quota: &&Quota| !quota.from_headers && least(quota.kind) > quota.max_call();
        self.quotas.iter().find(over).map(|quota| (quota.kind, quota.max_call()))
    }

    /// Returns the budget that delays a call with this need longest, and the time at which the call
    /// fits if nothing else is charged. Returns `None` if the call fits now.
    pub fn ready_at(&mut self, now: Instant, need: &Need) -> Option<(BudgetKind, Instant)> {
        let tally = self.tally;
        let times = self.quotas.iter_mut().map(|quota| {
            let kind = quota.kind;
            (kind, quota.ready_at(now, &kind.charged_by_rule(&tally), kind.cost(need)))
        });
        times.max_by_key(|(_, at)| *at).filter(|(_, at)| *at > now)
    }

    /// Returns how long `calls` calls that need `need` in total take to fit, starting from empty
    /// budgets. Returns zero if nothing limits them. Used to predict waiting times.
    pub fn time_for(&self, calls: usize, need: &Need) -> Duration {
        let time =
            |quota: &Quota| quota.time_for(u64::from(quota.kind.cost(need)).saturating_mul(calls as u64));
        self.quotas.iter().map(time).max().unwrap_or_default()
    }

    /// Charges an admitted call its estimated cost. A call that does not fit leaves a debt.
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

    /// Refunds the charge of a call that was never sent. A settled charge is not refunded.
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

    /// Replaces the estimate by the provider's count: the difference is refunded or becomes debt.
    ///
    /// Only the first call has an effect. An impossible count changes nothing.
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

    /// Updates the budgets from the response to an attempt that was sent at `sent_at`.
    ///
    /// `limited` is `true` if the response rejected the attempt because of a rate limit.
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
        // A rejection for lack of requests says nothing about how tokens are counted.
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

    /// Returns the state of each budget.
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

    /// Returns the counting rule for calls like this one.
    fn rule(&self, demand: &Demand) -> Counting {
        if self.config.counting != Counting::Auto {
            return self.config.counting;
        }
        let shown = self.learned.and_then(|rule| RULES.get(rule).copied());
        shown.or(demand.dialect.map(counting::rule_of_dialect)).unwrap_or(Counting::Sum)
    }

    /// Applies one announced window. Returns `true` if it explains a rejection of the call.
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
                // Calls already in flight were charged by the provider, but not here.
                self.quotas.push(quota);
                self.quotas.len() - 1
            }
        };
        let rule = RULES.iter().position(|rule| *rule == charge.rule).unwrap_or(0);
        let tally = self.tally;
        let Some(quota) = self.quotas.get_mut(index) else { return false };
        if let Some(limit) = report.limit {
            let scale = window.as_secs_f64() / kind.window().as_secs_f64();
            // The configured limit, scaled to the announced window.
            let most = quota.configured.filter(|_| self.config.headers == HeaderPolicy::Lower);
            let limit = limit.min(most.map_or(u64::MAX, |most| (most as f64 * scale) as u64)).max(1);
            // A reset later than the end of the window belongs to another window, so it must not
            // raise the limit.
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

    /// Returns the budget that an announced limit belongs to, and its window.
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
                // A limit known to be per second stays so if a response omits the header that says
                // so.
                return Some((kind, known.unwrap_or(kind.window())));
            }
        };
        let known = self.quotas.iter().find(|quota| quota.kind == kind).map(|quota| quota.window);
        let mut inferred = self.hints.get_mut(nth)?.observe(report);
        // No limit of requests per minute takes more than an hour to reset.
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

    /// Adopts the counting rule that the token headers show, if any.
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
