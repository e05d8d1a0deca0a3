//! A hosted provider. Its speed does not depend on the load, and it rejects calls above its limits.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::time::Duration;

use fastrand::Rng;

use super::other_users::{FIRST_ID, Others};
use super::{Change, Event, Rejection, Upstream, What};
use crate::trace_lengths::{Work, log_normal};

/// The provider's token quota. Prompt and answer tokens are charged, when the call arrives, to a
/// bucket that holds [`BURST`] seconds of the rate. Headers announce the remaining tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate {
    pub(crate) per_minute: f64,
    /// The mean share of the rate, from 0 to 1, that other users take, in batches of [`BATCH`]
    /// tokens.
    pub(crate) others: f64,
}

/// The depth of the provider's token bucket, in seconds of the rate. It is less than the 6 s that
/// the client assumes.
const BURST: f64 = 4.0;
/// The number of tokens that other users take from the quota in one batch.
const BATCH: f64 = 8_000.0;
const PROMPT_TOKEN: Duration = Duration::from_micros(20);
const TOKEN: Duration = Duration::from_millis(20);

/// The distribution of the time to the first token, at any load: log-normal, with median and bounds
/// in milliseconds. The time for the prompt is added to it. A share of the calls (`slow_share`,
/// from 0 to 1) takes [`SLOWER`] times as long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FirstToken {
    median: f64,
    sigma: f64,
    bounds: (f64, f64),
    slow_share: f64,
}

/// The factor by which slow calls take longer.
const SLOWER: f64 = 15.0;

impl FirstToken {
    pub(crate) const QUICK: Self =
        Self { median: 300.0, sigma: 0.35, bounds: (50.0, 3_000.0), slow_share: 0.0 };
    /// A reasoning model, whose first token takes four to six seconds.
    pub(crate) const REASONING: Self =
        Self { median: 5_000.0, sigma: 0.12, bounds: (4_000.0, 6_000.0), slow_share: 0.0 };
    /// A provider that takes fifteen times as long for a sixth of the calls.
    pub(crate) const NOISY: Self = Self { slow_share: 1.0 / 6.0, ..Self::QUICK };
}

/// A hosted provider with a concurrency limit and an optional token quota.
#[derive(Debug)]
pub(crate) struct Hosted {
    at_once: usize,
    first_token: FirstToken,
    /// Other users. Their calls count against the concurrency limit too.
    others: Others,
    bucket: Option<Bucket>,
    seed: u64,
    there: HashSet<u64>,
    to_come: BinaryHeap<Reverse<(Duration, u64, bool)>>,
}

#[derive(Debug)]
struct Bucket {
    per_second: f64,
    level: f64,
    at: Duration,
    /// The time at which other users take their next batch of tokens.
    next_batch: Duration,
    /// The mean number of batches, of [`BATCH`] tokens each, that other users take per second.
    theirs_per_second: f64,
    rng: Rng,
}

impl Bucket {
    fn new(rate: Rate, seed: u64) -> Self {
        let per_second = rate.per_minute / 60.0;
        let theirs_per_second = per_second * rate.others / BATCH;
        let rng = Rng::with_seed(seed);
        let level = per_second * BURST;
        let mut bucket = Self {
            per_second,
            level,
            at: Duration::ZERO,
            next_batch: Duration::ZERO,
            theirs_per_second,
            rng,
        };
        bucket.next_of_theirs();
        bucket
    }

    fn next_of_theirs(&mut self) {
        let wait = -(1.0 - self.rng.f64()).ln() / self.theirs_per_second;
        self.next_batch = Duration::try_from_secs_f64(wait)
            .map_or(Duration::MAX, |wait| self.next_batch.saturating_add(wait));
    }

    /// Returns the tokens in the bucket at `now`, after other users have taken theirs.
    fn level(&mut self, now: Duration) -> f64 {
        while self.next_batch <= now {
            self.refill(self.next_batch);
            self.level = (self.level - BATCH).max(self.level.min(0.0));
            self.next_of_theirs();
        }
        self.refill(now);
        self.level
    }

    fn refill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.level = (self.level + passed * self.per_second).min(self.per_second * BURST);
        self.at = now;
    }

    /// Takes `tokens` from the bucket, or returns the time until they are available.
    fn take(&mut self, now: Duration, tokens: f64) -> Result<(), Duration> {
        // A call larger than the bucket passes when the bucket is full.
        let need = tokens.min(self.per_second * BURST) - self.level(now);
        if need > 1e-6 {
            return Err(Duration::from_secs_f64(need / self.per_second));
        }
        self.level -= tokens;
        Ok(())
    }
}

