//! Targets that take what others refuse: each must exist, be reachable with nothing but its own settings, and lead on to an end.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::target::Inherited;
use crate::config::matching::TargetRule;
use crate::config::schema::given::{Given, join};
use crate::config::schema::nearest;
use crate::config::schema::setting::{InvalidValue, TARGET_NAME};
use crate::config::{TargetConfig, providers};

/// Number of problems from which errors no longer suggest a similar name.
const MAX_PROBLEMS_WITH_ADVICE: usize = 100;

/// Index of each target by name.
type TargetIndex = HashMap<Arc<str>, usize>;

/// Where a target says what concerns fallbacks.
pub(super) struct FallbackKeys<'a> {
    fallback: Option<Given<'a>>,
    model: Option<Given<'a>>,
    key_env: Option<Given<'a>>,
    forward_headers: Option<Given<'a>>,
    /// Whether it was read without a problem: of the others it is not known where they are.
    pub(super) sound: bool,
}

impl<'a> FallbackKeys<'a> {
    pub(super) fn new(given: &Given<'a>) -> Self {
        let [fallback, model, key_env, forward_headers] =
            ["fallback", "model", "key_env", "forward_headers"].map(|key| given.child(key));
        Self { fallback, model, key_env, forward_headers, sound: false }
    }
}

