//! Reads targets.

use std::sync::Arc;

use http::HeaderName;

use super::limit::LimitLayers;
use super::{conflicts, fallback, pool, rates, shares};
use crate::matching::{BaseUrl, TargetRule};
use crate::schema::{
    Budgets, CAP, Given, Group, InvalidValue, OWN, RATES, SETTINGS, Scalar, TextRule, Value, nearest,
};
use crate::{LimitConfig, TargetConfig, TargetMatch, Tokenizer, providers};

/// The settings of a target or of `defaults`, while they are read. A target starts with those of
/// `defaults`.
#[derive(Clone)]
pub(super) struct TargetReader<'a> {
    pub(super) config: TargetConfig,
    limit: LimitLayers,
    budgets: &'a Budgets,
}

/// A target that was read.
pub(super) struct ReadTarget<'a> {
    pub(super) config: TargetConfig,
    pub(super) given: Given<'a>,
    /// Whether the target was read without a problem. Otherwise its URLs and models are not known.
    pub(super) sound: bool,
}

/// Reads `targets`, in the order given. Also returns the settings of targets that are not
/// configured.
pub(super) fn read_targets(
    given: Option<Given<'_>>,
    defaults: Option<Given<'_>>,
    base: TargetReader<'_>,
) -> (Vec<TargetConfig>, TargetConfig) {
    let named = given.map(|given| given.named()).unwrap_or_default();
    let is_only_target = named.len() == 1;
    let mut targets = Vec::with_capacity(named.len());
    for (name, given) in named {
        let before = given.problems.count();
        let mut reader = base.clone();
        reader.config.name = name.into();
        reader.read_target(&given, is_only_target);
        targets.push(ReadTarget { config: reader.config, sound: given.problems.count() == before, given });
    }
    let default_fallback = defaults.as_ref().and_then(|given| given.get("fallback"));
    fallback::resolve(&mut targets, &base.config, default_fallback);
    conflicts::check_reachable(&targets);
    let targets: Vec<TargetConfig> = targets.into_iter().map(|target| target.config).collect();
    let default_target = base.into_default_target(defaults, &targets);
    (targets, default_target)
}

impl<'a> TargetReader<'a> {
    pub(super) fn new(budgets: &'a Budgets) -> Self {
        Self { config: TargetConfig::new("default"), limit: LimitLayers::default(), budgets }
    }

    pub(super) fn read_defaults(&mut self, given: &Given<'_>) {
        given.check_table(&[&SETTINGS, &RATES]);
        self.read_settings(given);
    }

    /// Reads a target: its cap, such as `openai = 64`, or a table.
    fn read_target(&mut self, given: &Given<'_>, is_only_target: bool) {
        if given.is_table() {
            given.check_table(&[&OWN, &SETTINGS, &RATES]);
        } else {
            let (low, high) = (CAP.start(), CAP.end());
            let expected = format!("a table, or the cap: a whole number from {low} to {high}");
            let read = |value: &_| usize::read(value, &CAP).map_err(|_| InvalidValue::expected(&*expected));
            let Some(cap) = given.read(read) else { return };
            self.config.cap = cap;
            self.limit.cap_given = true;
        }
        self.read_matches(given, is_only_target);
        self.read_fallback_keys(given);
        self.read_settings(given);
        self.check_tpot(given);
        conflicts::check_objective(given, &self.config);
    }

    /// Reads which requests are the target's, and its pool.
    fn read_matches(&mut self, given: &Given<'_>, is_only_target: bool) {
        const NO_REQUESTS: &str = "with url = \"none\" the target takes no requests; remove one of them";
        let slots_only = given.get("url").is_some_and(|url| url.value.as_text() == Some("none"));
        let urls = if slots_only { Vec::new() } else { read_patterns(given, "url", &URL) };
        let models = read_patterns(given, "models", &MODEL_PATTERN);
        let mut matches = TargetMatch { urls, models, slots_only };
        for key in ["models", "pool"] {
            if slots_only && given.has(key) {
                given.reject_key(&[key], NO_REQUESTS);
            }
        }
        self.config.pool = given.get("pool").map(|given| pool::read_pool(&given));
        if !given.has("url") {
            let urls = match &self.config.pool {
                Some(pool) => pool::urls_by_name(&self.config.name, pool),
                None => provider_urls(&self.config.name, is_only_target),
            };
            match urls {
                Ok(urls) => matches.urls = urls,
                Err(_) if given.has("models") && self.config.pool.is_none() => {}
                Err(why) => given.reject(why),
            }
        }
        self.config.matches = matches;
    }

