//! A scenario, made ready to be played: how much its servers can take, and what is asked of them on a seed.

use std::time::Duration;

use fastrand::Rng;
use tidegate_sim::engine::EngineConfig;

use super::contender::{Contender, Fixed, Terms};
use super::course::{Course, Played};
use super::play::play;
use super::scenarios::Scenario;
use super::upstream::{Change, Engines, FirstToken, Hosted, Others, Rate, Upstream};
use super::workload::{Habits, Part, Source};
use super::{figures, spread_out};
use crate::Fallible;

/// What users were promised, where a scenario says nothing else, and how long they may wait for it in our queue.
pub(crate) const TERMS: Terms =
    Terms { objective: Duration::from_secs(2), wait: Duration::from_secs(1), ceiling: 256 };

/// What stands upstream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Server {
    Engines { engines: usize, config: EngineConfig },
    Hosted { at_once: usize, rate: Option<Rate>, first_token: FirstToken },
}

/// A stretch of a scenario.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Phase {
    pub(crate) seconds: u64,
    /// Calls that come, as a share of the most that the servers of the beginning can serve in time.
    pub(crate) load: f64,
    pub(crate) habits: Habits,
    /// What changes upstream as it begins. Others' calls are a share, as the load.
    pub(crate) change: Change,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) scenario: Scenario,
    source: Source,
    /// What of a trace is played.
    part: Part,
    /// Calls a second that the servers of the beginning can serve in time, at the best number in flight.
    pub(crate) capacity: f64,
}

/// How the capacity is found: under so many calls a second, measured from one second to another.
const FLOOD: f64 = 40.0;
const MEASURED: (u64, u64) = (100, 400);

/// Numbers in flight that are tried.
pub(crate) const GRID: [usize; 16] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];

impl Stage {
    pub(crate) fn new(scenario: Scenario, part: Part) -> Fallible<Self> {
        let mut stage = Self::with_capacity(scenario, part, 1.0)?;
        stage.capacity = stage.find_capacity()?;
        Ok(stage)
    }

    /// Where it was found before.
    pub(crate) fn with_capacity(scenario: Scenario, part: Part, capacity: f64) -> Fallible<Self> {
        let source = Source::of(scenario.mix)?;
        Ok(Self { scenario, source, part, capacity })
    }

    fn find_capacity(&self) -> Fallible<f64> {
        let until = Duration::from_secs(MEASURED.1);
        let mut rng = Rng::with_seed(1);
        let course = Course {
            seed: 1,
            terms: self.scenario.terms,
            arrivals: self.source.draw(&mut rng, (Duration::ZERO, until), FLOOD, Habits::PLAIN, Part::Whole),
            changes: Vec::new(),
            budget: self.budget(),
            expected_output: self.source.mean_output(),
            until,
        };
        let served = spread_out(&GRID, |limit| {
            let played = play(&course, self.upstream(1).as_mut(), &mut Fixed(*limit), false);
            figures::good(&course, &played, (Duration::from_secs(MEASURED.0), until))
        })?;
        let most = served.into_iter().max().unwrap_or(0);
        if most == 0 {
            return Err(format!("{}: nothing is served in time at any limit", self.scenario.name).into());
        }
        Ok(most as f64 / (MEASURED.1 - MEASURED.0) as f64)
    }

    /// When each phase begins and ends.
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

    /// What is asked, and what changes, on that seed.
    pub(crate) fn course(&self, seed: u64) -> Course {
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
        Course { seed, terms: self.scenario.terms, arrivals, changes, budget, expected_output, until }
    }

    /// What the headers say that the provider takes.
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

    /// Plays a course.
    pub(crate) fn play(&self, course: &Course, contender: &mut dyn Contender, notes: bool) -> Played {
        play(course, self.upstream(course.seed).as_mut(), contender, notes)
    }
}
