//! The load generator: streaming chat completions of given lengths, in an open or a closed loop.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use http::{HeaderValue, Method, Request};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tidegate::{Context, RequestBody, Transport};
use tidegate_sim::scenario::Arrivals;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tower::ServiceExt;

/// The name under which `bench/vllm/run.py` serves the model.
pub(super) const MODEL: &str = "tiny";
/// The number of distinct words of the prompts. The model's vocabulary has the words `w0` to
/// `w1999`, and each word is one token.
const WORDS: u32 = 2_000;
/// The number of tokens that the chat template of `bench/vllm/make_model.py` adds to one message.
const TEMPLATE_TOKENS: u32 = 3;
/// The time for which a caller of a closed loop waits after a call that was not answered.
const PAUSE: Duration = Duration::from_millis(100);

/// The lengths of the calls in tokens. Both are uniformly distributed; the bounds are included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    pub(super) prompt: (u32, u32),
    pub(super) output: (u32, u32),
}

impl Lengths {
    pub(super) fn mean_prompt(self) -> f64 {
        f64::from(self.prompt.0 + self.prompt.1) / 2.0
    }

    pub(super) fn mean_output(self) -> f64 {
        f64::from(self.output.0 + self.output.1) / 2.0
    }

    pub(super) fn draw(self, rng: &mut Rng) -> (u32, u32) {
        (rng.u32(self.prompt.0..=self.prompt.1), rng.u32(self.output.0..=self.output.1))
    }
}

/// How calls arrive.
#[derive(Clone, Copy, Debug)]
pub(super) enum Load {
    /// Independent (Poisson) arrivals, at this many calls per second.
    Open(f64),
    /// This many callers. Each of them makes one call after the other.
    Closed(usize),
    /// An open loop for each tenant.
    Tenants([TenantLoad; 3]),
}

/// The arrivals of one tenant.
#[derive(Clone, Copy, Debug)]
pub(super) struct TenantLoad {
    pub(super) name: &'static str,
    /// Calls per second, with independent (Poisson) arrivals.
    pub(super) per_second: f64,
    pub(super) burst: Option<Burst>,
}

/// A time in which the calls of a tenant are more frequent, and arrive at equal distances.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    pub(super) from: Duration,
    pub(super) to: Duration,
    pub(super) per_second: f64,
}

impl TenantLoad {
    /// Draws the times of the tenant's calls before `end`, in ascending order.
    fn draw(&self, rng: &mut Rng, end: Duration) -> Vec<Duration> {
        let mut between = |arrivals: Arrivals, per_second: f64, from: Duration, to: Duration| {
            // Twice the mean number of calls, which a Poisson process never reaches in practice.
            let count = 10 + (2.0 * per_second * (to - from).as_secs_f64()) as usize;
            arrivals.draw(rng, from, per_second, count).into_iter().take_while(move |at| *at < to)
        };
        let Some(burst) = self.burst else {
            return between(Arrivals::Poisson, self.per_second, Duration::ZERO, end).collect();
        };
        let before = between(Arrivals::Poisson, self.per_second, Duration::ZERO, burst.from);
        let during = between(Arrivals::Paced, burst.per_second, burst.from, burst.to);
        before.chain(during).chain(between(Arrivals::Poisson, self.per_second, burst.to, end)).collect()
    }
}

/// The calls of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) load: Load,
    pub(super) lengths: Lengths,
    /// Time in which the counted calls begin.
    pub(super) lasts: Duration,
    /// Time after `lasts` for which the same load continues, so that the last counted calls are
    /// served under it. All open calls are then cancelled.
    pub(super) tail: Duration,
    pub(super) seed: u64,
}

impl Plan {
    /// Returns a plan in which each of the `callers` makes its next call when its last one ends.
    pub(super) fn closed(callers: usize, lengths: Lengths, lasts: Duration, seed: u64) -> Self {
        Self { load: Load::Closed(callers), lengths, lasts, tail: Duration::ZERO, seed }
    }
}

/// The result of one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// The tenant of a [`TenantLoad`], otherwise `None`.
    pub(super) tenant: Option<&'static str>,
    /// Time from the start of the run to the start of the call.
    pub(super) at: Duration,
    /// Time from the start of the call to its first token, including queueing and retries. `None`
    /// if there was none.
    pub(super) ttft: Option<Duration>,
    pub(super) end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Answered,
    /// The gate rejected the call.
    Rejected,
    /// The call ended with an error, or its answer was incomplete.
    Failed,
    /// The call was still open at the end of the run, and was cancelled.
    Cancelled,
}

