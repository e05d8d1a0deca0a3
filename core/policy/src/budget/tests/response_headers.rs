//! Tests of the effects of response headers on rate budgets, including headers with absurd values.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use crate::budget::{AvailableBudget, BudgetKind, BudgetView, Need, RateBudgets};
use crate::testing::epoch;
use tidegate_config::{Counting, HeaderPolicy, RateConfig};
use tidegate_protocol::observe::Usage;
use tidegate_protocol::rate::{RateHeaders, RateWindow};
use tidegate_protocol::request::Dialect;
use tidegate_tokens::Demand;

const CALL: Demand =
    Demand { input: 100, output: 50, max_output: Some(200), media: 0, cached: 0, exact: true, dialect: None };

fn config(tpm: Option<u64>, headers: HeaderPolicy) -> RateConfig {
    RateConfig { tpm, headers, ..RateConfig::default() }
}

fn window(limit: u64, remaining: u64, reset: u64) -> RateWindow {
    let reset = Some(Duration::from_secs(reset));
    RateWindow { limit: Some(limit), remaining: Some(remaining), reset, period: None }
}

/// Charges `calls` calls one after the other, and reports for each a successful response with these
/// token headers.
fn answer(budgets: &mut RateBudgets, now: Instant, tokens: RateWindow, calls: usize) {
    for _ in 0..calls {
        let charge = budgets.charge(now, &CALL);
        budgets.on_response(now, &charge, now, &RateHeaders { tokens, ..RateHeaders::default() }, false);
    }
}

fn view_of(budgets: &mut RateBudgets, now: Instant, kind: BudgetKind) -> Option<BudgetView> {
    budgets.view(now).into_iter().find(|view| view.kind == kind)
}

fn limit(budgets: &mut RateBudgets, now: Instant) -> Option<u64> {
    view_of(budgets, now, BudgetKind::Tokens).map(|view| view.limit)
}

#[test]
fn wrong_limit_is_corrected_within_three_responses() {
    let now = epoch();
    for (tpm, enough) in [(None, 1), (Some(200_000), 1), (Some(50_000), 2)] {
        let mut budgets = RateBudgets::new(&config(tpm, HeaderPolicy::Follow), now);
        answer(&mut budgets, now, window(100_000, 99_000, 1), enough - 1);
        assert_eq!(limit(&mut budgets, now), tpm, "not yet");
        answer(&mut budgets, now, window(100_000, 99_000, 1), 1);
        let view = view_of(&mut budgets, now, BudgetKind::Tokens).expect("it is there");
        assert_eq!((view.limit, view.source), (100_000, "headers"));
    }
}

#[test]
fn higher_limit_needs_two_agreeing_responses() {
    let now = epoch();
    let mut budgets = RateBudgets::new(&config(Some(1_000), HeaderPolicy::Follow), now);
    for said in [5_000, 1_000, 6_000, 1_000, 6_000] {
        answer(&mut budgets, now, window(said, 900, 1), 1);
        assert_eq!(limit(&mut budgets, now), Some(1_000));
    }
    answer(&mut budgets, now, window(5_000, 900, 1), 1);
    assert_eq!(limit(&mut budgets, now), Some(5_000));
}

#[test]
fn lower_never_raises_and_ignore_never_changes_limits() {
    let now = epoch();
    let mut budgets = RateBudgets::new(&config(Some(1_000), HeaderPolicy::Lower), now);
    answer(&mut budgets, now, window(9_000, 8_000, 1), 5);
    assert_eq!(limit(&mut budgets, now), Some(1_000));
    answer(&mut budgets, now, window(400, 300, 1), 1);
    assert_eq!(limit(&mut budgets, now), Some(400));
    answer(&mut budgets, now, window(9_000, 8_000, 1), 2);
    assert_eq!(limit(&mut budgets, now), Some(1_000), "back, and no further");
    for tpm in [None, Some(1_000)] {
        let mut budgets = RateBudgets::new(&config(tpm, HeaderPolicy::Ignore), now);
        answer(&mut budgets, now, window(400, 0, 60), 5);
        assert_eq!(limit(&mut budgets, now), tpm);
    }
}

