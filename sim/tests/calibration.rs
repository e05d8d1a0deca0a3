//! Tests that the calibrated configuration reproduces runs 1 and 2 of the noisy-neighbour blog
//! post, on seeds that were not used for the fit.

use tidegate_sim::SimConfig;
use tidegate_sim::scenario::{Arrivals, Run, calibration, noisy_neighbour};

#[test]
fn calibrated_config_reproduces_the_post_within_tolerance() {
    for run in [Run::Baseline, Run::CapsOff] {
        for figure in calibration(&SimConfig::calibrated(), run, Arrivals::Paced, 11..=30) {
            assert_ne!(figure.holds(), Some(false), "{run:?}: {figure:?}");
        }
    }
}

#[test]
fn wrong_constant_fails_the_calibration() {
    let mut config = SimConfig::calibrated();
    config.engine.step.per_prompt_token_ms *= 1.3;
    let figures = calibration(&config, Run::CapsOff, Arrivals::Paced, 11..=13);
    assert!(figures.iter().any(|f| f.holds() == Some(false)));
}

#[test]
fn without_caps_no_call_fails_and_the_kv_cache_fills() {
    let report = noisy_neighbour(&SimConfig::calibrated(), Run::CapsOff, Arrivals::Poisson, 1);
    assert!(report.tenants.iter().all(|(_, s)| s.failures == 0));
    assert!(report.peak_kv > 0.99 && report.preemptions > 0);
    assert_eq!(report, noisy_neighbour(&SimConfig::calibrated(), Run::CapsOff, Arrivals::Poisson, 1));
    assert_eq!(noisy_neighbour(&SimConfig::calibrated(), Run::Baseline, Arrivals::Paced, 1).preemptions, 0);
}
