//! The HTTP server, which passes every request to [`Simulator::respond`].
//!
//! One port serves HTTP/1.1 and HTTP/2 (with prior knowledge, at hyper's default of 200 streams per
//! connection). When a client disconnects, the server drops the response future or body, which
//! aborts the sequence.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};

use crate::driver::{ConnectionError, SimBody, Simulator};

/// Maximum length of a request body, in bytes. A longer body gets a 413.
const MAX_BODY_BYTES: usize = 64 << 20;

/// Serves a simulator on a listener until the returned future is dropped. Connections that are open
/// then continue in their own tasks.
///
/// # Errors
///
/// Returns an error only if the listener becomes unusable.
pub async fn serve(listener: TcpListener, simulator: Simulator) -> io::Result<()> {
    serve_until(listener, simulator, std::future::pending()).await
}

/// Serves a simulator on a listener until `end` is ready. Then closes the listener, waits for calls
/// in flight, and returns.
///
/// # Errors
///
/// Returns an error only if the listener becomes unusable.
pub async fn serve_until(
    listener: TcpListener,
    simulator: Simulator,
    end: impl Future<Output = ()>,
) -> io::Result<()> {
    let graceful = GracefulShutdown::new();
    let builder = Builder::new(TokioExecutor::new());
    let mut end = std::pin::pin!(end);
    loop {
        let stream = tokio::select! {
            accepted = accept(&listener) => accepted?,
            () = &mut end => break,
        };
        // Small SSE writes must not wait for acknowledgements (Nagle's algorithm).
        if stream.set_nodelay(true).is_err() {
            // The client has already disconnected.
            continue;
        }
        let simulator = simulator.clone();
        let service = service_fn(move |request| handle(simulator.clone(), request));
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        let connection_task = graceful.watch(connection);
        // An error is a broken connection, caused by the client or by an injected fault.
        tokio::spawn(async move { drop(connection_task.await) });
    }
    drop(listener);
    graceful.shutdown().await;
    Ok(())
}

async fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return Ok(stream),
            // The client disconnected before the connection was accepted.
            Err(e) if is_connection_error(&e) => {}
            // Out of file handles (ENFILE, EMFILE): wait until some are closed.
            Err(e) if e.raw_os_error().is_some_and(|code| code == 23 || code == 24) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(e) => return Err(e),
        }
    }
}

fn is_connection_error(e: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(e.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Answers one request. If the simulator refuses the connection, hyper closes it, or resets the
/// HTTP/2 stream, without a response.
async fn handle(
    simulator: Simulator,
    request: Request<Incoming>,
) -> Result<Response<SimBody>, ConnectionError> {
    let (parts, body) = request.into_parts();
    match read(body).await {
        Ok(bytes) => simulator.respond(Request::from_parts(parts, bytes)).await,
        Err(response) => Ok(response),
    }
}

async fn read(body: Incoming) -> Result<Bytes, Response<SimBody>> {
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(e) if e.is::<LengthLimitError>() => Err(SimBody::status(413, "the request body is too long")),
        Err(_) => Err(SimBody::status(400, "the request body ended early")),
    }
}
