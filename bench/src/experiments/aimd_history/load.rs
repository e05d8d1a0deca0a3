//! Who calls, and when.

use std::time::Duration;

use tidegate_sim::scenario::{Arrivals, OUTPUT_TOKENS, PROMPT_TOKENS};

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

/// A call that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Arrival {
    pub(super) at: Duration,
    pub(super) tenant: usize,
    pub(super) prompt: u32,
    pub(super) output: u32,
}

/// A load of the post's prompts and answers.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) length: Duration,
    pub(super) phases: Vec<Phase>,
    /// From when until when every step takes how many times as long: somebody else's work on the same machines.
    pub(super) stall: Option<(Duration, Duration, f64)>,
    /// Tokens of every prompt, and of an answer on average.
    pub(super) tokens: (u32, u32),
}

impl Load {
    /// So many calls a second of A and of B throughout.
    pub(super) fn steady(length: Duration, per_second: [f64; TENANTS]) -> Self {
        let phase = |(tenant, per_second)| Phase { tenant, from: Duration::ZERO, until: length, per_second };
        Self {
            length,
            phases: per_second.into_iter().enumerate().map(phase).collect(),
            stall: None,
            tokens: (PROMPT_TOKENS, OUTPUT_TOKENS),
        }
    }

    /// Every arrival, in order.
    pub(super) fn draw(&self, seed: u64) -> Vec<Arrival> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (prompt, output) = self.tokens;
        // Were all of one length, those that began together would end together for as long as the load lasts, and slots would come free in
        // bursts, as they never do on real workers.
        let outputs = output / 2..=output / 2 * 3;
        let mut all = Vec::new();
        for phase in &self.phases {
            let expected = (phase.until - phase.from).as_secs_f64() * phase.per_second;
            // Ten standard deviations more than are expected: what comes after the end is left out.
            let count = (expected + 10.0 * expected.sqrt()) as usize + 10;
            let times = Arrivals::Poisson.draw(&mut rng, phase.from, phase.per_second, count);
            for at in times.into_iter().take_while(|&at| at < phase.until) {
                all.push(Arrival { at, tenant: phase.tenant, prompt, output: rng.u32(outputs.clone()) });
            }
        }
        all.sort_unstable();
        all
    }

    /// When the workers' pace changes, and to what.
    pub(super) fn stalls(&self) -> Vec<(Duration, f64)> {
        self.stall.map_or_else(Vec::new, |(from, until, factor)| vec![(from, factor), (until, 1.0)])
    }
}
