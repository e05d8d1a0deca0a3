//! Where a pool's replicas are named, and what was last heard from there.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::dns::{Dns, Resolve};
use super::file::{self, Found};
use crate::admission::Admission;
use crate::config;
use crate::placement::{MOST, Member};

/// Something to look at.
pub(super) struct Source {
    name: Arc<str>,
    place: Place,
    every: Duration,
    heard: Mutex<Heard>,
}

enum Place {
    Dns(Dns),
    File(PathBuf),
}

/// What was heard.
#[derive(Default)]
struct Heard {
    /// A file's contents.
    text: Option<String>,
    members: Option<Vec<Member>>,
    /// Why the last look told nothing. What was known before holds.
    problem: Option<String>,
    /// Whether it was said that there are more replicas than a pool takes.
    too_many: bool,
}

impl Source {
    /// `None` where there is nothing to look at.
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

    pub(super) fn every(&self) -> Duration {
        self.every
    }

    /// What can be known before the first call: a file is read at once, a name only once somebody wants to go there.
    pub(super) fn open(&self, admission: &Arc<Admission>) {
        if let Place::File(path) = &self.place {
            let told = file::read(path).and_then(|text| self.says(text));
            self.hear(admission, told);
        }
    }

    /// One look.
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

    /// What a file's new text says. Read once, whatever it says: one that cannot be understood is not understood better the next time.
    fn says(&self, text: String) -> Result<Option<Vec<Member>>, String> {
        let Place::File(path) = &self.place else { return Ok(None) };
        let told = file::members(path, &text);
        self.heard.lock().text = Some(text);
        told.map(Some)
    }

    /// Takes in what a look told.
    pub(super) fn take(&self, admission: &Arc<Admission>, look: Look) {
        self.hear(admission, look.0);
    }

    fn hear(&self, admission: &Arc<Admission>, told: Result<Option<Vec<Member>>, String>) {
        let members = {
            let mut heard = self.heard.lock();
            match told {
                // A text that was not understood is still there.
                Ok(None) => return,
                Ok(Some(mut members)) => {
                    heard.problem = None;
                    if members.len() > MOST && !heard.too_many {
                        tracing::warn!(target = %self.name, named = members.len(), "the first {MOST} replicas are taken");
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
                        tracing::warn!(target = %self.name, %problem, "the pool's replicas stay what they were");
                        heard.problem = Some(problem);
                    }
                    return;
                }
            }
        };
        tracing::debug!(target = %self.name, replicas = members.len(), "the pool's replicas changed");
        admission.set_members(&members);
    }

    /// Why it is not known what there is now.
    pub(super) fn problem(&self) -> Option<String> {
        self.heard.lock().problem.clone()
    }
}

/// What a look told; nothing, where it is what was known.
pub(super) struct Look(Result<Option<Vec<Member>>, String>);
