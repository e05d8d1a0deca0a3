//! Who calls, and when.

use std::time::Duration;

use tidegate_sim::scenario::Arrivals;

/// A, who pays, and B.
pub(super) const TENANTS: usize = 2;

/// From `from` until `until`, so many calls a second of a tenant, as a load generator with independent arrivals sends them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    pub(super) tenant: usize,
    pub(super) from: Duration,
    pub(super) until: Duration,
    pub(super) per_second: f64,
}

/// A load of the post's prompts and answers.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) length: Duration,
    pub(super) phases: Vec<Phase>,
    /// From when until when every step takes how many times as long: somebody else's work on the same machines.
    pub(super) stall: Option<(Duration, Duration, f64)>,
}

impl Load {
    /// So many calls a second of A and of B throughout.
    pub(super) fn steady(length: Duration, per_second: [f64; TENANTS]) -> Self {
        let phase = |(tenant, per_second)| Phase { tenant, from: Duration::ZERO, until: length, per_second };
        Self { length, phases: per_second.into_iter().enumerate().map(phase).collect(), stall: None }
    }

    /// Every arrival in order: when, and whose.
    pub(super) fn draw(&self, seed: u64) -> Vec<(Duration, usize)> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut all = Vec::new();
        for phase in &self.phases {
            let expected = (phase.until - phase.from).as_secs_f64() * phase.per_second;
            // Ten standard deviations more than are expected: what comes after the end is left out.
            let count = (expected + 10.0 * expected.sqrt()) as usize + 10;
            let times = Arrivals::Poisson.draw(&mut rng, phase.from, phase.per_second, count);
            all.extend(times.into_iter().take_while(|&at| at < phase.until).map(|at| (at, phase.tenant)));
        }
        all.sort_unstable();
        all
    }

    /// When the workers' pace changes, and to what.
    pub(super) fn stalls(&self) -> Vec<(Duration, f64)> {
        self.stall.map_or_else(Vec::new, |(from, until, factor)| vec![(from, factor), (until, 1.0)])
    }
}
