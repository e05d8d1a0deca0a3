//! Limits that only a provider announces, and that several processes share, in virtual time.

use std::time::{Duration, Instant};

use fastrand::Rng;
use tidegate_share::LeaseTimes;
use tidegate_share::rates::Advance;

use super::cluster::{Cluster, call};
use super::provider::{Policy, Provider, Rule};
use crate::budget::{Charge, RateBudgets, SharedSet};
use crate::testing::epoch;
use tidegate_config::{Counting, RateConfig};
use tidegate_protocol::rate::{RateHeaders, RateWindow};

const TPM: f64 = 600_000.0;
/// The number of callers of all processes, which make one call after the other.
const CALLERS: usize = 192;

#[derive(Debug)]
struct Outcome {
    /// The tokens of the second and third minute, divided by the limit.
    used: f64,
    /// The 429s of these minutes, divided by the admitted calls.
    refused: f64,
}

/// Returns the configuration without limits.
fn unknown() -> RateConfig {
    RateConfig { counting: Counting::Sum, ..RateConfig::default() }
}

/// Lets processes overload a provider for three minutes whose limit of tokens they do not know.
fn play(config: &RateConfig, policy: Policy, processes: u64, is_shared: bool) -> Outcome {
    let mut rng = Rng::with_seed(processes);
    let mut cluster = Cluster::new(config, processes, is_shared);
    cluster.provider = Some(Provider::new(policy, Rule::Sum, TPM, 60.0 * rng.f64()));
    cluster.run(Duration::from_secs(180), &mut rng, |process, rng| {
        while process.calls() < CALLERS / processes as usize {
            process.waiting.push_back(call(rng.u64(200..800)));
        }
    });
    let from = cluster.start + Duration::from_secs(60);
    let refused = cluster.refused.iter().filter(|at| **at >= from).count();
    let admitted = cluster.charged.iter().filter(|(at, _)| *at >= from).count();
    Outcome {
        used: cluster.charged_per_window(Duration::from_secs(60)) / TPM,
        refused: refused as f64 / admitted as f64,
    }
}

#[test]
fn processes_share_limit_that_only_provider_announces() {
    for (policy, processes) in [(Policy::Bucket(60.0), 4), (Policy::Sliding, 16), (Policy::Fixed, 64)] {
        let Outcome { used, refused } = play(&unknown(), policy, processes, true);
        assert!(used >= 0.97 && refused <= 0.001, "{policy:?}: {used} used, {refused} refused");
    }
}

/// The configured requests and the announced tokens are two resources, and both are short.
#[test]
fn configured_and_announced_limit_are_used_together() {
    let config = RateConfig { rpm: Some(1_200), counting: Counting::Sum, ..RateConfig::default() };
    for processes in [4, 16, 64] {
        let Outcome { used, refused } = play(&config, Policy::Bucket(60.0), processes, true);
        assert!(used >= 0.9 && refused <= 0.001, "{processes}: {used} used, {refused} refused");
    }
}

#[test]
fn processes_that_do_not_share_are_refused() {
    let Outcome { refused, .. } = play(&unknown(), Policy::Sliding, 16, false);
    assert!(refused >= 0.05, "{refused}");
}

#[test]
fn single_process_of_share_uses_full_bucket_of_provider() {
    for is_shared in [true, false] {
        let Outcome { used, refused } = play(&unknown(), Policy::Bucket(60.0), 1, is_shared);
        assert!(used >= 1.3 && refused <= 0.001, "{used} used, {refused} refused");
    }
}

/// Returns budgets that share what is announced, and know nothing yet.
fn budgets(now: Instant) -> RateBudgets {
    let mut budgets = RateBudgets::new(&RateConfig::default(), now);
    budgets.share(now, false, LeaseTimes::LOCAL);
    assert!(budgets.shared_sets().next().is_none());
    budgets
}

/// Tells the budgets that the provider has announced limits per minute: of tokens, and of requests
/// if `with_requests`. Returns the set that is shared then.
fn announce(budgets: &mut RateBudgets, now: Instant, charge: &Charge, with_requests: bool) -> SharedSet {
    let limit = |limit| RateWindow { limit: Some(limit), ..RateWindow::default() };
    let mut headers = RateHeaders { tokens: limit(60_000), ..RateHeaders::default() };
    if with_requests {
        headers.requests = limit(600);
    }
    budgets.on_response(now, charge, charge.charged_at, &headers, false);
    budgets.shared_sets().next().expect("a limit was announced")
}

