//! Tests of the inference of a limit's window, such as a minute or a day, from response headers.

use std::time::{Duration, Instant};

use crate::budget::{BudgetKind, BudgetView, RateBudgets};
use crate::testing::epoch;
use tidegate_config::{HeaderPolicy, RateConfig};
use tidegate_protocol::rate::{RateHeaders, RateWindow};
use tidegate_tokens::Demand;

const CALL: Demand =
    Demand { input: 100, output: 50, max_output: Some(200), media: 0, cached: 0, exact: true, dialect: None };
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

fn said(limit: u64, remaining: u64, reset: u64) -> RateWindow {
    let reset = Some(Duration::from_secs(reset));
    RateWindow { limit: Some(limit), remaining: Some(remaining), reset, period: None }
}

/// Returns headers that announce a limit and its period, without `remaining` and `reset`.
fn bare(limit: u64, period: Option<Duration>) -> RateWindow {
    RateWindow { limit: Some(limit), period, ..RateWindow::default() }
}

fn answer(budgets: &mut RateBudgets, now: Instant, headers: &RateHeaders) {
    let charge = budgets.charge(now, &CALL);
    budgets.on_response(now, &charge, now, headers, false);
}

fn tokens(tokens: RateWindow) -> RateHeaders {
    RateHeaders { tokens, ..RateHeaders::default() }
}

fn requests(requests: RateWindow) -> RateHeaders {
    RateHeaders { requests, ..RateHeaders::default() }
}

fn view_of(budgets: &mut RateBudgets, now: Instant, kind: BudgetKind) -> Option<BudgetView> {
    budgets.view(now).into_iter().find(|view| view.kind == kind)
}

fn limit(budgets: &mut RateBudgets, now: Instant, kind: BudgetKind) -> Option<(u64, Duration)> {
    view_of(budgets, now, kind).map(|view| (view.limit, view.window))
}

#[test]
fn per_second_limit_keeps_its_window() {
    let now = epoch();
    let input_tokens = bare(1_000, Some(SECOND));
    let headers = RateHeaders { input_tokens, ..RateHeaders::default() };
    let mut budgets = RateBudgets::default();
    answer(&mut budgets, now, &headers);
    assert_eq!(limit(&mut budgets, now, BudgetKind::InputTokens), Some((1_000, SECOND)));
    // A call worth several seconds is not oversized: it is admitted when the budget is full, and
    // later calls repay its debt.
    let long = Demand { input: 5_000, ..CALL };
    let need = budgets.need(&long);
    assert_eq!(budgets.oversize(&long), None);
    let then = now + 2 * SECOND;
    assert!(need.fits(&budgets.available(then)));
    budgets.charge(then, &long);
    let (_, next) = budgets.ready_at(then, &need).expect("it is owed");
    assert!((4..=6).contains(&next.duration_since(then).as_secs()), "{:?}", next - then);
    // A limit configured per minute does not allow sixty times as much because of one response.
    let mut budgets = RateBudgets::new(&RateConfig { itpm: Some(6_000), ..RateConfig::default() }, now);
    answer(&mut budgets, now, &headers);
    assert_eq!(limit(&mut budgets, now, BudgetKind::InputTokens), Some((6_000, 60 * SECOND)));
    answer(&mut budgets, now, &headers);
    assert_eq!(limit(&mut budgets, now, BudgetKind::InputTokens), Some((1_000, SECOND)));
}

#[test]
fn stated_period_of_requests_is_the_window() {
    let now = epoch();
    for period in [SECOND, 10 * SECOND, 3_600 * SECOND] {
        let mut budgets = RateBudgets::new(&RateConfig { rpm: Some(60_000), ..RateConfig::default() }, now);
        answer(&mut budgets, now, &requests(bare(20, Some(period))));
        assert_eq!(limit(&mut budgets, now, BudgetKind::Requests), Some((20, period)));
        let at = |nth: u32| now + period * nth / 60;
        let admitted = (0..300).filter(|nth| {
            let fits = budgets.available(at(*nth)).has_requests;
            if fits {
                budgets.charge(at(*nth), &CALL);
            }
            fits
        });
        let admitted = admitted.count();
        assert!((90..=101).contains(&admitted), "five windows of {period:?}: {admitted}");
    }
}

