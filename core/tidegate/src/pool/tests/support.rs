//! Test support: a pool with its replica monitor, a scripted transport and a scripted resolver.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use parking_lot::Mutex;
use tower::service_fn;

use crate::admission::{Admission, BudgetSet};
use crate::body::{RequestBody, ResponseBody};
use crate::clock::now;
use crate::config::{PoolConfig, RateConfig, ReplicaSource, TargetConfig};
use crate::error::Error;
use crate::placement::ReplicaState;
use crate::pool::dns::{Addresses, Resolve};
use crate::pool::replica_monitor::ReplicaMonitor;
use crate::schedule::SchedulerSettings;
use crate::transport::Transport;

pub(super) fn transport<F>(
    answer: impl Fn(Request<RequestBody>) -> F + Clone + Send + Sync + 'static,
) -> Transport
where
    F: Future<Output = Result<Response<ResponseBody>, Error>> + Send + 'static,
{
    Transport::new(service_fn(answer))
}

/// Returns a transport to replicas that answer every request with an empty 200 response.
pub(super) fn well() -> Transport {
    transport(|_| async { Ok(Response::new(ResponseBody::full(""))) })
}

/// A resolver that returns scripted results in order, and repeats the last one.
pub(super) struct Script {
    answers: Mutex<VecDeque<Result<Vec<IpAddr>, &'static str>>>,
    pub(super) asked: AtomicUsize,
}

impl Script {
    pub(super) fn of<const N: usize>(answers: [Result<&[&str], &'static str>; N]) -> Arc<Self> {
        let parse = |all: &[&str]| all.iter().map(|address| address.parse().unwrap()).collect();
        let answers = answers.into_iter().map(|answer| answer.map(parse)).collect();
        Arc::new(Self { answers: Mutex::new(answers), asked: AtomicUsize::new(0) })
    }

    pub(super) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Resolve for Script {
    fn addresses(&self, host: &str) -> Addresses {
        assert_eq!(host, "vllm.svc");
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mut answers = self.answers.lock();
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        Box::pin(async move { answer.unwrap().map_err(io::Error::other) })
    }
}

/// A pool under test: its admission control and its replica monitor.
pub(super) struct PoolFixture {
    pub(super) admission: Arc<Admission>,
    pub(super) checker: ReplicaMonitor,
}

impl PoolFixture {
    pub(super) fn new(source: ReplicaSource, transport: Transport, resolve: Arc<dyn Resolve>) -> Self {
        let pool = PoolConfig { source, ..PoolConfig::default() };
        let target = TargetConfig { pool: Some(pool.clone()), ..TargetConfig::new("llama") };
        let budgets = BudgetSet::new(&RateConfig::default(), now());
        let admission =
            Admission::new(target.name.clone(), &SchedulerSettings::from(&target), budgets, None, "");
        let checker = ReplicaMonitor::resolving(&admission, &pool, transport, None, resolve);
        Self { admission, checker }
    }

    pub(super) fn of_file(path: &std::path::Path) -> Self {
        let source = ReplicaSource::File { path: path.to_owned(), every: Duration::from_secs(1) };
        Self::new(source, well(), Script::of([Err("nobody asks")]))
    }

    pub(super) fn of_dns(script: &Arc<Script>) -> Self {
        let source = ReplicaSource::Dns { url: "http://vllm.svc:8000".into(), every: Duration::from_secs(5) };
        Self::new(source, well(), script.clone())
    }

    /// Returns `host:port` of each replica that is not draining.
    pub(super) fn replicas(&self) -> Vec<String> {
        let present =
            self.admission.replicas().into_iter().filter(|view| view.state != ReplicaState::Draining);
        present.map(|view| view.url.trim_start_matches("http://").to_owned()).collect()
    }
}

pub(super) async fn pass(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}

/// A temporary folder that is removed when dropped.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("tidegate-pool-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
