//! The fake target, which replaces model servers in tests that are written in the host language
//! (Python or JavaScript).

use parking_lot::Mutex;
use tidegate_testing::{FakeTarget, Script, replaced_network};
use tokio::time::Instant;

use crate::argument::InvalidArgument;

/// A target for tests that answers calls from a script. While it is installed, all gates send their
/// calls to it instead of the network.
pub struct FakeTargetHandle {
    target: FakeTarget,
    world: Mutex<Option<u64>>,
}

impl FakeTargetHandle {
    /// Creates a target that is not installed yet. `script` is a JSON text with the answers that
    /// the target gives.
    ///
    /// # Errors
    ///
    /// If the text is not a valid script.
    pub fn new(script: &str) -> Result<Self, InvalidArgument> {
        Ok(Self { target: FakeTarget::new(parse(script)?), world: Mutex::default() })
    }

    /// Returns the underlying fake target.
    pub fn target(&self) -> &FakeTarget {
        &self.target
    }

    /// Replaces the script by another one in JSON. Later calls are answered from the new script.
    ///
    /// # Errors
    ///
    /// If the text is not a valid script.
    pub fn set_script(&self, script: &str) -> Result<(), InvalidArgument> {
        self.target.follow(parse(script)?);
        Ok(())
    }

    /// Installs the target: it replaces the network for each gate of the process, existing or new.
    /// The times of the recorded attempts are counted from `now`. Returns `true` if the target is
    /// now installed, and `false` without an effect if it was installed already.
    pub fn install(&self, now: Instant) -> bool {
        let mut world = self.world.lock();
        if world.is_some() {
            return false;
        }
        self.target.start(now);
        *world = Some(replaced_network::enter(Some(self.target.transport())));
        true
    }

    /// Restores the network. Has no effect if the target is not installed.
    pub fn uninstall(&self) {
        if let Some(world) = self.world.lock().take() {
            replaced_network::leave(world);
        }
    }
}

fn parse(script: &str) -> Result<Script, InvalidArgument> {
    serde_json::from_str(script).map_err(|error| InvalidArgument(format!("script: {error}")))
}
