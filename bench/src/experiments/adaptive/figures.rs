//! Computes the figures of a run (one contender, one scenario, one seed) from its result.
//!
//! A *step* is the beginning of a phase, at which load or capacity may change. The oracle's *band*
//! of a phase is the range of limits with which about as many calls are served in time as with the
//! best one. The *floor* is a limit so low that the contender counts as collapsed.

use std::time::Duration;

use tidegate_sim::scenario::quantile;

use super::client::PATIENCE;
use super::oracle::Oracle;
use super::prepared_scenario::PreparedScenario;
use super::run_records::{CallOutcome, CallResult, RunInputs, RunResult, Second};
use super::workload::Arrival;

/// The figures of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// The number of calls that were served in time: completed, with their first token within the
    /// objective. One element per phase.
    pub(crate) good: Vec<usize>,
    /// The share of the calls sent upstream that had their first token in time. Two kinds of calls
    /// are not counted: calls whose callers left before the first token, and calls close to the
    /// beginning of a phase (see `excused`).
    pub(crate) sent: Share,
    /// Like `sent`, but also counts the calls that the client rejected, as calls without a first
    /// token in time. Calls whose callers leave early ([`Arrival::leaves`]) are not counted.
    pub(crate) asked: Share,
    /// p99 of the user's TTFT, in seconds, in the phase in which it is highest. Calls close to the
    /// beginning of a phase are not counted (see `excused`).
    pub(crate) ttft_p99_s: f64,
    /// The number of attempts that the upstream rejected, divided by the number of calls.
    pub(crate) turned_away: f64,
    /// For each phase, the seconds from its beginning until the limit in force
    /// ([`Second::in_force`]) came within 10 % of the oracle's band and stayed there for 20 s or to
    /// the end of the phase. `None` if it never did.
    pub(crate) settled_s: Vec<Option<f64>>,
    /// The number of seconds in which calls waited because of the limit, and the limit in force
    /// ([`Second::in_force`]) was so low that the contender counts as collapsed (see `FLOOR`). The
    /// first 10 s of each phase are not counted.
    pub(crate) at_floor_s: f64,
    /// The number of seconds in which calls waited because of the limit, and at most one call was
    /// allowed to await its first token. The first 10 s of each phase are not counted. Such a
    /// second does not prove that more calls would have been served with a higher limit.
    pub(crate) one_at_a_time_s: f64,
}

/// A share of calls: `met` of `of` calls had their first token in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) met: usize,
    pub(crate) of: usize,
}

impl Share {
    fn count(&mut self, met: bool) {
        self.met += usize::from(met);
        self.of += 1;
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { met: self.met + other.met, of: self.of + other.of }
    }

    /// Returns the share in per cent. NaN without calls.
    pub(crate) fn percent(self) -> f64 {
        self.met as f64 / self.of as f64 * 100.0
    }
}

/// The time after the beginning of a phase in which late calls do not count against a contender,
/// because no contender can know the new capacity yet.
const AFTER_A_STEP: Duration = Duration::from_secs(10);

/// The number of seconds over which the limit is averaged before it is compared with the oracle's
/// band.
const MEAN_OF: usize = 5;
const NEAR: f64 = 0.1;
/// The number of seconds for which a limit must stay near the oracle's band to count as settled. If
/// the phase ends before, the rest of the phase is enough.
const STAYS: usize = 20;

/// A limit counts as collapsed ("at the floor") if it is 1, or at most this fraction of the lowest
/// limit of the oracle's band. If the band contains 1, no limit counts as collapsed.
const FLOOR: f64 = 0.125;

/// Returns the number of calls that arrived in `span` (start and end) and were served in time:
/// completed, with their first token within the objective.
pub(crate) fn good(inputs: &RunInputs, played: &RunResult, span: (Duration, Duration)) -> usize {
    calls(inputs, played)
        .filter(|(arrival, result)| {
            (span.0..span.1).contains(&arrival.at) && in_time(inputs, arrival, result)
        })
        .count()
}

fn calls<'a>(
    inputs: &'a RunInputs,
    played: &'a RunResult,
) -> impl Iterator<Item = (&'a Arrival, &'a CallResult)> {
    inputs.arrivals.iter().zip(&played.results)
}

pub(crate) fn in_time(inputs: &RunInputs, arrival: &Arrival, result: &CallResult) -> bool {
    result.how == CallOutcome::Served
        && result.first_token.is_some_and(|first| first - arrival.at <= inputs.terms.objective)
}

