//! The compared clients: gates with and without a fixed cap, and a client without a gate.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use tidegate::config::{Config, EngineMetricsPolicy, Share, Target, TransportConfig};
use tidegate::transport::Http;
use tidegate::{Gate, RequestBody, Transport};
use tidegate_test_servers::RedisServer;
use tower::{ServiceExt, service_fn};

use super::tenant_rules::TenantRule;
use crate::Fallible;
use crate::retrying_clients::Rule;

/// The name of the gate's target.
pub(super) const TARGET: &str = "vllm";

/// The timeout of a call of the client without a gate, which is the default of the official client.
const STOCK_TIMEOUT: Duration = Duration::from_secs(600);

/// A client of the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Contender {
    /// No gate: the official client's rule for retries.
    Stock,
    /// A gate with the settings that are not `None`, which reads the metrics of the engine or not.
    Gate { cap: Option<usize>, ttft: Option<Duration>, wait: Option<Duration>, metrics: EngineMetricsPolicy },
    /// This many gates, as of several processes. Calls take turns.
    Gates { count: usize, store: Store, ttft: Option<Duration> },
    /// What bounds the calls of tenants.
    Tenants(TenantRule),
}

/// Over what several gates share their limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Store {
    /// They share nothing.
    Off,
    Local,
    /// A Redis server of their own.
    Redis,
}

impl Contender {
    /// A gate without any setting, and so with an adaptive limit.
    pub(super) const DEFAULT: Self =
        Self::Gate { cap: None, ttft: None, wait: None, metrics: EngineMetricsPolicy::Auto };
    /// A gate that reads no metrics.
    pub(super) const WITHOUT_METRICS: Self =
        Self::Gate { cap: None, ttft: None, wait: None, metrics: EngineMetricsPolicy::Off };

    pub(super) const fn ttft(ttft: Duration) -> Self {
        Self::Gate { cap: None, ttft: Some(ttft), wait: None, metrics: EngineMetricsPolicy::Auto }
    }

    /// A fixed cap, which nothing else bounds.
    pub(super) const fn cap(cap: usize) -> Self {
        Self::Gate { cap: Some(cap), ttft: None, wait: None, metrics: EngineMetricsPolicy::Off }
    }

    pub(super) const fn fixed(cap: usize, wait: Duration) -> Self {
        Self::Gate { cap: Some(cap), ttft: None, wait: Some(wait), metrics: EngineMetricsPolicy::Off }
    }

    /// Returns the name in figures and tables.
    pub(super) fn name(&self) -> String {
        let (cap, ttft, wait) = match self {
            Self::Stock => return "no gate, openai's rule".to_owned(),
            Self::Tenants(rule) => return rule.name(),
            Self::Gates { count: 1, .. } => return "one gate".to_owned(),
            Self::Gates { count, store, .. } => {
                let what = match store {
                    Store::Off => "share nothing",
                    Store::Local => "share",
                    Store::Redis => "share over Redis",
                };
                return format!("{count} gates that {what}");
            }
            Self::Gate { cap, ttft, wait, .. } => (cap, ttft, wait),
        };
        let settings: Vec<String> = [
            cap.map(|cap| format!("cap {cap}")),
            ttft.map(|ttft| format!("ttft {} s", ttft.as_secs_f64())),
            wait.map(|wait| format!("wait {} s", wait.as_secs_f64())),
        ]
        .into_iter()
        .flatten()
        .collect();
        match settings.is_empty() {
            true if *self == Self::WITHOUT_METRICS => "metrics off".to_owned(),
            true => "nothing set".to_owned(),
            false => settings.join(", "),
        }
    }

    /// Returns the client of the server at the URL `base`, and its gate, if any. Calls are sent
    /// through `wire`, or, without one, through the built-in HTTP client.
    pub(super) fn client(self, base: &str, wire: Option<Transport>) -> Fallible<(Transport, Option<Gate>)> {
        let (cap, ttft, wait, metrics) = match self {
            Self::Stock => {
                let wire = wire.map_or_else(http, Ok)?;
                return Ok((Rule::openai(STOCK_TIMEOUT).over(wire), None));
            }
            Self::Tenants(rule) => return rule.client(base, wire),
            Self::Gates { count, store, ttft } => return several(count, store, ttft, base),
            Self::Gate { cap, ttft, wait, metrics } => (cap, ttft, wait, metrics),
        };
        let mut target = Target::new(TARGET).url(base).metrics(metrics);
        if let Some(cap) = cap {
            target = target.cap(cap);
        }
        if let Some(ttft) = ttft {
            target = target.ttft(ttft);
        }
        if let Some(wait) = wait {
            target = target.wait(wait);
        }
        let gate = gate(target, wire)?;
        Ok((Transport::new(gate.client()), Some(gate)))
    }
}

/// The number of shares so far, each of which has a name of its own.
static SHARES: AtomicUsize = AtomicUsize::new(0);

/// Returns a client whose calls take turns between `count` gates, and the first gate.
fn several(
    count: usize,
    store: Store,
    ttft: Option<Duration>,
    base: &str,
) -> Fallible<(Transport, Option<Gate>)> {
    let mut target = Target::new(TARGET).url(base);
    if let Some(ttft) = ttft {
        target = target.ttft(ttft);
    }
    let mut config = Config::builder().target(target);
    let server = (store == Store::Redis).then(|| RedisServer::start(&[])).transpose()?;
    if let Some(server) = &server {
        config = config.share(Share::redis(server.url()));
    } else if store == Store::Local {
        let name = format!("bench-{}-{}", std::process::id(), SHARES.fetch_add(1, Ordering::Relaxed));
        config = config.share(Share::local().name(name));
    }
    let config = config.build()?;
    let gates: Vec<Gate> = (0..count).map(|_| Ok(Gate::new(config.clone())?)).collect::<Fallible<_>>()?;
    let first = gates.first().cloned().ok_or("no gates")?;
    let clients: Arc<[_]> = gates.iter().map(Gate::client).collect();
    let turns = Arc::new(AtomicUsize::new(0));
    // The server ends with the client.
    let server = Arc::new(server);
    let client = service_fn(move |request: Request<RequestBody>| {
        let _server = &server;
        let turn = turns.fetch_add(1, Ordering::Relaxed) % clients.len();
        clients[turn].clone().oneshot(request)
    });
    Ok((Transport::new(client), Some(first)))
}

/// Returns a gate for `target` over `wire`, or, without one, over the built-in HTTP client.
pub(super) fn gate(target: Target, wire: Option<Transport>) -> Fallible<Gate> {
    let config = Config::builder().target(target).build()?;
    Ok(wire.map_or_else(|| Gate::new(config.clone()), |wire| Gate::over(config.clone(), wire))?)
}

/// Returns the built-in HTTP client, without a proxy.
pub(super) fn http() -> Fallible<Transport> {
    let connections = TransportConfig { proxy_from_env: false, ..TransportConfig::default() };
    Ok(Transport::new(Http::new(connections)?))
}
