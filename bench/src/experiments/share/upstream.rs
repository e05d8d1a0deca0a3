//! The upstream: answers each call after a random service time, and records when calls begin and
//! end. It can answer single calls with a 429.
//!
//! It knows nothing of gates. A call begins when its request has arrived, and ends when it is
//! answered or when its connection is closed.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::MEMBER_HEADER;
use super::provider::Provider;
use crate::Fallible;
use crate::experiments::hot_path::std_now;

/// One call at the upstream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// The process that made the call.
    pub(super) member: usize,
    pub(super) began: Instant,
    /// `None` while the call is in flight.
    pub(super) ended: Option<Instant>,
    /// Whether the connection was closed before the call was answered.
    pub(super) aborted: bool,
    /// The tokens of its answer.
    pub(super) output: u64,
    /// Whether it was answered with a 429.
    pub(super) limited: bool,
}

/// The tokens of each prompt.
pub(super) const INPUT: u64 = 100;
/// The least and the largest number of tokens of an answer.
const OUTPUT: (u64, u64) = (50, 400);

/// An upstream on loopback, in a thread of its own, which ends with the process.
pub(super) struct Upstream {
    url: String,
    state: Arc<State>,
}

/// What the connections of an upstream share.
#[derive(Default)]
struct State {
    service: Duration,
    calls: Mutex<Vec<Call>>,
    /// The Retry-After header of the next answer, which is a 429 then.
    retry_after: Mutex<Option<Duration>>,
    /// What admits calls and writes headers, if anything does.
    provider: Option<Mutex<Provider>>,
}

impl Upstream {
    /// Starts an upstream with service times between 0.5 and 1.5 times `service`.
    pub(super) fn start(service: Duration) -> Fallible<Self> {
        Self::with_provider(service, None)
    }

    /// Starts an upstream whose provider admits calls and announces in the headers what is left.
    pub(super) fn announcing(service: Duration, provider: Provider) -> Fallible<Self> {
        Self::with_provider(service, Some(Mutex::new(provider)))
    }

    fn with_provider(service: Duration, provider: Option<Mutex<Provider>>) -> Fallible<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let state = Arc::new(State { service, provider, ..State::default() });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let served = state.clone();
        std::thread::spawn(move || runtime.block_on(accept(listener, served)));
        Ok(Self { url, state })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Answers the next call at once with a 429 whose Retry-After header has the whole seconds of
    /// `time`.
    pub(super) fn limit_next_call(&self, time: Duration) {
        *self.state.retry_after.lock() = Some(time);
    }

    /// Returns the number of calls in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.state.calls.lock().iter().rev().filter(|call| call.ended.is_none()).count()
    }

    /// Returns when the first call of a member arrived, or `None` if none did.
    pub(super) fn first_of(&self, member: usize) -> Option<Instant> {
        self.state.calls.lock().iter().find(|call| call.member == member).map(|call| call.began)
    }

    /// Returns all calls until now.
    pub(super) fn calls(&self) -> Vec<Call> {
        self.state.calls.lock().clone()
    }
}

/// Serves connections without end.
async fn accept(listener: std::net::TcpListener, state: Arc<State>) -> std::io::Result<Infallible> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(serve(stream, state.clone()))),
            // Too many open files, for example.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn serve(mut stream: TcpStream, state: Arc<State>) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    while let Some(member) = read_request(&mut stream).await {
        let output = fastrand::u64(OUTPUT.0..=OUTPUT.1);
        let retry_after = state.retry_after.lock().take();
        let answer = state.provider.as_ref().map(|provider| provider.lock().admit(std_now()));
        let (is_admitted, headers) = answer.unwrap_or((retry_after.is_none(), String::new()));
        let limited = !is_admitted;
        let number = {
            let mut calls = state.calls.lock();
            calls.push(Call { member, began: std_now(), ended: None, aborted: false, output, limited });
            calls.len() - 1
        };
        let time = if limited { Duration::ZERO } else { state.service.mul_f64(0.5 + fastrand::f64()) };
        let mut byte = [0];
        let aborted = tokio::select! {
            () = tokio::time::sleep(time) => false,
            // The caller has closed the connection.
            _ = stream.read(&mut byte) => true,
        };
        if let Some(call) = state.calls.lock().get_mut(number) {
            (call.ended, call.aborted) = (Some(std_now()), aborted);
        }
        let (status, body) = if limited {
            let wait = retry_after.map(|time| format!("\r\nretry-after: {}", time.as_secs()));
            (format!("429 Too Many Requests{}", wait.unwrap_or_default()), "{}".to_owned())
        } else {
            let body = format!(r#"{{"usage": {{"prompt_tokens": {INPUT}, "completion_tokens": {output}}}}}"#);
            ("200 OK".to_owned(), body)
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\n{headers}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        if aborted || stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads a request with its body, and returns the member that sent it. Returns `None` at the end of
/// the connection.
async fn read_request(stream: &mut TcpStream) -> Option<usize> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?.to_ascii_lowercase();
    let number = |name: &str| {
        let value = head.split(&format!("\r\n{name}: ")).nth(1)?.split("\r\n").next()?;
        value.parse::<usize>().ok()
    };
    let mut body = vec![0; number("content-length").unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    number(MEMBER_HEADER)
}
