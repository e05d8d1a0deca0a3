//! Reads the metrics of the engines behind targets that are single servers, while calls are made.
//!
//! Nobody configures this, so it happens only where it can do no harm: at servers in a private
//! network, or named by the target's `url`, and then without credentials. Unless a server is both,
//! and calls are sent to it over the gate's own transport, its answers must be those of vLLM first.
//!
//! A target has an [`EngineMonitor`]. Targets with the same server, such as those of several models
//! or credentials, share one [`Engine`], which is polled once for all of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use http::Uri;
use parking_lot::Mutex;
use tidegate_protocol::server::same_server;

use super::poll_task::{Activity, PollTask};
use super::poller::{MetricsAnswer, Poller};
use super::private_host::is_private_host;
use crate::admission::Admission;
use crate::config::{EngineMetricsPolicy, TargetConfig};
use crate::transport::Transport;

/// Mean time from a poll to the next one: 1 s, with a jitter of a fifth.
const INTERVAL: Duration = Duration::from_secs(1);
/// Number of answers without metrics, at the beginning, after which the server is not asked again.
const MAX_FAILURES: u32 = 3;

/// Value of [`Engine::phase`]: an answer must show whether the server is vLLM.
const UNIDENTIFIED: u8 = 0;
/// Value of [`Engine::phase`]: the metrics are read while calls are made.
const READING: u8 = 1;
/// Value of [`Engine::phase`]: the server has no metrics.
const OFF: u8 = 2;

/// The engines of a gate.
pub(crate) struct Engines {
    transport: Transport,
    /// The engines by their base URL.
    known: Mutex<HashMap<String, Weak<Engine>>>,
}

impl Engines {
    /// Creates a set without engines, whose metrics are requested over `transport`.
    pub(crate) fn new(transport: Transport) -> Arc<Self> {
        Arc::new(Self { transport, known: Mutex::default() })
    }

    /// Returns the engine that answers requests to `uri`.
    fn at(&self, uri: &Uri) -> Arc<Engine> {
        let url = base_url(uri);
        let mut known = self.known.lock();
        if let Some(engine) = known.get(&url).and_then(Weak::upgrade) {
            return engine;
        }
        known.retain(|_, engine| engine.strong_count() > 0);
        let engine = Arc::new(Engine {
            server: uri.clone(),
            poller: Poller { transport: self.transport.clone(), health: None, key: None },
            phase: AtomicU8::new(UNIDENTIFIED),
            has_reported: AtomicBool::new(false),
            targets: Mutex::default(),
            task: PollTask::default(),
        });
        known.insert(url, Arc::downgrade(&engine));
        engine
    }
}

/// One server, and the targets whose calls it answers.
struct Engine {
    /// A URL of the server.
    server: Uri,
    poller: Poller,
    /// [`UNIDENTIFIED`], [`READING`] or [`OFF`].
    phase: AtomicU8,
    /// Whether the server has reported its metrics.
    has_reported: AtomicBool,
    targets: Mutex<Vec<Weak<MonitoredTarget>>>,
    task: PollTask,
}

/// A target that gets the metrics of its server.
struct MonitoredTarget {
    admission: Weak<Admission>,
    /// Set to `true` when the engine first reports its metrics, so that the target accounts for its
    /// memory.
    tracks_memory: Arc<AtomicBool>,
    /// `true` if the metrics must not be read for this target, or are of no use to it.
    is_off: AtomicBool,
}

/// Reads the metrics of the server of one target.
pub(crate) struct EngineMonitor {
    target: Arc<MonitoredTarget>,
    /// Whether the target's `url` names the server.
    is_named: bool,
    /// The engines of the gate. Empty until [`EngineMonitor::start`].
    engines: OnceLock<Arc<Engines>>,
    /// The engine of the first call. Empty before that.
    engine: OnceLock<Arc<Engine>>,
}

impl EngineMonitor {
    /// Creates the monitor of a target. Returns `None` if the target is a pool, which reads the
    /// metrics of its replicas, takes no requests, or must not be asked. `tracks_memory` becomes
    /// `true` when the engine reports its metrics.
    pub(crate) fn new(
        config: &TargetConfig,
        admission: &Arc<Admission>,
        tracks_memory: Arc<AtomicBool>,
    ) -> Option<Self> {
        let is_off = config.metrics == EngineMetricsPolicy::Off;
        if is_off || config.pool.is_some() || config.matches.slots_only {
            return None;
        }
        Some(Self {
            target: Arc::new(MonitoredTarget {
                admission: Arc::downgrade(admission),
                tracks_memory,
                is_off: AtomicBool::new(false),
            }),
            is_named: !config.matches.urls.is_empty(),
            engines: OnceLock::new(),
            engine: OnceLock::new(),
        })
    }

