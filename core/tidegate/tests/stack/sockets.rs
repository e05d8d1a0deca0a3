//! Tests of the built-in transport over real sockets on loopback.

use std::net::SocketAddr;

use http::Request;
use http_body_util::BodyExt;
use tidegate::config::Target;
use tidegate::{ErrorKind, Gate, RequestBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::support::assert_idle;

/// Starts a server on loopback, and returns its address. For each connection, the server reads the
/// request head and a body of known length, and passes both to `script`, which answers.
pub async fn serve<F, Fut>(script: F) -> SocketAddr
where
    F: Fn(TcpStream, Vec<u8>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let script = script.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                // Read completely, because a socket that is closed with unread data is reset
                // instead of ended.
                while !is_whole(&head) {
                    if socket.read_buf(&mut head).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                script(socket, head).await;
            });
        }
    });
    address
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length =
        head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

fn gate(address: SocketAddr, shape: impl FnOnce(Target) -> Target) -> Gate {
    let retry = tidegate::config::Retry::new().attempts(1);
    let target = shape(Target::new("llm").url(format!("http://{address}")).retry(retry));
    Gate::builder()
        .target(target)
        .transport(tidegate::config::Transport::new().proxy_from_env(false))
        .build()
        .expect("a gate")
}

fn request(address: SocketAddr, stream: bool) -> Request<RequestBody> {
    let body = format!(r#"{{"model":"m","stream":{stream}}}"#);
    Request::post(format!("http://{address}/v1/chat/completions")).body(body.into_bytes().into()).unwrap()
}

#[tokio::test]
async fn response_shorter_than_its_content_length_is_truncated() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{\"choices\": [",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"cho\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{\"choices\": [",
    ] {
        let address = serve(move |mut socket, _| async move {
            socket.write_all(answer.as_bytes()).await.unwrap();
        })
        .await;
        let gate = gate(address, |t| t);
        let response = gate.client().call(request(address, false)).await.unwrap();
        let error = response.into_body().collect().await.expect_err("incomplete");
        assert_eq!(error.kind(), ErrorKind::Truncated, "{error}");
        assert_eq!(error.target(), Some("llm"));
        assert_idle(&gate);
    }
}

#[tokio::test]
async fn closed_port_is_a_failed_connect() {
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let gate = gate(address, |t| t);
    let error = gate.client().call(request(address, false)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect, "{error}");
    assert!(error.message().contains("refused"), "{error}");
    assert_idle(&gate);
}

/// HTTP servers answer a TLS handshake with the text of a 400.
#[tokio::test]
async fn https_to_a_server_without_tls_is_an_error_with_advice() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.read_buf(&mut Vec::new()).await.unwrap();
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await.unwrap();
    });
    let url = format!("https://{address}/v1/chat/completions");
    let gate = gate(address, |target| target.url(&url));
    let call = Request::post(&url).body(br#"{"model":"m"}"#.to_vec().into()).unwrap();
    let error = gate.client().call(call).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect, "{error}");
    assert!(error.message().contains("the server does not speak TLS"), "{error}");
    assert!(error.message().contains("use http:// in its URL"), "{error}");
    assert_idle(&gate);
}

#[tokio::test]
async fn cancelled_call_closes_its_connection() {
    for head in [
        "",
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n",
    ] {
        let (asked, was_asked) = oneshot::channel();
        let (closed, was_closed) = oneshot::channel();
        let ends = std::sync::Arc::new(parking_lot::Mutex::new(Some((asked, closed))));
        let address = serve(move |mut socket, _| {
            let ends = ends.clone();
            async move {
                let (asked, closed) = ends.lock().take().expect("one connection");
                socket.write_all(head.as_bytes()).await.unwrap();
                asked.send(()).unwrap();
                let mut rest = Vec::new();
                // Reads the request's body and waits for the end of the connection.
                let _ = socket.read_to_end(&mut rest).await;
                closed.send(()).unwrap();
            }
        })
        .await;
        let gate = gate(address, |t| t);
        let client = gate.client();
        let call = tokio::spawn(async move {
            let mut body = client.call(request(address, true)).await?.into_body();
            while let Some(frame) = body.frame().await {
                frame?;
            }
            Ok::<_, tidegate::Error>(())
        });
        was_asked.await.unwrap();
        call.abort();
        was_closed.await.expect("upstream sees the close");
        let _ = call.await;
        assert_idle(&gate);
    }
}

#[tokio::test]
async fn upload_is_streamed_and_sent_once() {
    let address = serve(|mut socket, mut got| async move {
        while !got.ends_with(b"0\r\n\r\n") {
            if socket.read_buf(&mut got).await.unwrap_or(0) == 0 {
                return;
            }
        }
        socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
    })
    .await;
    let gate = gate(address, |t| t);
    let frames =
        ["a", "b", "c"].map(|part| Ok(http_body::Frame::data(bytes::Bytes::from_static(part.as_bytes()))));
    let body = RequestBody::stream(http_body_util::StreamBody::new(futures_util::stream::iter(frames)));
    let upload = Request::post(format!("http://{address}/v1/files")).body(body).unwrap();
    let response = gate.client().call(upload).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ok");
}

/// The peer allows four streams per HTTP/2 connection. Further requests must use another connection
/// instead of waiting inside the HTTP client, where the gate does not see them.
#[tokio::test]
async fn http2_opens_another_connection_below_the_peers_limit() {
    const AT_ONCE: usize = 12;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let all_here = std::sync::Arc::new(tokio::sync::Barrier::new(AT_ONCE));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let all_here = all_here.clone();
            let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let all_here = all_here.clone();
                async move {
                    if request.method() == http::Method::POST {
                        all_here.wait().await;
                    }
                    Ok::<_, std::convert::Infallible>(http::Response::new(http_body_util::Full::new(
                        bytes::Bytes::from_static(b"{}"),
                    )))
                }
            });
            tokio::spawn(
                hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new())
                    .max_concurrent_streams(4)
                    .serve_connection(hyper_util::rt::TokioIo::new(socket), service),
            );
        }
    });
    let transport = tidegate::config::Transport::new().proxy_from_env(false).http2_prior_knowledge(true);
    // With and without knowledge of the limit.
    for transport in [transport.clone().http2_streams(4), transport] {
        let gate = Gate::builder()
            .target(Target::new("llm").url(format!("http://{address}")).cap(AT_ONCE))
            .transport(transport)
            .build()
            .expect("a gate");
        // The first exchange shows that the host speaks HTTP/2.
        let models =
            Request::get(format!("http://{address}/v1/models")).body(RequestBody::default()).unwrap();
        gate.client().call(models).await.unwrap().into_body().collect().await.unwrap();
        let calls = (0..AT_ONCE).map(|_| async {
            let response = gate.client().call(request(address, false)).await.unwrap();
            response.into_body().collect().await.unwrap().to_bytes()
        });
        let answers = futures_util::future::join_all(calls).await;
        assert!(answers.iter().all(|answer| answer == "{}"));
        assert_idle(&gate);
    }
}