impl Hosted {
    /// Creates a provider that accepts `at_once` concurrent calls. Without `rate` it has no token
    /// quota.
    pub(crate) fn new(at_once: usize, rate: Option<Rate>, first_token: FirstToken, seed: u64) -> Self {
        let (bucket, others) = (rate.map(|rate| Bucket::new(rate, seed)), Others::new(seed));
        Self { at_once, first_token, others, bucket, seed, there: HashSet::new(), to_come: BinaryHeap::new() }
    }
}

impl Upstream for Hosted {
    fn submit(&mut self, now: Duration, id: u64, work: Work) -> Result<(), Rejection> {
        if self.there.len() >= self.at_once {
            return Err(Rejection::Limited { retry_after: None });
        }
        if let Some(bucket) = &mut self.bucket {
            bucket.take(now, f64::from(work.total())).map_err(|wait| {
                // The header is in whole seconds.
                let retry_after = Some(Duration::from_secs(wait.as_secs_f64().ceil() as u64));
                Rejection::Limited { retry_after }
            })?;
        }
        self.there.insert(id);
        let mut rng = Rng::with_seed(self.seed ^ id.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let FirstToken { median, sigma, bounds, slow_share } = self.first_token;
        let first = Duration::from_millis(u64::from(log_normal(&mut rng, median, sigma, bounds)));
        let first = first.mul_f64(if rng.f64() < slow_share { SLOWER } else { 1.0 });
        let first = now + first + PROMPT_TOKEN * work.prompt;
        self.to_come.push(Reverse((first, id, false)));
        self.to_come.push(Reverse((first + TOKEN * work.output, id, true)));
        Ok(())
    }

    fn abort(&mut self, _now: Duration, id: u64) {
        self.there.remove(&id);
    }

    fn next_event(&self) -> Option<Duration> {
        self.to_come.peek().map(|Reverse((at, ..))| *at)
    }

    fn advance(&mut self, now: Duration, events: &mut Vec<Event>) {
        loop {
            let next = self.next_event().unwrap_or(Duration::MAX);
            let asked = self.others.next();
            if asked.min(next) > now {
                return;
            }
            if asked < next {
                let (id, work) = self.others.ask();
                // Rejected calls of others are ignored.
                let _ = self.submit(asked, id, work);
                continue;
            }
            let Some(Reverse((at, id, ends))) = self.to_come.pop() else { return };
            // An aborted call has no further events.
            let known = if ends { self.there.remove(&id) } else { self.there.contains(&id) };
            if known && id < FIRST_ID {
                events.push(Event { at, id, what: if ends { What::Finished } else { What::FirstToken } });
            }
        }
    }

    fn remaining(&mut self, now: Duration) -> Option<f64> {
        self.bucket.as_mut().map(|bucket| bucket.level(now))
    }

    fn change(&mut self, now: Duration, change: Change) {
        match change {
            Change::AtOnce(calls) => self.at_once = calls as usize,
            Change::Others(per_second) => self.others.rate(now, per_second),
            // The provider has no visible engines.
            Change::No | Change::Lost(_) | Change::Back(_) | Change::Pace(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_calls_get_a_retry_after() {
        let at = Duration::from_secs;
        let rate = Rate { per_minute: 6_000.0, others: 0.0 };
        let mut hosted = Hosted::new(2, Some(rate), FirstToken::QUICK, 1);
        let work = |total: u32| Work { prompt: total - 10, output: 10 };
        assert_eq!(hosted.submit(at(0), 1, work(300)), Ok(()));
        let limited = |retry_after| Err(Rejection::Limited { retry_after });
        assert_eq!(hosted.submit(at(0), 2, work(250)), limited(Some(at(2))));
        assert_eq!(hosted.submit(at(2), 3, work(250)), Ok(()));
        // Two calls are in flight, so a third exceeds the concurrency limit, whatever the rate.
        assert_eq!(hosted.submit(at(3), 4, work(20)), limited(None));
        let mut events = Vec::new();
        hosted.advance(at(10), &mut events);
        assert_eq!(events.len(), 4);
        assert_eq!(hosted.submit(at(10), 5, work(20)), Ok(()));
    }

    #[test]
    fn calls_of_others_take_slots_without_events() {
        let at = Duration::from_secs;
        let mut hosted = Hosted::new(2, None, FirstToken::QUICK, 1);
        hosted.change(at(0), Change::Others(20.0));
        let mut events = Vec::new();
        hosted.advance(at(5), &mut events);
        assert_eq!(events, []);
        let work = Work { prompt: 100, output: 10 };
        assert_eq!(hosted.submit(at(5), 1, work), Err(Rejection::Limited { retry_after: None }));
        hosted.change(at(5), Change::Others(0.0));
        hosted.advance(at(300), &mut events);
        assert_eq!(hosted.submit(at(300), 2, work), Ok(()));
    }
}