    /// Reads the keys for calls that fall back to the target.
    fn read_fallback_keys(&mut self, given: &Given<'_>) {
        if let Some(given) = given.get("model") {
            self.config.model = given.read(|value| MODEL.read(value));
            let taken = |model: &str| {
                TargetRule::new(&self.config.matches).is_ok_and(|rule| rule.matches_model(model))
            };
            if self.config.model.as_deref().is_some_and(|model| !taken(model)) {
                given.reject("is not one of the target's \"models\"; add it there, or remove it");
            }
        }
        self.config.key_env = read_key_env(given, "SPARE_API_KEY");
        if let Some(given) = given.get("forward_headers") {
            self.config.forward_headers = FORWARDED_HEADER.read_list(&given);
        }
    }

    /// Reads the keys that `defaults` and targets have in common.
    fn read_settings(&mut self, given: &Given<'_>) {
        let config = &mut self.config;
        // An invalid name does not leave the inherited one in force.
        for (key, name) in [("budget", &mut config.budget), ("fallback", &mut config.fallback)] {
            name.take_if(|_| given.has(key));
        }
        config.read(given);
        if config.tokenizer == Tokenizer::Bpe && !cfg!(feature = "bpe") {
            config.tokenizer = Tokenizer::Learned;
            let text = "\"bpe\" needs a build with the feature \"bpe\"; use \"learned\" or \"vllm\"";
            given.reject_key(&["tokenizer"], text);
        }
        shares::no_default_floor(given, &mut config.default_tenant);
        rates::read_rates(given, config, self.budgets);
        shares::check_floors(given, config);
        conflicts::check_times(given, config);
        self.read_limit(given);
    }

    /// Reads `limit`. The cap and the objectives must have been read before.
    fn read_limit(&mut self, given: &Given<'_>) {
        self.limit.read(given);
        if self.config.matches.slots_only {
            let why =
                "with url = \"none\" the limit cannot adapt, because no calls are measured; set a \"cap\"";
            self.limit.force_fixed(given, why);
        }
        if self.config.pool.is_some() && !self.limit.cap_given {
            self.config.cap = *CAP.end();
        }
        // In pools each replica has a limit.
        let pool_cap = self.config.pool.as_ref().map(|pool| (pool.cap, "pool.cap"));
        let (cap, named) = pool_cap.unwrap_or((self.config.cap, "cap"));
        self.limit.check_order(given, cap, named);
        self.config.limit = self.limit.resolve(given, cap, conflicts::has_objective(&self.config));
    }

    /// Rejects a `tpot` that the target sets itself if its limit is fixed.
    fn check_tpot(&mut self, given: &Given<'_>) {
        if self.clear_unused_tpot() && given.has("tpot") {
            let why = self.limit.fixed_reason(given, "ttft");
            let slots_only = self.config.matches.slots_only;
            let why = if slots_only { "with url = \"none\" there are no tokens; remove it" } else { &why };
            given.reject_key(&["tpot"], why);
        }
    }

    /// Removes `tpot` if the limit is fixed. Returns `true` if it was set.
    fn clear_unused_tpot(&mut self) -> bool {
        self.config.limit == LimitConfig::Fixed && self.config.tpot.take().is_some()
    }

