//! Settings of `pool`: a workload, at a load that is given as a share of the pool's capacity.

use std::sync::Arc;

use super::chooser_list::{Entry, Role};
use super::choosers::Oracle;
use super::figures::Figures;
use super::replicas::engine;
use super::simulate::{Clients, Fault, RunSetting, play};
use super::workload::{Call, Workload};
use crate::Fallible;
use crate::virtual_time;

/// The seeds, each with its calls.
pub(crate) type Courses = Vec<(u64, Arc<[Call]>)>;

/// A workload at a given load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    pub(crate) workload: Workload,
    /// The load, as a share of the pool's [`capacity`].
    pub(crate) load: f64,
    /// The factor by which the calls arrive faster than recorded or generated.
    speed: f64,
}

/// The weight that the oracle gives to the delay of other calls (see [`Oracle`]) when the capacity
/// is measured.
const PACE: f64 = 2.0;
/// The seed on which the capacity is measured. No reported figures use it.
const PACED_ON: u64 = 1_000;

/// Returns the highest speed of arrivals at which 99 % of the calls have their first token in time
/// under the oracle. The speed is a multiple of the recorded or generated one.
///
/// The engines' utilisation would not show the capacity: at higher speeds, waiting calls find less
/// in the caches, so the engines compute more for the same calls.
pub(crate) fn capacity(workload: Workload) -> Fallible<f64> {
    let (mut slow, mut fast) = (0.5_f64, 16.0_f64);
    for _ in 0..8 {
        let speed = (slow * fast).sqrt();
        let calls = workload.draw(PACED_ON, speed)?;
        let clients = Clients { count: 1, sticky: false };
        let engine = engine(workload);
        let setting =
            RunSetting { engine: &engine, calls: &calls, clients, fault: Fault::None, seed: PACED_ON };
        let run = play(&setting, |_| vec![Box::new(Oracle { others: PACE })]);
        let fits = run.figures().goodput >= 0.99;
        (slow, fast) = if fits { (speed, fast) } else { (slow, speed) };
    }
    Ok(slow)
}

impl Scene {
    /// Creates a workload at `load`, a share of the capacity. `capacity` is the result of the
    /// function [`capacity`] for this workload.
    pub(crate) fn new(workload: Workload, load: f64, capacity: f64) -> Self {
        Self { workload, load, speed: load * capacity }
    }

    /// Returns the name of the workload and its load in figures and tables.
    pub(crate) fn name(&self) -> String {
        format!("{} at {:.0} %", self.workload.name(), 100.0 * self.load)
    }

    /// Draws the calls of each seed.
    pub(crate) fn calls(&self, seeds: &[u64]) -> Fallible<Courses> {
        seeds.iter().map(|seed| Ok((*seed, self.workload.draw(*seed, self.speed)?.into()))).collect()
    }

    /// Simulates each chooser on each seed, on as many threads as there are cores. Returns the
    /// figures of each chooser, one element per seed. Oracles run with one client that makes all
    /// calls.
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
            let setting = RunSetting { engine: &engine, calls, clients, fault, seed: *seed };
            Ok(play(&setting, &entry.make).figures())
        })?;
        Ok(figures.chunks(calls.len().max(1)).map(<[Figures]>::to_vec).collect())
    }
}
