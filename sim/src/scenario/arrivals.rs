//! Draws the arrival times of calls: at equal distances, or as a Poisson process.

use std::time::Duration;

use fastrand::Rng;

/// How the arrival times of calls are drawn for a given mean rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// One arrival every `1 / rate` seconds, as from a load generator with a timer. Only the time
    /// of the first arrival is random, from 0 to `1 / rate` after the start.
    Paced,
    /// A Poisson process: the gaps between arrivals are independent and exponentially distributed.
    Poisson,
}

impl Arrivals {
    /// Draws `count` arrival times in ascending order, at a mean rate of `per_second` calls per
    /// second, from `start` on.
    pub fn draw(self, rng: &mut Rng, start: Duration, per_second: f64, count: usize) -> Vec<Duration> {
        let gap = 1.0 / per_second;
        let mut at = start.as_secs_f64() + if self == Self::Paced { gap * rng.f64() } else { 0.0 };
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            // 1 - f64() is in (0, 1], so the logarithm is finite.
            if self == Self::Poisson {
                at += -(1.0 - rng.f64()).ln() * gap;
            }
            times.push(Duration::from_secs_f64(at));
            if self == Self::Paced {
                at += gap;
            }
        }
        times
    }
}
