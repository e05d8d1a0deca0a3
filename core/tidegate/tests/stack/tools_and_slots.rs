//! Tests of model slots and tools in one gate: tasks that wait for a tool while they hold a model
//! slot, and model slots that are released during that wait.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use http::Response;
use http_body_util::BodyExt;
use tidegate::config::{EngineMetricsPolicy, Target, Tool};
use tidegate::{Context, ErrorKind, Gate, Reason, ResponseBody, TaskId, Transport};
use tokio::time::{Instant, sleep};

use crate::support::*;

/// Returns a stream that ends after 1 s.
fn second(exchange: Exchange) -> Response<ResponseBody> {
    let ms = Duration::from_millis;
    let frames = [(0, ROLE), (0, TOKEN), (500, TOKEN), (500, STOP), (0, DONE)];
    sse(exchange, frames.map(|(after, frame)| (ms(after), Some(frame))).into())
}

const SECOND_LONG: [&str; 5] = [ROLE, TOKEN, TOKEN, STOP, DONE];

/// Returns a gate over `transport` with one slot of the target `llm` and one slot of the tool `db`.
/// It also has the target `bedrock`, which is used through `Gate::acquire_slot` only.
fn narrow(transport: Transport) -> Gate {
    let target = Target::new("llm").url("http://llm").metrics(EngineMetricsPolicy::Off).cap(1);
    let slots = Target::new("bedrock").slots_only();
    Gate::builder().target(target).target(slots).tool("db", 1).build_over(transport).expect("a gate")
}

fn streaming() -> Gate {
    narrow(upstream(|_, _, exchange| async move { Ok(second(exchange)) }).0)
}

fn task(number: u64) -> Context {
    Context { task: Some(TaskId::from_number(number)), ..Context::default() }
}

async fn stream(gate: &Gate, context: Context) -> Response<ResponseBody> {
    let mut request = chat(true);
    request.extensions_mut().insert(context);
    gate.client().call(request).await.expect("an answer")
}

/// Returns how often a task held a slot of `target` when it requested the tool `db`. `how` states
/// what happened to the slot: `got`, `waited` or `yielded`.
fn held(gate: &Gate, target: &str, how: &str) -> u64 {
    let snapshot = gate.snapshot();
    let seen = &snapshot.tools["db"].slot_held;
    seen.get(target).and_then(|seen| seen.get(how)).copied().unwrap_or_default()
}

fn in_flight(gate: &Gate) -> usize {
    gate.snapshot().targets["llm"].in_flight
}

