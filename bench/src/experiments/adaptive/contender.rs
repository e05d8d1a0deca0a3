//! The trait [`Contender`] (a controller of the number of concurrent calls that takes part in the
//! comparison), and its simplest implementations: fixed limits, scheduled limits, and Tidegate's
//! adaptive limit.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tidegate::config::AdaptiveConfig;
use tidegate::policy::adaptive::{CallKind, Ended, Limit, LimitSettings, Sample};

/// The objective and the limits that each contender gets at the start of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Terms {
    /// The maximum time from a call's arrival to its first token, including the wait in the queue.
    pub(crate) objective: Duration,
    /// The maximum wait in the client's queue, after which a call is rejected.
    pub(crate) wait: Duration,
    /// The maximum of the limit, in concurrent calls.
    pub(crate) ceiling: usize,
}

impl Terms {
    /// Returns the part of the objective that is left for the upstream: the objective minus the
    /// maximum queue wait.
    pub(crate) fn upstream(&self) -> Duration {
        self.objective.saturating_sub(self.wait)
    }
}

/// An attempt that is being sent to the upstream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// The attempt's id, unique in a run. Each attempt of a call has an id of its own.
    pub(crate) id: u64,
    pub(crate) kind: CallKind,
    /// The time from the arrival of the call until this attempt is sent. The user's TTFT (time to
    /// first token) is this time plus the upstream's TTFT.
    pub(crate) waited: Duration,
    /// The number of attempts in flight, including this one.
    pub(crate) in_flight: usize,
}

/// A controller of the number of concurrent calls, in one run.
///
/// Each attempt is reported by [`Contender::sent`] and then once by [`Contender::ended`]. If an
/// attempt streams and has a token, [`Contender::first_token`] is called in between.
pub(crate) trait Contender {
    /// Returns the maximum number of attempts in flight.
    fn limit(&self) -> usize;

    /// Returns the maximum number of streaming attempts that await their first token. Default: no
    /// limit.
    fn awaiting(&self) -> usize {
        usize::MAX
    }

    fn sent(&mut self, now: Instant, sent: Sent);

    fn first_token(&mut self, now: Instant, id: u64);

    fn ended(&mut self, now: Instant, id: u64, how: Ended);

    /// Reports the number of calls in the client's queue. Called after each event.
    fn queued(&mut self, _now: Instant, _waiting: usize) {}

    /// Returns the time at which [`Contender::tick`] must be called if no other event comes first.
    /// `None` if no tick is needed.
    fn next_wake(&self) -> Option<Instant> {
        None
    }

    fn tick(&mut self, _now: Instant) {}

    /// Returns one line about the contender's state, which `--trace` prints.
    fn note(&self, _now: Instant) -> String {
        String::new()
    }
}

/// A contender whose limit, in concurrent calls, never changes.
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

/// A contender whose limit changes at times that are set in advance. The oracle is such a
/// contender.
#[derive(Clone, Debug)]
pub(crate) struct Scheduled {
    limit: usize,
    /// The changes still to come, as time and new limit. The vector is in reverse order: the last
    /// element is the next change.
    steps: Vec<(Instant, usize)>,
}

impl Scheduled {
    /// Creates a schedule from pairs of an instant and the limit that applies from then on, in
    /// order of time. The first limit applies from the beginning of the run.
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

/// Tidegate's adaptive limit alone, without the rest of the gate.
#[derive(Debug)]
pub(crate) struct Ours {
    limit: Limit,
    samples: HashMap<u64, Sample>,
}

impl Ours {
    pub(crate) fn new(terms: &Terms, adaptive: AdaptiveConfig, now: Instant) -> Self {
        let settings = LimitSettings {
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
