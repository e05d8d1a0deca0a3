//! Checks fallbacks, the targets to which rejected calls are sent: each `fallback` names a target
//! that exists and can serve the calls, and no fallbacks form a cycle.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::target::ParsedTarget;
use crate::matching::TargetRule;
use crate::schema::{Given, InvalidValue, TARGET_NAME, join, suggest};
use crate::{TargetConfig, providers};

/// While fewer problems than this have been reported, the error for an unknown fallback suggests a
/// similar name. Finding a similar name takes time that is proportional to the number of targets.
const MAX_PROBLEMS_WITH_ADVICE: usize = 100;

/// Reports fallbacks that do not exist, cannot serve the calls, or form a cycle. Also reports the
/// keys for fallback calls (see [`reject_unused`]) of targets that are not a fallback. Sets the
/// `model` of each target that is a fallback (see [`requested_model`]). Removes an inherited
/// fallback from the target that it names, and from targets that take no requests.
///
/// `base` has the settings of targets that are not configured, and `default_fallback` is the value
/// of `defaults.fallback`, if given.
pub(super) fn resolve(
    targets: &mut [ParsedTarget<'_>],
    base: &TargetConfig,
    default_fallback: Option<Given<'_>>,
) {
    for ParsedTarget { config, given, .. } in &mut *targets {
        // An inherited fallback does not apply to the target that it names, nor to a target that
        // takes no requests.
        let exempt = config.matches.slots_only || config.fallback.as_ref() == Some(&config.name);
        if exempt && !given.has("fallback") {
            config.fallback = None;
        }
    }
    let graph = FallbackGraph::new(targets);
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
    // If a name is misspelt, or a target has problems, any target may be meant as a fallback.
    let all_known = fallbacks.iter().all(|name| graph.index.contains_key(&**name));
    let certain = all_known && targets.iter().all(|target| target.is_valid);
    for target in targets {
        if fallbacks.contains(&target.config.name) {
            target.config.model = requested_model(&target.config);
        } else if certain {
            reject_unused(target);
        }
    }
}

/// The targets as a graph, in which an edge leads from each target to its fallback.
struct FallbackGraph<'a> {
    targets: &'a [ParsedTarget<'a>],
    /// For each name, the index in `targets` of the target with this name, and the target.
    index: HashMap<&'a str, (usize, &'a ParsedTarget<'a>)>,
    /// For each target, the index in `targets` of its fallback. `None` if the target has no
    /// fallback, or one that does not exist.
    next: Vec<Option<usize>>,
    /// Whether [`depends_on_caller`] is `true` for any fallback. If `false`, only the first
    /// fallback in a chain of fallbacks needs a check.
    any_depends_on_caller: bool,
}

