//! The upstream of `memory`: answers each request with the head of an event stream and a few
//! events, and then keeps the stream open.
//!
//! It serves HTTP/2 on connections that begin with the preface of HTTP/2, and HTTP/1.1 on others.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::Fallible;

/// The number of events of a stream, after which nothing more is sent.
pub(super) const EVENTS: usize = 3;

const EVENT: &str = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"small\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word\"}}]}\n\n";

/// The time between two events of a stream.
const GAP: Duration = Duration::from_millis(20);

/// Prints its URL, and serves until its standard input closes.
pub(crate) fn serve() -> Fallible<String> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("http://{}", listener.local_addr()?);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve_one(stream));
            }
        });
        tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await??;
        Ok(String::new())
    })
}

async fn serve_one(stream: TcpStream) -> std::io::Result<()> {
    let mut first = [0; 4];
    if stream.peek(&mut first).await? > 0 && &first == b"PRI " {
        let service = service_fn(|_| async { Ok::<_, Infallible>(streaming()) });
        let _ = http2::Builder::new(TokioExecutor::new())
            .max_concurrent_streams(100)
            .serve_connection(TokioIo::new(stream), service)
            .await;
        return Ok(());
    }
    answer(stream).await
}

/// Returns the answer over HTTP/2: an event stream of [`EVENTS`] events that never ends.
fn streaming() -> http::Response<impl http_body::Body<Data = Bytes, Error = Infallible>> {
    let events = futures_util::stream::iter(0..EVENTS).then(|_| async {
        tokio::time::sleep(GAP).await;
        Ok(Frame::data(Bytes::from_static(EVENT.as_bytes())))
    });
    let mut response =
        http::Response::new(StreamBody::new(Box::pin(events.chain(futures_util::stream::pending()))));
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("text/event-stream"));
    response
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = Vec::new();
    // The body is one JSON object, and the last thing sent.
    while !request.ends_with(b"}") {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    stream
        .write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        )
        .await?;
    for _ in 0..EVENTS {
        stream.write_all(format!("{:x}\r\n{EVENT}\r\n", EVENT.len()).as_bytes()).await?;
        tokio::time::sleep(GAP).await;
    }
    // Until the client closes the connection.
    while stream.read(&mut [0; 16]).await? > 0 {}
    Ok(())
}
