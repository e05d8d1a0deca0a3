//! The workloads: tenants with few calls, and tenants that burst.

use std::time::Duration;

use fastrand::Rng;
use tidegate_sim::scenario::Arrivals;

use crate::trace_lengths::Work;

/// A workload: its tenants, and how long their prompts are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    pub(super) tenants: &'static [TenantLoad],
    /// Minimum and maximum prompt length in tokens. Their logarithms are distributed uniformly.
    prompts: (u32, u32),
    /// The number of engines. The gate reads the metrics of a single one; of several behind a
    /// router it does not.
    pub(super) engines: usize,
    /// Arrivals of the tenants that do not burst. Those of a burst are always paced.
    pub(super) arrivals: Arrivals,
}

/// The calls of one tenant.
#[derive(Clone, Copy, Debug)]
pub(super) struct TenantLoad {
    pub(super) name: &'static str,
    /// Calls per second.
    rate: f64,
    calls: usize,
    start: Duration,
    /// Whether the tenant sends more than its share.
    pub(super) bursts: bool,
}

/// A call of the tenant with the index `tenant`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) at: Duration,
    pub(super) tenant: usize,
    pub(super) work: Work,
}

/// Tokens in each answer of the post.
const OUTPUT: u32 = 128;
/// When the bursts begin.
const BURST: Duration = Duration::from_secs(30);

const fn steady(name: &'static str, rate: f64, calls: usize) -> TenantLoad {
    TenantLoad { name, rate, calls, start: Duration::ZERO, bursts: false }
}

const fn burst(name: &'static str, rate: f64, calls: usize) -> TenantLoad {
    TenantLoad { name, rate, calls, start: BURST, bursts: true }
}

const POST: &[TenantLoad] = &[steady("A", 2.0, 240), burst("B", 30.0, 450), steady("C", 1.0, 120)];
const HALF: &[TenantLoad] = &[steady("A", 1.0, 120), burst("B", 15.0, 225), steady("C", 0.5, 60)];
const LONG: &[TenantLoad] = &[steady("A", 0.5, 60), burst("B", 10.0, 150), steady("C", 0.25, 30)];
const TWO_HEAVY: &[TenantLoad] =
    &[steady("A", 2.0, 240), burst("B", 15.0, 225), steady("C", 1.0, 120), burst("D", 15.0, 225)];
const TEN_LIGHT: &[TenantLoad] = &[
    burst("B", 30.0, 450),
    steady("A0", 0.3, 36),
    steady("A1", 0.3, 36),
    steady("A2", 0.3, 36),
    steady("A3", 0.3, 36),
    steady("A4", 0.3, 36),
    steady("A5", 0.3, 36),
    steady("A6", 0.3, 36),
    steady("A7", 0.3, 36),
    steady("A8", 0.3, 36),
    steady("A9", 0.3, 36),
];

/// The published burst: three tenants, of which B sends 450 calls in 15 s. Then half of it, to a
/// single engine whose metrics the gate reads.
pub(super) const DEFAULT: [Workload; 3] = [
    Workload { name: "paced", tenants: POST, prompts: (512, 512), engines: 2, arrivals: Arrivals::Paced },
    Workload { name: "Poisson", tenants: POST, prompts: (512, 512), engines: 2, arrivals: Arrivals::Poisson },
    Workload {
        name: "one engine, its metrics read",
        tenants: HALF,
        prompts: (512, 512),
        engines: 1,
        arrivals: Arrivals::Poisson,
    },
];

/// Other bursts: prompts of different lengths, many tenants, and two that burst.
pub(super) const MIXED: [Workload; 3] = [
    Workload {
        name: "mixed prompts",
        tenants: LONG,
        prompts: (256, 8_000),
        engines: 2,
        arrivals: Arrivals::Poisson,
    },
    Workload {
        name: "ten light tenants",
        tenants: TEN_LIGHT,
        prompts: (512, 512),
        engines: 2,
        arrivals: Arrivals::Poisson,
    },
    Workload {
        name: "two heavy tenants",
        tenants: TWO_HEAVY,
        prompts: (512, 512),
        engines: 2,
        arrivals: Arrivals::Poisson,
    },
];

impl Workload {
    /// Returns `true` if this is the load of the post, to which its caps apply.
    pub(super) fn is_post(&self) -> bool {
        std::ptr::eq(self.tenants, POST)
    }

    /// Returns the number of calls of the tenants that burst.
    pub(super) fn burst_calls(&self) -> usize {
        self.tenants.iter().filter(|load| load.bursts).map(|load| load.calls).sum()
    }

    /// Draws the calls in order of time.
    pub(super) fn draw(&self, seed: u64) -> Vec<Arrival> {
        let mut rng = Rng::with_seed(seed);
        let mut calls = Vec::new();
        for (tenant, load) in self.tenants.iter().enumerate() {
            let arrivals = if load.bursts { Arrivals::Paced } else { self.arrivals };
            let times = arrivals.draw(&mut rng, load.start, load.rate, load.calls);
            for at in times {
                let (least, most) = (f64::from(self.prompts.0), f64::from(self.prompts.1));
                let prompt = (least * (most / least).powf(rng.f64())) as u32;
                calls.push(Arrival { at, tenant, work: Work { prompt, output: OUTPUT } });
            }
        }
        calls.sort_by_key(|call| (call.at, call.tenant));
        calls
    }
}
