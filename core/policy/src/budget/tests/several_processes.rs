//! Budgets that several processes share, with a broker in virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tidegate_share::{MemberId, ToBroker};

use super::cluster::{Cluster, Process, call, overload};
use crate::budget::RateBudgets;
use crate::testing::epoch;
use tidegate_config::{Counting, RateConfig};
use tidegate_protocol::rate::{RateHeaders, RateWindow};

fn tokens_per_minute(tpm: u64) -> RateConfig {
    RateConfig { tpm: Some(tpm), counting: Counting::Sum, ..RateConfig::default() }
}

#[test]
fn processes_use_budget_together_and_never_exceed_it() {
    for (seed, (processes, tpm, sizes)) in [
        (1, 90_000, 100..900),
        (4, 90_000, 100..900),
        (16, 1_000_000, 500..4_500),
        (32, 60_000, 2_000..5_000),
    ]
    .into_iter()
    .enumerate()
    {
        let mut cluster = Cluster::new(&tokens_per_minute(tpm), processes, true);
        let mut rng = Rng::with_seed(seed as u64);
        cluster.run(Duration::from_secs(180), &mut rng, overload(50, sizes));
        let most = cluster.most_in_window();
        assert!(most <= tpm, "{processes} processes used {most} of {tpm}");
        let used = cluster.charged_per_window(Duration::from_secs(60)) / tpm as f64;
        assert!((0.95..=1.0).contains(&used), "{processes} processes used {used}");
        let messages = cluster.messages as f64 / 180.0 / processes as f64;
        assert!(messages <= 2.0 * 3.0, "{messages} messages per second and process");
        let mut sent: Vec<u64> = cluster.processes.iter().map(|process| process.sent).collect();
        sent.sort_unstable();
        assert!(sent[0] * 5 / 4 + 2 >= sent[sent.len() - 1], "{sent:?}");
    }
}

#[test]
fn each_process_uses_whole_budget_if_it_is_not_shared() {
    let mut cluster = Cluster::new(&tokens_per_minute(90_000), 4, false);
    cluster.run(Duration::from_secs(120), &mut Rng::with_seed(5), overload(50, 100..900));
    assert!(cluster.most_in_window() > 3 * 90_000);
}

#[test]
fn budget_moves_to_process_with_calls() {
    let tpm = 90_000;
    let mut cluster = Cluster::new(&tokens_per_minute(tpm), 8, true);
    let mut rng = Rng::with_seed(6);
    cluster.run(Duration::from_secs(120), &mut rng, overload(50, 100..900));
    // All but the first have no more calls.
    cluster.processes.iter_mut().for_each(|process| process.waiting.clear());
    let begins = cluster.now - cluster.start;
    let mut more = overload(50, 100..900);
    cluster.run(Duration::from_secs(120), &mut rng, |process, rng| {
        if process.id == MemberId(0) {
            more(process, rng);
        }
    });
    assert!(cluster.most_in_window() <= tpm);
    let used = cluster.charged_per_window(begins + Duration::from_secs(2)) / tpm as f64;
    assert!(used >= 0.95, "one process used {used}");
}

#[test]
fn estimates_are_corrected_for_all_processes() {
    let tpm = 300_000;
    for actual in [0.5, 1.3] {
        let mut cluster = Cluster::new(&tokens_per_minute(tpm), 8, true);
        cluster.actual = actual;
        cluster.run(Duration::from_secs(180), &mut Rng::with_seed(7), overload(50, 100..900));
        // Whole windows, because the pattern of the first one repeats.
        let used = cluster.charged_per_window(Duration::from_secs(60)) / tpm as f64;
        assert!(used >= 0.96, "{used} with {actual} of the estimates");
        // The calls in flight are not corrected yet.
        let most = cluster.most_in_window() as f64 / tpm as f64;
        assert!(most <= 1.01, "{most} with {actual} of the estimates");
    }
}

