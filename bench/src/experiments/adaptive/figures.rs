//! What a run is worth.

use std::time::Duration;

use tidegate_sim::scenario::quantile;

use super::course::{Course, Fate, How, Played, Second};
use super::oracle::Oracle;
use super::play::PATIENCE;
use super::stage::Stage;
use super::workload::Arrival;

/// Of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// Calls completed whose first token came in time, by phase.
    pub(crate) good: Vec<usize>,
    /// Calls that went upstream and were answered, broken, given up for want of a token, or turned away for good; but those that a step excuses.
    pub(crate) sent: Share,
    /// These, and those that we refused, of callers who do not leave. Who left is in neither.
    pub(crate) asked: Share,
    /// The worst phase's p99 of user TTFT, in seconds, but for calls that a step excuses.
    pub(crate) ttft_p99_s: f64,
    /// Attempts that the upstream turned away, over calls.
    pub(crate) turned_away: f64,
    /// Seconds from the beginning of each phase until what is in force ([`Second::in_force`]) was near the oracle's band to stay; `None`: never.
    pub(crate) settled_s: Vec<Option<f64>>,
    /// Seconds at the floor while calls waited.
    pub(crate) collapsed_s: f64,
    /// Seconds in which no more than one call might await its first token, while calls waited. Whether more would have been served cannot be told.
    pub(crate) one_at_a_time_s: f64,
}

/// Calls that had their first token in time, of so many.
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

    /// In percent.
    pub(crate) fn percent(self) -> f64 {
        self.met as f64 / self.of as f64 * 100.0
    }
}

/// After a step nobody can know yet; so long, calls are not held against a contender.
const AFTER_A_STEP: Duration = Duration::from_secs(10);

/// A limit is near the band when its mean over so many seconds is so near.
const MEAN_OF: usize = 5;
const NEAR: f64 = 0.1;
/// It has settled when it stays there for so long, or to the phase's end.
const STAYS: usize = 20;

/// At or below this share of the oracle's band, or at one, a limit lies on the floor.
const FLOOR: f64 = 0.125;

/// Calls asked for in a span that were served in time.
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

/// A step excuses calls that were asked for in the [`AFTER_A_STEP`] after it, and those whose fate was open as it came: neither had they their first
/// token, nor was it late.
fn excused(phases: &[(Duration, Duration)], course: &Course, arrival: &Arrival, fate: &Fate) -> bool {
    let late = arrival.at + course.terms.objective;
    let decided = fate.first_token.map_or(late, |first| first.min(late));
    phases.iter().any(|(step, _)| arrival.at < *step + AFTER_A_STEP && decided > *step)
}

/// Seconds until what is in force is near the band to stay.
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

    /// The calls of a phase.
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
            // As many for whoever refuses more of those who would have left.
            if arrival.leaves.is_none() {
                self.asked.count(met);
            }
            waits.extend(waited.map(|waited| waited.as_secs_f64()));
        }
        if !waits.is_empty() {
            self.ttft_p99_s = self.ttft_p99_s.max(quantile(&mut waits, 0.99));
        }
    }

    /// The seconds of a phase.
    fn watch(&mut self, seconds: &[Second], band: (usize, usize)) {
        self.settled_s.push(settled(seconds, band));
        let floor = ((band.0 as f64 * FLOOR) as usize).max(1);
        // Where one is as good as any, it is no floor.
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