impl<'a> FallbackGraph<'a> {
    fn new(targets: &'a [ParsedTarget<'a>]) -> Self {
        let named = targets.iter().enumerate().map(|(at, target)| (&*target.config.name, (at, target)));
        let index: HashMap<_, _> = named.collect();
        let fallbacks = || targets.iter().map(|target| index.get(target.config.fallback.as_deref()?));
        let next = fallbacks().map(|fallback| Some(fallback?.0)).collect();
        let any_depends_on_caller =
            fallbacks().flatten().any(|(_, fallback)| depends_on_caller(&fallback.config));
        Self { targets, index, next, any_depends_on_caller }
    }

    /// Returns the index of the fallback of the target at index `at`. `None` if the target has no
    /// fallback, or one that does not exist.
    fn fallback_of(&self, at: usize) -> Option<usize> {
        self.next.get(at).copied().flatten()
    }

    /// Reports the reasons why calls of `target` cannot be sent to its fallback, or from there to
    /// the following fallbacks. `given` is the value of `fallback`, at which the problems are
    /// reported.
    fn check(&self, target: &TargetConfig, given: &Given<'_>) {
        let Some(name) = &target.fallback else { return };
        let Some(&(at, fallback)) = self.index.get(&**name) else {
            return self.reject_unknown(name, given);
        };
        if target.matches.slots_only {
            return given
                .reject("with url = \"none\" the target has no requests to fall back; remove one of them");
        }
        if fallback.is_valid && fallback.config.name != target.name {
            obstacles(target, &fallback.config).into_iter().for_each(|why| given.reject(why));
        }
        if self.any_depends_on_caller {
            self.check_chain(target, at, given);
        }
    }

    /// Reports that no target is called `name`.
    fn reject_unknown(&self, name: &str, given: &Given<'_>) {
        let mut invalid = InvalidValue::expected(TARGET_NAME.expected);
        if given.problems.count() < MAX_PROBLEMS_WITH_ADVICE {
            let names: Vec<&str> = self.targets.iter().map(|target| &*target.config.name).collect();
            invalid = invalid.hint(suggest::suggest_name(name, &names, "there are no targets"));
        }
        given.reject(invalid.message(given.value));
    }

    /// Reports the reasons why calls of `target` cannot be sent to the fallbacks that follow its
    /// own, which has the index `first`. Each fallback receives the request that the caller sent,
    /// so each must be able to serve these calls.
    fn check_chain(&self, target: &TargetConfig, first: usize, given: &Given<'_>) {
        let count = self.next.len();
        let chain = std::iter::successors(Some(first), |at| self.fallback_of(*at)).take(count + 1);
        let chain: Vec<_> = chain.filter_map(|at| self.targets.get(at)).collect();
        // A longer chain has a cycle, which `reject_cycle` reports.
        if chain.len() > count {
            return;
        }
        for (before, after) in chain.iter().zip(chain.iter().skip(1)).filter(|(_, after)| after.is_valid) {
            // Obstacles for the calls of `before` are reported there.
            let (before, after) = (&before.config, &after.config);
            if depends_on_caller(after) && obstacles(before, after).is_empty() {
                for why in obstacles(target, after) {
                    given.reject(format!("through {}: {why}", join("targets", &before.name)));
                }
            }
        }
    }

    /// Returns the cycles of fallbacks, as indices of targets. The key of each cycle is the lowest
    /// index of a target that sets `fallback` itself instead of inheriting it. The value lists the
    /// targets of the cycle in order, and starts and ends with the key.
    fn cycles(&self) -> HashMap<usize, Vec<usize>> {
        let names_fallback =
            |at: &usize| self.targets.get(*at).is_some_and(|target| target.given.has("fallback"));
        let mut cycles = HashMap::new();
        // For each target, the start of the walk that reached it first. A walk that reaches one of
        // its own targets again has found a cycle.
        let mut walked: HashMap<usize, usize> = HashMap::new();
        for start in 0..self.next.len() {
            let mut at = Some(start);
            while let Some(here) = at.filter(|here| !walked.contains_key(here)) {
                walked.insert(here, start);
                at = self.fallback_of(here);
            }
            let Some(met) = at.filter(|met| walked.get(met) == Some(&start)) else { continue };
            let round = |from: usize| {
                std::iter::successors(self.fallback_of(from), move |at| {
                    self.fallback_of(*at).filter(|_| *at != from)
                })
            };
            if let Some(first) = round(met).filter(names_fallback).min() {
                cycles.insert(first, std::iter::once(first).chain(round(first)).collect());
            }
        }
        cycles
    }

    /// Reports the cycle of fallbacks `steps`, a value of [`Self::cycles`]. `given` is the value of
    /// `fallback` of the first target in `steps`, at which the problem is reported.
    fn reject_cycle(&self, given: &Given<'_>, steps: &[usize]) {
        if let [_, _] = steps {
            return given.reject("a target cannot be its own fallback; name another, or remove the key");
        }
        let targets = steps.iter().filter_map(|at| self.targets.get(*at));
        let names: Vec<&str> = targets.map(|target| &*target.config.name).collect();
        given.reject(format!("the fallbacks form a cycle: {}; remove one of them", names.join(" -> ")));
    }
}

/// Returns the reasons why calls of `target` cannot be sent to `fallback`. Empty if they can.
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
    // Calls are sent to any URL of a pool.
    if !has_base_url(fallback) && fallback.pool.is_none() && !theirs.covers_urls_of(&ours) {
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

/// Returns `true` if a target has one base URL that calls are sent to: its only URL, or the first
/// one of a well-known provider.
fn has_base_url(target: &TargetConfig) -> bool {
    target.matches.urls.len() == 1 || providers::has_provider_urls(target)
}

/// Returns `true` if [`obstacles`] must be called for each target that falls back to `fallback`. If
/// `false`, `fallback` can serve the calls of every target.
fn depends_on_caller(fallback: &TargetConfig) -> bool {
    fallback.matches.slots_only || fallback.matches.urls.len() != 1 || requested_model(fallback).is_none()
}

/// Returns the model that is requested for calls that fall back to a target: its `model`, or the
/// only one of its `models`. `None`: the model that the caller requested.
fn requested_model(target: &TargetConfig) -> Option<Arc<str>> {
    match (&target.model, &*target.matches.models) {
        (Some(model), _) => Some(model.clone()),
        (None, [only]) if !only.contains('*') => Some(Arc::from(&**only)),
        _ => None,
    }
}

/// Reports each of the keys `model`, `key_env` and `forward_headers` that has no effect. `target`
/// is not a fallback. If it is a single endpoint, `tidegate run` and `tidegate sweep` use the first
/// two keys.
fn reject_unused(ParsedTarget { config, given, .. }: &ParsedTarget<'_>) {
    let only = "has no effect, because no target names this one as its \"fallback\"; remove it";
    if config.pool.is_some() || !has_base_url(config) {
        given.reject_key("model", format!("{only}, or set \"models\" to select requests by their model"));
        given.reject_key("key_env", only);
    }
    given.reject_key("forward_headers", only);
}
