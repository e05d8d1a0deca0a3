//! Tests of the adaptive limit with prompts that grow while the answers stay as long as they are.

use super::*;

#[test]
fn longer_prompts_do_not_lower_the_limit() {
    for (streams, took) in [(true, 100), (false, 1_000)] {
        let mut run = Run::new(&settings(None));
        (0..10).for_each(|_| run.round(CallKind { streams, ..STREAM }, 100, took));
        assert_eq!(run.limit.slots(), 64, "streams: {streams}");
        (0..5).for_each(|_| run.round(CallKind { input: 50_000, output: 100, streams }, 100, 10_000));
        assert!(run.limit.slots() >= 48, "streams: {streams}, {} slots", run.limit.slots());
    }
}

/// The prompts of a class differ by a factor of two at most. In the last class, which has no
/// maximum, the latency of calls is in proportion to their prompts.
#[test]
fn prompts_of_any_length_are_compared_by_token() {
    let mut run = Run::new(&settings(None));
    (0..10).for_each(|_| run.round(CallKind { input: 4_000_000, ..WHOLE }, 100, 10_000));
    assert_eq!(run.limit.slots(), 64);
    (0..5).for_each(|_| run.round(CallKind { input: 16_000_000, ..WHOLE }, 100, 40_000));
    assert_eq!((run.limit.slots(), run.limit.view(run.now).cuts), (64, 0));
}
