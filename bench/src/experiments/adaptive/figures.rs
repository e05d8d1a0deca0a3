//! The figures of a run.

use std::time::Duration;

use tidegate_sim::scenario::quantile;

use super::course::{Course, Fate, How, Played, Second};
use super::oracle::Oracle;
use super::play::PATIENCE;
use super::stage::Stage;
use super::workload::Arrival;

/// The figures of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// Completed calls with their first token in time, by phase.
    pub(crate) good: Vec<usize>,
    /// Calls that went upstream and were answered, broken, given up without a token, or finally
    /// rejected, except calls that a step excuses.
    pub(crate) sent: Share,
    /// The calls of `sent` and those that we rejected, of callers who do not leave.
    pub(crate) asked: Share,
    /// The worst phase's p99 of user TTFT in seconds, except calls that a step excuses.
    pub(crate) ttft_p99_s: f64,
    /// Attempts that the upstream rejected, per call.
    pub(crate) turned_away: f64,
    /// Seconds from the beginning of each phase until the limit in force ([`Second::in_force`]) was
    /// near the oracle's band to stay. `None` if it never was.
    pub(crate) settled_s: Vec<Option<f64>>,
    /// Seconds at the floor while calls waited.
    pub(crate) collapsed_s: f64,
    /// Seconds in which at most one call might await its first token while calls waited. A run does
    /// not show whether more would have been served.
    pub(crate) one_at_a_time_s: f64,
}

/// The number of calls with their first token in time, and the number of all calls.
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

    /// Returns the share in per cent.
    pub(crate) fn percent(self) -> f64 {
        self.met as f64 / self.of as f64 * 100.0
    }
}

/// The time after a step in which calls do not count against a contender, because no contender can
/// know the new situation yet.
const AFTER_A_STEP: Duration = Duration::from_secs(10);

/// The number of seconds over which the limit is averaged. The mean is near the band if it is
/// within [`NEAR`] of the band.
const MEAN_OF: usize = 5;
const NEAR: f64 = 0.1;
/// The number of seconds for which a settled limit must stay near the band, or to the phase's end.
const STAYS: usize = 20;

/// The share of the oracle's band at or below which a limit is at the floor. A limit of 1 is too.
const FLOOR: f64 = 0.125;

/// Returns the number of calls asked for in `span` that were served in time.
pub(crate) fn good(course: &Course, played: &Played, span: (Duration, Duration)) -> usize {
    calls(course, played)
        .filter(|(arrival, fate)| (span.0..span.1).contains(&arrival.at) && in_time(course, arrival, fate))
        .count()
}

fn calls<'a>(course: &'a Course, played: &'a Played) -> impl Iterator<Item = (&'a Arrival, &'a Fate)> {
    course.arrivals.iter().zip(&played.fates)
}

pub(crate) fn in_time(course: &Course, arrival: &Arrival, fate: &Fate) -> bool {
    fate.how == How::Served
        && fate.first_token.is_some_and(|first| first - arrival.at <= course.terms.objective)
}

/// Returns `true` if a step excuses the call.
///
/// A step excuses calls that were asked for in the [`AFTER_A_STEP`] after it, and calls that were
/// neither answered nor late when it came.
fn excused(phases: &[(Duration, Duration)], course: &Course, arrival: &Arrival, fate: &Fate) -> bool {
    let late = arrival.at + course.terms.objective;
    let decided = fate.first_token.map_or(late, |first| first.min(late));
    phases.iter().any(|(step, _)| arrival.at < *step + AFTER_A_STEP && decided > *step)
}

/// Returns the seconds until the limit in force is near the band to stay.
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
    pub(crate) fn of(stage: &Stage, course: &Course, oracle: &Oracle, played: &Played) -> Self {
        let phases = stage.phases();
        let mut figures = Self {
            good: phases.iter().map(|span| good(course, played, *span)).collect(),
            turned_away: played.rejected as f64 / course.arrivals.len().max(1) as f64,
            ..Self::default()
        };
        for ((from, to), band) in phases.iter().zip(&oracle.bands) {
            let asked = calls(course, played).filter(|(arrival, _)| (*from..*to).contains(&arrival.at));
            figures.judge(course, asked.filter(|(arrival, fate)| !excused(&phases, course, arrival, fate)));
            let seconds = from.as_secs() as usize..to.as_secs() as usize;
            figures.watch(played.seconds.get(seconds).unwrap_or_default(), *band);
        }
        figures
    }

    /// Adds the calls of a phase.
    fn judge<'a>(&mut self, course: &Course, calls: impl Iterator<Item = (&'a Arrival, &'a Fate)>) {
        let mut waits = Vec::new();
        for (arrival, fate) in calls {
            let waited = match fate.how {
                How::Served | How::Broken | How::TurnedAway => {
                    fate.first_token.map(|first| first - arrival.at)
                }
                How::TimedOut => Some(PATIENCE),
                How::Refused | How::Left | How::Open => None,
            };
            let met = waited.is_some_and(|waited| waited <= course.terms.objective);
            match fate.how {
                How::Left | How::Open => continue,
                How::Refused => {}
                How::Served | How::Broken | How::TurnedAway | How::TimedOut => self.sent.count(met),
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

    /// Adds the seconds of a phase.
    fn watch(&mut self, seconds: &[Second], band: (usize, usize)) {
        self.settled_s.push(settled(seconds, band));
        let floor = ((band.0 as f64 * FLOOR) as usize).max(1);
        // If 1 belongs to the band, there is no floor.
        let on_floor = |second: &&Second| band.0 > 1 && second.pressed && second.in_force() <= floor;
        let later = || seconds.iter().skip(AFTER_A_STEP.as_secs() as usize);
        self.collapsed_s += later().filter(on_floor).count() as f64;
        self.one_at_a_time_s += later().filter(|second| second.waits() && second.bound <= 1).count() as f64;
    }

    pub(crate) fn all_good(&self) -> usize {
        self.good.iter().sum()
    }
}

#[cfg(test)]
mod tests;
