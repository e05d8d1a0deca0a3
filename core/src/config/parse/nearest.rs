//! What to say about a key that does not exist.

use super::{KeyLocation, PLACES};

/// Words of other tools for the same thing.
const SYNONYMS: [(&str, &str); 35] = [
    ("baseurl", "url"),
    ("apibase", "url"),
    ("host", "url"),
    ("endpoints", "replicas"),
    ("backends", "replicas"),
    ("servers", "replicas"),
    ("members", "replicas"),
    ("limit", "cap"),
    ("concurrency", "cap"),
    ("maxconcurrency", "cap"),
    ("maxconcurrent", "cap"),
    ("maxlimit", "cap"),
    ("initial", "start"),
    ("initiallimit", "start"),
    ("floor", "min"),
    ("minlimit", "min"),
    ("backoffratio", "decrease"),
    ("percentile", "quantile"),
    ("deadband", "band"),
    ("slo", "ttft"),
    ("itl", "tpot"),
    ("timeout", "deadline"),
    ("maxqueue", "queue"),
    ("maxattempts", "attempts"),
    ("retries", "retry"),
    ("maxretries", "retry"),
    ("requestsperminute", "rpm"),
    ("requestsperday", "rpd"),
    ("tokensperminute", "tpm"),
    ("tokensperday", "tpd"),
    ("ratelimit", "rpm"),
    ("maxinput", "max_prompt"),
    ("background", "batch"),
    ("realtime", "interactive"),
    ("normal", "standard"),
];

/// Another tool's word for a key that is valid here; else where the key does belong; else the nearest of the valid ones, where
/// one is near; else all of them.
pub(super) fn advice(given: &str, valid: &[&str]) -> String {
    // First: `limit` belongs to targets, and yet in a tenant it means the cap.
    if let Some(key) = synonym(&normalize(given), valid) {
        return format!("did you mean {key:?}?");
    }
    if let Some(KeyLocation { described, .. }) = PLACES.iter().find(|place| place.keys.contains(&given)) {
        return format!("it belongs in {described}");
    }
    match nearest(given, valid) {
        Some(key) => format!("did you mean {key:?}?"),
        None => format!("the keys here are {}", valid.join(", ")),
    }
}

/// What to say of a name that none of these is: the nearest, or what there is.
pub(super) fn suggest_name(given: &str, names: &[&str], none: &str) -> String {
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

/// The nearest of some words: a synonym, the same but for case, dashes and underscores, at most a third of its letters off, or
/// one that begins the other.
pub(super) fn nearest<'a>(given: &str, valid: &[&'a str]) -> Option<&'a str> {
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

/// The valid key that another tool calls so.
fn synonym<'a>(normalize: &str, valid: &[&'a str]) -> Option<&'a str> {
    let ours = SYNONYMS.iter().find(|(other, _)| *other == normalize).map(|(_, ours)| *ours)?;
    valid.iter().copied().find(|key| *key == ours)
}

fn shares_prefix(given: &str, key: &str) -> bool {
    given.len().min(key.len()) >= 3 && (given.starts_with(key) || key.starts_with(given))
}

/// `onFull`, `on-full` and `on_full` are one word.
fn normalize(key: &str) -> String {
    key.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect()
}
