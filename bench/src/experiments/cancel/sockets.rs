//! Measures the time from a cancellation until the upstream sees the connection closed or the
//! stream reset, over real sockets.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tidegate::config::{Config, Target, Transport as Connections};
use tidegate::{Error, Gate};
use tidegate_sim::scenario::quantile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use crate::Fallible;
use crate::client_call::Ask;
use crate::report::{Op, Report};

const CALLS: usize = 300;
const EVENT: &[u8] = b"data: {\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";

/// The point of an answer at which the upstream stops sending. The call is cancelled there.
#[derive(Clone, Copy, PartialEq)]
enum At {
    Headers,
    MidStream,
}

/// How the caller cancels.
#[derive(Clone, Copy, PartialEq)]
enum How {
    /// Drops the future of the call or the body of the response.
    Drop,
    /// Aborts the task that awaits the call.
    Abort,
    /// Drops only the handle of the task that awaits the call, so the task and its call continue.
    /// Clients that run exchanges in detached tasks behave like this. It is the comparison without
    /// cancellation.
    Detach,
}

/// Cancels calls over HTTP/1.1 and HTTP/2. Records the times until the upstream sees each
/// cancellation, and the pass criteria, in `report`.
pub(super) fn measure(report: &mut Report) -> Fallible<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    for (http2, version) in [(false, "HTTP/1.1"), (true, "HTTP/2")] {
        for (at, how, what) in [
            (At::Headers, How::Drop, "dropped before headers"),
            (At::MidStream, How::Drop, "dropped mid-stream"),
            (At::Headers, How::Abort, "task aborted before headers"),
            (At::MidStream, How::Abort, "task aborted mid-stream"),
        ] {
            let mut seen = runtime.block_on(run(http2, at, how, CALLS))?;
            let [p50, p99] = [0.5, 0.99].map(|q| quantile(&mut seen, q));
            let name = format!("{version}, {what}");
            report.figure(format!("{name}: p50, ms until upstream sees it"), p50);
            report.figure(format!("{name}: p99, ms until upstream sees it"), p99);
            report.bar(format!("{name}: p99, ms"), p99, Op::AtMost, 50.0);
        }
        let mut seen = runtime.block_on(run(http2, At::MidStream, How::Detach, 5))?;
        let least = quantile(&mut seen, 0.0);
        let key = format!("{version}, task aborted mid-stream: p50, ms until upstream sees it");
        report.peer("detached task", key, json!(format!("> {least:.0}")));
    }
    Ok(())
}

/// A listening upstream: its address, and channels that report each received request and each
/// closed exchange.
struct Upstream {
    base: String,
    asked: UnboundedReceiver<()>,
    closed: UnboundedReceiver<Instant>,
}

async fn run(http2: bool, at: At, how: How, calls: usize) -> Fallible<Vec<f64>> {
    let mut upstream = serve(http2, at).await?;
    let connections = Connections::new().http2_prior_knowledge(http2).proxy_from_env(false);
    let target = Target::new("raw").url(&upstream.base).cap(8);
    let gate = Gate::new(Config::builder().transport(connections).target(target).build()?)?;
    let mut seen = Vec::with_capacity(calls);
    for _ in 0..calls {
        seen.push(cancel(&gate, &mut upstream, at, how).await?);
    }
    let state = gate.snapshot();
    let held: usize = state.targets.values().map(|target| target.in_flight).sum();
    if how != How::Detach && held + state.active > 0 {
        return Err(format!("{held} slots are still held").into());
    }
    Ok(seen)
}

