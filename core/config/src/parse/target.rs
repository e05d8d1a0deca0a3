//! Reads targets.

use std::sync::Arc;

use http::HeaderName;

use super::fallback::{self, FallbackKeys};
use super::limit::LimitLayers;
use super::rates::{self, Budgets};
use super::{conflicts, pool, shares};
use crate::matching::{BaseUrl, TargetRule};
use crate::schema::declaration::{Group, names};
use crate::schema::given::{Given, Section};
use crate::schema::nearest;
use crate::schema::problems::Problems;
use crate::schema::setting::{InvalidValue, Scalar};
use crate::schema::tree::{Node, Value};
use crate::schema::{CAP, OWN, RATES, SETTINGS};
use crate::{Config, LimitConfig, TargetConfig, TargetMatch, Tokenizer, providers};

/// The settings that a target has if it does not set them itself.
pub(super) struct Inherited<'a> {
    pub(super) base: &'a TargetConfig,
    /// The limit of `defaults`.
    pub(super) limit: &'a LimitLayers,
    /// The given value of `defaults.fallback`.
    pub(super) fallback: Option<Given<'a>>,
    pub(super) budgets: &'a Budgets,
}

/// Reads `targets`, in the order given.
pub(super) fn read_targets(
    given: Option<Given<'_>>,
    inherited: &Inherited<'_>,
    problems: &Problems,
) -> Vec<TargetConfig> {
    let named = given.map(Given::named).unwrap_or_default();
    let is_only_target = named.len() == 1;
    let mut targets = Vec::with_capacity(named.len());
    let mut keys = Vec::with_capacity(named.len());
    let mut lines = Vec::with_capacity(named.len());
    for (name, given) in named {
        let before = problems.count();
        let mut fallback_keys = FallbackKeys::new(&given);
        let mut target = TargetConfig { name: name.into(), ..inherited.base.clone() };
        let mut limit = inherited.limit.for_target();
        lines.push(given.line);
        match given.value {
            Value::Table(_) => read_table(given, &mut target, &mut limit, is_only_target, inherited.budgets),
            _ => read_cap_only(given, &mut target, &mut limit, is_only_target),
        }
        fallback_keys.sound = problems.count() == before;
        keys.push(fallback_keys);
        targets.push(target);
    }
    fallback::resolve(&mut targets, &keys, inherited);
    conflicts::check_reachable(&targets, &lines, |at| keys.get(at).is_some_and(|keys| keys.sound), problems);
    targets
}

/// Reads `defaults`.
pub(super) fn read_defaults(
    given: Given<'_>,
    into: &mut TargetConfig,
    limit: &mut LimitLayers,
    budgets: &Budgets,
) {
    if let Some(section) = given.section(&names(&[&SETTINGS, &RATES])) {
        read_settings(&section, into, limit, budgets);
    }
}

/// Reads a target that is only its cap, such as `openai = 64`.
fn read_cap_only(given: Given<'_>, target: &mut TargetConfig, limit: &mut LimitLayers, is_only_target: bool) {
    let Some(cap) = given.read(|value| {
        usize::read(value, &CAP).map_err(|_| {
            InvalidValue::expected(format!(
                "a table, or the cap: a whole number from {} to {}",
                CAP.start(),
                CAP.end()
            ))
        })
    }) else {
        return;
    };
    target.cap = cap;
    limit.cap_given = true;
    set_limit(target, limit);
    clear_unused_tpot(target);
    match provider_urls(&target.name, is_only_target) {
        Ok(urls) => target.matches.urls = urls,
        Err(why) => given.reject(why),
    }
}

