//! One rate budget: keeps the charges of a target within a limit per window.
//!
//! # Algorithm
//!
//! A call fits if it fits all three bounds:
//!
//! 1. The *pacer* smooths charges to slightly less than the limit's rate, with a burst of a few
//!    seconds, because some providers enforce slices of a minute. It is a [`RequestRate`] for
//!    requests and a [`TokenBucket`] for tokens.
//! 2. The *window usage* ([`SlidingWindow`]) limits the charges within any window, for providers
//!    that count by the clock or over the last minute.
//! 3. The *provider window* ([`ProviderWindow`]) limits charges to what the provider has left
//!    according to its headers, including the use of other clients.
//!
//! The first two bounds need no headers. For windows below an hour, each bound is loose enough not
//! to bind if the provider enforces another one. Windows of an hour or more use only the provider
//! window while its state is known: a day that begins at midnight is full again long before the
//! last 24 hours of charges expire. When the announced reset of a long window has passed, the first
//! two bounds start again.
//!
//! If the provider is known to be a token bucket
//! ([`WindowHint::is_token_bucket`](super::window_hint::WindowHint::is_token_bucket)), the window
//! usage is ignored, because tokens that accrued during a pause may be used. The pacer then doubles
//! its rate (the *boost*) while the provider has more left than is uncertain.
//!
//! # Reaction to 429s
//!
//! - A 429 halves the burst, down to [`MIN_BURST`]. A short burst costs only smoothness, and
//!   headers do not show slices of a minute.
//! - If the burst is at its minimum and the headers do not explain the 429, the limit is wrong or
//!   shared: the usable *share* of the limit is cut.
//! - A 429 that the headers explain disables the boost for [`BOOST_PENALTY`]. One that they do not
//!   explain disables all treatment as a token bucket for [`BURST_RECOVERY_DELAY`].
//!
//! Both recover while nothing is refused: the share within minutes to an hour, the burst more
//! slowly, because a short burst costs little and one that is too long costs a 429. The share is
//! remembered for each recently announced limit ([`LimitHistory`]).

use std::time::{Duration, Instant};

use super::kind::BudgetKind;
use super::limit_history::{self, LimitHistory};
use super::provider_window::{ProviderWindow, Report};
use super::request_rate::RequestRate;
use super::sliding_window::SlidingWindow;
use super::token_bucket::TokenBucket;
use tidegate_protocol::rate::Window;

/// Fraction of the limit's rate that the pacer uses. The rest covers clock drift and calls that
/// bunch in transit.
const PACE_FRACTION: f64 = 0.985;
/// Fraction of the limit that is charged per window, because token costs are estimates.
const WINDOW_FRACTION: f64 = 0.99;
/// Shortest burst.
const MIN_BURST: Duration = Duration::from_millis(250);
/// Windows of at least this length are not smoothed: a daily quota may be used as soon as there is
/// work.
const LONG_WINDOW: Duration = Duration::from_secs(3_600);
/// Factor on the usable share after an unexplained 429 if no headers were seen, or if they were.
const CUT_FACTOR: f64 = 0.9;
const CUT_FACTOR_WITH_HEADERS: f64 = 0.98;
const RECOVERY_INTERVAL: Duration = Duration::from_secs(60);
/// Factors by which the share recovers per interval: slow until [`SLOW_RECOVERY_PERIOD`] after the
/// cut, then fast.
///
/// If the cut was right, each full recovery costs a 429 for all calls in flight, so recovery starts
/// slowly. If nothing is refused beyond that period, the cause of the cut is over: a share of 1 %
/// recovers within an hour.
const SLOW_RECOVERY_FACTOR: f64 = 1.01;
const FAST_RECOVERY_FACTOR: f64 = 1.1;
const SLOW_RECOVERY_PERIOD: Duration = Duration::from_secs(11 * 60);
/// Time without a 429 before the burst doubles.
///
/// The delay doubles up to [`MAX_BURST_RECOVERY_DELAY`] each time a longer burst is refused, and
/// returns to this value after the burst has held for four times the delay.
const BURST_RECOVERY_DELAY: Duration = Duration::from_secs(15 * 60);
const MAX_BURST_RECOVERY_DELAY: Duration = Duration::from_secs(86_400);
/// Factor on the pacer's rate while a token-bucket provider has a surplus.
const BOOST_FACTOR: f64 = 2.0;
/// Fraction of the limit that must be available beyond the uncertainty before a boost starts.
const MIN_BOOST_SURPLUS: f64 = 0.02;
/// How long the boost is disabled after a 429 that the headers explain.
const BOOST_PENALTY: Duration = Duration::from_secs(60);

