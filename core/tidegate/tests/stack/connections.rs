//! Tests of the connections of the built-in transport, against servers that are scripted byte by
//! byte on loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use tidegate::config::TransportConfig;
use tidegate::transport::{Http, ProxyRules};
use tidegate::{Error, ErrorKind, RequestBody, ResponseBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, mpsc};
use tower::ServiceExt;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Starts a server on loopback that passes each connection, with its number from 0, to `script`.
pub async fn serve<F, Fut>(script: F) -> SocketAddr
where
    F: Fn(TcpStream, usize) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for number in 0.. {
            let Ok((socket, _)) = listener.accept().await else { return };
            tokio::spawn(script(socket, number));
        }
    });
    address
}

/// Reads a request without a body. Returns `None` at the end of the connection.
async fn head(socket: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

pub fn transport(config: TransportConfig) -> Http {
    Http::with_proxies(TransportConfig { proxy_from_env: false, ..config }, ProxyRules::default()).unwrap()
}

pub fn get(address: SocketAddr) -> Request<RequestBody> {
    Request::get(format!("http://{address}/v1/models")).body(RequestBody::default()).unwrap()
}

pub async fn call(http: &Http, request: Request<RequestBody>) -> Result<Response<ResponseBody>, Error> {
    http.clone().oneshot(request).await
}

/// Makes a call, and returns the body of its response as text.
pub async fn text(http: &Http, address: SocketAddr) -> Result<String, Error> {
    let body = call(http, get(address)).await?.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn connection_is_reused_until_the_server_says_otherwise() {
    let persistent = [OK, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"];
    let once = [
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        // More than the response: the rest would be taken for the next one.
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ];
    let cases = persistent.map(|answer| (answer, 1)).into_iter().chain(once.map(|answer| (answer, 3)));
    for (answer, expected) in cases {
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let address = serve(move |mut socket, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                while head(&mut socket).await.is_some() {
                    socket.write_all(answer.as_bytes()).await.unwrap();
                }
            }
        })
        .await;
        let http = transport(TransportConfig::default());
        for _ in 0..3 {
            assert_eq!(text(&http, address).await.unwrap(), "ok", "{answer}");
        }
        assert_eq!(connections.load(Ordering::Relaxed), expected, "{answer}");
    }
}

/// The server closes, or sends something unasked, while the connection is idle.
#[tokio::test]
async fn idle_connection_that_the_server_ended_is_not_used() {
    for unasked in ["", "HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n"] {
        let (ended, mut has_ended) = mpsc::unbounded_channel();
        let address = serve(move |mut socket, number| {
            let ended = ended.clone();
            async move {
                while head(&mut socket).await.is_some() {
                    socket.write_all(OK.as_bytes()).await.unwrap();
                    if number == 0 {
                        socket.write_all(unasked.as_bytes()).await.unwrap();
                        socket.shutdown().await.unwrap();
                        ended.send(()).unwrap();
                    }
                }
            }
        })
        .await;
        let http = transport(TransportConfig::default());
        assert_eq!(text(&http, address).await.unwrap(), "ok");
        has_ended.recv().await.unwrap();
        assert_eq!(text(&http, address).await.unwrap(), "ok", "on a new connection");
    }
}

/// A connection belongs to the runtime that opened it, which may be stopped or busy.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn connection_of_another_runtime_is_not_used() {
    let address = serve(|mut socket, _| async move {
        while head(&mut socket).await.is_some() {
            socket.write_all(OK.as_bytes()).await.unwrap();
        }
    })
    .await;
    let http = transport(TransportConfig::default());
    let on_its_own_runtime = || {
        let http = http.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let within = Duration::from_secs(10);
            let answer = runtime.block_on(async { tokio::time::timeout(within, text(&http, address)).await });
            (runtime, answer)
        })
    };
    let (first_runtime, first) = on_its_own_runtime().join().unwrap();
    let (second_runtime, second) = on_its_own_runtime().join().unwrap();
    [first_runtime, second_runtime].into_iter().for_each(|runtime| runtime.shutdown_background());
    assert_eq!([first, second].map(|answer| answer.expect("in time").unwrap()), ["ok", "ok"]);
}

