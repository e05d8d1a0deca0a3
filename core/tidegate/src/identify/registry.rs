//! The targets of a gate: the configured targets, and one for each combination of origin,
//! credential and model that no configured target matches.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::{HeaderMap, Uri};
use parking_lot::RwLock;

use super::request_credential::stable_credential;
use super::target_name::{host, printable, target_name};
use crate::admission::BudgetSet;
use crate::clock;
use crate::config::{Config, Matcher, TargetConfig};
use crate::error::Error;
use crate::metrics::{Metrics, TargetMetrics};
use crate::pool::Engines;
use crate::share::Share;
use crate::target::{Target, key_of};
use crate::transport::Transport;
use crate::unknown_name::unknown_name;
use tidegate_protocol::request::{Purpose, RequestFacts};

/// Maximum number of targets that are created for requests without a configured target, in addition
/// to the target `others`.
///
/// If one more is needed, it replaces the target that has been idle the longest. If no target is
/// idle, the request uses the shared target `others`. Memory and metric labels are therefore
/// bounded.
///
/// Targets that share `others` share only capacity: slots, the limit, the queue, configured rates
/// and the retry budget. Each credential and model has its own cool-down
/// ([`KeyedCooldowns`](crate::target::KeyedCooldowns)), and rate headers are ignored, because
/// they describe one credential.
const MAX_UNCONFIGURED: usize = 256;

/// Time without calls after which an unconfigured target may be replaced by another: 60 s. If this
/// time were much shorter, alternating keys and models would replace each other's targets with each
/// call.
const EVICTABLE_AFTER: Duration = Duration::from_secs(60);

/// Key of the shared target `others`. A request whose hash happens to be 0 also uses it.
const OTHERS: u64 = 0;
/// Hashes alike in all processes of the same build. Others may not share targets that are not
/// configured.
const FIXED_HASHER: BuildHasherDefault<DefaultHasher> = BuildHasherDefault::new();

/// The targets of a gate. Finds the target of a request by its URL, credential and model, and
/// creates a target if no configured one matches.
pub(super) struct Registry {
    matcher: Matcher,
    configured: Vec<Arc<Target>>,
    /// Index of each configured target, by name.
    names: HashMap<Arc<str>, usize>,
    default: TargetConfig,
    budget_sets: BTreeMap<Arc<str>, Arc<BudgetSet>>,
    found: RwLock<HashMap<u64, UnconfiguredTarget>>,
    /// Whether it was logged that requests match no configured target.
    has_reported_unmatched: AtomicBool,
    began: Instant,
    hasher: RandomState,
    metrics: Arc<Metrics>,
    /// The engines whose metrics are read. `None` unless the mode is `enforce`.
    engines: Option<Arc<Engines>>,
    /// The processes that share the caps. `None` if the caps are not shared.
    share: Option<Arc<Share>>,
}

/// A target that was created for requests that no configured target matches.
struct UnconfiguredTarget {
    target: Arc<Target>,
    /// Time of the last call, in milliseconds since the registry was created.
    used: AtomicU64,
}

impl UnconfiguredTarget {
    fn new(target: Arc<Target>) -> Self {
        Self { target, used: AtomicU64::default() }
    }

    /// Stores `now` as the time of the last call, in milliseconds since the registry was created.
    /// Returns the target.
    fn touch(&self, now: u64) -> Arc<Target> {
        self.used.store(now, Ordering::Relaxed);
        self.target.clone()
    }

    /// Returns `true` if the target has no calls, including queued calls and calls that back off,
    /// and does not cool down.
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.target) == 1 && !self.target.is_cooling()
    }
}

/// Returns the shared rate budgets that the target names in its configuration. If it names none,
/// creates budgets of its own, which are full at `now`.
fn budget_set(
    shared: &BTreeMap<Arc<str>, Arc<BudgetSet>>,
    target: &TargetConfig,
    now: Instant,
) -> Arc<BudgetSet> {
    let shared = target.budget.as_ref().and_then(|name| shared.get(name));
    shared.cloned().unwrap_or_else(|| BudgetSet::new(&target.rates, now))
}