/// Makes the calls of `plan` through `client`, to the server at the URL `base`. Returns the results
/// of those that began in the first [`Plan::lasts`], in order of their starts.
pub(super) async fn generate(client: &Transport, base: &str, plan: &Plan) -> Vec<Call> {
    let start = Instant::now();
    let end = start + plan.lasts + plan.tail;
    let calls = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    let mut rng = Rng::with_seed(plan.seed);
    let mut arrivals: Vec<(Duration, Option<&'static str>)> = Vec::new();
    match plan.load {
        Load::Open(per_second) => {
            let count = ((end - start).as_secs_f64() * per_second) as usize;
            let times = Arrivals::Poisson.draw(&mut rng, Duration::ZERO, per_second, count);
            arrivals.extend(times.into_iter().map(|at| (at, None)));
        }
        Load::Tenants(tenants) => {
            for tenant in tenants {
                let times = tenant.draw(&mut rng.fork(), end - start);
                arrivals.extend(times.into_iter().map(|at| (at, Some(tenant.name))));
            }
            arrivals.sort();
        }
        Load::Closed(callers) => {
            for _ in 0..callers {
                let (client, calls, base, lengths) =
                    (client.clone(), calls.clone(), base.to_owned(), plan.lengths);
                let mut rng = rng.fork();
                tasks.spawn(async move {
                    while Instant::now() < end {
                        let request = request(&base, lengths.draw(&mut rng), &mut rng);
                        let call = ask(client.clone(), request, start, end).await;
                        calls.lock().push(call);
                        if call.end != End::Answered {
                            sleep(PAUSE).await;
                        }
                    }
                });
            }
        }
    }
    for (at, tenant) in arrivals {
        sleep_until((start + at).min(end)).await;
        let (client, calls) = (client.clone(), calls.clone());
        let mut request = request(base, plan.lengths.draw(&mut rng), &mut rng);
        if let Some(tenant) = tenant {
            let context = Context { tenant: Some(tenant.into()), ..Context::default() };
            request.extensions_mut().insert(context);
        }
        tasks.spawn(async move {
            let call = ask(client, request, start, end).await;
            calls.lock().push(Call { tenant, ..call });
        });
    }
    sleep_until(end).await;
    tasks.join_all().await;
    let mut calls = std::mem::take(&mut *calls.lock());
    calls.retain(|call| call.at < plan.lasts);
    calls.sort_by_key(|call| call.at);
    calls
}

/// Returns a request with a prompt of random words that are not in the server's prefix cache. Its
/// answer has exactly the given length.
pub(super) fn request(base: &str, (prompt, output): (u32, u32), rng: &mut Rng) -> Request<RequestBody> {
    let words: Vec<String> =
        (0..prompt.saturating_sub(TEMPLATE_TOKENS)).map(|_| format!("w{}", rng.u32(..WORDS))).collect();
    chat_request(base, &[json!({"role": "user", "content": words.join(" ")})], prompt, output)
}

/// Returns a request for a streamed answer of exactly `output` tokens. The header tells the
/// simulator the length of the prompt in tokens.
pub(super) fn chat_request(base: &str, messages: &[Value], prompt: u32, output: u32) -> Request<RequestBody> {
    let body = json!({
        "model": MODEL,
        "messages": messages,
        "max_tokens": output,
        "ignore_eos": true,
        "stream": true,
    });
    let mut request = Request::new(RequestBody::from(body.to_string().into_bytes()));
    *request.method_mut() = Method::POST;
    // The path is a constant, and clap has no invalid base, because the client would fail first.
    *request.uri_mut() = format!("{base}/v1/chat/completions").parse().unwrap_or_default();
    request.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    request.headers_mut().insert("x-sim-prompt-tokens", HeaderValue::from(prompt));
    request
}

/// Makes one call. Cancels it at `end`.
pub(super) async fn ask(
    client: Transport,
    request: Request<RequestBody>,
    start: Instant,
    end: Instant,
) -> Call {
    let began = Instant::now();
    let mut call = Call { tenant: None, at: began - start, ttft: None, end: End::Cancelled };
    let _ = timeout_at(end, async { call.end = stream(client, request, began, &mut call.ttft).await }).await;
    call
}

async fn stream(
    client: Transport,
    request: Request<RequestBody>,
    began: Instant,
    ttft: &mut Option<Duration>,
) -> End {
    let response = match client.oneshot(request).await {
        Ok(response) if response.status().is_success() => response,
        Ok(_) => return End::Failed,
        Err(error) if error.kind().reason().is_some() => return End::Rejected,
        Err(_) => return End::Failed,
    };
    let mut body = response.into_body();
    let mut complete = false;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return End::Failed };
        // vLLM and the simulator send nothing before the first token.
        ttft.get_or_insert(began.elapsed());
        complete = frame.data_ref().is_some_and(|data| data.ends_with(b"data: [DONE]\n\n"));
    }
    if complete { End::Answered } else { End::Failed }
}
