//! Functions that query a gate, and the lists of replicas that a program has set.

use std::collections::BTreeMap;

use http::Uri;
use parking_lot::Mutex;
use serde_json::Value;
use tidegate::{Error, Gate};

use crate::request::malformed;

/// Returns the name of the configured target that receives a request to this URL. `model` is the
/// model that the request names; `None` if it names none. Returns `None` if no configured target
/// matches.
///
/// # Errors
///
/// If the URL is malformed. The message does not contain the URL, which may contain a key.
pub fn target_for(gate: &Gate, url: &str, model: Option<&str>) -> Result<Option<String>, Error> {
    let uri: Uri = url.parse().map_err(|error| malformed("URL", &error))?;
    Ok(gate.target_for(&uri, model)?.map(|name| name.to_string()))
}

/// The lists of replicas that a program has set at run time, by the name of the target. If the gate
/// is opened again, for example because a fake target is installed, it gets the same replicas.
#[derive(Default)]
pub struct DynamicReplicas(Mutex<BTreeMap<String, Value>>);

impl DynamicReplicas {
    /// Stores the list of replicas (JSON) that was set for a target. It replaces an earlier list.
    pub fn record(&self, target: String, replicas: Value) {
        self.0.lock().insert(target, replicas);
    }

    /// Sets the stored replicas of each target in a gate that was opened again.
    ///
    /// # Errors
    ///
    /// If the gate rejects a list of replicas.
    pub fn restore(&self, gate: &Gate) -> Result<(), Error> {
        let replicas = self.0.lock().clone();
        replicas.iter().try_for_each(|(target, replicas)| gate.set_replicas_json(target, replicas))
    }
}
