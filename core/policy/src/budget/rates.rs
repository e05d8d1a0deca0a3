//! Rate budgets of a target: requests and tokens per minute and per day.
//!
//! # Algorithm
//!
//! - Each limit is one quota (`quota.rs`). A limit that is not configured does not exist until a
//!   response announces it.
//! - A limit that no response has announced for an hour is dropped, or replaced by the configured
//!   limit. Some gateways send headers only with a 429.
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

use super::budget_kind::{DAY, MINUTE};
use super::counting::{self, ChargeTotals, RULES};
use super::shared::SharedLimits;
use super::{AvailableBudget, BudgetKind, LimitOrigin, Need, quota::Quota, window_inference::WindowHint};
use crate::saturate;
use tidegate_config::{Counting, HeaderPolicy, RateConfig};
use tidegate_protocol::rate::{RateHeaders, RateWindow};
use tidegate_protocol::{observe::Usage, request::Dialect};
use tidegate_tokens::Demand;

const HOUR: Duration = Duration::from_secs(3_600);

/// Time after its last announcement in which a limit of headers is in force.
const ANNOUNCEMENT_TTL: Duration = HOUR;

/// The charge of one attempt, which is [settled](RateBudgets::settle) or
/// [refunded](RateBudgets::refund) at most once.
#[derive(Debug)]
pub struct Charge {
    /// The tokens that are charged: the estimate, or the actual amount after the charge was
    /// settled.
    pub(crate) need: Need,
    pub(super) charged_at: Instant,
    /// The counting rule in use when the charge was made.
    rule: Counting,
    demand: Demand,
    /// Totals of all charges when this charge was made, including it.
    totals: ChargeTotals,
    /// Whether the charge was replaced by the actual amount.
    settled: bool,
}

/// The state of one limit, for snapshots and metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetView {
    /// The quantity that is limited.
    pub kind: BudgetKind,
    /// The current limit, in requests or tokens per `window`.
    pub limit: u64,
    /// The period of the limit.
    pub window: Duration,
    /// Requests or tokens that may be charged now. 0 if there is debt.
    pub level: u64,
    /// Requests or tokens charged beyond the limit. 0 if there is no debt.
    pub debt: u64,
    /// Origin of the current limit: `"configured"` or `"headers"`.
    pub source: &'static str,
    /// Maximum amount that may be charged without a pause, as time at the limit's rate.
    pub burst: Duration,
    /// Rule by which the tokens of a call are counted, for the dialect of the last call.
    pub counting: Counting,
    /// The number of processes that share the limit, as last heard. `None` if it is not shared.
    pub processes: Option<usize>,
}

/// The rate limits of one target, or of several targets that share a credential.
///
/// The default has no limits until response headers announce one.
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
/// budgets.refund(now, &charge);
/// ```
#[derive(Debug, Default)]
pub struct RateBudgets {
    pub(super) quotas: Vec<Quota>,
    /// Whether `quotas` contains any limit.
    limits_flag: Arc<AtomicBool>,
    config: RateConfig,
    /// Whether the limits are those of a tool.
    is_of_tool: bool,
    /// Dialect of the last call. `None` before the first one.
    dialect: Option<Dialect>,
    /// Index in [`RULES`] of the counting rule learned from headers. `None` if none was learned.
    learned: Option<usize>,
    pub(super) totals: ChargeTotals,
    requests_window: WindowHint,
    tokens_window: WindowHint,
    /// What this process shares with others. `None` if it shares nothing.
    pub(super) shared: Option<Box<SharedLimits>>,
}

/// What keeps a call from being charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The limit is used up. The call fits at this time if nothing else is charged.
    Limit(BudgetKind, Instant),
    /// This process may charge nothing to a limit that several processes share, because it does not
    /// know the others, or has lost them. It is checked again at this time. `None`: the end is not
    /// known.
    Share(Option<Instant>),
}

impl Lack {
    /// Returns when the call may fit. `None` if that is not known.
    pub fn until(self) -> Option<Instant> {
        match self {
            Self::Limit(_, at) => Some(at),
            Self::Share(until) => until,
        }
    }

