//! Draws a random configuration, in which each policy is either used or not.

use std::time::Duration;

use fastrand::Rng;
use tidegate::config::{Counting, LaneConfig, LimitConfig, Predict, RateConfig, TargetConfig, TenantConfig};

pub(super) const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) target: TargetConfig,
    /// The number of tenants that make calls. They are the first of [`NAMES`], and the last one is
    /// not configured.
    pub(super) tenants: usize,
    /// The number of events, per ten thousand, in which the upstream answers 429 with Retry-After.
    pub(super) trouble: u32,
    /// The tokens of the largest call.
    pub(super) largest: u64,
}

impl Scene {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let tenants = rng.usize(2..=NAMES.len());
        let largest = 1u64 << rng.u32(9..=13);
        let maybe = |rng: &mut Rng, value: u64| rng.bool().then_some(value);
        let mut target = TargetConfig { limit: LimitConfig::Fixed, ..TargetConfig::new("bench") };
        // Half of the scenes have more slots than needed, so that other rules bind.
        target.cap = if rng.bool() { rng.usize(1..=12) } else { rng.usize(20..=60) };
        target.queue = rng.usize(5..=40);
        target.backlog = rng.usize(20..=120);
        target.aging = Duration::from_millis(rng.choice([0, 300, 2_000, 8_000]).unwrap_or(0));
        target.short_bias = rng.bool().then(|| Duration::from_millis(rng.u64(10..=2_000)));
        target.reclaim = rng.bool();
        target.predict = if rng.bool() { Predict::Off } else { Predict::Deadline };
        // A budget of a few of the largest calls per second, or less.
        let rate = largest * rng.u64(10..=300);
        let requests = rng.u64(40..=500);
        target.rates = RateConfig {
            rpm: maybe(rng, requests),
            tpm: maybe(rng, rate),
            itpm: maybe(rng, rate),
            otpm: maybe(rng, rate / 2),
            burst: Duration::from_millis(rng.u64(500..=6_000)),
            counting: rng
                .choice([Counting::Sum, Counting::Larger, Counting::Actual, Counting::Input])
                .unwrap_or(Counting::Sum),
            ..RateConfig::default()
        };
        target.kv_tokens = rng.bool().then(|| largest * rng.u64(1..=4));
        for lane in &mut target.lanes {
            let queue = rng.bool().then(|| rng.usize(10..=60));
            *lane = LaneConfig {
                floor: rng.choice([0.0, 0.0, 0.1, 0.2]).unwrap_or(0.0),
                queue,
                ..LaneConfig::default()
            };
        }
        for name in NAMES.iter().take(tenants - 1) {
            let config = TenantConfig {
                weight: rng.choice([0.5, 1.0, 2.0, 4.0]).unwrap_or(1.0),
                cap: rng.bool().then(|| rng.usize(1..=target.cap)),
                queue: rng.bool().then(|| rng.usize(5..=30)),
                floor: rng.choice([0.0, 0.0, 0.05, 0.08]).unwrap_or(0.0),
                tpm: maybe(rng, rate / 2),
                shed: rng.bool(),
            };
            target.tenants.insert((*name).into(), config);
        }
        if rng.u8(..4) == 0 {
            target.default_tenant.tpm = Some(rate / 4);
        }
        let trouble = if rng.u8(..3) == 0 { rng.u32(20..=100) } else { 0 };
        Self { target, tenants, trouble, largest }
    }
}
