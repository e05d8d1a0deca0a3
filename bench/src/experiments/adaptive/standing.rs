//! The results of a contender in a scenario, over the seeds.

use super::figures::{Figures, Share};
use super::oracle::Oracle;
use super::roster::{Entry, Role};
use super::spread_out;
use super::stage::Stage;
use crate::Fallible;
use crate::report::Spread;
use crate::virtual_time::beginning;

/// One contender's figures, one run per seed.
#[derive(Debug)]
pub(crate) struct ContenderResult {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    pub(crate) runs: Vec<Figures>,
}

/// Plays all contenders on `seeds` and returns their figures.
pub(crate) fn standings(
    stage: &Stage,
    oracle: &Oracle,
    entries: &[Entry],
    seeds: &[u64],
) -> Fallible<Vec<ContenderResult>> {
    let runs = spread_out(seeds, |seed| {
        let course = stage.course(*seed);
        let figures = |entry: &Entry| {
            let mut contender = (entry.make)(&course.terms, beginning());
            Figures::of(stage, &course, oracle, &stage.play(&course, contender.as_mut(), false))
        };
        entries.iter().map(figures).collect::<Vec<_>>()
    })?;
    let mut standings: Vec<_> = entries
        .iter()
        .map(|entry| ContenderResult { name: entry.name, role: entry.role, runs: Vec::new() })
        .collect();
    for run in runs {
        for (standing, figures) in standings.iter_mut().zip(run) {
            standing.runs.push(figures);
        }
    }
    Ok(standings)
}

impl ContenderResult {
    /// Returns the calls served in time as a share of the oracle's, over all seeds together.
    pub(crate) fn goodput(&self, oracle: &Self) -> f64 {
        let sum = |of: &Self| of.runs.iter().map(Figures::all_good).sum::<usize>() as f64;
        sum(self) / sum(oracle)
    }

    /// Returns the goodput of each seed as a share of the oracle's.
    pub(crate) fn goodputs(&self, oracle: &Self) -> Spread {
        Spread::of(self.runs.iter().zip(&oracle.runs).map(|(a, b)| a.all_good() as f64 / b.all_good() as f64))
    }

    /// Returns the goodput of one phase as a share of the oracle's, over all seeds together.
    pub(crate) fn phase_goodput(&self, oracle: &Self, phase: usize) -> f64 {
        let sum = |of: &Self| of.runs.iter().filter_map(|run| run.good.get(phase)).sum::<usize>() as f64;
        sum(self) / sum(oracle)
    }

    /// Returns the percentage of the given calls that met the objective, over all seeds together.
    pub(crate) fn met(&self, of: fn(&Figures) -> Share) -> f64 {
        self.runs.iter().map(of).fold(Share::default(), Share::plus).percent()
    }

    /// Returns the worst phase's p99 of user TTFT in seconds, over the seeds.
    pub(crate) fn ttft_p99_s(&self) -> Spread {
        Spread::of(self.runs.iter().map(|run| run.ttft_p99_s))
    }

    /// Returns the mean number of rejected attempts per call.
    pub(crate) fn turned_away(&self) -> f64 {
        self.runs.iter().map(|run| run.turned_away).sum::<f64>() / self.runs.len() as f64
    }

    /// Returns the median time to settle of each phase in seconds. `None` if half of the seeds
    /// never settled.
    pub(crate) fn settled_s(&self) -> Vec<Option<f64>> {
        let phases = self.runs.first().map_or(0, |run| run.settled_s.len());
        let of = |phase: usize| {
            let mut seconds: Vec<_> = self
                .runs
                .iter()
                .filter_map(|run| run.settled_s.get(phase))
                .map(|s| s.unwrap_or(f64::INFINITY))
                .collect();
            seconds.sort_by(f64::total_cmp);
            seconds.get(seconds.len() / 2).copied().filter(|seconds| seconds.is_finite())
        };
        (0..phases).map(of).collect()
    }

    /// Returns the worst seed's seconds at the floor.
    pub(crate) fn collapsed_s(&self) -> f64 {
        self.runs.iter().map(|run| run.collapsed_s).fold(0.0, f64::max)
    }

    /// Returns the worst seed's seconds with at most one call without a token while calls waited.
    pub(crate) fn one_at_a_time_s(&self) -> f64 {
        self.runs.iter().map(|run| run.one_at_a_time_s).fold(0.0, f64::max)
    }
}