/// The limiter that smooths charges.
#[derive(Debug)]
enum Pacer {
    Requests(RequestRate),
    Tokens(TokenBucket),
}

/// A limit per window, with the three bounds that enforce it. See the module documentation.
#[derive(Debug)]
pub(super) struct Quota {
    pub(super) kind: BudgetKind,
    pub(super) limit: u64,
    pub(super) window: Duration,
    /// The configured limit, if any.
    pub(super) configured: Option<u64>,
    /// Whether the limit in force was announced by headers.
    pub(super) from_headers: bool,
    /// A higher limit and its window, announced by one response so far.
    pending_increase: Option<(u64, Duration)>,
    burst: Duration,
    /// The burst before 429s shortened it.
    max_burst: Duration,
    /// Delay before the burst is lengthened, and whether it was lengthened since the delay last
    /// changed.
    burst_recovery_delay: Duration,
    is_burst_extended: bool,
    /// Time of the last cut or of the last change of the burst.
    last_adjusted_at: Instant,
    /// Usable share of the limit: below 1.0 after 429s have shown that the whole limit is too much.
    share: f64,
    /// Limits that were in force before.
    history: LimitHistory,
    last_cut_at: Option<Instant>,
    last_recovery_at: Instant,
    pacer: Pacer,
    window_usage: SlidingWindow,
    pub(super) provider_window: ProviderWindow,
    /// Whether a response has reported the remaining budget.
    has_remaining: bool,
    /// Whether the provider is known to be a token bucket.
    is_token_bucket: bool,
    is_boosted: bool,
    /// Times until which the boost, and the treatment as a token bucket, are disabled after a 429.
    no_boost_until: Option<Instant>,
    no_token_bucket_until: Option<Instant>,
    /// When a long window starts again, as last announced by the provider.
    resets_at: Option<Instant>,
    /// Refunds and settlements of charges before this time are ignored.
    started_at: Instant,
}

impl Quota {
    /// Creates a budget of `limit` per `window` that is full and allows `burst` at once.
    pub(super) fn new(kind: BudgetKind, limit: u64, window: Duration, burst: Duration, now: Instant) -> Self {
        let limit = limit.max(1);
        let burst = if window >= LONG_WINDOW { window } else { burst.clamp(MIN_BURST.min(window), window) };
        let rate = PACE_FRACTION * limit as f64 / window.as_secs_f64();
        let pacer = Self::full_pacer(kind, rate, burst, now);
        Self {
            kind,
            limit,
            window,
            configured: None,
            from_headers: false,
            pending_increase: None,
            burst,
            max_burst: burst,
            burst_recovery_delay: BURST_RECOVERY_DELAY,
            is_burst_extended: false,
            last_adjusted_at: now,
            share: 1.0,
            history: LimitHistory::default(),
            last_cut_at: None,
            last_recovery_at: now,
            pacer,
            window_usage: SlidingWindow::new(window, now),
            provider_window: ProviderWindow::new(now),
            has_remaining: false,
            is_token_bucket: false,
            is_boosted: false,
            no_boost_until: None,
            no_token_bucket_until: None,
            resets_at: None,
            started_at: now,
        }
    }

    /// Returns the largest cost that fits now, given what was `charged` so far under each counting
    /// rule.
    pub(super) fn available(&mut self, now: Instant, charged: &[i64; 4]) -> u64 {
        self.reset_if_due(now);
        self.update_boost(now, charged);
        let limit = self.limit as f64;
        let provider_window = self.provider_window.available(now, charged, limit);
        let known = match provider_window {
            Some(available) if available < self.provider_window.max_available(now, limit) => available as u64,
            _ => u64::MAX,
        };
        if self.window >= LONG_WINDOW && provider_window.is_some() {
            return known;
        }
        let pacer = match &mut self.pacer {
            Pacer::Requests(requests) => u64::from(requests.is_available(now)),
            Pacer::Tokens(bucket) => bucket.available(now),
        };
        let sum = self.window_usage.sum(now);
        let window_usage = if sum == 0 || self.trusts_token_bucket(now) {
            u64::MAX
        } else {
            (self.window_limit() - sum).max(0) as u64
        };
        pacer.min(window_usage).min(known)
    }