#[test]
fn reset_longer_than_window_does_not_raise_limit() {
    let now = epoch();
    let mut budgets = RateBudgets::new(&RateConfig { rpm: Some(30), ..RateConfig::default() }, now);
    for used in 0..5 {
        answer(&mut budgets, now, &requests(said(14_400, 9_000 - used, 1_900)));
        assert_eq!(limit(&mut budgets, now, BudgetKind::Requests), Some((30, 60 * SECOND)));
    }
}

#[test]
fn daily_budget_is_detected_mid_day() {
    let now = epoch();
    let config = RateConfig { rpm: Some(30), ..RateConfig::default() };
    // A reset of more than an hour shows a day at once; one of more than a minute after two
    // matching responses.
    for (used, enough) in [(5_000, 1), (300, 2)] {
        let mut budgets = RateBudgets::new(&config, now);
        for n in 0..enough {
            answer(&mut budgets, now, &requests(said(14_400, 14_400 - used - n, 6 * (used + n))));
        }
        assert_eq!(limit(&mut budgets, now, BudgetKind::Requests), Some((30, 60 * SECOND)));
        assert_eq!(limit(&mut budgets, now, BudgetKind::RequestsPerDay), Some((14_400, DAY)), "{used}");
    }
}

#[test]
fn steadily_rising_limit_is_followed() {
    let now = epoch();
    let mut budgets = RateBudgets::new(&RateConfig { tpm: Some(60_000), ..RateConfig::default() }, now);
    for n in 1..=20 {
        answer(&mut budgets, now, &tokens(bare(60_000 + 500 * n, None)));
    }
    assert_eq!(limit(&mut budgets, now, BudgetKind::Tokens), Some((69_500, 60 * SECOND)));
}

#[test]
fn lower_compares_rates_across_windows() {
    let now = epoch();
    let config = RateConfig { tpm: Some(60_000), headers: HeaderPolicy::Lower, ..RateConfig::default() };
    for (heard, kept) in [(5_000, (60_000, 60 * SECOND)), (800, (800, SECOND))] {
        let mut budgets = RateBudgets::new(&config, now);
        for _ in 0..3 {
            answer(&mut budgets, now, &tokens(bare(heard, Some(SECOND))));
        }
        let (limit, window) = limit(&mut budgets, now, BudgetKind::Tokens).expect("configured");
        let a_minute = |(limit, window): (u64, Duration)| limit as f64 / window.as_secs_f64();
        assert_eq!(a_minute((limit, window)), a_minute(kept), "{heard}: {limit} in {window:?}");
    }
}

#[test]
fn daily_window_restarts_at_announced_reset() {
    let now = epoch();
    let later = |s: u64| now + Duration::from_secs(s);
    let mut budgets = RateBudgets::new(&RateConfig { rpd: Some(100), ..RateConfig::default() }, now);
    let day = |budgets: &mut RateBudgets, at: u64, remaining: u64, reset: u64| {
        let requests_per_day = said(100, remaining, reset);
        answer(budgets, later(at), &RateHeaders { requests_per_day, ..RateHeaders::default() });
        budgets.available(later(at)).has_requests
    };
    // One hour before midnight the whole day is used.
    let open: Vec<bool> = (1..=100).map(|n| day(&mut budgets, n, 100 - n, 3_600 - n)).collect();
    assert!(open.iter().take(90).all(|open| *open) && open.last() == Some(&false));
    assert!(!budgets.available(later(3_500)).has_requests && budgets.available(later(3_605)).has_requests);
    // After midnight the next day is available; without the announced reset it would be available a
    // day later.
    assert!((1..=90).all(|n| day(&mut budgets, 3_610 + n, 100 - n, 86_400 - n)));
    // If other clients use the day's budget as well, the announced value is used.
    assert!(!day(&mut budgets, 3_800, 0, 86_000));
    // Without an announced reset, a day is the last 24 hours.
    let mut budgets = RateBudgets::new(&RateConfig { rpd: Some(100), ..RateConfig::default() }, now);
    (0..100).for_each(|n| answer(&mut budgets, later(n), &RateHeaders::default()));
    assert!(!budgets.available(later(3_700)).has_requests && budgets.available(later(90_000)).has_requests);
}