    /// Returns the one of both that lasts longer.
    pub(super) fn longer(self, other: Self) -> Self {
        match (self.until(), other.until()) {
            (None, _) => self,
            (Some(until), Some(at)) if at < until => self,
            _ => other,
        }
    }
}

impl RateBudgets {
    /// Creates the configured limits, with no charges.
    pub fn new(config: &RateConfig, now: Instant) -> Self {
        let mut budgets = Self { config: config.clone(), ..Self::default() };
        let limits = [config.rpm, config.tpm, config.itpm, config.otpm, config.rpd, config.tpd];
        for (kind, limit) in BudgetKind::ALL.into_iter().zip(limits) {
            if let Some(limit) = limit {
                let mut quota = Quota::new(kind, limit, kind.window(), config.burst, now);
                quota.configured = Some(limit);
                budgets.quotas.push(quota);
            }
        }
        budgets.update_limits_flag();
        budgets
    }

    /// Creates the limits of a tool: `rps` calls per second and `rpm` calls per minute. `None` is
    /// no limit, and so is an `rps` that is not a finite number above 0.
    pub fn for_tool(rps: Option<f64>, rpm: Option<u64>, now: Instant) -> Self {
        let config = RateConfig { rpm, headers: HeaderPolicy::Ignore, ..RateConfig::default() };
        let mut budgets = Self { is_of_tool: true, ..Self::new(&config, now) };
        if let Some(rate) = rps.filter(|rate| rate.is_finite() && *rate > 0.0) {
            // A rate of 0.5 calls per second is one call every two seconds.
            let limit = rate.clamp(1e-6, 1e9).ceil();
            let window = Duration::from_secs_f64(limit / rate.clamp(1e-6, 1e9));
            budgets.quotas.push(Quota::new(BudgetKind::Requests, limit as u64, window, window, now));
        }
        budgets.update_limits_flag();
        budgets
    }

    /// Returns a flag that is `true` while any limit exists. The flag is readable without a lock on
    /// this value, and is updated by [`RateBudgets::on_response`].
    pub fn limits_flag(&self) -> Arc<AtomicBool> {
        self.limits_flag.clone()
    }

    /// Forgets the limits that rate headers announced. Configured limits are in force again.
    pub(crate) fn forget_announced(&mut self, now: Instant) {
        self.forget_announced_if(now, |_| true);
        self.update_limits_flag();
    }

    /// Forgets the limits that rate headers announced, if `is_over` is `true` for the time of their
    /// last announcement.
    fn forget_announced_if(&mut self, now: Instant, is_over: impl Fn(Instant) -> bool) {
        self.quotas
            .retain_mut(|quota| !quota.announced_at.is_some_and(&is_over) || quota.restore_configured(now));
    }

    /// Updates the flag of [`RateBudgets::limits_flag`].
    fn update_limits_flag(&self) {
        self.limits_flag.store(!self.quotas.is_empty(), Ordering::Release);
    }

    /// Returns the tokens that a call is charged on admission, under the counting rule of its
    /// provider.
    pub fn need(&self, demand: &Demand) -> Need {
        counting::need(self.rule(demand), demand)
    }

    /// Returns the largest call that all limits admit now.
    pub fn available(&mut self, now: Instant) -> AvailableBudget {
        let mut available = AvailableBudget::UNBOUNDED;
        let totals = self.totals;
        let (mut part, quotas) = self.shared_part(now);
        for quota in quotas {
            let fits = saturate(quota.available(now, &totals).min(part.next_available(now, quota)));
            match quota.kind.field_mut(&mut available.max_need) {
                Some(most) => *most = fits.min(*most),
                None => available.has_requests &= fits > 0,
            }
        }
        available
    }

