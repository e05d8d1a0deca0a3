//! A hosted provider: as quick as it is, however much we send; what it will not take it turns away.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::time::Duration;

use fastrand::Rng;

use super::{Change, Event, Rejection, Upstream, What};
use crate::lengths::{Work, log_normal};

/// Tokens that it takes, prompt and answer: a bucket that holds [`BURST`] of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate {
    pub(crate) per_minute: f64,
}

/// What its bucket holds, in seconds of the rate.
const BURST: f64 = 6.0;
/// To the first token: median in milliseconds, and sigma.
const FIRST_MS: (f64, f64) = (300.0, 0.35);
const PROMPT_TOKEN: Duration = Duration::from_micros(20);
const TOKEN: Duration = Duration::from_millis(20);

/// See the module.
#[derive(Debug)]
pub(crate) struct Hosted {
    at_once: usize,
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
}

impl Bucket {
    /// Takes that many, or says how long until it could.
    fn take(&mut self, now: Duration, tokens: f64) -> Result<(), Duration> {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.level = (self.level + passed * self.per_second).min(self.per_second * BURST);
        self.at = now;
        // A call larger than the bucket passes when it is full.
        let need = tokens.min(self.per_second * BURST) - self.level;
        if need > 1e-6 {
            return Err(Duration::from_secs_f64(need / self.per_second));
        }
        self.level -= tokens;
        Ok(())
    }
}

impl Hosted {
    /// Takes so many at once, at such a rate if one is given.
    pub(crate) fn new(at_once: usize, rate: Option<Rate>, seed: u64) -> Self {
        let bucket = rate.map(|Rate { per_minute }| {
            let per_second = per_minute / 60.0;
            Bucket { per_second, level: per_second * BURST, at: Duration::ZERO }
        });
        Self { at_once, bucket, seed, there: HashSet::new(), to_come: BinaryHeap::new() }
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
        let first = log_normal(&mut rng, FIRST_MS.0, FIRST_MS.1, (50.0, 3_000.0));
        let first = now + Duration::from_millis(u64::from(first)) + PROMPT_TOKEN * work.prompt;
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
        while let Some(&Reverse((at, id, ends))) = self.to_come.peek().filter(|Reverse((at, ..))| *at <= now)
        {
            self.to_come.pop();
            // What was aborted has nothing to come.
            let known = if ends { self.there.remove(&id) } else { self.there.contains(&id) };
            if known {
                events.push(Event { at, id, what: if ends { What::Finished } else { What::FirstToken } });
            }
        }
    }

    fn change(&mut self, _now: Duration, change: Change) {
        if let Change::AtOnce(calls) = change {
            self.at_once = calls as usize;
        }
    }
}