#[test]
fn limit_that_is_not_announced_for_an_hour_is_forgotten() {
    let start = epoch();
    let at = |minutes: u64| start + Duration::from_secs(60 * minutes);
    for tpm in [None, Some(1_000)] {
        let mut budgets = RateBudgets::new(&config(tpm, HeaderPolicy::Follow), start);
        answer(&mut budgets, at(0), window(400, 300, 1), 1);
        answer(&mut budgets, at(50), window(400, 300, 1), 1);
        let only_remaining = RateWindow { remaining: Some(300), ..RateWindow::default() };
        answer(&mut budgets, at(100), only_remaining, 1);
        answer(&mut budgets, at(159), RateWindow::default(), 1);
        assert_eq!(limit(&mut budgets, at(159)), Some(400));
        answer(&mut budgets, at(161), RateWindow::default(), 1);
        assert_eq!(limit(&mut budgets, at(161)), tpm);
        assert_eq!(budgets.limits_flag().load(std::sync::atomic::Ordering::Relaxed), tpm.is_some());
        // A response that announces it again after a long pause.
        answer(&mut budgets, at(200), window(400, 300, 1), 1);
        answer(&mut budgets, at(500), window(400, 300, 1), 1);
        assert_eq!(limit(&mut budgets, at(500)), Some(400));
    }
}

#[test]
fn exhausted_provider_window_blocks_calls() {
    let now = epoch();
    let mut budgets = RateBudgets::new(&config(Some(60_000), HeaderPolicy::Follow), now);
    answer(&mut budgets, now, window(60_000, 100, 59), 1);
    let need = budgets.need(&CALL);
    assert!(!need.fits(&budgets.available(now)), "others have taken it");
    let (kind, then) = budgets.ready_at(now, &need).expect("it does not fit");
    assert_eq!(kind, BudgetKind::Tokens);
    assert!(then > now && then <= now + Duration::from_secs(60), "{:?}", then - now);
    assert!(need.fits(&budgets.available(then)));
    let later = now + Duration::from_secs(61);
    assert!(need.fits(&budgets.available(later)), "whole again by then, whether or not anybody said so");
}

#[test]
fn last_request_of_small_window_is_used() {
    let start = epoch();
    let at = |call: u64| start + Duration::from_millis(6_150 * call);
    let mut budgets = RateBudgets::new(&RateConfig { rpm: Some(10), ..RateConfig::default() }, start);
    for used in 1..=10 {
        let now = at(used - 1);
        let need = budgets.need(&CALL);
        assert!(need.fits(&budgets.available(now)), "{used} of 10");
        let charge = budgets.charge(now, &CALL);
        let requests = window(10, 10 - used, 60 - 6 * (used - 1));
        budgets.on_response(now, &charge, now, &RateHeaders { requests, ..RateHeaders::default() }, false);
    }
    let need = budgets.need(&CALL);
    assert!(!need.fits(&budgets.available(at(9))), "an eleventh");
}

#[test]
fn groq_requests_use_the_daily_budget() {
    let now = epoch();
    let mut budgets = RateBudgets::new(&RateConfig { rpm: Some(30), ..RateConfig::default() }, now);
    for used in 1..=3u64 {
        let charge = budgets.charge(now, &CALL);
        let requests = window(14_400, 14_400 - used, used * 6);
        budgets.on_response(now, &charge, now, &RateHeaders { requests, ..RateHeaders::default() }, false);
    }
    let minute = view_of(&mut budgets, now, BudgetKind::Requests).map(|view| (view.limit, view.source));
    assert_eq!(minute, Some((30, "configured")));
    let day = view_of(&mut budgets, now, BudgetKind::RequestsPerDay)
        .map(|view| (view.limit, view.window.as_secs()));
    assert_eq!(day, Some((14_400, 86_400)));
}

#[test]
fn lower_daily_limit_binds_although_the_provider_has_more_left() {
    let now = epoch();
    let configured = RateConfig { rpd: Some(100), headers: HeaderPolicy::Lower, ..RateConfig::default() };
    let mut budgets = RateBudgets::new(&configured, now);
    let mut call = |used: u64| {
        let fits = budgets.need(&CALL).fits(&budgets.available(now));
        let charge = budgets.charge(now, &CALL);
        let requests = window(14_400, 14_400 - used, used * 6);
        budgets.on_response(now, &charge, now, &RateHeaders { requests, ..RateHeaders::default() }, false);
        fits
    };
    let admitted = (1..1_000).take_while(|used| call(*used)).count();
    assert!((95..=100).contains(&admitted), "{admitted}");
}

