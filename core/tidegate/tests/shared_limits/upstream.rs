//! An upstream that counts the calls in flight, and answers a call only when a test permits it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// Time after which a test that waits fails.
pub(crate) const GIVE_UP_AFTER: Duration = Duration::from_secs(30);

/// What the upstream has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) in_flight: usize,
    pub(crate) peak: usize,
    pub(crate) answered: usize,
    /// Calls whose connections were closed before they were answered.
    pub(crate) aborted: usize,
}

/// A counting upstream on loopback.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    seen: watch::Sender<Seen>,
    answers: Arc<Semaphore>,
    /// The head of the next answers, or `None` for `200 OK`.
    pub(crate) head: Arc<Mutex<Option<String>>>,
}

impl Upstream {
    /// Starts an upstream that answers nothing yet.
    pub(crate) async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, _) = watch::channel(Seen::default());
        let (answers, head) = (Arc::new(Semaphore::new(0)), Arc::default());
        let upstream = Arc::new(Self { address, seen, answers, head });
        let serving = upstream.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        upstream
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub(crate) fn seen(&self) -> Seen {
        *self.seen.borrow()
    }

    /// Answers `calls` calls, present or future ones.
    pub(crate) fn answer(&self, calls: usize) {
        self.answers.add_permits(calls);
    }

    /// Answers no call until [`Upstream::answer`] is called again.
    pub(crate) fn answer_no_more(&self) {
        self.answers.forget_permits(usize::MAX);
    }

    /// Waits until `condition` holds.
    pub(crate) async fn until(&self, condition: impl Fn(&Seen) -> bool) -> Seen {
        let mut seen = self.seen.subscribe();
        match tokio::time::timeout(GIVE_UP_AFTER, seen.wait_for(condition)).await {
            Ok(seen) => *seen.unwrap(),
            Err(_) => panic!("the upstream saw only {:?}", self.seen()),
        }
    }

    async fn serve(self: Arc<Self>, mut stream: TcpStream) {
        while let Some(head) = read_request(&mut stream).await {
            if !head.starts_with("post") {
                // The gate asks whether this is vLLM.
                let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await;
                continue;
            }
            self.seen.send_modify(|seen| {
                seen.in_flight += 1;
                seen.peak = seen.peak.max(seen.in_flight);
            });
            let mut byte = [0];
            let is_answered = tokio::select! {
                permit = self.answers.acquire() => { permit.unwrap().forget(); true }
                // The caller has closed the connection.
                _ = stream.read(&mut byte) => false,
            };
            self.seen.send_modify(|seen| {
                seen.in_flight -= 1;
                seen.answered += usize::from(is_answered);
                seen.aborted += usize::from(!is_answered);
            });
            let head = self.head.lock().clone();
            let head = head.unwrap_or_else(|| "HTTP/1.1 200 OK\r\n".to_owned());
            let answer = format!("{head}content-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}");
            if !is_answered || stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

/// Reads a request with its body, and returns its head in lower case. Returns `None` at the end of
/// the connection.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?.to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    let length = length.map_or(Some(0), |text| text.parse().ok())?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok().map(|_| head)
}
