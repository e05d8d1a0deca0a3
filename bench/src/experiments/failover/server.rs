//! A replica that can be killed, restarted and hung, like a process: a simulator behind a port of
//! its own.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tidegate_sim::faults::{Outage, OutageMode};
use tidegate_sim::{ConnectionError, Faults, SimBody, Simulator};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::Fallible;
use crate::unlimited_simulators::steady;

/// The duration of an answer of [`STEADY_TOKENS`](crate::unlimited_simulators::STEADY_TOKENS)
/// tokens.
const SERVICE: Duration = Duration::from_millis(400);

pub(super) struct Replica {
    address: SocketAddr,
    life: Mutex<Life>,
}

struct Life {
    simulator: Simulator,
    serving: AbortHandle,
}

impl Replica {
    pub(super) async fn start() -> Fallible<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        Ok(Self { address, life: Mutex::new(live(listener)?) })
    }

    pub(super) fn authority(&self) -> String {
        self.address.to_string()
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Closes the port and resets all connections, like `kill -9`.
    pub(super) fn kill(&self) {
        self.life.lock().serving.abort();
    }

    pub(super) async fn restart(&self) -> Fallible<()> {
        let listener = TcpListener::bind(self.address).await?;
        *self.life.lock() = live(listener)?;
        Ok(())
    }

    /// Makes the replica hang for the time `until`, like vLLM after SIGTERM with open requests.
    ///
    /// New connections are accepted but not answered, and open streams send nothing more. After
    /// that time, new calls are answered.
    pub(super) fn hang(&self, until: Duration) -> Fallible<()> {
        let outage = Outage { from_s: 0.0, until_s: until.as_secs_f64(), mode: OutageMode::Hang };
        self.life.lock().simulator.set_faults(Faults { outages: vec![outage], ..Faults::default() })?;
        Ok(())
    }

    /// Returns the number of calls in flight at the replica.
    pub(super) fn in_flight(&self) -> usize {
        self.life.lock().simulator.stats().in_flight
    }
}

fn live(listener: TcpListener) -> Fallible<Life> {
    let simulator = Simulator::new(steady(SERVICE, Faults::default()))?;
    let serving = tokio::spawn(serve(listener, simulator.clone())).abort_handle();
    Ok(Life { simulator, serving })
}

/// Accepts and serves connections until the future is dropped, which closes the connections. Never
/// returns.
async fn serve(listener: TcpListener, simulator: Simulator) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(exchange(stream, simulator.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn exchange(stream: TcpStream, simulator: Simulator) {
    // With a linger of zero, a dropped connection is reset.
    if stream.set_nodelay(true).is_err() || stream.set_zero_linger().is_err() {
        return;
    }
    let service = service_fn(move |request| answer(simulator.clone(), request));
    // Errors of a connection are expected, because connections are broken on purpose.
    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
}

async fn answer(
    simulator: Simulator,
    request: Request<Incoming>,
) -> Result<Response<SimBody>, ConnectionError> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_or_else(|_| Bytes::new(), |body| body.to_bytes());
    simulator.respond(Request::from_parts(parts, body)).await
}
