//! One budget: a limit over a window, and everything that keeps us inside it.
//!
//! Three bounds, and a call fits if it fits in all:
//!
//! 1. The *pace* smooths: a little less than the limit's rate, with a burst of a few seconds, so that a minute's quota does not go out at
//!    once where the provider enforces slices of a minute. Requests on `governor`, tokens on a [`TokenBucket`].
//! 2. The *ledger* bounds what is charged in any window, for providers that count by the clock or over the last minute.
//! 3. The *books* say what the provider itself has left, as its headers tell, other clients' use included.
//!
//! The first two need no headers. For windows below an hour, each is loose enough never to bind where the provider is of another kind. A day's
//! are not: a day that begins at midnight, of which all was used before, is whole again long before our own last 24 hours are. So there the
//! books alone count as long as they are known, and when a reset that was stated has passed, the other two begin anew.
//!
//! Where the provider is seen to be a bucket that fills steadily ([`WindowHint::is_token_bucket`](super::window::Hint::is_bucket)), its books are all there is to keep: what it saved up
//! while nobody called is there to be used, so the ledger, which would keep that back, stands aside, and the pace is twice the rate for as long as there is more
//! than can be unsure. A refusal ends the haste for a minute; one that the books do not explain ends all of that for [`BURST_RECOVERY_DELAY`].
//!
//! A 429 halves the burst, down to [`MIN_BURST`]: it costs nothing but smoothness, and slices of a minute are what headers do not show. Where
//! the burst is down and the headers do not explain the refusal, or there are none, the limit itself must be wrong or others use it too: it is
//! cut. Both grow back when nothing is refused: the limit within minutes or an hour, the burst more patiently, since a short one costs little
//! and a long one where it does not fit costs a refusal.
//!
//! What a cut has shown is kept for each limit that was announced of late, and for that limit alone:
//! the small backend of a gateway may refuse a rate that the large one serves. A limit that was not
//! announced of late is used whole.

use std::time::{Duration, Instant};

use super::kind::BudgetKind;
use super::limit_history::{self, LimitHistory};
use super::provider_window::{ProviderWindow, Report};
use super::request_rate::RequestRate;
use super::sliding_window::SlidingWindow;
use super::token_bucket::TokenBucket;
use crate::wire::rate::Window;

/// How much of the limit's rate is used: the rest pays for clocks that run apart and for calls that bunch on their way.
const PACE_FRACTION: f64 = 0.985;
/// How much of the limit is charged in a window: tokens are estimates.
const WINDOW_FRACTION: f64 = 0.99;
/// The shortest burst.
const MIN_BURST: Duration = Duration::from_millis(250);
/// From this on a window is not smoothed: a day's quota is there to be used when the day's work is.
const LONG_WINDOW: Duration = Duration::from_secs(3_600);
/// What is left of a limit after a 429 that nothing explains, how it grows back, and how often.
const CUT_FACTOR: f64 = 0.9;
const CUT_FACTOR_WITH_HEADERS: f64 = 0.98;
const RECOVERY_INTERVAL: Duration = Duration::from_secs(60);
/// By what it grows until it is back where it was cut, and from then on. Slowly at first: where the cut was right, each time it is back is a
/// refusal of all that is under way. Once it is past that and nothing was refused, what it was cut for is over: from a hundredth
/// it is whole again within the hour.
const SLOW_RECOVERY_FACTOR: f64 = 1.01;
const FAST_RECOVERY_FACTOR: f64 = 1.1;
const SLOW_RECOVERY_PERIOD: Duration = Duration::from_secs(11 * 60);
/// How long nothing must have been refused for the burst to double. Twice as long each time that was a mistake, up to a day, and as at first
/// once it has held for four times as long.
const BURST_RECOVERY_DELAY: Duration = Duration::from_secs(15 * 60);
const MAX_BURST_RECOVERY_DELAY: Duration = Duration::from_secs(86_400);
/// How many times the rate is taken of a bucket that has saved up.
const BOOST_FACTOR: f64 = 2.0;
/// How much of the limit there must be, beyond what is unsure, to begin with that.
const MIN_BOOST_SURPLUS: f64 = 0.02;
/// How long there is no haste after a refusal that the books explain.
const BOOST_PENALTY: Duration = Duration::from_secs(60);

#[derive(Debug)]
enum Pacer {
    Requests(RequestRate),
    Tokens(TokenBucket),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Quota {
    pub(super) kind: BudgetKind,
    pub(super) limit: u64,
    pub(super) window: Duration,
    pub(super) configured: Option<u64>,
    pub(super) from_headers: bool,
    /// A higher limit that was said once, and over what.
    pending_increase: Option<(u64, Duration)>,
    burst: Duration,
    /// What it was before refusals shortened it.
    max_burst: Duration,
    /// How long to wait before it is made longer, and whether it was since that was last settled.
    burst_recovery_delay: Duration,
    is_burst_extended: bool,
    /// The last cut, or the last time that the burst was made longer.
    last_adjusted_at: Instant,
    /// The share of the limit that is used, where 429s have shown that all of it is too much.
    share: f64,
    /// The limits that were in force of late, the last one last.
    history: LimitHistory,
    last_cut_at: Option<Instant>,
    last_recovery_at: Instant,
    pacer: Pacer,
    window_usage: SlidingWindow,
    pub(super) provider_window: ProviderWindow,
    has_remaining: bool,
    /// Whether the provider is a bucket that fills steadily.
    is_token_bucket: bool,
    is_boosted: bool,
    /// Until when there is no haste, and until when it is taken for no bucket, since it has refused.
    no_boost_until: Option<Instant>,
    no_token_bucket_until: Option<Instant>,
    /// When a long window begins anew, as the provider said last.
    resets_at: Option<Instant>,
    /// Charges from before it was there, or began anew, are none of its business.
    started_at: Instant,
}

impl Quota {
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

