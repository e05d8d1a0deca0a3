//! Reports settings that are valid alone and contradict each other.

use std::collections::HashSet;

use super::target::ParsedTarget;
use crate::matching::{CoverIndex, TargetRule};
use crate::schema::Given;
use crate::{Config, Lane, OnFull, Predict, TargetConfig};

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

/// Reports each target and tool that refuses calls instead of queueing them, if several processes
/// share its limits. `config` must have been read from `top` without a problem, so that it has each
/// target of `top`.
pub(super) fn check_shared(top: &Given<'_>, config: &Config) {
    if !config.share.is_on() {
        return;
    }
    let targets = top.get("targets").map(|given| given.named()).unwrap_or_default();
    for ((_, given), target) in targets.iter().zip(&config.targets) {
        if config.is_unshareable(target) {
            reject_refusing(given);
        }
    }
    let tools = top.get("tools").map(|given| given.named()).unwrap_or_default();
    for (_, given) in tools.iter().filter(|(name, _)| refuses(config, name)) {
        reject_refusing(given);
    }
}

/// Returns `true` if the tool `name` refuses calls instead of queueing them.
fn refuses(config: &Config, name: &str) -> bool {
    config.tools.get(name).is_some_and(|tool| tool.on_full == OnFull::Refuse)
}

/// Reports `on_full` of a target or tool whose limits are shared: at its own key, or at the target
/// if it has inherited the key.
fn reject_refusing(given: &Given<'_>) {
    let own = given.get("on_full");
    let key = if own.is_some() { "" } else { "on_full = " };
    own.as_ref().unwrap_or(given).reject(format!(
        "{key}\"refuse\" cannot be combined with \"share\", because a process gets its part of a limit while \
         calls wait; set on_full = \"wait\" and a short \"wait\", such as \"100ms\""
    ));
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
