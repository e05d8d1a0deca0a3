//! The server of a simulated sweep: its token bucket, its limits and its failures.

use super::{Call, FIRST, Open, PROMPT, Play, SPEED};
use crate::observation::{AttemptFailure, FailureCause, LimitHint, ReportedRate, ReportedRates};

impl Play {
    /// Returns `true` if the token bucket contains enough for the first waiting call, or if no call
    /// waits.
    pub(super) fn has_room(&mut self) -> bool {
        let Some(call) = self.waiting.front() else { return true };
        let tokens = call.tokens as f64;
        let cost = self.cost(tokens);
        self.refill();
        cost <= self.level
    }

    /// Returns what a call with `tokens` output tokens takes from the token bucket, expressed as
    /// the time in seconds in which the bucket refills that amount. 0 if the server has no bucket.
    pub(super) fn cost(&self, tokens: f64) -> f64 {
        let Some(bucket) = self.model.bucket else { return 0.0 };
        let cap = bucket.cap;
        let (low, high) = (cap.floor() as usize, cap.ceil() as usize);
        let share = cap - cap.floor();
        let speed = (1.0 - share) * low as f64 * self.model.speed(low.max(1))
            + share * high as f64 * self.model.speed(high);
        let mean = FIRST + self.mean_tokens() / SPEED;
        let a_call = mean / speed;
        if bucket.by_tokens { a_call * (PROMPT + tokens) / (PROMPT + self.mean_tokens()) } else { a_call }
    }

    pub(super) fn refill(&mut self) {
        if let Some(bucket) = self.model.bucket {
            self.level = (self.level + self.now - self.level_at).min(bucket.seconds);
            self.level_at = self.now;
        }
    }

    pub(super) fn send(&mut self, mut call: Call) {
        self.attempts += 1;
        call.attempts += 1;
        self.sent_calls += usize::from(call.attempts == 1);
        call.admitted.get_or_insert(self.now);
        let position = self.in_flight() + 1;
        let running = self.open.len() + 1;
        self.sent.push_back(self.now);
        while self.sent.front().is_some_and(|&at| at < self.now - 10.0) {
            self.sent.pop_front();
        }
        self.refill();
        let failure = self.judge(running, call.tokens as f64);
        let mut pause = 0.05;
        let seconds = call.seconds;
        if let Some(kv) = self.model.kv
            && running > kv
            && self.rng.f64() < (4.0 * (running - kv) as f64 / running as f64).min(0.6)
        {
            pause = 1.0 + 2.0 * self.rng.f64();
            self.preemptions += 1;
        }
        if self.model.is_kv_bound && self.model.running.is_some_and(|most| running > most) {
            self.preemptions += u64::from(self.rng.f64() < 0.3);
        }
        let open = Open { ends: self.virtual_time + seconds, sent: self.now, position, call, pause };
        match failure {
            Some(failure) => self.refused.push_back((self.now + self.model.round_trip, open, failure)),
            None => {
                self.level -= self.cost(open.call.tokens as f64);
                self.open.push(open);
                self.most.push_back((self.now, running));
                while self.most.front().is_some_and(|&(at, _)| at < self.now - 10.0) {
                    self.most.pop_front();
                }
            }
        }
    }

    pub(super) fn judge(&mut self, running: usize, tokens: f64) -> Option<AttemptFailure> {
        let limited = |retry_after: Option<f64>| AttemptFailure {
            cause: FailureCause::Limited,
            status: Some(429),
            retry_after,
            hint: None,
        };
        if self.rng.f64() < self.model.background {
            return Some(AttemptFailure {
                cause: FailureCause::Server,
                status: Some(500),
                retry_after: None,
                hint: None,
            });
        }
        if let Some(hysteresis) = self.model.hysteresis {
            if running >= hysteresis.above {
                self.overloaded_until = self.now + hysteresis.seconds;
            }
            if self.now < self.overloaded_until && running > hysteresis.limit {
                return Some(limited(None));
            }
        }
        if let Some(rise) = self.model.rise {
            let recent =
                self.most.iter().filter(|seen| seen.0 < self.now - 2.0).map(|seen| seen.1).max().unwrap_or(4);
            if running as f64 > (rise * recent as f64).max(6.0) {
                return Some(limited(self.model.retry_after));
            }
        }
        if let Some((at_once, per_s)) = self.model.growth {
            let (level, at) = self.grown;
            let (aim, passed) = ((running - 1) as f64 + at_once, self.now - at);
            let level = if aim > level {
                aim.min(level + per_s * passed)
            } else {
                aim.max(level - 0.1 * per_s * passed)
            };
            self.grown = (level.max(at_once), self.now);
            if running as f64 > self.grown.0 {
                return Some(limited(self.model.retry_after));
            }
        }
        if let Some(limit) = self.model.limit {
            let limit = match self.model.grows {
                Some(over) if self.now < over => 4 + ((limit - 4) as f64 * self.now / over) as usize,
                _ => limit,
            };
            if running > limit {
                return Some(limited(self.model.retry_after));
            }
        }
        if let Some(bucket) = self.model.bucket {
            let cost = self.cost(tokens);
            if cost > self.level {
                let wait = ((cost - self.level).ceil()).max(1.0);
                let kind = if bucket.by_tokens { LimitHint::Tokens } else { LimitHint::Requests };
                let hint = Some(kind).filter(|_| bucket.headers);
                return Some(AttemptFailure { hint, ..limited(bucket.retry_after.then_some(wait)) });
            }
        }
        None
    }

    pub(super) fn told(&self) -> ReportedRates {
        match self.model.bucket {
            Some(bucket) if bucket.headers => {
                let mean = self.mean_tokens();
                let a_call = if bucket.by_tokens { PROMPT + mean } else { 1.0 };
                let per_second = a_call / self.cost(mean);
                let told = Some(ReportedRate {
                    limit: Some(60.0 * per_second),
                    remaining: Some(self.level.max(0.0) * per_second),
                });
                if bucket.by_tokens {
                    ReportedRates { tokens: told, requests: None }
                } else {
                    ReportedRates { tokens: None, requests: told }
                }
            }
            _ => ReportedRates::default(),
        }
    }
}
