//! What a run is worth.

use std::time::Duration;

use tidegate_sim::scenario::quantile;

use super::oracle::Oracle;
use super::play::{Course, Fate, How, Played};
use super::stage::Stage;
use super::workload::Arrival;

/// Of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// Calls completed whose first token came in time, by phase.
    pub(crate) good: Vec<usize>,
    /// Calls that an upstream had (answered, broken, or given up for want of a token) outside [`AFTER_A_STEP`], and those of them in time.
    pub(crate) judged: usize,
    pub(crate) met: usize,
    /// The worst phase's p99 of user TTFT, in seconds, outside [`AFTER_A_STEP`].
    pub(crate) ttft_p99_s: f64,
    /// Attempts that the upstream turned away, over calls.
    pub(crate) turned_away: f64,
    /// Seconds from the beginning of each phase until the limit was near the oracle's band; `None`: never.
    pub(crate) settled_s: Vec<Option<f64>>,
    /// Seconds at the floor while calls waited.
    pub(crate) collapsed_s: f64,
}

/// After a step nobody can know yet; so long, calls are not held against a contender.
const AFTER_A_STEP: Duration = Duration::from_secs(10);

/// A limit has settled when its mean over so many seconds is within a tenth of the band.
const SETTLED: usize = 5;
const NEAR: f64 = 0.1;

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

fn in_time(course: &Course, arrival: &Arrival, fate: &Fate) -> bool {
    fate.how == How::Served
        && fate.first_token.is_some_and(|first| first - arrival.at <= course.terms.objective)
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
            let mut waits = Vec::new();
            for (arrival, fate) in
                calls(course, played).filter(|(arrival, _)| (*from..*to).contains(&arrival.at))
            {
                let answered = match fate.how {
                    How::Served | How::Broken => fate.first_token,
                    How::TimedOut => Some(Duration::MAX),
                    _ => None,
                };
                let Some(answered) = answered else { continue };
                let shaken =
                    phases.iter().any(|(step, _)| arrival.at < *step + AFTER_A_STEP && answered > *step);
                if !shaken {
                    figures.judged += 1;
                    figures.met += usize::from(answered - arrival.at <= course.terms.objective);
                    waits.push((answered - arrival.at).as_secs_f64().min(60.0));
                }
            }
            if !waits.is_empty() {
                figures.ttft_p99_s = figures.ttft_p99_s.max(quantile(&mut waits, 0.99));
            }
            let seconds = from.as_secs() as usize..to.as_secs() as usize;
            let seconds = played.seconds.get(seconds).unwrap_or_default();
            let (least, most) = (band.0 as f64 * (1.0 - NEAR), band.1 as f64 * (1.0 + NEAR));
            let near = seconds.windows(SETTLED).position(|window| {
                let mean = window.iter().map(|second| second.limit as f64).sum::<f64>() / SETTLED as f64;
                (least..=most).contains(&mean)
            });
            figures.settled_s.push(near.map(|second| second as f64));
            let floor = ((band.0 as f64 * FLOOR) as usize).max(1);
            let later = seconds.iter().skip(AFTER_A_STEP.as_secs() as usize);
            figures.collapsed_s +=
                later.filter(|second| second.pressed && second.limit <= floor).count() as f64;
        }
        figures
    }

    pub(crate) fn all_good(&self) -> usize {
        self.good.iter().sum()
    }
}
