//! Fallbacks: each names a target that exists, can be called with its own settings, and ends.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::target::ReadTarget;
use crate::matching::TargetRule;
use crate::schema::{Given, InvalidValue, TARGET_NAME, join, nearest};
use crate::{TargetConfig, providers};

/// Number of problems from which errors no longer suggest a similar name.
const MAX_PROBLEMS_WITH_ADVICE: usize = 100;

/// Checks every fallback, and sets the model that is requested at each target that is one.
/// `default_fallback` is the given value of `defaults.fallback`, which `base` inherits.
pub(super) fn resolve(
    targets: &mut [ReadTarget<'_>],
    base: &TargetConfig,
    default_fallback: Option<Given<'_>>,
) {
    for ReadTarget { config, given, .. } in &mut *targets {
        // An inherited fallback does not apply to the fallback itself, nor to a target without
        // calls.
        let exempt = config.matches.slots_only || config.fallback.as_ref() == Some(&config.name);
        if exempt && !given.has("fallback") {
            config.fallback = None;
        }
    }
    let graph = Graph::new(targets);
    if let Some(given) = default_fallback {
        graph.check(base, &given);
    }
    let cycles = graph.cycles();
    for (at, target) in graph.targets.iter().enumerate() {
        if let Some(given) = target.given.get("fallback") {
            graph.check(&target.config, &given);
            if let Some(steps) = cycles.get(&at) {
                graph.reject_cycle(&given, steps);
            }
        }
    }
    let all = graph.targets.iter().map(|target| &target.config).chain([base]);
    let fallbacks: HashSet<Arc<str>> = all.filter_map(|target| target.fallback.clone()).collect();
    // A misspelt name, or one that was not read, may have meant any target.
    let all_known = fallbacks.iter().all(|name| graph.index.contains_key(name));
    let certain = all_known && targets.iter().all(|target| target.sound);
    for target in targets {
        if fallbacks.contains(&target.config.name) {
            target.config.model = requested_model(&target.config);
        } else if certain {
            reject_unused(&target.given);
        }
    }
}

/// The targets, and the fallback of each.
struct Graph<'a> {
    targets: &'a [ReadTarget<'a>],
    /// The index of each target by name.
    index: HashMap<Arc<str>, usize>,
    /// The index of each target's fallback.
    next: Vec<Option<usize>>,
    /// Whether any fallback depends on the target that falls back. Otherwise indirect fallbacks
    /// need no check.
    any_depends_on_caller: bool,
}