    /// Enables the monitor. `engines` are those of the gate.
    pub(crate) fn start(&self, engines: &Arc<Engines>) {
        // A gate starts its targets once, so this never replaces the engines.
        let _ = self.engines.set(engines.clone());
    }

    /// Records that a call is sent to `uri`, over a transport of its own or that of the gate, and
    /// reads the metrics if that is permitted. Returns `true` if the answer is needed to identify
    /// the server: call [`EngineMonitor::on_vllm_answer`] if it is vLLM's.
    pub(crate) fn on_attempt(&self, uri: &Uri, has_own_transport: bool) -> bool {
        if self.target.is_off.load(Ordering::Relaxed) {
            return false;
        }
        let engine = self.engine.get().or_else(|| self.first_engine(uri, has_own_transport));
        // Metrics of one server say little about several.
        let Some(engine) = engine.filter(|engine| engine.serves(uri)) else {
            self.target.is_off.store(true, Ordering::Relaxed);
            return false;
        };
        let phase = engine.phase.load(Ordering::Acquire);
        if phase == READING {
            engine.poll();
        }
        phase == UNIDENTIFIED
    }

    /// Records that an answer has shown that the server is vLLM.
    pub(crate) fn on_vllm_answer(&self) {
        if let Some(engine) = self.engine.get() {
            engine.read();
            engine.poll();
        }
    }

    /// Returns the engine of the first call. Returns `None` if it must not be asked.
    fn first_engine(&self, uri: &Uri, has_own_transport: bool) -> Option<&Arc<Engine>> {
        let engines = self.engines.get()?;
        let is_private = is_private_host(uri);
        if !self.is_named && !is_private {
            return None;
        }
        let engine = self.engine.get_or_init(|| {
            let engine = engines.at(uri);
            engine.targets.lock().push(Arc::downgrade(&self.target));
            engine
        });
        if self.is_named && is_private && !has_own_transport {
            engine.read();
        }
        Some(engine)
    }
}

impl Engine {
    fn serves(&self, uri: &Uri) -> bool {
        same_server(&self.server, uri)
    }

    /// Permits to read the metrics, unless the server is known to have none.
    fn read(&self) {
        let _ = self.phase.compare_exchange(UNIDENTIFIED, READING, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Starts to read the metrics, unless they are being read.
    fn poll(self: &Arc<Self>) {
        self.task.on_call(|activity| run(self.clone(), activity));
    }

    /// Returns the targets that still exist and have no other server, with their admission control.
    fn targets(&self) -> Vec<(Arc<MonitoredTarget>, Arc<Admission>)> {
        let mut targets = self.targets.lock();
        targets.retain(|target| target.strong_count() > 0);
        let existing = |target: &Weak<MonitoredTarget>| {
            let target = target.upgrade().filter(|target| !target.is_off.load(Ordering::Relaxed))?;
            let admission = target.admission.upgrade()?;
            Some((target, admission))
        };
        targets.iter().filter_map(existing).collect()
    }
}

/// Reads the metrics at regular intervals, until no calls are made any more. Gives up if the first
/// answers of the server contain none.
async fn run(engine: Arc<Engine>, mut activity: Activity) {
    let server = base_url(&engine.server);
    let mut failures = 0;
    loop {
        let metrics = engine.poller.metrics(&server).await;
        let targets = engine.targets();
        let is_busy = targets.iter().any(|(_, admission)| admission.is_busy());
        if targets.is_empty() || !activity.continues(is_busy) {
            return;
        }
        match metrics {
            MetricsAnswer::Metrics(metrics) => {
                if !engine.has_reported.swap(true, Ordering::Relaxed) {
                    tracing::info!(%server, "reads the engine's /metrics; set metrics = \"off\" to stop it");
                }
                for (target, admission) in &targets {
                    target.tracks_memory.store(true, Ordering::Relaxed);
                    admission.on_engine_metrics(&metrics);
                }
            }
            MetricsAnswer::NoMetrics if !engine.has_reported.load(Ordering::Relaxed) => failures += 1,
            // A server without an answer may be starting.
            MetricsAnswer::NoMetrics | MetricsAnswer::NoAnswer => {}
        }
        if failures >= MAX_FAILURES {
            return engine.phase.store(OFF, Ordering::Release);
        }
        drop(targets);
        tokio::time::sleep(INTERVAL.mul_f64(0.8 + 0.4 * fastrand::f64())).await;
    }
}

/// Returns the base URL of a server: the scheme, the host and the port of `uri`.
fn base_url(uri: &Uri) -> String {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let host_and_port = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{}://{host_and_port}", uri.scheme_str().unwrap_or("http"))
}
