//! Suggests valid keys and names in place of unknown ones.

use super::{
    KeyTable, LIMIT, PERCENTILE, POOL, RATES, REPLICA, RETRY, SETTINGS, TARGET, TENANT, TOOL, TOP, TRANSPORT,
};
use crate::Lane;

/// Tables of keys, each with the words by which errors state where the keys of the table belong.
const LOCATIONS: &[(&str, &KeyTable)] = &[
    ("the top level", &TOP),
    ("\"targets.NAME\" or \"defaults\"", &SETTINGS),
    ("\"targets.NAME\"", &TARGET),
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

/// Returns what to write instead of the unknown key `given`, for the end of an error.
///
/// The text states the first of these that exists: the key of `valid` for which `given` is a
/// [`synonym`], the table that `given` belongs to, the key of `valid` that is most similar, or else
/// all keys of `valid`.
pub(crate) fn suggest_key(given: &str, valid: &[&str]) -> String {
    // Synonyms first: `limit` is a key of targets, but in a tenant it means `cap`.
    if let Some(key) = synonym(&normalize(given), valid) {
        return format!("did you mean {key:?}?");
    }
    if Lane::parse(given).is_some() {
        return "it belongs in \"lanes\" of a target or of \"defaults\"".to_owned();
    }
    if let Some((place, _)) = LOCATIONS.iter().find(|(_, table)| table.has(given)) {
        return format!("it belongs in {place}");
    }
    match nearest(given, valid) {
        Some(key) => format!("did you mean {key:?}?"),
        None => format!("the keys here are {}", valid.join(", ")),
    }
}

/// Returns what to write instead of the unknown name `given`: the most similar of `names`,
/// otherwise the first eight of them. Returns the text `none` if there are no names.
pub(crate) fn suggest_name(given: &str, names: &[&str], none: &str) -> String {
    const MAX_NAMES: usize = 8;
    if let Some(near) = nearest(given, names) {
        return format!("did you mean {near:?}?");
    }
    let shown = names.get(..MAX_NAMES).unwrap_or(names).join(", ");
    match names.len() {
        0 => none.to_owned(),
        1 => format!("there is only {shown}"),
        2..=MAX_NAMES => format!("known are {shown}"),
        more => format!("known are {shown} and {} more", more - MAX_NAMES),
    }
}

/// Returns the word of `valid` that `given` probably means, or `None` if no word is similar.
///
/// Similar words are, in this order: a [`synonym`], the word with the smallest edit distance if
/// that distance is at most a third of the word's length (or 1 for short words), and a word that
/// starts with `given` or with which `given` starts. Case, dashes and underscores are ignored.
pub(crate) fn nearest<'a>(given: &str, valid: &[&'a str]) -> Option<&'a str> {
    // Computing the distance takes time proportional to the product of both lengths.
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

/// Returns the key of `valid` that has the name `normalized` in other tools, or `None` if there is
/// none. `normalized` is lower case, without dashes and underscores.
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

/// Returns `true` if one word starts with the other and both have at least three letters.
fn shares_prefix(given: &str, key: &str) -> bool {
    given.len().min(key.len()) >= 3 && (given.starts_with(key) || key.starts_with(given))
}

/// Converts to lower case without dashes and underscores: `onFull`, `on-full` and `on_full` become
/// `onfull`.
fn normalize(key: &str) -> String {
    key.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect()
}
