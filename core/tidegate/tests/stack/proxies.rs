//! Tests of proxy selection against the table in `tests/vectors/proxies.json`, observed on sockets.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::Request;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::Value;
use tidegate::config::{Config, TransportConfig};
use tidegate::transport::{Http, ProxyRules};
use tidegate::{Error, ErrorKind, Gate, RequestBody, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

/// The labels of the servers that were connected to, each with the proxy credentials that it
/// received.
type Seen = Arc<Mutex<Vec<String>>>;

/// Starts a server on loopback, and returns its port. The server accepts HTTP proxy, SOCKS proxy
/// and plain HTTP connections, and records each of them in `seen` under `label`. It opens no
/// tunnels, so CONNECT, SOCKS and TLS fail.
async fn recorder(label: &'static str, seen: &Seen) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = seen.clone();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let seen = seen.clone();
            tokio::spawn(async move { exchange(socket, label, &seen).await });
        }
    });
    port
}

async fn exchange(mut socket: TcpStream, label: &str, seen: &Seen) -> std::io::Result<()> {
    let note = |credentials: &str| seen.lock().push(format!("{label} {credentials}").trim().to_owned());
    match socket.read_u8().await? {
        0x05 => {
            let credentials = socks_login(&mut socket).await?;
            note(&credentials);
            socket.write_all(&[5, 2, 0, 1, 0, 0, 0, 0, 0, 0]).await
        }
        0x16 => {
            note("");
            Ok(())
        }
        first => {
            let mut head = vec![first];
            while !head.ends_with(b"\r\n\r\n") {
                head.push(socket.read_u8().await?);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let basic = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": Basic ")?;
                name.eq_ignore_ascii_case("proxy-authorization").then_some(value)
            });
            note(&String::from_utf8(BASE64_STANDARD.decode(basic.unwrap_or_default()).unwrap()).unwrap());
            let status = if head.starts_with("CONNECT ") { "403 Forbidden" } else { "200 OK" };
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            socket.write_all(answer.as_bytes()).await
        }
    }
}

/// Reads a SOCKS5 greeting and login (RFC 1929), up to the requested address. Returns
/// `user:password`, or an empty text if the client offers no login.
async fn socks_login(socket: &mut TcpStream) -> std::io::Result<String> {
    let methods = text(socket).await?;
    if !methods.contains('\u{2}') {
        socket.write_all(&[5, 0]).await?;
        socket.read_u8().await?;
        return Ok(String::new());
    }
    socket.write_all(&[5, 2]).await?;
    socket.read_u8().await?;
    let credentials = format!("{}:{}", text(socket).await?, text(socket).await?);
    socket.write_all(&[1, 0]).await?;
    socket.read_u8().await?;
    Ok(credentials)
}

async fn text(socket: &mut TcpStream) -> std::io::Result<String> {
    let mut bytes = vec![0; socket.read_u8().await?.into()];
    socket.read_exact(&mut bytes).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns `text` with the placeholders of the table, such as `{a}`, replaced by addresses, ports
/// and names.
fn fill(text: &str, ports: [u16; 3]) -> String {
    let [a, b, origin] = ports;
    // A name of 254 octets. Resolvers reject it without sending a query.
    let name = ["a", "b", "c", "d"].map(|letter| letter.repeat(60)).join(".") + ".x.example";
    text.replace("{a}", &format!("127.0.0.1:{a}"))
        .replace("{b}", &format!("127.0.0.1:{b}"))
        .replace("{aport}", &a.to_string())
        .replace("{port}", &origin.to_string())
        .replace("{NAME}", &name.to_uppercase())
        .replace("{name}", &name)
}

fn open(variables: &HashMap<String, String>) -> Result<Gate, Error> {
    let rules = ProxyRules::from_env(|name| variables.get(name).cloned())?;
    let http = Http::with_proxies(TransportConfig::default(), rules)?;
    let retry = tidegate::config::Retry::new().attempts(1);
    let config = Config::builder().defaults(|target| target.retry(retry)).build()?;
    Gate::over(config, Transport::new(http))
}

fn variables(case: &Value, ports: [u16; 3]) -> HashMap<String, String> {
    let env = case["env"].as_object().unwrap();
    env.iter().map(|(name, value)| (name.clone(), fill(value.as_str().unwrap(), ports))).collect()
}

async fn get(gate: &Gate, url: &str) {
    let request = Request::get(url).body(RequestBody::default()).unwrap();
    match gate.client().call(request).await {
        Ok(response) => drop(response.into_body().collect().await),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Connect, "{error}"),
    }
}

