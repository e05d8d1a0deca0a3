//! Tests of transports that a host provides (`Foreign`): faults of the host, and when slots are
//! released.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use tidegate::config::{LimitSettings, Retry};
use tidegate::transport::foreign::{Exchange, Foreign, GRACE, Host, SendState};
use tidegate::{Context, Error, ErrorKind, Gate, Reason, RequestBody, Transport};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use crate::support::*;

/// A call of a [`Host`] method, with its arguments.
enum Told {
    Begin(Box<Request<RequestBody>>, Exchange),
    Cancel(u64),
}

/// A host that sends each call of its methods to the test, which then acts as the host.
struct Mailbox(UnboundedSender<Told>);

impl Host for Mailbox {
    fn begin(&self, request: Request<RequestBody>, exchange: Exchange) {
        let _ = self.0.send(Told::Begin(Box::new(request), exchange));
    }
    fn cancel(&self, id: u64) {
        let _ = self.0.send(Told::Cancel(id));
    }
}

struct Letters(UnboundedReceiver<Told>);

impl Letters {
    async fn begun(&mut self) -> (Request<RequestBody>, Exchange) {
        match self.0.recv().await {
            Some(Told::Begin(request, exchange)) => (*request, exchange),
            _ => panic!("no exchange"),
        }
    }
    async fn cancelled(&mut self) -> u64 {
        match self.0.recv().await {
            Some(Told::Cancel(id)) => id,
            _ => panic!("not cancelled"),
        }
    }
    fn is_empty(&mut self) -> bool {
        self.0.try_recv().is_err()
    }
}

fn mailbox() -> (Foreign, Letters) {
    let (sender, letters) = unbounded_channel();
    (Foreign::new(Mailbox(sender)), Letters(letters))
}

fn over(shape: impl FnOnce(tidegate::config::Target) -> tidegate::config::Target) -> (Gate, Letters) {
    let (foreign, letters) = mailbox();
    (gate(Transport::new(foreign), shape), letters)
}

type Call = tokio::task::JoinHandle<Result<Bytes, Error>>;

fn start(gate: &Gate, request: Request<RequestBody>) -> Call {
    let client = gate.client();
    tokio::spawn(async move { read(client.call(request).await?).await })
}

fn ok(kind: &str) -> Response<()> {
    Response::builder().header("content-type", kind).body(()).unwrap()
}

fn sized(length: usize) -> Response<()> {
    let head = Response::builder().header("content-type", "application/json");
    head.header("content-length", length).body(()).unwrap()
}

fn serve(exchange: Exchange) {
    assert!(exchange.answer(ok("application/json")));
    exchange.chunk(Bytes::from(ANSWER));
    exchange.end();
}

fn in_flight(gate: &Gate) -> usize {
    gate.snapshot().targets["llm"].in_flight
}

