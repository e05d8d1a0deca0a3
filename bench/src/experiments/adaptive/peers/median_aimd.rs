//! AIMD on the median: decreases the limit when the median latency is over twice its baseline.
//!
//! This is a small version of a common design, and was the best controller before Tidegate's
//! adaptive limit. Its rules:
//!
//! - A median is computed over each twenty answers of calls that were sent since the last change of
//!   the limit. The baseline is the lowest median of the last five minutes.
//! - The limit doubles until the first decrease. Then it grows by one after a median that is not
//!   too high, if calls used all of the limit.
//! - The limit is decreased by a tenth, as in vector and dialogue, if the median is over twice the
//!   baseline or over the objective, and after a 429, a 503 or a timeout.
//! - Calls that do not stream have medians of their own. The objective is for first tokens, so it
//!   does not apply to them.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use tidegate::policy::adaptive::Ended;
use tidegate_sim::scenario::quantile;

use super::super::contender::{Contender, Sent, Terms};
use super::report_once::ReportedOutcome;

/// The initial limit, in calls. It is the same as that of Tidegate's adaptive limit.
const START: usize = 8;
const ANSWERS: usize = 20;
const REMEMBERED: Duration = Duration::from_secs(300);
const CUT: f64 = 0.9;

pub(super) struct Median {
    terms: Terms,
    limit: usize,
    slow_start: bool,
    /// For each attempt in flight, when it was sent and whether it streams. `None` once its latency
    /// is known.
    calls: HashMap<u64, Option<(Instant, bool)>>,
    /// The time of the last change of the limit. Answers of calls that were sent before it are
    /// ignored. `None` before the first change.
    since: Option<Instant>,
    /// Whether, since the last change of the limit, a call was sent that filled the limit.
    pressed: bool,
    whole: Group,
    streams: Group,
}

/// The latencies of calls of one kind (streaming or not), which are compared with each other.
#[derive(Default)]
struct Group {
    /// Latencies, in seconds, since the last median was computed.
    answers: Vec<f64>,
    /// Time and value (in seconds) of each median of the last five minutes.
    medians: VecDeque<(Instant, f64)>,
}

impl Group {
    /// Adds a latency in seconds. After each twentieth latency, returns the median of the twenty
    /// and the lowest median of the last five minutes, in seconds. Otherwise returns `None`.
    fn answered(&mut self, now: Instant, seconds: f64) -> Option<(f64, f64)> {
        self.answers.push(seconds);
        if self.answers.len() < ANSWERS {
            return None;
        }
        let median = quantile(&mut std::mem::take(&mut self.answers), 0.5);
        while self.medians.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > REMEMBERED) {
            self.medians.pop_front();
        }
        self.medians.push_back((now, median));
        Some((median, self.medians.iter().map(|(_, median)| *median).fold(f64::INFINITY, f64::min)))
    }
}

impl Median {
    pub(super) fn new(terms: &Terms) -> Self {
        Self {
            terms: *terms,
            limit: START.min(terms.ceiling),
            slow_start: true,
            calls: HashMap::new(),
            since: None,
            pressed: false,
            whole: Group::default(),
            streams: Group::default(),
        }
    }

    fn report(&mut self, now: Instant, id: u64, outcome: ReportedOutcome) {
        let Some((sent, streams)) = self.calls.get_mut(&id).and_then(Option::take) else { return };
        // Calls sent before the last change do not show its effect.
        if self.since.is_some_and(|since| sent < since) {
            return;
        }
        match outcome {
            ReportedOutcome::Answered => {
                self.answered(now, now.saturating_duration_since(sent).as_secs_f64(), streams)
            }
            ReportedOutcome::Overloaded => self.cut(now),
            ReportedOutcome::Failed | ReportedOutcome::Cancelled => {}
        }
    }

    fn answered(&mut self, now: Instant, seconds: f64, streams: bool) {
        let group = if streams { &mut self.streams } else { &mut self.whole };
        let Some((median, baseline)) = group.answered(now, seconds) else { return };
        let objective = if streams { self.terms.upstream().as_secs_f64() } else { f64::INFINITY };
        if median > (2.0 * baseline).min(objective) {
            self.cut(now);
        } else if std::mem::take(&mut self.pressed) {
            let more = if self.slow_start { self.limit * 2 } else { self.limit + 1 };
            self.limit = more.min(self.terms.ceiling);
            self.since = Some(now);
        }
    }

    fn cut(&mut self, now: Instant) {
        self.slow_start = false;
        self.limit = ((self.limit as f64 * CUT) as usize).max(1);
        self.since = Some(now);
        self.whole.answers.clear();
        self.streams.answers.clear();
        self.pressed = false;
    }
}

impl Contender for Median {
    fn limit(&self) -> usize {
        self.limit
    }

    fn sent(&mut self, now: Instant, sent: Sent) {
        self.pressed |= sent.in_flight >= self.limit;
        self.calls.insert(sent.id, Some((now, sent.kind.streams)));
    }

    fn first_token(&mut self, now: Instant, id: u64) {
        self.report(now, id, ReportedOutcome::Answered);
    }

    fn ended(&mut self, now: Instant, id: u64, how: Ended) {
        self.report(now, id, ReportedOutcome::of(how));
        self.calls.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use tidegate::policy::adaptive::CallKind;

    use super::*;
    use crate::virtual_time::time_origin;

    /// Simulates `rounds` rounds, one per second from second `from`. A round sends as many calls as
    /// the limit, but at least 20. Each call's first token takes `millis` milliseconds. Returns the
    /// limit after each round.
    fn limits(median: &mut Median, from: u64, rounds: u64, millis: u64) -> Vec<usize> {
        let kind = CallKind { streams: true, ..CallKind::default() };
        let round = |round| {
            let sent = time_origin() + Duration::from_secs(round);
            for id in 0..median.limit().max(ANSWERS) as u64 {
                let in_flight = id as usize + 1;
                median.sent(sent, Sent { id, kind, waited: Duration::ZERO, in_flight });
            }
            for id in 0..median.limit().max(ANSWERS) as u64 {
                median.first_token(sent + Duration::from_millis(millis), id);
                median.ended(sent + Duration::from_millis(millis), id, Ended::Completed { output: 1 });
            }
            median.limit()
        };
        (from..from + rounds).map(round).collect()
    }

    #[test]
    fn limit_doubles_then_stays_at_twice_the_baseline() {
        let terms = Terms { objective: Duration::from_secs(2), wait: Duration::from_secs(1), ceiling: 256 };
        let mut median = Median::new(&terms);
        assert_eq!(limits(&mut median, 0, 3, 100), [16, 32, 64]);
        assert_eq!(limits(&mut median, 3, 2, 201), [57, 51]);
        assert_eq!(limits(&mut median, 5, 2, 199), [52, 53]);
    }
}