    /// The largest cost that fits now.
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

    /// When such a cost fits, if nothing else is charged: `now`, or later.
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

    /// Whether the provider's books are those of a bucket, as its answers have shown.
    pub(super) fn set_token_bucket(&mut self, is: bool) {
        self.is_token_bucket = is && self.window < LONG_WINDOW;
    }

    fn trusts_token_bucket(&self, now: Instant) -> bool {
        self.is_token_bucket && self.no_token_bucket_until.is_none_or(|until| now >= until)
    }

    /// Goes faster while the provider has saved up, and no longer.
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

    /// How long so much takes to come. A long window's is there at once, or the day is spent.
    pub(super) fn time_for(&self, cost: u64) -> Duration {
        if self.window >= LONG_WINDOW {
            Duration::ZERO
        } else {
            super::token_bucket::seconds(cost as f64 / self.rate())
        }
    }

    pub(super) fn charge(&mut self, now: Instant, cost: u32) {
        let cost = self.clamp_cost(cost);
        match &mut self.pacer {
            Pacer::Requests(requests) => requests.take(now),
            Pacer::Tokens(bucket) => bucket.take(now, cost as u64),
        }
        self.window_usage.add(now, cost);
    }

    /// What was charged at `then` was never sent.
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

    /// What was charged at `then` turns out as that.
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

    /// The provider has said a limit. A lower rate is believed at once; of two higher ones running the lower: there are limits that rise a
    /// little with every answer, and never twice to the same.
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
            // The same rate, over another window.
            _ => self.apply_limit(now, limit, window),
        }
    }

    /// Whether it is less a second than what is in force.
    pub(super) fn is_lower_rate(&self, limit: u64, window: Duration) -> bool {
        limit as f64 * self.window.as_secs_f64() < self.limit as f64 * window.as_secs_f64()
    }

    fn apply_limit(&mut self, now: Instant, limit: u64, window: Duration) {
        if window == self.window {
            self.set_limit(now, limit)
        } else {
            self.change_window(now, limit, window)
        }
    }

    /// Back to what was configured: what the provider said was of another window.
    pub(super) fn restore_configured(&mut self, now: Instant) {
        if let Some(limit) = self.configured {
            self.apply_limit(now, limit, self.kind.window());
            self.from_headers = false;
        }
    }

    /// What is left, as the provider's books show. What cannot be is not looked at.
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

    /// Begins anew where the provider's own count has.
    fn reset_if_due(&mut self, now: Instant) {
        if self.resets_at.take_if(|at| now >= *at).is_some() {
            self.window_usage = SlidingWindow::new(self.window, now);
            self.pacer = Self::full_pacer(self.kind, self.rate(), self.burst, now);
            self.started_at = now;
        }
    }

    fn full_pacer(kind: BudgetKind, rate: f64, burst: Duration, now: Instant) -> Pacer {
        match kind {
            BudgetKind::Requests | BudgetKind::RequestsPerDay => {
                Pacer::Requests(RequestRate::new(rate, burst, now))
            }
            _ => Pacer::Tokens(TokenBucket::with_rate(rate, burst, now)),
        }
    }

    /// A call that was charged at `then` was refused for its rate; `explained` if the headers say that too little was left. Once for all calls
    /// that were under way together.
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

    /// A call went well: what was cut grows back.
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
        // Minutes in which nobody called count as well: a small share brings few answers.
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

    /// What may be taken, below zero what is owed.
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

    pub(super) fn burst(&self) -> Duration {
        self.burst
    }

    fn rate(&self) -> f64 {
        let boost = if self.is_boosted { BOOST_FACTOR } else { 1.0 };
        PACE_FRACTION * self.share * boost * self.limit as f64 / self.window.as_secs_f64()
    }

    /// The most that is charged in a window; at least one.
    fn window_limit(&self) -> i64 {
        let exact = matches!(self.pacer, Pacer::Requests(_)) && self.share == 1.0;
        let most = self.limit as f64 * if exact { 1.0 } else { WINDOW_FRACTION * self.share };
        (most as i64).clamp(1, i64::MAX / 4)
    }

    /// The largest call there can be: a whole limit, or a minute of one that is over less. No provider lets in more.
    pub(super) fn max_call(&self) -> u64 {
        let windows = 60.0 / self.window.as_secs_f64().max(1e-3);
        if windows > 1.0 { (self.limit as f64 * windows) as u64 } else { self.limit }
    }

    /// An absurd count must not close the target for years.
    fn clamp_cost(&self, cost: u32) -> i64 {
        i64::from(cost).min(i64::try_from(self.max_call()).unwrap_or(i64::MAX))
    }

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

    fn update_rate(&mut self, now: Instant) {
        let (rate, burst, max_call) = (self.rate(), self.burst, self.max_call() as f64);
        match &mut self.pacer {
            Pacer::Requests(requests) => *requests = requests.with_rate(rate, burst, now),
            Pacer::Tokens(bucket) => bucket.update_rate(now, rate, burst, max_call),
        }
    }

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
