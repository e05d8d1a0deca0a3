//! Reads pools and lists of replicas.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use super::target::{parse_base_url, read_key_env};
use super::{json, toml};
use crate::matching::BaseUrl;
use crate::schema::declaration::{Group, names};
use crate::schema::given::{Given, Section};
use crate::schema::problems::Problems;
use crate::schema::setting::InvalidValue;
use crate::schema::tree::{Node, Value};
use crate::schema::{
    DNS_EVERY, DNS_EVERY_RANGE, FILE_EVERY, FILE_EVERY_RANGE, POOL, REPLICA, TOKENS, WEIGHT,
};
use crate::{ConfigError, MAX_REPLICAS, PoolConfig, ReplicaConfig, ReplicaSource};

/// The keys that name the replicas of a pool, of which it has at most one.
const SOURCES: [&str; 3] = ["replicas", "dns", "file"];
/// The interval of each key that is looked up repeatedly.
const INTERVALS: [(&str, &str); 2] = [("dns_every", "dns"), ("file_every", "file")];

const EXPECTED: &str = "a table, or the replicas: [\"http://10.0.0.1:8000\", \"http://10.0.0.2:8000\"]";

/// Reads `pool`, and returns whether its `cap` is given.
pub(super) fn read_pool(given: Given<'_>) -> (PoolConfig, bool) {
    let mut pool = PoolConfig::default();
    match given.value {
        Value::Table(_) => {}
        Value::List(_) => {
            pool.source = ReplicaSource::Listed(read_replicas(&given));
            return (pool, false);
        }
        other => {
            given.reject(InvalidValue::expected(EXPECTED).message(other));
            return (pool, false);
        }
    }
    let Some(section) = given.section(&names(&[&POOL])) else { return (pool, false) };
    pool.source = read_source(&section);
    pool.read(&section);
    pool.key_env = read_key_env(&section, "VLLM_API_KEY");
    (pool, section.has("cap"))
}

/// Reads where the replicas of a pool are named.
fn read_source(section: &Section<'_>) -> ReplicaSource {
    let given: Vec<&str> = SOURCES.into_iter().filter(|key| section.has(key)).collect();
    if let [first, second, ..] = *given {
        section.reject(&[second], format!("only one key may name the replicas; remove this or {first:?}"));
    }
    for (interval, key) in INTERVALS {
        if section.has(interval) && !section.has(key) {
            section.reject(&[interval], format!("has no effect without {key:?}; set that, or remove it"));
        }
    }
    if let Some(given) = section.get("replicas") {
        return ReplicaSource::Listed(read_replicas(&given));
    }
    if let Some(url) = section.get("dns").and_then(|given| given.read(read_dns)) {
        let mut every = DNS_EVERY;
        section.set("dns_every", &mut every, &DNS_EVERY_RANGE);
        return ReplicaSource::Dns { url, every };
    }
    if let Some(path) = section.get("file").and_then(|given| given.read(read_path)) {
        let mut every = FILE_EVERY;
        section.set("file_every", &mut every, &FILE_EVERY_RANGE);
        return ReplicaSource::File { path, every };
    }
    ReplicaSource::Dynamic
}

/// Reads `replicas` of a pool.
fn read_replicas(given: &Given<'_>) -> Vec<ReplicaConfig> {
    let Value::List(items) = given.value else {
        given.reject(
            InvalidValue::expected("a list of base URLs, or of tables with a \"url\"").message(given.value),
        );
        return Vec::new();
    };
    if items.is_empty() {
        given.reject("the list is empty; remove the key if the program sets the replicas (set_replicas)");
    }
    if items.len() > MAX_REPLICAS {
        given.reject(format!("{} replicas are given; a pool has at most {MAX_REPLICAS}", items.len()));
    }
    read_members(given, items)
}

/// Reads any number of replicas.
fn read_members(given: &Given<'_>, items: &[Node]) -> Vec<ReplicaConfig> {
    let mut seen = HashSet::new();
    let mut members = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let path = format!("{}[{index}]", given.path);
        let given = Given { path, line: item.line, value: &item.value, problems: given.problems };
        let Some(member) = read_replica(&given) else { continue };
        if !seen.insert(member.url.clone()) {
            given.reject("is the same replica as one above it (with or without /v1); remove one of them");
        }
        members.push(member);
    }
    members
}

fn read_replica(given: &Given<'_>) -> Option<ReplicaConfig> {
    if !matches!(given.value, Value::Table(_)) {
        return given.read(read_base_url).map(|url| ReplicaConfig::new(&url));
    }
    let given = Given { path: given.path.clone(), ..*given };
    let section = given.section(&names(&[&REPLICA]))?;
    let Some(url) = section.get("url") else {
        section.reject(&[], "needs a \"url\": the replica's base URL");
        return None;
    };
    let mut member = ReplicaConfig::new(&url.read(read_base_url)?);
    section.set("weight", &mut member.weight, &WEIGHT);
    section.set("kv_tokens", &mut member.kv_tokens, &TOKENS);
    member.models = section.get("models").and_then(|given| given.read(read_models));
    Some(member)
}

