//! Tests through the whole client of rate budgets that adapt to the responses of the provider.

use std::time::Duration;

use tidegate::Reason;
use tidegate::config::OnFull;

use crate::support::*;

/// A 429 reduces the maximum burst. Responses without rate headers increase it again.
#[tokio::test(start_paused = true)]
async fn responses_without_rate_headers_raise_a_cut_rate() {
    let (transport, _) = upstream(|n, _, exchange| async move {
        Ok(if n == 1 { status(429, &[], "{}") } else { json(exchange, ANSWER) })
    });
    let gate = gate(transport, |target| target.rpm(60));
    let burst = || gate.snapshot().targets["llm"].budgets["requests"].burst;
    for _ in 0..2 {
        read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
    }
    assert_eq!(burst(), 3.0);
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_secs(60)).await;
        read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
    }
    assert_eq!(burst(), 6.0);
    assert_idle(&gate);
}

/// The first answer seems to announce a limit per minute. The second one shows that the limit is
/// per day.
#[tokio::test(start_paused = true)]
async fn metrics_of_a_budget_end_with_it() {
    let (transport, _) = upstream(|n, _, exchange| async move {
        let mut response = json(exchange, ANSWER);
        let mut set = |name: &'static str, value: &'static str| {
            response.headers_mut().insert(name, http::HeaderValue::from_static(value));
        };
        set("x-ratelimit-limit-requests", "14400");
        set("x-ratelimit-remaining-requests", if n == 0 { "14399" } else { "14398" });
        if n > 0 {
            set("x-ratelimit-reset-requests", "20h0m0s");
        }
        Ok(response)
    });
    let gate = gate(transport, |target| target);
    for (announced, other) in [("requests", "requests_per_day"), ("requests_per_day", "requests")] {
        read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
        let text = gate.prometheus();
        for family in ["budget_limit", "budget_level"] {
            let series = |kind| format!("tidegate_{family}{{budget=\"{kind}\",target=\"llm\"}}");
            assert!(text.contains(&series(announced)), "{announced} is missing from\n{text}");
            assert!(!text.contains(&series(other)), "{other} is in\n{text}");
        }
    }
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn rejection_blames_the_configured_rate_or_the_announced_one() {
    for is_announced in [false, true] {
        let (transport, _) = upstream(move |_, _, exchange| async move {
            let mut response = json(exchange, ANSWER);
            if is_announced {
                for (name, value) in [("limit", "60"), ("remaining", "0"), ("reset", "60s")] {
                    let name = http::HeaderName::try_from(format!("x-ratelimit-{name}-requests")).unwrap();
                    response.headers_mut().insert(name, http::HeaderValue::from_static(value));
                }
            }
            Ok(response)
        });
        let configured = (!is_announced).then_some(1);
        let gate = gate(transport, |target| target.on_full(OnFull::Refuse).rpm(configured));
        read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
        let error = gate.client().call(chat(false)).await.unwrap_err();
        assert_eq!(error.reason(), Some(Reason::NoBudget));
        let (cause, advice) = if is_announced {
            ("the provider's requests per minute are used up", "ask the provider for a higher limit")
        } else {
            ("the configured `rpm` is used up", "raise `rpm` or `burst` if the provider allows more")
        };
        assert_eq!(error.why().unwrap().sentence(), cause);
        assert!(error.message().contains(cause) && error.message().contains(advice), "{error}");
    }
}
