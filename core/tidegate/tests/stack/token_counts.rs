//! Tests of exact token counts, by vLLM's `/tokenize` and by OpenAI's tokenizers. A failed count
//! never fails the call.

use std::io::Write;
use std::sync::Arc;

use http::{Request, Response};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tidegate::config::{Mode, Tokenizer};
use tidegate::internals::{Call, GateRequest};
use tidegate::{CallStatus, Error, Gate, RequestBody, ResponseBody, Transport};
use tokio::time::{Duration, Instant};

use crate::support::{ANSWER, Exchange, SECOND, assert_idle, gate, json as answer, read, status, upstream};

/// The requests that a scripted vLLM server received.
#[derive(Default)]
struct Server {
    /// The body of each request to `/tokenize`, with the value of its `authorization` header.
    asked: Mutex<Vec<(Value, String)>>,
    /// The exact number of prompt tokens of each call that reached the server. `None` if the call
    /// was not counted.
    known: Mutex<Vec<Option<u64>>>,
}

/// Returns a transport to a scripted vLLM server and the record of its requests. `tokenize` answers
/// requests to `/tokenize`. Other requests get a successful response.
fn vllm<F, Fut>(tokenize: F) -> (Transport, Arc<Server>)
where
    F: Fn(Exchange) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Response<ResponseBody>, Error>> + Send + 'static,
{
    let server = Arc::new(Server::default());
    let seen = server.clone();
    let (transport, _) = upstream(move |_, request: Request<RequestBody>, exchange| {
        let (seen, tokenize) = (seen.clone(), tokenize.clone());
        async move {
            if request.uri().path() != "/tokenize" {
                let call = request.extensions().get::<Call>().expect("a call");
                seen.known.lock().push(call.exact_input());
                return Ok(answer(exchange, ANSWER));
            }
            assert_eq!(request.extensions().get::<GateRequest>(), Some(&GateRequest::Query));
            let key = request.headers()["authorization"].to_str().expect("text").to_owned();
            assert_eq!(request.headers()["content-type"], "application/json");
            assert!(!request.headers().contains_key("content-encoding"));
            let body = request.into_body().collect().await?.to_bytes();
            seen.asked.lock().push((serde_json::from_slice(&body).expect("JSON"), key));
            tokenize(exchange).await
        }
    });
    (transport, server)
}

