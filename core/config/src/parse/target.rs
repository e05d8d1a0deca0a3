//! Reads `targets` and `defaults`.

use std::sync::Arc;

use http::{HeaderName, Uri};
use tidegate_protocol::request::MAX_MODEL;
use tidegate_protocol::url_check;
use url::{Host, ParseError, Url};

use super::limit::LimitLayers;
use super::{conflicts, fallback, floors, pool, rates};
use crate::matching::{BaseUrl, TargetRule};
use crate::schema::{
    Budgets, CAP_RANGE, Given, InvalidValue, RATES, SETTINGS, Scalar, TARGET, TextRule, Value, suggest,
};
use crate::{LimitConfig, TargetConfig, TargetMatch, Tokenizer, providers};

/// Reads the settings of one target, or of `defaults`. The reader of each target starts as a clone
/// of the reader that has read `defaults`, so the target inherits those settings.
#[derive(Clone)]
pub(super) struct TargetReader<'a> {
    pub(super) config: TargetConfig,
    limit: LimitLayers,
    /// The shared budgets that a target may name.
    budgets: &'a Budgets,
}

/// A target that was read, and the value it was read from.
pub(super) struct ParsedTarget<'a> {
    pub(super) config: TargetConfig,
    pub(super) given: Given<'a>,
    /// Whether the target was read without a problem. Otherwise its URLs and models are not known.
    pub(super) is_valid: bool,
}

/// Reads `targets`. Returns the targets in the order in which they are given, and the settings of
/// targets that are not configured.
///
/// `defaults` is the table `defaults`, and `base` is the reader that has read it. Reports fallbacks
/// that are impossible (see [`fallback::resolve`]), and targets that no request can reach.
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
        let is_valid = given.problems.count() == before;
        targets.push(ParsedTarget { config: reader.config, given, is_valid });
    }
    let default_fallback = defaults.as_ref().and_then(|given| given.get("fallback"));
    leave_named_regions(&mut targets);
    fallback::resolve(&mut targets, &base.config, default_fallback);
    conflicts::check_reachable(&targets);
    let targets: Vec<TargetConfig> = targets.into_iter().map(|target| target.config).collect();
    let default_target = base.into_default_target(defaults, &targets);
    (targets, default_target)
}