impl<'a> Graph<'a> {
    fn new(targets: &'a [ReadTarget<'a>]) -> Self {
        let named = targets.iter().map(|target| target.config.name.clone());
        let index: HashMap<Arc<str>, usize> = named.zip(0..).collect();
        let next: Vec<Option<usize>> =
            targets.iter().map(|target| index.get(target.config.fallback.as_ref()?).copied()).collect();
        let mut fallbacks = next.iter().flatten().filter_map(|at| targets.get(*at));
        let any_depends_on_caller = fallbacks.any(|target| depends_on_caller(&target.config));
        Self { targets, index, next, any_depends_on_caller }
    }

    fn next(&self, at: usize) -> Option<usize> {
        self.next.get(at).copied().flatten()
    }

    /// Checks the fallback of a target, and the fallbacks of that fallback.
    fn check(&self, target: &TargetConfig, given: &Given<'_>) {
        let Some(name) = &target.fallback else { return };
        let Some((at, fallback)) = self.index.get(name).and_then(|at| Some((*at, self.targets.get(*at)?)))
        else {
            return self.reject_unknown(name, given);
        };
        if target.matches.slots_only {
            return given
                .reject("with url = \"none\" the target has no requests to fall back; remove one of them");
        }
        if fallback.sound && fallback.config.name != target.name {
            obstacles(target, &fallback.config).into_iter().for_each(|why| given.reject(why));
        }
        if self.any_depends_on_caller {
            self.check_chain(target, at, given);
        }
    }

    fn reject_unknown(&self, name: &str, given: &Given<'_>) {
        let mut invalid = InvalidValue::expected(TARGET_NAME.expected);
        if given.problems.count() < MAX_PROBLEMS_WITH_ADVICE {
            let names: Vec<&str> = self.targets.iter().map(|target| &*target.config.name).collect();
            invalid = invalid.hint(nearest::suggest_name(name, &names, "there are no targets"));
        }
        given.reject(invalid.message(given.value));
    }

    /// Checks the fallbacks after the first. Each receives the request that the caller sent, so it
    /// must be able to serve the calls of `target`.
    fn check_chain(&self, target: &TargetConfig, first: usize, given: &Given<'_>) {
        let count = self.next.len();
        let chain: Vec<usize> =
            std::iter::successors(Some(first), |at| self.next(*at)).take(count + 1).collect();
        // A longer chain is a cycle, which is reported at its own target.
        if chain.len() > count {
            return;
        }
        for (before, at) in chain.iter().zip(chain.iter().skip(1)) {
            let (Some(before), Some(fallback)) = (self.targets.get(*before), self.targets.get(*at)) else {
                continue;
            };
            // Obstacles between the two themselves are reported at `before`.
            let (before, sound, fallback) = (&before.config, fallback.sound, &fallback.config);
            if depends_on_caller(fallback) && sound && obstacles(before, fallback).is_empty() {
                for why in obstacles(target, fallback) {
                    given.reject(format!("through {}: {why}", join("targets", &before.name)));
                }
            }
        }
    }

    /// Returns the cycles of fallbacks, by the first target of each that names a fallback itself.
    /// The value lists the targets from there back to it.
    fn cycles(&self) -> HashMap<usize, Vec<usize>> {
        let names_fallback =
            |at: &usize| self.targets.get(*at).is_some_and(|target| target.given.has("fallback"));
        let mut cycles = HashMap::new();
        // Start of the walk that first reached each target. A walk that reaches a target of its own
        // is a cycle.
        let mut walked: HashMap<usize, usize> = HashMap::new();
        for start in 0..self.next.len() {
            let mut at = Some(start);
            while let Some(here) = at.filter(|here| !walked.contains_key(here)) {
                walked.insert(here, start);
                at = self.next(here);
            }
            let Some(met) = at.filter(|met| walked.get(met) == Some(&start)) else { continue };
            let round = |from: usize| {
                std::iter::successors(self.next(from), move |at| self.next(*at).filter(|_| *at != from))
            };
            if let Some(first) = round(met).filter(names_fallback).min() {
                cycles.insert(first, round(first).collect());
            }
        }
        cycles
    }

    fn reject_cycle(&self, given: &Given<'_>, steps: &[usize]) {
        if steps.len() == 1 {
            return given.reject("a target cannot be its own fallback; name another, or remove the key");
        }
        let names: Vec<&str> = steps
            .last()
            .into_iter()
            .chain(steps)
            .filter_map(|at| Some(&*self.targets.get(*at)?.config.name))
            .collect();
        given.reject(format!("the fallbacks form a cycle: {}; remove one of them", names.join(" -> ")));
    }
}

/// Returns why calls of `target` cannot be sent to `fallback`.
fn obstacles(target: &TargetConfig, fallback: &TargetConfig) -> Vec<String> {
    let place = join("targets", &fallback.name);
    if fallback.matches.slots_only {
        return vec![format!("{place} has url = \"none\", so no call can be sent there")];
    }
    let (Ok(ours), Ok(theirs)) = (TargetRule::new(&target.matches), TargetRule::new(&fallback.matches))
    else {
        return Vec::new();
    };
    let mut obstacles = Vec::new();
    let urls = &fallback.matches.urls;
    // Calls are sent to the first URL of a well-known provider, and to any URL of a pool.
    let known = providers::base_urls(&fallback.name).is_some_and(|known| known == urls);
    if urls.len() != 1 && fallback.pool.is_none() && !known && !theirs.covers_urls_of(&ours) {
        obstacles.push(format!(
            "{place} has {} base URLs, so it is not known where to send the calls; give it one \"url\", \
             or all URLs of this target",
            urls.len()
        ));
    }
    if requested_model(fallback).is_none() && !theirs.covers_models_of(&ours) {
        obstacles.push(format!(
            "{place} does not state which model to request there; set its \"model\", or add all models of \
             this target to its \"models\""
        ));
    }
    obstacles
}

/// Returns `true` if some targets may fall back to this one and others not: see [`obstacles`].
fn depends_on_caller(fallback: &TargetConfig) -> bool {
    fallback.matches.slots_only || fallback.matches.urls.len() != 1 || requested_model(fallback).is_none()
}

/// Returns the model to request for calls that fall back to a target: its `model`, or the only one
/// of its `models`.
fn requested_model(target: &TargetConfig) -> Option<Arc<str>> {
    match (&target.model, &*target.matches.models) {
        (Some(model), _) => Some(model.clone()),
        (None, [only]) if !only.contains('*') => Some(Arc::from(&**only)),
        _ => None,
    }
}

/// Rejects the keys for calls that fall back, at a target that is not a fallback.
fn reject_unused(given: &Given<'_>) {
    let only = "has no effect, because no target names this one as its \"fallback\"; remove it";
    if given.has("model") {
        given.reject_key(&["model"], format!("{only}, or set \"models\" to select requests by their model"));
    }
    for given in ["key_env", "forward_headers"].into_iter().filter_map(|key| given.get(key)) {
        given.reject(only);
    }
}
