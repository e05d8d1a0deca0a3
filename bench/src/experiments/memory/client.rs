//! The client process of `memory`: opens streams, and prints the resident memory per stream.

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use tidegate::config::{Config, Target, Transport as Connections};
use tidegate::{Gate, RequestBody};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::server::EVENTS;
use crate::Fallible;
use crate::client_call::Ask;

/// The number of streams that are opened and closed before the measurement.
const WARM_UP: usize = 16;
/// The number of streams that are being opened at the same time.
const AT_ONCE: usize = 64;
/// The time between the last received event of the streams and the reading of the memory.
const SETTLE: Duration = Duration::from_secs(1);

/// The measured client.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Client {
    /// Tidegate's client over HTTP/1.1.
    Gate,
    /// Tidegate's client over HTTP/2, which most providers use.
    GateHttp2,
    /// The HTTP client reqwest alone, over HTTP/1.1.
    Reqwest,
}

impl Client {
    /// Returns the name of the client on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Client::Gate => "gate",
            Client::GateHttp2 => "gate-http2",
            Client::Reqwest => "reqwest",
        }
    }

    fn opener(self, url: &str, streams: usize) -> Fallible<Opener> {
        Ok(match self {
            Client::Reqwest => Opener::Reqwest(reqwest::Client::builder().no_proxy().build()?),
            Client::Gate | Client::GateHttp2 => {
                let http2 = matches!(self, Client::GateHttp2);
                let connections = Connections::new().proxy_from_env(false).http2_prior_knowledge(http2);
                let target = Target::new("hold").url(url).cap(streams);
                Opener::Gate(
                    Gate::new(Config::builder().transport(connections).target(target).build()?)?.client(),
                )
            }
        })
    }
}

#[derive(Clone)]
enum Opener {
    Gate(tidegate::Client),
    Reqwest(reqwest::Client),
}

impl Opener {
    async fn read(self, request: Request<RequestBody>, begun: UnboundedSender<()>) -> Fallible<()> {
        let mut seen = 0;
        let mut count = || {
            seen += 1;
            if seen == EVENTS {
                let _ = begun.send(());
            }
        };
        match self {
            Opener::Gate(client) => {
                let mut body = client.call(request).await?.into_body();
                while let Some(frame) = body.frame().await {
                    frame?;
                    count();
                }
            }
            Opener::Reqwest(client) => {
                let request = request.map(|body| body.bytes().cloned().unwrap_or_default());
                let mut response = client.execute(request.try_into()?).await?;
                while response.chunk().await?.is_some() {
                    count();
                }
            }
        }
        Ok(())
    }
}

/// Opens `streams` streams and keeps them open. Returns the growth of the resident memory per
/// stream, in KiB, as text.
pub(crate) fn hold(client: Client, url: &str, streams: usize) -> Fallible<String> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(async {
        let opener = client.opener(url, streams)?;
        drop(open(&opener, url, WARM_UP).await?);
        tokio::time::sleep(SETTLE).await;
        let before = resident()?;
        let held = open(&opener, url, streams).await?;
        tokio::time::sleep(SETTLE).await;
        let after = resident()?;
        drop(held);
        Ok(format!("{}", after.saturating_sub(before) as f64 / streams as f64))
    })
}

/// Opens `streams` streams with one reader task each, and waits until each reader has read all
/// events. Returns the readers, which keep the streams open.
async fn open(opener: &Opener, url: &str, streams: usize) -> Fallible<JoinSet<Fallible<()>>> {
    let (report, mut begun) = unbounded_channel();
    let mut readers = JoinSet::new();
    for opened in 0..streams {
        readers.spawn(opener.clone().read(request(url), report.clone()));
        if opened >= AT_ONCE {
            begun.recv().await;
        }
    }
    for _ in 0..streams.min(AT_ONCE) {
        begun.recv().await;
    }
    match readers.try_join_next() {
        Some(ended) => Err(format!("a stream ended: {ended:?}").into()),
        None => Ok(readers),
    }
}

fn request(url: &str) -> Request<RequestBody> {
    Ask { tenant: "a", prompt: 8, output: 8, stream: true }.request(url)
}

/// Returns the resident memory of this process, in KiB.
pub(crate) fn resident() -> Fallible<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).ok_or("no size")?.parse()?)
}