#[tokio::test]
async fn each_url_uses_the_proxy_of_the_table() {
    let path = format!("{}/../../tests/vectors/proxies.json", env!("CARGO_MANIFEST_DIR"));
    let file: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let seen = Seen::default();
    let ports = [recorder("a", &seen).await, recorder("b", &seen).await, recorder("direct", &seen).await];
    let (mut compared, mut differences) = (0, Vec::new());
    for case in file["cases"].as_array().unwrap() {
        compared += 1;
        let name = case["name"].as_str().unwrap();
        let Some(urls) = case.get("urls") else {
            let Err(error) = open(&variables(case, ports)) else { panic!("{name}: no error") };
            assert_eq!(error.kind(), ErrorKind::Config, "{name}");
            continue;
        };
        let gate = open(&variables(case, ports)).expect(name);
        for (url, expected) in urls.as_object().unwrap() {
            seen.lock().clear();
            get(&gate, &fill(url, ports)).await;
            let way = seen.lock().join(" then ");
            let way = if way.is_empty() { "direct" } else { &way };
            if way != expected {
                differences.push(format!("{name}: {url}: {way}, not {expected}"));
            }
        }
    }
    assert!(compared >= 60);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[tokio::test]
async fn proxy_credentials_appear_in_no_error_or_debug_output() {
    let seen = Seen::default();
    let port = recorder("a", &seen).await;
    for value in [
        format!("http://user:sesame@127.0.0.1:{port}"),
        "http://user:sesame@127.0.0.1:1".to_owned(),
        format!("socks5://user:sesame@127.0.0.1:{port}"),
        "gopher://user:sesame@127.0.0.1".to_owned(),
        "http://user:sesame@127.0.0.1:port".to_owned(),
        "user:sesame".to_owned(),
    ] {
        let read = |name: &str| (name == "all_proxy").then(|| value.clone());
        let mut said = String::new();
        match ProxyRules::from_env(read) {
            Err(error) => {
                assert!(error.message().contains("all_proxy"), "{error}");
                said += &format!("{error} {error:?}");
            }
            Ok(rules) => {
                said += &format!("{rules} {rules:?}");
                let http = Http::with_proxies(TransportConfig::default(), rules).unwrap();
                let retry = tidegate::config::Retry::new().attempts(1);
                let config = Config::builder().defaults(|target| target.retry(retry)).build().unwrap();
                let gate = Gate::over(config, Transport::new(http)).unwrap();
                let request = Request::get("https://127.0.0.1:1/").body(RequestBody::default()).unwrap();
                let error = gate.client().call(request).await.expect_err("nobody answers");
                said += &format!("{error} {error:?} {:?}", gate.calls());
            }
        }
        assert!(!said.contains("sesame") && !said.contains("user"), "{said}");
    }
}

#[tokio::test]
async fn proxy_rules_of_a_request_replace_those_of_the_gate() {
    let seen = Seen::default();
    let (a, b) = (recorder("a", &seen).await, recorder("b", &seen).await);
    let rules = |port: u16| {
        ProxyRules::from_env(|name| (name == "http_proxy").then(|| format!("127.0.0.1:{port}"))).unwrap()
    };
    for (proxy_from_env, expected) in [(true, vec!["a", "b"]), (false, vec![])] {
        seen.lock().clear();
        let config = TransportConfig { proxy_from_env, ..TransportConfig::default() };
        let retry = tidegate::config::Retry::new().attempts(1);
        let gate = Config::builder().defaults(|target| target.retry(retry)).build().unwrap();
        let gate = Gate::over(gate, Transport::new(Http::with_proxies(config, rules(a)).unwrap())).unwrap();
        let request = || Request::get("http://127.0.0.1:1/").body(RequestBody::default()).unwrap();
        let mut own = request();
        own.extensions_mut().insert(rules(b));
        for request in [request(), own] {
            drop(gate.client().call(request).await);
        }
        assert_eq!(*seen.lock(), expected);
    }
}

/// `http2_prior_knowledge` is knowledge about servers, and not about the proxies before them.
#[tokio::test]
async fn forwarding_proxy_receives_http1_with_prior_knowledge_of_http2() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap().to_string();
    let received = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(socket.read_u8().await.unwrap());
        }
        socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        String::from_utf8(head).unwrap()
    });
    let rules = ProxyRules::from_env(|name| (name == "http_proxy").then(|| proxy.clone())).unwrap();
    let config = TransportConfig { http2_prior_knowledge: true, ..TransportConfig::default() };
    let http = Http::with_proxies(config, rules).unwrap();
    let request = Request::get("http://llm.test/v1/models").body(RequestBody::default()).unwrap();
    let response = http.oneshot(request).await;
    let head = received.await.unwrap();
    assert!(head.starts_with("GET http://llm.test/v1/models HTTP/1.1\r\n"), "{head}");
    assert_eq!(response.unwrap().status(), 200);
}