/// Removes those base URLs of well-known providers that are at or below the `url` of another target
/// for all models, with or without `/v1`. So a target for one region of a provider gets its
/// requests, whether it is above or below the provider. A target for some models or paths of a
/// region needs to be above. The first URL of a provider, to which fallbacks are sent, stays.
fn leave_named_regions(targets: &mut [ParsedTarget<'_>]) {
    let takes_regions = |target: &&ParsedTarget<'_>| {
        let models = &target.config.matches.models;
        target.given.has("url") && (models.is_empty() || models.iter().any(|model| model == "*"))
    };
    let urls = targets.iter().filter(takes_regions).flat_map(|target| &target.config.matches.urls);
    let named: Vec<String> = urls.map(|url| url.strip_suffix("/v1").unwrap_or(url).to_owned()).collect();
    let is_at_or_below = |url: &str, base: &str| {
        url.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let is_taken = |url: &str| named.iter().any(|base| is_at_or_below(url, base));
    for target in targets.iter_mut().filter(|target| !target.given.has("url")) {
        let Some([first, ..]) = providers::base_urls(&target.config.name) else { continue };
        target.config.matches.urls.retain(|url| url == first || !is_taken(url));
    }
}

impl<'a> TargetReader<'a> {
    /// Creates a reader with the default settings.
    pub(super) fn new(budgets: &'a Budgets) -> Self {
        Self { config: TargetConfig::new("default"), limit: LimitLayers::default(), budgets }
    }

    /// Reads the table `defaults`.
    pub(super) fn read_defaults(&mut self, given: &Given<'_>) {
        given.check_table(&[&SETTINGS, &RATES]);
        self.read_settings(given);
    }

    /// Reads a target: a table, or only its cap, as in `openai = 64`. `is_only_target` is whether
    /// the configuration has no other target.
    fn read_target(&mut self, given: &Given<'_>, is_only_target: bool) {
        if given.is_table() {
            given.check_table(&[&TARGET, &SETTINGS, &RATES]);
        } else {
            let (low, high) = (CAP_RANGE.start(), CAP_RANGE.end());
            let expected = format!("a table, or the cap: a whole number from {low} to {high}");
            let read =
                |value: &_| usize::read(value, &CAP_RANGE).map_err(|_| InvalidValue::expected(&*expected));
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

    /// Reads `url`, `models` and `pool`, which select the requests of the target. If `url` is
    /// absent, the URLs depend on the name of the target; see [`pool::urls_by_name`] and
    /// [`provider_urls`].
    fn read_matches(&mut self, given: &Given<'_>, is_only_target: bool) {
        const NO_REQUESTS: &str = "with url = \"none\" the target takes no requests; remove one of them";
        let slots_only = given.get("url").is_some_and(|url| url.value.as_text() == Some("none"));
        let rule = if given.has("pool") { POOL_URL } else { URL };
        let urls = if slots_only { Vec::new() } else { read_patterns(given, "url", &rule) };
        let models = read_patterns(given, "models", &MODEL_PATTERN);
        let mut matches = TargetMatch { urls, models, slots_only };
        if slots_only {
            given.reject_key("models", NO_REQUESTS);
            given.reject_key("pool", NO_REQUESTS);
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

    /// Reads `model`, `key_env` and `forward_headers`, which apply to calls that fall back to the
    /// target.
    fn read_fallback_keys(&mut self, given: &Given<'_>) {
        if let Some(given) = given.get("model") {
            self.config.model = MODEL.read(&given);
            let taken = |model: &str| {
                TargetRule::new(&self.config.matches).is_ok_and(|rule| rule.matches_model(model))
            };
            if self.config.model.as_deref().is_some_and(|model| !taken(model)) {
                given.reject("is not one of the target's \"models\"; add it there, or remove it");
            }
        }
        self.config.key_env = read_variable(given, "key_env", "SPARE_API_KEY");
        if let Some(given) = given.get("forward_headers") {
            self.config.forward_headers = FORWARDED_HEADER.read_list(&given);
        }
    }

    /// Reads the keys that both `defaults` and targets can have.
    fn read_settings(&mut self, given: &Given<'_>) {
        let config = &mut self.config;
        // A given name replaces the inherited one even if it is invalid.
        for (key, name) in [("budget", &mut config.budget), ("fallback", &mut config.fallback)] {
            name.take_if(|_| given.has(key));
        }
        config.read(given);
        if config.tokenizer == Tokenizer::Bpe && !cfg!(feature = "bpe") {
            config.tokenizer = Tokenizer::Learned;
            let text = "\"bpe\" needs a build with the feature \"bpe\"; use \"learned\" or \"vllm\"";
            given.reject_key("tokenizer", text);
        }
        floors::reject_default_floor(given, &mut config.default_tenant);
        rates::read_rates(given, config, self.budgets);
        floors::check_floors(given, config);
        conflicts::check_times(given, config);
        self.read_limit(given);
    }

    /// Reads `limit`, and sets the limit of the target. Reports a limit that contradicts other
    /// keys. Also sets the cap of a pool without a `cap` to the maximum. The caps and the
    /// objectives must have been read before.
    fn read_limit(&mut self, given: &Given<'_>) {
        self.limit.read(given);
        if self.config.matches.slots_only {
            let why =
                "with url = \"none\" the limit cannot adapt, because no calls are measured; set a \"cap\"";
            self.limit.force_fixed(given, why);
        }
        if self.config.pool.is_some() && !self.limit.cap_given {
            self.config.cap = *CAP_RANGE.end();
        }
        // In pools each replica has a limit.
        let pool_cap = self.config.pool.as_ref().map(|pool| (pool.cap, "pool.cap"));
        let (cap, named) = pool_cap.unwrap_or((self.config.cap, "cap"));
        self.limit.check_order(given, cap, named);
        self.config.limit = self.limit.resolve(given, cap, conflicts::has_objective(&self.config));
    }

    /// Removes `tpot`, the objective for the time per output token, if the limit is fixed. Reports
    /// the key if the target sets it itself.
    fn check_tpot(&mut self, given: &Given<'_>) {
        if self.clear_unused_tpot() {
            let why = self.limit.fixed_reason(given, "ttft");
            let slots_only = self.config.matches.slots_only;
            let why = if slots_only { "with url = \"none\" there are no tokens; remove it" } else { &why };
            given.reject_key("tpot", why);
        }
    }

    /// Removes `tpot` if the limit is fixed. Returns `true` if there was one to remove.
    fn clear_unused_tpot(&mut self) -> bool {
        self.config.limit == LimitConfig::Fixed && self.config.tpot.take().is_some()
    }

    /// Returns the settings of targets that are not configured, without `tpot` if their limit is
    /// fixed. Reports the removed `tpot` of `defaults` if the limits of all targets are fixed, too.
    fn into_default_target(mut self, defaults: Option<Given<'_>>, targets: &[TargetConfig]) -> TargetConfig {
        let all_fixed = targets.iter().all(|target| target.limit == LimitConfig::Fixed);
        if let Some(given) = defaults
            && self.clear_unused_tpot()
            && all_fixed
        {
            given.reject_key("tpot", self.limit.fixed_reason(&given, "ttft"));
        }
        self.config
    }
}

/// Reads `key`, the name of an environment variable. Reports any other value without repeating it,
/// and shows `example` instead. Returns `None` if the key is absent or invalid.
pub(super) fn read_variable(given: &Given<'_>, key: &str, example: &str) -> Option<Arc<str>> {
    let given = given.get(key)?;
    match given.value {
        Value::Text(name) if is_variable_name(name) => Some(Arc::from(&**name)),
        // The error does not repeat the value, because it may be the credential itself.
        _ => {
            given.reject(format!(
                "expected the name of an environment variable, such as {example:?}, not the credential itself"
            ));
            None
        }
    }
}

/// Returns `true` if `name` has 1 to 100 ASCII letters, digits and underscores, does not start with
/// a digit, and does not look like a credential. A name looks like a credential if it is `hf_` and
/// at least 30 characters, or if it has at least 20 characters, among them a lower-case letter, a
/// digit, and either an upper-case letter or 16 characters without an underscore between them.
///
/// ```
/// use tidegate_config::is_variable_name;
///
/// assert!(is_variable_name("azure_openai_key_eastus2"));
/// assert!(!is_variable_name("gsk_0123456789abcdefABCDEF"));
/// ```
pub fn is_variable_name(name: &str) -> bool {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let has = |is_kind: fn(&u8) -> bool| name.bytes().any(|byte| is_kind(&byte));
    let random = name.len() >= 20
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_digit)
        && (has(u8::is_ascii_uppercase) || name.split('_').any(|word| word.len() >= 16));
    // Tokens of Hugging Face may have no digits.
    let hugging_face = name.strip_prefix("hf_").is_some_and(|token| token.len() >= 30);
    plain
        && !random
        && !hugging_face
        && (1..=100).contains(&name.len())
        && !name.starts_with(|first: char| first.is_ascii_digit())
}

/// Returns the base URLs of a target without `url`: those of the well-known provider of this name.
/// If the name is another one and the target is the only one of the configuration, returns an empty
/// list, which matches every URL.
///
/// # Errors
/// Returns what to write if there are several targets and the name is not that of a provider.
fn provider_urls(name: &str, is_only_target: bool) -> Result<Vec<String>, String> {
    if let Some(urls) = providers::base_urls(name) {
        return Ok(urls.iter().map(|url| (*url).to_owned()).collect());
    }
    if is_only_target {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = providers::names().collect();
    let advice = match suggest::nearest(name, &names) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("names with a URL of their own are {}", names.join(", ")),
    };
    Err(format!(
        "needs a \"url\" or \"models\" that select its requests, or url = \"none\" if only its slots are used; {advice}"
    ))
}

/// Reads `url` or `models`: a text, or a list of texts. Reports a list that is given and empty,
/// because it seems to match no request. Returns an empty list, which matches every request, if the
/// key is absent.
fn read_patterns(given: &Given<'_>, key: &str, rule: &TextRule<String>) -> Vec<String> {
    let Some(given) = given.get(key) else { return Vec::new() };
    if given.items().is_empty() {
        given.reject("the list is empty, so no request would match; remove the key to match every request");
    }
    rule.read_list(&given)
}

/// Accepts a base URL of a target, and converts it to its normal form.
const URL: TextRule<String> =
    TextRule { expected: "a base URL such as \"https://api.openai.com/v1\"", parse: parse_base_url };

/// Accepts a base URL of a pool, and converts it to its normal form. The host may be any text, such
/// as a number, because connections are made to the replicas only.
const POOL_URL: TextRule<String> =
    TextRule { parse: |text| BaseUrl::parse(text).map(|url| url.to_string()), ..URL };

/// Accepts the name of a model, in which `*` matches any text.
const MODEL_PATTERN: TextRule<String> = TextRule {
    expected: "the name of a model, in which * matches any text",
    parse: |text| parse_model(text).map(str::to_owned),
};

/// Accepts the name of one model, without `*`.
const MODEL: TextRule<Arc<str>> = TextRule {
    expected: "the name of one model",
    parse: |text| match text.contains('*') {
        true => Err("patterns belong in \"models\""),
        false => parse_model(text).map(Arc::from),
    },
};

/// Accepts the name of a request header that is forwarded, except for [`UNFORWARDABLE_HEADERS`].
const FORWARDED_HEADER: TextRule<HeaderName> = TextRule {
    expected: "the name of a request header such as \"x-tenant-id\"",
    parse: |name| {
        if name.contains('*') {
            return Err("patterns are not allowed; name each header");
        }
        let name: HeaderName = name.parse().map_err(|_| "it is not a header name")?;
        if UNFORWARDABLE_HEADERS.contains(&name.as_str()) {
            return Err("each connection sets this header itself; remove it");
        }
        Ok(name)
    },
};

/// The request headers that cannot be forwarded, because each connection sets them itself.
const UNFORWARDABLE_HEADERS: [&str; 11] = [
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

/// Returns the normal form of a base URL, or why it is invalid.
pub(super) fn parse_base_url(text: &str) -> Result<String, &'static str> {
    let url = BaseUrl::parse(text)?.to_string();
    let sent = match Url::parse(&url) {
        Err(ParseError::InvalidIpv4Address | ParseError::InvalidIpv6Address) => {
            return Err("its host is not a valid IP address");
        }
        sent => sent,
    };
    // Other hosts are not compared, because they may be names that only a pool resolves.
    if let (Ok(uri), Ok(sent)) = (url.parse::<Uri>(), sent)
        && matches!(sent.host(), Some(Host::Ipv4(_) | Host::Ipv6(_)))
    {
        url_check::check_host(&uri, &sent)?;
    }
    Ok(url)
}

/// Checks the name of a model (1 to 256 bytes, no control characters). Returns it, or why it is
/// invalid.
fn parse_model(text: &str) -> Result<&str, &'static str> {
    match text.len() {
        _ if text.contains(char::is_control) => Err("a name must not contain control characters"),
        0 => Err("a name must not be empty"),
        1..=MAX_MODEL => Ok(text),
        _ => Err("a name may have at most 256 bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::is_variable_name;
    use crate::Config;

    #[test]
    fn url_of_a_pool_may_have_a_number_as_its_host() {
        let read = |more: &str| {
            Config::from_toml(&format!("targets.llama = {{ url = \"http://70\", cap = 8{more} }}"))
        };
        assert!(read("").is_err());
        assert!(read(", pool = [\"http://10.0.0.1:8000\"]").is_ok());
    }

    #[test]
    fn credential_is_not_a_variable_name() {
        for name in ["AZURE_OPENAI_KEY_EASTUS2", "azure_openai_key_eastus2", "key", "_1"] {
            assert!(is_variable_name(name), "{name}");
        }
        let (lower, mixed) = ("0a1b2c3d".repeat(4), "0aB1cD2e".repeat(4));
        for prefix in ["sk_", "sk_live_", "gsk_", "a"] {
            for key in [&lower, &mixed] {
                assert!(!is_variable_name(&format!("{prefix}{key}")), "{prefix}");
            }
        }
        assert!(!is_variable_name(&format!("hf_{}", "aBcDeFgHiJ".repeat(3))));
        assert!(!is_variable_name("AIzaSy0aB1cD_2eF3gH4i_J5kL6mN7oP8qR9s"));
    }
}
