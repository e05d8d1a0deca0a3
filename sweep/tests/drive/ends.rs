//! However it ends, nothing is in flight, and what is known is told.

use tidegate_sim::Faults;
use tidegate_sweep::{Ended, State, Sweep};
use tokio::sync::watch;

use crate::upstream::{Upstream, says};
use crate::{options, play, sweep};

fn limited() -> Upstream {
    Upstream::new(Faults { concurrency_limit: Some(10), ..Faults::default() })
}

#[test]
fn an_interrupted_sweep_tells_what_is_known() {
    let upstream = limited();
    let outcome = play(async {
        let (stop, stopped) = watch::channel(false);
        let sweep = Sweep::new(options()).unwrap();
        let mut seen = 0;
        let progress = |progress: &tidegate_sweep::Progress| {
            seen += usize::from(progress.step_ended.is_some());
            if seen == 2 {
                stop.send_replace(true);
            }
        };
        sweep.run(upstream.transport(), progress, stopped).await.unwrap()
    });
    assert_eq!(outcome.ended, Ended::Interrupted);
    assert!(outcome.steps.len() >= 2);
    assert_eq!((upstream.books.open(), upstream.simulator().stats().in_flight), (0, 0));
}

#[test]
fn a_dropped_sweep_leaves_nothing_in_flight() {
    let upstream = limited();
    play(async {
        let (_stop, stopped) = watch::channel(false);
        let (tell, mut told) = watch::channel(false);
        let progress = move |progress: &tidegate_sweep::Progress| {
            tell.send_replace(matches!(progress.state, State::Holding { .. }) && progress.in_flight > 0);
        };
        let sweep = Sweep::new(options()).unwrap().run(upstream.transport(), progress, stopped);
        tokio::select! {
            _ = sweep => unreachable!(),
            _ = told.wait_for(|holding| *holding) => {}
        }
        // Aborted tasks end at their next turn.
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    });
    assert_eq!((upstream.books.open(), upstream.simulator().stats().in_flight), (0, 0));
}

#[test]
fn a_key_that_is_withdrawn_in_mid_sweep_is_no_knee() {
    let upstream = Upstream::scripted(Faults::default(), |number, _| {
        if number < 200 { None } else { says(401, r#"{"error": {"code": "invalid_api_key"}}"#) }
    });
    let outcome = sweep(options(), &upstream);
    assert_eq!(outcome.ended, Ended::Refused);
    assert!(outcome.answer.notes.iter().any(|note| note.contains("401")), "{:?}", outcome.answer);
    assert!(upstream.books.requests() < 300);
}
