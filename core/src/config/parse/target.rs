//! Targets and their retry settings.

use std::sync::Arc;

use http::HeaderName;

use super::fallback::{self, Words};
use super::limit::Said;
use super::problems::Problems;
use super::rates::{self, Budgets, RATES};
use super::section::{Section, Spot};
use super::tree::Value;
use super::value::{Bad, duration, number, one_of, or_off, whole};
use super::{CAP, ON_FULL, QUEUE, admission, conflicts, nearest, pool, shares};
use crate::config::matching::{Prefix, Rule};
use crate::config::{Config, LimitConfig, RetryConfig, TargetConfig, TargetMatch, known};

/// The keys that say which requests are a target's, and how it is called by those that are not.
pub(super) const OWN: &[&str] = &["url", "models", "model", "key_env", "forward_headers", "pool"];
/// The keys that say how a target behaves; `defaults` takes them too, and [`RATES`].
pub(super) const SETTINGS: &[&str] = &[
    "cap",
    "limit",
    "queue",
    "wait",
    "on_full",
    "deadline",
    "first_token",
    "idle",
    "stall",
    "ttft",
    "tpot",
    "aging",
    "retry",
    "tenants",
    "default_tenant",
    "backlog",
    "lanes",
    "cost",
    "short_bias",
    "reclaim",
    "predict",
    "max_prompt",
    "budget",
    "kv_tokens",
    "kv_headroom",
    "tokenizer",
    "ask_usage",
    "fallback",
];
pub(super) const RETRY: &[&str] = &["attempts", "base", "max", "ratio", "reserve"];

/// What lies under every target's own settings.
pub(super) struct Below<'a> {
    pub(super) base: &'a TargetConfig,
    /// What `defaults` says of the limit.
    pub(super) limit: &'a Said,
    /// Where `defaults` names a fallback.
    pub(super) fallback: Option<Spot<'a>>,
    pub(super) budgets: &'a Budgets,
}

/// `targets`: in the order given, each with what is `below` under its own settings.
pub(super) fn targets(spot: Option<Spot<'_>>, below: &Below<'_>, problems: &Problems) -> Vec<TargetConfig> {
    let named = spot.map(Spot::named).unwrap_or_default();
    let alone = named.len() == 1;
    let mut targets = Vec::with_capacity(named.len());
    let mut words = Vec::with_capacity(named.len());
    let mut lines = Vec::with_capacity(named.len());
    for (name, spot) in named {
        let before = problems.count();
        let mut said = Words::of(&spot);
        let mut target = TargetConfig { name: name.into(), ..below.base.clone() };
        let mut limit = below.limit.inherited();
        lines.push(spot.line);
        match spot.value {
            Value::Table(_) => table(spot, &mut target, &mut limit, alone, below.budgets),
            _ => bare(spot, &mut target, &mut limit, alone),
        }
        said.sound = problems.count() == before;
        words.push(said);
        targets.push(target);
    }
    fallback::resolve(&mut targets, &words, below);
    conflicts::shadowed(&targets, &lines, |at| words.get(at).is_some_and(|words| words.sound), problems);
    targets
}

/// `defaults`: the settings of a target, without what it matches.
pub(super) fn defaults(spot: Spot<'_>, into: &mut TargetConfig, limit: &mut Said, budgets: &Budgets) {
    if let Some(section) = spot.section(&[SETTINGS, RATES].concat()) {
        settings(&section, into, limit, budgets);
    }
}

/// `openai = 64`: a cap, for a target that is known by its name.
fn bare(spot: Spot<'_>, target: &mut TargetConfig, limit: &mut Said, alone: bool) {
    let cap = whole(CAP);
    let Some(cap) = spot.read(|value| {
        cap(value).map_err(|_| {
            Bad::expected(format!(
                "a table, or just the cap: a whole number from {} to {}",
                CAP.start(),
                CAP.end()
            ))
        })
    }) else {
        return;
    };
    target.cap = cap;
    limit.capped = true;
    in_force(target, limit);
    drop_tpot(target);
    match by_name(&target.name, alone) {
        Ok(urls) => target.matches.urls = urls,
        Err(why) => spot.complain(why),
    }
}