#[tokio::test]
async fn connection_that_ends_before_the_answer_is_an_error_and_the_request_is_sent_once() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = requests.clone();
    let address = serve(move |mut socket, _| {
        let counted = counted.clone();
        async move {
            head(&mut socket).await.unwrap();
            socket.write_all(OK.as_bytes()).await.unwrap();
            if head(&mut socket).await.is_some() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
    })
    .await;
    let http = transport(TransportConfig::default());
    assert_eq!(text(&http, address).await.unwrap(), "ok");
    let error = text(&http, address).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Transport, "{error}");
    assert_eq!(requests.load(Ordering::Relaxed), 1, "a request that was sent is not repeated");
}

#[tokio::test]
async fn answer_before_the_upload_ends_is_returned() {
    for answer in
        ["HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno", "HTTP/1.1 413 Too Large\r\n\r\nno"]
    {
        let address = serve(move |mut socket, _| async move {
            head(&mut socket).await.unwrap();
            socket.write_all(answer.as_bytes()).await.unwrap();
            // Reads what is on its way, so that the close is no reset.
            socket.shutdown().await.unwrap();
            let _ = socket.read_to_end(&mut Vec::new()).await;
        })
        .await;
        let (frames, received) = mpsc::unbounded_channel();
        frames.send(Ok(Frame::data(Bytes::from_static(b"part")))).unwrap();
        let received = futures_util::stream::unfold(received, |mut received| async {
            received.recv().await.map(|frame| (frame, received))
        });
        let body = RequestBody::stream(StreamBody::new(SyncStream(Box::pin(received))));
        let upload = Request::post(format!("http://{address}/v1/files")).body(body).unwrap();
        let response = call(&transport(TransportConfig::default()), upload).await.unwrap();
        assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "no");
        assert!(!frames.is_closed() || frames.send(Ok(Frame::data(Bytes::new()))).is_err());
    }
}

/// A stream that may be shared, because it is only polled.
struct SyncStream<S>(S);

impl<S: futures_util::Stream + Unpin> futures_util::Stream for SyncStream<S> {
    type Item = S::Item;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<S::Item>> {
        std::pin::Pin::new(&mut self.0).poll_next(cx)
    }
}

