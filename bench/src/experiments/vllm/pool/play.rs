//! Plays a trace through a placement: over real sockets, or over two simulators in virtual time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use http::Request;
use tidegate::{RequestBody, Transport};
use tidegate_sim::Simulator;
use tidegate_sim::engine::EngineConfig;
use tidegate_test_servers::respond;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::super::contender::http;
use super::super::load::{Call, ask};
use super::super::run::Run;
use super::super::runner::{lone_slowness, simulator};
use super::super::server_metrics::{Sample, poll};
use super::REPLICAS;
use super::conversations::Turn;
use super::placement::{BASE, Placement};
use crate::Fallible;

/// Time after the last turn until open calls are cancelled.
const GRACE: Duration = Duration::from_secs(60);

/// The turns of one run, and what distinguishes it from other runs.
#[derive(Clone, Debug)]
pub(super) struct Trace {
    pub(super) turns: Arc<[Turn]>,
    pub(super) lasts: Duration,
    pub(super) seed: u64,
    /// Runs with different nonces share no prefix.
    pub(super) nonce: u64,
}

/// The replicas, as URLs of vLLM servers or as simulators.
pub(super) enum Replicas {
    Vllm(Vec<String>),
    Simulated(Vec<Simulator>),
}

/// The results of one run.
pub(super) struct PoolRun {
    /// The calls, without samples.
    pub(super) calls: Run,
    /// For each replica, its samples, without calls.
    servers: Vec<Run>,
    /// The highest [`Run::slowness`] of the replicas.
    pub(super) slowness: f64,
}

impl PoolRun {
    /// Returns the share of the prompt tokens that were found in a prefix cache, from 0 to 1.
    pub(super) fn hit_rate(&self) -> f64 {
        let grown = |of: fn(&Sample) -> f64| {
            let ends = self.servers.iter().filter_map(|run| run.samples.first().zip(run.samples.last()));
            ends.map(|(first, last)| of(last) - of(first)).sum::<f64>()
        };
        grown(|sample| sample.prefix_hits) / grown(|sample| sample.prefix_queries)
    }
}

impl Replicas {
    /// Starts simulators of `engine` in the current runtime.
    pub(super) fn simulated(engine: &EngineConfig) -> Fallible<Self> {
        Ok(Self::Simulated((0..REPLICAS).map(|_| simulator(engine)).collect::<Fallible<_>>()?))
    }

    pub(super) fn urls(&self) -> Vec<String> {
        match self {
            Replicas::Vllm(urls) => urls.clone(),
            Replicas::Simulated(simulators) => {
                // As with vLLM on this machine, gates read the metrics of all targets.
                (1..=simulators.len()).map(|port| format!("http://localhost:{port}")).collect()
            }
        }
    }

    /// Returns the client of the replicas, without a gate.
    pub(super) fn wire(&self) -> Fallible<Transport> {
        let Replicas::Simulated(simulators) = self else { return http() };
        let routes: Arc<[(String, Simulator)]> =
            self.urls().into_iter().zip(simulators.iter().cloned()).collect();
        Ok(Transport::new(tower::service_fn(move |request: Request<RequestBody>| {
            let routes = routes.clone();
            async move {
                let authority = request.uri().authority().map_or("", |authority| authority.as_str());
                let url = format!("http://{authority}");
                match routes.iter().find(|(route, _)| *route == url) {
                    Some((_, simulator)) => respond(simulator, request).await,
                    None => Err(tidegate::Error::new(tidegate::ErrorKind::Connect, url)),
                }
            }
        })))
    }
}

/// Plays `trace` through `placement`, and returns the results.
pub(super) async fn play(
    replicas: &Replicas,
    engine: &EngineConfig,
    placement: Placement,
    trace: &Trace,
) -> Fallible<PoolRun> {
    let (urls, wire) = (replicas.urls(), replicas.wire()?);
    let lone = || try_join_all(urls.iter().map(|url| lone_slowness(&wire, url, &engine.step)));
    let before = lone().await?;
    let mut samples = vec![Vec::new(); urls.len()];
    let calls = {
        let polls = urls.iter().zip(&mut samples).map(|(url, samples)| poll(&wire, url, None, samples));
        tokio::select! {
            calls = replay(replicas, placement, trace) => calls?,
            _ = join_all(polls) => Vec::new(),
        }
    };
    let after = lone().await?;
    let run = |calls, samples| Run { calls, samples, lasts: trace.lasts.as_secs_f64(), slowness: 1.0 };
    let servers: Vec<Run> = samples.into_iter().map(|samples| run(Vec::new(), samples)).collect();
    let during = servers.iter().filter_map(|run| run.gap_ratio(&engine.step));
    let slowness = before.into_iter().chain(after).chain(during).fold(0.0, f64::max);
    Ok(PoolRun { calls: run(calls, Vec::new()), servers, slowness })
}

/// Makes the calls of `trace` through `placement`, and returns their results in order of their
/// starts, once all have ended.
pub(super) async fn replay(replicas: &Replicas, placement: Placement, trace: &Trace) -> Fallible<Vec<Call>> {
    let wire = match replicas {
        Replicas::Vllm(_) => None,
        Replicas::Simulated(_) => Some(replicas.wire()?),
    };
    let (client, _gate) = placement.client(&replicas.urls(), wire, trace.seed)?;
    let start = Instant::now();
    let end = start + trace.lasts + GRACE;
    let mut calls = JoinSet::new();
    for turn in trace.turns.iter() {
        sleep_until(start + turn.at).await;
        calls.spawn(ask(client.clone(), turn.request(BASE, trace.nonce), start, end));
    }
    let mut calls = calls.join_all().await;
    calls.sort_by_key(|call| call.at);
    Ok(calls)
}
