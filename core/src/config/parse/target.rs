//! Targets, their retry settings and their tenants.

use std::sync::Arc;

use super::section::{Section, Spot};
use super::tree::Value;
use super::value::{Bad, duration, number, one_of, or_off, whole};
use super::{CAP, ON_FULL, QUEUE, Tenants, conflicts, nearest};
use crate::config::matching::Prefix;
use crate::config::{RetryConfig, TargetConfig, TargetMatch, TenantConfig, known};

/// The keys that say which requests are a target's.
pub(super) const MATCHES: &[&str] = &["url", "models"];
/// The keys that say how a target behaves; `defaults` takes them too.
pub(super) const SETTINGS: &[&str] = &[
    "cap",
    "queue",
    "wait",
    "on_full",
    "deadline",
    "first_token",
    "idle",
    "stall",
    "ttft",
    "aging",
    "retry",
    "tenants",
    "default_tenant",
];
pub(super) const RETRY: &[&str] = &["attempts", "base", "max", "ratio", "reserve"];
pub(super) const TENANT: &[&str] = &["weight", "cap", "queue"];

/// `targets`: in the order given, each with `base` under its own settings.
pub(super) fn targets(spot: Spot<'_>, base: &TargetConfig) -> Vec<TargetConfig> {
    let problems = spot.problems;
    let named = spot.named();
    let alone = named.len() == 1;
    let mut targets = Vec::with_capacity(named.len());
    // Those read without a problem: of the others it is not known what they match.
    let mut matching = Vec::with_capacity(named.len());
    for (name, spot) in named {
        let line = spot.line;
        let before = problems.count();
        let mut target = TargetConfig { name: name.into(), ..base.clone() };
        match spot.value {
            Value::Table(_) => table(spot, &mut target, alone),
            _ => bare(spot, &mut target, alone),
        }
        if problems.count() == before && !target.matches.slots_only {
            matching.push((target.name.clone(), line, target.matches.clone()));
        }
        targets.push(target);
    }
    conflicts::shadowed(&matching, problems);
    targets
}

/// `defaults`: the settings of a target, without what it matches.
pub(super) fn defaults(spot: Spot<'_>, into: &mut TargetConfig) {
    if let Some(section) = spot.section(SETTINGS) {
        settings(&section, into);
    }
}

/// `openai = 64`: a cap, for a target that is known by its name.
fn bare(spot: Spot<'_>, target: &mut TargetConfig, alone: bool) {
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
    match by_name(&target.name, alone) {
        Ok(urls) => target.matches.urls = urls,
        Err(why) => spot.complain(why),
    }
}

fn table(spot: Spot<'_>, target: &mut TargetConfig, alone: bool) {
    let keys: Vec<&str> = MATCHES.iter().chain(SETTINGS).copied().collect();
    let Some(section) = spot.section(&keys) else { return };
    let slots_only =
        section.get("url").is_some_and(|spot| matches!(spot.value, Value::Text(text) if text == "none"));
    let expected = "a base URL such as \"https://api.openai.com/v1\"";
    let mut matches = TargetMatch {
        urls: if slots_only { Vec::new() } else { strings(&section, "url", expected, url) },
        models: strings(&section, "models", "the name of a model, in which * stands for anything", model),
        slots_only,
    };
    if slots_only && section.has("models") {
        section.complain(
            &["models"],
            "url is \"none\", so no request is this target's, whatever its model; drop one",
        );
    }
    if !section.has("url") {
        match by_name(&target.name, alone) {
            Ok(urls) => matches.urls = urls,
            // The models alone tell whose a request is.
            Err(_) if section.has("models") => {}
            Err(why) => section.complain(&[], why),
        }
    }
    target.matches = matches;
    settings(&section, target);
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

/// A string, or a list of at least one.
fn strings(
    section: &Section<'_>,
    key: &str,
    expected: &str,
    check: impl Fn(&str) -> Result<String, String>,
) -> Vec<String> {
    let Some(spot) = section.get(key) else { return Vec::new() };
    let reader = |value: &Value| match value {
        Value::Text(text) => check(text).map_err(|why| Bad::expected(expected).hint(why)),
        _ => Err(Bad::expected(expected)),
    };
    let Value::List(items) = spot.value else { return spot.read(reader).into_iter().collect() };
    if items.is_empty() {
        spot.complain("the list is empty, so nothing would match; leave the key out to match everything");
    }
    let item = |(index, item): (usize, &super::Node)| {
        let path = format!("{}[{index}]", spot.path);
        Spot { path, line: item.line, value: &item.value, problems: spot.problems }.read(reader)
    };
    items.iter().enumerate().filter_map(item).collect()
}

fn url(text: &str) -> Result<String, String> {
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

fn settings(section: &Section<'_>, into: &mut TargetConfig) {
    section.set("cap", &mut into.cap, whole(CAP));
    section.set("queue", &mut into.queue, whole(QUEUE));
    section.set("wait", &mut into.wait, or_off(duration));
    section.set("on_full", &mut into.on_full, one_of(ON_FULL));
    section.set("deadline", &mut into.deadline, duration);
    section.set("first_token", &mut into.first_token, or_off(duration));
    section.set("idle", &mut into.idle, or_off(duration));
    section.set("stall", &mut into.stall, or_off(duration));
    section.set("ttft", &mut into.ttft, or_off(duration));
    section.set("aging", &mut into.aging, duration);
    if let Some(spot) = section.get("retry") {
        retry(spot, &mut into.retry);
    }
    if let Some(spot) = section.get("default_tenant") {
        tenant(spot, &mut into.default_tenant);
    }
    if let Some(spot) = section.get("tenants") {
        tenants(spot, &mut into.tenants);
    }
    conflicts::times(section, into);
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

/// Tenants by id, each over what a lower layer said of it, key by key.
pub(super) fn tenants(spot: Spot<'_>, into: &mut Tenants) {
    for (id, spot) in spot.named() {
        tenant(spot, into.entry(Arc::from(id)).or_default());
    }
}

fn tenant(spot: Spot<'_>, into: &mut TenantConfig) {
    let Some(section) = spot.section(TENANT) else { return };
    // A weight near zero would make start tags run away to infinity.
    section.set("weight", &mut into.weight, number(0.001..=1e6));
    section.set("cap", &mut into.cap, or_off(whole(CAP)));
    section.set("queue", &mut into.queue, or_off(whole(QUEUE)));
}