/// Returns `true` if the call is not counted because it was close to a step (the beginning of a
/// phase): it arrived less than [`AFTER_A_STEP`] after the step, or it arrived before the step and
/// was neither answered nor late by then.
fn excused(
    phases: &[(Duration, Duration)],
    inputs: &RunInputs,
    arrival: &Arrival,
    result: &CallResult,
) -> bool {
    let late = arrival.at + inputs.terms.objective;
    let decided = result.first_token.map_or(late, |first| first.min(late));
    phases.iter().any(|(step, _)| arrival.at < *step + AFTER_A_STEP && decided > *step)
}

/// Returns the seconds from the beginning of the phase until the limit in force came near `band`
/// (within [`NEAR`]) and stayed there for [`STAYS`] seconds. `None` if it never did. `seconds` are
/// all seconds of the phase, and `band` is the oracle's lowest and highest limit.
fn settled(seconds: &[Second], band: (usize, usize)) -> Option<f64> {
    let near = band.0 as f64 * (1.0 - NEAR)..=band.1 as f64 * (1.0 + NEAR);
    let means: Vec<bool> = seconds
        .windows(MEAN_OF)
        .map(|window| window.iter().map(|second| second.in_force() as f64).sum::<f64>() / MEAN_OF as f64)
        .map(|mean| near.contains(&mean))
        .collect();
    let stays = |from: usize| means.iter().skip(from).take(STAYS + 1 - MEAN_OF).all(|near| *near);
    (0..means.len()).find(|from| stays(*from)).map(|second| second as f64)
}

impl Figures {
    pub(crate) fn of(
        prepared: &PreparedScenario,
        inputs: &RunInputs,
        oracle: &Oracle,
        played: &RunResult,
    ) -> Self {
        let phases = prepared.phases();
        let mut figures = Self {
            good: phases.iter().map(|span| good(inputs, played, *span)).collect(),
            turned_away: played.rejected as f64 / inputs.arrivals.len().max(1) as f64,
            ..Self::default()
        };
        for ((from, to), band) in phases.iter().zip(&oracle.bands) {
            let asked = calls(inputs, played).filter(|(arrival, _)| (*from..*to).contains(&arrival.at));
            figures
                .judge(inputs, asked.filter(|(arrival, result)| !excused(&phases, inputs, arrival, result)));
            let seconds = from.as_secs() as usize..to.as_secs() as usize;
            figures.watch(played.seconds.get(seconds).unwrap_or_default(), *band);
        }
        figures
    }

    /// Adds the calls that arrived in one phase to the figures `sent`, `asked` and `ttft_p99_s`.
    fn judge<'a>(&mut self, inputs: &RunInputs, calls: impl Iterator<Item = (&'a Arrival, &'a CallResult)>) {
        let mut waits = Vec::new();
        for (arrival, result) in calls {
            let waited = match result.how {
                CallOutcome::Served | CallOutcome::Broken | CallOutcome::TurnedAway => {
                    result.first_token.map(|first| first - arrival.at)
                }
                CallOutcome::TimedOut => Some(PATIENCE),
                CallOutcome::Refused | CallOutcome::Left | CallOutcome::Open => None,
            };
            let met = waited.is_some_and(|waited| waited <= inputs.terms.objective);
            match result.how {
                CallOutcome::Left | CallOutcome::Open => continue,
                CallOutcome::Refused => {}
                CallOutcome::Served
                | CallOutcome::Broken
                | CallOutcome::TurnedAway
                | CallOutcome::TimedOut => self.sent.count(met),
            }
            // Callers who leave are not counted, so that rejecting more of them changes nothing.
            if arrival.leaves.is_none() {
                self.asked.count(met);
            }
            waits.extend(waited.map(|waited| waited.as_secs_f64()));
        }
        if !waits.is_empty() {
            self.ttft_p99_s = self.ttft_p99_s.max(quantile(&mut waits, 0.99));
        }
    }

    /// Computes `settled_s`, `at_floor_s` and `one_at_a_time_s` from the seconds of one phase, and
    /// adds them. `band` is the lowest and the highest limit of the oracle's band.
    fn watch(&mut self, seconds: &[Second], band: (usize, usize)) {
        self.settled_s.push(settled(seconds, band));
        let floor = ((band.0 as f64 * FLOOR) as usize).max(1);
        // If the band contains 1, no limit counts as collapsed.
        let on_floor = |second: &&Second| band.0 > 1 && second.pressed && second.in_force() <= floor;
        let later = || seconds.iter().skip(AFTER_A_STEP.as_secs() as usize);
        self.at_floor_s += later().filter(on_floor).count() as f64;
        self.one_at_a_time_s += later().filter(|second| second.waits() && second.bound <= 1).count() as f64;
    }

    pub(crate) fn all_good(&self) -> usize {
        self.good.iter().sum()
    }
}

#[cfg(test)]
mod tests;
