//! Who the replicas of a pool are, and what is told of them.

use std::sync::Arc;

use http::{Request, Uri};
use parking_lot::Mutex;
use tidegate::config::{Pool, Replica, Target};
use tidegate::{ErrorKind, Gate, RequestBody, Transport};

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

/// Each answers at once, and is written down.
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
async fn a_pool_is_called_by_its_name_and_by_its_replicas() {
    let (transport, asked) = answering();
    let gate = pool(transport, Pool::of([A]));
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
async fn replicas_are_told_while_calls_are_under_way() {
    let (transport, _) = upstream(|_, request, exchange| async move {
        if request.method() == http::Method::POST {
            tokio::time::sleep(10 * SECOND).await;
        }
        Ok(json(exchange, ANSWER))
    });
    let gate = pool(transport, Pool::told());
    assert!(replicas(&gate).is_empty());
    gate.set_replicas("llama", [A]).unwrap();
    assert_eq!(replicas(&gate), [(A.to_owned(), "in", 1.0)]);
    let client = gate.client();
    let call =
        tokio::spawn(async move { read(client.call(ask("http://llama/v1/chat/completions")).await?).await });
    tokio::time::sleep(SECOND).await;
    gate.set_replicas("llama", [Replica::at(format!("{B}/v1")).weight(2.0)]).unwrap();
    let mut seen = replicas(&gate);
    seen.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!((seen[0].1, &*seen[1].0, seen[1].2), ("draining", B, 2.0));
    call.await.unwrap().unwrap();
    let left = replicas(&gate);
    assert_eq!((left.len(), &*left[0].0), (1, B), "who drains leaves with its last call");
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_told_changes_nothing() {
    let (transport, _) = answering();
    let gate = Gate::builder()
        .target(Target::new("llama").pool(Pool::of([A])))
        .target(Target::new("dns").pool(Pool::dns("http://vllm.svc:8000")))
        .target(Target::new("file").pool(Pool::file("no/such/file")))
        .target(Target::new("openai").cap(1))
        .build_over(transport)
        .unwrap();
    let many: Vec<String> = (0..129).map(|at| format!("http://h:{}", 8_000 + at)).collect();
    for (target, list, kind, told) in [
        ("lama", vec![B], ErrorKind::Unknown, "did you mean \"llama\"?"),
        ("openai", vec![B], ErrorKind::Config, "it is no pool"),
        ("dns", vec![B], ErrorKind::Config, "those that DNS names"),
        ("file", vec![B], ErrorKind::Config, "those that a file names"),
        ("llama", vec![B, "10.0.0.3"], ErrorKind::Config, "replicas[1].url: "),
        ("llama", vec![B, B], ErrorKind::Config, "replicas[1]: is the same replica as one above"),
        ("llama", many.iter().map(|url| &**url).collect(), ErrorKind::Config, "a pool has 128 at most"),
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
async fn series_come_and_go_with_their_replica() {
    let (transport, _) = answering();
    let gate = pool(transport, Pool::of([A, B]));
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
fn a_key_that_is_not_there_is_told_when_the_gate_opens() {
    let open = |variable| {
        let pool = Pool::of([A]).key_env(variable);
        Gate::builder().target(Target::new("llama").pool(pool)).build()
    };
    let error = open("TIDEGATE_NO_SUCH_KEY").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(
        error.message(),
        "targets.llama.pool.key_env: TIDEGATE_NO_SUCH_KEY is not in the environment; set it, or leave key_env out"
    );
    // Every environment has this one.
    assert!(open("PATH").is_ok());
}