    /// Returns the first configured limit that the call exceeds even if nothing else is charged,
    /// and the largest call that this limit admits, in tokens. `None` if the call exceeds no
    /// configured limit. Limits from headers are not checked.
    ///
    /// The estimated output is not included. If an estimate that is too high rejected calls, no
    /// call would ever be sent to correct the estimate.
    pub(crate) fn oversize(&self, demand: &Demand) -> Option<(BudgetKind, u64)> {
        let input = demand.min_input();
        let known = self.config.counting != Counting::Auto || self.learned.is_some();
        let most = demand.max_output.filter(|_| known).unwrap_or(0);
        let counted_input = if counting::excludes_cached(demand) { 0 } else { input };
        let tokens = match self.rule(demand) {
            Counting::Sum => input.saturating_add(most),
            Counting::Larger => input.max(most),
            _ => counted_input,
        };
        let least = |kind: BudgetKind| kind.select([0, tokens, counted_input, 0]);
        // A limit from headers may belong to another model or window. The provider itself rejects
        // calls that are too large for it.
        let over = |quota: &&Quota| quota.announced_at.is_none() && least(quota.kind) > quota.max_call();
        self.quotas.iter().find(over).map(|quota| (quota.kind, quota.max_call()))
    }

    /// Returns `true` if the need is more than a limit permits for one call even if nothing else is
    /// charged. The need is an estimate: the provider may still admit the call.
    pub(crate) fn is_exceeded_by(&self, need: &Need) -> bool {
        self.quotas.iter().any(|quota| u64::from(quota.kind.cost(need)) > quota.max_call())
    }

    /// Returns what delays a call with this need for longest. `None` if the call fits now.
    pub fn lacking(&mut self, now: Instant, need: &Need) -> Option<Lack> {
        let shared = self.shared_lack(now, need);
        let limits = self.quotas.iter_mut();
        let limits = limits.map(|quota| Lack::Limit(quota.kind, quota.ready_at(now, &self.totals, need)));
        limits.chain(shared).reduce(Lack::longer).filter(|lack| lack.until().is_none_or(|at| at > now))
    }

    /// Returns where the limit of this kind comes from. `None` if there is none.
    pub fn origin(&self, kind: BudgetKind) -> Option<LimitOrigin> {
        let quota = self.quotas.iter().find(|quota| quota.kind == kind)?;
        Some(match quota {
            _ if self.is_of_tool => LimitOrigin::Tool,
            Quota { announced_at: Some(_), is_below_announced: false, .. } => LimitOrigin::Headers,
            _ => LimitOrigin::Configured,
        })
    }

    /// Returns `true` if this process has used up a limit, so that a call with this need does not
    /// fit now.
    pub(crate) fn is_spent(&mut self, now: Instant, need: &Need) -> bool {
        self.quotas.iter_mut().any(|quota| quota.ready_at(now, &self.totals, need) > now)
    }

    /// Returns the time that all limits need to admit `calls` calls with this need, at their rates
    /// and without a burst. Zero if nothing limits the calls. Used to predict waiting times.
    pub fn time_for(&self, calls: usize, need: &Need) -> Duration {
        let cost = |quota: &Quota| u64::from(quota.kind.cost(need)).saturating_mul(calls as u64);
        self.quotas.iter().map(|quota| quota.time_for(cost(quota))).max().unwrap_or_default()
    }

    /// Charges an admitted call its estimated tokens, and returns the charge. If the call does not
    /// fit, the missing tokens become debt.
    pub fn charge(&mut self, now: Instant, demand: &Demand) -> Charge {
        self.dialect = demand.dialect.or(self.dialect);
        let rule = self.rule(demand);
        let need = counting::need(rule, demand);
        self.totals = self.totals.plus(&ChargeTotals::from_demand(demand));
        self.charge_shared(now, &need);
        for quota in &mut self.quotas {
            quota.charge(now, now, None, Some(&need));
        }
        Charge { need, charged_at: now, rule, demand: *demand, totals: self.totals, settled: false }
    }

    /// Refunds the charge of a call that was never sent. Does nothing if the charge was settled.
    pub fn refund(&mut self, now: Instant, charge: &Charge) {
        if charge.settled {
            return;
        }
        let own = ChargeTotals::from_demand(&charge.demand);
        self.totals = self.totals.minus(&own);
        self.correct_shared(charge, None);
        for quota in &mut self.quotas {
            quota.charge(now, charge.charged_at, Some(&charge.need), None);
            quota.provider_window.on_refund(charge.charged_at, &own.by_rule(quota.kind));
        }
    }

