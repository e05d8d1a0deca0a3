//! Reads `pool`, and lists of replicas in the configuration, in files and from the program.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use tidegate_protocol::request::MAX_MODEL;

use super::target::{parse_base_url, read_variable};
use super::{json, toml};
use crate::matching::BaseUrl;
use crate::schema::{
    DNS_EVERY, DNS_EVERY_RANGE, FILE_EVERY, FILE_EVERY_RANGE, Given, InvalidValue, Node, POOL, Problems,
    REPLICA, TextRule, Value,
};
use crate::{ConfigError, MAX_REPLICAS, PoolConfig, ReplicaConfig, ReplicaSource};

/// The keys that list the replicas of a pool. A pool may have at most one of them.
const SOURCES: [&str; 3] = ["replicas", "dns", "file"];
/// The keys that set an interval, each with the key of [`SOURCES`] that it requires.
const INTERVALS: [(&str, &str); 2] = [("dns_every", "dns"), ("file_every", "file")];

const EXPECTED_LIST: &str = "a list of replicas";
const EXPECTED_POOL: &str = "a table, or the replicas: [\"http://10.0.0.1:8000\", \"http://10.0.0.2:8000\"]";

/// Reads `pool`: a table, or a list of replicas.
pub(super) fn read_pool(given: &Given<'_>) -> PoolConfig {
    let mut pool = PoolConfig::default();
    match given.value {
        Value::Table(_) => {
            given.check_table(&[&POOL]);
            pool.source = read_source(given);
            pool.read(given);
            pool.key_env = read_variable(given, "key_env", "VLLM_API_KEY");
        }
        Value::List(_) => pool.source = ReplicaSource::Listed(read_replicas(given)),
        other => given.reject(InvalidValue::expected(EXPECTED_POOL).message(other)),
    }
    pool
}

/// Returns the source of a pool's replicas: the one of the keys [`SOURCES`] that is given, or the
/// program if none is. Reports a second source, and an interval without its source (see
/// [`INTERVALS`]).
fn read_source(given: &Given<'_>) -> ReplicaSource {
    let sources: Vec<&str> = SOURCES.into_iter().filter(|key| given.has(key)).collect();
    if let [first, second, ..] = *sources {
        given.reject_key(second, format!("only one key may name the replicas; remove this or {first:?}"));
    }
    for (interval, key) in INTERVALS {
        if !given.has(key) {
            given.reject_key(interval, format!("has no effect without {key:?}; set that, or remove it"));
        }
    }
    if let Some(given) = given.get("replicas") {
        return ReplicaSource::Listed(read_replicas(&given));
    }
    let interval = |key: &str, mut interval, range| {
        given.set(key, &mut interval, &range);
        interval
    };
    if let Some(url) = given.get("dns").and_then(|given| DNS.read(&given)) {
        return ReplicaSource::Dns { url, every: interval("dns_every", DNS_EVERY, DNS_EVERY_RANGE) };
    }
    if let Some(path) = given.get("file").and_then(|given| FILE.read(&given)) {
        return ReplicaSource::File { path, every: interval("file_every", FILE_EVERY, FILE_EVERY_RANGE) };
    }
    ReplicaSource::Dynamic
}

/// Reads the list of replicas of a pool. Reports an empty list, and a list of more than
/// [`MAX_REPLICAS`].
fn read_replicas(given: &Given<'_>) -> Vec<ReplicaConfig> {
    let members = read_list(given, "a list of base URLs, or of tables with a \"url\"");
    let count = given.items().len();
    if count == 0 {
        given.reject("the list is empty; write `pool = {}` if the program sets the replicas (set_replicas)");
    }
    check_count(given, count);
    members
}

/// Reports a problem if `count`, the number of replicas, is above [`MAX_REPLICAS`].
fn check_count(given: &Given<'_>, count: usize) {
    if count > MAX_REPLICAS {
        given.reject(format!("{count} replicas are given; a pool has at most {MAX_REPLICAS}"));
    }
}

/// Reads a list of any number of replicas. Reports invalid replicas and omits them, and reports
/// replicas with the same URL. If the value is not a list, the error states `expected`, a
/// description of a valid value.
fn read_list(given: &Given<'_>, expected: &str) -> Vec<ReplicaConfig> {
    if !matches!(given.value, Value::List(_)) {
        given.reject(InvalidValue::expected(expected).message(given.value));
        return Vec::new();
    }
    let mut seen = HashSet::new();
    let mut members = Vec::new();
    for given in given.items() {
        let Some(member) = read_replica(&given) else { continue };
        if !seen.insert(member.url.clone()) {
            given.reject("is the same replica as one above it (with or without /v1); remove one of them");
        }
        members.push(member);
    }
    members
}

/// Reads a replica: a base URL, or a table with `url`. Returns `None` if the URL is missing or
/// invalid.
fn read_replica(given: &Given<'_>) -> Option<ReplicaConfig> {
    if !given.is_table() {
        return URL.read(given).map(|url| ReplicaConfig::new(&url));
    }
    given.check_table(&[&REPLICA]);
    let Some(url) = given.get("url") else {
        given.reject("needs a \"url\": the replica's base URL");
        return None;
    };
    let mut member = ReplicaConfig::new(&URL.read(&url)?);
    member.read(given);
    if let Some(models) = given.get("models") {
        if models.items().is_empty() {
            models.reject(InvalidValue::expected(MODEL.expected).message(models.value));
        }
        member.models = Some(MODEL.read_list(&models).into());
    }
    Some(member)
}

/// Accepts the base URL of a replica.
const URL: TextRule<String> =
    TextRule { expected: "a replica's base URL such as \"http://10.0.0.1:8000\"", parse: parse_base_url };

