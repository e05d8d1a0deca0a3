//! A scenario with its measured capacity. The loads of the phases are multiples of this capacity.

use std::time::Duration;

use fastrand::Rng;
use tidegate_sim::engine::EngineConfig;

use super::client::play;
use super::contender::{Contender, Fixed, Terms};
use super::run_records::{RunInputs, RunResult};
use super::scenarios::Scenario;
use super::upstream::{Change, Engines, FirstToken, Hosted, Others, Rate, Upstream};
use super::workload::{Habits, Part, Source};
use super::{figures, spread_out};
use crate::Fallible;

/// The default terms: a first token within 2 s of a call's arrival, at most 1 s in the client's
/// queue, and at most 256 concurrent calls.
pub(crate) const TERMS: Terms =
    Terms { objective: Duration::from_secs(2), wait: Duration::from_secs(1), ceiling: 256 };

/// The upstream of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Server {
    Engines { engines: usize, config: EngineConfig },
    Hosted { at_once: usize, rate: Option<Rate>, first_token: FirstToken },
}

/// A period of a scenario with constant load and capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Phase {
    pub(crate) seconds: u64,
    /// The arrival rate, divided by the rate that the servers of the first phase can serve in time.
    pub(crate) load: f64,
    pub(crate) habits: Habits,
    /// The change of the upstream at the beginning of the phase. The load of other users
    /// ([`Change::Others`]) is a share of the capacity, like `load`.
    pub(crate) change: Change,
}

/// A scenario and its capacity.
#[derive(Debug)]
pub(crate) struct PreparedScenario {
    pub(crate) scenario: Scenario,
    source: Source,
    /// The half of the trace that calls are drawn from.
    part: Part,
    /// Calls per second that the servers of the first phase can serve in time with the best fixed
    /// limit.
    pub(crate) capacity: f64,
}

/// The arrival rate, in calls per second, at which the capacity is measured.
const FLOOD: f64 = 40.0;
/// Start and end of the measurement of the capacity, in seconds since the start of the run.
const MEASURED: (u64, u64) = (100, 400);

/// The fixed limits that the searches for the capacity and for the oracle try first.
pub(crate) const GRID: [usize; 16] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];

impl PreparedScenario {
    pub(crate) fn new(scenario: Scenario, part: Part) -> Fallible<Self> {
        let mut prepared = Self::with_capacity(scenario, part, 1.0)?;
        prepared.capacity = prepared.find_capacity()?;
        Ok(prepared)
    }

    /// Creates a prepared scenario with the given capacity, in calls per second, without measuring
    /// it.
    pub(crate) fn with_capacity(scenario: Scenario, part: Part, capacity: f64) -> Fallible<Self> {
        let source = Source::of(scenario.mix)?;
        Ok(Self { scenario, source, part, capacity })
    }

    fn find_capacity(&self) -> Fallible<f64> {
        let until = Duration::from_secs(MEASURED.1);
        let mut rng = Rng::with_seed(1);
        let inputs = RunInputs {
            seed: 1,
            terms: self.scenario.terms,
            arrivals: self.source.draw(&mut rng, (Duration::ZERO, until), FLOOD, Habits::PLAIN, Part::Whole),
            changes: Vec::new(),
            budget: self.budget(),
            expected_output: self.source.mean_output(),
            until,
        };
        let served = spread_out(&GRID, |limit| {
            let played = play(&inputs, self.upstream(1).as_mut(), &mut Fixed(*limit), false);
            figures::good(&inputs, &played, (Duration::from_secs(MEASURED.0), until))
        })?;
        let most = served.into_iter().max().unwrap_or(0);
        if most == 0 {
            return Err(format!("{}: nothing is served in time at any limit", self.scenario.name).into());
        }
        Ok(most as f64 / (MEASURED.1 - MEASURED.0) as f64)
    }

    /// Returns start and end of each phase since the start of the run.
    pub(crate) fn phases(&self) -> Vec<(Duration, Duration)> {
        let mut from = Duration::ZERO;
        let mut phases = Vec::new();
        for phase in &self.scenario.phases {
            let to = from + Duration::from_secs(phase.seconds);
            phases.push((from, to));
            from = to;
        }
        phases
    }

    /// Draws the calls of a run for a seed. Returns them with the changes of the upstream.
    pub(crate) fn inputs(&self, seed: u64) -> RunInputs {
        let mut rng = Rng::with_seed(seed);
        let phases = self.phases();
        let mut arrivals = Vec::new();
        let mut changes = Vec::new();
        for (phase, span) in self.scenario.phases.iter().zip(&phases) {
            let rate = phase.load * self.capacity;
            arrivals.extend(self.source.draw(&mut rng, *span, rate, phase.habits, self.part));
            match phase.change {
                Change::No => {}
                Change::Others(share) => changes.push((span.0, Change::Others(share * self.capacity))),
                change => changes.push((span.0, change)),
            }
        }
        let until = phases.last().map_or(Duration::ZERO, |(_, to)| *to);
        let (budget, expected_output) = (self.budget(), self.source.mean_output());
        RunInputs { seed, terms: self.scenario.terms, arrivals, changes, budget, expected_output, until }
    }

    /// Returns the tokens per minute that the provider's headers announce, or `None` if they
    /// announce none.
    fn budget(&self) -> Option<f64> {
        match &self.scenario.server {
            Server::Hosted { rate, .. } => rate.map(|rate| rate.per_minute),
            Server::Engines { .. } => None,
        }
    }

    fn upstream(&self, seed: u64) -> Box<dyn Upstream> {
        match &self.scenario.server {
            Server::Engines { engines, config } => {
                Box::new(Engines::new(*engines, config, Others::new(seed)))
            }
            Server::Hosted { at_once, rate, first_token } => {
                Box::new(Hosted::new(*at_once, *rate, *first_token, seed))
            }
        }
    }

    /// Simulates one run with `contender`, and returns its results. If `notes` is `true`, the
    /// results contain the contender's state as a line of text every few seconds
    /// ([`Contender::note`]).
    pub(crate) fn play(&self, inputs: &RunInputs, contender: &mut dyn Contender, notes: bool) -> RunResult {
        play(inputs, self.upstream(inputs.seed).as_mut(), contender, notes)
    }
}
