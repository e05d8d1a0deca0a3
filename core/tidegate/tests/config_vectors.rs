//! Shared vectors of the configuration: the same keys, errors and matching in every language. The
//! bindings run the same file.

#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tidegate::config::{Config, Matcher};
use tidegate::{Error, ErrorKind, Gate, config_file};

fn cases(name: &str) -> Vec<Value> {
    let path = format!("{}/../../tests/vectors/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let file: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    file["cases"].as_array().unwrap().clone()
}

fn lines(result: Result<Config, Error>) -> Vec<String> {
    result.map_or_else(
        |error| {
            assert_eq!(error.kind(), ErrorKind::Config);
            error.message().lines().map(str::to_owned).collect()
        },
        |_| Vec::new(),
    )
}

/// Returns the same configuration as TOML, or `None` if TOML cannot represent it.
fn as_toml(config: &Value) -> Option<String> {
    toml::to_string(config).ok()
}

#[test]
fn invalid_configurations_report_every_problem() {
    let mut also_toml = 0;
    for case in cases("config_errors") {
        let name = case["name"].as_str().unwrap();
        let errors: Vec<&str> =
            case["errors"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
        assert!(!errors.is_empty(), "{name}: no error expected");
        if let Some(text) = case["toml"].as_str() {
            assert_eq!(lines(Config::from_toml(text).map_err(Error::from)), errors, "{name}");
            continue;
        }
        assert_eq!(lines(Config::from_json(case["config"].clone()).map_err(Error::from)), errors, "{name}");
        if let Some(text) = as_toml(&case["config"]) {
            also_toml += 1;
            let unplaced = |line: String| line.split_once(": ").unwrap().1.to_owned();
            let mut found: Vec<String> =
                lines(Config::from_toml(&text).map_err(Error::from)).into_iter().map(unplaced).collect();
            // TOML writes tables after plain keys, so the order of errors may differ.
            let mut errors = errors;
            found.sort_unstable();
            errors.sort_unstable();
            assert_eq!(found, errors, "{name}, as TOML:\n{text}");
        }
    }
    assert!(also_toml > 80, "only {also_toml} of the cases could be written as TOML");
}

#[test]
fn requests_are_matched_to_targets() {
    for case in cases("target_matching") {
        let name = case["name"].as_str().unwrap();
        let config = Config::from_json(case["config"].clone()).unwrap();
        let same = Config::from_toml(&as_toml(&case["config"]).unwrap()).unwrap();
        let matcher = Matcher::new(&config.targets).unwrap();
        let same_matcher = Matcher::new(&same.targets).unwrap();
        for request in case["requests"].as_array().unwrap() {
            let uri = request["url"].as_str().unwrap().parse().unwrap();
            let model = request["model"].as_str();
            let target = matcher.find(&uri, model).map(|index| &*config.targets[index].name);
            assert_eq!(target, request["target"].as_str(), "{name}: {request}");
            let target = same_matcher.find(&uri, model).map(|index| &*same.targets[index].name);
            assert_eq!(target, request["target"].as_str(), "{name}, as TOML: {request}");
        }
    }
}

/// Returns the limits in a snapshot that the vector expects, under the vector's keys.
fn limits(seen: &Value, expected: &Value) -> Value {
    let limit = |(name, expected): (&String, &Value)| {
        let (of, adaptive) = (&seen[name], &seen[name]["adaptive"]);
        let told = |key: &String| match key.as_str() {
            "limit" => of["limit"].clone(),
            other => adaptive[other].clone(),
        };
        let told = expected.as_object().unwrap().keys().map(|key| (key.clone(), told(key)));
        (name.clone(), told.collect::<Value>())
    };
    expected.as_object().unwrap().iter().map(limit).collect()
}

#[tokio::test]
async fn effective_limit_follows_the_documented_rule() {
    for case in cases("limits") {
        let name = case["name"].as_str().unwrap();
        let text = as_toml(&case["config"]);
        let sources =
            [Some(Config::from_json(case["config"].clone())), text.as_deref().map(Config::from_toml)];
        for config in sources.into_iter().flatten() {
            let seen = serde_json::to_value(Gate::new(config.unwrap()).unwrap().snapshot()).unwrap();
            for of in ["targets", "tools"] {
                assert_eq!(limits(&seen[of], &case[of]), case[of], "{name}");
            }
        }
    }
}

fn scratch(name: &str, content: &[u8]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).unwrap();
    path
}

#[test]
fn errors_of_a_file_name_the_file() {
    let path = scratch("wrong.toml", b"[targets.openai]\r\ncapp = 8\r\n\r\n[tools]\r\ndb = 0\r\n");
    let file = path.display();
    assert_eq!(
        lines(config_file::read(&path)),
        [
            format!("{file}:2: targets.openai.capp: unknown key; did you mean \"cap\"?"),
            format!("{file}:5: tools.db: expected a whole number from 1 to 65536; got 0"),
        ]
    );
}

#[test]
fn unreadable_file_is_an_error() {
    let missing = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("nowhere.toml");
    let not_text = scratch("latin1.toml", b"[tools]\ncaf\xe9 = 1\n");
    for path in [missing, not_text] {
        let found = lines(config_file::read(&path));
        let start = format!("{}: cannot be read: ", path.display());
        assert!(found.len() == 1 && found[0].starts_with(&start), "{found:?}");
    }
}

#[test]
fn byte_order_mark_is_ignored() {
    let path = scratch("bom.toml", b"\xef\xbb\xbf[tools]\ndb = 3\n");
    assert_eq!(config_file::read(path).unwrap().tools["db"].cap, 3);
}