/// Judges every fallback, and gives the targets that calls fall back to the model to ask for.
pub(super) fn resolve(targets: &mut [TargetConfig], keys: &[FallbackKeys<'_>], inherited: &Inherited<'_>) {
    for (target, keys) in targets.iter_mut().zip(keys) {
        // The default is for the others, and slots that are held by name carry no call that could go elsewhere.
        let idle = target.matches.slots_only || target.fallback.as_ref() == Some(&target.name);
        if idle && keys.fallback.is_none() {
            target.fallback = None;
        }
    }
    let index: TargetIndex =
        targets.iter().enumerate().rev().map(|(at, target)| (target.name.clone(), at)).collect();
    let links: Vec<Option<usize>> = targets.iter().map(|target| next_index(target, &index)).collect();
    let cycles = find_cycles(&links, keys);
    // If no fallback depends on its caller, indirect fallbacks need no check.
    let demanding = links.iter().flatten().any(|at| targets.get(*at).is_some_and(depends_on_caller));
    if let Some(given) = &inherited.fallback {
        check_fallback(inherited.base, given, targets, keys, &index);
        if demanding {
            check_chain(inherited.base, given, &index, &links, targets, keys);
        }
    }
    for (at, (target, own)) in targets.iter().zip(keys).enumerate() {
        if let Some(given) = &own.fallback {
            check_fallback(target, given, targets, keys, &index);
            if demanding {
                check_chain(target, given, &index, &links, targets, keys);
            }
            if let Some(steps) = cycles.get(&at) {
                reject_cycle(given, steps, targets);
            }
        }
    }
    let all = targets.iter().chain([inherited.base]);
    let fallbacks: HashSet<Arc<str>> = all.filter_map(|target| target.fallback.clone()).collect();
    // Where a name was misspelt, or not read, nobody knows whom it was meant for.
    let named = fallbacks.iter().all(|name| index.contains_key(name));
    let certain = named && keys.iter().all(|keys| keys.sound);
    for (target, keys) in targets.iter_mut().zip(keys) {
        if fallbacks.contains(&target.name) {
            target.model = requested_model(target);
        } else if certain {
            reject_unused(keys);
        }
    }
}

fn next_index(target: &TargetConfig, index: &TargetIndex) -> Option<usize> {
    index.get(target.fallback.as_ref()?).copied()
}

/// One fallback by itself.
fn check_fallback(
    target: &TargetConfig,
    given: &Given<'_>,
    targets: &[TargetConfig],
    keys: &[FallbackKeys<'_>],
    index: &TargetIndex,
) {
    let Some(name) = &target.fallback else { return };
    let found = index.get(name).and_then(|at| targets.get(*at).zip(keys.get(*at)));
    let Some((fallback, fallback_keys)) = found else {
        if given.problems.count() >= MAX_PROBLEMS_WITH_ADVICE {
            return given.reject(InvalidValue::expected(TARGET_NAME.expected).message(given.value));
        }
        let names: Vec<&str> = targets.iter().map(|target| &*target.name).collect();
        let advice = nearest::suggest_name(name, &names, "there are no targets");
        return given.reject(InvalidValue::expected(TARGET_NAME.expected).hint(advice).message(given.value));
    };
    if target.matches.slots_only {
        return given
            .reject("url is \"none\", so no request is this target's that could go elsewhere; drop one");
    }
    if fallback_keys.sound && fallback.name != target.name {
        for why in obstacles(target, fallback) {
            given.reject(why);
        }
    }
}

/// What the fallback's own fallbacks refuse goes on as the request that the caller sent, so each of them must be one for it.
fn check_chain(
    target: &TargetConfig,
    given: &Given<'_>,
    index: &TargetIndex,
    links: &[Option<usize>],
    targets: &[TargetConfig],
    keys: &[FallbackKeys<'_>],
) {
    let next = |at: usize| links.get(at).copied().flatten();
    let chain: Vec<usize> =
        std::iter::successors(next_index(target, index), |at| next(*at)).take(links.len() + 1).collect();
    // Longer than there are targets: it goes in a circle, which is told where that begins.
    if chain.len() > links.len() {
        return;
    }
    for (before, at) in chain.iter().zip(chain.iter().skip(1)) {
        let (Some(before), Some(fallback)) = (targets.get(*before), targets.get(*at)) else { continue };
        if !depends_on_caller(fallback) {
            continue;
        }
        // What already bars the way from the one before is told there.
        if keys.get(*at).is_some_and(|keys| keys.sound) && obstacles(before, fallback).is_empty() {
            for why in obstacles(target, fallback) {
                given.reject(format!("by way of {}: {why}", join("targets", &before.name)));
            }
        }
    }
}

/// What is not known of the address that `target`'s calls have at this one.
fn obstacles(target: &TargetConfig, fallback: &TargetConfig) -> Vec<String> {
    let place = join("targets", &fallback.name);
    if fallback.matches.slots_only {
        return vec![format!("{place} has url = \"none\": no call can be sent there")];
    }
    let (Ok(ours), Ok(theirs)) = (TargetRule::new(&target.matches), TargetRule::new(&fallback.matches))
    else {
        return Vec::new();
    };
    let mut obstacles = Vec::new();
    // A provider that is known by its name has one URL that is meant unless another is: its first.
    let urls = &fallback.matches.urls;
    let known = providers::base_urls(&fallback.name).is_some_and(|known| known == urls);
    // Of a pool, whichever of them it is leads to the same replicas.
    if urls.len() != 1 && fallback.pool.is_none() && !known && !theirs.covers_urls_of(&ours) {
        let count = urls.len();
        obstacles.push(format!(
            "{place} has {count} base URLs, and which of them calls should go to is not said; give it one \"url\", or all of ours"
        ));
    }
    if requested_model(fallback).is_none() && !theirs.covers_models_of(&ours) {
        obstacles.push(format!(
            "{place} does not say which model calls should ask for there; set its \"model\", or name ours in its \"models\""
        ));
    }
    obstacles
}

/// Returns `true` if some targets may fall back to this one and others not: see [`obstacles`].
fn depends_on_caller(fallback: &TargetConfig) -> bool {
    fallback.matches.slots_only || fallback.matches.urls.len() != 1 || requested_model(fallback).is_none()
}

/// The model to ask for: the one that is set, or the only one there is.
fn requested_model(target: &TargetConfig) -> Option<Arc<str>> {
    match (&target.model, &*target.matches.models) {
        (Some(model), _) => Some(model.clone()),
        (None, [only]) if !only.contains('*') => Some(Arc::from(&**only)),
        _ => None,
    }
}

/// Returns the cycles of fallbacks, by the first target of each that names a fallback itself. The
/// value lists the targets from there back to it.
fn find_cycles(links: &[Option<usize>], keys: &[FallbackKeys<'_>]) -> HashMap<usize, Vec<usize>> {
    let next = |at: usize| links.get(at).copied().flatten();
    let keys = |at: &usize| keys.get(*at).is_some_and(|keys| keys.fallback.is_some());
    let mut find_cycles = HashMap::new();
    // Start of the walk that first reached each target. A walk that reaches a target of its own is
    // a cycle.
    let mut walked: HashMap<usize, usize> = HashMap::new();
    for start in 0..links.len() {
        let mut at = Some(start);
        while let Some(here) = at.filter(|here| !walked.contains_key(here)) {
            walked.insert(here, start);
            at = next(here);
        }
        let Some(met) = at.filter(|met| walked.get(met) == Some(&start)) else { continue };
        let round =
            |from: usize| std::iter::successors(next(from), move |at| next(*at).filter(|_| *at != from));
        if let Some(first) = round(met).filter(keys).min() {
            find_cycles.insert(first, round(first).collect());
        }
    }
    find_cycles
}

fn reject_cycle(given: &Given<'_>, steps: &[usize], targets: &[TargetConfig]) {
    if steps.len() == 1 {
        return given.reject("a target cannot take what it refuses itself; name another, or leave it out");
    }
    let names: Vec<&str> =
        steps.last().into_iter().chain(steps).filter_map(|at| Some(&*targets.get(*at)?.name)).collect();
    given.reject(format!("goes in a circle: {}; leave one of these fallbacks out", names.join(" -> ")));
}

/// What only calls that fall back would ask for, at a target to which none do.
fn reject_unused(keys: &FallbackKeys<'_>) {
    let only = "is for calls that fall back to this target, and none names it as its \"fallback\"";
    if let Some(given) = &keys.model {
        given.reject(format!("{only}; the models whose requests it takes are \"models\""));
    }
    for given in [&keys.key_env, &keys.forward_headers].into_iter().flatten() {
        given.reject(only);
    }
}