#[test]
fn dialect_selects_rule_and_charge_keeps_it() {
    let now = epoch();
    let mut budgets = RateBudgets::new(&config(Some(60_000), HeaderPolicy::Follow), now);
    assert_eq!(budgets.need(&CALL).tokens, 300);
    let first = budgets.charge(now, &CALL);
    let of_anthropic = Demand { dialect: Some(Dialect::AnthropicMessages), ..CALL };
    assert_eq!(budgets.need(&of_anthropic), Need { tokens: 150, input: 100, output: 50, kv: 0 });
    let cached = Demand { cached: 40, ..of_anthropic };
    assert_eq!(
        budgets.need(&cached),
        Need { tokens: 110, input: 60, output: 50, kv: 0 },
        "its cache is free"
    );
    let mut second = budgets.charge(now, &of_anthropic);
    let of_gemini = Demand { dialect: Some(Dialect::Gemini), ..CALL };
    assert_eq!(budgets.need(&of_gemini).tokens, 100);
    budgets.settle(now, &mut second, &Usage { input: 120, output: 10, cached_input: 40 });
    assert_eq!(second.need.tokens, 90, "what was read from a cache is free there");
    budgets.refund(now, &first);
    let configured = RateConfig { counting: Counting::Larger, ..config(None, HeaderPolicy::Follow) };
    let budgets = RateBudgets::new(&configured, now);
    assert_eq!(budgets.need(&of_gemini).tokens, 200);
}

#[test]
fn charge_is_settled_or_refunded_once() {
    let now = epoch();
    let mut budgets =
        RateBudgets::new(&RateConfig { rpm: Some(60), ..config(Some(1_000), HeaderPolicy::Follow) }, now);
    let full = budgets.view(now);
    let first = budgets.charge(now, &CALL);
    assert_ne!(budgets.view(now), full);
    budgets.refund(now, &first);
    assert_eq!(budgets.view(now), full);
    let mut charge = budgets.charge(now, &CALL);
    let usage = Usage { input: 150, output: 9, cached_input: 0 };
    budgets.settle(now, &mut charge, &Usage::default());
    assert_eq!(charge.need.tokens, 300, "no usage: the reservation stands");
    budgets.settle(now, &mut charge, &usage);
    let settled = budgets.view(now);
    assert_eq!(charge.need.tokens, 350, "input as counted, output as reserved");
    budgets.settle(now, &mut charge, &Usage { input: 1, ..usage });
    budgets.refund(now, &charge);
    assert_eq!(budgets.view(now), settled);
}

#[test]
fn absurd_usage_does_not_block_for_long() {
    let now = epoch();
    let mut budgets = RateBudgets::new(
        &RateConfig { counting: Counting::Actual, ..config(Some(1_000), HeaderPolicy::Follow) },
        now,
    );
    let mut charge = budgets.charge(now, &CALL);
    budgets.settle(now, &mut charge, &Usage { input: 1_000_000_000_000, output: u64::MAX, cached_input: 0 });
    let need = budgets.need(&CALL);
    let (_, then) = budgets.ready_at(now, &need).expect("it owes");
    assert!(then <= now + Duration::from_secs(130));
    assert_eq!(budgets.oversize(&Demand { input: 1_001, ..CALL }), Some((BudgetKind::Tokens, 1_000)));
    assert_eq!(budgets.oversize(&CALL), None);
}

/// An estimate, or a limit from headers, must not reject calls forever, because no call would be
/// sent to correct it.
#[test]
fn oversize_uses_only_certain_tokens() {
    let now = epoch();
    let limits = RateConfig { tpm: Some(1_000), otpm: Some(100), ..config(None, HeaderPolicy::Follow) };
    let mut budgets = RateBudgets::new(&limits, now);
    let guess = Demand { input: 1_300, output: 5_000, max_output: Some(50_000), exact: false, ..CALL };
    assert_eq!(
        budgets.oversize(&guess),
        None,
        "an estimate may be a third too high, and nobody knows the output"
    );
    assert_eq!(budgets.oversize(&Demand { exact: true, ..guess }), Some((BudgetKind::Tokens, 1_000)));
    let charge = budgets.charge(now, &CALL);
    let tokens = window(10, 5, 30);
    budgets.on_response(now, &charge, now, &RateHeaders { tokens, ..RateHeaders::default() }, false);
    assert_eq!(budgets.oversize(&Demand { exact: true, ..guess }), None, "one header closes no target");
}

#[test]
fn refusals_shorten_burst_then_cut_unannounced_limit() {
    let now = epoch();
    let mut budgets = RateBudgets::new(&config(Some(60_000), HeaderPolicy::Follow), now);
    let first = view_of(&mut budgets, now, BudgetKind::Tokens).map(|view| view.burst);
    let pair = [budgets.charge(now, &CALL), budgets.charge(now, &CALL)];
    for charge in &pair {
        budgets.on_response(now, charge, now, &RateHeaders::default(), true);
    }
    let then = view_of(&mut budgets, now, BudgetKind::Tokens).map(|view| view.burst);
    assert_eq!(then, first.map(|burst| burst / 2), "once for those that were under way together");
}

