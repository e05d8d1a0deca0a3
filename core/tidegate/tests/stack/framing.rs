//! Tests over real sockets of the request headers that concern the connection and of the declared
//! body length.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tidegate::config::{EngineMetricsPolicy, Retry, Target};
use tidegate::{Context, ErrorKind, Gate, RequestBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::support::assert_idle;

/// Starts a server, and returns its address and a channel. The channel receives the text of each
/// request: the complete request if it arrives completely, which the server then answers, and
/// otherwise the part that arrived.
async fn server() -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let (told, requests) = mpsc::unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let told = told.clone();
            tokio::spawn(async move {
                let mut got = Vec::new();
                while !is_whole(&got) && socket.read_buf(&mut got).await.unwrap_or(0) > 0 {}
                if is_whole(&got) {
                    let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
                    socket.write_all(answer.as_bytes()).await.unwrap();
                }
                told.send(String::from_utf8(got).unwrap()).unwrap();
            });
        }
    });
    (address, requests)
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    if head.contains("\r\ntransfer-encoding: chunked") {
        return body.ends_with("0\r\n\r\n");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

fn gate(address: SocketAddr, http2: bool) -> Gate {
    let target = Target::new("llm")
        .url(format!("http://{address}"))
        .metrics(EngineMetricsPolicy::Off)
        .cap(1)
        .on_full(tidegate::config::OnFull::Refuse)
        .retry(Retry::new().attempts(1));
    let transport = tidegate::config::Transport::new().proxy_from_env(false).http2_prior_knowledge(http2);
    Gate::builder().target(target).transport(transport).build().unwrap()
}

fn post(address: SocketAddr, headers: &[(&str, &str)], body: RequestBody) -> Request<RequestBody> {
    let mut request = Request::post(format!("http://{address}/v1/chat/completions"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body).unwrap()
}

fn streamed(parts: &[&'static str]) -> RequestBody {
    let frames: Vec<_> =
        parts.iter().map(|part| Ok(Frame::data(Bytes::from_static(part.as_bytes())))).collect();
    RequestBody::stream(StreamBody::new(futures_util::stream::iter(frames)))
}

#[tokio::test]
async fn headers_of_the_connection_are_not_sent() {
    let (address, mut requests) = server().await;
    let headers = [
        ("connection", "keep-alive, X-Hop"),
        ("connection", "x-other"),
        ("x-hop", "1"),
        ("x-other", "1"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("te", "gzip"),
        ("transfer-encoding", "Chunked"),
        ("x-own", "1"),
    ];
    let response = gate(address, false).client().call(post(address, &headers, "{}".into())).await.unwrap();
    assert_eq!(response.status(), 200);
    let head = requests.recv().await.unwrap().to_lowercase();
    for name in
        ["connection", "x-hop", "x-other", "keep-alive", "proxy-connection", "te:", "transfer-encoding"]
    {
        assert!(!head.contains(&format!("\r\n{name}")), "{name} in {head}");
    }
    assert!(head.contains("\r\nx-own: 1"), "{head}");
    assert!(head.contains("\r\ncontent-length: 2"), "{head}");
}

#[tokio::test]
async fn upgrades_and_unknown_transfer_codings_are_rejected() {
    let (address, mut requests) = server().await;
    let gate = gate(address, false);
    for (name, value) in [
        ("upgrade", "websocket"),
        ("transfer-encoding", "xchunked"),
        ("transfer-encoding", "gzip, chunked"),
        ("transfer-encoding", ""),
    ] {
        let error = gate.client().call(post(address, &[(name, value)], "{}".into())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Request, "{error}");
        assert!(error.message().contains(name), "{error}");
    }
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn wrong_content_length_is_rejected_before_a_slot_is_taken() {
    let (address, mut requests) = server().await;
    let gate = gate(address, false);
    let _slot = gate.acquire_slot("llm", &Context::default()).await.unwrap();
    let malformed = ["-2", "+2", "2.0", "0x2", "two", "", "2, 2", "99999999999999999999999"];
    let mut wrong: Vec<_> = malformed.map(|value| (vec![("content-length", value)], true)).into();
    wrong.push((vec![("content-length", "2"), ("content-length", "2")], true));
    wrong.push((vec![("content-length", "2"), ("transfer-encoding", "chunked")], true));
    // The length of a stream is known only after it has been sent.
    wrong.extend(["1", "3"].map(|value| (vec![("content-length", value)], false)));
    for (headers, of_streams_too) in wrong {
        let bodies = [Some(RequestBody::from("{}")), of_streams_too.then(|| streamed(&["{}"]))];
        for body in bodies.into_iter().flatten() {
            let error = gate.client().call(post(address, &headers, body)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Request, "{headers:?}: {error}");
            assert!(error.message().contains("content-length"), "{error}");
        }
    }
    assert!(requests.try_recv().is_err());
}

/// Pairs of a `content-length` and the chunks of a body that has another length.
const WRONG: [(&str, &[&str]); 6] = [
    ("5", &["abc"]),
    ("5", &["abc", ""]),
    ("3", &["ab", "cd"]),
    ("3", &["abc", "d"]),
    ("3", &["abc", "", "d"]),
    ("0", &["a"]),
];

#[tokio::test]
async fn streamed_body_of_another_length_fails_and_releases_its_slot() {
    for (declared, parts) in WRONG {
        let (address, mut requests) = server().await;
        let gate = gate(address, false);
        let request = post(address, &[("content-length", declared)], streamed(parts));
        let error = gate.client().call(request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Request, "{declared} {parts:?}: {error}");
        assert!(error.message().contains("content-length"), "{error}");
        assert_idle(&gate);
        let got = requests.recv().await.unwrap();
        assert!(!is_whole(got.as_bytes()), "{declared} {parts:?}: {got}");
    }
}

#[tokio::test]
async fn streamed_body_of_the_declared_length_is_sent() {
    for (declared, parts) in [("3", &["a", "", "bc"][..]), ("3", &["abc"]), ("3", &["abc", ""]), ("0", &[""])]
    {
        let (address, mut requests) = server().await;
        let gate = gate(address, false);
        let request = post(address, &[("content-length", declared)], streamed(parts));
        assert_eq!(gate.client().call(request).await.unwrap().status(), 200);
        let got = requests.recv().await.unwrap();
        let (head, body) = got.split_once("\r\n\r\n").unwrap();
        match declared {
            // Not declared, because a connection never polls a body of length 0.
            "0" => assert_eq!(body, "0\r\n\r\n"),
            _ => assert_eq!((head.contains("content-length: 3"), body), (true, "abc"), "{head}"),
        }
    }
}

#[tokio::test]
async fn streamed_body_of_another_length_is_no_whole_request_over_http2() {
    let (told, mut bodies) = mpsc::unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let told = told.clone();
            let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
                let told = told.clone();
                async move {
                    let whole = request.into_body().collect().await.is_ok();
                    told.send(whole).unwrap();
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"{}"))))
                }
            });
            tokio::spawn(
                hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new())
                    .serve_connection(hyper_util::rt::TokioIo::new(socket), service),
            );
        }
    });
    let gate = gate(address, true);
    for (declared, parts) in WRONG {
        let request = post(address, &[("content-length", declared)], streamed(parts));
        let error = gate.client().call(request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Request, "{declared} {parts:?}: {error}");
        assert_idle(&gate);
        assert!(!bodies.recv().await.unwrap(), "{declared} {parts:?}");
    }
    let request = post(address, &[("content-length", "3")], streamed(&["a", "bc"]));
    assert_eq!(gate.client().call(request).await.unwrap().status(), 200);
}
