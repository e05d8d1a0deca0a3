//! Suggests valid keys and names in place of unknown ones.

use super::{
    KeyTable, LIMIT, OWN, PERCENTILE, POOL, RATES, REPLICA, RETRY, SETTINGS, TENANT, TOOL, TOP, TRANSPORT,
};
use crate::Lane;

/// Where the keys of each table belong.
const LOCATIONS: &[(&str, &KeyTable)] = &[
    ("the top level", &TOP),
    ("\"targets.NAME\" or \"defaults\"", &SETTINGS),
    ("\"targets.NAME\"", &OWN),
    ("\"pool\" of a target", &POOL),
    ("a replica of a \"pool\"", &REPLICA),
    ("\"retry\" of a target or of \"defaults\"", &RETRY),
    ("\"targets.NAME\", \"defaults\" or \"budgets.NAME\"", &RATES),
    ("\"tenants.ID\" or \"default_tenant\"", &TENANT),
    ("\"tools.NAME\"", &TOOL),
    ("\"limit\" of a target, of \"defaults\" or of a tool", &LIMIT),
    ("\"detector\" of a limit", &PERCENTILE),
    ("\"transport\"", &TRANSPORT),
];

/// Returns what to write instead of an unknown key: the valid key that another tool calls so,
/// otherwise the table where the key belongs, otherwise the most similar valid key, otherwise all
/// valid keys.
pub(crate) fn advice(given: &str, valid: &[&str]) -> String {
    // First: `limit` belongs to targets, and yet in a tenant it means the cap.
    if let Some(key) = synonym(&normalize(given), valid) {
        return format!("did you mean {key:?}?");
    }
    if Lane::parse(given).is_some() {
        return "it belongs in \"lanes\" of a target or of \"defaults\"".to_owned();
    }
    if let Some((place, _)) = LOCATIONS.iter().find(|(_, table)| table.names().any(|name| name == given)) {
        return format!("it belongs in {place}");
    }
    match nearest(given, valid) {
        Some(key) => format!("did you mean {key:?}?"),
        None => format!("the keys here are {}", valid.join(", ")),
    }
}

/// Returns what to write instead of an unknown name: the most similar of `names`, otherwise the
/// first of them, or `none` if there are none.
pub(crate) fn suggest_name(given: &str, names: &[&str], none: &str) -> String {
    const SHOWN: usize = 8;
    if let Some(near) = nearest(given, names) {
        return format!("did you mean {near:?}?");
    }
    let shown = names.get(..SHOWN).unwrap_or(names).join(", ");
    match names.len() {
        0 => none.to_owned(),
        1 => format!("there is only {shown}"),
        2..=SHOWN => format!("known are {shown}"),
        more => format!("known are {shown} and {} more", more - SHOWN),
    }
}

/// Returns the most similar of the valid words: a synonym, a word that differs in case, dashes and
/// underscores or in at most a third of its letters, or one that starts with the other.
pub(crate) fn nearest<'a>(given: &str, valid: &[&'a str]) -> Option<&'a str> {
    // Nothing this long is a typing mistake, and the distance costs the product of both lengths.
    if given.len() > 64 {
        return None;
    }
    let given = normalize(given);
    if let Some(key) = synonym(&given, valid) {
        return Some(key);
    }
    valid
        .iter()
        .map(|key| (strsim::osa_distance(&given, &normalize(key)), *key))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, key)| *distance <= (key.len() / 3).max(1))
        .map(|(_, key)| key)
        .or_else(|| valid.iter().copied().find(|key| shares_prefix(&given, &normalize(key))))
}

/// Returns the valid key that another tool calls so. `normalized` has no dashes and underscores.
fn synonym<'a>(normalized: &str, valid: &[&'a str]) -> Option<&'a str> {
    let ours = match normalized {
        "baseurl" | "apibase" | "host" => "url",
        "endpoints" | "backends" | "servers" | "members" => "replicas",
        "limit" | "concurrency" | "maxconcurrency" | "maxconcurrent" | "maxlimit" => "cap",
        "initial" | "initiallimit" => "start",
        "floor" | "minlimit" => "min",
        "backoffratio" => "decrease",
        "percentile" => "quantile",
        "deadband" => "band",
        "slo" => "ttft",
        "itl" => "tpot",
        "timeout" => "deadline",
        "maxqueue" => "queue",
        "maxattempts" => "attempts",
        "retries" | "maxretries" => "retry",
        "requestsperminute" | "ratelimit" | "rps" => "rpm",
        "requestsperday" => "rpd",
        "tokensperminute" => "tpm",
        "tokensperday" => "tpd",
        "maxinput" => "max_prompt",
        "background" => "batch",
        "realtime" => "interactive",
        "normal" => "standard",
        _ => return None,
    };
    valid.iter().copied().find(|key| *key == ours)
}

fn shares_prefix(given: &str, key: &str) -> bool {
    given.len().min(key.len()) >= 3 && (given.starts_with(key) || key.starts_with(given))
}

/// Removes case, dashes and underscores: `onFull`, `on-full` and `on_full` are the same word.
fn normalize(key: &str) -> String {
    key.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect()
}