#[test]
fn tool_limits_per_second_and_per_minute() {
    let now = epoch();
    let mut tool = RateBudgets::for_tool(Some(2.5), Some(60), now);
    let mut went = 0;
    for tenth in 0..1_200u64 {
        let now = now + Duration::from_millis(tenth * 100);
        if tool.available(now).has_requests {
            tool.charge(now, &Demand::default());
            went += 1;
        }
    }
    assert!((110..=120).contains(&went), "two minutes of sixty: {went}");
    let mut slow = RateBudgets::for_tool(Some(0.5), None, now);
    assert!(slow.available(now).has_requests);
    slow.charge(now, &Demand::default());
    let (kind, then) = slow.ready_at(now, &Need::ZERO).expect("one every two seconds");
    assert_eq!((kind, then.duration_since(now).as_secs()), (BudgetKind::Requests, 2));
    assert!(!slow.available(now).has_requests && slow.available(then).has_requests);
    for rps in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
        assert_eq!(RateBudgets::for_tool(Some(rps), None, now).available(now), AvailableBudget::UNBOUNDED);
    }
}

#[test]
fn no_configuration_and_no_headers_means_no_limit() {
    let now = epoch();
    let mut budgets = RateBudgets::default();
    for _ in 0..1_000 {
        assert_eq!(budgets.available(now), AvailableBudget::UNBOUNDED);
        budgets.charge(now, &Demand { input: u64::MAX, output: u64::MAX, ..Demand::default() });
    }
    assert_eq!(budgets.ready_at(now, &Need::UNBOUNDED), None);
    assert_eq!(budgets.time_for(usize::MAX, &Need::UNBOUNDED), Duration::ZERO);
    assert!(budgets.view(now).is_empty());
}

fn any_count() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![Just(None), Just(Some(0)), Just(Some(u64::MAX)), (0u64..100_000).prop_map(Some)]
}

prop_compose! {
    fn any_window()(limit in any_count(), remaining in any_count(), reset in any_count()) -> RateWindow {
        RateWindow { limit, remaining, reset: reset.map(Duration::from_millis), period: None }
    }
}

proptest! {
    /// Arbitrary headers in any order cause no panic. After each step a call either fits or has a
    /// later ready time. At the end, a call fits after fewer than ten waits for its ready time.
    #[test]
    fn arbitrary_headers_never_block_for_two_windows(
        rpm in prop::option::of(1u64..1_000),
        tpm in prop::option::of(1u64..1_000_000),
        steps in prop::collection::vec((0u64..10_000, any_window(), any_window(), any_window(), 0u8..8, any_count()), 1..60),
    ) {
        let start = epoch();
        let mut budgets = RateBudgets::new(&RateConfig { rpm, ..config(tpm, HeaderPolicy::Follow) }, start);
        let (mut now, mut kept) = (start, Vec::new());
        for (step, requests, tokens, input_tokens, what, count) in steps {
            now += Duration::from_millis(step);
            let mut charge = budgets.charge(now, &CALL);
            let headers = RateHeaders { requests, tokens, input_tokens, ..RateHeaders::default() };
            match what {
                0 => budgets.refund(now, &charge),
                1 => kept.push(charge),
                2 => if let Some(old) = kept.pop() { budgets.on_response(now, &old, start, &headers, true); },
                _ => {
                    let usage = Usage { input: count.unwrap_or(7), output: count.unwrap_or(1), cached_input: 0 };
                    budgets.on_response(now, &charge, now, &headers, what == 3);
                    budgets.settle(now, &mut charge, &usage);
                }
            }
            let _ = budgets.view(now);
            let need = budgets.need(&CALL);
            let fits = need.fits(&budgets.available(now));
            let ready = budgets.ready_at(now, &need);
            prop_assert_eq!(fits, ready.is_none(), "{:?}", ready);
        }
        // Calls that were charged a whole limit each are repaid one after the other.
        let mut rounds = 0;
        while let Some((_, then)) = budgets.ready_at(now, &budgets.need(&CALL)) {
            now = then;
            rounds += 1;
            prop_assert!(rounds < 10, "it opens when it said");
        }
        prop_assert!(budgets.need(&CALL).fits(&budgets.available(now)));
    }
}
