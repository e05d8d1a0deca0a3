//! One run: each arrival of a course is a call of its own through the client.

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

use super::server;
use super::watch::watch;
use crate::Fallible;
use crate::experiments::adaptive::course::{Course, Fate, How, Played};
use crate::experiments::adaptive::stage::Server;
use crate::experiments::adaptive::workload::Arrival;
use crate::virtual_time;

/// The time until a rejection is known. As in `adaptive`, and so is [`PATIENCE`], the time after
/// which a caller without a token leaves.
const ROUND_TRIP: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(30);
/// The `max_tokens` of every call.
const MAX_TOKENS: u32 = 4_096;
/// The interval at which a watched gate is printed.
const WATCHED: Duration = Duration::from_secs(5);

/// Plays a course through a gate of the given configuration.
pub(super) fn play(server: &Server, course: &Course, config: &Config, watched: bool) -> Fallible<Played> {
    virtual_time::run(course.seed, async {
        let simulator = Simulator::new(server::config(server))?;
        let bells: Arc<[Notify]> = course.arrivals.iter().map(|_| Notify::new()).collect();
        let below = simulator_transport(&simulator, ROUND_TRIP);
        let gate = Gate::over(config.clone(), Bells { below, bells: bells.clone() }.transport())?;
        let changes = server::change(simulator.clone(), server.clone(), course.changes.clone());
        let changes = tokio::spawn(changes);
        let watcher = watched.then(|| watch(&gate, WATCHED));
        let start = Instant::now();
        let mut callers = tokio::task::JoinSet::new();
        for (number, arrival) in course.arrivals.iter().copied().enumerate() {
            let (client, bells) = (Transport::new(gate.client()), bells.clone());
            callers.spawn(async move {
                sleep_until(start + arrival.at).await;
                (number, ask(client, number, arrival, bells.get(number), start).await)
            });
        }
        let mut fates = callers.join_all().await;
        fates.sort_by_key(|(number, _)| *number);
        let mut fates: Vec<Fate> = fates.into_iter().map(|(_, fate)| fate).collect();
        if let Some(watcher) = watcher {
            watcher.abort();
        }
        changes.await??;
        let stats = simulator.stats();
        // Only the simulator knows when the first token of an answer that does not stream was made.
        for attempt in &stats.attempts {
            let Some(number) = attempt.tenant.parse::<usize>().ok() else { continue };
            let whole = course.arrivals.get(number).is_some_and(|arrival| !arrival.streams);
            if let Some(fate) = fates.get_mut(number).filter(|fate| whole && fate.how == How::Served) {
                fate.first_token = attempt.first_token_s.map(Duration::from_secs_f64).or(fate.first_token);
            }
        }
        let statuses = stats.tenants.values().flat_map(|tenant| &tenant.statuses);
        let rejected = statuses.filter(|(status, _)| matches!(status, 429 | 503)).map(|(_, n)| n).sum();
        let attempts = stats.total_attempts;
        Ok(Played { fates, seconds: Vec::new(), attempts, rejected, notes: Vec::new() })
    })
}

async fn ask(
    client: Transport,
    number: usize,
    arrival: Arrival,
    sent: Option<&Notify>,
    start: Instant,
) -> Fate {
    let mut fate = Fate { how: How::Open, sent: None, first_token: None };
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
            fate.how = How::Left;
            return fate;
        }
    };
    let (mut body, mut frame) = match begun {
        Err(_) => {
            fate.how = How::TimedOut;
            return fate;
        }
        Ok(Err(error)) => {
            fate.how = if error.kind().reason().is_some() { How::Refused } else { How::Broken };
            return fate;
        }
        Ok(Ok((status, ..))) if !status.is_success() => {
            fate.how = How::TurnedAway;
            return fate;
        }
        Ok(Ok((_, body, first))) => (body, first),
    };
    fate.first_token = Some(start.elapsed());
    fate.how = How::Broken;
    let mut whole = !arrival.streams;
    while let Some(next) = frame {
        let Ok(next) = next else { return fate };
        whole |= next.data_ref().is_some_and(|data| data.ends_with(b"data: [DONE]\n\n"));
        frame = body.frame().await;
    }
    if whole {
        fate.how = How::Served;
    }
    fate
}

/// A transport that notifies each call's caller when the call is sent, because some callers leave
/// soon after.
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