/// Reads a target that is a table.
fn read_table(
    given: Given<'_>,
    target: &mut TargetConfig,
    limit: &mut LimitLayers,
    is_only_target: bool,
    budgets: &Budgets,
) {
    let Some(section) = given.section(&names(&[&OWN, &SETTINGS, &RATES])) else { return };
    let slots_only =
        section.get("url").is_some_and(|given| matches!(given.value, Value::Text(text) if text == "none"));
    let expected = "a base URL such as \"https://api.openai.com/v1\"";
    let mut matches = TargetMatch {
        urls: if slots_only { Vec::new() } else { read_patterns(&section, "url", expected, parse_base_url) },
        models: read_patterns(
            &section,
            "models",
            "the name of a model, in which * matches any text",
            parse_model,
        ),
        slots_only,
    };
    if slots_only && section.has("models") {
        section.reject(&["models"], "with url = \"none\" the target takes no requests; remove one of them");
    }
    if let Some(given) = section.get("pool") {
        if slots_only {
            given.reject("with url = \"none\" the target takes no requests; remove one of them");
        }
        let (pool, cap_given) = pool::read_pool(given);
        limit.pool_cap_given = Some(cap_given);
        target.pool = Some(pool);
    }
    if !section.has("url") {
        let urls = match &target.pool {
            Some(pool) => pool::urls_by_name(&target.name, pool),
            None => provider_urls(&target.name, is_only_target),
        };
        match urls {
            Ok(urls) => matches.urls = urls,
            Err(_) if section.has("models") && target.pool.is_none() => {}
            Err(why) => section.reject(&[], why),
        }
    }
    target.matches = matches;
    read_fallback_keys(&section, target);
    read_settings(&section, target, limit, budgets);
    check_tpot(&section, target, limit);
    conflicts::check_objective(&section, target);
}

/// Reads the keys for calls that fall back to the target.
fn read_fallback_keys(section: &Section<'_>, target: &mut TargetConfig) {
    if let Some(given) = section.get("model") {
        let expected = "the name of one model";
        target.model = given.read(|value| match value {
            Value::Text(text) if text.contains('*') => {
                Err(InvalidValue::expected(expected).hint("patterns belong in \"models\""))
            }
            Value::Text(text) => {
                parse_model(text).map(Arc::from).map_err(|why| InvalidValue::expected(expected).hint(why))
            }
            _ => Err(InvalidValue::expected(expected)),
        });
        let taken =
            |model: &str| TargetRule::new(&target.matches).is_ok_and(|rule| rule.matches_model(model));
        if target.model.as_deref().is_some_and(|model| !taken(model)) {
            given.reject("is not one of the target's \"models\"; add it there, or remove it");
        }
    }
    target.key_env = read_key_env(section, "SPARE_API_KEY");
    target.forward_headers = read_strings(
        section,
        "forward_headers",
        "the name of a request header such as \"x-tenant-id\"",
        parse_forwarded_header,
    );
}

