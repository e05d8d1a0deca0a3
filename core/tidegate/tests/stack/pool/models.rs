//! Tests of pools whose replicas serve different models or adapters, or require a key.

use http::Request;
use http::header::AUTHORIZATION;
use http_body_util::BodyExt;
use tidegate_sim::{Adapter, SimConfig, Simulator};

use super::*;
use crate::support::*;

/// What vLLM answers if it does not serve the model of a request.
const NO_MODEL: &str = r#"{"error": {"message": "The model `m` does not exist.", "type": "NotFoundError", "param": "model", "code": 404}}"#;
/// What vLLM answers to a path that it does not have.
const NO_PATH: &str = r#"{"detail": "Not Found"}"#;
/// What vLLM answers without its key.
const NO_KEY: &str = r#"{"error": "Unauthorized"}"#;

/// Returns replicas that do not list their models. `d` answers calls, and the others answer with
/// this status and body.
fn only_d(code: u16, body: &'static str) -> (Transport, Arc<Log>) {
    replicas(move |at, what, _| match what {
        RequestKind::Call if at == "d" => Act::Answer,
        RequestKind::Call => Act::Json(code, body),
        _ => Act::Json(404, NO_PATH),
    })
}

#[tokio::test(start_paused = true)]
async fn call_is_tried_elsewhere_if_a_replica_lacks_its_model_or_rejects_its_key() {
    for (code, body) in [(404, NO_MODEL), (401, NO_KEY)] {
        let (transport, log) = only_d(code, body);
        let gate = targeted(transport, |p| p, |t| t.retry(tidegate::config::Retry::new().attempts(1)));
        for _ in 0..20 {
            assert_eq!(read(gate.client().call(chat(false)).await.unwrap()).await.unwrap(), ANSWER);
        }
        let wrong = log.calls().iter().filter(|at| *at != "d").count();
        if code == 404 {
            assert!(wrong <= 3, "each replica is asked for the model once: {:?}", log.calls());
        }
        let target = &gate.snapshot().targets["llm"];
        assert_eq!(target.retries.get("elsewhere").copied().unwrap_or_default(), wrong as u64);
        // A replica that rejects the keys of all calls is one that accepts none.
        assert!(code == 404 || wrong <= 15, "five calls each: {:?}", log.calls());
        let is_in = |replica: &serde_json::Value| replica["state"] == "in";
        assert!(replicas_of(&gate).iter().all(|replica| code == 401 || is_in(replica)));
        assert_all_idle(&gate, &log);
    }
}

