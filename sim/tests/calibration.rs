//! The preset against the post's runs 1 and 2, on seeds on which no constant was chosen.

use tidegate_sim::SimConfig;
use tidegate_sim::scenario::{Arrivals, Run, calibration, noisy_neighbour};

#[test]
fn the_preset_is_as_near_the_post_as_was_asked() {
    for run in [Run::Baseline, Run::CapsOff] {
        for figure in calibration(&SimConfig::post(), run, Arrivals::Paced, 11..=30) {
            assert_ne!(figure.holds(), Some(false), "{run:?}: {figure:?}");
        }
    }
}

#[test]
fn a_wrong_constant_shows() {
    let mut config = SimConfig::post();
    config.engine.step.per_prompt_token_ms *= 1.3;
    let figures = calibration(&config, Run::CapsOff, Arrivals::Paced, 11..=13);
    assert!(figures.iter().any(|f| f.holds() == Some(false)));
}

#[test]
fn nothing_fails_without_caps_and_the_cache_fills_as_the_post_saw() {
    let report = noisy_neighbour(&SimConfig::post(), Run::CapsOff, Arrivals::Poisson, 1);
    assert!(report.tenants.iter().all(|(_, s)| s.failures == 0));
    assert!(report.peak_kv > 0.99 && report.preemptions > 0);
    assert_eq!(report, noisy_neighbour(&SimConfig::post(), Run::CapsOff, Arrivals::Poisson, 1));
    assert_eq!(noisy_neighbour(&SimConfig::post(), Run::Baseline, Arrivals::Paced, 1).preemptions, 0);
}
