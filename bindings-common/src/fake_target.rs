//! The fake target of the host's tests.

use parking_lot::Mutex;
use tidegate_testing::{FakeTarget, Script, world};
use tokio::time::Instant;

use crate::argument::InvalidArgument;

/// A target that answers from a script, in place of the network while it is installed.
pub struct FakeTargetHandle {
    target: FakeTarget,
    world: Mutex<Option<u64>>,
}

impl FakeTargetHandle {
    /// Returns a target that follows a script in JSON.
    ///
    /// # Errors
    ///
    /// If the text is not a script.
    pub fn new(script: &str) -> Result<Self, InvalidArgument> {
        Ok(Self { target: FakeTarget::new(parse(script)?), world: Mutex::default() })
    }

    /// Returns the target.
    pub fn target(&self) -> &FakeTarget {
        &self.target
    }

    /// Replaces the script, from now on.
    ///
    /// # Errors
    ///
    /// If the text is not a script.
    pub fn follow(&self, script: &str) -> Result<(), InvalidArgument> {
        self.target.follow(parse(script)?);
        Ok(())
    }

    /// Receives the calls of each gate of the process, existing or new, from now on. Returns
    /// `false` if the target is installed already.
    pub fn install(&self, now: Instant) -> bool {
        let mut world = self.world.lock();
        if world.is_some() {
            return false;
        }
        self.target.start(now);
        *world = Some(world::enter(Some(self.target.transport())));
        true
    }

    /// Restores the network. Idempotent.
    pub fn uninstall(&self) {
        if let Some(world) = self.world.lock().take() {
            world::leave(world);
        }
    }
}

/// Parses a script in JSON.
fn parse(script: &str) -> Result<Script, InvalidArgument> {
    serde_json::from_str(script).map_err(|error| InvalidArgument(format!("script: {error}")))
}