async fn cancel(gate: &Gate, upstream: &mut Upstream, at: At, how: How) -> Fallible<f64> {
    let (begun, mut streaming) = unbounded_channel();
    let mut exchange = Box::pin(exchange(gate.clone(), upstream.base.clone(), begun));
    let ready = async {
        upstream.asked.recv().await;
        if at == At::MidStream {
            streaming.recv().await;
        }
    };
    let start;
    let mut aborted = None;
    if how == How::Drop {
        tokio::select! {
            ended = &mut exchange => { ended?; return Err("the exchange ended".into()) }
            () = ready => {}
        }
        start = Instant::now();
        drop(exchange);
    } else {
        let task = tokio::spawn(exchange);
        ready.await;
        start = Instant::now();
        if how == How::Abort {
            task.abort();
            aborted = Some(task);
        }
    }
    let longest = if how == How::Detach { Duration::from_millis(500) } else { Duration::from_secs(10) };
    let closed = tokio::time::timeout(longest, upstream.closed.recv()).await;
    if let Some(task) = aborted {
        // The upstream may see the end before the task has dropped all of the call.
        let _ = task.await;
    }
    match closed {
        Ok(closed) => Ok(closed.ok_or("the upstream ended")?.duration_since(start).as_secs_f64() * 1e3),
        Err(_) => Ok(longest.as_secs_f64() * 1e3),
    }
}

async fn exchange(gate: Gate, base: String, begun: UnboundedSender<()>) -> Result<(), Error> {
    let ask = Ask { tenant: "a", prompt: 8, output: 8, stream: true };
    let mut body = gate.client().call(ask.request(&base)).await?.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
        let _ = begun.send(());
    }
    Ok(())
}

async fn serve(http2: bool, at: At) -> Fallible<Upstream> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let base = format!("http://{}", listener.local_addr()?);
    let (asks, asked) = unbounded_channel();
    let (closes, closed) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (asks, closes) = (asks.clone(), closes.clone());
            if http2 {
                tokio::spawn(serve2(stream, at, asks, closes));
            } else {
                tokio::spawn(serve1(stream, at, asks, closes));
            }
        }
    });
    Ok(Upstream { base, asked, closed })
}

/// Serves one HTTP/1.1 connection without a server library, because the delays of the
/// library would be measured too.
async fn serve1(mut stream: TcpStream, at: At, asks: UnboundedSender<()>, closes: UnboundedSender<Instant>) {
    let mut request = Vec::new();
    // The body is one JSON object, and the last thing sent.
    while !request.ends_with(b"}") {
        if !matches!(stream.read_buf(&mut request).await, Ok(n) if n > 0) {
            return;
        }
    }
    if at == At::MidStream {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n",
            EVENT.len()
        );
        let parts = [head.as_bytes(), EVENT, b"\r\n"].concat();
        if stream.write_all(&parts).await.is_err() {
            return;
        }
    }
    let _ = asks.send(());
    // The client sends nothing more on this connection, so the read ends when the connection is
    // closed or reset.
    let _ = stream.read(&mut [0; 64]).await;
    let _ = closes.send(Instant::now());
}

/// Sends the current time when it is dropped. hyper drops the answer of a stream when the stream is
/// reset.
struct Guard(UnboundedSender<Instant>);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.send(Instant::now());
    }
}

async fn serve2(stream: TcpStream, at: At, asks: UnboundedSender<()>, closes: UnboundedSender<Instant>) {
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let (asks, closes) = (asks.clone(), closes.clone());
        async move {
            let _body = request.into_body().collect().await;
            let guard = Guard(closes);
            let _ = asks.send(());
            if at == At::Headers {
                std::future::pending::<()>().await;
            }
            let first = futures_util::stream::iter([Ok::<_, std::convert::Infallible>(Frame::data(
                Bytes::from_static(EVENT),
            ))]);
            let rest = futures_util::stream::once(stall(guard));
            let body = StreamBody::new(futures_util::StreamExt::chain(first, rest));
            let response =
                Response::builder().header("content-type", "text/event-stream").body(Box::pin(body));
            response.map_err(|e| e.to_string())
        }
    });
    let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

async fn stall<T>(guard: Guard) -> T {
    let _guard = guard;
    std::future::pending().await
}
