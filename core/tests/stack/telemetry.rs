//! Stamps, series, and that each is there from the start.

use std::time::Duration;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn every_attempt_has_its_five_stamps() {
    let (transport, _) = upstream(|n, _, exchange| async move {
        tokio::time::sleep(SECOND).await;
        Ok(if n == 0 {
            status(429, &[("retry-after", "10")], "{}")
        } else {
            sse(
                exchange,
                vec![(SECOND, Some(ROLE)), (SECOND, Some(TOKEN)), (SECOND, Some(STOP)), (SECOND, Some(DONE))],
            )
        })
    });
    let gate = gate(transport, |t| t.ttft(60 * SECOND));
    read(gate.client().call(chat(true)).await.unwrap()).await.unwrap();
    let record = gate.calls().records().pop().unwrap();
    assert_eq!((record.outcome, record.attempts.len()), ("completed", 2));
    let [first, second] = &record.attempts[..] else { panic!() };
    assert_eq!((first.queued_at, first.admitted_at, first.sent_at), (0.0, Some(0.0), Some(0.0)));
    assert_eq!((first.status, first.first_token_at, first.released_at), (Some(429), None, Some(1.0)));
    assert_eq!(second.queued_at, 1.0);
    let admitted = second.admitted_at.unwrap();
    assert!((11.0..12.1).contains(&admitted), "{admitted}");
    let since = |at: Option<f64>| (at.unwrap() - admitted).round();
    assert_eq!(
        (since(second.sent_at), since(second.first_token_at), since(second.released_at)),
        (0.0, 3.0, 5.0)
    );
    assert_eq!(gate.snapshot().targets["llm"].tenants["default"].objective_met, 1);
}

#[tokio::test(start_paused = true)]
async fn every_configured_series_exists_before_the_first_call() {
    let (transport, _) = upstream(|_, _, exchange| async move { Ok(json(exchange, ANSWER)) });
    let gate = gate(transport, |t| t.tenant("acme", tidegate::config::Tenant::new().cap(3)));
    let before = gate.prometheus();
    for series in [
        r#"tidegate_refused_total{reason="wait_budget",target="llm",tenant="acme"} 0"#,
        r#"tidegate_calls_total{outcome="truncated",target="llm",tenant="other"} 0"#,
        r#"tidegate_retries_total{cause="rate_limited",target="llm"} 0"#,
        r#"tidegate_limit{target="llm"} 64"#,
        r#"tidegate_ttft_seconds_count{lane="batch",target="llm",tenant="acme"} 0"#,
    ] {
        assert!(before.contains(series), "{series} is missing from\n{before}");
    }
    for tenant in ["acme", "nobody", "somebody"] {
        read(gate.client().call(of(tenant)).await.unwrap()).await.unwrap();
    }
    let after = gate.prometheus();
    assert!(
        after.contains(r#"tidegate_calls_total{outcome="completed",target="llm",tenant="other"} 2"#),
        "{after}"
    );
    assert!(after.contains(r#"tidegate_tokens_total{direction="input",target="llm",tenant="acme"} 3"#));
    assert_eq!(before.lines().count(), after.lines().count(), "no series appears later");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_counted_and_no_latency_sample() {
    let (transport, _) = upstream(|_, _, exchange| async move {
        Ok(sse(exchange, vec![(SECOND, Some(ROLE)), (1000 * SECOND, Some(TOKEN))]))
    });
    let gate = gate(transport, |t| t);
    let _ = tokio::time::timeout(Duration::from_secs(5), async {
        read(gate.client().call(chat(true)).await?).await
    })
    .await;
    let tenant = &gate.snapshot().targets["llm"].tenants["default"];
    assert_eq!((tenant.outcomes["cancelled"], tenant.ttft.count, tenant.duration.count), (1, 0, 0));
}
