//! The oracle: the best fixed limit of each phase, found by search. It stands for a controller that
//! knows the scenario in advance.

use std::collections::{BTreeMap, BTreeSet};

use super::contender::Scheduled;
use super::prepared_scenario::{GRID, PreparedScenario};
use super::run_records::RunInputs;
use super::{figures, spread_out};
use crate::Fallible;
use crate::virtual_time::time_origin;

/// The seeds on which the search compares limits.
const CALIBRATION: std::ops::RangeInclusive<u64> = 1..=4;

/// The band (the range of good limits) of a phase consists of limits that serve at least `1 -
/// AS_GOOD` times as many calls in time as the best limit.
const AS_GOOD: f64 = 0.01;
/// Limits are equally good if they serve at least `1 - TIE` times as many calls in time as the best
/// limit. The search chooses the smallest of them.
const TIE: f64 = 0.001;

/// Factors by which the search multiplies the best limit found so far, to try its neighbours.
const FINE: [f64; 10] = [0.7, 0.76, 0.82, 0.88, 0.94, 1.06, 1.13, 1.2, 1.28, 1.4];
const FINER: [f64; 6] = [0.91, 0.94, 0.97, 1.03, 1.06, 1.09];

/// The best limits of a scenario, by phase.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Oracle {
    /// The best limit of each phase, in calls.
    pub(crate) limits: Vec<usize>,
    /// For each phase, the lowest and the highest limit of its band: the limits that serve about as
    /// many calls in time as the best one.
    pub(crate) bands: Vec<(usize, usize)>,
}

impl Oracle {
    pub(crate) fn find(prepared: &PreparedScenario) -> Fallible<Self> {
        let mut search = Search::new(prepared);
        search.run(GRID.map(|limit| (vec![limit; prepared.scenario.phases.len()], None)).into())?;
        let best = search.best();
        // First change the limits of all phases together, so that each phase follows one with a
        // nearly right limit.
        let together = FINE.iter().map(|step| best.iter().map(|limit| scaled(*limit, *step)).collect());
        search.run(together.chain([best.clone()]).map(|limits| (limits, None)).collect())?;
        // Then each phase alone, with its neighbours at their best, because the effect of a wrong
        // limit on the next phase must not count.
        let best = search.best();
        search.tried.iter_mut().for_each(BTreeMap::clear);
        let mut single = vec![(best.clone(), None)];
        for (phase, limit) in best.iter().enumerate() {
            let near = [-2, -1, 1, 2].map(|step| limit.saturating_add_signed(step).clamp(1, 256));
            let around = FINE.iter().chain(&FINER).map(|step| scaled(*limit, *step));
            let tries: BTreeSet<usize> = GRID.into_iter().chain(near).chain(around).collect();
            single.extend(tries.into_iter().filter(|other| other != limit).map(|other| {
                let mut limits = best.clone();
                if let Some(limit) = limits.get_mut(phase) {
                    *limit = other;
                }
                (limits, Some(phase))
            }));
        }
        search.run(single)?;
        Ok(Self { limits: search.best(), bands: search.bands() })
    }

    /// Returns a contender that applies each phase's limit from the beginning of the phase.
    pub(crate) fn contender(&self, prepared: &PreparedScenario) -> Scheduled {
        scheduled(prepared, &self.limits)
    }
}

fn scaled(limit: usize, step: f64) -> usize {
    ((limit as f64 * step).round() as usize).clamp(1, 256)
}

fn scheduled(prepared: &PreparedScenario, limits: &[usize]) -> Scheduled {
    Scheduled::new(
        prepared.phases().iter().zip(limits).map(|((from, _), limit)| (time_origin() + *from, *limit)),
    )
}

struct Search<'a> {
    prepared: &'a PreparedScenario,
    courses: Vec<RunInputs>,
    /// For each phase, the limits that were tried. The values are the numbers of calls served in
    /// time, over all calibration seeds.
    tried: Vec<BTreeMap<usize, usize>>,
}

impl<'a> Search<'a> {
    fn new(prepared: &'a PreparedScenario) -> Self {
        let courses = CALIBRATION.map(|seed| prepared.inputs(seed)).collect();
        Self { prepared, courses, tried: vec![BTreeMap::new(); prepared.scenario.phases.len()] }
    }

    /// Simulates each of `tries` on all calibration seeds, and adds the numbers of calls served in
    /// time to `tried`. A try has one limit per phase, and the index of the phase for which its
    /// result is recorded, or `None` if it is recorded for all phases.
    fn run(&mut self, tries: Vec<(Vec<usize>, Option<usize>)>) -> Fallible<()> {
        let phases = self.prepared.phases();
        let served = spread_out(&tries, |(limits, _)| {
            let mut served = vec![0; phases.len()];
            for inputs in &self.courses {
                let played = self.prepared.play(inputs, &mut scheduled(self.prepared, limits), false);
                for (sum, span) in served.iter_mut().zip(&phases) {
                    *sum += figures::good(inputs, &played, *span);
                }
            }
            served
        })?;
        for ((limits, point), served) in tries.iter().zip(served) {
            let phases = self.tried.iter_mut().zip(limits).zip(served).enumerate();
            for (phase, ((tried, limit), served)) in phases {
                if point.is_none_or(|point| point == phase) {
                    tried.insert(*limit, served);
                }
            }
        }
        Ok(())
    }

    fn best(&self) -> Vec<usize> {
        self.tried
            .iter()
            .map(|tried| {
                let most = tried.values().max().copied().unwrap_or(0) as f64;
                tried
                    .iter()
                    .find(|(_, served)| **served as f64 >= most * (1.0 - TIE))
                    .map_or(1, |(limit, _)| *limit)
            })
            .collect()
    }

    /// Returns the band of each phase as its lowest and highest limit. From the best limit, the
    /// band extends in both directions until a tried limit serves more than the share [`AS_GOOD`]
    /// fewer calls in time.
    fn bands(&self) -> Vec<(usize, usize)> {
        self.tried
            .iter()
            .zip(self.best())
            .map(|(tried, best)| {
                let most = tried.values().max().copied().unwrap_or(0) as f64;
                let as_good = |(_, served): &(&usize, &usize)| **served as f64 >= most * (1.0 - AS_GOOD);
                let least = tried.range(..=best).rev().take_while(as_good).last();
                let most = tried.range(best..).take_while(as_good).last();
                (least.map_or(best, |(limit, _)| *limit), most.map_or(best, |(limit, _)| *limit))
            })
            .collect()
    }
}
