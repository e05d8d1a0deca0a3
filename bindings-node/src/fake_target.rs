//! The fake target, which replaces model servers in tests that are written in JavaScript.

use napi::{Error, Result};
use napi_derive::napi;
use tidegate_bindings::{FakeTargetHandle, to_json};
use tidegate_testing::replaced_network;

use crate::bridge::runtime;
use crate::errors::argument_error;

/// Returns `true` if an installed fake target replaces the network, and with it the callers' own
/// fetches.
#[napi]
pub fn is_network_faked() -> bool {
    replaced_network::is_faked()
}

/// A target for tests that answers calls from a script. While it is installed, all gates send their
/// calls to it instead of the network.
#[napi]
pub struct FakeTarget(FakeTargetHandle);

#[napi]
impl FakeTarget {
    /// Creates a target that is not installed yet. `script` is a JSON text with the answers that
    /// the target gives.
    #[napi(constructor)]
    pub fn new(script: String) -> Result<Self> {
        FakeTargetHandle::new(&script).map(Self).map_err(argument_error)
    }

    /// Replaces the script by another one in JSON. Later calls are answered from the new script.
    #[napi]
    pub fn set_script(&self, script: String) -> Result<()> {
        self.0.set_script(&script).map_err(argument_error)
    }

    /// Installs the target: it replaces the network for each gate of the process, existing or new.
    ///
    /// # Errors
    ///
    /// If the target is installed already.
    #[napi]
    pub fn install(&self) -> Result<()> {
        if self.0.install(runtime::now()) {
            Ok(())
        } else {
            Err(Error::from_reason("this fake target is installed already: uninstall it first"))
        }
    }

    /// Uninstalls the target, so that gates use the network again. Idempotent.
    #[napi]
    pub fn uninstall(&self) {
        self.0.uninstall();
    }

    /// Sets the moment from which the times of later attempts are counted to now. Before, they are
    /// counted from the installation.
    #[napi]
    pub fn reset_start_time(&self) {
        self.0.target().start(runtime::now());
    }

    /// Returns the attempts that the target has received so far, as a JSON list.
    #[napi]
    pub fn attempts(&self) -> Result<String> {
        runtime::finish_dropped_work();
        to_json(&self.0.target().attempts()).map_err(argument_error)
    }

    /// The number of attempts that are in flight now.
    #[napi(getter)]
    pub fn in_flight(&self) -> u32 {
        runtime::finish_dropped_work();
        u32::try_from(self.0.target().in_flight()).unwrap_or(u32::MAX)
    }

    /// The maximum number of attempts that were in flight at the same time since the target was
    /// created.
    #[napi(getter)]
    pub fn max_in_flight(&self) -> u32 {
        u32::try_from(self.0.target().max_in_flight()).unwrap_or(u32::MAX)
    }

    /// One line for each request for which the script had no answer, with the reason.
    #[napi(getter)]
    pub fn unmatched(&self) -> Vec<String> {
        self.0.target().unmatched()
    }
}
