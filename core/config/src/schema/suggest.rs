//! Suggests valid keys and names in place of unknown ones.

use super::{
    KeyTable, LIMIT, PERCENTILE, POOL, RATES, REPLICA, RETRY, SETTINGS, TARGET, TENANT, TOOL, TOP, TRANSPORT,
    names,
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

/// The names that other tools use for a key, in lower case without dashes and underscores.
const SYNONYMS: &[(&str, &[&str])] = &[
    ("url", &["baseurl", "apibase", "host"]),
    ("replicas", &["endpoints", "backends", "servers", "members"]),
    ("cap", &["limit", "concurrency", "maxconcurrency", "maxconcurrent", "maxlimit"]),
    ("start", &["initial", "initiallimit"]),
    ("min", &["floor", "minlimit"]),
    ("decrease", &["backoffratio"]),
    ("quantile", &["percentile"]),
    ("band", &["deadband"]),
    ("ttft", &["slo"]),
    ("tpot", &["itl"]),
    ("deadline", &["timeout"]),
    ("queue", &["maxqueue"]),
    ("attempts", &["maxattempts"]),
    ("retry", &["retries", "maxretries"]),
    ("rpm", &["requestsperminute", "ratelimit", "rps"]),
    ("rpd", &["requestsperday"]),
    ("tpm", &["tokensperminute"]),
    ("tpd", &["tokensperday"]),
    ("max_prompt", &["maxinput"]),
    ("batch", &["background"]),
    ("interactive", &["realtime"]),
    ("standard", &["normal"]),
];

/// Returns what to write instead of the unknown key `given`, for the end of an error.
///
/// The text states the first of these that exists: the key of `valid` for which `given` is a
/// synonym, the table that `given` belongs to, the key of `valid` that is most similar, the key of
/// another table that is most similar, or else all keys of `valid`.
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
    if let Some(key) = nearest(given, valid) {
        return format!("did you mean {key:?}?");
    }
    match misplaced(given) {
        Some((key, place)) => format!("did you mean {key:?}, which belongs in {place}?"),
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
/// Similar words are, in this order: the word that [`misspelled`] finds, and a word that starts
/// with `given` or with which `given` starts. Case, dashes and underscores are ignored.
pub(crate) fn nearest<'a>(given: &str, valid: &[&'a str]) -> Option<&'a str> {
    let given = normalize(given);
    misspelled(&given, valid)
        .map(|(_, key)| key)
        .or_else(|| valid.iter().copied().find(|key| shares_prefix(&given, &normalize(key))))
}

/// Returns the key of any table that `given` probably is a misspelling of, and the words by which
/// errors state where the key belongs. Returns `None` if no key is similar.
fn misplaced(given: &str) -> Option<(&'static str, &'static str)> {
    let given = normalize(given);
    let of_table = |(place, table): &(&'static str, &KeyTable)| {
        misspelled(&given, &names(&[table])).map(|(distance, key)| (distance, key, *place))
    };
    let (_, key, place) = LOCATIONS.iter().filter_map(of_table).min_by_key(|(distance, ..)| *distance)?;
    Some((key, place))
}

/// Returns the word of `valid` of which `given` is a misspelling, and the edit distance. Returns
/// `None` if no word is similar enough. `given` is [normalized](normalize).
///
/// The distance is at most a third of the word's length, or 1 for short words. Synonyms are words
/// too, but the distance from a synonym is at most a fifth of its length, so that short synonyms
/// must be spelled correctly.
fn misspelled<'a>(given: &str, valid: &[&'a str]) -> Option<(usize, &'a str)> {
    // Computing the distance takes time proportional to the product of both lengths.
    if given.len() > 64 {
        return None;
    }
    let keys = valid.iter().map(|key| (normalize(key), (key.len() / 3).max(1), *key));
    let synonyms = synonyms(valid).map(|(synonym, key)| (synonym.to_owned(), synonym.len() / 5, key));
    keys.chain(synonyms)
        .map(|(word, limit, key)| (strsim::osa_distance(given, &word), limit, key))
        .filter(|(distance, limit, _)| distance <= limit)
        .min_by_key(|(distance, ..)| *distance)
        .map(|(distance, _, key)| (distance, key))
}

/// Returns the key of `valid` that has the name `given` in other tools, or `None` if there is none.
/// `given` is [normalized](normalize).
fn synonym<'a>(given: &str, valid: &[&'a str]) -> Option<&'a str> {
    synonyms(valid).find(|(synonym, _)| *synonym == given).map(|(_, key)| key)
}

/// Returns the synonyms of the keys in `valid`, each with its key.
fn synonyms<'a>(valid: &[&'a str]) -> impl Iterator<Item = (&'static str, &'a str)> {
    SYNONYMS.iter().flat_map(move |(ours, synonyms)| {
        let key = valid.iter().copied().find(|key| key == ours);
        synonyms.iter().filter_map(move |synonym| Some((*synonym, key?)))
    })
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
