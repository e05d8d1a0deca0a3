//! Defines the loads: tenants, arrivals and call lengths.

use std::time::Duration;

use tidegate_sim::scenario::{Arrivals, OUTPUT_TOKENS, PROMPT_TOKENS};

/// The number of tenants: A, which pays, and B.
pub(super) const TENANTS: usize = 2;

/// Poisson arrivals of one tenant, at `per_second` calls per second between `from` and `until`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    pub(super) tenant: usize,
    pub(super) from: Duration,
    pub(super) until: Duration,
    pub(super) per_second: f64,
}

/// A call: its arrival time since the start of the run, its tenant, and its lengths in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Arrival {
    pub(super) at: Duration,
    pub(super) tenant: usize,
    pub(super) prompt: u32,
    pub(super) output: u32,
}

/// The arrivals of a run, with the published call lengths.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) length: Duration,
    pub(super) phases: Vec<Phase>,
    /// A slowdown of the workers, as if other work ran on them: its start and its end, since the
    /// start of the run, and the factor by which each engine step takes longer in between. `None`
    /// if the speed is constant.
    pub(super) stall: Option<(Duration, Duration, f64)>,
    /// The prompt tokens of each call, and the mean of its output tokens.
    pub(super) tokens: (u32, u32),
}

impl Load {
    /// Creates a load with constant rates of tenants A and B, in calls per second.
    pub(super) fn steady(length: Duration, per_second: [f64; TENANTS]) -> Self {
        let phase = |(tenant, per_second)| Phase { tenant, from: Duration::ZERO, until: length, per_second };
        Self {
            length,
            phases: per_second.into_iter().enumerate().map(phase).collect(),
            stall: None,
            tokens: (PROMPT_TOKENS, OUTPUT_TOKENS),
        }
    }

    /// Draws all arrivals for a seed, in order of time.
    pub(super) fn draw(&self, seed: u64) -> Vec<Arrival> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (prompt, output) = self.tokens;
        // With equal lengths, calls that begin together would always end together, and slots would
        // become free in bursts, unlike on real workers.
        let outputs = output / 2..=output / 2 * 3;
        let mut all = Vec::new();
        for phase in &self.phases {
            let expected = (phase.until - phase.from).as_secs_f64() * phase.per_second;
            // Ten standard deviations above the mean. Arrivals after the end are dropped.
            let count = (expected + 10.0 * expected.sqrt()) as usize + 10;
            let times = Arrivals::Poisson.draw(&mut rng, phase.from, phase.per_second, count);
            for at in times.into_iter().take_while(|&at| at < phase.until) {
                all.push(Arrival { at, tenant: phase.tenant, prompt, output: rng.u32(outputs.clone()) });
            }
        }
        all.sort_unstable();
        all
    }

    /// Returns the times, since the start of the run, at which the workers' speed changes. Each has
    /// the factor by which an engine step takes longer from then on.
    pub(super) fn stalls(&self) -> Vec<(Duration, f64)> {
        self.stall.map_or_else(Vec::new, |(from, until, factor)| vec![(from, factor), (until, 1.0)])
    }
}