#[tokio::test]
async fn interim_responses_and_long_heads_are_read() {
    let answer = format!(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nx-long: {}\r\n\
         content-length: 2\r\n\r\nok",
        "a".repeat(64 * 1024)
    );
    let address = serve(move |mut socket, _| {
        let answer = answer.clone();
        async move {
            while head(&mut socket).await.is_some() {
                // In pieces, so that the head is parsed several times.
                for piece in answer.as_bytes().chunks(10_000) {
                    socket.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
            }
        }
    })
    .await;
    let http = transport(TransportConfig::default());
    for _ in 0..2 {
        let response = call(&http, get(address)).await.unwrap();
        assert_eq!(response.headers()["x-long"].len(), 64 * 1024);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ok");
    }
}

#[tokio::test]
async fn answers_without_a_body_leave_the_connection_usable() {
    let address = serve(|mut socket, number| async move {
        assert_eq!(number, 0, "one connection");
        while let Some(head) = head(&mut socket).await {
            let status = if head.starts_with("HEAD") { "200 OK" } else { "204 No Content" };
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 99\r\n\r\n");
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    let http = transport(TransportConfig::default());
    for method in [Method::HEAD, Method::GET, Method::HEAD] {
        let mut request = get(address);
        *request.method_mut() = method;
        let response = call(&http, request).await.unwrap();
        assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
    }
}

#[tokio::test]
async fn body_that_nobody_reads_closes_the_connection() {
    let (closed, mut was_closed) = mpsc::unbounded_channel();
    let address = serve(move |mut socket, _| {
        let closed = closed.clone();
        async move {
            head(&mut socket).await.unwrap();
            socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nsome").await.unwrap();
            let end = socket.read(&mut [0; 1]).await;
            closed.send(end.map_or(true, |read| read == 0)).unwrap();
        }
    })
    .await;
    let http = transport(TransportConfig::default());
    drop(call(&http, get(address)).await.unwrap());
    assert_eq!(was_closed.recv().await, Some(true));
}

#[tokio::test]
async fn body_that_arrived_with_its_head_needs_no_reader() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    for answer in [OK, chunked] {
        let address = serve(move |mut socket, number| async move {
            assert_eq!(number, 0, "the connection is used again: {answer}");
            while head(&mut socket).await.is_some() {
                socket.write_all(answer.as_bytes()).await.unwrap();
            }
        })
        .await;
        let http = transport(TransportConfig::default());
        let unread = call(&http, get(address)).await.unwrap().into_body();
        assert_eq!(text(&http, address).await.unwrap(), "ok");
        assert_eq!(unread.size_hint().exact(), Some(2), "{answer}");
        assert_eq!(unread.collect().await.unwrap().to_bytes(), "ok");
    }
}

#[tokio::test]
async fn many_idle_connections_are_kept_up_to_the_limit_and_their_time() {
    const CONNECTIONS: usize = 2_000;
    let opened = Arc::new(AtomicUsize::new(0));
    let counted = opened.clone();
    // All calls of a round are open at once.
    let all_here = Arc::new(Barrier::new(CONNECTIONS));
    let address = serve(move |mut socket, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        let all_here = all_here.clone();
        async move {
            while head(&mut socket).await.is_some() {
                all_here.wait().await;
                socket.write_all(OK.as_bytes()).await.unwrap();
            }
        }
    })
    .await;
    let http = transport(TransportConfig { pool_idle: CONNECTIONS - 500, ..TransportConfig::default() });
    let round = || async {
        let answers = join_all((0..CONNECTIONS).map(|_| text(&http, address))).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap() == "ok"));
        opened.load(Ordering::Relaxed)
    };
    assert_eq!(round().await, CONNECTIONS);
    assert_eq!(round().await, CONNECTIONS + 500, "1,500 were kept");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(91)).await;
    tokio::time::resume();
    assert_eq!(round().await, 2 * CONNECTIONS + 500, "none is kept for longer than 90 s");
}

#[tokio::test]
async fn url_is_sent_as_it_is_written() {
    let (seen, mut heads) = mpsc::unbounded_channel();
    let address = serve(move |mut socket, _| {
        let seen = seen.clone();
        async move {
            while let Some(head) = head(&mut socket).await {
                seen.send(head).unwrap();
                socket.write_all(OK.as_bytes()).await.unwrap();
            }
        }
    })
    .await;
    let http = transport(TransportConfig::default());
    let user =
        Request::get(format!("http://me:p%40ss@{address}?q='x'")).body(RequestBody::default()).unwrap();
    call(&http, user).await.unwrap();
    let head = heads.recv().await.unwrap();
    assert!(head.starts_with(&format!("GET /?q='x' HTTP/1.1\r\nhost: {address}\r\n")), "{head}");
    assert!(head.contains("authorization: Basic bWU6cEBzcw==\r\n"), "{head}");
    for (url, kind) in [
        ("http://127.1/v1", ErrorKind::Request),
        ("ftp://127.0.0.1/v1", ErrorKind::Request),
        ("http://127.0.0.1:65536/v1", ErrorKind::Connect),
    ] {
        let request = Request::get(url).body(RequestBody::default()).unwrap();
        assert_eq!(call(&http, request).await.unwrap_err().kind(), kind, "{url}");
    }
}

/// Returns a frame of HTTP/2.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

