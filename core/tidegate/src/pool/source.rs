//! Where the replicas of a pool are discovered (DNS or a file), and the result of the latest
//! lookup.

use crate::config::ReplicaConfig;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::dns::{Dns, Resolve};
use super::file;
use crate::admission::Admission;
use crate::config;
use crate::placement::MAX_REPLICAS;

/// The result of a lookup: the replicas, `Ok(None)` if nothing has changed, or the reason why the
/// lookup failed.
pub(super) type Lookup = Result<Option<Vec<ReplicaConfig>>, String>;

/// A source of replicas that is looked up at regular intervals, with the result of the latest
/// lookup.
pub(super) struct Source {
    /// Name of the target, for log messages.
    name: Arc<str>,
    listed_in: ListedIn,
    /// Time between two lookups.
    pub(super) interval: Duration,
    last: Mutex<LastLookup>,
}

/// The place that lists the replicas.
enum ListedIn {
    Dns(Dns),
    File(PathBuf),
}

/// What the latest lookups have found.
#[derive(Default)]
struct LastLookup {
    /// The latest text of the file, valid or not. `None` before the first read, and for DNS.
    text: Option<String>,
    /// The replicas that the latest successful lookup found. `None` before the first one.
    members: Option<Vec<ReplicaConfig>>,
    /// Why the latest lookup failed. `None` if it succeeded.
    problem: Option<String>,
    /// `true` once a warning about too many replicas has been logged.
    too_many: bool,
}

impl Source {
    /// Creates the source of a pool. Returns `None` if the replicas are listed in the configuration
    /// or set by the program.
    pub(super) fn of(
        name: &Arc<str>,
        source: &config::ReplicaSource,
        resolve: Arc<dyn Resolve>,
    ) -> Option<Self> {
        let (listed_in, interval) = match source {
            config::ReplicaSource::Dns { url, every } => (ListedIn::Dns(Dns::new(url, resolve)), *every),
            config::ReplicaSource::File { path, every } => (ListedIn::File(path.clone()), *every),
            config::ReplicaSource::Listed(_) | config::ReplicaSource::Dynamic => return None,
        };
        Some(Self { name: name.clone(), listed_in, interval, last: Mutex::default() })
    }

    /// Reads the replicas if they are listed in a file. Does nothing for a host name, which is
    /// looked up when the first call arrives.
    pub(super) fn open(&self, admission: &Arc<Admission>) {
        if let ListedIn::File(path) = &self.listed_in {
            let result = file::read(path).and_then(|text| self.parse(text));
            self.apply(admission, result);
        }
    }

    /// Looks up the replicas once, and returns the result without storing it ([`Source::apply`]).
    pub(super) async fn look_up(&self) -> Lookup {
        match &self.listed_in {
            ListedIn::Dns(dns) => dns.look_up().await.map(Some),
            ListedIn::File(path) => {
                let text = self.last.lock().text.clone();
                // The same text must be read again after a failure, to end the problem.
                let found = file::look_up(path.clone(), text).await.inspect_err(|_| {
                    self.last.lock().text = None;
                });
                match found? {
                    Some(text) => self.parse(text),
                    None => Ok(None),
                }
            }
        }
    }

    /// Returns the replicas in `text`, a new text of the file. Also stores the text, even if it is
    /// invalid, so that the same text is not parsed and reported again.
    fn parse(&self, text: String) -> Lookup {
        let ListedIn::File(path) = &self.listed_in else { return Ok(None) };
        let result = file::members(path, &text);
        self.last.lock().text = Some(text);
        result.map(Some)
    }

    /// Stores the result of a lookup, logs changes and problems, and sets the pool's replicas if
    /// they have changed.
    pub(super) fn apply(&self, admission: &Arc<Admission>, result: Lookup) {
        let members = {
            let mut last = self.last.lock();
            match result {
                // Unchanged. If the text is invalid, its problem remains.
                Ok(None) => return,
                Ok(Some(mut members)) => {
                    last.problem = None;
                    if members.len() > MAX_REPLICAS && !last.too_many {
                        tracing::warn!(target = %self.name, named = members.len(), "the pool is larger than {MAX_REPLICAS} replicas; only the first {MAX_REPLICAS} are used");
                        last.too_many = true;
                    }
                    members.truncate(MAX_REPLICAS);
                    if last.members.as_ref() == Some(&members) {
                        return;
                    }
                    last.members = Some(members.clone());
                    members
                }
                Err(problem) => {
                    if last.problem.as_ref() != Some(&problem) {
                        let in_use = match last.members.as_ref().is_none_or(Vec::is_empty) {
                            true => "the pool has no replica",
                            false => "the replicas found before stay in use",
                        };
                        tracing::warn!(target = %self.name, %problem, "{in_use}");
                        last.problem = Some(problem);
                    }
                    return;
                }
            }
        };
        tracing::debug!(target = %self.name, replicas = members.len(), "the pool's replicas changed");
        admission.set_members(&members);
    }

    /// Returns why the latest lookup failed. `None` if it succeeded.
    pub(super) fn problem(&self) -> Option<String> {
        self.last.lock().problem.clone()
    }
}
