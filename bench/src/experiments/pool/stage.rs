//! Workloads at a given share of the engines' capacity.

use std::sync::Arc;

use super::choosers::Oracle;
use super::figures::Figures;
use super::play::{Clients, Fault, Stage, play};
use super::replicas::engine;
use super::roster::{Entry, Role};
use super::workload::{Call, Workload};
use crate::Fallible;
use crate::virtual_time;

/// The calls of each seed.
pub(crate) type Courses = Vec<(u64, Arc<[Call]>)>;

/// A workload at a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    pub(crate) workload: Workload,
    /// The load as a share of [`capacity`].
    pub(crate) load: f64,
    /// The speed as a multiple of the recorded one.
    speed: f64,
}

/// The weight of the oracle that determines the capacity.
const PACE: f64 = 2.0;
/// The seed that determines the capacity. Nothing is measured on it.
const PACED_ON: u64 = 1_000;

/// Returns the speed, as a multiple of the recorded one, at which the pool is full: the oracle has
/// 99 % of the calls in time, and no more at any higher speed.
///
/// The engines' use would not be a measure: beyond this speed they compute more for the same calls,
/// because waiting calls find less in the caches.
pub(crate) fn capacity(workload: Workload) -> Fallible<f64> {
    let (mut slow, mut fast) = (0.5_f64, 16.0_f64);
    for _ in 0..8 {
        let speed = (slow * fast).sqrt();
        let calls = workload.draw(PACED_ON, speed)?;
        let clients = Clients { count: 1, sticky: false };
        let engine = engine(workload);
        let stage = Stage { engine: &engine, calls: &calls, clients, fault: Fault::None, seed: PACED_ON };
        let run = play(&stage, |_| Box::new(Oracle { others: PACE }));
        let fits = run.figures().goodput >= 0.99;
        (slow, fast) = if fits { (speed, fast) } else { (slow, speed) };
    }
    Ok(slow)
}

impl Scene {
    /// Creates a workload at the given share of the capacity.
    pub(crate) fn new(workload: Workload, load: f64, capacity: f64) -> Self {
        Self { workload, load, speed: load * capacity }
    }

    /// Returns the name in results.
    pub(crate) fn name(&self) -> String {
        format!("{} at {:.0} %", self.workload.name(), 100.0 * self.load)
    }

    /// Returns the calls of each seed.
    pub(crate) fn calls(&self, seeds: &[u64]) -> Fallible<Courses> {
        seeds.iter().map(|seed| Ok((*seed, self.workload.draw(*seed, self.speed)?.into()))).collect()
    }

    /// Plays each chooser on each seed, on all cores.
    pub(crate) fn play(
        &self,
        calls: &[(u64, Arc<[Call]>)],
        clients: Clients,
        fault: Fault,
        entries: &[Entry],
    ) -> Fallible<Vec<Vec<Figures>>> {
        let engine = engine(self.workload);
        let runs = entries.len() * calls.len();
        let figures = virtual_time::each(0..runs as u64, |place| {
            let (Some(entry), Some((seed, calls))) =
                (entries.get(place as usize / calls.len()), calls.get(place as usize % calls.len()))
            else {
                return Err("a run without an entry".into());
            };
            let clients =
                if entry.role == Role::Oracle { Clients { count: 1, sticky: false } } else { clients };
            let stage = Stage { engine: &engine, calls, clients, fault, seed: *seed };
            Ok(play(&stage, &entry.make).figures())
        })?;
        Ok(figures.chunks(calls.len().max(1)).map(<[Figures]>::to_vec).collect())
    }
}
