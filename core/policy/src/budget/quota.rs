//! One limit of requests or tokens per window, and what may be charged within it.
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
//! to delay calls if the provider enforces only another one. Windows of an hour or more use only
//! the provider window while its state is known: a day that begins at midnight is full again long
//! before the last 24 hours of charges expire. When the announced reset of a long window has
//! passed, the first two bounds start again.
//!
//! If the provider is known to be a token bucket
//! ([`WindowHint::is_token_bucket`](super::window_inference::WindowHint::is_token_bucket)), the
//! window usage is ignored, because tokens that accrued during a pause may be used. The pacer then
//! doubles its rate (the *boost*) while the amount that the provider has left exceeds the possible
//! error of its prediction.
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
//! The share and the burst recover while no call is rejected: the share within minutes to an hour,
//! and the burst more slowly, because a burst that is too short costs little and a burst that is
//! too long costs a 429. The share is remembered for each recently announced limit
//! ([`LimitHistory`]).

use std::time::{Duration, Instant};

use super::budget_kind::SharedSetKind;
use super::counting::{ChargeTotals, PerRule};
use super::limit_history::{self, LimitHistory};
use super::provider_window::{ChargedAt, ProviderWindow, Report};
use super::{BudgetKind, Need, request_rate::RequestRate};
use tidegate_protocol::rate::RateWindow;
use tidegate_share::rates::{RateLimit, SlidingWindow, TokenBucket, seconds};

/// Fraction of the limit's rate that the pacer uses. The rest covers clock drift and calls that
/// arrive at the provider in groups.
const PACE_FRACTION: f64 = 0.985;
/// Fraction of a token limit that may be charged per window. The rest covers errors of the
/// estimated costs.
const WINDOW_FRACTION: f64 = 0.99;
/// Minimum burst (the amount that may be charged without a pause), as time at the limit's rate.
const MIN_BURST: Duration = Duration::from_millis(250);
/// Length from which a window is long. The charges of a long window are not smoothed: a daily limit
/// may be used as soon as there is work.
const LONG_WINDOW: Duration = Duration::from_secs(3_600);
/// Factor by which the usable share is multiplied after a 429 that the headers do not explain, if
/// no response has reported `remaining`.
const CUT_FACTOR: f64 = 0.9;
/// Factor by which the usable share is multiplied after a 429 that the headers do not explain, if a
/// response has reported `remaining`. The cut is smaller than with [`CUT_FACTOR`].
const CUT_FACTOR_WITH_HEADERS: f64 = 0.98;
/// Time between two increases of a usable share that was cut.
const RECOVERY_INTERVAL: Duration = Duration::from_secs(60);
/// Factor by which a cut share grows per [`RECOVERY_INTERVAL`] during the [`SLOW_RECOVERY_PERIOD`]
/// after the cut. If the cut was right, each complete recovery costs a 429 for all calls in flight.
const SLOW_RECOVERY_FACTOR: f64 = 1.01;
/// Factor by which a cut share grows per [`RECOVERY_INTERVAL`] after the [`SLOW_RECOVERY_PERIOD`].
/// A share of 1 % recovers within an hour.
const FAST_RECOVERY_FACTOR: f64 = 1.1;
/// Time after a cut in which the share recovers slowly.
const SLOW_RECOVERY_PERIOD: Duration = Duration::from_secs(11 * 60);
/// Initial time without a 429 after which a shortened burst doubles. This time doubles whenever a
/// lengthened burst causes a 429. It returns to the initial value when a lengthened burst has
/// caused no 429 for four times as long.
const BURST_RECOVERY_DELAY: Duration = Duration::from_secs(15 * 60);
/// Maximum time without a 429 after which a shortened burst doubles.
const MAX_BURST_RECOVERY_DELAY: Duration = Duration::from_secs(86_400);
/// Factor by which the boost multiplies the pacer's rate (see the [module documentation](self)).
const BOOST_FACTOR: f64 = 2.0;
/// Fraction of the limit by which the available amount must exceed its uncertainty for a boost to
/// start.
const MIN_BOOST_SURPLUS: f64 = 0.02;
/// Time after a 429 that the headers explain in which the pacer's rate is not boosted.
const BOOST_PENALTY: Duration = Duration::from_secs(60);