pub fn http2() -> TransportConfig {
    TransportConfig { http2_prior_knowledge: true, ..TransportConfig::default() }
}

/// The server ends the stream by a reset with the code `NO_ERROR`, before the end of the body.
#[tokio::test]
async fn http2_body_that_is_reset_without_an_error_is_truncated() {
    let address = serve(|mut socket, _| async move {
        let (settings, settings_ack) = (frame(4, 0, 0, &[]), frame(4, 1, 0, &[]));
        // The field `:status: 200` of the static table.
        let answer = [frame(1, 4, 1, &[0x88]), frame(0, 0, 1, b"partial"), frame(3, 0, 1, &[0; 4])];
        socket.write_all(&[settings, settings_ack, answer.concat()].concat()).await.unwrap();
        let mut request = Vec::new();
        drop(socket.read_to_end(&mut request).await);
    })
    .await;
    let http = transport(http2());
    assert_eq!(text(&http, address).await.unwrap_err().kind(), ErrorKind::Truncated);
}

/// Starts an HTTP/2 server. Returns its address, and the number of its connections so far.
async fn serve_http2<F>(answer: F) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Fn(Request<hyper::body::Incoming>) -> Response<http_body_util::Full<Bytes>> + Clone + Send + 'static,
{
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    let address = serve(move |socket, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        let answer = answer.clone();
        async move {
            let service = hyper::service::service_fn(move |request| {
                std::future::ready(Ok::<_, std::convert::Infallible>(answer(request)))
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            drop(server.serve_connection(TokioIo::new(socket), service).await);
        }
    })
    .await;
    (address, connections)
}

#[tokio::test]
async fn http2_heads_are_as_long_as_those_of_http1_and_the_authority_contains_no_password() {
    let (address, _) = serve_http2(|request| {
        let authority = request.uri().authority().map(ToString::to_string);
        let named = (authority, request.headers().get("host").cloned());
        let answer = Response::builder().header("x-long", "a".repeat(64 * 1024));
        answer.body(Bytes::from(format!("{named:?}")).into()).unwrap()
    })
    .await;
    let http = transport(http2());
    for (host, expected) in [(None, address.to_string()), (Some("llm.test"), "llm.test".to_owned())] {
        let mut request = Request::get(format!("http://me:secret@{address}/v1/models"));
        if let Some(host) = host {
            request = request.header("host", host);
        }
        let response = call(&http, request.body(RequestBody::default()).unwrap()).await.unwrap();
        assert_eq!(response.headers()["x-long"].len(), 64 * 1024);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, format!("(Some({expected:?}), None)"));
    }
}

#[tokio::test]
async fn dropped_http2_body_ends_the_upload() {
    let (ended, mut has_ended) = mpsc::unbounded_channel();
    let (address, _) = serve_http2(move |request| {
        let ended = ended.clone();
        tokio::spawn(async move { ended.send(request.into_body().collect().await.is_err()) });
        Response::new(Bytes::from("early").into())
    })
    .await;
    let http = transport(http2());
    let upload = RequestBody::stream(StreamBody::new(futures_util::stream::pending()));
    let request = Request::post(format!("http://{address}/v1/files")).body(upload).unwrap();
    drop(call(&http, request).await.unwrap());
    assert_eq!(has_ended.recv().await, Some(true));
}

/// Bodies that nobody reads fill their own windows and not that of the connection.
#[tokio::test]
async fn unread_http2_bodies_do_not_hold_up_other_calls() {
    let (address, connections) =
        serve_http2(|_| Response::new(Bytes::from(vec![b'a'; 3 * 1024 * 1024]).into())).await;
    let http = transport(http2());
    let mut unread = Vec::new();
    for _ in 0..8 {
        unread.push(call(&http, get(address)).await.unwrap());
    }
    assert_eq!(text(&http, address).await.unwrap().len(), 3 * 1024 * 1024);
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}