/// Reads the base URL of a replica, without `/v1`.
fn read_base_url(value: &Value) -> Result<String, InvalidValue> {
    let bad = || InvalidValue::expected("a replica's base URL such as \"http://10.0.0.1:8000\"");
    let Value::Text(text) = value else { return Err(bad()) };
    let url = parse_base_url(text).map_err(|why| bad().hint(why))?;
    Ok(url.strip_suffix("/v1").map(str::to_owned).unwrap_or(url))
}

fn read_models(value: &Value) -> Result<Arc<[Arc<str>]>, InvalidValue> {
    let bad = || InvalidValue::expected("the name of a model that the replica serves, or a list of them");
    let one = |value: &Value| match value {
        Value::Text(name) if name.contains('*') => Err(bad().hint("write the full name, without *")),
        Value::Text(name) if (1..=200).contains(&name.len()) => Ok(Arc::from(&**name)),
        _ => Err(bad()),
    };
    match value {
        Value::List(items) if !items.is_empty() => items.iter().map(|item| one(&item.value)).collect(),
        other => one(other).map(|name| [name].into()),
    }
}

/// Reads `dns`.
fn read_dns(value: &Value) -> Result<Arc<str>, InvalidValue> {
    let bad = || InvalidValue::expected("scheme, host and port, such as \"http://vllm.internal:8000\"");
    let Value::Text(text) = value else { return Err(bad()) };
    let url = BaseUrl::parse(text).map_err(|why| bad().hint(why))?.to_string();
    let url = url.strip_suffix("/v1").unwrap_or(&url);
    match url.split_once("://") {
        Some(("https", _)) => Err(bad().hint(
            "https certificates do not match the addresses of the host; use http, or list the replicas by their own names",
        )),
        Some((_, rest)) if rest.contains('/') => Err(bad().hint("remove the path")),
        _ => Ok(url.into()),
    }
}

fn read_path(value: &Value) -> Result<PathBuf, InvalidValue> {
    match value {
        Value::Text(path) if !path.is_empty() && !path.contains('\0') => Ok(PathBuf::from(path)),
        _ => Err(InvalidValue::expected("the path of a file that names the replicas")),
    }
}

/// Returns the base URLs of a pool without `url`: its name, the URLs of its replicas, and that of
/// `dns`.
///
/// # Errors
/// What to write instead, if the name cannot be the host of a URL.
pub(super) fn urls_by_name(name: &str, pool: &PoolConfig) -> Result<Vec<String>, String> {
    let named = |scheme: &str| parse_base_url(&format!("{scheme}://{name}")).ok();
    // Other characters would be part of a port or a path, or are invalid.
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

/// Reads the replicas that the program sets.
pub(crate) fn replica_list(list: &Node) -> Result<Vec<ReplicaConfig>, ConfigError> {
    let problems = Problems::default();
    let members = read_root_list(list, &problems);
    if members.len() > MAX_REPLICAS {
        problems.add(
            None,
            "replicas",
            format!("{} replicas are given; a pool has at most {MAX_REPLICAS}", members.len()),
        );
    }
    problems.into_result(members)
}

/// Reads the replicas that a file names: TOML or JSON with `replicas`, a JSON list, or one URL per
/// line. Their number is not limited.
///
/// # Errors
/// Every problem found, each with its line.
pub fn replicas_in_file(text: &str) -> Result<Vec<ReplicaConfig>, ConfigError> {
    let problems = Problems::default();
    let members = read_file_text(text, &problems);
    problems.into_result(members)
}

fn read_file_text(text: &str, problems: &Problems) -> Vec<ReplicaConfig> {
    let text = text.trim_start_matches('\u{feff}');
    let lines = || {
        let numbered = text.lines().map(str::trim).enumerate();
        numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    };
    if lines().next().is_none() {
        // A file that is being written may be empty for a moment.
        problems.add(None, "", "the file is empty; for no replicas write replicas = []");
        return Vec::new();
    }
    if lines().all(|(_, line)| line.starts_with("http://") || line.starts_with("https://")) {
        let node = |(at, line): (usize, &str)| Node { value: Value::Text(line.into()), line: Some(at + 1) };
        let list = Node { value: Value::List(lines().map(node).collect()), line: None };
        return read_root_list(&list, problems);
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
        return read_root_list(&root, problems);
    }
    let given = Given { path: String::new(), line: root.line, value: &root.value, problems };
    let one = |key: &str| {
        REPLICA.names().any(|name| name == key).then(|| "it belongs in one of \"replicas\"".to_owned())
    };
    let Some(section) = given.section_with(&["replicas"], one) else { return Vec::new() };
    match section.get("replicas") {
        Some(given) => read_list(&given),
        None => {
            problems.add(None, "", "the file has no \"replicas\"");
            Vec::new()
        }
    }
}

fn read_root_list(list: &Node, problems: &Problems) -> Vec<ReplicaConfig> {
    read_list(&Given { path: "replicas".into(), line: list.line, value: &list.value, problems })
}

fn read_list(given: &Given<'_>) -> Vec<ReplicaConfig> {
    match given.value {
        Value::List(items) => read_members(given, items),
        other => {
            given.reject(InvalidValue::expected("a list of replicas").message(other));
            Vec::new()
        }
    }
}
