//! A check of the replicas of a pool on demand: whether each is healthy, and which models it
//! serves.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::poller::Poller;
use crate::placement::{Observation, PollKind, PollRequest, ReplicaView};

/// The state of a pool as [`Gate::check_replicas`](crate::Gate::check_replicas) found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolCheck {
    /// Name of the pool's target.
    pub target: Arc<str>,
    /// Why the replicas could not be looked up. `None` if they were, or if they are listed.
    pub problem: Option<String>,
    /// The replicas, in the order of the configuration.
    pub replicas: Vec<ReplicaCheck>,
}

/// The state of one replica as [`Gate::check_replicas`](crate::Gate::check_replicas) found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaCheck {
    /// Base URL of the replica.
    pub url: Arc<str>,
    /// Why the replica is not healthy. `None` if it answered the health probe, or if the pool's
    /// `health` is none.
    pub problem: Option<&'static str>,
    /// Names of the models that the replica serves, adapters included, or why they are not known.
    pub models: Result<Vec<Arc<str>>, String>,
}

/// Polls the health and the models of each replica once, all at the same time. `probes` is `true`
/// if the pool has health probes.
pub(super) async fn check(
    poller: &Arc<Poller>,
    replicas: Vec<ReplicaView>,
    probes: bool,
) -> Vec<ReplicaCheck> {
    let mut polls = JoinSet::new();
    for (index, ReplicaView { id, url, .. }) in replicas.into_iter().enumerate() {
        let poller = poller.clone();
        polls.spawn(async move {
            let request = |kind| PollRequest { to: id, url: url.clone(), kind };
            let problem = match probes {
                true => health_problem(poller.poll(&request(PollKind::Health)).await),
                false => None,
            };
            let models = match poller.poll(&request(PollKind::Models)).await {
                Some(Observation::Models(models)) => Ok(models.into_iter().map(|model| model.name).collect()),
                Some(Observation::ModelsUnreadable(status)) => Err(poller.models_problem(status)),
                _ => Err("/v1/models: no answer".to_owned()),
            };
            (index, ReplicaCheck { url: url.clone(), problem, models })
        });
    }
    let mut checks = polls.join_all().await;
    checks.sort_by_key(|(index, _)| *index);
    checks.into_iter().map(|(_, check)| check).collect()
}

/// Returns why the replica is not healthy, from the result of a health probe. `None` if it is.
fn health_problem(probe: Option<Observation>) -> Option<&'static str> {
    match probe {
        Some(Observation::ProbeOk) => None,
        Some(Observation::ConnectRefused) => Some("connections are refused"),
        Some(Observation::ProbeFailed) => Some("the health probe is answered with an error"),
        _ => Some("the health probe is not answered"),
    }
}