/// The limiter that smooths charges: of requests or of tokens.
#[derive(Debug)]
enum Pacer {
    Requests(RequestRate),
    Tokens(TokenBucket),
}

/// A limit of requests or tokens per window, with the state of its three bounds. See the [module
/// documentation](self).
#[derive(Debug)]
pub(super) struct Quota {
    pub(super) kind: BudgetKind,
    /// The current limit, at least 1, in requests or tokens per `window`.
    pub(super) limit: u64,
    pub(super) window: Duration,
    /// The configured limit per [`BudgetKind::window`], that is, per minute or day. `None` if only
    /// headers announced the limit.
    pub(super) configured: Option<u64>,
    /// When a response last reported the limit or what is left of it, if headers announced the
    /// current limit. `None` if the limit is the configured one.
    pub(super) announced_at: Option<Instant>,
    /// Whether the limit is the configured one although the provider announced a higher one, so
    /// that what is left at the provider does not bound what may be charged.
    pub(super) is_below_announced: bool,
    /// An announced limit and window whose rate is above the current one. They apply if the next
    /// response confirms them (see [`Quota::on_limit`]). `None` if no increase is pending.
    pending_increase: Option<(u64, Duration)>,
    /// The amount that may currently be charged without a pause, as time at the limit's rate.
    pub(super) burst: Duration,
    /// The value of `burst` before 429s shortened it.
    max_burst: Duration,
    /// Time without a 429 after which the burst doubles.
    burst_recovery_delay: Duration,
    /// Whether the burst was doubled since `burst_recovery_delay` last changed.
    is_burst_extended: bool,
    /// Time of the last change of the burst or the last cut of the share. The creation time if
    /// there was none.
    last_adjusted_at: Instant,
    /// Usable share of the limit, from 0.01 to 1. Below 1 after 429s that the headers do not
    /// explain.
    share: f64,
    history: LimitHistory,
    /// Time of the last reduction of the burst or the share. `None` if there was none.
    last_cut_at: Option<Instant>,
    /// Time until which the recovery of the share is already included in `share`.
    last_recovery_at: Instant,
    pacer: Pacer,
    window_usage: SlidingWindow,
    pub(super) provider_window: ProviderWindow,
    /// Whether a response has reported `remaining`.
    has_remaining: bool,
    /// Whether responses have shown that the provider is a token bucket.
    is_token_bucket: bool,
    /// Whether the pacer's rate is multiplied by [`BOOST_FACTOR`].
    is_boosted: bool,
    /// Time before which the rate is not boosted, because of a 429.
    no_boost_until: Instant,
    /// Time before which `is_token_bucket` is ignored, because of a 429.
    no_token_bucket_until: Instant,
    /// When a long window starts again, as the provider last announced. `None` if the window is
    /// short or no reset is pending.
    resets_at: Option<Instant>,
    /// Start of the current window. Charges made before it are not corrected.
    started_at: Instant,
    /// The window that all processes know, if several share the limit.
    pub(super) shared_window: Option<Duration>,
    /// Since when the limit is shared over this window.
    pub(super) shared_since: Instant,
    /// The number by which the limit is divided, because other processes may use the other parts.
    divided_by: u32,
}