    /// Replaces the estimate by the tokens that the provider counted. The difference is refunded or
    /// becomes debt.
    ///
    /// Only the first call for a charge has an effect. A `usage` without any tokens is ignored.
    pub fn settle(&mut self, now: Instant, charge: &mut Charge, usage: &Usage) {
        let Some(counted) = counting::actual_demand(&charge.demand, usage) else { return };
        if std::mem::replace(&mut charge.settled, true) {
            return;
        }
        let need = counting::need(charge.rule, &counted);
        self.totals = self
            .totals
            .plus(&ChargeTotals::from_demand(&counted))
            .minus(&ChargeTotals::from_demand(&charge.demand));
        self.correct_shared(charge, Some(&need));
        for quota in &mut self.quotas {
            quota.charge(now, charge.charged_at, Some(&charge.need), Some(&need));
        }
        charge.need = need;
    }

    /// Updates the limits from the response to an attempt that was sent at `sent_at`.
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
            let RateHeaders { requests, tokens, input_tokens, output_tokens, .. } = headers;
            let per_day = [&headers.requests_per_day, &headers.tokens_per_day];
            let reports = [requests, tokens, input_tokens, output_tokens].into_iter().chain(per_day);
            for (kind, report) in BudgetKind::ALL.into_iter().zip(reports) {
                let explains = self.on_window(now, charge, sent_at, kind, report);
                explained |= explains;
                is_other_kind |= explains && kind != BudgetKind::Tokens;
            }
            self.forget_announced_if(now, |at| now.saturating_duration_since(at) > ANNOUNCEMENT_TTL);
            self.learn_rule();
            self.update_limits_flag();
            self.update_shared(now);
        }
        // A rejection for lack of requests says nothing about how tokens are counted.
        let distrust = limited && !is_other_kind && self.learned.take().is_some();
        for quota in &mut self.quotas {
            if distrust {
                quota.provider_window.require_more_evidence(now);
            }
            if limited {
                quota.on_rate_limited(now, charge.charged_at, explained || distrust);
            } else {
                quota.on_success(now);
            }
        }
    }

    /// Returns the state of each limit.
    pub fn view(&mut self, now: Instant) -> Vec<BudgetView> {
        let counting = self.rule(&Demand { dialect: self.dialect, ..Demand::default() });
        let shared = self.shared.as_deref();
        let view = |quota: &mut Quota| {
            let level = quota.level(now, &self.totals);
            BudgetView {
                kind: quota.kind,
                limit: quota.limit,
                window: quota.window,
                level: level as u64,
                debt: (-level).ceil() as u64,
                source: if quota.announced_at.is_some() { "headers" } else { "configured" },
                burst: quota.burst,
                counting,
                processes: shared.and_then(|shared| shared.processes(quota)),
            }
        };
        self.quotas.iter_mut().map(view).collect()
    }

    /// Returns the counting rule for a call: the configured one, otherwise the one learned from
    /// headers, otherwise that of the call's dialect, otherwise [`Counting::Sum`].
    fn rule(&self, demand: &Demand) -> Counting {
        if self.config.counting != Counting::Auto {
            return self.config.counting;
        }
        let shown = self.learned.and_then(|rule| RULES.get(rule).copied());
        shown.or(demand.dialect.map(counting::rule_of_dialect)).unwrap_or(Counting::Sum)
    }

    /// Applies the limit and the `remaining` value that the headers of one kind announced
    /// (`report`). Returns `true` if they explain a 429, because less was left than the call needs.
    fn on_window(
        &mut self,
        now: Instant,
        charge: &Charge,
        sent_at: Instant,
        kind: BudgetKind,
        report: &RateWindow,
    ) -> bool {
        if report.limit == Some(0)
            || report.remaining.zip(report.limit).is_some_and(|(left, limit)| left > limit)
        {
            return false;
        }
        let (kind, window) = self.resolve_window(now, kind, report);
        if let Some(limit) = report.limit
            && !self.quotas.iter().any(|quota| quota.kind == kind)
        {
            // Calls already in flight were charged by the provider, but not here.
            let mut quota = Quota::new(kind, limit, window, self.config.burst, now);
            quota.announced_at = Some(now);
            // In the order of kinds, which is the same in all processes.
            let at = self.quotas.partition_point(|quota| quota.kind < kind);
            self.quotas.insert(at, quota);
        }
        let Some(quota) = self.quotas.iter_mut().find(|quota| quota.kind == kind) else { return false };
        if let Some(limit) = report.limit {
            let scale = window.as_secs_f64() / kind.window().as_secs_f64();
            // The configured limit, scaled to the announced window.
            let most = quota.configured.filter(|_| self.config.headers == HeaderPolicy::Lower);
            let announced = limit;
            let limit = limit.min(most.map_or(u64::MAX, |most| (most as f64 * scale) as u64)).max(1);
            // A reset later than the end of the window belongs to another window, so it must not
            // raise the limit.
            let fits = report.reset.is_none_or(|reset| reset <= window + window / 10);
            if fits || quota.is_lower_rate(limit, window) {
                quota.on_limit(now, limit, window);
                quota.is_below_announced = limit < announced;
            }
        }
        if report.limit.or(report.remaining).is_some() {
            quota.announced_at = quota.announced_at.map(|_| now);
        }
        let Some(remaining) = report.remaining else { return false };
        let charged_by_all = self.charged_by_all(now, kind);
        let Some(quota) = self.quotas.iter_mut().find(|quota| quota.kind == kind) else { return false };
        if self.learned.is_none() {
            quota.provider_window.rule = RULES.iter().position(|rule| *rule == charge.rule).unwrap_or(0);
        }
        quota.set_token_bucket(match kind {
            BudgetKind::Requests => self.requests_window.is_token_bucket(),
            BudgetKind::Tokens => self.tokens_window.is_token_bucket(),
            _ => false,
        });
        let [sent, received] = [&charge.totals, &self.totals].map(|totals| totals.by_rule(kind));
        quota.on_report(remaining, report, (sent_at, sent), (now, received), charged_by_all);
        remaining < u64::from(kind.cost(&charge.need))
    }

    /// Returns the kind and the window of a limit that a header announced as being of `kind`. A
    /// header for requests or tokens may announce a limit per day.
    fn resolve_window(
        &mut self,
        now: Instant,
        kind: BudgetKind,
        report: &RateWindow,
    ) -> (BudgetKind, Duration) {
        if let Some(period) = report.period {
            return (kind, period);
        }
        let known = self.quotas.iter().find(|quota| quota.kind == kind).map(|quota| quota.window);
        let (hint, daily) = match kind {
            BudgetKind::Requests => (&mut self.requests_window, BudgetKind::RequestsPerDay),
            BudgetKind::Tokens => (&mut self.tokens_window, BudgetKind::TokensPerDay),
            // A limit known to be per second stays so if a response omits the header that says so.
            _ => return (kind, known.unwrap_or(kind.window())),
        };
        let mut inferred = hint.observe(report);
        // No limit of requests per minute takes more than an hour to reset.
        if kind == BudgetKind::Requests && report.reset.is_some_and(|reset| reset > HOUR) {
            inferred = Some(DAY);
        }
        if let Some(window) = inferred
            && (window == DAY) != hint.is_daily
        {
            hint.is_daily = window == DAY;
            let wrong = if hint.is_daily { kind } else { daily };
            self.quotas.retain_mut(|quota| quota.kind != wrong || quota.restore_configured(now));
        }
        if hint.is_daily { (daily, DAY) } else { (kind, inferred.or(known).unwrap_or(MINUTE)) }
    }

    /// Adopts the counting rule that the token headers show. Does nothing if a rule is configured
    /// or none predicts clearly better.
    fn learn_rule(&mut self) {
        if self.config.counting == Counting::Auto
            && let Some(quota) = self.quotas.iter_mut().find(|quota| quota.kind == BudgetKind::Tokens)
            && let Some(rule) = quota.provider_window.learned_rule()
        {
            quota.provider_window.rule = rule;
            self.learned = Some(rule);
        }
    }
}