#[tokio::test(start_paused = true)]
async fn answers_of_known_endpoints_are_requested_uncompressed() {
    let (gate, mut letters) = over(|t| t);
    for (path, expected) in [("embeddings", "identity"), ("rerank", "identity"), ("made/up", "gzip")] {
        let request = Request::post(format!("http://llm/v1/{path}"));
        let request = request.header("accept-encoding", "gzip").body(Bytes::from("{}").into()).unwrap();
        let call = start(&gate, request);
        let (request, exchange) = letters.begun().await;
        assert_eq!(request.headers()["accept-encoding"], expected, "{path}");
        serve(exchange);
        call.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn response_is_returned_and_its_end_releases_the_slot() {
    let (gate, mut letters) = over(|t| t.cap(1));
    let (first, second) = (start(&gate, chat(false)), start(&gate, chat(false)));
    let (request, exchange) = letters.begun().await;
    assert_eq!(request.uri().path(), "/v1/chat/completions");
    assert_eq!(request.headers()["accept-encoding"], "identity", "as the core sends it");
    assert!(request.body().bytes().is_some());
    assert!(letters.is_empty(), "the second waits for a slot");
    serve(exchange);
    serve(letters.begun().await.1);
    assert_eq!(first.await.unwrap().unwrap(), ANSWER);
    assert_eq!(second.await.unwrap().unwrap(), ANSWER);
    assert!(letters.is_empty(), "what has ended is not cancelled");
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn request_can_bring_its_own_transport_in_each_mode() {
    for mode in
        [tidegate::config::Mode::Enforce, tidegate::config::Mode::Observe, tidegate::config::Mode::Off]
    {
        let (native, seen) = upstream(|_, _, exchange| async { Ok(json(exchange, "{}")) });
        let gate = Gate::builder()
            .target(tidegate::config::Target::new("llm").url("http://llm").cap(4))
            .mode(mode)
            .build_over(native)
            .unwrap();
        let (foreign, mut letters) = mailbox();
        let mut request = chat(false);
        request.extensions_mut().insert(foreign);
        let call = start(&gate, request);
        serve(letters.begun().await.1);
        assert_eq!(call.await.unwrap().unwrap(), ANSWER);
        assert_eq!(seen.attempts(), 0);
        assert_eq!(read(gate.client().call(chat(false)).await.unwrap()).await.unwrap(), "{}");
        assert_eq!(seen.attempts(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn gate_retries_and_cools_down_over_a_foreign_transport() {
    let (foreign, mut letters) = mailbox();
    let (native, seen) = upstream(|_, _, exchange| async { Ok(json(exchange, ANSWER)) });
    let gate = gate(native, |t| t);
    let mut request = chat(false);
    request.extensions_mut().insert(foreign);
    let begin = Instant::now();
    let kept = start(&gate, request);
    let (_, exchange) = letters.begun().await;
    exchange.answer(Response::builder().status(429).header("retry-after", "7").body(()).unwrap());
    exchange.end();
    tokio::time::sleep(SECOND).await;
    let other = start(&gate, chat(false));
    serve(letters.begun().await.1);
    assert!(begin.elapsed() >= 7 * SECOND);
    assert_eq!(kept.await.unwrap().unwrap(), ANSWER);
    assert_eq!(other.await.unwrap().unwrap(), ANSWER);
    assert!(begin.elapsed() >= 7 * SECOND, "the target's cool-down holds for every transport");
    assert_eq!(seen.attempts(), 1);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn cancelled_slot_is_held_until_the_host_has_ended_the_exchange() {
    for answered in [false, true] {
        let (gate, mut letters) = over(|t| t.cap(1));
        let call = start(&gate, chat(true));
        let (_, exchange) = letters.begun().await;
        if answered {
            exchange.answer(ok("text/event-stream"));
            exchange.chunk(Bytes::from(ROLE));
            tokio::task::yield_now().await;
        }
        let next = start(&gate, chat(false));
        tokio::task::yield_now().await;
        call.abort();
        assert_eq!(letters.cancelled().await, exchange.id());
        tokio::time::sleep(GRACE - Duration::from_millis(1)).await;
        assert!(letters.is_empty(), "no next exchange, no second cancel");
        assert_eq!((in_flight(&gate), exchange.is_cancelled()), (1, true));
        assert!(!exchange.answer(ok("text/event-stream")), "after cancel");
        assert_eq!(exchange.chunk(Bytes::from(TOKEN)), SendState::Closed);
        assert!(!exchange.room().await);
        drop(exchange);
        serve(letters.begun().await.1);
        assert_eq!(next.await.unwrap().unwrap(), ANSWER);
        assert_idle(&gate);
    }
}

#[tokio::test(start_paused = true)]
async fn host_that_never_ends_a_cancelled_exchange_holds_its_slot_for_the_grace_period() {
    let (gate, mut letters) = over(|t| t.cap(1));
    let call = start(&gate, chat(false));
    let (_, lost) = letters.begun().await;
    call.abort();
    letters.cancelled().await;
    let at = Instant::now();
    let next = start(&gate, chat(false));
    let (_, exchange) = letters.begun().await;
    assert_eq!(at.elapsed(), GRACE);
    serve(exchange);
    assert_eq!(next.await.unwrap().unwrap(), ANSWER);
    assert_idle(&gate);
    lost.end();
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn drain_waits_for_calls_but_not_for_hosts() {
    let (gate, mut letters) = over(|t| t.cap(1));
    let call = start(&gate, chat(false));
    let (_, exchange) = letters.begun().await;
    assert_eq!(gate.drain(SECOND).await, 1);
    call.abort();
    letters.cancelled().await;
    let at = Instant::now();
    assert_eq!(gate.drain(60 * SECOND).await, 0);
    assert_eq!((at.elapsed(), in_flight(&gate)), (Duration::ZERO, 1));
    drop(exchange);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn host_that_never_responds_runs_into_the_timeouts() {
    let (gate, mut letters) = over(|t| t.first_token(3 * SECOND));
    let begin = Instant::now();
    let mut request = chat(true);
    let deadline = Some(begin + 4 * SECOND);
    request.extensions_mut().insert(Context { deadline, ..Context::default() });
    let call = start(&gate, request);
    let (_, exchange) = letters.begun().await;
    letters.cancelled().await;
    assert_eq!(begin.elapsed(), 3 * SECOND);
    let kind = call.await.unwrap().unwrap_err().kind();
    assert!(matches!(
        kind,
        ErrorKind::FirstTokenTimeout | ErrorKind::Deadline | ErrorKind::Refused(Reason::Deadline)
    ));
    assert!(begin.elapsed() <= 4 * SECOND);
    drop(exchange);
}

#[tokio::test(start_paused = true)]
async fn only_the_first_response_of_a_host_counts() {
    let (gate, mut letters) = over(|t| t);
    let call = start(&gate, chat(false));
    let (_, exchange) = letters.begun().await;
    assert!(exchange.answer(ok("application/json")));
    assert!(!exchange.answer(Response::builder().status(500).body(()).unwrap()));
    exchange.chunk(Bytes::from(ANSWER));
    exchange.end();
    assert_eq!(call.await.unwrap().unwrap(), ANSWER);
}

#[tokio::test(start_paused = true)]
async fn short_body_is_truncated_and_long_body_passes() {
    for (announced, expected) in
        [(ANSWER.len() + 1, Err(ErrorKind::Truncated)), (ANSWER.len(), Ok(())), (ANSWER.len() - 1, Ok(()))]
    {
        let (gate, mut letters) = over(|t| t);
        let call = start(&gate, chat(false));
        let (_, exchange) = letters.begun().await;
        exchange.answer(sized(announced));
        exchange.chunk(Bytes::from(ANSWER));
        exchange.end();
        assert_eq!(call.await.unwrap().map(drop).map_err(|error| error.kind()), expected);
        assert_idle(&gate);
    }
    let (gate, mut letters) = over(|t| t);
    let call = start(&gate, Request::head("http://llm/v1/models").body(RequestBody::default()).unwrap());
    let (_, exchange) = letters.begun().await;
    exchange.answer(sized(7));
    exchange.end();
    assert_eq!(call.await.unwrap().unwrap(), "", "a HEAD announces what does not come");
}

#[tokio::test(start_paused = true)]
async fn stream_without_terminal_event_is_truncated() {
    let (gate, mut letters) = over(|t| t);
    let call = start(&gate, chat(true));
    let (_, exchange) = letters.begun().await;
    exchange.answer(ok("text/event-stream"));
    exchange.chunk(Bytes::from([ROLE, TOKEN].concat()));
    exchange.end();
    assert_eq!(call.await.unwrap().unwrap_err().kind(), ErrorKind::Truncated);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn host_that_drops_the_exchange_fails_it() {
    let (gate, mut letters) = over(|t| t);
    let call = start(&gate, chat(true));
    let (_, exchange) = letters.begun().await;
    exchange.answer(ok("text/event-stream"));
    exchange.chunk(Bytes::from([ROLE, TOKEN].concat()));
    drop(exchange);
    assert_eq!(call.await.unwrap().unwrap_err().kind(), ErrorKind::Transport);
    assert!(letters.is_empty(), "nobody cancels what is over");
    assert_idle(&gate);
}

#[derive(Debug)]
struct Original(&'static str);

impl std::fmt::Display for Original {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Original {}

#[tokio::test(start_paused = true)]
async fn source_of_a_hosts_error_is_returned_to_the_host() {
    let (gate, mut letters) = over(|t| t.retry(Retry::new().attempts(2)));
    let call = start(&gate, chat(false));
    for text in ["first", "second"] {
        let (_, exchange) = letters.begun().await;
        exchange.fail(Error::new(ErrorKind::Connect, "no route").with_source(Original(text)));
    }
    let error = call.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.target()), (ErrorKind::Connect, Some("llm")));
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<Original>());
    assert_eq!(source.map(|original| original.0), Some("second"));
    assert!(!format!("{error} {error:?}").contains("second"), "a host's words may hold a URL with a key");
}

#[tokio::test(start_paused = true)]
async fn host_may_send_one_chunk_ahead() {
    let (gate, mut letters) = over(|t| t);
    let call = {
        let client = gate.client();
        tokio::spawn(async move { client.call(chat(true)).await })
    };
    let (_, exchange) = letters.begun().await;
    exchange.answer(ok("text/event-stream"));
    tokio::task::yield_now().await;
    assert_eq!(exchange.chunk(Bytes::from(TOKEN)), SendState::Open, "somebody waits for it");
    let response = call.await.unwrap().unwrap();
    assert_eq!(exchange.chunk(Bytes::from(ROLE)), SendState::Full);
    assert_eq!(exchange.chunk(Bytes::new()), SendState::Full, "an empty one says nothing");
    let room = tokio::spawn(async move { (exchange.room().await, exchange) });
    tokio::task::yield_now().await;
    assert!(!room.is_finished());
    let mut body = response.into_body();
    for expected in [TOKEN, ROLE] {
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), expected);
    }
    let (more, exchange) = room.await.unwrap();
    assert!(more);
    for room in [SendState::Full, SendState::Full, SendState::Closed] {
        assert_eq!(exchange.chunk(Bytes::from(TOKEN)), room);
    }
    drop(exchange);
    let error = body.collect().await.unwrap_err();
    assert!(error.message().contains("before the previous one was read"), "{error}");
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn blocking_host_reads_only_when_the_reader_waits() {
    let (gate, mut letters) = over(|t| t);
    let call = {
        let client = gate.client();
        tokio::spawn(async move { client.call(chat(true)).await })
    };
    let (_, exchange) = letters.begun().await;
    exchange.answer(ok("text/event-stream"));
    assert!(exchange.wanted().await, "the first token is waited for");
    exchange.chunk(Bytes::from(TOKEN));
    let mut body = call.await.unwrap().unwrap().into_body();
    let wanted = tokio::spawn(exchange.wanted());
    tokio::task::yield_now().await;
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), TOKEN);
    tokio::task::yield_now().await;
    assert!(!wanted.is_finished(), "taken, but no more is asked for");
    let reader = tokio::spawn(async move { body.frame().await });
    assert!(wanted.await.unwrap());
    reader.abort();
    assert_eq!(letters.cancelled().await, exchange.id());
    assert!(!exchange.wanted().await);
    drop(exchange);
    assert_idle(&gate);
}

/// A host whose `cancel` panics, and counts its calls in the first field. `begin` panics too if the
/// second field is `false`.
struct Clumsy(Arc<AtomicUsize>, bool);

impl Host for Clumsy {
    fn begin(&self, _: Request<RequestBody>, exchange: Exchange) {
        assert!(self.1, "begin");
        std::mem::forget(exchange);
    }
    fn cancel(&self, _: u64) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("cancel");
    }
}

#[tokio::test(start_paused = true)]
async fn panicking_host_fails_only_its_exchange() {
    let cancels = Arc::new(AtomicUsize::new(0));
    let gate = gate(Transport::new(Foreign::new(Clumsy(cancels.clone(), false))), |t| t.cap(1));
    let error = gate.client().call(chat(false)).await.unwrap_err();
    assert_eq!((error.kind(), cancels.load(Ordering::SeqCst)), (ErrorKind::Transport, 0));
    assert_idle(&gate);

    let gate = self::gate(Transport::new(Foreign::new(Clumsy(cancels.clone(), true))), |t| t.cap(1));
    let call = start(&gate, chat(false));
    tokio::task::yield_now().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!((cancels.load(Ordering::SeqCst), in_flight(&gate)), (1, 1));
    tokio::time::sleep(GRACE).await;
    tokio::task::yield_now().await;
    assert_idle(&gate);
}

#[test]
fn runtime_shutdown_releases_the_slot() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (gate, mut letters) = over(|t| t.cap(1));
    let first = runtime();
    let exchange = first.block_on(async {
        let call = start(&gate, chat(false));
        let (_, exchange) = letters.begun().await;
        call.abort();
        letters.cancelled().await;
        exchange
    });
    drop(first);
    let second = runtime();
    second.block_on(async { assert_idle(&gate) });
    drop(exchange);
    second.block_on(async { assert_idle(&gate) });
}

#[tokio::test(start_paused = true)]
async fn many_cancelled_exchanges_leave_no_slot_in_use() {
    let (gate, mut letters) = over(|t| t.cap(8));
    let host = tokio::spawn(async move {
        while let Some(told) = letters.0.recv().await {
            let Told::Begin(_, exchange) = told else { continue };
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(exchange.id() % 7)).await;
                exchange.answer(ok("text/event-stream"));
                for text in [ROLE, TOKEN, STOP] {
                    tokio::time::sleep(Duration::from_millis(3)).await;
                    if exchange.chunk(Bytes::from(text)) == SendState::Closed || !exchange.room().await {
                        // Ending the exchange upstream takes a while.
                        tokio::time::sleep(Duration::from_millis(exchange.id() % 11)).await;
                        return;
                    }
                }
                exchange.end();
            });
        }
    });
    let calls = (0..2000u64).map(|n| {
        let client = gate.client();
        tokio::spawn(async move {
            let life = Duration::from_micros(n * 7919 % 60_000);
            let _ = tokio::time::timeout(life, async { read(client.call(chat(true)).await?).await }).await;
        })
    });
    futures_util::future::join_all(calls.collect::<Vec<_>>()).await;
    tokio::time::sleep(GRACE).await;
    assert_idle(&gate);
    assert!(gate.snapshot().targets["llm"].peak_in_flight <= 8);
    host.abort();
}

#[tokio::test(start_paused = true)]
async fn first_token_limit_counts_cancelled_exchanges_until_the_host_ends_them() {
    let (gate, mut letters) = over(|t| t.limit(LimitSettings::new().start(8).awaiting(1)));
    let calls: Vec<_> = (0..3).map(|_| start(&gate, chat(true))).collect();
    let (_, first) = letters.begun().await;
    assert!(first.answer(ok("text/event-stream")));
    first.chunk(Bytes::from(ROLE));
    tokio::time::sleep(SECOND).await;
    assert!(letters.is_empty(), "a role is no token");
    first.chunk(Bytes::from(TOKEN));
    let (_, second) = letters.begun().await;
    calls[1].abort();
    assert_eq!(letters.cancelled().await, second.id());
    assert!(letters.is_empty(), "the second is still at it");
    drop(second);
    let (_, third) = letters.begun().await;
    for exchange in [first, third] {
        exchange.answer(ok("text/event-stream"));
        exchange.chunk(Bytes::from(TOKEN));
        exchange.chunk(Bytes::from(STOP));
        tokio::time::sleep(SECOND).await;
        exchange.chunk(Bytes::from(DONE));
        exchange.end();
    }
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.is_ok_and(|read| read.is_ok()), n != 1);
    }
    assert_eq!(gate.snapshot().targets["llm"].adaptive.as_ref().map(|limit| limit.awaiting), Some(0));
    assert_idle(&gate);
}
