//! Tests of the discovery of a pool's replicas, and of their state in snapshots.

use std::sync::Arc;

use http::{Request, Uri};
use parking_lot::Mutex;
use tidegate::config::{Pool, Replica, Target};
use tidegate::{Error, ErrorKind, Gate, RequestBody, Transport};

use crate::support::*;

const A: &str = "http://10.0.0.1:8000";
const B: &str = "http://10.0.0.2:8000";

fn pool(transport: Transport, pool: Pool) -> Gate {
    Gate::builder().target(Target::new("llama").pool(pool)).build_over(transport).unwrap()
}

fn ask(url: &str) -> Request<RequestBody> {
    let mut request = chat(false);
    *request.uri_mut() = url.parse().unwrap();
    request
}

/// Returns a transport that answers immediately, and the list in which it records the URLs of
/// calls.
fn answering() -> (Transport, Arc<Mutex<Vec<Uri>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let book = asked.clone();
    let (transport, _) = upstream(move |_, request, exchange| {
        if request.method() == http::Method::POST {
            book.lock().push(request.uri().clone());
        }
        async move { Ok(json(exchange, ANSWER)) }
    });
    (transport, asked)
}

fn replicas(gate: &Gate) -> Vec<(String, &'static str, f64)> {
    let snapshot = gate.snapshot();
    let all = snapshot.targets["llama"].replicas.iter();
    all.map(|replica| (replica.url.to_string(), replica.state, replica.weight)).collect()
}