fn table(spot: Spot<'_>, target: &mut TargetConfig, limit: &mut Said, alone: bool, budgets: &Budgets) {
    let keys: Vec<&str> = [OWN, SETTINGS, RATES].concat();
    let Some(section) = spot.section(&keys) else { return };
    let slots_only =
        section.get("url").is_some_and(|spot| matches!(spot.value, Value::Text(text) if text == "none"));
    let expected = "a base URL such as \"https://api.openai.com/v1\"";
    let mut matches = TargetMatch {
        urls: if slots_only { Vec::new() } else { patterns(&section, "url", expected, url) },
        models: patterns(&section, "models", "the name of a model, in which * stands for anything", model),
        slots_only,
    };
    if slots_only && section.has("models") {
        section.complain(
            &["models"],
            "url is \"none\", so no request is this target's, whatever its model; drop one",
        );
    }
    if let Some(spot) = section.get("pool") {
        if slots_only {
            spot.complain("url is \"none\", so no call is this target's that a replica could take; drop one");
        }
        let said = pool::read(spot);
        limit.pool_capped = Some(said.capped);
        target.pool = Some(said.pool);
    }
    if !section.has("url") {
        let urls = match &target.pool {
            Some(pool) => pool::by_name(&target.name, pool),
            None => by_name(&target.name, alone),
        };
        match urls {
            Ok(urls) => matches.urls = urls,
            // The models alone tell whose a request is.
            Err(_) if section.has("models") && target.pool.is_none() => {}
            Err(why) => section.complain(&[], why),
        }
    }
    target.matches = matches;
    as_fallback(&section, target);
    settings(&section, target, limit, budgets);
    tpot(&section, target, limit);
    conflicts::objective(&section, target);
}

/// How calls come here that are another target's.
fn as_fallback(section: &Section<'_>, target: &mut TargetConfig) {
    if let Some(spot) = section.get("model") {
        let expected = "the name of one model";
        target.model = spot.read(|value| match value {
            Value::Text(text) if text.contains('*') => {
                Err(Bad::expected(expected).hint("patterns belong in \"models\""))
            }
            Value::Text(text) => model(text).map(Arc::from).map_err(|why| Bad::expected(expected).hint(why)),
            _ => Err(Bad::expected(expected)),
        });
        let taken = |model: &str| Rule::new(&target.matches).is_ok_and(|rule| rule.takes_model(model));
        if target.model.as_deref().is_some_and(|model| !taken(model)) {
            spot.complain("is none of this target's \"models\"; add it there, or leave it out");
        }
    }
    if let Some(spot) = section.get("key_env") {
        match spot.value {
            Value::Text(name) if is_variable(name) => target.key_env = Some(Arc::from(&**name)),
            // What was given is not shown, however short: it may be the credential.
            _ => spot.complain(
                "expected the name of an environment variable, such as \"SPARE_API_KEY\", and not the credential itself",
            ),
        }
    }
    target.forward_headers = strings(
        section,
        "forward_headers",
        "the name of a request header such as \"x-tenant-id\"",
        forwardable,
    );
}

/// Whether this can be a variable's name, and is unlikely to be a credential in its place.
pub(super) fn is_variable(name: &str) -> bool {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let random = name.len() >= 20
        && name.bytes().any(|byte| byte.is_ascii_lowercase())
        && name.bytes().any(|byte| byte.is_ascii_digit());
    plain
        && !random
        && (1..=100).contains(&name.len())
        && !name.starts_with(|first: char| first.is_ascii_digit())
}

/// The base URLs of a provider that is known by name. A gate's only target may match everything; among several, one that did
/// so by accident would swallow what is meant for others.
fn by_name(name: &str, alone: bool) -> Result<Vec<String>, String> {
    if let Some(urls) = known::base_urls(name) {
        return Ok(urls.iter().map(|url| (*url).to_owned()).collect());
    }
    if alone {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = known::names().collect();
    let advice = match nearest::nearest(name, &names) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("known without one are {}", names.join(", ")),
    };
    Err(format!(
        "needs a \"url\" or \"models\" to tell its requests by, or url = \"none\" where only its slots are held; {advice}"
    ))
}

/// Reads `url` or `models`: a string or a non-empty list.
fn patterns(
    section: &Section<'_>,
    key: &str,
    expected: &str,
    check: impl Fn(&str) -> Result<String, String>,
) -> Vec<String> {
    if let Some(spot) =
        section.get(key).filter(|spot| matches!(spot.value, Value::List(items) if items.is_empty()))
    {
        spot.complain("the list is empty, so nothing would match; leave the key out to match everything");
    }
    strings(section, key, expected, check)
}

/// Reads a string or a list of strings. Reports each invalid item.
fn strings<T>(
    section: &Section<'_>,
    key: &str,
    expected: &str,
    check: impl Fn(&str) -> Result<T, String>,
) -> Vec<T> {
    let Some(spot) = section.get(key) else { return Vec::new() };
    let reader = |value: &Value| match value {
        Value::Text(text) => check(text).map_err(|why| Bad::expected(expected).hint(why)),
        _ => Err(Bad::expected(expected)),
    };
    let Value::List(items) = spot.value else { return spot.read(reader).into_iter().collect() };
    let item = |(index, item): (usize, &super::Node)| {
        let path = format!("{}[{index}]", spot.path);
        Spot { path, line: item.line, value: &item.value, problems: spot.problems }.read(reader)
    };
    items.iter().enumerate().filter_map(item).collect()
}

/// Headers that users cannot name, because the gate or the connection sets them.
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

/// Parses the name of a header that may be forwarded. The error says why it may not.
fn forwardable(name: &str) -> Result<HeaderName, String> {
    if name.contains('*') {
        return Err("patterns are not allowed; name each header".into());
    }
    let name: HeaderName = name.parse().map_err(|_| "this is no header name")?;
    if CONNECTION_HEADERS.contains(&name.as_str()) {
        return Err("each connection writes this header itself; leave it out".into());
    }
    Ok(name)
}

