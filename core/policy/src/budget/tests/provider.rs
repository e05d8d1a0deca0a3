//! Models of how providers enforce a limit per minute.

use std::collections::VecDeque;

use tidegate_tokens::Demand;

/// Length of the window of all limits, in seconds.
const WINDOW: f64 = 60.0;

/// How the provider enforces the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Policy {
    /// A token bucket. The value is its capacity, as seconds at the rate of the limit.
    Bucket(f64),
    /// Two token buckets that are both enforced. The value is the capacity of the first one, as
    /// seconds at the rate of the limit. The headers describe only the second one, which has a
    /// capacity of one minute.
    HiddenBucket(f64),
    /// A limit on the sum of the charges since the start of the current minute.
    Fixed,
    /// A limit on the sum of the charges over the last 60 seconds.
    Sliding,
}

/// How many tokens the provider charges a call: see [`Provider::cost`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule {
    Sum,
    Larger,
    Actual,
}

#[derive(Clone, Debug)]
pub(super) struct Provider {
    pub(super) policy: Policy,
    pub(super) rule: Rule,
    pub(super) limit: f64,
    /// Tokens in the bucket. For `HiddenBucket`, these are the tokens in the first bucket, and
    /// `minute` those in the bucket that the headers describe.
    level: f64,
    minute: f64,
    at: f64,
    counted: VecDeque<(f64, f64)>,
    sum: f64,
    /// Time at which the first fixed window starts, in seconds.
    phase: f64,
}

/// The `limit`, `remaining` and `reset` headers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Announced {
    pub(super) limit: f64,
    pub(super) remaining: f64,
    pub(super) reset: f64,
}

impl Provider {
    pub(super) fn new(policy: Policy, rule: Rule, limit: f64, phase: f64) -> Self {
        let depth = match policy {
            Policy::Bucket(depth) | Policy::HiddenBucket(depth) => depth / WINDOW * limit,
            _ => 0.0,
        };
        let counted = VecDeque::new();
        Self { policy, rule, limit, level: depth, minute: limit, at: 0.0, counted, sum: 0.0, phase }
    }

    /// Returns the tokens that the provider charges, on arrival, for a call that will use `input`
    /// and `output` tokens.
    pub(super) fn cost(&self, demand: &Demand, input: f64, output: f64) -> f64 {
        let most = demand.max_output.unwrap_or(0) as f64;
        match self.rule {
            Rule::Sum => input + most,
            Rule::Larger => input.max(most),
            Rule::Actual => input + output,
        }
    }

    /// Charges a call that arrives at `now` (in seconds) if it fits. Returns `true` if it was
    /// admitted.
    pub(super) fn arrive(&mut self, now: f64, cost: f64) -> bool {
        self.turn(now);
        if cost > self.left() + 1e-6 * self.limit {
            return false;
        }
        match self.policy {
            Policy::Bucket(_) => self.level -= cost,
            Policy::HiddenBucket(_) => {
                self.level -= cost;
                self.minute -= cost;
            }
            Policy::Fixed | Policy::Sliding => {
                self.counted.push_back((now, cost));
                self.sum += cost;
            }
        }
        true
    }

    pub(super) fn announced(&mut self, now: f64) -> Announced {
        self.turn(now);
        let rate = self.limit / WINDOW;
        let (remaining, reset) = match self.policy {
            Policy::Bucket(depth) => (self.level.max(0.0), depth - self.level / rate),
            Policy::HiddenBucket(_) => (self.minute.max(0.0), (self.limit - self.minute) / rate),
            Policy::Fixed => (self.left(), WINDOW - (now - self.phase).rem_euclid(WINDOW)),
            Policy::Sliding => (self.left(), self.counted.front().map_or(0.0, |(at, _)| at + WINDOW - now)),
        };
        Announced { limit: self.limit, remaining, reset }
    }

    fn left(&self) -> f64 {
        match self.policy {
            Policy::Bucket(_) => self.level,
            Policy::HiddenBucket(_) => self.level.min(self.minute),
            Policy::Fixed | Policy::Sliding => (self.limit - self.sum).max(0.0),
        }
    }

    fn turn(&mut self, now: f64) {
        let now = now.max(self.at);
        let came = (now - self.at) * self.limit / WINDOW;
        match self.policy {
            Policy::Bucket(depth) => self.level = (self.level + came).min(depth / WINDOW * self.limit),
            Policy::HiddenBucket(depth) => {
                self.level = (self.level + came).min(depth / WINDOW * self.limit);
                self.minute = (self.minute + came).min(self.limit);
            }
            Policy::Fixed => {
                let minute = |at: f64| ((at - self.phase) / WINDOW).floor();
                if minute(now) > minute(self.at) {
                    self.counted.clear();
                    self.sum = 0.0;
                }
            }
            Policy::Sliding => {
                while let Some((at, cost)) = self.counted.front().copied()
                    && at + WINDOW <= now
                {
                    self.counted.pop_front();
                    self.sum -= cost;
                }
            }
        }
        self.at = now;
    }
}