fn tokens(exchange: Exchange) -> Response<ResponseBody> {
    answer(exchange, r#"{"count": 4321, "max_model_len": 8192, "tokens": [1, 2, 3]}"#)
}

fn chat() -> Value {
    json!({"model": "m", "stream": false, "max_tokens": 9, "messages": [{"role": "user", "content": "hello world"}]})
}

fn request(path: &str, body: impl Into<RequestBody>) -> Request<RequestBody> {
    Request::post(format!("http://llm{path}"))
        .header("authorization", "Bearer k")
        .body(body.into())
        .expect("a request")
}

async fn send(gate: &Gate, body: &Value) {
    let response =
        gate.client().call(request("/v1/chat/completions", body.to_string())).await.expect("an answer");
    read(response).await.expect("all of it");
}

#[tokio::test(start_paused = true)]
async fn vllm_counts_prompts_without_a_slot() {
    let (transport, server) = vllm(|exchange| async move { Ok(tokens(exchange)) });
    let gate = gate(transport, |t| t.tokenizer(Tokenizer::Vllm).cap(1));
    send(&gate, &chat()).await;
    let asked = std::mem::take(&mut *server.asked.lock());
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hello world"}]});
    assert_eq!(asked, [(body, "Bearer k".to_owned())]);
    assert_eq!(*server.known.lock(), [Some(4321)]);
    assert_eq!(gate.calls().records().len(), 1, "a question is no call");
    assert_idle(&gate);

    // A completion has a prompt. A compressed body is decompressed for counting, and sent
    // unchanged.
    let completion = json!({"model": "m", "prompt": "hello", "max_tokens": 5}).to_string();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(completion.as_bytes()).expect("memory");
    let mut sealed = request("/v1/completions", gzip.finish().expect("memory"));
    sealed.headers_mut().insert("content-encoding", "gzip".parse().expect("a value"));
    read(gate.client().call(sealed).await.expect("an answer")).await.expect("all of it");
    assert_eq!(server.asked.lock()[0].0, json!({"model": "m", "prompt": "hello"}));
    assert_eq!(*server.known.lock(), [Some(4321), Some(4321)]);
}

/// The sums over the calls in flight must not overflow.
#[tokio::test(start_paused = true)]
async fn absurd_count_is_cut_to_what_a_call_can_have() {
    let (transport, server) =
        vllm(|exchange| async move { Ok(answer(exchange, r#"{"count": 18446744073709551615}"#)) });
    let gate = gate(transport, |t| t.tokenizer(Tokenizer::Vllm).ttft(SECOND));
    let mut body = chat();
    body["stream"] = true.into();
    tokio::join!(send(&gate, &body), send(&gate, &body));
    assert_eq!(*server.known.lock(), [Some(1 << 32); 2]);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn call_whose_prompt_is_being_counted_is_explained_as_waiting() {
    let (transport, _) = vllm(|exchange| async move {
        tokio::time::sleep(SECOND / 10).await;
        Ok(tokens(exchange))
    });
    let gate = gate(transport, |t| t.tokenizer(Tokenizer::Vllm));
    let body = chat();
    let explained = async {
        tokio::time::sleep(SECOND / 20).await;
        gate.explain_all(1).pop().expect("a call")
    };
    let ((), told) = tokio::join!(send(&gate, &body), explained);
    assert_eq!(told.state, CallStatus::Waiting);
    assert!(told.text.contains("its prompt is being counted"), "{}", told.text);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn calls_that_need_no_count_are_not_counted() {
    let (transport, server) = vllm(|exchange| async move { Ok(tokens(exchange)) });
    let learned = gate(transport.clone(), |t| t);
    send(&learned, &chat()).await;
    let observing = Gate::builder()
        .target(tidegate::config::Target::new("llm").url("http://llm").tokenizer(Tokenizer::Vllm))
        .mode(Mode::Observe)
        .build_over(transport.clone())
        .expect("a gate");
    send(&observing, &chat()).await;
    let counted = gate(transport, |t| t.tokenizer(Tokenizer::Vllm));
    // Content that the provider stores is not in the body. A body that is too long is not counted.
    let mut kept = chat();
    kept["previous_response_id"] = json!("r");
    send(&counted, &kept).await;
    let mut long = chat();
    long["messages"][0]["content"] = json!("x".repeat(2 << 20));
    send(&counted, &long).await;
    read(counted.client().call(request("/v1/embeddings", chat().to_string())).await.expect("an answer"))
        .await
        .expect("all of it");
    assert_eq!(server.asked.lock().len(), 0);
    assert_eq!(*server.known.lock(), [None; 5]);
}

#[tokio::test(start_paused = true)]
async fn server_that_fails_to_count_is_not_asked_for_a_while() {
    const ANSWERS: [(u16, &str); 4] =
        [(404, r#"{"count": 7}"#), (200, "<html>"), (200, r#"{"count": -1}"#), (200, r#"{"count": "many"}"#)];
    for (code, body) in ANSWERS {
        let (transport, server) = vllm(move |_| async move { Ok(status(code, &[], body)) });
        let gate = gate(transport, |t| t.tokenizer(Tokenizer::Vllm));
        for _ in 0..3 {
            send(&gate, &chat()).await;
        }
        assert_eq!(server.asked.lock().len(), 1, "{body}");
        tokio::time::advance(11 * SECOND).await;
        send(&gate, &chat()).await;
        assert_eq!(server.asked.lock().len(), 2, "{body}");
        assert_eq!(*server.known.lock(), [None; 4], "{body}");
        assert_idle(&gate);
    }
}

#[tokio::test(start_paused = true)]
async fn slow_count_falls_back_to_the_estimate() {
    let (transport, server) = vllm(|exchange| async move {
        tokio::time::sleep(60 * SECOND).await;
        Ok(tokens(exchange))
    });
    let gate = gate(transport, |t| t.tokenizer(Tokenizer::Vllm));
    let start = Instant::now();
    send(&gate, &chat()).await;
    assert_eq!(start.elapsed().as_millis(), tidegate::internals::MAX_COUNT_TIME.as_millis());
    assert_eq!(*server.known.lock(), [None]);
    // A call with less time than the count takes ends by its own deadline.
    tokio::time::advance(11 * SECOND).await;
    let mut hurried = request("/v1/chat/completions", chat().to_string());
    let deadline = Some(Instant::now() + Duration::from_millis(50));
    hurried.extensions_mut().insert(tidegate::Context { deadline, ..tidegate::Context::default() });
    let start = Instant::now();
    let error = gate.client().call(hurried).await.expect_err("too late");
    let text = "the deadline passed while the prompt was being counted (raise the deadline)";
    assert_eq!(error.message(), text);
    assert_eq!(start.elapsed().as_millis(), 50);
    assert_idle(&gate);
}

/// The only blocking thread is busy, so the counting request cannot be prepared in time.
#[test]
fn server_is_asked_again_after_a_count_that_did_not_reach_it() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime =
        runtime.enable_time().start_paused(true).max_blocking_threads(1).build().expect("a runtime");
    runtime.block_on(async {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || released.recv());
        let (transport, server) = vllm(|exchange| async move { Ok(tokens(exchange)) });
        let gate = gate(transport, |t| t.tokenizer(Tokenizer::Vllm));
        let body = chat();
        tokio::join!(send(&gate, &body), tokio::time::advance(SECOND));
        assert_eq!(*server.known.lock(), [None]);
        drop(release);
        busy.await.expect("no panic").expect_err("disconnected");
        send(&gate, &body).await;
        assert_eq!(*server.known.lock(), [None, Some(4321)]);
        assert_eq!(server.asked.lock().len(), 1);
    });
}

#[cfg(feature = "bpe")]
#[tokio::test(start_paused = true)]
async fn openai_prompts_are_counted_in_process() {
    let (transport, server) = vllm(|exchange| async move { Ok(tokens(exchange)) });
    let gate = gate(transport, |t| t.tokenizer(Tokenizer::Bpe));
    send(&gate, &chat()).await;
    read(gate.client().call(request("/v1/chat/completions", "no JSON")).await.expect("an answer"))
        .await
        .expect("all of it");
    // Two tokens of text, four per message, and three before the answer.
    assert_eq!(*server.known.lock(), [Some(2 + 4 + 3), None]);
    assert_eq!(server.asked.lock().len(), 0);
}
