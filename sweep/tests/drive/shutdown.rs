//! Tests that nothing is in flight after a sweep, however it ended, and that a partial result is
//! returned.

use tidegate_sim::Faults;
use tidegate_sweep::{Sweep, SweepEnd, SweepState};
use tokio::sync::watch;

use crate::upstream::{Upstream, json_response};
use crate::{options, run_paused_seeded, sweep};

fn limited() -> Upstream {
    Upstream::new(Faults { concurrency_limit: Some(10), ..Faults::default() })
}

#[test]
fn interrupted_sweep_returns_a_partial_result() {
    let upstream = limited();
    let outcome = run_paused_seeded(async {
        let (stop, stopped) = watch::channel(false);
        let sweep = Sweep::new(options()).unwrap();
        let mut seen = 0;
        let progress = |progress: &tidegate_sweep::SweepProgress| {
            seen += usize::from(progress.step_ended.is_some());
            if seen == 2 {
                stop.send_replace(true);
            }
        };
        sweep.run(upstream.transport(), progress, stopped).await.unwrap()
    });
    assert_eq!(outcome.ended, SweepEnd::Interrupted);
    assert!(outcome.steps.len() >= 2);
    assert_eq!((upstream.log.open(), upstream.simulator().stats().in_flight), (0, 0));
}

#[test]
fn dropped_sweep_leaves_nothing_in_flight() {
    let upstream = limited();
    run_paused_seeded(async {
        let (_stop, stopped) = watch::channel(false);
        let (sender, mut receiver) = watch::channel(false);
        let progress = move |progress: &tidegate_sweep::SweepProgress| {
            sender
                .send_replace(matches!(progress.state, SweepState::Holding { .. }) && progress.in_flight > 0);
        };
        let sweep = Sweep::new(options()).unwrap().run(upstream.transport(), progress, stopped);
        tokio::select! {
            _ = sweep => unreachable!(),
            _ = receiver.wait_for(|holding| *holding) => {}
        }
        // Aborted tasks end when they are polled next.
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    });
    assert_eq!((upstream.log.open(), upstream.simulator().stats().in_flight), (0, 0));
}

#[test]
fn revoked_key_ends_the_sweep_without_a_limit() {
    let upstream = Upstream::scripted(Faults::default(), |number, _| {
        if number < 200 { None } else { json_response(401, r#"{"error": {"code": "invalid_api_key"}}"#) }
    });
    let outcome = sweep(options(), &upstream);
    assert_eq!(outcome.ended, SweepEnd::Refused);
    assert!(outcome.answer.notes.iter().any(|note| note.contains("401")), "{:?}", outcome.answer);
    assert!(upstream.log.requests() < 300);
}
