//! Reads the metrics of the engine behind a target that is a single server, while calls are made.
//!
//! Nobody configures this, so it happens only where it can do no harm: at servers in a private
//! network, or named by the target's `url`, and then without credentials. Unless a server is both,
//! and calls are sent to it over the gate's own transport, its answers must be those of vLLM first.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use http::Uri;

use super::poll_task::{Activity, PollTask};
use super::poller::Poller;
use crate::admission::Admission;
use crate::config::{EngineMetricsPolicy, TargetConfig};
use crate::credential::same_server;
use crate::target::Expected;
use crate::transport::Transport;
use tidegate_protocol::is_private_host;

/// Mean time from a poll to the next one: 1 s, with a jitter of a fifth.
const INTERVAL: Duration = Duration::from_secs(1);
/// Number of polls without metrics, at the beginning, after which the server is not asked again.
const MAX_FAILURES: u32 = 3;

/// Value of [`EngineMonitor::phase`]: no call was made yet.
const NEW: u8 = 0;
/// Value of [`EngineMonitor::phase`]: an answer must show whether the server is vLLM.
const UNIDENTIFIED: u8 = 1;
/// Value of [`EngineMonitor::phase`]: the metrics are read while calls are made.
const READING: u8 = 2;
/// Value of [`EngineMonitor::phase`]: the server is not asked.
const OFF: u8 = 3;

/// Reads the metrics of one engine, and passes them to the admission control of its target.
pub(crate) struct EngineMonitor {
    shared: Arc<Shared>,
    /// Whether the target's `url` names the server.
    is_named: bool,
    /// The transport of the gate. Empty until [`EngineMonitor::start`].
    transport: OnceLock<Transport>,
    /// The server of the first call. Empty before that.
    server: OnceLock<Uri>,
    task: PollTask,
}

/// The state that the monitor shares with its task.
struct Shared {
    /// [`NEW`], [`UNIDENTIFIED`], [`READING`] or [`OFF`].
    phase: AtomicU8,
    admission: Weak<Admission>,
    expected: Arc<Expected>,
}

impl EngineMonitor {
    /// Creates the monitor of a target. Returns `None` if the target is a pool, which reads the
    /// metrics of its replicas, takes no requests, or must not be asked.
    pub(crate) fn new(
        config: &TargetConfig,
        admission: &Arc<Admission>,
        expected: &Arc<Expected>,
    ) -> Option<Self> {
        let is_off = config.metrics == EngineMetricsPolicy::Off;
        if is_off || config.pool.is_some() || config.matches.slots_only {
            return None;
        }
        Some(Self {
            shared: Arc::new(Shared {
                phase: AtomicU8::new(NEW),
                admission: Arc::downgrade(admission),
                expected: expected.clone(),
            }),
            is_named: !config.matches.urls.is_empty(),
            transport: OnceLock::new(),
            server: OnceLock::new(),
            task: PollTask::default(),
        })
    }

    /// Enables the monitor, which sends its requests over `transport`.
    pub(crate) fn start(&self, transport: &Transport) {
        // A gate starts its targets once, so this never replaces a transport.
        let _ = self.transport.set(transport.clone());
    }

    /// Records that a call is sent to `uri`, over a transport of its own or that of the gate, and
    /// reads the metrics if that is permitted. Returns `true` if the answer is needed to identify
    /// the server: call [`EngineMonitor::on_vllm_answer`] if it is vLLM's.
    pub(crate) fn on_attempt(&self, uri: &Uri, has_own_transport: bool) -> bool {
        let phase = match self.shared.phase.load(Ordering::Acquire) {
            OFF => return false,
            NEW => self.first_phase(uri, has_own_transport),
            phase => phase,
        };
        if self.server.get().is_none_or(|server| !same_server(server, uri)) {
            // Metrics of one server say little about several.
            self.shared.set_phase(OFF);
            return false;
        }
        if phase == READING {
            self.poll();
        }
        phase == UNIDENTIFIED
    }

    /// Records that an answer has shown that the server is vLLM.
    pub(crate) fn on_vllm_answer(&self) {
        let phase = &self.shared.phase;
        if phase.compare_exchange(UNIDENTIFIED, READING, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.poll();
        }
    }

    fn first_phase(&self, uri: &Uri, has_own_transport: bool) -> u8 {
        let phase = match (self.is_named, is_private_host(uri)) {
            _ if self.transport.get().is_none() => OFF,
            (false, false) => OFF,
            (true, true) if !has_own_transport => READING,
            _ => UNIDENTIFIED,
        };
        let _ = self.server.set(uri.clone());
        self.shared.set_phase(phase);
        phase
    }

    /// Starts to read the metrics, unless they are being read.
    fn poll(&self) {
        let (Some(transport), Some(server)) = (self.transport.get(), self.server.get()) else { return };
        self.task.on_call(|activity| {
            let poller = Poller { transport: transport.clone(), health: None, key: None };
            run(self.shared.clone(), poller, base_url(server), activity)
        });
    }
}

impl Shared {
    fn set_phase(&self, phase: u8) {
        self.phase.store(phase, Ordering::Release);
    }
}

/// Reads the metrics at regular intervals, until no calls are made any more. Gives up if the server
/// never returns any.
async fn run(shared: Arc<Shared>, poller: Poller, server: String, mut activity: Activity) {
    let mut failures = 0;
    loop {
        let metrics = poller.metrics(&server).await;
        let Some(admission) = shared.admission.upgrade() else { return };
        if !activity.continues(admission.is_busy()) || shared.phase.load(Ordering::Acquire) == OFF {
            return;
        }
        match metrics {
            Some(metrics) => {
                if shared.expected.track_memory() {
                    let target = admission.name();
                    tracing::info!(%target, %server, "reads the engine's /metrics; set metrics = \"off\" to stop it");
                }
                admission.on_engine_metrics(&metrics);
            }
            None if shared.expected.tracks_memory() => {}
            None => failures += 1,
        }
        if failures >= MAX_FAILURES {
            return shared.set_phase(OFF);
        }
        drop(admission);
        tokio::time::sleep(INTERVAL.mul_f64(0.8 + 0.4 * fastrand::f64())).await;
    }
}

/// Returns the base URL of a server: the scheme, the host and the port of `uri`.
fn base_url(uri: &Uri) -> String {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let host_and_port = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{}://{host_and_port}", uri.scheme_str().unwrap_or("http"))
}
