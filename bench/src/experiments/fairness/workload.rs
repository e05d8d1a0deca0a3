//! What comes: tenants, their weights, how their calls are spread over time, how long they are, and how wrong the estimates of them are.

use std::time::Duration;

use fastrand::Rng;

use super::Who;
use super::server::Server;
use crate::peers::Call;

/// Input and output tokens of a tenant's calls.
#[derive(Clone, Debug)]
pub(super) enum Lengths {
    /// Log-normal around these medians.
    Around { input: f64, output: f64 },
    /// Drawn from these.
    From(std::sync::Arc<[(f64, f64)]>),
}

/// When they come. Shares are of the server's slots.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arrivals {
    /// All at once, in the first moment, and more than could ever be served.
    Flood,
    /// Independent of each other.
    Poisson { share: f64 },
    /// For so many seconds, then not for as many, at twice the share.
    OnOff { share: f64, phase: f64 },
    /// Independent of each other, between two moments.
    Within { share: f64, from: f64, until: f64 },
}

/// How wrong the estimate of a call is: a factor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Estimates {
    Exact,
    /// Between 0.3 and 3, each call by itself.
    Drawn,
    /// The same for all calls of the tenant.
    Always(f64),
}

#[derive(Clone, Debug)]
pub(super) struct Tenant {
    pub(super) weight: f64,
    pub(super) lengths: Lengths,
    pub(super) arrivals: Arrivals,
    pub(super) estimates: Estimates,
    /// The most of its calls that may wait.
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
    /// Whose wait is reported, where somebody is light.
    pub(super) light: Option<usize>,
    /// What this workload is to show the use of: without it, it must fail.
    pub(super) without: Option<Who>,
}

impl Workload {
    pub(super) fn weights(&self) -> Vec<f64> {
        self.tenants.iter().map(|tenant| tenant.weight).collect()
    }

    pub(super) fn bounds(&self) -> Vec<usize> {
        self.tenants.iter().map(|tenant| tenant.queue).collect()
    }

    /// The calls of this seed, in order of arrival; those of one moment in an order that favours nobody.
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
        // Between two calls, where so large a share of the slots is asked for.
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

/// Whole tokens around a median, spread by a factor of 1.6 or so, and cut at five times as many.
fn lognormal(median: f64, rng: &mut Rng) -> f64 {
    let normal = (-2.0 * rng.f64().max(1e-12).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos();
    (median * (0.5 * normal).exp()).clamp(1.0, 5.0 * median).round()
}