    /// Returns the settings of targets that are not configured. Rejects a `tpot` of `defaults` that
    /// applies to no target.
    fn into_default_target(mut self, defaults: Option<Given<'_>>, targets: &[TargetConfig]) -> TargetConfig {
        let all_fixed = targets.iter().all(|target| target.limit == LimitConfig::Fixed);
        if let Some(given) = defaults
            && self.clear_unused_tpot()
            && all_fixed
        {
            given.reject_key(&["tpot"], self.limit.fixed_reason(&given, "ttft"));
        }
        self.config
    }
}

/// Reads `key_env`, the name of an environment variable.
pub(super) fn read_key_env(given: &Given<'_>, example: &str) -> Option<Arc<str>> {
    let given = given.get("key_env")?;
    match given.value {
        Value::Text(name) if is_variable(name) => Some(Arc::from(&**name)),
        // The value is never shown, because it may be the credential.
        _ => {
            given.reject(format!(
                "expected the name of an environment variable, such as {example:?}, not the credential itself"
            ));
            None
        }
    }
}

/// Returns `true` if this can be the name of a variable and does not look like a credential.
fn is_variable(name: &str) -> bool {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let random = name.len() >= 20
        && name.bytes().any(|byte| byte.is_ascii_lowercase())
        && name.bytes().any(|byte| byte.is_ascii_digit());
    plain
        && !random
        && (1..=100).contains(&name.len())
        && !name.starts_with(|first: char| first.is_ascii_digit())
}

/// Returns the base URLs of a well-known provider, or none for the only target of a gate, which
/// matches every request. Among several targets, one that matches every request by accident would
/// take the requests of the others.
fn provider_urls(name: &str, is_only_target: bool) -> Result<Vec<String>, String> {
    if let Some(urls) = providers::base_urls(name) {
        return Ok(urls.iter().map(|url| (*url).to_owned()).collect());
    }
    if is_only_target {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = providers::names().collect();
    let advice = match nearest::nearest(name, &names) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("names with a URL of their own are {}", names.join(", ")),
    };
    Err(format!(
        "needs a \"url\" or \"models\" that select its requests, or url = \"none\" if only its slots are used; {advice}"
    ))
}

/// Reads `url` or `models`: a text or a list that is not empty.
fn read_patterns(given: &Given<'_>, key: &str, rule: &TextRule<String>) -> Vec<String> {
    let Some(given) = given.get(key) else { return Vec::new() };
    if given.items().is_empty() {
        given.reject("the list is empty, so no request would match; remove the key to match every request");
    }
    rule.read_list(&given)
}

const URL: TextRule<String> =
    TextRule { expected: "a base URL such as \"https://api.openai.com/v1\"", parse: parse_base_url };

const MODEL_PATTERN: TextRule<String> = TextRule {
    expected: "the name of a model, in which * matches any text",
    parse: |text| parse_model(text).map(str::to_owned),
};

const MODEL: TextRule<Arc<str>> = TextRule {
    expected: "the name of one model",
    parse: |text| match text.contains('*') {
        true => Err("patterns belong in \"models\""),
        false => parse_model(text).map(Arc::from),
    },
};

const FORWARDED_HEADER: TextRule<HeaderName> = TextRule {
    expected: "the name of a request header such as \"x-tenant-id\"",
    parse: |name| {
        if name.contains('*') {
            return Err("patterns are not allowed; name each header");
        }
        let name: HeaderName = name.parse().map_err(|_| "it is not a header name")?;
        if CONNECTION_HEADERS.contains(&name.as_str()) {
            return Err("each connection sets this header itself; remove it");
        }
        Ok(name)
    },
};

/// Headers that cannot be forwarded, because the gate or the connection sets them.
const CONNECTION_HEADERS: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

pub(super) fn parse_base_url(text: &str) -> Result<String, &'static str> {
    BaseUrl::parse(text).map(|url| url.to_string())
}

fn parse_model(text: &str) -> Result<&str, &'static str> {
    if text.is_empty() {
        Err("a name must not be empty")
    } else if text.len() > 200 {
        Err("a name may have at most 200 bytes")
    } else {
        Ok(text)
    }
}