#[test]
fn processes_that_end_and_begin_do_not_exceed_budget() {
    let tpm = 90_000;
    let mut rng = Rng::with_seed(8);
    let mut cluster = Cluster::new(&tokens_per_minute(tpm), 6, true);
    for ids in 6..26 {
        cluster.run(Duration::from_secs(7), &mut rng, overload(20, 100..900));
        cluster.kill(rng.usize(0..cluster.processes.len()));
        cluster.processes.push(Process::new(&tokens_per_minute(tpm), cluster.now, ids, true));
    }
    assert!(cluster.most_in_window() <= tpm, "{}", cluster.most_in_window());
    assert!(cluster.charged_per_window(Duration::from_secs(60)) >= 0.9 * tpm as f64);
}

/// Small and very large calls, many of which are cancelled while they wait.
#[test]
fn cancelled_calls_take_nothing_from_others() {
    let tpm = 90_000;
    let mut cluster = Cluster::new(&tokens_per_minute(tpm), 8, true);
    let mut rng = Rng::with_seed(13);
    cluster.run(Duration::from_secs(180), &mut rng, |process, rng| {
        if rng.f64() < 0.05 {
            process.waiting.pop_front();
        }
        while process.waiting.len() < 20 {
            let is_large = process.id.0 < 2 && rng.f64() < 0.3;
            process.waiting.push_back(call(if is_large {
                rng.u64(20_000..120_000)
            } else {
                rng.u64(100..900)
            }));
        }
        if process.id.0 < 2
            && process.waiting.front().is_some_and(|call| call.input > 10_000)
            && rng.f64() < 0.2
        {
            process.waiting.pop_front();
        }
    });
    assert!(cluster.most_in_window() <= tpm, "{}", cluster.most_in_window());
    let used = cluster.charged_per_window(Duration::from_secs(60)) / tpm as f64;
    assert!(used >= 0.85, "{used}");
    let small: Vec<u64> = cluster.processes[2..].iter().map(|process| process.sent).collect();
    assert!(small.iter().all(|sent| *sent >= 40), "{small:?}");
}

#[test]
fn new_broker_knows_what_members_have_used() {
    let tpm = 90_000;
    let mut rng = Rng::with_seed(9);
    let mut cluster = Cluster::new(&tokens_per_minute(tpm), 4, true);
    for _ in 0..6 {
        cluster.run(Duration::from_secs(20), &mut rng, overload(50, 100..900));
        cluster.replace_broker();
    }
    assert!(cluster.most_in_window() <= tpm, "{}", cluster.most_in_window());
}

#[test]
fn part_of_budget_is_in_force_without_broker() {
    let tpm = 90_000;
    let mut rng = Rng::with_seed(10);
    let mut cluster = Cluster::new(&tokens_per_minute(tpm), 4, true);
    cluster.run(Duration::from_secs(120), &mut rng, overload(50, 100..900));
    cluster.is_shared = false;
    cluster.lose_broker();
    let begins = cluster.now - cluster.start;
    cluster.run(Duration::from_secs(120), &mut rng, overload(50, 100..900));
    let used = cluster.charged_per_window(begins + Duration::from_secs(60)) / tpm as f64;
    assert!((0.9..=1.0).contains(&used), "{used}");
}

/// Requests and tokens are limited together, and per second as well.
#[test]
fn all_limits_hold_at_once() {
    let config =
        RateConfig { rpm: Some(300), tpm: Some(90_000), counting: Counting::Sum, ..RateConfig::default() };
    for (sizes, limit, per_call) in [(100..200, 300.0, true), (600..900, 90_000.0, false)] {
        let mut cluster = Cluster::new(&config, 8, true);
        cluster.run(Duration::from_secs(180), &mut Rng::with_seed(11), overload(20, sizes));
        assert!(cluster.most_in_window() <= 90_000);
        if per_call {
            cluster.charged.iter_mut().for_each(|(_, tokens)| *tokens = 1);
            assert!(cluster.most_in_window() <= 300);
        }
        let used = cluster.charged_per_window(Duration::from_secs(60)) / limit;
        assert!(used >= 0.95, "{used}");
    }
}