impl Registry {
    /// Creates the targets of `config`, and enables their own requests, which are sent over
    /// `transport`. `acting` is `true` in mode `enforce`. Other processes share the caps if there
    /// is a `share`.
    ///
    /// # Errors
    /// The errors of [`Matcher::new`] and [`Target::start_pool`].
    pub(super) fn new(
        config: &Config,
        metrics: Arc<Metrics>,
        transport: &Transport,
        acting: bool,
        share: Option<Arc<Share>>,
    ) -> Result<Self, Error> {
        let now = clock::now();
        let budget_sets: BTreeMap<Arc<str>, Arc<BudgetSet>> =
            config.budgets.iter().map(|(name, rates)| (name.clone(), BudgetSet::new(rates, now))).collect();
        for (name, budgets) in budget_sets.iter().filter(|(name, _)| config.can_share_budget(name)) {
            share.iter().for_each(|share| share.add_rates(&format!("budget:{name}"), budgets));
        }
        let make = |target: &TargetConfig| {
            Target::new(target.clone(), budget_set(&budget_sets, target, now), metrics.target(target), now)
        };
        let configured: Vec<Arc<Target>> = config.targets.iter().map(make).collect();
        let engines = acting.then(|| Engines::new(transport.clone()));
        for target in &configured {
            target.start_pool(transport, acting)?;
            engines.iter().for_each(|engines| target.start_engine(engines));
            share.iter().for_each(|share| target.share(share, target.name()));
        }
        let names = configured.iter().enumerate().map(|(at, target)| (target.name().clone(), at)).collect();
        Ok(Self {
            matcher: Matcher::new(&config.targets)?,
            configured,
            names,
            default: config.default_target.clone(),
            budget_sets,
            found: RwLock::default(),
            has_reported_unmatched: AtomicBool::default(),
            began: now,
            hasher: RandomState::new(),
            metrics,
            engines,
            share,
        })
    }

    /// Returns `true` if any configured target is a pool.
    pub(super) fn has_pools(&self) -> bool {
        self.configured.iter().any(|target| target.config().pool.is_some())
    }

    /// Returns the configured target for requests to this URL and model. `None` if none matches.
    pub(super) fn configured(&self, uri: &Uri, model: Option<&str>) -> Option<&Arc<Target>> {
        self.configured.get(self.matcher.find(uri, model)?)
    }

    /// Returns the target of a request, and creates it if necessary. Also returns the hash of the
    /// credential and model of the request, and at the shared target `others` of its origin. It is
    /// `None` for unconfigured targets, which have one credential and model each.
    pub(super) fn target(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        facts: &RequestFacts,
    ) -> (Arc<Target>, Option<u64>) {
        let model = facts.model.as_deref();
        if let Some(target) = self.configured(uri, model) {
            return (target.clone(), self.cooldown_key(target, uri, headers, facts));
        }
        let credential = stable_credential(uri, headers);
        let what = (uri.scheme_str(), uri.authority().map(|a| a.as_str()), credential, model);
        let key = self.hasher.hash_one(what);
        let now = u64::try_from(clock::now().saturating_duration_since(self.began).as_millis());
        let now = now.unwrap_or(u64::MAX);
        if let Some(known) = self.found.read().get(&key) {
            return (known.touch(now), None);
        }
        let mut found = self.found.write();
        // Another call may have created it meanwhile.
        if let Some(known) = found.get(&key) {
            return (known.touch(now), None);
        }
        if found.len() < MAX_UNCONFIGURED || self.evict(&mut found, now) {
            let name = target_name(uri, model);
            // The name of the target may have a number, which depends on the order of calls here.
            let shared_name = format!("{name}@{:016x}", FIXED_HASHER.hash_one(what));
            let target = self.create(name, &shared_name, &found, Target::new);
            // Its calls used the shared target until now, where some may still wait for a
            // cool-down.
            let others = found.get(&OTHERS).and_then(|others| others.target.keyed_cooldowns());
            if let Some(until) = others.and_then(|cooldowns| cooldowns.until(key)) {
                target.admission().resume_cooldown(until);
            }
            let target = found.entry(key).or_insert(UnconfiguredTarget::new(target)).touch(now);
            // The log may call back into the gate.
            drop(found);
            if facts.purpose == Purpose::Inference {
                self.report_unmatched(uri, model);
            }
            return (target, None);
        }
        if let Some(others) = found.get(&OTHERS) {
            return (others.touch(now), Some(key));
        }
        let target = self.create("others".to_owned(), "@others", &found, Target::new_shared);
        (found.entry(OTHERS).or_insert(UnconfiguredTarget::new(target)).touch(now), Some(key))
    }

