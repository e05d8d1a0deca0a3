//! Settings that are fine alone and impossible together: each error says which, and what to change.

use std::sync::Arc;
use std::time::Duration;

use super::problems::Problems;
use super::section::{Section, join};
use crate::config::matching::Rule;
use crate::config::{RetryConfig, TargetConfig, TargetMatch};

/// Limits inside a call that its deadline would always forestall. `idle` and `stall` are exempt: their defaults are long on
/// purpose, and a short deadline simply comes first.
pub(super) fn times(section: &Section<'_>, target: &TargetConfig) {
    let deadline = target.deadline;
    let limits = [
        ("wait", target.wait, "could never run out"),
        ("first_token", target.first_token, "could never run out"),
        ("ttft", target.ttft, "could never be missed"),
    ];
    for (key, limit, why) in limits {
        // A contradiction inherited whole was reported where it was written.
        let touched = section.has(key) || section.has("deadline");
        if let Some(limit) = limit.filter(|limit| touched && *limit > deadline) {
            section.complain(
                &[key, "deadline"],
                format!(
                    "{key} ({}) {why} before the deadline ({}); shorten {key} or lengthen deadline",
                    show(limit),
                    show(deadline)
                ),
            );
        }
    }
}

/// A first backoff above the longest one.
pub(super) fn backoff(section: &Section<'_>, retry: &RetryConfig) {
    if retry.base > retry.max && (section.has("base") || section.has("max")) {
        section.complain(
            &["base", "max"],
            format!(
                "base ({}) is above max ({}); lower base or raise max",
                show(retry.base),
                show(retry.max)
            ),
        );
    }
}

/// Targets that no request can reach, because one above takes all of theirs.
pub(super) fn shadowed(targets: &[(Arc<str>, Option<usize>, TargetMatch)], problems: &Problems) {
    let rules: Vec<(&str, Option<usize>, Rule)> = targets
        .iter()
        .filter_map(|(name, line, matches)| Some((&**name, *line, Rule::new(matches).ok()?)))
        .collect();
    for (below, (name, line, rule)) in rules.iter().enumerate() {
        if let Some((other, _, wider)) = rules.iter().take(below).find(|(.., wider)| wider.covers(rule)) {
            let (here, other) = (join("targets", name), join("targets", other));
            let text = if rule.covers(wider) {
                format!("matches the same requests as {other}; join them, or give each its own url or models")
            } else {
                format!(
                    "never reached: {other} stands above it and takes all of its requests; put the narrower first"
                )
            };
            problems.add(*line, format!("{here}: {text}"));
        }
    }
}

fn show(duration: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(duration)
}
