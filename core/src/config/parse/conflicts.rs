//! Settings that are fine alone and impossible together: each error says which, and what to change.

use std::collections::HashSet;
use std::sync::Arc;

use crate::config::matching::{CoverIndex, TargetRule};
use crate::config::schema::given::{Section, join};
use crate::config::schema::problems::Problems;
use crate::config::schema::setting::show_duration;
use crate::config::{Lane, Predict, TargetConfig};

/// Limits inside a call that its deadline would always forestall. `idle` and `stall` are exempt: their defaults are long on
/// purpose, and a short deadline simply comes first.
pub(super) fn check_times(section: &Section<'_>, target: &TargetConfig) {
    let deadline = target.deadline;
    let limits = [
        ("wait", target.wait, "could never run out"),
        ("first_token", target.first_token, "could never run out"),
        ("ttft", target.ttft, "could never be missed"),
        ("tpot", target.tpot, "could never be missed"),
    ];
    for (key, limit, why) in limits {
        // A contradiction inherited whole was reported where it was written.
        let touched = section.has(key) || section.has("deadline");
        if let Some(limit) = limit.filter(|limit| touched && *limit > deadline) {
            section.reject(
                &[key, "deadline"],
                format!(
                    "{key} ({}) {why} before the deadline ({}); shorten {key} or lengthen deadline",
                    show_duration(limit),
                    show_duration(deadline)
                ),
            );
        }
    }
}

/// The same of the limits that lanes have.
pub(super) fn check_lane_times(section: &Section<'_>, target: &TargetConfig) {
    let deadline = target.deadline;
    for (lane, own) in Lane::ALL.iter().zip(&target.lanes) {
        for (key, limit, why) in
            [("wait", own.wait, "could never run out"), ("ttft", own.ttft, "could never be missed")]
        {
            let touched = section.has("lanes") || section.has("deadline");
            if let Some(limit) = limit.filter(|limit| touched && *limit > deadline) {
                section.reject(
                    &["lanes", "deadline"],
                    format!(
                        "{}.{key} ({}) {why} before the deadline ({}); shorten it or lengthen deadline",
                        lane.as_str(),
                        show_duration(limit),
                        show_duration(deadline)
                    ),
                );
            }
        }
    }
}

/// Refusing by an objective that is none.
pub(super) fn check_objective(section: &Section<'_>, target: &TargetConfig) {
    let none = target.ttft.is_none() && target.lanes.iter().all(|lane| lane.ttft.is_none());
    if let Some(given) = section.get("predict").filter(|_| none && target.predict == Predict::Objective) {
        given.reject("there is no objective to predict by; set a \"ttft\", here or of a lane");
    }
}

/// Targets that no request can reach, because one above takes all of theirs, and that are nobody's fallback either.
///
/// `sound` says which were read without a problem: of the others it is not known what they match.
pub(super) fn check_reachable(
    targets: &[TargetConfig],
    lines: &[Option<usize>],
    sound: impl Fn(usize) -> bool,
    problems: &Problems,
) {
    let spares: HashSet<&Arc<str>> = targets.iter().filter_map(|target| target.fallback.as_ref()).collect();
    let rules: Vec<(&Arc<str>, Option<usize>, TargetRule)> = targets
        .iter()
        .zip(lines)
        .enumerate()
        .filter(|(at, (target, _))| sound(*at) && !target.matches.slots_only)
        .filter_map(|(_, (target, line))| Some((&target.name, *line, TargetRule::new(&target.matches).ok()?)))
        .collect();
    let mut above = CoverIndex::default();
    for (name, line, rule) in &rules {
        let cover = above.first_cover(rule).and_then(|at| rules.get(at));
        above.add(rule);
        let Some((other, _, wider)) = cover.filter(|_| !spares.contains(name)) else { continue };
        let (here, other) = (join("targets", name), join("targets", other));
        let text = if rule.covers(wider) {
            format!("matches the same requests as {other}; join them, or give each its own url or models")
        } else {
            format!(
                "never reached: {other} stands above it and takes all of its requests; put the narrower first"
            )
        };
        problems.add(*line, &here, text);
    }
}