#[tokio::test(start_paused = true)]
async fn caller_gets_the_error_if_all_replicas_lack_the_model() {
    let (transport, log) = replicas(|_, _, _| Act::Json(404, NO_MODEL));
    let gate = pooled(transport, |p| p);
    for calls in [4, 5] {
        let response = gate.client().call(chat(false)).await.unwrap();
        assert_eq!(response.status(), 404);
        assert_eq!(read(response).await.unwrap(), NO_MODEL);
        assert_eq!(log.calls().len(), calls, "each is asked once, and one for the next call");
    }
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn caller_gets_other_errors_of_the_first_replica() {
    for (code, body) in [(404, NO_PATH), (403, NO_KEY), (400, NO_MODEL)] {
        let (transport, log) = replicas(move |_, _, _| Act::Json(code, body));
        let gate = pooled(transport, |p| p);
        assert_eq!(gate.client().call(chat(false)).await.unwrap().status(), code);
        assert_eq!(log.calls().len(), 1, "{code}");
    }
}

/// The model is loaded at `a` after the first call.
#[tokio::test(start_paused = true)]
async fn replica_that_lacked_a_model_gets_its_calls_after_it_lists_the_model() {
    const LISTED: &str = r#"{"data": [{"id": "m"}]}"#;
    let loaded = tokio::time::Instant::now() + SECOND;
    let (transport, log) = replicas(move |at, what, _| match what {
        RequestKind::Call if at != "a" => Act::Answer.after(SECOND),
        RequestKind::Call if tokio::time::Instant::now() < loaded => Act::Json(404, NO_MODEL),
        RequestKind::Call => Act::Answer,
        _ if at == "a" && tokio::time::Instant::now() < loaded => Act::Json(404, NO_PATH),
        _ => Act::Json(200, LISTED),
    });
    let gate = pooled(transport, |p| p);
    // Replicas are chosen at random: `a` gets a quarter of the calls, and less than a tenth never.
    for _ in 0..300 {
        read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
    }
    let models: Vec<_> = replicas_of(&gate).into_iter().map(|replica| replica["models"].clone()).collect();
    assert_eq!(models, vec![serde_json::json!(["m"]); 4]);
    assert!(log.calls().iter().filter(|at| *at == "a").count() > 30, "{:?}", log.calls());
    assert_all_idle(&gate, &log);
}

/// The replica of each call, and the status of its answer.
type Answers = Arc<Mutex<Vec<(String, u16)>>>;

/// An environment variable that Cargo sets for tests. Its value is the servers' key.
const KEY_VARIABLE: &str = "CARGO_PKG_NAME";
const AUTHORIZED: &str = concat!("Bearer ", env!("CARGO_PKG_NAME"));

/// Returns a pool of three simulated vLLM servers: `a` serves a model with two adapters, `b`
/// another model, and `c` the first model without adapters. `a` and `c` require a key for all paths
/// below `/v1`, as vLLM does with `--api-key`. The second value lists the replica of each call, and
/// the status of its answer.
fn engines(pool: impl FnOnce(Pool) -> Pool) -> (Gate, Answers) {
    let engine = |model: &str, adapters: &[&str]| {
        let adapters = adapters.iter().map(|name| Adapter { name: (*name).to_owned(), parent: None });
        let (models, adapters) = (vec![model.to_owned()], adapters.collect());
        Simulator::new(SimConfig { workers: 1, models, adapters, ..SimConfig::calibrated() }).unwrap()
    };
    let all = [engine("base", &["sql", "law"]), engine("small", &[]), engine("base", &[])];
    let answers = Arc::new(Mutex::new(Vec::new()));
    let log = answers.clone();
    let transport = tower::service_fn(move |request: Request<RequestBody>| {
        let (all, log) = (all.clone(), log.clone());
        async move {
            let at = request.uri().host().unwrap_or_default().to_owned();
            let needs_key = at != "b" && request.uri().path().starts_with("/v1");
            let has_key = request.headers().get(AUTHORIZATION).is_some_and(|key| key == AUTHORIZED);
            let is_call = request.method() == http::Method::POST;
            let response = if needs_key && !has_key {
                status(401, &[], NO_KEY)
            } else {
                let engine = &all[["a", "b", "c"].iter().position(|host| *host == at).unwrap()];
                let request = request.map(|body| body.bytes().cloned().unwrap_or_default());
                let response = engine.respond(request).await.unwrap();
                let broken =
                    |error: tidegate_sim::BodyError| Error::new(ErrorKind::Transport, error.to_string());
                response.map(|body| ResponseBody::new(body.map_err(broken)))
            };
            if is_call {
                log.lock().push((at, response.status().as_u16()));
            }
            Ok(response)
        }
    });
    let members = ["http://a", "http://b", "http://c"].map(Replica::from);
    let gate = targeted(Transport::new(transport), |_| pool(Pool::new(members).affinity(false)), |t| t);
    (gate, answers)
}

async fn ask(gate: &Gate, model: &str) -> u16 {
    let body = format!(
        r#"{{"model": "{model}", "max_tokens": 2, "messages": [{{"role": "user", "content": "hi"}}]}}"#
    );
    let mut request = chat(false).map(|_| body.into_bytes().into());
    request.headers_mut().insert(AUTHORIZATION, AUTHORIZED.parse().unwrap());
    let response = gate.client().call(request).await.unwrap();
    let status = response.status().as_u16();
    read(response).await.unwrap();
    status
}

#[tokio::test(start_paused = true)]
async fn calls_for_models_and_adapters_are_answered_although_the_models_are_not_listed() {
    let (gate, answers) = engines(|pool| pool);
    for round in 0..5 {
        for model in ["base", "sql", "small", "law"] {
            assert_eq!(ask(&gate, model).await, 200, "{model}, round {round}");
        }
    }
    let wrong = answers.lock().iter().filter(|(_, status)| *status != 200).count();
    assert!(wrong < 10, "the gate learns which replica lacks which model: {:?}", answers.lock());
    assert_eq!(ask(&gate, "unknown").await, 404);

    let statuses: Vec<_> =
        replicas_of(&gate).iter().map(|replica| replica["models_status"].clone()).collect();
    assert_eq!(statuses, [401.into(), serde_json::Value::Null, 401.into()]);
    let checks = gate.check_replicas().await;
    let [a, b, _] = &checks[0].replicas[..] else { panic!("{checks:?}") };
    assert_eq!((a.problem, b.models.as_deref()), (None, Ok(&["small".into()][..])));
    let problem = a.models.as_ref().unwrap_err();
    let expected = "/v1/models is answered with 401: set the pool's `key_env` to an environment variable";
    assert!(problem.starts_with(expected), "{problem}");
}

#[tokio::test(start_paused = true)]
async fn calls_for_models_and_adapters_go_to_the_replicas_that_list_them() {
    let (gate, answers) = engines(|pool| pool.key_env(KEY_VARIABLE));
    for model in ["base", "sql", "small", "law"] {
        assert_eq!(ask(&gate, model).await, 200, "{model}: the first call");
    }
    let checks = gate.check_replicas().await;
    let models: Vec<_> =
        checks[0].replicas.iter().map(|replica| replica.models.clone().unwrap().join(" ")).collect();
    assert_eq!(models, ["base sql law", "small", "base"]);
    answers.lock().clear();
    for model in ["base", "sql", "small", "law"].into_iter().cycle().take(40) {
        assert_eq!(ask(&gate, model).await, 200, "{model}");
    }
    let answers = answers.lock();
    assert!(answers.iter().all(|(_, status)| *status == 200), "{answers:?}");
    let number_at = |replica: &str| answers.iter().filter(|(at, _)| at == replica).count();
    assert_eq!(number_at("b"), 10, "all calls for its model");
    assert!(number_at("a") > 20 && number_at("c") > 0, "{answers:?}");
}
