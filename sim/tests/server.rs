//! Tests of the HTTP server over real sockets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod support;

use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use support::simulator;
use tidegate_sim::faults::{Outage, OutageMode, StreamCut};
use tidegate_sim::{Faults, Simulator, serve_until};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

struct Server {
    simulator: Simulator,
    url: String,
    end: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

async fn server(time_scale: f64) -> Server {
    let simulator = simulator(|c| c.time_scale = time_scale);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (end, ended) = oneshot::channel::<()>();
    let until = async { drop(ended.await) };
    let task = tokio::spawn(serve_until(listener, simulator.clone(), until));
    Server { simulator, url, end, task }
}

fn client(http2: bool) -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).http2_only(http2).build_http()
}

fn request(server: &Server, output: u32) -> Request<Full<Bytes>> {
    let body = json!({"model": "sim", "stream": true, "max_tokens": output, "messages": [{"role": "user", "content": "hi"}]});
    let url = format!("{}/v1/chat/completions", server.url);
    Request::post(url).header("authorization", "Bearer a").body(Full::from(body.to_string())).unwrap()
}

/// Polls until `holds` returns `true`. Panics after a time limit, so that a failing test does not
/// hang.
async fn until(mut holds: impl FnMut() -> bool) {
    let poll = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), poll).await.unwrap();
}

async fn text(body: Incoming) -> String {
    String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn serves_http1_and_http2_and_shuts_down_gracefully() {
    let server = server(100.0).await;
    for (http2, version) in [(false, Version::HTTP_11), (true, Version::HTTP_2)] {
        let response = client(http2).request(request(&server, 20)).await.unwrap();
        assert_eq!(response.version(), version);
        assert!(text(response.into_body()).await.ends_with("data: [DONE]\n\n"));
    }
    let open = client(false).request(request(&server, 20)).await.unwrap();
    server.end.send(()).unwrap();
    assert!(text(open.into_body()).await.ends_with("data: [DONE]\n\n"), "a call in flight was cut off");
    server.task.await.unwrap().unwrap();
    assert_eq!(server.simulator.stats().tenants["a"].attempts, 3);
}

#[tokio::test]
async fn disconnect_aborts_the_sequence() {
    for http2 in [false, true] {
        let server = server(1.0).await;
        // During a stream of hours.
        let mut response = client(http2).request(request(&server, 8_000)).await.unwrap();
        response.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(server.simulator.stats().running, 1);
        drop(response);
        until(|| server.simulator.stats().in_flight == 0).await;
        // Before any response.
        let body =
            json!({"model": "sim", "max_tokens": 8000, "messages": [{"role": "user", "content": "hi"}]});
        let whole = Request::post(format!("{}/v1/chat/completions", server.url));
        let call = tokio::spawn(client(http2).request(whole.body(Full::from(body.to_string())).unwrap()));
        until(|| server.simulator.stats().running == 1).await;
        call.abort();
        until(|| server.simulator.stats().running == 0 && server.simulator.stats().in_flight == 0).await;
    }
}

#[tokio::test]
async fn resets_and_refused_connections_break_the_transport() {
    let server = server(100.0).await;
    let reset = Faults {
        reset_mid_stream: Some(StreamCut { after_tokens: 2, probability: 1.0 }),
        ..Faults::default()
    };
    server.simulator.set_faults(reset).unwrap();
    for http2 in [false, true] {
        let response = client(http2).request(request(&server, 20)).await.unwrap();
        assert!(response.into_body().collect().await.is_err());
    }
    let outage = Outage { from_s: 0.0, until_s: 1e9, mode: OutageMode::Refuse };
    server.simulator.set_faults(Faults { outages: vec![outage], ..Faults::default() }).unwrap();
    for http2 in [false, true] {
        assert!(client(http2).request(request(&server, 20)).await.is_err());
    }
    // The control API stays reachable.
    let heal = Request::post(format!("{}/sim/faults", server.url)).body(Full::from("{}")).unwrap();
    assert_eq!(client(false).request(heal).await.unwrap().status(), 200);
    assert_eq!(client(false).request(request(&server, 2)).await.unwrap().status(), 200);
}

#[tokio::test]
async fn serves_stats_over_http() {
    let server = server(100.0).await;
    text(client(false).request(request(&server, 2)).await.unwrap().into_body()).await;
    let get = Request::get(format!("{}/sim/stats", server.url)).body(Full::default()).unwrap();
    let stats: Value =
        serde_json::from_str(&text(client(false).request(get).await.unwrap().into_body()).await).unwrap();
    assert_eq!(stats["tenants"]["a"]["outcomes"]["completed"], 1);
}
