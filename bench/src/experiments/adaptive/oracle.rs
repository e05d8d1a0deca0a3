//! The best fixed limit of each phase, found by search: what a contender would do who knows the world.

use std::collections::BTreeMap;

use super::contender::Scheduled;
use super::play::Course;
use super::stage::{GRID, Stage};
use super::{figures, spread_out};
use crate::Fallible;
use crate::virtual_time::beginning;

/// Seeds that it is found on.
const CALIBRATION: std::ops::RangeInclusive<u64> = 1..=4;

/// Limits as good as the best to within this belong to the band.
const AS_GOOD: f64 = 0.01;
/// Of limits as good as that, the least is taken.
const TIE: f64 = 0.001;

/// How fine the search is around the best of the grid, and then around the best of those.
const FINE: [f64; 10] = [0.7, 0.76, 0.82, 0.88, 0.94, 1.06, 1.13, 1.2, 1.28, 1.4];
const FINER: [f64; 6] = [0.91, 0.94, 0.97, 1.03, 1.06, 1.09];

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Oracle {
    /// The best limit of each phase.
    pub(crate) limits: Vec<usize>,
    /// The least and the most that are as good.
    pub(crate) bands: Vec<(usize, usize)>,
}

impl Oracle {
    pub(crate) fn find(stage: &Stage) -> Fallible<Self> {
        let mut search = Search::new(stage);
        search.run(GRID.map(|limit| vec![limit; search.phases()]).into())?;
        for steps in [FINE.as_slice(), FINER.as_slice()] {
            let best = search.best();
            let scaled = |step: f64, limit: usize| ((limit as f64 * step).round() as usize).clamp(1, 256);
            // All phases at once: their neighbours are nearly right.
            let together = steps.iter().map(|step| best.iter().map(|limit| scaled(*step, *limit)).collect());
            search.run(together.chain([best.clone()]).collect())?;
        }
        // And at last each by itself, one more and one less.
        let best = search.best();
        let mut single = Vec::new();
        for phase in 0..best.len() {
            for step in [-2, -1, 1, 2] {
                let mut limits = best.clone();
                if let Some(limit) = limits.get_mut(phase) {
                    *limit = limit.saturating_add_signed(step).clamp(1, 256);
                }
                single.push(limits);
            }
        }
        search.run(single)?;
        Ok(Self { limits: search.best(), bands: search.bands() })
    }

    /// Its contender.
    pub(crate) fn contender(&self, stage: &Stage) -> Scheduled {
        scheduled(stage, &self.limits)
    }
}

fn scheduled(stage: &Stage, limits: &[usize]) -> Scheduled {
    Scheduled::new(stage.phases().iter().zip(limits).map(|((from, _), limit)| (beginning() + *from, *limit)))
}

struct Search<'a> {
    stage: &'a Stage,
    courses: Vec<Course>,
    /// Of each phase, each limit that was tried with the calls that were served in time, over all seeds; the last try counts.
    tried: Vec<BTreeMap<usize, usize>>,
}

impl<'a> Search<'a> {
    fn new(stage: &'a Stage) -> Self {
        let courses = CALIBRATION.map(|seed| stage.course(seed)).collect();
        Self { stage, courses, tried: vec![BTreeMap::new(); stage.scenario.phases.len()] }
    }

    fn phases(&self) -> usize {
        self.tried.len()
    }

    /// Tries each of these, a limit for each phase.
    fn run(&mut self, tries: Vec<Vec<usize>>) -> Fallible<()> {
        let phases = self.stage.phases();
        let served = spread_out(&tries, |limits| {
            let mut served = vec![0; phases.len()];
            for course in &self.courses {
                let played = self.stage.play(course, &mut scheduled(self.stage, limits), false);
                for (sum, span) in served.iter_mut().zip(&phases) {
                    *sum += figures::good(course, &played, *span);
                }
            }
            served
        })?;
        for (limits, served) in tries.iter().zip(served) {
            for ((tried, limit), served) in self.tried.iter_mut().zip(limits).zip(served) {
                tried.insert(*limit, served);
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

    /// The longest run of limits as good as the best, around it.
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
