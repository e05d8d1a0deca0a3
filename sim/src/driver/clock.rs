//! Simulated time on tokio's clock.

use std::time::Duration;

use tokio::time::Instant;

/// A converter between tokio's clock, real or paused, and simulated time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SimClock {
    epoch: Instant,
    scale: f64,
}

impl SimClock {
    pub(super) fn new(scale: f64) -> Self {
        Self { epoch: Instant::now(), scale }
    }

    /// Returns the simulated time since the simulator was created.
    pub(crate) fn now(&self) -> Duration {
        let passed = self.epoch.elapsed();
        // Converted without floating point if possible, which would lose nanoseconds.
        if self.scale == 1.0 { passed } else { scaled(passed, self.scale) }
    }

    /// Returns the instant of tokio's clock that corresponds to `time`, the simulated time since
    /// the simulator was created.
    pub(super) fn instant(&self, time: Duration) -> Instant {
        let after = self.client(time);
        // A year is far enough to mean never, and near enough for tokio's timer.
        self.epoch + after.min(Duration::from_secs(86_400 * 365))
    }

    /// Converts a duration from simulated time to tokio's clock, on which clients measure.
    pub(crate) fn client(&self, span: Duration) -> Duration {
        if self.scale == 1.0 { span } else { scaled(span, 1.0 / self.scale) }
    }
}

fn scaled(span: Duration, by: f64) -> Duration {
    Duration::try_from_secs_f64(span.as_secs_f64() * by).unwrap_or(Duration::MAX)
}
