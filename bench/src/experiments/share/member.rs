//! Members: processes with a gate and callers. Each is this program, started again.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use http::{HeaderValue, Request};
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use tidegate::config::{Config, Counting, EngineMetricsPolicy, Share, Target, Tenant};
use tidegate::{Context, Gate, RequestBody};

use super::MEMBER_HEADER;
use crate::Fallible;
use crate::experiments::hot_path::std_now;

/// The body of each call, with about 100 tokens of input.
const BODY: &str = r#"{"model": "m", "max_tokens": 400, "messages": [{"role": "user", "content": "Write a short summary of the following notes for a reader who has not been at the meeting, and who has to decide by tomorrow whether the plan should go on as it is, be changed in one or two places, or be stopped until the open questions are answered. Say first what was decided, then who has to do what, and by when. Leave out what was only mentioned, and do not repeat anything that the reader knows from the agenda."}]}"#;
/// What a member prints before its first call.
const BEGINS: &str = "begins";

/// What a member does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Settings {
    pub(super) url: String,
    /// The name of the share at a local broker or the URL of a Redis server, or `None` if the
    /// process has its cap alone.
    pub(super) share: Option<String>,
    /// Whether nothing is admitted after the end of a lease.
    pub(super) strict: bool,
    pub(super) cap: usize,
    /// The number of the member, which its calls carry.
    pub(super) member: usize,
    /// The weight of its tenant.
    pub(super) weight: f64,
    /// The number of callers that make one call after the other.
    pub(super) callers: usize,
    /// The number of further calls per second, at random times.
    pub(super) rate: f64,
    /// What the provider admits per minute.
    pub(super) rates: Rates,
    /// Time from the start of the process to its first call.
    pub(super) pause: Duration,
}

/// What the provider admits per minute.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Rates {
    pub(super) rpm: Option<u64>,
    pub(super) tpm: Option<u64>,
    /// Whether it counts actual tokens, and not the maximum output.
    pub(super) actual: bool,
}

/// A running member, which is killed when this value is dropped.
pub(super) struct Member {
    child: Child,
    /// The lines that the member has printed, with their times.
    lines: Receiver<(Instant, String)>,
}

impl Member {
    /// Starts a process. The files of its broker are below `directory`.
    pub(super) fn start(settings: &Settings, directory: &Path) -> Fallible<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["share-member", &serde_json::to_string(settings)?])
            .env("XDG_RUNTIME_DIR", directory)
            // The member ends when its input is closed.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or("a member has no output")?);
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).all(|line| sender.send((std_now(), line)).is_ok())
        });
        Ok(Self { child, lines })
    }

    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, such as `STOP`.
    pub(super) fn signal(&self, name: &str) -> Fallible<()> {
        let sent = Command::new("kill").args(["-s", name, &self.process().to_string()]).status()?;
        if sent.success() { Ok(()) } else { Err(format!("a member cannot get the signal {name}").into()) }
    }

    /// Kills the process.
    pub(super) fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until the member begins its first call, and returns when that was.
    pub(super) fn wait_for_begin(&self) -> Fallible<Instant> {
        let (at, line) = self.lines.recv_timeout(Duration::from_secs(10))?;
        if line == BEGINS { Ok(at) } else { Err(format!("a member fails at once: {line}").into()) }
    }

    /// Returns the errors of calls since the last time.
    pub(super) fn failures(&self) -> Vec<String> {
        self.lines.try_iter().map(|(_, line)| line).filter(|line| line != BEGINS).collect()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a member until its standard input is closed.
pub(crate) fn run(settings: &str) -> Fallible<String> {
    let settings: Settings = serde_json::from_str(settings)?;
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    let tenant = Tenant::new().weight(settings.weight);
    let target = Target::new("llm")
        .url(&settings.url)
        .cap(settings.cap)
        .metrics(EngineMetricsPolicy::Off)
        .tenant("tenant", tenant);
    let Rates { rpm, tpm, actual } = settings.rates;
    let target = rpm.into_iter().fold(target, Target::rpm);
    let target = tpm.into_iter().fold(target, Target::tpm);
    let target = if actual { target.counting(Counting::Actual) } else { target };
    let config = Config::builder().target(target);
    let config = match &settings.share {
        Some(url) if url.contains("://") => config.share(Share::redis(url).strict(settings.strict)),
        Some(name) => config.share(Share::local().name(name)),
        None => config,
    };
    let gate = Gate::new(config.build()?)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let settings = Arc::new(settings);
        tokio::time::sleep(settings.pause).await;
        println!("{BEGINS}");
        for _ in 0..settings.callers {
            let (gate, settings) = (gate.clone(), settings.clone());
            tokio::spawn(async move {
                loop {
                    call(&gate, &settings).await;
                }
            });
        }
        if settings.rate > 0.0 {
            loop {
                let pause = -(1.0 - fastrand::f64()).ln() / settings.rate;
                tokio::time::sleep(Duration::from_secs_f64(pause)).await;
                let (gate, settings) = (gate.clone(), settings.clone());
                tokio::spawn(async move { call(&gate, &settings).await });
            }
        }
        std::future::pending().await
    })
}

/// Makes a call, and prints its error if it fails.
async fn call(gate: &Gate, settings: &Settings) {
    let outcome = match gate.client().call(request(settings)).await {
        Ok(response) if response.status().is_success() => {
            response.into_body().collect().await.map(drop).map_err(|error| error.to_string())
        }
        Ok(response) => Err(response.status().to_string()),
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = outcome {
        let _ = writeln!(std::io::stdout().lock(), "{}", error.replace('\n', " "));
        // A caller that fails at once must not use up the processor.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn request(settings: &Settings) -> Request<RequestBody> {
    let mut request = Request::new(RequestBody::from(BODY));
    *request.method_mut() = http::Method::POST;
    // The URL is that of an upstream of this program, so the fallback to `/` is never used.
    *request.uri_mut() = format!("{}/v1/chat/completions", settings.url).parse().unwrap_or_default();
    request.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    request.headers_mut().insert(MEMBER_HEADER, HeaderValue::from(settings.member));
    request.extensions_mut().insert(Context { tenant: Some("tenant".into()), ..Context::default() });
    request
}
