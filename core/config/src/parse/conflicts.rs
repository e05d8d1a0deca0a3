//! Rejects settings that are valid alone and impossible together.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::matching::{CoverIndex, TargetRule};
use crate::schema::given::{Section, join};
use crate::schema::problems::Problems;
use crate::schema::setting::show_duration;
use crate::{Lane, Predict, TargetConfig};

/// Rejects times of a call that are longer than its deadline, because they could never pass. `idle`
/// and `stall` are exempt: their defaults are long, and a short deadline ends the call first.
pub(super) fn check_times(section: &Section<'_>, target: &TargetConfig) {
    let check = |table: Option<&str>, key: &str, time: Option<Duration>| {
        let place = table.unwrap_or(key);
        // A conflict that was inherited is reported where it was written.
        let own = section.has(place) || section.has("deadline");
        let Some(time) = time.filter(|time| own && *time > target.deadline) else { return };
        let (time, deadline) = (show_duration(time), show_duration(target.deadline));
        let text = format!(
            "{key} ({time}) is longer than deadline ({deadline}); shorten {key} or lengthen deadline"
        );
        section.reject(&[place, "deadline"], text);
    };
    check(None, "wait", target.wait);
    check(None, "first_token", target.first_token);
    check(None, "ttft", target.ttft);
    check(None, "tpot", target.tpot);
    for (lane, settings) in Lane::ALL.map(Lane::as_str).iter().zip(&target.lanes) {
        check(Some("lanes"), &format!("{lane}.wait"), settings.wait);
        check(Some("lanes"), &format!("{lane}.ttft"), settings.ttft);
    }
}

/// Rejects `predict = "objective"` without an objective.
pub(super) fn check_objective(section: &Section<'_>, target: &TargetConfig) {
    let none = target.ttft.is_none() && target.lanes.iter().all(|lane| lane.ttft.is_none());
    if let Some(given) = section.get("predict").filter(|_| none && target.predict == Predict::Objective) {
        given.reject(
            "\"objective\" needs a \"ttft\" of the target or of a lane; set one, or use \"deadline\"",
        );
    }
}

/// Rejects targets that no request can reach, because a target above takes all of their requests
/// and no target falls back to them. `is_sound` returns whether the target at an index was read
/// without a problem; what the others match is not known.
pub(super) fn check_reachable(
    targets: &[TargetConfig],
    lines: &[Option<usize>],
    is_sound: impl Fn(usize) -> bool,
    problems: &Problems,
) {
    let fallbacks: HashSet<&Arc<str>> =
        targets.iter().filter_map(|target| target.fallback.as_ref()).collect();
    let rules: Vec<(&Arc<str>, Option<usize>, TargetRule)> = targets
        .iter()
        .zip(lines)
        .enumerate()
        .filter(|(at, (target, _))| is_sound(*at) && !target.matches.slots_only)
        .filter_map(|(_, (target, line))| Some((&target.name, *line, TargetRule::new(&target.matches).ok()?)))
        .collect();
    let mut above = CoverIndex::default();
    for (name, line, rule) in &rules {
        let cover = above.first_cover(rule).and_then(|at| rules.get(at));
        above.add(rule);
        let Some((other, _, wider)) = cover.filter(|_| !fallbacks.contains(name)) else { continue };
        let (here, other) = (join("targets", name), join("targets", other));
        let text = if rule.covers(wider) {
            format!("matches the same requests as {other}; join them, or give each its own url or models")
        } else {
            format!("no request reaches it, because {other} above it takes them all; move it above {other}")
        };
        problems.add(*line, &here, text);
    }
}