#[test]
fn charge_that_was_made_before_announcement_is_not_taken_back_from_broker() {
    let start = epoch();
    let later = start + Duration::from_secs(1);
    let mut budgets = budgets(start);
    let (early, other) = (budgets.charge(start, &call(500)), budgets.charge(start, &call(500)));
    let set = announce(&mut budgets, later, &other, false);
    budgets.join(later, set).expect("the set is shared");
    budgets.refund(later, &early);
    let due = later + Duration::from_secs(2);
    assert_eq!(budgets.correct_due(due, set), None);
    let late = budgets.charge(later, &call(300));
    budgets.refund(later, &late);
    let draw = budgets.correct_due(due, set).expect("what was charged without an advance");
    let amounts: Vec<i64> = draw.corrections.iter().map(|correction| correction.amounts[0]).collect();
    assert_eq!((amounts.iter().sum::<i64>(), amounts.iter().max()), (0, Some(&300)));
}

#[test]
fn announcement_of_another_limit_replaces_set() {
    let now = epoch();
    let mut budgets = budgets(now);
    let charge = budgets.charge(now, &call(500));
    let tokens = announce(&mut budgets, now, &charge, false);
    assert_eq!(budgets.shared_name(tokens), "announced:tokens/60000");
    assert!(budgets.join(now, tokens).is_some());
    assert_eq!(announce(&mut budgets, now, &charge, false), tokens);
    let both = announce(&mut budgets, now, &charge, true);
    assert_eq!(budgets.shared_name(both), "announced:requests/60000,tokens/60000");
    // Messages of the earlier set have no effect.
    assert!(budgets.join(now, tokens).is_none());
    assert!(budgets.with_stock(tokens, |_| ()).is_none());
    let draw = budgets.join(now, both).expect("the set is shared");
    assert_eq!(draw.limits.len(), 2);
    assert_eq!(announce(&mut budgets, now, &charge, true), both);
}

/// If more is missing than all processes have charged, other clients use the limit. 5 % are left
/// for them.
#[test]
fn other_clients_are_told_apart_from_processes_that_share() {
    for (charged, level) in [(56_000, 3_700), (50_000, 1_000)] {
        let start = epoch();
        let later = start + Duration::from_secs(30);
        let mut budgets = budgets(start);
        let tell = |budgets: &mut RateBudgets, now, remaining| {
            let charge = budgets.charge(now, &call(500));
            let reset = Some(start + Duration::from_secs(60) - now);
            let tokens = RateWindow { limit: Some(60_000), remaining: Some(remaining), reset, period: None };
            budgets.on_response(now, &charge, now, &RateHeaders { tokens, ..RateHeaders::default() }, false);
        };
        tell(&mut budgets, start, 59_500);
        let set = budgets.shared_sets().next().expect("a limit was announced");
        budgets.join(start, set).expect("the set is shared");
        let advance = Advance { number: 1, amounts: vec![500], members: 4, charged: vec![charged] };
        budgets.with_stock(set, |stock| {
            stock.on_alive(later);
            stock.on_advance(later, &advance, Duration::ZERO);
        });
        tell(&mut budgets, later, 4_000);
        assert_eq!(budgets.view(later)[0].level, level, "{charged} charged by all");
    }
}

/// The headers announce the same limit over another window, so that the quota begins anew.
#[test]
fn charge_to_configured_limit_is_corrected_after_its_window_has_changed() {
    let start = epoch();
    let config = RateConfig { tpm: Some(60_000), ..RateConfig::default() };
    let mut budgets = RateBudgets::new(&config, start);
    budgets.share(start, false, LeaseTimes::LOCAL);
    let set = budgets.shared_sets().next().expect("the limit is shared");
    budgets.join(start, set).expect("the set is shared");
    let (early, other) = (budgets.charge(start, &call(500)), budgets.charge(start, &call(500)));
    let second = Duration::from_secs(1);
    let tokens = RateWindow { limit: Some(1_000), period: Some(second), ..RateWindow::default() };
    let headers = RateHeaders { tokens, ..RateHeaders::default() };
    budgets.on_response(start + second, &other, start, &headers, false);
    assert_eq!(budgets.view(start + second)[0].window, second);
    assert_eq!(budgets.shared_sets().collect::<Vec<_>>(), [set]);
    budgets.refund(start + second, &early);
    let draw = budgets.correct_due(start + 3 * second, set).expect("a charge has changed");
    assert!(draw.corrections.iter().any(|correction| correction.amounts == [-500]), "{draw:?}");
}