pub(super) fn url(text: &str) -> Result<String, String> {
    Prefix::parse(text).map(|prefix| prefix.to_string()).map_err(str::to_owned)
}

fn model(text: &str) -> Result<String, String> {
    if text.is_empty() {
        Err("a name must not be empty".into())
    } else if text.len() > 200 {
        Err("a name may have at most 200 bytes".into())
    } else {
        Ok(text.to_owned())
    }
}

fn settings(section: &Section<'_>, into: &mut TargetConfig, limit: &mut Said, budgets: &Budgets) {
    section.set("cap", &mut into.cap, whole(CAP));
    section.set("queue", &mut into.queue, whole(QUEUE));
    section.set("wait", &mut into.wait, or_off(duration));
    section.set("on_full", &mut into.on_full, one_of(ON_FULL));
    section.set("deadline", &mut into.deadline, duration);
    section.set("first_token", &mut into.first_token, or_off(duration));
    section.set("idle", &mut into.idle, or_off(duration));
    section.set("stall", &mut into.stall, or_off(duration));
    section.set("ttft", &mut into.ttft, or_off(duration));
    section.set("tpot", &mut into.tpot, or_off(duration));
    section.set("aging", &mut into.aging, duration);
    if let Some(spot) = section.get("retry") {
        retry(spot, &mut into.retry);
    }
    if let Some(spot) = section.get("default_tenant") {
        shares::other_tenants(spot, &mut into.default_tenant);
    }
    if let Some(spot) = section.get("tenants") {
        shares::tenants(spot, &mut into.tenants);
    }
    if let Some(spot) = section.get("lanes") {
        shares::lanes(spot, &mut into.lanes);
    }
    admission::read(section, into);
    rates::of_target(section, into, budgets);
    shares::floors(section, into);
    conflicts::times(section, into);
    conflicts::lane_times(section, into);
    limits(section, into, limit);
}

/// `limit`, once the cap and the objectives are known.
fn limits(section: &Section<'_>, into: &mut TargetConfig, limit: &mut Said) {
    limit.read(section);
    if into.matches.slots_only {
        limit.cannot_adapt(
            section,
            "slots held by hand say nothing that a limit could learn from; set a \"cap\"",
        );
    }
    if into.pool.is_some() && !limit.capped {
        into.cap = *CAP.end();
    }
    let (ceiling, named) = ceiling(into);
    limit.order(section, ceiling, named);
    in_force(into, limit);
}

/// Settles the limit.
fn in_force(target: &mut TargetConfig, limit: &Said) {
    let objective = target.ttft.is_some() || target.lanes.iter().any(|lane| lane.ttft.is_some());
    target.limit = limit.in_force(ceiling(target).0, objective);
}

/// The most slots that one limit can have, and the key that says so: of a pool each replica has a limit.
fn ceiling(target: &TargetConfig) -> (usize, &'static str) {
    target.pool.as_ref().map_or((target.cap, "cap"), |pool| (pool.cap, "pool.cap"))
}

/// Says, where a target sets a TPOT objective itself, that nothing keeps to it.
fn tpot(section: &Section<'_>, target: &mut TargetConfig, limit: &Said) {
    let idle = target.tpot.is_some() && target.limit == LimitConfig::Fixed;
    if let Some(spot) = section.get("tpot").filter(|_| idle) {
        if target.matches.slots_only {
            spot.complain("slots held by hand have no tokens; drop it");
        } else {
            spot.complain(limit.why_fixed("ttft"));
        }
    }
    drop_tpot(target);
}

/// A TPOT objective that was inherited gives way to a limit that nothing moves.
fn drop_tpot(target: &mut TargetConfig) {
    if target.limit == LimitConfig::Fixed {
        target.tpot = None;
    }
}

/// Settles the objective of targets that nobody configured, once those that were have inherited it; says where it is nobody's.
pub(super) fn default_tpot(defaults: Option<Spot<'_>>, config: &mut Config, limit: &Said) {
    let fixed = |target: &TargetConfig| target.limit == LimitConfig::Fixed;
    let idle = fixed(&config.default_target) && config.targets.iter().all(fixed);
    if let Some(spot) = defaults.and_then(|spot| spot.child("tpot"))
        && idle
        && config.default_target.tpot.is_some()
    {
        spot.complain(limit.why_fixed("ttft"));
    }
    drop_tpot(&mut config.default_target);
}

fn retry(spot: Spot<'_>, into: &mut RetryConfig) {
    let Some(section) = spot.section(RETRY) else { return };
    section.set("attempts", &mut into.attempts, whole(1..=100));
    section.set("base", &mut into.base, duration);
    section.set("max", &mut into.max, duration);
    section.set("ratio", &mut into.ratio, number(0.0..=10.0));
    section.set("reserve", &mut into.reserve, whole(0..=10_000));
    conflicts::backoff(&section, into);
}