/// Accepts the name of a model that a replica serves: 1 to 256 bytes, without `*` and control
/// characters.
const MODEL: TextRule<Arc<str>> = TextRule {
    expected: "the name of a model that the replica serves, or a list of them",
    parse: |name| match name.len() {
        _ if name.contains('*') => Err("write the full name, without *"),
        _ if name.contains(char::is_control) => Err("a name must not contain control characters"),
        1..=MAX_MODEL => Ok(name.into()),
        _ => Err(""),
    },
};

/// Accepts a URL with scheme `http`, host and port. Removes a final `/v1`.
const DNS: TextRule<Arc<str>> = TextRule {
    expected: "scheme, host and port, such as \"http://vllm.internal:8000\"",
    parse: |text| {
        let url = parse_base_url(text)?;
        let url = url.strip_suffix("/v1").unwrap_or(&url);
        match url.split_once("://") {
            Some(("https", _)) => Err(
                "https certificates do not match the addresses of the host; use http, or list the replicas by their own names",
            ),
            Some((_, rest)) if rest.contains('/') => Err("remove the path"),
            _ => Ok(url.into()),
        }
    },
};

/// Accepts the path of a file: any text that is not empty and has no NUL.
const FILE: TextRule<PathBuf> = TextRule {
    expected: "the path of a file that names the replicas",
    parse: |path| if path.is_empty() || path.contains('\0') { Err("") } else { Ok(path.into()) },
};

/// Returns the base URLs of a target that has a pool and no `url`: `http://NAME`, `https://NAME`,
/// and the URLs of `replicas` or of `dns`, whichever the pool has.
///
/// # Errors
/// Returns what to write instead if the name of the target cannot be the host of a URL.
pub(super) fn urls_by_name(name: &str, pool: &PoolConfig) -> Result<Vec<String>, String> {
    let named = |scheme: &str| Some(BaseUrl::parse(&format!("{scheme}://{name}")).ok()?.to_string());
    // Other characters would start a port or a path, or are invalid in a URL.
    let is_host = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if !is_host || named("http").is_none() {
        return Err(
            "needs a \"url\", because clients call a pool at http://NAME and this name cannot be a host"
                .into(),
        );
    }
    let mut urls: Vec<String> = ["http", "https"].into_iter().filter_map(named).collect();
    match &pool.source {
        ReplicaSource::Listed(members) => urls.extend(members.iter().map(|member| member.url.to_string())),
        ReplicaSource::Dns { url, .. } => urls.push(url.to_string()),
        ReplicaSource::File { .. } | ReplicaSource::Dynamic => {}
    }
    Ok(urls)
}

/// Reads a list of replicas that the program sets. Fails if there are more than [`MAX_REPLICAS`].
pub(crate) fn replica_list(list: &Node) -> Result<Vec<ReplicaConfig>, ConfigError> {
    Problems::check(|problems| {
        let given = Given::new("replicas", list, problems);
        let members = read_list(&given, EXPECTED_LIST);
        check_count(&given, members.len());
        members
    })
}

/// Reads the text of a file that lists replicas: TOML or JSON with `replicas`, a JSON list, or one
/// URL per line. The number of replicas is not limited.
///
/// ```
/// let replicas = tidegate_config::replicas_in_file("http://10.0.0.1:8000\nhttp://10.0.0.2:8000\n")?;
/// assert_eq!(&*replicas[1].url, "http://10.0.0.2:8000");
/// # Ok::<(), tidegate_config::ConfigError>(())
/// ```
///
/// # Errors
/// Returns every problem of the file, with its line if the line is known.
pub fn replicas_in_file(text: &str) -> Result<Vec<ReplicaConfig>, ConfigError> {
    Problems::check(|problems| read_file_text(text, problems))
}

fn read_file_text(text: &str, problems: &Problems) -> Vec<ReplicaConfig> {
    let text = text.trim_start_matches('\u{feff}');
    let lines = || {
        let numbered = text.lines().map(str::trim).enumerate();
        numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    };
    if lines().next().is_none() {
        // A file that is being written may be empty for a short time, and must not empty the pool.
        problems.add(None, "", "the file is empty; for no replicas write replicas = []");
        return Vec::new();
    }
    if lines().all(|(_, line)| line.starts_with("http://") || line.starts_with("https://")) {
        let node = |(at, line): (usize, &str)| Node { value: Value::Text(line.into()), line: Some(at + 1) };
        let list = Value::List(lines().map(node).collect()).into();
        return read_list(&Given::new("replicas", &list, problems), EXPECTED_LIST);
    }
    let root = match serde_json::from_str(text) {
        Ok(value) => json::read(&value),
        Err(error) if text.trim_start().starts_with('{') => {
            let (line, column) = (error.line(), error.column());
            problems.add(Some(line), "", format!("column {column}: not valid JSON"));
            return Vec::new();
        }
        Err(_) => match toml::read(text, problems) {
            Some(root) => root,
            None => return Vec::new(),
        },
    };
    if matches!(root.value, Value::List(_)) {
        return read_list(&Given::new("replicas", &root, problems), EXPECTED_LIST);
    }
    let given = Given::new("", &root, problems);
    let advice = |key: &str| REPLICA.has(key).then_some("it belongs in one of \"replicas\"");
    let is_table = given.check_keys(&["replicas"], advice);
    let list = given.get("replicas");
    if is_table && list.is_none() {
        problems.add(None, "", "the file has no \"replicas\"");
    }
    list.map(|list| read_list(&list, EXPECTED_LIST)).unwrap_or_default()
}