    /// Returns the earliest time, not before `now`, at which `cost` fits if nothing else is
    /// charged.
    pub(super) fn ready_at(&mut self, now: Instant, charged: &[i64; 4], cost: u32) -> Instant {
        if cost == 0 {
            return now;
        }
        self.reset_if_due(now);
        self.update_boost(now, charged);
        let limit = self.limit as f64;
        let provider_window = self.provider_window.ready_at(now, charged, limit, f64::from(cost));
        if self.window >= LONG_WINDOW && self.provider_window.available(now, charged, limit).is_some() {
            return provider_window;
        }
        let pacer = match &mut self.pacer {
            Pacer::Requests(requests) => requests.ready_at(now),
            Pacer::Tokens(bucket) => bucket.ready_at(now, u64::from(cost)),
        };
        let left = self.window_limit() - i64::from(cost);
        let window_usage =
            if self.trusts_token_bucket(now) { now } else { self.window_usage.ready_at(now, left.max(0)) };
        pacer.max(window_usage).max(provider_window)
    }

    /// Sets whether the responses have shown that the provider is a token bucket.
    pub(super) fn set_token_bucket(&mut self, is: bool) {
        self.is_token_bucket = is && self.window < LONG_WINDOW;
    }

    /// Returns `true` if the provider is a token bucket and no recent 429 contradicts it.
    fn trusts_token_bucket(&self, now: Instant) -> bool {
        self.is_token_bucket && self.no_token_bucket_until.is_none_or(|until| now >= until)
    }

    /// Starts the boost if the provider has a surplus, and ends it otherwise.
    fn update_boost(&mut self, now: Instant, charged: &[i64; 4]) {
        let limit = self.limit as f64;
        let exact = matches!(self.pacer, Pacer::Requests(_));
        let is_allowed = self.trusts_token_bucket(now)
            && self.share == 1.0
            && self.no_boost_until.is_none_or(|until| now >= until);
        let uncertainty =
            if is_allowed { self.provider_window.uncertainty(now, charged, limit, exact) } else { None };
        let is_boosted = uncertainty.is_some_and(|uncertainty| {
            let saved = self.provider_window.available(now, charged, limit).unwrap_or(limit);
            saved > uncertainty + if self.is_boosted { 0.0 } else { MIN_BOOST_SURPLUS * limit }
        });
        if is_boosted != self.is_boosted {
            self.is_boosted = is_boosted;
            self.update_rate(now);
        }
    }

    /// Returns how long the budget takes to refill by `cost`. Long windows are not paced, so the
    /// result is zero.
    pub(super) fn time_for(&self, cost: u64) -> Duration {
        if self.window >= LONG_WINDOW {
            Duration::ZERO
        } else {
            super::token_bucket::seconds(cost as f64 / self.rate())
        }
    }

    /// Charges `cost` for an admitted call.
    pub(super) fn charge(&mut self, now: Instant, cost: u32) {
        let cost = self.clamp_cost(cost);
        match &mut self.pacer {
            Pacer::Requests(requests) => requests.take(now),
            Pacer::Tokens(bucket) => bucket.take(now, cost as u64),
        }
        self.window_usage.add(now, cost);
    }

    /// Refunds a charge of `cost` made at `then` for a call that was never sent.
    pub(super) fn refund(&mut self, now: Instant, then: Instant, cost: u32) {
        if then < self.started_at {
            return;
        }
        let cost = self.clamp_cost(cost);
        match &mut self.pacer {
            Pacer::Requests(requests) => requests.refund(now),
            Pacer::Tokens(bucket) => bucket.refund(now, cost as u64),
        }
        self.window_usage.correct(now, then, -cost);
    }

    /// Replaces the charge made at `then` by the actual `cost`.
    pub(super) fn settle(&mut self, now: Instant, then: Instant, charged: u32, cost: u32) {
        if then < self.started_at || charged == cost {
            return;
        }
        let (charged, cost) = (self.clamp_cost(charged), self.clamp_cost(cost));
        if let Pacer::Tokens(bucket) = &mut self.pacer {
            bucket.settle(now, charged as u64, cost as u64);
        }
        self.window_usage.correct(now, then, cost - charged);
    }

    /// Applies a limit that the provider announced.
    ///
    /// A lower rate applies at once. For a higher rate, two responses in a row must announce one,
    /// and the lower of the two applies: some limits rise slightly with each response and are never
    /// announced twice.
    pub(super) fn on_limit(&mut self, now: Instant, limit: u64, window: Duration) {
        let announced_rate = limit as f64 / window.as_secs_f64();
        if self.is_lower_rate(limit, window) {
            return self.apply_limit(now, limit, window);
        }
        let current_rate = self.limit as f64 / self.window.as_secs_f64();
        match self.pending_increase {
            _ if limit == self.limit && window == self.window => self.pending_increase = None,
            Some((last, over)) if over == window => self.apply_limit(now, limit.min(last), window),
            _ if announced_rate > current_rate => self.pending_increase = Some((limit, window)),
            // The same rate over another window.
            _ => self.apply_limit(now, limit, window),
        }
    }

