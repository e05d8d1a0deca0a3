//! Tests of the URLs that are sent, against the cases in `tests/vectors/urls.json` and over real
//! sockets.

use std::net::SocketAddr;

use http::{Request, Uri};
use serde_json::Value;
use tidegate::config::{EngineMetricsPolicy, Pool, Target};
use tidegate::{ErrorKind, Gate, RequestBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::support::read;

/// Starts a server that answers each request, and returns its address and a channel. The channel
/// receives the target of each request: the part of the first line between the method and the
/// version.
async fn server() -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let (told, requests) = mpsc::unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut got = Vec::new();
            while !got.ends_with(b"\r\n\r\n") && socket.read_buf(&mut got).await.unwrap_or(0) > 0 {}
            let line = String::from_utf8(got).unwrap().lines().next().unwrap_or_default().to_owned();
            told.send(line.split(' ').nth(1).unwrap_or_default().to_owned()).unwrap();
            socket
                .write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}")
                .await
                .unwrap();
        }
    });
    (address, requests)
}

fn gate(address: SocketAddr) -> Gate {
    let target = |name: &str, path: &str| {
        Target::new(name).url(format!("http://{address}{path}")).metrics(EngineMetricsPolicy::Off)
    };
    Gate::builder()
        .target(target("v1", "/v1"))
        .target(target("admin", "/admin"))
        .target(target("root", ""))
        .transport(tidegate::config::Transport::new().proxy_from_env(false))
        .build()
        .unwrap()
}

#[tokio::test]
async fn url_is_sent_unchanged_or_rejected() {
    let path = format!("{}/../../tests/vectors/urls.json", env!("CARGO_MANIFEST_DIR"));
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let (address, mut requests) = server().await;
    let gate = gate(address);
    let mut ran = 0;
    for case in file["cases"].as_array().unwrap() {
        let (url, target) = (case["url"].as_str().unwrap(), case["target"].as_str().unwrap());
        let rejected = case["rejected"].as_array().unwrap().contains(&"rust".into());
        let uri: Uri = format!("http://{address}{url}").parse().unwrap();
        let request = Request::post(uri.clone()).body(RequestBody::default()).unwrap();
        let result = gate.client().call(request).await;
        if rejected {
            let error = result.expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Request, "{url}: {error}");
            assert!(!error.message().contains(&address.to_string()), "{error}");
            assert!(requests.try_recv().is_err(), "{url}");
        } else {
            read(result.unwrap()).await.unwrap();
            let root = if url.starts_with('/') { "" } else { "/" };
            assert_eq!(requests.recv().await.unwrap(), format!("{root}{url}"));
            assert_eq!(gate.target_for(&uri, None).unwrap().as_deref(), Some(target), "{url}");
            assert_eq!(gate.calls().records().last().unwrap().target.as_ref(), target, "{url}");
        }
        ran += 1;
    }
    assert!(ran > 30);
}

#[tokio::test]
async fn host_that_would_be_rewritten_is_rejected() {
    let (address, mut requests) = server().await;
    let port = address.port();
    let gate = gate(address);
    for (host, sent) in [
        ("127.0.0.1", true),
        ("LOCALHOST", true),
        ("127.1", false),
        ("0x7f.0.0.1", false),
        ("2130706433", false),
        ("%6cocalhost", false),
        ("[0:0:0:0:0:0:0:1]", false),
    ] {
        let Ok(uri) = format!("http://{host}:{port}/v1/models").parse::<Uri>() else { continue };
        let result = gate.client().call(Request::get(uri).body(RequestBody::default()).unwrap()).await;
        match sent {
            true => assert_eq!(result.unwrap().status(), 200, "{host}"),
            false => assert_eq!(result.expect_err(host).kind(), ErrorKind::Request, "{host}"),
        }
        assert_eq!(requests.try_recv().is_ok(), sent, "{host}");
    }
}

#[tokio::test]
async fn pool_name_need_not_be_a_host_name() {
    let (address, mut requests) = server().await;
    let pool = Pool::new([format!("http://{address}")]).poll(None).health(None);
    let gate = Gate::builder()
        .target(Target::new("qwen2.5").pool(pool))
        .transport(tidegate::config::Transport::new().proxy_from_env(false))
        .build()
        .unwrap();
    let request = Request::post("http://qwen2.5/v1/embeddings").body(RequestBody::default()).unwrap();
    read(gate.client().call(request).await.unwrap()).await.unwrap();
    while requests.recv().await.unwrap() != "/v1/embeddings" {}
}
