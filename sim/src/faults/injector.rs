//! Decides which faults affect each call.

use std::time::Duration;

use fastrand::Rng;

use super::load_dependent::LoadState;
use super::token_bucket::{RateHeaders, TokenBucket};
use super::{Faults, OutageMode, TokenCounting};

/// Why a fault rejects a call before it reaches an engine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Rejection {
    /// [`OutageMode::Refuse`] or [`OutageMode::Kill`] is in force. The connection is closed without
    /// an answer.
    Connection,
    /// [`OutageMode::Unavailable`] is in force. The call gets a 503.
    Unavailable,
    /// [`OutageMode::Hang`] is in force. The call is never answered.
    Silence,
    /// [`OutageMode::Dead`] is in force. The call gets a 500.
    Dead,
    /// The call was selected at random for [`Faults::error_500`], and gets a 500.
    Internal,
    /// The call arrived in one of [`Faults::rate_limit_windows`], and gets a 429.
    Window { retry_after: RetryAfter },
    /// The call exceeds a concurrency limit, and gets a 429. `limit` is `None` if
    /// [`Faults::hide_limit_name`] is set.
    Concurrency { limit: Option<usize>, retry_after: RetryAfter },
    /// The call exceeds a rate budget, and gets a 429. `resource` is `tokens` or `requests`, and
    /// `wait` is the simulated time until the call fits into the budget. Each is `None` if the
    /// configuration hides it.
    Rate { resource: Option<&'static str>, wait: Option<Duration> },
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RetryAfter {
    None,
    /// The header `Retry-After` names this delay, in simulated time.
    In(Duration),
    Text(String),
}

/// The faults that affect one accepted call, drawn at random.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct StreamPlan {
    /// Pause before the response headers, in simulated time. `None` is no pause; `Some(None)` lasts
    /// forever.
    pub(crate) before_headers: Option<Option<Duration>>,
    pub(crate) stall: Option<(u32, Option<Duration>)>,
    pub(crate) reset_after: Option<u32>,
    pub(crate) truncate_after: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct FaultInjector {
    faults: Faults,
    since: Duration,
    rng: Rng,
    tokens: Option<TokenBucket>,
    requests: Option<TokenBucket>,
    load: LoadState,
}

impl FaultInjector {
    pub(crate) fn new(faults: Faults, now: Duration) -> Self {
        let bucket = |per_minute, burst_s| TokenBucket::new(per_minute, burst_s, now);
        let rate = faults.token_rate;
        Self {
            since: now,
            rng: Rng::with_seed(faults.seed),
            tokens: rate.and_then(|r| Some(bucket(r.tokens_per_minute?, r.burst_s))),
            requests: rate.and_then(|r| Some(bucket(r.requests_per_minute?, r.burst_s))),
            load: LoadState::new(faults.load_faults()),
            faults,
        }
    }

    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }

    fn seconds(&self, now: Duration) -> f64 {
        now.saturating_sub(self.since).as_secs_f64()
    }

    pub(crate) fn outage(&self, now: Duration) -> Option<OutageMode> {
        let at = self.seconds(now);
        self.faults.outages.iter().find(|o| (o.from_s..o.until_s).contains(&at)).map(|o| o.mode)
    }

    /// Decides whether a fault rejects an arriving call before its body is read. `in_flight` is the
    /// number of other calls in flight.
    ///
    /// # Errors
    ///
    /// Returns the reason if a fault rejects the call.
    pub(crate) fn on_arrival(&mut self, now: Duration, in_flight: usize) -> Result<(), Rejection> {
        match self.outage(now) {
            Some(OutageMode::Refuse | OutageMode::Kill) => return Err(Rejection::Connection),
            Some(OutageMode::Unavailable) => return Err(Rejection::Unavailable),
            Some(OutageMode::Hang) => return Err(Rejection::Silence),
            Some(OutageMode::Dead) => return Err(Rejection::Dead),
            None => {}
        }
        if self.draws(self.faults.error_500) {
            return Err(Rejection::Internal);
        }
        let at = self.seconds(now);
        if let Some(w) = self.faults.rate_limit_windows.iter().find(|w| (w.from_s..w.until_s).contains(&at)) {
            let retry_after = match w.retry_after.as_deref() {
                None => RetryAfter::In(Duration::try_from_secs_f64(w.until_s - at).unwrap_or_default()),
                Some("none") => RetryAfter::None,
                Some(text) => RetryAfter::Text(text.to_owned()),
            };
            return Err(Rejection::Window { retry_after });
        }
        self.load.on_arrival(now.saturating_sub(self.since), in_flight).map_err(|limit| {
            let after = self.faults.limits_retry_after_s.map(|s| Duration::try_from_secs_f64(s).ok());
            let retry_after = after.flatten().map_or(RetryAfter::None, RetryAfter::In);
            Rejection::Concurrency {
                limit: Some(limit).filter(|_| !self.faults.hide_limit_name),
                retry_after,
            }
        })
    }

    /// Charges a call to the rate budgets, and returns the values of the rate-limit headers.
    ///
    /// # Errors
    ///
    /// Returns [`Rejection::Rate`] and charges nothing if the call exceeds a budget.
    pub(crate) fn charge(
        &mut self,
        now: Duration,
        prompt_tokens: u32,
        max_output: u32,
    ) -> Result<Vec<RateHeaders>, Rejection> {
        let reserved = match self.faults.token_rate.map(|r| r.counts) {
            Some(TokenCounting::Actual) => 0,
            _ => max_output,
        };
        let cost = f64::from(prompt_tokens) + f64::from(reserved);
        let parts = [(&mut self.requests, "requests", 1.0), (&mut self.tokens, "tokens", cost)];
        // Both budgets are checked before either is charged, so that a rejected call costs nothing.
        let mut buckets: Vec<_> =
            parts.into_iter().filter_map(|(b, name, cost)| Some((b.as_mut()?, name, cost))).collect();
        for (bucket, resource, cost) in &mut buckets {
            let wait = bucket.wait(now, *cost);
            if !wait.is_zero() {
                let names_delay = self.faults.token_rate.is_none_or(|r| r.retry_after);
                let resource = Some(*resource).filter(|_| !self.faults.hide_limit_name);
                return Err(Rejection::Rate { resource, wait: Some(wait).filter(|_| names_delay) });
            }
        }
        for (bucket, _, cost) in buckets {
            bucket.take(now, cost);
        }
        Ok(self.headers(now))
    }

    /// Returns the values of the rate-limit headers, one entry per budget. Returns none if the
    /// headers are turned off.
    pub(crate) fn headers(&mut self, now: Duration) -> Vec<RateHeaders> {
        if self.faults.token_rate.is_some_and(|r| !r.headers) {
            return Vec::new();
        }
        let parts = [(&mut self.requests, "requests"), (&mut self.tokens, "tokens")];
        parts.into_iter().filter_map(|(b, name)| Some(b.as_mut()?.headers(now, name))).collect()
    }

    /// Charges `generated` tokens of an ended call to the token budget, if it counts
    /// [`TokenCounting::Actual`] tokens.
    pub(crate) fn settle(&mut self, now: Duration, generated: u32) {
        let counted = self.faults.token_rate.is_some_and(|r| r.counts == TokenCounting::Actual);
        if let Some(bucket) = self.tokens.as_mut().filter(|_| counted) {
            bucket.take(now, f64::from(generated));
        }
    }

    pub(crate) fn queue_full(&self, waiting: usize) -> bool {
        self.faults.max_num_queued_reqs.is_some_and(|max| waiting >= max)
    }

    /// Counts an accepted call, and returns the faults that were drawn at random for it.
    pub(crate) fn plan(&mut self) -> StreamPlan {
        self.load.on_accepted();
        let pause = |s: Option<f64>| s.map(|s| Duration::try_from_secs_f64(s).unwrap_or(Duration::MAX));
        let (before, mid) = (self.faults.stall_before_headers, self.faults.stall_mid_stream);
        let (reset, truncate) = (self.faults.reset_mid_stream, self.faults.truncate_stream);
        StreamPlan {
            before_headers: before.filter(|s| self.draws(s.probability)).map(|s| pause(s.seconds)),
            stall: mid.filter(|s| self.draws(s.probability)).map(|s| (s.after_tokens, pause(s.seconds))),
            reset_after: reset.filter(|c| self.draws(c.probability)).map(|c| c.after_tokens),
            truncate_after: truncate.filter(|c| self.draws(c.probability)).map(|c| c.after_tokens),
        }
    }

    /// Returns the factor by which the time of a step is multiplied if it begins at `now`.
    pub(crate) fn slowdown(&self, now: Duration) -> f64 {
        let by_load = self.load.slowdown(now.saturating_sub(self.since));
        let Some(slow) = self.faults.slow_start else { return by_load };
        let left = 1.0 - self.seconds(now) / slow.over_s;
        if left > 0.0 { by_load * (1.0 + (slow.factor - 1.0) * left) } else { by_load }
    }

    fn draws(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.rng.f64() < probability
    }
}
