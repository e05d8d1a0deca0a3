//! Tests of the preflight call and its error messages.

use tidegate_sim::{Faults, Simulator};
use tidegate_sweep::{Sweep, SweepCeilings, SweepEnd, SweepError, SweepOptions};
use tidegate_test_servers::constant_steps;
use tokio::sync::watch;

use crate::upstream::{Upstream, json_response};
use crate::{options, run, run_paused_seeded, sweep};

fn error_text(upstream: &Upstream, options: SweepOptions) -> String {
    let error = run_paused_seeded(run(Sweep::new(options).unwrap(), upstream)).unwrap_err();
    assert!(upstream.log.requests() <= 2, "nothing more is sent");
    error.to_string()
}

#[test]
fn wrong_key_is_an_error() {
    let upstream = Upstream::scripted(Faults::default(), |_, _| {
        json_response(
            401,
            r#"{"error": {"message": "Incorrect API key provided: sk-12345", "code": "invalid_api_key"}}"#,
        )
    });
    let text = error_text(&upstream, options());
    assert!(text.contains("--key-env") && !text.contains("12345"), "{text}");
}

#[test]
fn unknown_model_error_lists_known_models() {
    let text = error_text(
        &Upstream::new(Faults::default()),
        SweepOptions { model: "other".to_owned(), ..options() },
    );
    assert!(text.contains("no model other") && text.contains("available models: sim"), "{text}");
}

#[test]
fn wrong_endpoint_is_an_error() {
    let nowhere = SweepOptions { url: "http://server:8000/nowhere/chat/completions".to_owned(), ..options() };
    let text =
        error_text(&Upstream::scripted(Faults::default(), |_, _| json_response(404, "<html>")), nowhere);
    assert!(text.contains("not an endpoint for chat"), "{text}");
    let page = Upstream::scripted(Faults::default(), |_, _| {
        json_response(200, r#"<html>"#).map(|mut response| {
            response.headers_mut().insert("content-type", "text/html".parse().unwrap());
            response
        })
    });
    let text = error_text(&page, options());
    assert!(text.contains("not with a stream"), "{text}");
}

#[test]
fn stop_and_time_ceiling_are_no_failures_of_the_preflight() {
    let slow =
        Upstream::over(Simulator::new(constant_steps(9_000.0, Faults::default())).unwrap(), |_, _| None);
    let ceilings = SweepCeilings { seconds: Some(1.0), ..SweepCeilings::default() };
    let late = Sweep::new(SweepOptions { ceilings, ..options() }).unwrap();
    let error = run_paused_seeded(run(late, &slow)).unwrap_err();
    assert!(matches!(&error, SweepError::Stopped(text) if text.contains("--max-time")), "{error}");
    let (_stop, stopped) = watch::channel(true);
    let sweep = Sweep::new(options()).unwrap();
    let error = run_paused_seeded(sweep.run(slow.transport(), |_| {}, stopped)).unwrap_err();
    assert!(matches!(&error, SweepError::Stopped(text) if text.contains("interrupted")), "{error}");
}

#[test]
fn switches_to_max_completion_tokens_on_demand() {
    let upstream = Upstream::scripted(Faults::default(), |_, request| {
        let text = String::from_utf8_lossy(request.body());
        let old = text.contains("\"max_tokens\"");
        old.then(|| json_response(400, r#"{"error": {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}}"#))?
    });
    let outcome = sweep(options(), &upstream);
    assert_eq!(outcome.ended, SweepEnd::Found);
}

#[test]
fn busy_server_at_the_preflight_is_not_an_error() {
    let upstream =
        Upstream::scripted(Faults { concurrency_limit: Some(10), ..Faults::default() }, |number, _| {
            if number < 2 {
                json_response(429, r#"{"error": {"message": "Too many requests."}}"#)
            } else {
                None
            }
        });
    assert_eq!(sweep(options(), &upstream).answer.cap, Some(10));
}