impl Quota {
    /// Creates an unused limit of `limit` per `window`. `burst` is the amount that may be charged
    /// without a pause, as time at the limit's rate. It is ignored for long windows.
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
            announced_at: None,
            is_below_announced: false,
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
            provider_window: ProviderWindow::default(),
            has_remaining: false,
            is_token_bucket: false,
            is_boosted: false,
            no_boost_until: now,
            no_token_bucket_until: now,
            resets_at: None,
            started_at: now,
            shared_window: None,
            shared_since: now,
            divided_by: 1,
        }
    }

    /// Returns the shared set that the limit belongs to if it is shared.
    pub(super) fn shared_set_kind(&self) -> SharedSetKind {
        let is_announced = self.announced_at.is_some() && self.configured.is_none();
        if is_announced { SharedSetKind::Announced } else { SharedSetKind::Configured }
    }

    /// Returns `true` if other processes share the limit, and it belongs to the set `set_kind`.
    pub(super) fn is_shared(&self, set_kind: SharedSetKind) -> bool {
        self.shared_window.is_some() && self.shared_set_kind() == set_kind
    }

    /// Shares the limit with other processes. The window of a configured limit is that of the
    /// configuration for all of them, whatever headers say.
    pub(super) fn share_with_others(&mut self, now: Instant) {
        let is_fixed = self.shared_set_kind() == SharedSetKind::Configured && self.shared_window.is_some();
        if !is_fixed && self.shared_window != Some(self.window) {
            (self.shared_window, self.shared_since) = (Some(self.window), now);
        }
    }

    /// Returns the limit for the broker, or `None` if no other process shares it.
    pub(super) fn shared_limit(&self, now: Instant) -> Option<RateLimit> {
        let shared_window = self.shared_window?;
        let windows = shared_window.as_secs_f64() / self.window.as_secs_f64();
        // A token bucket admits twice its limit in a window that begins with a full bucket.
        let windows = if self.trusts_token_bucket(now) { 2.0 * windows } else { windows };
        Some(RateLimit {
            window_ms: shared_window.as_millis() as u64,
            per_window: (self.whole_window_limit() * windows) as u64,
            per_second: self.boost() * self.whole_rate(),
            burst_ms: self.burst.as_millis() as u64,
        })
    }

    /// Returns `true` if only what the provider reports as left bounds calls in a long window. Its
    /// window may have begun after what all processes have charged.
    pub(super) fn follows_provider(&self, now: Instant, totals: &ChargeTotals) -> bool {
        let charged = totals.by_rule(self.kind);
        self.is_bounded_by(self.provider_window.available(now, &charged, self.limit as f64))
    }

    /// Returns `true` if what is left at the provider, `known`, is the only bound: in a long
    /// window, if it is known and no lower limit is configured.
    fn is_bounded_by(&self, known: Option<f64>) -> bool {
        self.is_long() && !self.is_below_announced && known.is_some()
    }

    /// Returns what was charged within the window, with the time since then.
    pub(super) fn charges(&mut self, now: Instant) -> Vec<(Duration, i64)> {
        self.window_usage.charges(now)
    }

    /// Divides the limit by a number, because other processes may use the other parts. Does nothing
    /// to a limit that is not shared.
    pub(super) fn divide(&mut self, now: Instant, divided_by: u32) {
        if self.shared_window.is_some() && self.divided_by != divided_by {
            self.divided_by = divided_by;
            self.update_rate(now);
        }
    }

    /// Returns the largest cost of a call that fits now, in requests or tokens. `u64::MAX` if any
    /// call fits.
    pub(super) fn available(&mut self, now: Instant, totals: &ChargeTotals) -> u64 {
        let charged = self.update(now, totals);
        let limit = self.limit as f64;
        let remaining = self.provider_window.available(now, &charged, limit);
        let max_available = self.provider_window.max_available(now, limit);
        let known = remaining.filter(|known| *known < max_available).map_or(u64::MAX, |known| known as u64);
        if self.is_bounded_by(remaining) {
            return known;
        }
        let pacer = match &mut self.pacer {
            Pacer::Requests(requests) => u64::from(requests.is_available(now)),
            Pacer::Tokens(bucket) => bucket.available(now),
        };
        // An unused window admits any call.
        let left = self.window_left(now).filter(|left| *left < self.window_limit());
        pacer.min(left.map_or(u64::MAX, |left| left as u64)).min(known)
    }

    /// Returns the earliest time, not before `now`, at which a call with this need fits if nothing
    /// else is charged.
    pub(super) fn ready_at(&mut self, now: Instant, totals: &ChargeTotals, need: &Need) -> Instant {
        let cost = self.kind.cost(need);
        if cost == 0 {
            return now;
        }
        let charged = self.update(now, totals);
        let limit = self.limit as f64;
        let provider_window = self.provider_window.ready_at(now, &charged, limit, f64::from(cost));
        if self.is_bounded_by(self.provider_window.available(now, &charged, limit)) {
            return provider_window;
        }
        let pacer = match &self.pacer {
            Pacer::Requests(requests) => requests.ready_at(now),
            Pacer::Tokens(bucket) => bucket.ready_at(now, u64::from(cost)),
        };
        let left = self.window_limit() - i64::from(cost);
        let window_usage =
            if self.trusts_token_bucket(now) { now } else { self.window_usage.ready_at(now, left.max(0)) };
        pacer.max(window_usage).max(provider_window)
    }

    /// Returns `true` if the window is at least [`LONG_WINDOW`].
    fn is_long(&self) -> bool {
        self.window >= LONG_WINDOW
    }

    /// Sets whether responses have shown that the provider is a token bucket. Ignored for long
    /// windows.
    pub(super) fn set_token_bucket(&mut self, is: bool) {
        self.is_token_bucket = is && !self.is_long();
    }

    /// Returns `true` if the provider is a token bucket and no recent 429 contradicts it.
    fn trusts_token_bucket(&self, now: Instant) -> bool {
        self.is_token_bucket && now >= self.no_token_bucket_until
    }

    /// Brings the state up to `now`: applies an announced reset that has passed, and starts or ends
    /// the boost. Returns the total charged so far under each counting rule.
    fn update(&mut self, now: Instant, totals: &ChargeTotals) -> PerRule {
        self.reset_if_due(now);
        let charged = totals.by_rule(self.kind);
        let limit = self.limit as f64;
        let exact = matches!(self.pacer, Pacer::Requests(_));
        let is_boosted = self.trusts_token_bucket(now)
            && self.share == 1.0
            && now >= self.no_boost_until
            && self.provider_window.max_error(now, &charged, limit, exact).is_some_and(|max_error| {
                let saved = self.provider_window.available(now, &charged, limit).unwrap_or(limit);
                saved > max_error + if self.is_boosted { 0.0 } else { MIN_BOOST_SURPLUS * limit }
            });
        if is_boosted != self.is_boosted {
            self.is_boosted = is_boosted;
            self.update_rate(now);
        }
        charged
    }

    /// Returns how long the limit takes to refill by `cost`. Zero for long windows, because their
    /// charges are not smoothed.
    pub(super) fn time_for(&self, cost: u64) -> Duration {
        if self.is_long() { Duration::ZERO } else { seconds(cost as f64 / self.rate()) }
    }

    /// Replaces the charge for `old`, made at `then`, by a charge for `new`. `None` stands for no
    /// charge: a new charge has no `old`, and a refund has no `new`.
    ///
    /// Does nothing if the window was reset after `then`.
    pub(super) fn charge(&mut self, now: Instant, then: Instant, old: Option<&Need>, new: Option<&Need>) {
        let [old, new] = [old, new].map(|need| need.map(|need| self.kind.cost(need)));
        if then < self.started_at || old == new {
            return;
        }
        let [old, new] = [old, new].map(|cost| self.capped(cost.unwrap_or(0)));
        match &mut self.pacer {
            Pacer::Requests(requests) if new > old => requests.take(now),
            Pacer::Requests(requests) => requests.refund(),
            Pacer::Tokens(bucket) => bucket.settle(now, old as u64, new as u64),
        }
        self.window_usage.charge(now, then, new - old);
    }

    /// Returns the cost of a call, at most the limit. An absurd count must not block the target for
    /// years.
    fn capped(&self, cost: u32) -> i64 {
        i64::from(cost).min(i64::try_from(self.max_call()).unwrap_or(i64::MAX))
    }

    /// Returns what a call is charged, in requests or tokens.
    pub(super) fn cost(&self, need: &Need) -> i64 {
        self.capped(self.kind.cost(need))
    }

    /// Applies a limit that the provider announced.
    ///
    /// A lower rate applies immediately. A higher rate applies if two responses in a row announce
    /// one. Then the lower of the two limits applies, because some limits rise with each response
    /// and are never announced twice.
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

    /// Returns `true` if `limit` per `window` is a lower rate than the current limit.
    pub(super) fn is_lower_rate(&self, limit: u64, window: Duration) -> bool {
        limit as f64 * self.window.as_secs_f64() < self.limit as f64 * window.as_secs_f64()
    }

    /// Applies a new limit and its window. If the window changes, the charges so far are dropped.
    fn apply_limit(&mut self, now: Instant, limit: u64, window: Duration) {
        if window != self.window {
            let new = Self::new(self.kind, limit, window, self.max_burst, now);
            *self = Self {
                configured: self.configured,
                last_cut_at: self.last_cut_at,
                no_boost_until: self.no_boost_until,
                no_token_bucket_until: self.no_token_bucket_until,
                last_adjusted_at: self.last_adjusted_at,
                shared_window: self.shared_window,
                shared_since: self.shared_since,
                divided_by: self.divided_by,
                burst: if new.is_long() { new.burst } else { new.burst.min(self.burst) },
                ..new
            };
            self.update_rate(now);
        } else if limit != self.limit {
            if !limit_history::is_same(limit, self.limit) {
                self.share = self.history.switch(now, self.limit, self.share, limit);
                self.provider_window.clear();
            }
            self.limit = limit.max(1);
            self.update_rate(now);
        }
        self.pending_increase = None;
        self.announced_at = Some(now);
    }

    /// Restores the configured limit, because the announced one concerns other calls, or was not
    /// announced for long. Returns `false`, and does nothing, if no limit is configured.
    pub(super) fn restore_configured(&mut self, now: Instant) -> bool {
        let Some(limit) = self.configured else { return false };
        self.apply_limit(now, limit, self.kind.window());
        self.announced_at = None;
        true
    }

    /// Updates the provider window from a response that reported `remaining`. A value above the
    /// limit is ignored.
    ///
    /// `sent` and `received` contain the totals charged until the attempt was sent and its response
    /// received. See [`RateBudgets::charged_by_all`](super::RateBudgets::charged_by_all).
    pub(super) fn on_report(
        &mut self,
        remaining: u64,
        report: &RateWindow,
        sent: ChargedAt,
        received: ChargedAt,
        charged_by_all: f64,
    ) {
        let limit = report.limit.unwrap_or(self.limit).max(self.limit) as f64;
        let remaining = remaining as f64;
        if remaining > limit {
            return;
        }
        self.has_remaining = true;
        let own_usage = self.window_usage.sum(received.0) as f64;
        self.provider_window.on_report(&Report {
            remaining,
            reset: report.reset,
            sent,
            received,
            limit,
            window: self.window,
            rate: self.limit as f64 / self.window.as_secs_f64(),
            own_usage,
            all_usage: own_usage.max(charged_by_all),
        });
        // The provider's reset says nothing about a configured limit that is lower than the
        // announced one.
        let starts_again = report.reset.is_some_and(|reset| !reset.is_zero()) && !self.is_below_announced;
        if self.is_long() && starts_again {
            self.resets_at = self.provider_window.full_at;
        }
    }

    /// Drops all charges if the reset that the provider announced has passed.
    fn reset_if_due(&mut self, now: Instant) {
        if self.resets_at.take_if(|at| now >= *at).is_some() {
            self.window_usage = SlidingWindow::new(self.window, now);
            self.pacer = Self::full_pacer(self.kind, self.rate(), self.burst, now);
            self.started_at = now;
        }
    }

    /// Creates a pacer that allows its whole burst. `rate` is in requests or tokens per second.
    fn full_pacer(kind: BudgetKind, rate: f64, burst: Duration, now: Instant) -> Pacer {
        match kind {
            BudgetKind::Requests | BudgetKind::RequestsPerDay => {
                Pacer::Requests(RequestRate::new(rate, burst, now))
            }
            _ => Pacer::Tokens(TokenBucket::with_rate(rate, burst, now)),
        }
    }

    /// Reduces the burst or the usable share after a 429 for a call that was charged at `then`.
    ///
    /// `explained` is `true` if the headers report that too little was left. Calls that were in
    /// flight at the same time cause at most one reduction. Nothing is reduced for long windows, if
    /// too little was charged to explain the 429, or if the 429 is `explained` and the burst is at
    /// its minimum. In all cases, the 429 suspends the boost (if `explained`) or the treatment as a
    /// token bucket (otherwise).
    pub(super) fn on_rate_limited(&mut self, now: Instant, then: Instant, explained: bool) {
        self.provider_window.last_refused_at = Some(now);
        if explained {
            self.no_boost_until = now + BOOST_PENALTY;
        } else {
            self.no_token_bucket_until = now + BURST_RECOVERY_DELAY;
        }
        if self.is_long() || self.last_cut_at.is_some_and(|at| then <= at) {
            return;
        }
        let used = self.window_usage.sum(now) as f64 / self.window_limit().max(1) as f64;
        let is_idle = match &self.pacer {
            Pacer::Requests(requests) => {
                requests.burst > 1 && requests.level(now) >= 0.9 * f64::from(requests.burst)
            }
            Pacer::Tokens(bucket) => bucket.is_full(now),
        };
        if self.burst > MIN_BURST && !is_idle {
            self.burst = (self.burst / 2).max(MIN_BURST);
            if std::mem::take(&mut self.is_burst_extended) {
                self.burst_recovery_delay = (2 * self.burst_recovery_delay).min(MAX_BURST_RECOVERY_DELAY);
            }
        } else if !explained && used > 0.3 {
            let factor = if self.has_remaining { CUT_FACTOR_WITH_HEADERS } else { CUT_FACTOR };
            self.share = (self.share * factor).max(0.01);
        } else {
            return;
        }
        self.last_cut_at = Some(now);
        self.last_adjusted_at = now;
        self.last_recovery_at = now;
        self.update_rate(now);
    }

    /// Lengthens a shortened burst and raises a cut share if enough time has passed. Call this for
    /// each response that is not a 429.
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
            let since_cut = self.last_cut_at.map(|at| self.last_recovery_at.saturating_duration_since(at));
            let is_slow = since_cut.is_some_and(|since_cut| since_cut <= SLOW_RECOVERY_PERIOD);
            let factor = if is_slow { SLOW_RECOVERY_FACTOR } else { FAST_RECOVERY_FACTOR };
            self.share = (self.share * factor).min(1.0);
        }
        if (self.share, self.burst) != before {
            self.update_rate(now);
        }
    }

    /// Returns the amount that may be charged now, in requests or tokens. Negative if there is
    /// debt.
    pub(super) fn level(&mut self, now: Instant, totals: &ChargeTotals) -> f64 {
        self.reset_if_due(now);
        let charged = totals.by_rule(self.kind);
        let known = self.provider_window.available(now, &charged, self.limit as f64);
        let known = known.map(|known| known.max(0.0));
        if let Some(known) = known.filter(|_| self.is_bounded_by(known)) {
            return known;
        }
        let pacer = match &self.pacer {
            Pacer::Requests(requests) => requests.level(now),
            Pacer::Tokens(bucket) => bucket.level(now),
        };
        let left = self.window_left(now).map_or(f64::MAX, |left| left as f64);
        pacer.min(left).min(known.unwrap_or(f64::MAX))
    }

    /// Returns the pacer's rate, in requests or tokens per second.
    fn rate(&self) -> f64 {
        self.boost() * self.whole_rate() / f64::from(self.divided_by)
    }

    /// Returns the factor by which the rate is boosted now, at least 1.
    fn boost(&self) -> f64 {
        if self.is_boosted { BOOST_FACTOR } else { 1.0 }
    }

    /// Returns the rate that all processes together pace, without a boost.
    fn whole_rate(&self) -> f64 {
        PACE_FRACTION * self.share * self.limit as f64 / self.window.as_secs_f64()
    }

    /// Returns the maximum amount charged per window, at least 1.
    fn window_limit(&self) -> i64 {
        let most = self.whole_window_limit() / f64::from(self.divided_by);
        (most as i64).clamp(1, i64::MAX / 4)
    }

    /// Returns the maximum amount that all processes together charge per window.
    fn whole_window_limit(&self) -> f64 {
        let exact = matches!(self.pacer, Pacer::Requests(_)) && self.share == 1.0;
        self.limit as f64 * if exact { 1.0 } else { WINDOW_FRACTION * self.share }
    }

    /// Returns the amount that may be charged now before the charges of the last window reach their
    /// maximum. `None` if they are not limited, because the provider is a token bucket.
    fn window_left(&mut self, now: Instant) -> Option<i64> {
        let left = (self.window_limit() - self.window_usage.sum(now)).max(0);
        (!self.trusts_token_bucket(now)).then_some(left)
    }

    /// Returns the maximum cost of one call: the limit, or the limit per minute if the window is
    /// shorter than a minute. No provider admits a larger call.
    pub(super) fn max_call(&self) -> u64 {
        let windows = 60.0 / self.window.as_secs_f64().max(1e-3);
        if windows > 1.0 { (self.limit as f64 * windows) as u64 } else { self.limit }
    }

    /// Applies the current rate and burst to the pacer.
    fn update_rate(&mut self, now: Instant) {
        let (rate, burst, max_call) = (self.rate(), self.burst, self.max_call() as f64);
        match &mut self.pacer {
            Pacer::Requests(requests) => *requests = requests.with_rate(rate, burst, now),
            Pacer::Tokens(bucket) => bucket.update_rate(now, rate, burst, max_call),
        }
    }
}
