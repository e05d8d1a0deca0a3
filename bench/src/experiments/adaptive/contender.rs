//! What may decide how many calls are in flight: ours, fixed numbers, and whoever else is held beside them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tidegate::adaptive::{CallKind, Ended, Limit, Sample, Settings};
use tidegate::config::AdaptiveConfig;

/// What a contender is told before it begins: the same for all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Terms {
    /// What users were promised: from asking to the first token, queue wait included.
    pub(crate) objective: Duration,
    /// The longest that a call waits in our queue; then it is refused.
    pub(crate) wait: Duration,
    /// The most that may ever be in flight.
    pub(crate) ceiling: usize,
}

impl Terms {
    /// The upstream's part of the objective: what the queue cannot use up.
    pub(crate) fn upstream(&self) -> Duration {
        self.objective.saturating_sub(self.wait)
    }
}

/// An attempt that goes upstream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// Its name: unique in a run, also among the attempts of one call.
    pub(crate) id: u64,
    pub(crate) kind: CallKind,
    /// How long its call has waited since it was asked for: user TTFT is this and what the upstream takes.
    pub(crate) waited: Duration,
    /// Attempts in flight, this one included.
    pub(crate) in_flight: usize,
}

/// One controller in one run. Every attempt is told of by [`Contender::sent`] and then, once, by [`Contender::ended`]; those that stream also by
/// [`Contender::first_token`] in between, if it comes to that.
pub(crate) trait Contender {
    /// The most attempts in flight, now.
    fn limit(&self) -> usize;

    /// The most attempts that await their first token, now, of those that stream.
    fn awaiting(&self) -> usize {
        usize::MAX
    }

    fn sent(&mut self, now: Instant, sent: Sent);

    fn first_token(&mut self, now: Instant, id: u64);

    fn ended(&mut self, now: Instant, id: u64, how: Ended);

    /// After whatever happened at `now`: calls that wait in our queue.
    fn queued(&mut self, _now: Instant, _waiting: usize) {}

    /// When to call [`Contender::tick`], if nothing else happens before.
    fn next_wake(&self) -> Option<Instant> {
        None
    }

    fn tick(&mut self, _now: Instant) {}

    /// What a person who watches would want to know besides the limit.
    fn note(&self, _now: Instant) -> String {
        String::new()
    }
}

/// A number that somebody chose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed(pub(crate) usize);

impl Contender for Fixed {
    fn limit(&self) -> usize {
        self.0
    }

    fn sent(&mut self, _now: Instant, _sent: Sent) {}

    fn first_token(&mut self, _now: Instant, _id: u64) {}

    fn ended(&mut self, _now: Instant, _id: u64, _how: Ended) {}
}

/// Numbers that somebody chose who knows when the upstream or the load changes: the oracle's.
#[derive(Clone, Debug)]
pub(crate) struct Scheduled {
    limit: usize,
    /// Still to come, the last first.
    steps: Vec<(Instant, usize)>,
}

impl Scheduled {
    /// Each limit from its moment on, in order of time.
    pub(crate) fn new(steps: impl IntoIterator<Item = (Instant, usize)>) -> Self {
        let mut steps: Vec<_> = steps.into_iter().collect();
        steps.reverse();
        let limit = steps.pop().map_or(1, |(_, limit)| limit);
        Self { limit, steps }
    }
}

impl Contender for Scheduled {
    fn limit(&self) -> usize {
        self.limit
    }

    fn sent(&mut self, _now: Instant, _sent: Sent) {}

    fn first_token(&mut self, _now: Instant, _id: u64) {}

    fn ended(&mut self, _now: Instant, _id: u64, _how: Ended) {}

    fn next_wake(&self) -> Option<Instant> {
        self.steps.last().map(|(at, _)| *at)
    }

    fn tick(&mut self, now: Instant) {
        while let Some((_, limit)) = self.steps.pop_if(|(at, _)| *at <= now) {
            self.limit = limit;
        }
    }
}

/// Ours: the policy that the gate holds, by itself.
#[derive(Debug)]
pub(crate) struct Ours {
    limit: Limit,
    samples: HashMap<u64, Sample>,
}

impl Ours {
    pub(crate) fn new(terms: &Terms, adaptive: AdaptiveConfig, now: Instant) -> Self {
        let settings = Settings {
            max: terms.ceiling,
            objective: Some(terms.upstream()),
            latency: None,
            tpot: None,
            adaptive,
        };
        Self { limit: Limit::new(&settings, now), samples: HashMap::new() }
    }
}

impl Contender for Ours {
    fn limit(&self) -> usize {
        self.limit.slots()
    }

    fn awaiting(&self) -> usize {
        self.limit.first_token_limit()
    }

    fn sent(&mut self, now: Instant, sent: Sent) {
        let sample = self.limit.on_sent(now, sent.kind);
        self.samples.insert(sent.id, sample);
    }

    fn first_token(&mut self, now: Instant, id: u64) {
        if let Some(sample) = self.samples.get_mut(&id) {
            self.limit.on_first_token(now, sample);
        }
    }

    fn ended(&mut self, now: Instant, id: u64, how: Ended) {
        if let Some(sample) = self.samples.remove(&id) {
            self.limit.on_ended(now, sample, how);
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        self.limit.next_wake()
    }

    fn tick(&mut self, now: Instant) {
        self.limit.on_tick(now);
    }

    fn note(&self, now: Instant) -> String {
        let view = self.limit.view(now);
        let last = view.decisions.last().map_or("-", |last| last.cause.as_str());
        let late = view.late.map_or("-".to_owned(), |late| format!("{:.0} %", late * 100.0));
        format!(
            "last {last}, late {late}, evidence {:.2}, cuts {}, raises {}",
            view.evidence, view.cuts, view.raises
        )
    }
}
