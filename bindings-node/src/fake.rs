//! The fake target of JavaScript's tests.

use napi::{Error, Result};
use napi_derive::napi;
use tidegate_bindings::{FakeTargetHandle, to_json};

use crate::bridge::runtime;
use crate::failure::invalid;

/// A target that answers from a script, in place of the network while it is installed.
#[napi]
pub struct FakeTarget(FakeTargetHandle);

#[napi]
impl FakeTarget {
    /// Returns a target that follows a script in JSON.
    #[napi(constructor)]
    pub fn new(script: String) -> Result<Self> {
        FakeTargetHandle::new(&script).map(Self).map_err(invalid)
    }

    /// Replaces the script by another one in JSON, from now on.
    #[napi]
    pub fn follow(&self, script: String) -> Result<()> {
        self.0.follow(&script).map_err(invalid)
    }

    /// Receives the calls of each gate of the process, existing or new, from now on.
    #[napi]
    pub fn install(&self) -> Result<()> {
        if self.0.install(runtime::now()) {
            Ok(())
        } else {
            Err(Error::from_reason("this fake target is installed already"))
        }
    }

    /// Restores the network. Idempotent.
    #[napi]
    pub fn uninstall(&self) {
        self.0.uninstall();
    }

    /// Counts the times of attempts from now.
    #[napi]
    pub fn start(&self) {
        self.0.target().start(runtime::now());
    }

    /// Returns all attempts so far, as JSON.
    #[napi]
    pub fn attempts(&self) -> Result<String> {
        runtime::settle();
        to_json(&self.0.target().attempts()).map_err(invalid)
    }

    /// The number of attempts in flight.
    #[napi(getter)]
    pub fn in_flight(&self) -> u32 {
        runtime::settle();
        u32::try_from(self.0.target().in_flight()).unwrap_or(u32::MAX)
    }

    /// The largest number of attempts that were in flight at the same time.
    #[napi(getter)]
    pub fn max_in_flight(&self) -> u32 {
        u32::try_from(self.0.target().max_in_flight()).unwrap_or(u32::MAX)
    }

    /// The requests that no route of the script matches.
    #[napi(getter)]
    pub fn unmatched(&self) -> Vec<String> {
        self.0.target().unmatched()
    }
}
