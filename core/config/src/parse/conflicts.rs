//! Reports settings that are valid alone and contradict each other.

use std::collections::HashSet;

use super::target::ParsedTarget;
use crate::matching::{CoverIndex, TargetRule};
use crate::schema::Given;
use crate::{Lane, Predict, TargetConfig};

/// Reports each time limit and objective of a target (`wait`, `first_token`, `ttft`, `tpot`, and
/// the `wait` and `ttft` of lanes) that is longer than the `deadline` of the target, because the
/// deadline would end the call first. `idle` and `stall` are not checked: their defaults are long,
/// so any short `deadline` would be rejected.
pub(super) fn check_times(given: &Given<'_>, target: &TargetConfig) {
    let check = |key: &str, time| {
        if let Some(time) = time {
            given.reject_above((key, &time), ("deadline", &target.deadline));
        }
    };
    check("wait", target.wait);
    check("first_token", target.first_token);
    check("ttft", target.ttft);
    check("tpot", target.tpot);
    for (lane, settings) in Lane::ALL.map(Lane::as_str).iter().zip(&target.lanes) {
        check(&format!("lanes.{lane}.wait"), settings.wait);
        check(&format!("lanes.{lane}.ttft"), settings.ttft);
    }
}

/// Reports `predict = "objective"` if neither the target nor one of its lanes has a `ttft`.
pub(super) fn check_objective(given: &Given<'_>, target: &TargetConfig) {
    if target.predict == Predict::Objective && !has_objective(target) {
        let text = "\"objective\" needs a \"ttft\" of the target or of a lane; set one, or use \"deadline\"";
        given.reject_key("predict", text);
    }
}

/// Returns `true` if the target or one of its lanes has an objective for the time to first token.
pub(super) fn has_objective(target: &TargetConfig) -> bool {
    target.ttft.is_some() || target.lanes.iter().any(|lane| lane.ttft.is_some())
}

/// Reports each target that no request can reach, because an earlier target matches all of its
/// requests, and no target falls back to it. Ignores targets with `url = "none"`, and targets that
/// have other problems, because their URLs and models are not known.
pub(super) fn check_reachable(targets: &[ParsedTarget<'_>]) {
    let fallbacks: HashSet<_> = targets.iter().filter_map(|target| target.config.fallback.as_ref()).collect();
    let rules: Vec<(&ParsedTarget<'_>, TargetRule)> = targets
        .iter()
        .filter(|target| target.is_valid && !target.config.matches.slots_only)
        .filter_map(|target| Some((target, TargetRule::new(&target.config.matches).ok()?)))
        .collect();
    let mut above = CoverIndex::default();
    for (target, rule) in &rules {
        let cover = above.first_cover(rule).and_then(|at| rules.get(at));
        above.add(rule);
        let Some((other, wider)) = cover.filter(|_| !fallbacks.contains(&target.config.name)) else {
            continue;
        };
        let other = &other.given.path;
        target.given.reject(if rule.covers(wider) {
            format!("matches the same requests as {other}; join them, or give each its own url or models")
        } else {
            format!("no request reaches it, because {other} above it takes them all; move it above {other}")
        });
    }
}