#[tokio::test(start_paused = true)]
async fn pool_is_addressed_by_its_name_or_a_replica() {
    let (transport, asked) = answering();
    let gate = pool(transport, Pool::new([A]));
    for url in [
        "http://llama/v1/chat/completions",
        "https://llama/v1/chat/completions",
        "http://10.0.0.1:8000/v1/chat/completions",
    ] {
        read(gate.client().call(ask(url)).await.unwrap()).await.unwrap();
    }
    assert_eq!(*asked.lock(), ["http://10.0.0.1:8000/v1/chat/completions"; 3]);
    let text = gate.prometheus();
    assert!(
        text.contains(r#"tidegate_replica_calls_total{replica="http://10.0.0.1:8000",target="llama"} 3"#),
        "{text}"
    );
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn replicas_can_be_set_while_calls_are_in_flight() {
    let (transport, _) = upstream(|_, request, exchange| async move {
        if request.method() == http::Method::POST {
            tokio::time::sleep(10 * SECOND).await;
        }
        Ok(json(exchange, ANSWER))
    });
    let gate = pool(transport, Pool::dynamic());
    assert!(replicas(&gate).is_empty());
    gate.set_replicas("llama", [A]).unwrap();
    assert_eq!(replicas(&gate), [(A.to_owned(), "in", 1.0)]);
    let client = gate.client();
    let call =
        tokio::spawn(async move { read(client.call(ask("http://llama/v1/chat/completions")).await?).await });
    tokio::time::sleep(SECOND).await;
    gate.set_replicas("llama", [Replica::new(format!("{B}/v1")).weight(2.0)]).unwrap();
    let mut seen = replicas(&gate);
    seen.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!((seen[0].1, &*seen[1].0, seen[1].2), ("draining", B, 2.0));
    call.await.unwrap().unwrap();
    let left = replicas(&gate);
    assert_eq!((left.len(), &*left[0].0), (1, B), "who drains leaves with its last call");
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn emptied_pool_is_logged_and_in_the_metrics() {
    let (lines, _guard) = LogLines::collect();
    let (transport, _) = answering();
    let gate = pool(transport, Pool::dynamic());
    gate.set_replicas("llama", [A]).unwrap();
    assert_eq!(lines.take("llama"), [""; 0]);
    gate.set_replicas("llama", Vec::<Replica>::new()).unwrap();
    let text = "WARN: the pool llama has no replica, so its calls cannot be sent";
    assert_eq!(lines.take("llama"), [text]);
    let metrics = gate.prometheus();
    assert!(metrics.contains(r#"tidegate_target_state{state="cooling",target="llama"} 1"#), "{metrics}");
    gate.set_replicas("llama", [B]).unwrap();
    assert_eq!(lines.take("outage"), ["INFO: the outage of the target is over"]);
}

#[tokio::test(start_paused = true)]
async fn log_of_a_missing_file_says_that_there_is_no_replica() {
    let (lines, _guard) = LogLines::collect();
    let (_path, _gate, _) = of_file("never");
    assert_eq!(lines.take("replica"), ["WARN: the pool has no replica"]);
}

#[tokio::test(start_paused = true)]
async fn invalid_replicas_are_rejected_without_effect() {
    let (transport, _) = answering();
    let gate = Gate::builder()
        .target(Target::new("llama").pool(Pool::new([A])))
        .target(Target::new("dns").pool(Pool::from_dns("http://vllm.svc:8000")))
        .target(Target::new("file").pool(Pool::from_file("no/such/file")))
        .target(Target::new("openai").cap(1))
        .build_over(transport)
        .unwrap();
    let many: Vec<String> = (0..129).map(|at| format!("http://h:{}", 8_000 + at)).collect();
    for (target, list, kind, told) in [
        ("lama", vec![B], ErrorKind::Unknown, "did you mean \"llama\"?"),
        ("openai", vec![B], ErrorKind::Config, "it is not a pool"),
        ("dns", vec![B], ErrorKind::Config, "discovered through DNS"),
        ("file", vec![B], ErrorKind::Config, "read from a file"),
        ("llama", vec![B, "10.0.0.3"], ErrorKind::Config, "replicas[1].url: "),
        ("llama", vec![B, B], ErrorKind::Config, "replicas[1]: is the same replica as one above"),
        ("llama", many.iter().map(|url| &**url).collect(), ErrorKind::Config, "a pool has at most 128"),
    ] {
        let error = gate.set_replicas(target, list).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(told), "{error}");
    }
    assert_eq!(replicas(&gate), [(A.to_owned(), "in", 1.0)]);
    let error = gate.set_replicas_json("llama", &serde_json::json!({"url": B})).unwrap_err();
    assert!(error.to_string().contains("replicas: expected a list of replicas; got a table"), "{error}");
    gate.set_replicas_json("llama", &serde_json::json!([{"url": B, "weight": 3}])).unwrap();
    assert_eq!(replicas(&gate), [(B.to_owned(), "in", 3.0)]);
    let problem = gate.snapshot().targets["file"].replicas_problem.clone().unwrap();
    assert!(problem.starts_with("no/such/file: cannot be read"), "{problem}");
}

#[tokio::test(start_paused = true)]
async fn series_exist_as_long_as_their_replica() {
    let (transport, _) = answering();
    let gate = pool(transport, Pool::new([A, B]));
    let of = |gate: &Gate, url: &str| {
        let text = gate.prometheus();
        text.lines().filter(|line| line.contains(&format!("replica=\"{url}\""))).count()
    };
    let before = gate.prometheus();
    for series in [
        r#"tidegate_replica_calls_total{replica="http://10.0.0.1:8000",target="llama"} 0"#,
        r#"tidegate_replica_failures_total{cause="gone",replica="http://10.0.0.2:8000",target="llama"} 0"#,
        r#"tidegate_replica_hops_total{replica="http://10.0.0.2:8000",target="llama"} 0"#,
        r#"tidegate_replica_in_flight{replica="http://10.0.0.2:8000",target="llama"} 0"#,
        r#"tidegate_replica_in_choice{replica="http://10.0.0.2:8000",target="llama"} 1"#,
    ] {
        assert!(before.contains(series), "{series} is missing from\n{before}");
    }
    let each = of(&gate, A);
    gate.set_replicas("llama", [B]).unwrap();
    assert_eq!((of(&gate, A), of(&gate, B)), (0, each));
    gate.set_replicas("llama", [A, B]).unwrap();
    assert_eq!((of(&gate, A), of(&gate, B)), (each, each));
}

#[test]
fn missing_key_is_an_error_when_the_gate_is_created() {
    let open = |variable| {
        let pool = Pool::new([A]).key_env(variable);
        Gate::builder().target(Target::new("llama").pool(pool)).build()
    };
    let error = open("TIDEGATE_NO_SUCH_KEY").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(
        error.message(),
        "targets.llama.pool.key_env: TIDEGATE_NO_SUCH_KEY is not set in the environment; set it, or remove key_env"
    );
    // `PATH` is set in every environment.
    assert!(open("PATH").is_ok());
}

/// Returns the path of a replica file that does not exist yet, and a gate that reads it.
fn of_file_over(transport: Transport, name: &str) -> (std::path::PathBuf, Gate) {
    let path = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let pool = Pool::from_file(path.display().to_string());
    let target = Target::new("llama").pool(pool).deadline(30 * SECOND);
    (path, Gate::builder().target(target).build_over(transport).unwrap())
}

/// Returns the path of a replica file that does not exist yet, a gate that reads it, and the list
/// of the URLs of calls.
fn of_file(name: &str) -> (std::path::PathBuf, Gate, Arc<Mutex<Vec<Uri>>>) {
    let (transport, asked) = answering();
    let (path, gate) = of_file_over(transport, name);
    (path, gate, asked)
}

#[tokio::test(start_paused = true)]
async fn calls_wait_until_replicas_are_known() {
    let (path, gate, asked) = of_file("late");
    let client = gate.client();
    let call =
        tokio::spawn(async move { client.call(ask("http://llama/v1/chat/completions")).await.map(drop) });
    tokio::time::sleep(10 * SECOND).await;
    let waits = gate.explain_all(1).pop().unwrap();
    assert_eq!(waits.rule, Some("outage"));
    assert_eq!(gate.snapshot().targets["llama"].queue_depth, 1);
    std::fs::write(&path, A).unwrap();
    call.await.unwrap().unwrap();
    assert_eq!(*asked.lock(), ["http://10.0.0.1:8000/v1/chat/completions"]);
    std::fs::remove_file(path).unwrap();
}

#[tokio::test(start_paused = true)]
async fn rejection_reports_why_no_replica_is_known() {
    let (path, gate, asked) = of_file("missing");
    let began = tokio::time::Instant::now();
    let error = gate.client().call(ask("http://llama/v1/chat/completions")).await.unwrap_err();
    assert!(error.reason().is_some(), "{error}");
    let missing = format!("; the replicas of the pool are not known: {}: cannot be read", path.display());
    assert!(error.message().contains(&missing), "{error}");
    assert!(began.elapsed() <= 30 * SECOND && asked.lock().is_empty());
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn rejection_reports_that_the_known_replicas_are_out_of_date() {
    let down = tokio::time::Instant::now() + 5 * SECOND;
    let (transport, _) = upstream(move |_, _, exchange| async move {
        match tokio::time::Instant::now() < down {
            true => Ok(json(exchange, ANSWER)),
            false => Err(Error::new(ErrorKind::Connect, "refused").with_connect_refused()),
        }
    });
    let (path, gate) = of_file_over(transport, "gone");
    std::fs::write(&path, A).unwrap();
    read(gate.client().call(ask("http://llama/v1/chat/completions")).await.unwrap()).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    // The replica is polled for 10 s after the call, and is found down.
    tokio::time::sleep(8 * SECOND).await;
    let error = gate.client().call(ask("http://llama/v1/chat/completions")).await.unwrap_err();
    let outdated =
        format!("; the list of the pool's replicas is out of date: {}: cannot be read", path.display());
    assert!(error.message().contains(&outdated), "{error}");
    let refused = "no replica accepts calls (http://10.0.0.1:8000: connections are refused)";
    assert!(error.message().contains(refused), "{error}");
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn replicas_are_polled_over_the_gates_own_transport() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let book = asked.clone();
    let (transport, _) = upstream(move |_, request, exchange| {
        let path = request.uri().path().to_owned();
        book.lock().push(path.clone());
        async move {
            let answer = match path.as_str() {
                "/metrics" => {
                    "vllm:num_requests_running 3\nvllm:num_requests_waiting 1\nvllm:kv_cache_usage_perc 0.5\n\
                               vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1000\"} 1\n"
                }
                "/v1/models" => r#"{"data": [{"id": "m", "max_model_len": 4096}]}"#,
                _ => ANSWER,
            };
            Ok(json(exchange, answer))
        }
    });
    let gate = pool(transport, Pool::new([A]));
    tokio::time::sleep(100 * SECOND).await;
    assert!(asked.lock().is_empty(), "nobody is asked before somebody calls");
    for _ in 0..20 {
        read(gate.client().call(ask("http://llama/v1/chat/completions")).await.unwrap()).await.unwrap();
        tokio::time::sleep(SECOND / 4).await;
    }
    let count = |path: &str| asked.lock().iter().filter(|asked| **asked == path).count();
    assert!((3..=8).contains(&count("/metrics")), "about once a second: {}", count("/metrics"));
    assert_eq!(count("/v1/models"), 1);
    let replica = gate.snapshot().targets["llama"].replicas[0].clone();
    assert_eq!((replica.others, replica.kv_usage), (Some(4.0), Some(0.5)));
    assert_eq!(replica.kv.unwrap().capacity, 16_000);
    assert_eq!(replica.models.unwrap(), [std::sync::Arc::<str>::from("m")]);
    // The task of the replica monitor ends 10 s after the last call.
    tokio::time::sleep(30 * SECOND).await;
    let after = asked.lock().len();
    tokio::time::sleep(1_000 * SECOND).await;
    assert_eq!(asked.lock().len(), after);
    drop(gate);
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn replica_counts_prompts() {
    let (transport, asked) = answering();
    let target = Target::new("llama").pool(Pool::new([A])).tokenizer(tidegate::config::Tokenizer::Vllm);
    let gate = Gate::builder().target(target).build_over(transport).unwrap();
    let mut request = ask("http://llama/v1/chat/completions");
    request.headers_mut().insert("host", "llama".parse().unwrap());
    read(gate.client().call(request).await.unwrap()).await.unwrap();
    assert_eq!(*asked.lock(), ["http://10.0.0.1:8000/tokenize", "http://10.0.0.1:8000/v1/chat/completions"]);
}

#[tokio::test(start_paused = true)]
async fn mode_off_sends_to_the_host_name_until_it_is_resolved() {
    let (transport, asked) = answering();
    let gate = Gate::builder()
        .mode(tidegate::config::Mode::Off)
        .target(Target::new("llama").pool(Pool::from_dns("http://vllm.invalid:8000")))
        .build_over(transport)
        .unwrap();
    read(gate.client().call(ask("http://llama/v1/chat/completions")).await.unwrap()).await.unwrap();
    assert_eq!(*asked.lock(), ["http://vllm.invalid:8000/v1/chat/completions"]);
}
