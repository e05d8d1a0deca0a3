//! Virtual time for tests. The thread of the test alternately runs a step of the tokio runtime and
//! its own event loop.

use std::sync::Arc;
use std::time::Duration;

use napi::{Error, Result, Status};
use napi_derive::napi;
use parking_lot::Mutex;
use tidegate::duration;
use tidegate_testing::{VirtualTime, replaced_network};
use tokio::time::Instant;

use super::{Port, runtime};

/// How a step of virtual time ended ([`Clock::step`]).
#[napi]
pub enum Step {
    /// The port has results to take.
    Finished = 0,
    /// The end time of the step was reached, and the port has no results.
    Over = 1,
    /// No timer is set, and nothing happened for 50 ms of real time.
    Idle = 2,
}

/// A clock of virtual time. From [`Clock::enter`] to [`Clock::leave`], the native code of the whole
/// process uses the time of this clock.
#[napi]
pub struct Clock {
    time: Arc<VirtualTime>,
    seed: u32,
    world: Mutex<Option<u64>>,
}

#[napi]
impl Clock {
    /// Creates a clock. `seed` determines the random jitter of backoffs.
    #[napi(constructor)]
    pub fn new(seed: u32) -> Result<Self> {
        let time = VirtualTime::new().map_err(|e| Error::from_reason(e.to_string()))?;
        Ok(Self { time: Arc::new(time), seed, world: Mutex::default() })
    }

    /// Switches the process to virtual time.
    ///
    /// # Errors
    ///
    /// If the process is on virtual time already.
    #[napi]
    pub fn enter(&self) -> Result<()> {
        if !runtime::begin_virtual(self.time.clone()) {
            return Err(Error::from_reason(
                "virtual time is installed already and cannot be nested: leave the other clock first",
            ));
        }
        fastrand::seed(u64::from(self.seed));
        *self.world.lock() = Some(replaced_network::enter(None));
        Ok(())
    }

    /// Switches the process back to real time. Idempotent.
    #[napi]
    pub fn leave(&self) {
        if let Some(number) = self.world.lock().take() {
            runtime::end_virtual();
            replaced_network::leave(number);
        }
    }

    /// Returns the virtual seconds since the clock was created.
    #[napi]
    pub fn time(&self) -> f64 {
        self.time.elapsed().as_secs_f64()
    }

    /// Runs all tasks that are ready, and advances virtual time when none is ready. Returns when
    /// the port has results to take, when the time `until` is reached, or when nothing is left to
    /// wait for (see [`Step`]). `until` is in virtual seconds since the clock was created. If it is
    /// undefined, the step has no end time.
    ///
    /// # Errors
    ///
    /// If `until` is not from 0 to ten years.
    #[napi]
    pub fn step(&self, port: &Port, until: Option<f64>) -> Result<Step> {
        let until = until.map(|seconds| self.instant_at(seconds)).transpose()?;
        let over = self.time.run(async {
            let over = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::pin!(over);
            while port.is_idle() {
                tokio::select! {
                    biased;
                    () = runtime::result_pushed() => {}
                    () = &mut over => return true,
                }
            }
            false
        });
        Ok(match over {
            Some(false) => Step::Finished,
            Some(true) => Step::Over,
            None => Step::Idle,
        })
    }

    /// Returns the instant that is `seconds` after the creation of the clock.
    ///
    /// # Errors
    ///
    /// If the number is not from 0 to ten years.
    fn instant_at(&self, seconds: f64) -> Result<Instant> {
        let span = Duration::try_from_secs_f64(seconds).ok().filter(|span| *span <= duration::MAX);
        let moment = span.map(|span| duration::after(self.time.start().into_std(), span).into());
        moment.ok_or_else(|| {
            Error::new(
                Status::InvalidArg,
                format!("{seconds} s is out of range: virtual time ends ten years after its start"),
            )
        })
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.leave();
    }
}
