//! Simulates one run through the client: each arrival is a call through a gate to the simulator.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request};
use http_body_util::BodyExt;
use tidegate::config::Config;
use tidegate::{Error, Gate, Lane, RequestBody, Transport};
use tidegate_sim::Simulator;
use tidegate_test_servers::simulator_transport;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tower::{ServiceExt, service_fn};

use super::print_limit::watch;
use super::simulator_config;
use crate::Fallible;
use crate::experiments::adaptive::prepared_scenario::Server;
use crate::experiments::adaptive::run_records::{CallOutcome, CallResult, RunInputs, RunResult};
use crate::experiments::adaptive::workload::Arrival;
use crate::virtual_time;

/// The time from sending an attempt until the client receives its rejection, as in `adaptive`.
const ROUND_TRIP: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(30);
/// The `max_tokens` of each call.
const MAX_TOKENS: u32 = 4_096;
/// The interval at which the state of the gate is printed if `watched` is `true`.
const WATCHED: Duration = Duration::from_secs(5);

/// Simulates the calls of `inputs` through a gate with the given configuration, in front of
/// `server`. Returns their results. If `watched` is `true`, prints the state of the gate every 5 s.
pub(super) fn play(
    server: &Server,
    inputs: &RunInputs,
    config: &Config,
    watched: bool,
) -> Fallible<RunResult> {
    virtual_time::run(inputs.seed, async {
        let simulator = Simulator::new(simulator_config::config(server))?;
        let bells: Arc<[Notify]> = inputs.arrivals.iter().map(|_| Notify::new()).collect();
        let below = simulator_transport(&simulator, ROUND_TRIP);
        let gate = Gate::over(config.clone(), Bells { below, bells: bells.clone() }.transport())?;
        let changes = simulator_config::change(simulator.clone(), server.clone(), inputs.changes.clone());
        let changes = tokio::spawn(changes);
        let watcher = watched.then(|| watch(&gate, WATCHED));
        let start = Instant::now();
        let mut callers = tokio::task::JoinSet::new();
        for (number, arrival) in inputs.arrivals.iter().copied().enumerate() {
            let (client, bells) = (Transport::new(gate.client()), bells.clone());
            callers.spawn(async move {
                sleep_until(start + arrival.at).await;
                (number, ask(client, number, arrival, bells.get(number), start).await)
            });
        }
        let mut results = callers.join_all().await;
        results.sort_by_key(|(number, _)| *number);
        let mut results: Vec<CallResult> = results.into_iter().map(|(_, result)| result).collect();
        if let Some(watcher) = watcher {
            watcher.abort();
        }
        changes.await??;
        let stats = simulator.stats();
        // Only the simulator knows when the first token of an answer that does not stream was made.
        for attempt in &stats.attempts {
            let Some(number) = attempt.tenant.parse::<usize>().ok() else { continue };
            let whole = inputs.arrivals.get(number).is_some_and(|arrival| !arrival.streams);
            if let Some(result) =
                results.get_mut(number).filter(|result| whole && result.how == CallOutcome::Served)
            {
                result.first_token =
                    attempt.first_token_s.map(Duration::from_secs_f64).or(result.first_token);
            }
        }
        let statuses = stats.tenants.values().flat_map(|tenant| &tenant.statuses);
        let rejected = statuses.filter(|(status, _)| matches!(status, 429 | 503)).map(|(_, n)| n).sum();
        let attempts = stats.total_attempts;
        Ok(RunResult { results, seconds: Vec::new(), attempts, rejected, notes: Vec::new() })
    })
}

async fn ask(
    client: Transport,
    number: usize,
    arrival: Arrival,
    sent: Option<&Notify>,
    start: Instant,
) -> CallResult {
    let mut result = CallResult { how: CallOutcome::Open, sent: None, first_token: None };
    let mut request = arrival.work.ask("a", Lane::Standard, MAX_TOKENS, arrival.streams);
    // All calls are of one tenant for the gate. In the simulator's statistics each call has a name.
    request.headers_mut().insert("x-tenant", HeaderValue::from(number));
    let begun = timeout_at(Instant::now() + PATIENCE, async {
        let response = client.oneshot(request).await?;
        let status = response.status();
        let mut body = response.into_body();
        let first = body.frame().await;
        Ok::<_, Error>((status, body, first))
    });
    let leaves = async {
        match (arrival.leaves, sent) {
            (Some(after), Some(sent)) => {
                sent.notified().await;
                sleep(after).await;
            }
            _ => std::future::pending().await,
        }
    };
    let begun = tokio::select! {
        begun = begun => begun,
        () = leaves => {
            result.how = CallOutcome::Left;
            return result;
        }
    };
    let (mut body, mut frame) = match begun {
        Err(_) => {
            result.how = CallOutcome::TimedOut;
            return result;
        }
        Ok(Err(error)) => {
            result.how =
                if error.kind().reason().is_some() { CallOutcome::Refused } else { CallOutcome::Broken };
            return result;
        }
        Ok(Ok((status, ..))) if !status.is_success() => {
            result.how = CallOutcome::TurnedAway;
            return result;
        }
        Ok(Ok((_, body, first))) => (body, first),
    };
    result.first_token = Some(start.elapsed());
    result.how = CallOutcome::Broken;
    let mut whole = !arrival.streams;
    while let Some(next) = frame {
        let Ok(next) = next else { return result };
        whole |= next.data_ref().is_some_and(|data| data.ends_with(b"data: [DONE]\n\n"));
        frame = body.frame().await;
    }
    if whole {
        result.how = CallOutcome::Served;
    }
    result
}

/// A transport that notifies a waiting caller task when the gate sends its call upstream. Callers
/// who leave do so some time after that moment.
#[derive(Clone)]
struct Bells {
    below: Transport,
    bells: Arc<[Notify]>,
}

impl Bells {
    fn transport(self) -> Transport {
        Transport::new(service_fn(move |request: Request<RequestBody>| {
            let number = request.headers().get("x-tenant").and_then(|name| name.to_str().ok()?.parse().ok());
            if let Some(bell) = number.and_then(|number: usize| self.bells.get(number)) {
                bell.notify_one();
            }
            self.below.clone().oneshot(request)
        }))
    }
}