#[test]
fn hostile_draws_do_not_enlarge_budget() {
    let tpm = 90_000;
    let mut cluster = Cluster::new(&tokens_per_minute(tpm), 4, true);
    let mut rng = Rng::with_seed(12);
    for _ in 0..60 {
        cluster.run(Duration::from_secs(2), &mut rng, overload(20, 100..900));
        let (now, budgets) = (cluster.now, &mut cluster.processes[0].budgets);
        let set = budgets.shared_sets().next().expect("the budgets are shared");
        let resource: Arc<str> = budgets.shared_name(set).into();
        let mut draw = budgets.join(now, set).expect("the budgets are shared");
        for limit in &mut draw.limits {
            (limit.per_window, limit.per_second, limit.burst_ms) = (u64::MAX, f64::INFINITY, u64::MAX);
        }
        draw.weight = [f64::NAN, -1.0, f64::INFINITY][rng.usize(0..3)];
        draw.corrections = vec![tidegate_share::rates::Correction {
            age_ms: rng.u64(0..70_000),
            amounts: vec![-(rng.i64(0..i64::MAX))],
        }];
        let message = ToBroker::Draw { resource, draw };
        cluster.to_broker.push_back((cluster.now, MemberId(99), message));
    }
    let by_others: BTreeMap<MemberId, u64> =
        cluster.processes.iter().map(|process| (process.id, process.sent)).collect();
    assert!(cluster.most_in_window() <= tpm, "{by_others:?}");
}

/// The provider says that a day is left of the limit, whatever the broker has counted in the last
/// 24 hours.
#[test]
fn limit_per_day_is_not_asked_of_broker_if_provider_announces_it() {
    let now = epoch();
    let config = RateConfig { rpm: Some(600), rpd: Some(1_000), ..RateConfig::default() };
    let mut budgets = Process::new(&config, now, 0, true).budgets;
    let set = budgets.shared_sets().next().expect("the budgets are shared");
    budgets.join(now, set);
    let need = budgets.need(&call(100));
    let asked = |budgets: &mut RateBudgets| {
        budgets.want(now, &need);
        budgets.draw(now, set, || 1.0).map(|draw| draw.least)
    };
    assert_eq!(asked(&mut budgets), Some(vec![1, 1]));
    let charge = budgets.charge(now, &call(100));
    let day = RateWindow { limit: Some(1_000), remaining: Some(999), reset: None, ..RateWindow::default() };
    let headers = RateHeaders { requests_per_day: day, ..RateHeaders::default() };
    budgets.on_response(now, &charge, now, &headers, false);
    assert_eq!(asked(&mut budgets), Some(vec![1, 0]));
}

/// A provider has raised a limit, of which a process without calls has not heard.
#[test]
fn idle_process_with_outdated_limit_does_not_bound_others() {
    let tpm = 90_000;
    let mut cluster = Cluster::new(&tokens_per_minute(tpm), 1, true);
    cluster.processes.push(Process::new(&tokens_per_minute(tpm / 9), cluster.now, 1, true));
    let mut rng = Rng::with_seed(14);
    cluster.processes[1].waiting.push_back(call(100));
    cluster.run(Duration::from_secs(1), &mut rng, |_, _| {});
    assert_eq!(cluster.processes[1].sent, 1);
    let mut more = overload(50, 100..900);
    let mut busy = |process: &mut Process, rng: &mut Rng| {
        if process.id == MemberId(0) {
            more(process, rng);
        }
    };
    cluster.run(Duration::from_secs(7), &mut rng, &mut busy);
    let used = cluster.charged_per_window(Duration::from_secs(2)) / tpm as f64;
    assert!(used <= 0.15, "the smallest limit counts: {used}");
    cluster.run(Duration::from_secs(120), &mut rng, &mut busy);
    let used = cluster.charged_per_window(Duration::from_secs(10)) / tpm as f64;
    assert!(used >= 0.95, "{used}");
    assert!(cluster.most_in_window() <= tpm);
}