/// Reads `key_env`, the name of an environment variable.
pub(super) fn read_key_env(section: &Section<'_>, example: &str) -> Option<Arc<str>> {
    let given = section.get("key_env")?;
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

/// Reads `url` or `models`: a string or a non-empty list.
fn read_patterns(
    section: &Section<'_>,
    key: &str,
    expected: &str,
    check: impl Fn(&str) -> Result<String, String>,
) -> Vec<String> {
    if let Some(given) =
        section.get(key).filter(|given| matches!(given.value, Value::List(items) if items.is_empty()))
    {
        given.reject("the list is empty, so no request would match; remove the key to match every request");
    }
    read_strings(section, key, expected, check)
}

/// Reads a string or a list of strings. Reports each invalid item.
fn read_strings<T>(
    section: &Section<'_>,
    key: &str,
    expected: &str,
    check: impl Fn(&str) -> Result<T, String>,
) -> Vec<T> {
    let Some(given) = section.get(key) else { return Vec::new() };
    let reader = |value: &Value| match value {
        Value::Text(text) => check(text).map_err(|why| InvalidValue::expected(expected).hint(why)),
        _ => Err(InvalidValue::expected(expected)),
    };
    let Value::List(items) = given.value else { return given.read(reader).into_iter().collect() };
    let item = |(index, item): (usize, &Node)| {
        let path = format!("{}[{index}]", given.path);
        Given { path, line: item.line, value: &item.value, problems: given.problems }.read(reader)
    };
    items.iter().enumerate().filter_map(item).collect()
}

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

/// Parses the name of a header to forward.
///
/// # Errors
/// Why the header cannot be forwarded.
fn parse_forwarded_header(name: &str) -> Result<HeaderName, String> {
    if name.contains('*') {
        return Err("patterns are not allowed; name each header".into());
    }
    let name: HeaderName = name.parse().map_err(|_| "it is not a header name")?;
    if CONNECTION_HEADERS.contains(&name.as_str()) {
        return Err("each connection sets this header itself; remove it".into());
    }
    Ok(name)
}

pub(super) fn parse_base_url(text: &str) -> Result<String, String> {
    BaseUrl::parse(text).map(|prefix| prefix.to_string()).map_err(str::to_owned)
}

fn parse_model(text: &str) -> Result<String, String> {
    if text.is_empty() {
        Err("a name must not be empty".into())
    } else if text.len() > 200 {
        Err("a name may have at most 200 bytes".into())
    } else {
        Ok(text.to_owned())
    }
}

fn read_settings(section: &Section<'_>, into: &mut TargetConfig, limit: &mut LimitLayers, budgets: &Budgets) {
    // An invalid name does not leave the inherited one in force.
    for (key, name) in [("budget", &mut into.budget), ("fallback", &mut into.fallback)] {
        if section.has(key) {
            *name = None;
        }
    }
    into.read(section);
    check_tokenizer(section, into);
    shares::no_default_floor(section, &mut into.default_tenant);
    rates::read_rates(section, into, budgets);
    shares::check_floors(section, into);
    conflicts::check_times(section, into);
    read_limit(section, into, limit);
}

/// Reads `limit`. The cap and the objectives must have been read before.
fn read_limit(section: &Section<'_>, into: &mut TargetConfig, limit: &mut LimitLayers) {
    limit.read(section);
    if into.matches.slots_only {
        limit.force_fixed(
            section,
            "with url = \"none\" the limit cannot adapt, because no calls are measured; set a \"cap\"",
        );
    }
    if into.pool.is_some() && !limit.cap_given {
        into.cap = *CAP.end();
    }
    let (ceiling, named) = limit_cap(into);
    limit.check_order(section, ceiling, named);
    set_limit(into, limit);
}

/// Sets the limit of the target.
fn set_limit(target: &mut TargetConfig, limit: &LimitLayers) {
    let objective = target.ttft.is_some() || target.lanes.iter().any(|lane| lane.ttft.is_some());
    target.limit = limit.resolve(limit_cap(target).0, objective);
}

/// Returns the upper bound of a limit and the key that sets it. In pools each replica has a limit.
fn limit_cap(target: &TargetConfig) -> (usize, &'static str) {
    target.pool.as_ref().map_or((target.cap, "cap"), |pool| (pool.cap, "pool.cap"))
}

/// Rejects a `tpot` that the target sets itself if its limit is fixed.
fn check_tpot(section: &Section<'_>, target: &mut TargetConfig, limit: &LimitLayers) {
    let idle = target.tpot.is_some() && target.limit == LimitConfig::Fixed;
    if let Some(given) = section.get("tpot").filter(|_| idle) {
        if target.matches.slots_only {
            given.reject("with url = \"none\" there are no tokens; remove it");
        } else {
            given.reject(limit.fixed_reason("ttft"));
        }
    }
    clear_unused_tpot(target);
}

/// Removes an inherited `tpot` if the limit is fixed.
fn clear_unused_tpot(target: &mut TargetConfig) {
    if target.limit == LimitConfig::Fixed {
        target.tpot = None;
    }
}

/// Removes the `tpot` of targets that are not configured if their limit is fixed. Rejects a `tpot`
/// of `defaults` that applies to no target.
pub(super) fn resolve_default_tpot(defaults: Option<Given<'_>>, config: &mut Config, limit: &LimitLayers) {
    let fixed = |target: &TargetConfig| target.limit == LimitConfig::Fixed;
    let idle = fixed(&config.default_target) && config.targets.iter().all(fixed);
    if let Some(given) = defaults.and_then(|given| given.child("tpot"))
        && idle
        && config.default_target.tpot.is_some()
    {
        given.reject(limit.fixed_reason("ttft"));
    }
    clear_unused_tpot(&mut config.default_target);
}

/// Rejects the tokenizer `bpe` in builds without its vocabularies.
fn check_tokenizer(section: &Section<'_>, target: &mut TargetConfig) {
    if target.tokenizer == Tokenizer::Bpe && !cfg!(feature = "bpe") {
        target.tokenizer = Tokenizer::Learned;
        section.reject(
            &["tokenizer"],
            "\"bpe\" needs a build with the feature \"bpe\"; use \"learned\" or \"vllm\"",
        );
    }
}
