//! Tests of the targets that the gate creates for requests without a configured target: each has
//! its own admission while it is in use.

use tidegate::Gate;
use tidegate::config::Target;

use crate::support::*;

const MOST: usize = 256;

fn of_model(model: &str) -> http::Request<tidegate::RequestBody> {
    let body = format!(r#"{{"model": "{model}", "messages": []}}"#);
    http::Request::post("http://far/v1/chat/completions").body(body.into_bytes().into()).unwrap()
}

async fn call(gate: &Gate, model: &str) {
    read(gate.client().call(of_model(model)).await.unwrap()).await.unwrap();
}

fn names(gate: &Gate) -> Vec<String> {
    gate.snapshot().targets.keys().filter(|name| &***name != "llm").map(|name| name.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn longest_idle_target_is_evicted() {
    let (transport, _) = upstream(|_, request: http::Request<_>, exchange| async move {
        Ok(match request.headers().get("x-fail") {
            Some(_) => status(429, &[("retry-after", "3000")], "{}"),
            None => json(exchange, ANSWER),
        })
    });
    let gate = gate(transport, |t| t);
    // The oldest target is in a long cool-down, and the next has a call in flight.
    let mut told = of_model("cooling");
    told.headers_mut().insert("x-fail", "yes".parse().unwrap());
    assert_eq!(gate.client().call(told).await.unwrap().status(), 429);
    let under_way = gate.client().call(of_model("busy")).await.unwrap();
    for n in 2..MOST {
        call(&gate, &format!("m{n}")).await;
        tokio::time::sleep(SECOND / 10).await;
    }
    assert_eq!(names(&gate).len(), MOST);

    // m2 is used again, so m3 is now the least recently used.
    tokio::time::sleep(70 * SECOND).await;
    call(&gate, "m2").await;
    call(&gate, "new").await;
    let seen = names(&gate);
    assert_eq!(seen.len(), MOST);
    for there in ["far/cooling", "far/busy", "far/m2", "far/m4", "far/new"] {
        assert!(seen.contains(&there.to_owned()), "{there}");
    }
    assert!(!seen.contains(&"far/m3".to_owned()));
    let text = gate.prometheus();
    assert!(!text.contains(r#"target="far/m3""#), "no series is left of it");
    assert!(text.contains(r#"tidegate_calls_total{outcome="completed",target="far/m4",tenant="default"} 1"#));

    // A target that was evicted returns as a new one.
    call(&gate, "m3").await;
    assert!(!names(&gate).contains(&"far/m4".to_owned()));
    assert!(
        gate.prometheus()
            .contains(r#"tidegate_calls_total{outcome="completed",target="far/m3",tenant="default"} 1"#)
    );
    read(under_way).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn further_targets_share_one_if_none_is_idle() {
    let (transport, _) = upstream(|_, _, exchange| async move { Ok(json(exchange, ANSWER)) });
    let gate = gate(transport, |t| t);
    for n in 0..MOST + 3 {
        call(&gate, &format!("m{n}")).await;
    }
    let snapshot = gate.snapshot();
    assert_eq!(snapshot.targets.len(), 1 + MOST + 1);
    assert_eq!(snapshot.targets["others"].attempts, 3);
}

#[tokio::test(start_paused = true)]
async fn requests_that_match_no_configured_target_are_reported_once() {
    let of_user = |model: &str| {
        let mut request = of_model(model);
        *request.uri_mut() = "http://user:secret@far:8000/v1/chat/completions?key=secret".parse().unwrap();
        request
    };
    for (is_used, level) in [(false, "WARN"), (true, "INFO")] {
        let (lines, _guard) = LogLines::collect();
        let (transport, _) = upstream(|_, _, exchange| async move { Ok(json(exchange, ANSWER)) });
        let gate = gate(transport, |t| t);
        if is_used {
            read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
        }
        for model in ["m1", "m2"] {
            read(gate.client().call(of_user(model)).await.unwrap()).await.unwrap();
        }
        let text = "no configured target takes requests to http://far:8000 (model m1): they get a limit of their own; set `url` (and `models`) of a target to limit them";
        assert_eq!(lines.take("configured target"), [format!("{level}: {text}")]);
    }
    // No limit is meant for requests.
    for configured in [None, Some(Target::new("grpc").slots_only())] {
        let (lines, _guard) = LogLines::collect();
        let (transport, _) = upstream(|_, _, exchange| async move { Ok(json(exchange, ANSWER)) });
        let builder = configured.into_iter().fold(Gate::builder(), |builder, target| builder.target(target));
        call(&builder.build_over(transport).unwrap(), "m").await;
        assert_eq!(lines.take("configured target"), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn unconfigured_target_never_takes_a_configured_name() {
    let (transport, _) = upstream(|_, _, exchange| async move { Ok(json(exchange, ANSWER)) });
    let gate = gate(transport, |_| Target::new("far/m").url("http://llm"));
    call(&gate, "m").await;
    let targets = gate.snapshot().targets;
    assert_eq!((targets["far/m"].attempts, targets["far/m#2"].attempts), (0, 1));
}
