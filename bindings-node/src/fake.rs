//! The fake target, as JavaScript's tests hold it.

use napi::{Error, Result, Status};
use napi_derive::napi;
use parking_lot::Mutex;
use tidegate_testing::{Script, world};

use crate::bridge::runtime;

/// A target that answers from a script; in place of the network while it is installed.
#[napi]
pub struct FakeTarget {
    target: tidegate_testing::FakeTarget,
    world: Mutex<Option<u64>>,
}

#[napi]
impl FakeTarget {
    /// The script is JSON.
    #[napi(constructor)]
    pub fn new(script: String) -> Result<Self> {
        let target = tidegate_testing::FakeTarget::new(parsed(&script)?);
        Ok(Self { target, world: Mutex::default() })
    }

    /// Another script from now on, as JSON.
    #[napi]
    pub fn follow(&self, script: String) -> Result<()> {
        self.target.follow(parsed(&script)?);
        Ok(())
    }

    /// Every gate of the process, existing or new, sends to it from now on.
    #[napi]
    pub fn install(&self) -> Result<()> {
        let mut world = self.world.lock();
        if world.is_some() {
            return Err(Error::from_reason("this fake target is installed already"));
        }
        self.target.start(runtime::now());
        *world = Some(world::enter(Some(self.target.transport())));
        Ok(())
    }

    /// The network is back. Idempotent.
    #[napi]
    pub fn uninstall(&self) {
        if let Some(number) = self.world.lock().take() {
            world::leave(number);
        }
    }

    /// Times of attempts count from now.
    #[napi]
    pub fn start(&self) {
        self.target.start(runtime::now());
    }

    /// Every attempt so far, as JSON.
    #[napi]
    pub fn attempts(&self) -> Result<String> {
        runtime::settle();
        serde_json::to_string(&self.target.attempts()).map_err(|e| Error::from_reason(e.to_string()))
    }

    /// How many attempts are in flight.
    #[napi(getter)]
    pub fn in_flight(&self) -> u32 {
        runtime::settle();
        u32::try_from(self.target.in_flight()).unwrap_or(u32::MAX)
    }

    /// The most that were at once.
    #[napi(getter)]
    pub fn max_in_flight(&self) -> u32 {
        u32::try_from(self.target.max_in_flight()).unwrap_or(u32::MAX)
    }

    /// Requests that nothing in the script takes.
    #[napi(getter)]
    pub fn unmatched(&self) -> Vec<String> {
        self.target.unmatched()
    }
}

fn parsed(script: &str) -> Result<Script> {
    serde_json::from_str(script).map_err(|e| Error::new(Status::InvalidArg, format!("script: {e}")))
}
