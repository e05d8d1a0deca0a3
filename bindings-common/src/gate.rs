//! Queries to a gate, and the replicas that the host's program sets.

use std::collections::BTreeMap;

use http::Uri;
use parking_lot::Mutex;
use serde_json::Value;
use tidegate::config::Mode;
use tidegate::{Error, Gate};

use crate::request::malformed;

/// Returns the name of a mode, as in the configuration.
pub fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Observe => "observe",
        Mode::Off => "off",
    }
}

/// Returns the name of the target that receives a request to this URL, for this model. `None` if no
/// target does.
///
/// # Errors
///
/// If the URL is malformed. The message does not contain the URL, which may hold a key.
pub fn target_for(gate: &Gate, url: &str, model: Option<&str>) -> Result<Option<String>, Error> {
    let uri: Uri = url.parse().map_err(|error| malformed("URL", &error))?;
    Ok(gate.target_for(&uri, model)?.map(|name| name.to_string()))
}

/// The replicas that the host's program has set, by target. A gate that is opened again gets them
/// too.
#[derive(Default)]
pub struct DynamicReplicas(Mutex<BTreeMap<String, Value>>);

impl DynamicReplicas {
    /// Remembers the replicas that a target has got.
    pub fn remember(&self, target: String, replicas: Value) {
        self.0.lock().insert(target, replicas);
    }

    /// Sets the remembered replicas of each target of a new gate.
    ///
    /// # Errors
    ///
    /// If a list is invalid.
    pub fn restore(&self, gate: &Gate) -> Result<(), Error> {
        let replicas = self.0.lock().clone();
        replicas.iter().try_for_each(|(target, replicas)| gate.set_replicas_json(target, replicas))
    }
}