    /// Returns `true` if the given limit is a lower rate than the one in force.
    pub(super) fn is_lower_rate(&self, limit: u64, window: Duration) -> bool {
        limit as f64 * self.window.as_secs_f64() < self.limit as f64 * window.as_secs_f64()
    }

    /// Puts a limit and its window in force.
    fn apply_limit(&mut self, now: Instant, limit: u64, window: Duration) {
        if window == self.window {
            self.set_limit(now, limit)
        } else {
            self.change_window(now, limit, window)
        }
    }

    /// Restores the configured limit, after the announced one turned out to be of another window.
    pub(super) fn restore_configured(&mut self, now: Instant) {
        if let Some(limit) = self.configured {
            self.apply_limit(now, limit, self.kind.window());
            self.from_headers = false;
        }
    }

    /// Updates the provider window from a response. Figures above the limit are ignored.
    pub(super) fn on_report(&mut self, report: &Report, window: &Window) {
        let limit = window.limit.unwrap_or(self.limit).max(self.limit) as f64;
        if report.remaining > limit {
            return;
        }
        self.has_remaining = true;
        let own_usage = self.window_usage.sum(report.received.0) as f64;
        self.provider_window.on_report(
            report,
            window.reset,
            self.limit as f64 / self.window.as_secs_f64(),
            limit,
            self.window,
            own_usage,
        );
        if self.window >= LONG_WINDOW && window.reset.is_some_and(|reset| !reset.is_zero()) {
            self.resets_at = Some(self.provider_window.full_at());
        }
    }

    /// Starts the window again if the provider's announced reset has passed.
    fn reset_if_due(&mut self, now: Instant) {
        if self.resets_at.take_if(|at| now >= *at).is_some() {
            self.window_usage = SlidingWindow::new(self.window, now);
            self.pacer = Self::full_pacer(self.kind, self.rate(), self.burst, now);
            self.started_at = now;
        }
    }

    /// Creates a pacer with its whole burst available.
    fn full_pacer(kind: BudgetKind, rate: f64, burst: Duration, now: Instant) -> Pacer {
        match kind {
            BudgetKind::Requests | BudgetKind::RequestsPerDay => {
                Pacer::Requests(RequestRate::new(rate, burst, now))
            }
            _ => Pacer::Tokens(TokenBucket::with_rate(rate, burst, now)),
        }
    }

    /// Handles a 429 for a call that was charged at `then`.
    ///
    /// `explained` is `true` if the headers say that too little was left. Calls that were in flight
    /// together cause at most one cut.
    pub(super) fn on_rate_limited(&mut self, now: Instant, then: Instant, explained: bool) {
        self.provider_window.on_refused(now);
        if explained {
            self.no_boost_until = now.checked_add(BOOST_PENALTY);
        } else {
            self.no_token_bucket_until = now.checked_add(BURST_RECOVERY_DELAY);
        }
        if self.window >= LONG_WINDOW || self.last_cut_at.is_some_and(|at| then <= at) {
            return;
        }
        let used = self.window_usage.sum(now) as f64 / self.window_limit().max(1) as f64;
        let is_idle = match &self.pacer {
            Pacer::Requests(requests) => {
                requests.level(now) >= 0.9 * f64::from(requests.burst()) && requests.burst() > 1
            }
            Pacer::Tokens(bucket) => bucket.is_full(now),
        };
        if self.burst > MIN_BURST && !is_idle {
            self.burst = (self.burst / 2).max(MIN_BURST);
            if std::mem::take(&mut self.is_burst_extended) {
                self.burst_recovery_delay = (2 * self.burst_recovery_delay).min(MAX_BURST_RECOVERY_DELAY);
            }
        } else if !explained && used > 0.3 {
            self.share = (self.share * if self.has_remaining { CUT_FACTOR_WITH_HEADERS } else { CUT_FACTOR })
                .max(0.01);
        } else {
            return;
        }
        self.last_cut_at = Some(now);
        self.last_adjusted_at = now;
        self.last_recovery_at = now;
        self.update_rate(now);
    }

