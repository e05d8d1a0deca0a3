//! Virtual time instead of workers. The thread of the test runs the runtime in steps, and its own
//! event loop between two steps.

use std::sync::Arc;
use std::time::Duration;

use napi::{Error, Result, Status};
use napi_derive::napi;
use parking_lot::Mutex;
use tidegate::duration;
use tidegate_testing::{VirtualTime, world};
use tokio::time::Instant;

use super::{Port, runtime};

/// Why a step ended.
#[napi]
pub enum Step {
    /// There are results to take.
    Finished = 0,
    /// The end time of the step has come.
    Over = 1,
    /// No timer is set, and nothing happened for a moment of real time.
    Idle = 2,
}

/// Virtual time. While it is entered, the whole process runs on it.
#[napi]
pub struct Clock {
    time: Arc<VirtualTime>,
    seed: u32,
    world: Mutex<Option<u64>>,
}

#[napi]
impl Clock {
    /// Returns a clock. The jitter of backoffs is drawn from the seed.
    #[napi(constructor)]
    pub fn new(seed: u32) -> Result<Self> {
        let time = VirtualTime::new().map_err(|e| Error::from_reason(e.to_string()))?;
        Ok(Self { time: Arc::new(time), seed, world: Mutex::default() })
    }

    /// Switches to virtual time.
    #[napi]
    pub fn enter(&self) -> Result<()> {
        if !runtime::begin_virtual(self.time.clone()) {
            return Err(Error::from_reason("virtual time is in place already: it cannot be nested"));
        }
        fastrand::seed(u64::from(self.seed));
        *self.world.lock() = Some(world::enter(None));
        Ok(())
    }

    /// Switches back to real time. Idempotent.
    #[napi]
    pub fn leave(&self) {
        if let Some(number) = self.world.lock().take() {
            runtime::end_virtual();
            world::leave(number);
        }
    }

    /// Returns the seconds since the clock was created.
    #[napi]
    pub fn time(&self) -> f64 {
        self.time.elapsed().as_secs_f64()
    }

    /// Runs everything that is ready, and advances time when nothing is, until there are results to
    /// take or until `until`, in seconds since the clock was created. Without `until`, the step has
    /// no end time.
    #[napi]
    pub fn step(&self, port: &Port, until: Option<f64>) -> Result<Step> {
        let until = until.map(|seconds| self.moment(seconds)).transpose()?;
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
                    () = runtime::stirred() => {}
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

    /// Returns the instant that many seconds after the clock was created.
    fn moment(&self, seconds: f64) -> Result<Instant> {
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
