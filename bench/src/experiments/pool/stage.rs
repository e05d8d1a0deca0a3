//! Workloads at a given share of what the engines can compute.

use std::sync::Arc;

use super::choosers::Oracle;
use super::figures::Figures;
use super::play::{Clients, Fault, Stage, play};
use super::replicas::engine;
use super::roster::{Entry, Role};
use super::workload::{Call, Workload};
use crate::Fallible;
use crate::virtual_time;

/// A workload at a speed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    pub(crate) workload: Workload,
    /// The share of their time in which the engines compute prompts under the oracle.
    pub(crate) load: f64,
    /// How many times as fast as recorded.
    speed: f64,
}

/// The oracle that says how fast a workload is played.
const PACE: Oracle = Oracle { others: 1.0 };
/// A seed that nothing is measured on.
const PACED_ON: u64 = 1_000;

impl Scene {
    /// Finds the speed.
    pub(crate) fn new(workload: Workload, load: f64) -> Fallible<Self> {
        let mut scene = Self { workload, load, speed: 1.0 };
        for _ in 0..4 {
            let calls = workload.draw(PACED_ON, scene.speed)?;
            let clients = Clients { count: 1, sticky: false };
            let stage = Stage {
                engine: &engine(workload),
                calls: &calls,
                clients,
                fault: Fault::None,
                seed: PACED_ON,
            };
            let run = play(&stage, |_| Box::new(Oracle { ..PACE }));
            scene.speed *= load / run.figures().computing.max(1e-3);
        }
        Ok(scene)
    }

    pub(crate) fn name(&self) -> String {
        format!("{} at {:.0} %", self.workload.name(), 100.0 * self.load)
    }

    /// Its calls, of each seed.
    pub(crate) fn calls(&self, seeds: &[u64]) -> Fallible<Vec<(u64, Arc<[Call]>)>> {
        seeds.iter().map(|seed| Ok((*seed, self.workload.draw(*seed, self.speed)?.into()))).collect()
    }

    /// Each entry on each seed, on all cores.
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
