//! The results of a contender (a compared controller) in a scenario, over all seeds.

use super::contender_list::{Entry, Role};
use super::figures::{Figures, Share};
use super::oracle::Oracle;
use super::prepared_scenario::PreparedScenario;
use super::spread_out;
use crate::Fallible;
use crate::report::Spread;
use crate::virtual_time::time_origin;

/// A contender's name and role, and its figures for each seed.
#[derive(Debug)]
pub(crate) struct ContenderResult {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    pub(crate) runs: Vec<Figures>,
}

/// Simulates each contender on each seed, and returns their results in the order of `entries`.
pub(crate) fn contender_results(
    prepared: &PreparedScenario,
    oracle: &Oracle,
    entries: &[Entry],
    seeds: &[u64],
) -> Fallible<Vec<ContenderResult>> {
    let runs = spread_out(seeds, |seed| {
        let inputs = prepared.inputs(*seed);
        let figures = |entry: &Entry| {
            let mut contender = (entry.make)(&inputs.terms, time_origin());
            Figures::of(prepared, &inputs, oracle, &prepared.play(&inputs, contender.as_mut(), false))
        };
        entries.iter().map(figures).collect::<Vec<_>>()
    })?;
    let mut contender_results: Vec<_> = entries
        .iter()
        .map(|entry| ContenderResult { name: entry.name, role: entry.role, runs: Vec::new() })
        .collect();
    for run in runs {
        for (contender_result, figures) in contender_results.iter_mut().zip(run) {
            contender_result.runs.push(figures);
        }
    }
    Ok(contender_results)
}

impl ContenderResult {
    /// Returns the number of calls served in time over all seeds, divided by that of `oracle`.
    pub(crate) fn goodput(&self, oracle: &Self) -> f64 {
        let sum = |of: &Self| of.runs.iter().map(Figures::all_good).sum::<usize>() as f64;
        sum(self) / sum(oracle)
    }

    /// Returns the median and range, over the seeds, of the number of calls served in time divided
    /// by that of `oracle`.
    pub(crate) fn goodputs(&self, oracle: &Self) -> Spread {
        Spread::of(self.runs.iter().zip(&oracle.runs).map(|(a, b)| a.all_good() as f64 / b.all_good() as f64))
    }

    /// Like [`ContenderResult::goodput`], but only over the calls of the phase with the index
    /// `phase`.
    pub(crate) fn phase_goodput(&self, oracle: &Self, phase: usize) -> f64 {
        let sum = |of: &Self| of.runs.iter().filter_map(|run| run.good.get(phase)).sum::<usize>() as f64;
        sum(self) / sum(oracle)
    }

    /// Returns the percentage of calls with a first token within the objective, over all seeds
    /// together. `of` selects which calls of a run are counted.
    pub(crate) fn met(&self, of: fn(&Figures) -> Share) -> f64 {
        self.runs.iter().map(of).fold(Share::default(), Share::plus).percent()
    }

    /// Returns the median and range, over the seeds, of the p99 of the user's TTFT in the worst
    /// phase, in seconds.
    pub(crate) fn ttft_p99_s(&self) -> Spread {
        Spread::of(self.runs.iter().map(|run| run.ttft_p99_s))
    }

    /// Returns the number of attempts that the upstream rejected, divided by the number of calls:
    /// the mean over the seeds.
    pub(crate) fn turned_away(&self) -> f64 {
        self.runs.iter().map(|run| run.turned_away).sum::<f64>() / self.runs.len() as f64
    }

    /// Returns, for each phase, the median over the seeds of the seconds until the limit settled
    /// near the oracle's ([`Figures::settled_s`]). `None` if it never settled on half of the seeds
    /// or more.
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

    /// Returns the seconds in which the limit was so low that it counts as collapsed
    /// ([`Figures::at_floor_s`]), on the seed with the most of them.
    pub(crate) fn at_floor_s(&self) -> f64 {
        self.runs.iter().map(|run| run.at_floor_s).fold(0.0, f64::max)
    }

    /// Returns the seconds in which calls waited while at most one call was allowed to await its
    /// first token ([`Figures::one_at_a_time_s`]), on the seed with the most of them.
    pub(crate) fn one_at_a_time_s(&self) -> f64 {
        self.runs.iter().map(|run| run.one_at_a_time_s).fold(0.0, f64::max)
    }
}
