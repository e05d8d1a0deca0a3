//! Replica sources: where the replicas of a pool are discovered, and the last result.

use crate::config::ReplicaConfig;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::dns::{Dns, Resolve};
use super::file::{self, Found};
use crate::admission::Admission;
use crate::config;
use crate::placement::MOST;

/// A replica source that is looked up at regular intervals, with the last result.
pub(super) struct Source {
    name: Arc<str>,
    place: Place,
    every: Duration,
    heard: Mutex<Heard>,
}

/// The place where the replicas are listed.
enum Place {
    Dns(Dns),
    File(PathBuf),
}

/// The last result of a source.
#[derive(Default)]
struct Heard {
    /// The contents of the file that was read last, valid or not.
    text: Option<String>,
    members: Option<Vec<ReplicaConfig>>,
    /// Why the last lookup failed. The replicas known before remain in use.
    problem: Option<String>,
    /// Whether a warning about too many replicas has been logged.
    too_many: bool,
}

impl Source {
    /// Creates the source of a pool. Returns `None` if its replicas are listed in the configuration
    /// or set by the program.
    pub(super) fn of(
        name: &Arc<str>,
        source: &config::ReplicaSource,
        resolve: Arc<dyn Resolve>,
    ) -> Option<Self> {
        let (place, every) = match source {
            config::ReplicaSource::Dns { url, every } => (Place::Dns(Dns::new(url, resolve)), *every),
            config::ReplicaSource::File { path, every } => (Place::File(path.clone()), *every),
            config::ReplicaSource::Listed(_) | config::ReplicaSource::Dynamic => return None,
        };
        Some(Self { name: name.clone(), place, every, heard: Mutex::default() })
    }

    /// Returns the interval between lookups.
    pub(super) fn every(&self) -> Duration {
        self.every
    }

    /// Loads the replicas that are available before the first call. A file is read at once; a host
    /// name is resolved when the first call arrives.
    pub(super) fn open(&self, admission: &Arc<Admission>) {
        if let Place::File(path) = &self.place {
            let told = file::read(path).and_then(|text| self.says(text));
            self.hear(admission, told);
        }
    }

    /// Looks up the replicas once.
    pub(super) async fn look(&self) -> Look {
        match &self.place {
            Place::Dns(dns) => Look(dns.look().await.map(Some)),
            Place::File(path) => {
                let last = self.heard.lock().text.clone();
                Look(match file::look(path.clone(), last).await {
                    Ok(Found::Same) => Ok(None),
                    Ok(Found::Text(text)) => self.says(text),
                    Err(problem) => Err(problem),
                })
            }
        }
    }

    /// Parses a file's new text. The text is remembered even if it is invalid, so that it is not
    /// parsed and reported again.
    fn says(&self, text: String) -> Result<Option<Vec<ReplicaConfig>>, String> {
        let Place::File(path) = &self.place else { return Ok(None) };
        let told = file::members(path, &text);
        self.heard.lock().text = Some(text);
        told.map(Some)
    }

    /// Applies the result of a lookup to the pool.
    pub(super) fn take(&self, admission: &Arc<Admission>, look: Look) {
        self.hear(admission, look.0);
    }

    /// Stores the result of a lookup, logs changes and problems, and updates the pool's replicas.
    fn hear(&self, admission: &Arc<Admission>, told: Result<Option<Vec<ReplicaConfig>>, String>) {
        let members = {
            let mut heard = self.heard.lock();
            match told {
                // Unchanged. If the text is invalid, its problem remains.
                Ok(None) => return,
                Ok(Some(mut members)) => {
                    heard.problem = None;
                    if members.len() > MOST && !heard.too_many {
                        tracing::warn!(target = %self.name, named = members.len(), "the pool is larger than {MOST} replicas; only the first {MOST} are used");
                        heard.too_many = true;
                    }
                    members.truncate(MOST);
                    if heard.members.as_ref() == Some(&members) {
                        return;
                    }
                    heard.members = Some(members.clone());
                    members
                }
                Err(problem) => {
                    if heard.problem.as_ref() != Some(&problem) {
                        tracing::warn!(target = %self.name, %problem, "the replicas found before stay in use");
                        heard.problem = Some(problem);
                    }
                    return;
                }
            }
        };
        tracing::debug!(target = %self.name, replicas = members.len(), "the pool's replicas changed");
        admission.set_members(&members);
    }

    /// Returns why the last lookup failed, or `None` if it succeeded.
    pub(super) fn problem(&self) -> Option<String> {
        self.heard.lock().problem.clone()
    }
}

/// The result of a lookup. `None` means that nothing has changed.
pub(super) struct Look(Result<Option<Vec<ReplicaConfig>>, String>);
