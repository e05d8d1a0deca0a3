//! Defines workloads: tenants with weights, arrivals, call lengths, and errors of the estimated
//! costs.

use std::time::Duration;

use fastrand::Rng;

use super::Who;
use super::server::Server;
use crate::schedulers::Call;

/// How input and output tokens of a tenant's calls are drawn.
#[derive(Clone, Debug)]
pub(super) enum Lengths {
    /// Log-normal lengths with the given medians, in tokens.
    Around { input: f64, output: f64 },
    /// Pairs of input and output tokens, drawn at random from the list.
    From(std::sync::Arc<[(f64, f64)]>),
}

/// The arrivals of a tenant. `share` is the offered load, as a share of the server's capacity.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arrivals {
    /// All calls arrive at the start, and are more than the server can serve in the run.
    Flood,
    /// Poisson arrivals during the whole run.
    Poisson { share: f64 },
    /// Alternating periods of `phase` seconds each: Poisson arrivals at twice the share, then no
    /// arrivals.
    OnOff { share: f64, phase: f64 },
    /// Poisson arrivals between two times, in seconds since the start.
    Within { share: f64, from: f64, until: f64 },
}

/// How the estimated cost of a call is made: the true cost times a factor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Estimates {
    Exact,
    /// A factor from 0.3 to 3, drawn for each call (uniform in the logarithm).
    Drawn,
    /// The given factor for all calls of the tenant.
    Always(f64),
}

#[derive(Clone, Debug)]
pub(super) struct Tenant {
    pub(super) weight: f64,
    pub(super) lengths: Lengths,
    pub(super) arrivals: Arrivals,
    pub(super) estimates: Estimates,
    /// The maximum number of waiting calls of the tenant. Further calls are rejected.
    pub(super) queue: usize,
}

impl Tenant {
    pub(super) fn new(lengths: Lengths, arrivals: Arrivals) -> Self {
        Self { weight: 1.0, lengths, arrivals, estimates: Estimates::Exact, queue: 1_000_000 }
    }

    pub(super) fn weighs(self, weight: f64) -> Self {
        Self { weight, ..self }
    }

    pub(super) fn estimated(self, estimates: Estimates) -> Self {
        Self { estimates, ..self }
    }

    pub(super) fn queues(self, queue: usize) -> Self {
        Self { queue, ..self }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    pub(super) server: Server,
    pub(super) horizon: Duration,
    pub(super) tenants: Vec<Tenant>,
    /// The index of the light tenant, which asks for a small share of the server and whose queue
    /// wait is a figure. `None` if the workload has none.
    pub(super) light: Option<usize>,
    /// The variant of Tidegate that lacks one feature and has to fail the pass criterion on this
    /// workload, which shows the effect of the feature. `None` if the workload has no such variant.
    pub(super) without: Option<Who>,
}

impl Workload {
    pub(super) fn weights(&self) -> Vec<f64> {
        self.tenants.iter().map(|tenant| tenant.weight).collect()
    }

    pub(super) fn bounds(&self) -> Vec<usize> {
        self.tenants.iter().map(|tenant| tenant.queue).collect()
    }

    /// Draws the calls of a seed, in order of arrival. Calls that arrive at the same moment are in
    /// random order.
    pub(super) fn calls(&self, seed: u64) -> Vec<Call> {
        let mut rng = Rng::with_seed(seed);
        let mut calls: Vec<(u64, Call)> = Vec::new();
        for (number, tenant) in self.tenants.iter().enumerate() {
            let mut rng = rng.fork();
            for (arrives, (input, output)) in self.times(tenant, &mut rng) {
                let factor = match tenant.estimates {
                    Estimates::Exact => 1.0,
                    Estimates::Drawn => (0.3f64.ln() + rng.f64() * 10f64.ln()).exp(),
                    Estimates::Always(factor) => factor,
                };
                let estimate = (input + output) * factor;
                calls.push((rng.u64(..), Call { tenant: number, arrives, input, output, estimate }));
            }
        }
        calls.sort_by_key(|(drawn, call)| (call.arrives, *drawn));
        calls.into_iter().map(|(_, call)| call).collect()
    }

    fn times(&self, tenant: &Tenant, rng: &mut Rng) -> Vec<(Duration, (f64, f64))> {
        let horizon = self.horizon.as_secs_f64();
        let slots = self.server.slots as f64;
        let service = |(input, output)| self.server.service(input, output);
        let mean = (0..2_000).map(|_| service(draw(&tenant.lengths, rng))).sum::<f64>() / 2_000.0;
        // Seconds between two calls that ask for the given share of the slots.
        let pause = |share: f64, rng: &mut Rng| -rng.f64().max(1e-12).ln() * mean / (share * slots);
        let mut all = Vec::new();
        let (mut at, mut work) = (0.0, 0.0);
        loop {
            let lengths = draw(&tenant.lengths, rng);
            work += service(lengths);
            let over = match tenant.arrivals {
                Arrivals::Flood => work > 1.1 * horizon * slots,
                Arrivals::Poisson { share } => {
                    at += pause(share, rng);
                    at > horizon
                }
                Arrivals::Within { share, from, until } => {
                    at = f64::max(at, from) + pause(share, rng);
                    at > until
                }
                Arrivals::OnOff { share, phase } => {
                    at += pause(2.0 * share, rng);
                    if (at / phase) as u64 % 2 == 1 {
                        at = ((at / phase).floor() + 1.0) * phase;
                    }
                    at > horizon
                }
            };
            if over {
                return all;
            }
            all.push((Duration::from_secs_f64(at), lengths));
        }
    }
}

fn draw(lengths: &Lengths, rng: &mut Rng) -> (f64, f64) {
    match lengths {
        Lengths::Around { input, output } => (lognormal(*input, rng), lognormal(*output, rng)),
        Lengths::From(seen) => rng.choice(seen.iter()).copied().unwrap_or((1.0, 1.0)),
    }
}

/// Draws a whole number from a log-normal distribution (sigma 0.5), from 1 to five times `median`.
fn lognormal(median: f64, rng: &mut Rng) -> f64 {
    let normal = (-2.0 * rng.f64().max(1e-12).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos();
    (median * (0.5 * normal).exp()).clamp(1.0, 5.0 * median).round()
}