    /// Returns the key of a request in the cool-downs of a configured target, and records its use.
    /// `None` if the target is a pool, which has none.
    fn cooldown_key(
        &self,
        target: &Target,
        uri: &Uri,
        headers: &HeaderMap,
        facts: &RequestFacts,
    ) -> Option<u64> {
        if target.pool().is_some() {
            return None;
        }
        let credential = self.hasher.hash_one(stable_credential(uri, headers));
        let key = key_of(credential, self.hasher.hash_one(facts.model.as_deref()));
        if facts.purpose == Purpose::Inference {
            target.on_key(key);
        }
        Some(key)
    }

    /// Logs, once per gate, that requests match no configured target. Otherwise, nothing would show
    /// that a limit that is meant for them has no effect. The line is a warning if no request has
    /// matched a configured target. Does nothing if no target for requests is configured.
    fn report_unmatched(&self, uri: &Uri, model: Option<&str>) {
        let takes_requests = |target: &Arc<Target>| !target.config().matches.slots_only;
        if !self.configured.iter().any(takes_requests)
            || self.has_reported_unmatched.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let (scheme, host, model) = (uri.scheme_str().unwrap_or("http"), host(uri), printable(model));
        let model = if model.is_empty() { model } else { format!(" (model {model})") };
        let text = format!(
            "no configured target takes requests to {scheme}://{host}{model}: they get a limit of their own; set `url` (and `models`) of a target to limit them"
        );
        let is_used = |target: &Arc<Target>| takes_requests(target) && target.admission().view().peak > 0;
        if self.configured.iter().any(is_used) {
            tracing::info!("{text}");
        } else {
            tracing::warn!("{text}");
        }
    }

    /// Creates a target with the default configuration. `new` is the constructor: [`Target::new`]
    /// or [`Target::new_shared`]. The name gets a number if it is in use. `shared_name` is the name
    /// among all processes.
    fn create(
        &self,
        name: String,
        shared_name: &str,
        found: &HashMap<u64, UnconfiguredTarget>,
        new: impl FnOnce(TargetConfig, Arc<BudgetSet>, TargetMetrics, Instant) -> Arc<Target>,
    ) -> Arc<Target> {
        let config = TargetConfig { name: self.unused(name, found).into(), ..self.default.clone() };
        let (metrics, now) = (self.metrics.target(&config), clock::now());
        let budgets = budget_set(&self.budget_sets, &config, now);
        let target = new(config, budgets, metrics, now);
        self.engines.iter().for_each(|engines| target.start_engine(engines));
        self.share.iter().for_each(|share| target.share(share, shared_name));
        target
    }

    /// Returns the name or, if another target has it, the name with `#2`, `#3` and so on appended.
    /// Several credentials may use the same host and model.
    fn unused(&self, name: String, found: &HashMap<u64, UnconfiguredTarget>) -> String {
        let taken = |name: &str| {
            self.names.contains_key(name) || found.values().any(|known| &**known.target.name() == name)
        };
        if !taken(&name) {
            return name;
        }
        (2..).map(|n| format!("{name}#{n}")).find(|name| !taken(name)).unwrap_or(name)
    }

    /// Removes the target that has been idle the longest, and its metrics. `now` is in milliseconds
    /// since the registry was created. Returns `false` if no target has been idle for
    /// [`EVICTABLE_AFTER`].
    fn evict(&self, found: &mut HashMap<u64, UnconfiguredTarget>, now: u64) -> bool {
        let idle = EVICTABLE_AFTER.as_millis() as u64;
        let used = |known: &UnconfiguredTarget| known.used.load(Ordering::Relaxed);
        let oldest = found
            .iter()
            .filter(|(_, known)| now.saturating_sub(used(known)) >= idle && known.is_idle())
            .min_by_key(|(_, known)| used(known));
        let Some(key) = oldest.map(|(key, _)| *key) else { return false };
        if let Some(gone) = found.remove(&key) {
            gone.target.metrics().remove();
        }
        true
    }

    /// Returns the configured target with this name.
    ///
    /// # Errors
    /// `Unknown`, with the most similar name, if no configured target has the name.
    pub(super) fn named(&self, name: &str) -> Result<Arc<Target>, Error> {
        self.names.get(name).and_then(|at| self.configured.get(*at)).cloned().ok_or_else(|| {
            let names: Vec<_> = self.configured.iter().map(|target| &**target.name()).collect();
            let advice = "name it with its cap: targets = { NAME = { cap = 8, url = \"none\" } }";
            unknown_name("target", name, &names, advice)
        })
    }

    /// Returns all targets: the configured ones, and those created for other requests.
    pub(super) fn all(&self) -> Vec<Arc<Target>> {
        self.configured.iter().chain(self.found.read().values().map(|known| &known.target)).cloned().collect()
    }
}