    /// Handles a response that was not rate limited: the burst and the share recover.
    pub(super) fn on_success(&mut self, now: Instant) {
        self.provider_window.decay_evidence(now);
        let before = (self.share, self.burst);
        let quiet = now.saturating_duration_since(self.last_adjusted_at);
        if self.burst < self.max_burst && quiet >= self.burst_recovery_delay {
            self.burst = (2 * self.burst).min(self.max_burst);
            self.is_burst_extended = true;
            self.last_adjusted_at = now;
        } else if self.is_burst_extended && quiet >= 4 * self.burst_recovery_delay {
            self.burst_recovery_delay = BURST_RECOVERY_DELAY;
            self.is_burst_extended = false;
        }
        // Idle minutes count as well, because a small share produces few responses.
        while self.share < 1.0 && now.saturating_duration_since(self.last_recovery_at) >= RECOVERY_INTERVAL {
            self.last_recovery_at += RECOVERY_INTERVAL;
            let is_slow_period_over = self
                .last_cut_at
                .is_none_or(|at| self.last_recovery_at.saturating_duration_since(at) > SLOW_RECOVERY_PERIOD);
            self.share = (self.share
                * if is_slow_period_over { FAST_RECOVERY_FACTOR } else { SLOW_RECOVERY_FACTOR })
            .min(1.0);
        }
        if (self.share, self.burst) != before {
            self.update_rate(now);
        }
    }

    /// Returns the cost that may be charged now. A negative level is debt.
    pub(super) fn level(&mut self, now: Instant, charged: &[i64; 4]) -> f64 {
        self.reset_if_due(now);
        let provider_window = self
            .provider_window
            .available(now, charged, self.limit as f64)
            .map(|available| available.max(0.0));
        if let Some(room) = provider_window.filter(|_| self.window >= LONG_WINDOW) {
            return room;
        }
        let pacer = match &self.pacer {
            Pacer::Requests(requests) => requests.level(now),
            Pacer::Tokens(bucket) => bucket.level(now),
        };
        let window_usage = if self.trusts_token_bucket(now) {
            f64::MAX
        } else {
            (self.window_limit() - self.window_usage.sum(now)).max(0) as f64
        };
        pacer.min(window_usage).min(provider_window.unwrap_or(f64::MAX))
    }

    /// Returns the burst in force, as time at the limit's rate.
    pub(super) fn burst(&self) -> Duration {
        self.burst
    }

    /// Returns the pacer's rate, per second.
    fn rate(&self) -> f64 {
        let boost = if self.is_boosted { BOOST_FACTOR } else { 1.0 };
        PACE_FRACTION * self.share * boost * self.limit as f64 / self.window.as_secs_f64()
    }

    /// Returns the maximum charge per window, at least 1.
    fn window_limit(&self) -> i64 {
        let exact = matches!(self.pacer, Pacer::Requests(_)) && self.share == 1.0;
        let most = self.limit as f64 * if exact { 1.0 } else { WINDOW_FRACTION * self.share };
        (most as i64).clamp(1, i64::MAX / 4)
    }

    /// Returns the largest possible cost of one call: the limit, or a minute's worth of it if the
    /// window is shorter. No provider admits a larger call.
    pub(super) fn max_call(&self) -> u64 {
        let windows = 60.0 / self.window.as_secs_f64().max(1e-3);
        if windows > 1.0 { (self.limit as f64 * windows) as u64 } else { self.limit }
    }

    /// Limits the cost of one call, so that an absurd count cannot block the target for years.
    fn clamp_cost(&self, cost: u32) -> i64 {
        i64::from(cost).min(i64::try_from(self.max_call()).unwrap_or(i64::MAX))
    }

    /// Changes the limit without changing the window.
    fn set_limit(&mut self, now: Instant, limit: u64) {
        self.pending_increase = None;
        if limit != self.limit {
            if !limit_history::is_same(limit, self.limit) {
                self.share = self.history.switch(now, self.limit, self.share, limit);
                self.provider_window.clear(now);
            }
            self.limit = limit.max(1);
            self.update_rate(now);
        }
        self.from_headers = true;
    }

    /// Applies the current rate and burst to the pacer.
    fn update_rate(&mut self, now: Instant) {
        let (rate, burst, max_call) = (self.rate(), self.burst, self.max_call() as f64);
        match &mut self.pacer {
            Pacer::Requests(requests) => *requests = requests.with_rate(rate, burst, now),
            Pacer::Tokens(bucket) => bucket.update_rate(now, rate, burst, max_call),
        }
    }

    /// Puts a limit over another window in force. Usage of the old window is dropped.
    fn change_window(&mut self, now: Instant, limit: u64, window: Duration) {
        let new = Self::new(self.kind, limit, window, self.max_burst, now);
        *self = Self {
            configured: self.configured,
            from_headers: true,
            last_cut_at: self.last_cut_at,
            no_boost_until: self.no_boost_until,
            no_token_bucket_until: self.no_token_bucket_until,
            last_adjusted_at: self.last_adjusted_at,
            burst: if window < LONG_WINDOW { new.burst.min(self.burst) } else { new.burst },
            ..new
        };
        self.update_rate(now);
    }
}