#[tokio::test(start_paused = true)]
async fn wait_for_a_tool_while_a_response_streams_is_counted_and_warned() {
    let gate = streaming();
    let busy = gate.acquire_tool("db", &task(9)).await.unwrap();
    let response = stream(&gate, task(1)).await;
    let context = task(1);
    let asked = gate.ask_tool("db", &context, false).unwrap();
    let told = asked.while_holding().expect("held");
    assert_eq!((told.tool(), told.targets().collect::<Vec<_>>()), ("db", vec!["llm"]));
    let advice = told.advice("yield_slot=True");
    for part in ["db", "llm", "yield_slot=True"] {
        assert!(advice.contains(part), "{advice}");
    }
    assert_eq!(held(&gate, "llm", "waited"), 1);
    drop(busy);
    drop(asked.granted().await.unwrap());
    drop(response);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn free_tool_is_counted_without_a_warning() {
    let gate = streaming();
    let response = stream(&gate, task(1)).await;
    let asked = gate.ask_tool("db", &task(1), false).unwrap();
    assert!(asked.while_holding().is_none());
    assert_eq!((held(&gate, "llm", "got"), held(&gate, "llm", "waited")), (1, 0));
    drop((asked, response));
}

#[tokio::test(start_paused = true)]
async fn slots_of_other_tasks_and_ended_responses_do_not_count() {
    let gate = streaming();
    let _busy = gate.acquire_tool("db", &task(9)).await.unwrap();
    let response = stream(&gate, task(1)).await;
    let told = |number| gate.ask_tool("db", &task(number), false).unwrap().while_holding().is_some();
    assert!(!told(2), "another task's");
    assert!(gate.ask_tool("db", &Context::default(), false).unwrap().while_holding().is_none(), "nobody's");
    assert!(told(1));
    read(response).await.unwrap();
    assert!(!told(1), "read to its end");
    drop(stream(&gate, task(1)).await);
    assert!(!told(1), "dropped");
    assert_eq!(held(&gate, "llm", "waited"), 1);
}

#[tokio::test(start_paused = true)]
async fn task_is_tokios_unless_the_context_names_one() {
    let gate = streaming();
    let busy = gate.acquire_tool("db", &task(9)).await.unwrap();
    let own = tokio::spawn({
        let gate = gate.clone();
        async move {
            let response = gate.client().call(chat(true)).await.unwrap();
            let elsewhere = tokio::spawn({
                let gate = gate.clone();
                async move { gate.ask_tool("db", &Context::default(), false).unwrap().while_holding().is_some() }
            });
            let here = gate.ask_tool("db", &Context::default(), false).unwrap().while_holding().is_some();
            drop(response);
            (here, elsewhere.await.unwrap())
        }
    });
    assert_eq!(own.await.unwrap(), (true, false));
    drop(busy);
}

#[tokio::test(start_paused = true)]
async fn acquired_slot_is_warned_about_and_cannot_be_yielded() {
    let gate = streaming();
    let busy = gate.acquire_tool("db", &task(9)).await.unwrap();
    let slot = gate.acquire_slot("bedrock", &task(1)).await.unwrap();
    let asked = gate.ask_tool("db", &task(1), true).unwrap();
    let advice = asked.while_holding().expect("held").advice("yield_slot=True");
    assert!(advice.contains("bedrock") && !advice.contains("yield_slot"), "{advice}");
    assert_eq!((held(&gate, "bedrock", "waited"), held(&gate, "bedrock", "yielded")), (1, 0));
    drop((asked, slot, busy));
    assert!(gate.ask_tool("db", &task(1), true).unwrap().while_holding().is_none());
}

#[tokio::test(start_paused = true)]
async fn all_series_exist_from_the_start() {
    let text = streaming().prometheus();
    for (target, how) in [("llm", "got"), ("llm", "waited"), ("bedrock", "yielded")] {
        let series =
            format!(r#"tidegate_slot_held_for_tool_total{{how="{how}",target="{target}",tool="db"}} 0"#);
        assert!(text.contains(&series), "{series}");
    }
    let (transport, _) = upstream(|_, _, exchange| async move { Ok(json(exchange, ANSWER)) });
    assert!(
        !gate(transport, |t| t).prometheus().contains("slot_held"),
        "without tools there is nothing to hold for"
    );
}

/// Runs two tasks with a deadline of 60 s each. One starts a stream and then requests the tool; the
/// other holds the tool and then makes a call. Returns how each of them ended.
///
/// If `yielding` is `true`, the first task requests the tool with `acquire_tool_yielding`. If
/// `caller_first` is `true`, the first task begins first.
async fn both_orders(yielding: bool, caller_first: bool) -> Vec<Result<(), ErrorKind>> {
    let gate = streaming();
    let until = |number| Context { deadline: Some(Instant::now() + 60 * SECOND), ..task(number) };
    let holds_slot = tokio::spawn({
        let (gate, context) = (gate.clone(), until(1));
        async move {
            sleep(if caller_first { Duration::ZERO } else { SECOND / 10 }).await;
            let mut request = chat(true);
            request.extensions_mut().insert(context.clone());
            let response = gate.client().call(request).await?;
            sleep(SECOND / 5).await;
            let tool = match yielding {
                true => gate.acquire_tool_yielding("db", &context).await?,
                false => gate.acquire_tool("db", &context).await?,
            };
            sleep(SECOND).await;
            drop(tool);
            assert_eq!(read(response).await?, SECOND_LONG.concat());
            Ok(())
        }
    });
    let holds_tool = tokio::spawn({
        let (gate, context) = (gate.clone(), until(2));
        async move {
            sleep(if caller_first { SECOND / 10 } else { Duration::ZERO }).await;
            let _tool = gate.acquire_tool("db", &context).await?;
            sleep(SECOND / 5).await;
            let mut request = chat(true);
            request.extensions_mut().insert(context);
            read(gate.client().call(request).await?).await?;
            Ok(())
        }
    });
    let ended: [Result<(), tidegate::Error>; 2] = [holds_slot.await.unwrap(), holds_tool.await.unwrap()];
    assert_idle(&gate);
    ended.into_iter().map(|end| end.map_err(|error| error.kind())).collect()
}

#[tokio::test(start_paused = true)]
async fn opposite_orders_succeed_with_yield_slot_and_time_out_without() {
    for caller_first in [true, false] {
        assert_eq!(both_orders(true, caller_first).await, [Ok(()), Ok(())], "caller first: {caller_first}");
        let without = both_orders(false, caller_first).await;
        let late = Err(ErrorKind::Refused(Reason::Deadline));
        assert!(without.contains(&late), "caller first: {caller_first}: {without:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn yielded_slot_is_released_at_the_end_of_the_exchange_without_data_loss() {
    let gate = streaming();
    let response = stream(&gate, task(1)).await;
    let begin = Instant::now();
    let context = task(1);
    let tool = gate.acquire_tool_yielding("db", &context).await.unwrap();
    assert_eq!((in_flight(&gate), held(&gate, "llm", "yielded")), (1, 1));
    read(gate.client().call(chat(true)).await.unwrap()).await.unwrap();
    assert_eq!(
        begin.elapsed(),
        2 * SECOND,
        "the next call waited for the first one's own end, and no longer"
    );
    // Far longer than the `stall` limit and the deadline. The response has been read ahead
    // completely.
    sleep(3600 * SECOND).await;
    drop(tool);
    assert_eq!(read(response).await.unwrap(), SECOND_LONG.concat());
    assert_idle(&gate);
    assert_eq!(gate.calls().records().last().unwrap().outcome, "completed");
}

#[tokio::test(start_paused = true)]
async fn long_response_is_left_to_its_reader() {
    const CHUNK: usize = 64 * 1024;
    let event: &'static str = format!("data: {{\"pad\": \"{}\"}}\n\n", "x".repeat(CHUNK)).leak();
    let (transport, seen) = upstream(move |_, _, exchange| async move {
        let mut frames = vec![(Duration::ZERO, Some(TOKEN))];
        frames.extend((0..40).map(|_| (Duration::from_millis(10), Some(event))));
        frames.extend([(Duration::ZERO, Some(STOP)), (Duration::ZERO, Some(DONE))]);
        Ok(sse(exchange, frames))
    });
    let gate = narrow(transport);
    let response = stream(&gate, task(1)).await;
    let tool = gate.acquire_tool_yielding("db", &task(1)).await.unwrap();
    sleep(60 * SECOND).await;
    assert_eq!((in_flight(&gate), seen.in_flight()), (1, 1), "beyond the bound the slot stays held");
    drop(tool);
    let all = [TOKEN, &event.repeat(40), STOP, DONE].concat();
    assert_eq!(read(response).await.unwrap(), all);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn open_connection_after_the_end_holds_no_slot() {
    let (transport, _) = upstream(|_, _, exchange| async move {
        let frames = SECOND_LONG.map(|frame| (Duration::ZERO, Some(frame)));
        let late = (100 * SECOND, Some(": bye\n\n"));
        Ok(sse(exchange, frames.into_iter().chain([late]).collect()))
    });
    let gate = narrow(transport);
    let response = stream(&gate, task(1)).await;
    let tool = gate.acquire_tool_yielding("db", &task(1)).await.unwrap();
    sleep(SECOND).await;
    assert_eq!(in_flight(&gate), 0);
    drop(tool);
    assert_eq!(read(response).await.unwrap(), [SECOND_LONG.concat().as_str(), ": bye\n\n"].concat());
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn deadline_on_an_open_connection_after_the_end_is_no_rejection() {
    let (transport, _) = upstream(|_, _, exchange| async move {
        let frames = SECOND_LONG.map(|frame| (Duration::ZERO, Some(frame)));
        let late = (100 * SECOND, Some(": bye\n\n"));
        Ok(sse(exchange, frames.into_iter().chain([late]).collect()))
    });
    let gate = narrow(transport);
    let deadline = Some(Instant::now() + 10 * SECOND);
    let response = stream(&gate, Context { deadline, ..task(1) }).await;
    let tool = gate.acquire_tool_yielding("db", &task(1)).await.unwrap();
    sleep(SECOND).await;
    assert_eq!(in_flight(&gate), 0);
    drop(tool);
    assert_eq!(read(response).await.unwrap_err().kind(), ErrorKind::Deadline);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn reader_sees_a_break_where_it_happened() {
    let (transport, _) = upstream(|_, _, exchange| async move {
        Ok(sse(exchange, vec![(Duration::ZERO, Some(TOKEN)), (SECOND, Some(TOKEN)), (SECOND, None)]))
    });
    let gate = narrow(transport);
    let mut body = stream(&gate, task(1)).await.into_body();
    let tool = gate.acquire_tool_yielding("db", &task(1)).await.unwrap();
    sleep(10 * SECOND).await;
    assert_eq!(in_flight(&gate), 0);
    drop(tool);
    for _ in 0..2 {
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), TOKEN);
    }
    assert_eq!(body.frame().await.unwrap().unwrap_err().kind(), ErrorKind::Transport);
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn dropped_response_ends_its_exchange_while_read_ahead() {
    let (transport, seen) = upstream(|_, _, exchange| async move {
        Ok(sse(exchange, vec![(Duration::ZERO, Some(TOKEN)), (60 * SECOND, Some(TOKEN))]))
    });
    let gate = narrow(transport);
    let response = stream(&gate, task(1)).await;
    let _tool = gate.acquire_tool_yielding("db", &task(1)).await.unwrap();
    sleep(SECOND).await;
    drop(response);
    assert_eq!((in_flight(&gate), seen.in_flight()), (0, 0));
}

/// The reader reads, and the task acquires and releases the tool, at random times. All bytes arrive
/// in order, and no slot stays in use.
#[tokio::test(start_paused = true)]
async fn reader_and_read_ahead_alternate() {
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let pieces: Vec<_> = (0..rng.usize(1..30)).map(|_| Duration::from_millis(rng.u64(..40))).collect();
        let total = pieces.len();
        let (transport, seen) = upstream(move |_, _, exchange| {
            let mut frames: Vec<_> = pieces.iter().map(|after| (*after, Some(TOKEN))).collect();
            frames.extend([(Duration::ZERO, Some(STOP)), (Duration::ZERO, Some(DONE))]);
            async move { Ok(sse(exchange, frames)) }
        });
        let gate = narrow(transport);
        let response = stream(&gate, task(1)).await;
        let mut rngs = [rng.fork(), rng.fork()];
        let reader = tokio::spawn({
            let mut rng = rngs[0].fork();
            async move {
                let mut body = response.into_body();
                let mut all = Vec::new();
                loop {
                    sleep(Duration::from_millis(rng.u64(..60))).await;
                    // A read that is abandoned and repeated.
                    if rng.bool()
                        && body.frame().now_or_never().is_some_and(|frame| {
                            frame.is_some_and(|frame| {
                                all.extend_from_slice(frame.unwrap().data_ref().unwrap());
                                true
                            })
                        })
                    {
                        continue;
                    }
                    match body.frame().await {
                        Some(frame) => all.extend_from_slice(frame.unwrap().data_ref().unwrap()),
                        None => return String::from_utf8(all).unwrap(),
                    }
                }
            }
        });
        for _ in 0..8 {
            sleep(Duration::from_millis(rngs[1].u64(..80))).await;
            let tool = gate.acquire_tool_yielding("db", &task(1)).await.unwrap();
            sleep(Duration::from_millis(rngs[1].u64(..80))).await;
            drop(tool);
        }
        assert_eq!(reader.await.unwrap(), [TOKEN.repeat(total).as_str(), STOP, DONE].concat(), "seed {seed}");
        assert_idle(&gate);
        assert_eq!(seen.in_flight(), 0);
    }
}

/// The same as `reader_and_read_ahead_alternate`, but on several threads, so that the reader and
/// the read-ahead task run in parallel.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reader_and_read_ahead_alternate_on_many_threads() {
    let frames = 200;
    let (transport, _) = upstream(move |_, _, exchange| async move {
        let mut list: Vec<_> = (0..frames).map(|_| (Duration::ZERO, Some(TOKEN))).collect();
        list.extend([(Duration::ZERO, Some(STOP)), (Duration::ZERO, Some(DONE))]);
        Ok(sse(exchange, list))
    });
    let gate = Arc::new(narrow(transport));
    for _ in 0..30 {
        let response = stream(&gate, task(1)).await;
        let reader = tokio::spawn(read(response));
        let tools = tokio::spawn({
            let gate = gate.clone();
            async move {
                for _ in 0..100 {
                    drop(gate.acquire_tool_yielding("db", &task(1)).await.unwrap());
                    tokio::task::yield_now().await;
                }
            }
        });
        assert_eq!(reader.await.unwrap().unwrap(), [TOKEN.repeat(frames).as_str(), STOP, DONE].concat());
        tools.await.unwrap();
        assert_idle(&gate);
    }
}

#[tokio::test(start_paused = true)]
async fn observe_mode_counts_tool_waits_and_never_waits() {
    let (transport, _) = upstream(|_, _, exchange| async move { Ok(second(exchange)) });
    let gate = Gate::builder()
        .target(Target::new("llm").url("http://llm"))
        .tool("db", Tool::new(1))
        .mode(tidegate::config::Mode::Observe)
        .build_over(transport)
        .unwrap();
    let _busy = gate.acquire_tool("db", &task(9)).await.unwrap();
    let response = stream(&gate, task(1)).await;
    let asked = gate.ask_tool("db", &task(1), false).unwrap();
    assert!(asked.while_holding().is_none());
    assert_eq!((held(&gate, "llm", "got"), gate.snapshot().tools["db"].would["wait"]), (1, 1));
    drop((asked, response));
}

fn rated(shape: impl FnOnce(Tool) -> Tool) -> Gate {
    let (transport, _) = upstream(|_, _, exchange| async move { Ok(json(exchange, ANSWER)) });
    Gate::builder().tool("db", shape(Tool::new(8))).build_over(transport).unwrap()
}

#[tokio::test(start_paused = true)]
async fn tool_has_a_rate_and_a_cap() {
    let gate = rated(|tool| tool.rps(2.0));
    let begin = Instant::now();
    let mut at = Vec::new();
    for _ in 0..9 {
        drop(gate.acquire_tool("db", &Context::default()).await.unwrap());
        at.push(begin.elapsed());
    }
    // One slot per 0.5 s, plus the burst of a full budget: no second has more than these.
    for (n, later) in at.iter().enumerate().skip(4) {
        assert!(*later - at[n - 4] >= SECOND, "{at:?}");
    }
    assert!(at[8] >= 3 * SECOND && at[8] <= 5 * SECOND, "{at:?}");
    assert_eq!(gate.snapshot().tools["db"].in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn rejection_and_explanation_name_the_rate() {
    let gate = rated(|tool| tool.rpm(1));
    let context = Context { call: Some("query".into()), ..Context::default() };
    drop(gate.acquire_tool("db", &context).await.unwrap());
    let late = tokio::spawn({
        let (gate, context) = (gate.clone(), context.clone());
        async move { gate.acquire_tool("db", &context).await.map(drop) }
    });
    sleep(SECOND).await;
    let told = gate.explain("query").unwrap();
    assert_eq!((told.rule, told.waited), (Some("requests"), 1.0));
    assert!(told.text.contains("the rate limit of the tool is used up"), "{}", told.text);
    late.await.unwrap().unwrap();
    let impatient = rated(|tool| tool.rpm(1).wait(SECOND));
    drop(impatient.acquire_tool("db", &context).await.unwrap());
    let error = impatient.acquire_tool("db", &context).await.unwrap_err();
    assert_eq!(
        (error.reason(), error.why().unwrap().rule.as_str()),
        (Some(Reason::PredictedWait), "requests")
    );
    let refusing = rated(|tool| tool.rpm(1).on_full(tidegate::config::OnFull::Refuse));
    drop(refusing.acquire_tool("db", &context).await.unwrap());
    let error = refusing.acquire_tool("db", &context).await.unwrap_err();
    assert_eq!((error.reason(), error.why().unwrap().rule.as_str()), (Some(Reason::NoBudget), "requests"));
    let (cause, advice) = ("the rate limit of the tool is used up", "(raise the tool's `cap` or rate");
    assert!(error.message().contains(cause) && error.message().contains(advice), "{error}");
    assert_eq!(refusing.snapshot().tools["db"].refused["no_budget"], 1);
}

#[tokio::test(start_paused = true)]
async fn unused_grant_is_not_counted_against_the_rate() {
    let gate = rated(|tool| tool.rpm(1));
    let begin = Instant::now();
    for _ in 0..20 {
        drop(gate.ask_tool("db", &Context::default(), false).unwrap());
    }
    drop(gate.acquire_tool("db", &Context::default()).await.unwrap());
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn one_poll_of_the_reader_does_not_stop_read_ahead() {
    let gate = streaming();
    let mut body = stream(&gate, task(1)).await.into_body();
    let tool = gate.acquire_tool_yielding("db", &task(1)).await.unwrap();
    sleep(SECOND / 10).await;
    let mut all = Vec::new();
    while let Some(Some(frame)) = body.frame().now_or_never() {
        all.extend_from_slice(frame.unwrap().data_ref().unwrap());
    }
    sleep(10 * SECOND).await;
    assert_eq!(in_flight(&gate), 0);
    drop(tool);
    all.extend_from_slice(&body.collect().await.unwrap().to_bytes());
    assert_eq!(String::from_utf8(all).unwrap(), SECOND_LONG.concat());
}

#[tokio::test(start_paused = true)]
async fn read_ahead_stops_when_the_tool_is_released() {
    let gate = streaming();
    let response = stream(&gate, task(1)).await;
    drop(gate.acquire_tool_yielding("db", &task(1)).await.unwrap());
    sleep(10 * SECOND).await;
    assert_eq!(in_flight(&gate), 1);
    assert_eq!(read(response).await.unwrap(), SECOND_LONG.concat());
    assert_idle(&gate);
}
