//! Simulated time over tokio's clock.

use std::time::Duration;

use tokio::time::Instant;

/// Maps tokio's clock, real or paused, to simulated time and back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SimClock {
    epoch: Instant,
    scale: f64,
}

impl SimClock {
    pub(super) fn new(scale: f64) -> Self {
        Self { epoch: Instant::now(), scale }
    }

    /// Simulated time since the simulator was made.
    pub(crate) fn now(&self) -> Duration {
        let passed = self.epoch.elapsed();
        // Exact where it can be: floating point would lose nanoseconds.
        if self.scale == 1.0 { passed } else { scaled(passed, self.scale) }
    }

    /// When `time` comes on tokio's clock.
    pub(super) fn instant(&self, time: Duration) -> Instant {
        let after = self.client(time);
        // Far enough to be "never", near enough for the timer.
        self.epoch + after.min(Duration::from_secs(86_400 * 365))
    }

    /// A span of simulated time as the client's clock measures it.
    pub(crate) fn client(&self, span: Duration) -> Duration {
        if self.scale == 1.0 { span } else { scaled(span, 1.0 / self.scale) }
    }
}

fn scaled(span: Duration, by: f64) -> Duration {
    Duration::try_from_secs_f64(span.as_secs_f64() * by).unwrap_or(Duration::MAX)
}
