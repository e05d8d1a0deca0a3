//! A provider that admits tokens per minute, and announces in its headers what is left.
//!
//! A call is charged its input and its maximum output when it arrives.

use std::fmt::Write;
use std::time::{Duration, Instant};

use super::upstream::INPUT;

const WINDOW: Duration = Duration::from_secs(60);

/// The time at which what was used is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refill {
    /// At a constant rate.
    Continuous,
    /// All of it each minute.
    EachMinute,
}

/// The account of a provider.
#[derive(Debug)]
pub(super) struct Provider {
    refill: Refill,
    /// The tokens per minute.
    limit: u64,
    /// The tokens of a call.
    cost: u64,
    left: f64,
    /// The time up to which `left` is correct, or the beginning of the minute.
    at: Instant,
}

impl Provider {
    /// Creates a full account of `limit` tokens per minute for calls of up to `max_output` tokens.
    pub(super) fn new(refill: Refill, limit: u64, max_output: u64, now: Instant) -> Self {
        Self { refill, limit, cost: INPUT + max_output, left: limit as f64, at: now }
    }

    /// Charges a call if it fits. Returns whether it does, and the headers of its answer.
    pub(super) fn admit(&mut self, now: Instant) -> (bool, String) {
        let limit = self.limit as f64;
        let passed = now.saturating_duration_since(self.at);
        match self.refill {
            Refill::Continuous => {
                let refilled = limit * passed.as_secs_f64() / WINDOW.as_secs_f64();
                (self.left, self.at) = ((self.left + refilled).min(limit), self.at + passed);
            }
            Refill::EachMinute if passed >= WINDOW => {
                let minutes = (passed.as_secs() / WINDOW.as_secs()) as u32;
                (self.left, self.at) = (limit, self.at + minutes * WINDOW);
            }
            Refill::EachMinute => {}
        }
        let is_admitted = self.left >= self.cost as f64;
        if is_admitted {
            self.left -= self.cost as f64;
        }
        let until_full = match self.refill {
            Refill::Continuous => (1.0 - self.left / limit) * WINDOW.as_secs_f64(),
            Refill::EachMinute => (self.at + WINDOW).saturating_duration_since(now).as_secs_f64(),
        };
        let mut headers = String::new();
        // Writing to a string cannot fail.
        let _ = write!(
            headers,
            "x-ratelimit-limit-tokens: {}\r\nx-ratelimit-remaining-tokens: {}\r\nx-ratelimit-reset-tokens: {until_full:.3}s\r\n",
            self.limit, self.left as u64
        );
        (is_admitted, headers)
    }
}
