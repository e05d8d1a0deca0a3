//! Tests that the reference page and the types of the Python and Node packages agree with the
//! declared keys.
//!
//! `UPDATE_CONFIG_REFERENCE=1 cargo test -p tidegate-config tests::reference` regenerates them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::Config;
use crate::schema::{
    Key, KeyTable, Kind, LANE, LIMIT, PERCENTILE, POOL, RATES, REPLICA, RETRY, SETTINGS, SHARE, STEP, TARGET,
    TENANT, TOOL, TOP, TRANSPORT,
};

/// The path of the configuration reference page, relative to the repository root.
const PAGE: &str = "docs/reference/configuration.md";

/// All tables, in the order of the generated types. A type follows the types that it extends.
const TABLES: [&KeyTable; 15] = [
    &RETRY,
    &STEP,
    &PERCENTILE,
    &LIMIT,
    &TENANT,
    &LANE,
    &RATES,
    &SETTINGS,
    &REPLICA,
    &POOL,
    &TARGET,
    &TOOL,
    &SHARE,
    &TRANSPORT,
    &TOP,
];

/// The required keys, as (table, key).
const REQUIRED: [(&str, &str); 3] = [("ReplicaConfig", "url"), ("StepConfig", "step"), ("ToolConfig", "cap")];

fn repository() -> PathBuf {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|path| path.join("bindings-node").is_dir());
    root.expect("the repository").to_owned()
}

fn prose(docs: &[&str]) -> String {
    docs.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Returns the documentation of a key, followed by that of its keywords.
fn explanation(key: &Key) -> String {
    let mut text = prose(key.docs);
    let mut kind = (key.kind)();
    if let Kind::OrNone(inner) = kind {
        kind = *inner;
    }
    if let Kind::Keywords(words) = kind {
        for (word, docs) in words {
            let _ = write!(text, " `\"{word}\"`: {}", prose(docs));
        }
    }
    text
}

/// A part of a file that is generated from the declared keys.
struct Part {
    path: &'static str,
    /// The first characters of the line before the part.
    start: String,
    /// The line after the part. If empty, the part continues to the end of the file.
    end: &'static str,
    text: String,
}

fn generated() -> Vec<Part> {
    let (typescript_path, python_path) =
        ("bindings-node/ts/config.ts", "bindings-python/python/tidegate/config.py");
    let mut parts = vec![
        Part { path: typescript_path, start: "// Generated".to_owned(), end: "", text: typescript() },
        Part { path: python_path, start: "# Generated".to_owned(), end: "", text: python() },
    ];
    for table in TABLES {
        let start = format!("<!-- keys of {} -->", table.name);
        parts.push(Part { path: PAGE, start, end: "<!-- end -->", text: markdown(table) });
    }
    parts
}

#[test]
fn reference_and_types_agree_with_the_declarations() {
    let update = std::env::var_os("UPDATE_CONFIG_REFERENCE").is_some();
    for Part { path, start, end, text: expected } in generated() {
        let file = repository().join(path);
        let text = std::fs::read_to_string(&file).unwrap();
        let at = text.find(&start).unwrap_or_else(|| panic!("{path} has no {start:?}"));
        let from = at + text[at..].find('\n').unwrap() + 1;
        let to = if end.is_empty() { text.len() } else { from + text[from..].find(end).unwrap() };
        if update {
            std::fs::write(&file, format!("{}{expected}{}", &text[..from], &text[to..])).unwrap();
        } else {
            assert_eq!(&text[from..to], expected, "{path}: run with UPDATE_CONFIG_REFERENCE=1");
        }
    }
}

#[test]
fn the_example_of_the_reference_is_valid() {
    let page = std::fs::read_to_string(repository().join(PAGE)).unwrap();
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let config = Config::from_toml(example).unwrap();
    let names: Vec<&str> = config.targets.iter().map(|target| &*target.name).collect();
    assert_eq!(names, ["anthropic", "openai", "spare", "llama"]);
    assert_eq!(config.targets[1].tenants["acme"].weight, 2.0);
    assert_eq!(config.targets[1].fallback.as_deref(), Some("spare"));
}

fn markdown(table: &KeyTable) -> String {
    let mut text = String::from("\n| key | what it sets | type and range | default |\n|---|---|---|---|\n");
    for key in table.keys {
        let (kind, default) = (markdown_kind(&(key.kind)()), (key.default)());
        let unit = if key.unit.is_empty() { String::new() } else { format!(", {}", key.unit) };
        let _ = writeln!(text, "| `{}` | {} | {kind}{unit} | {default} |", key.name, explanation(key));
    }
    text + "\n"
}

fn markdown_kind(kind: &Kind) -> String {
    match kind {
        Kind::Number(range) => format!("number, {range}"),
        Kind::Whole(range) => format!("whole number, {range}"),
        Kind::Count(range) => format!("count, {range}"),
        Kind::Duration(range) => format!("duration, {range}"),
        Kind::Bool => "true or false".to_owned(),
        Kind::Keywords(words) => {
            words.iter().map(|(word, _)| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ")
        }
        Kind::Text(what) | Kind::TextOrList(what) => (*what).to_owned(),
        Kind::NamedOrCap(_) => "tables or whole numbers by name".to_owned(),
        Kind::OrNone(kind) => format!("{}, or none", markdown_kind(kind)),
        Kind::Table(_) => "a table".to_owned(),
        Kind::TableOr(_, kind) => format!("{}, or a table", markdown_kind(kind)),
        Kind::Named(_) => "tables by name".to_owned(),
        Kind::Special { reference, .. } => (*reference).to_owned(),
    }
}

/// Returns `text` wrapped at about 100 columns. Each line starts with `prefix`.
fn wrap(text: &str, prefix: &str) -> String {
    let mut lines = vec![prefix.to_owned()];
    for word in text.split(' ') {
        let line = lines.last_mut().unwrap();
        if line.len() + word.len() > 100 && line != prefix {
            lines.push(format!("{prefix}{word} "));
        } else {
            let _ = write!(line, "{word} ");
        }
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn is_required(table: &KeyTable, key: &Key) -> bool {
    REQUIRED.contains(&(table.name, key.name))
}

/// Returns the sentence about a key's default. Empty if the key is required or has no default.
fn default_of(table: &KeyTable, key: &Key) -> String {
    let default = (key.default)();
    if default.is_empty() || is_required(table, key) {
        String::new()
    } else {
        format!(" Default: {default}.")
    }
}

fn range_of(kind: &Kind) -> String {
    match kind {
        Kind::Number(range) | Kind::Whole(range) | Kind::Count(range) | Kind::Duration(range) => {
            format!(" Range: {range}.")
        }
        Kind::OrNone(kind) => range_of(kind),
        _ => String::new(),
    }
}

fn typescript() -> String {
    let mut text = String::new();
    for table in TABLES {
        let extends = match table.name {
            "TargetSettings" => " extends RateConfig",
            "TargetConfig" => " extends TargetSettings",
            _ => "",
        };
        let _ = write!(text, "\n/**\n{} */\n", wrap(&prose(table.docs), " * "));
        let _ = writeln!(text, "export interface {}{extends} {{", table.name);
        for key in table.keys {
            let kind = (key.kind)();
            let docs = format!("{}{}{}", explanation(key), range_of(&kind), default_of(table, key));
            let _ = write!(text, "  /**\n{}   */\n", wrap(&docs, "   * "));
            let optional = if is_required(table, key) { "" } else { "?" };
            let _ = writeln!(text, "  {}{optional}: {};", key.name, typescript_kind(&kind));
        }
        text += "}\n";
    }
    text
}

fn typescript_kind(kind: &Kind) -> String {
    match kind {
        Kind::Number(_) | Kind::Whole(_) => "number".to_owned(),
        Kind::Count(_) => "Count".to_owned(),
        Kind::Duration(_) => "Duration".to_owned(),
        Kind::Bool => "boolean".to_owned(),
        Kind::Keywords(words) => {
            words.iter().map(|(word, _)| format!("\"{word}\"")).collect::<Vec<_>>().join(" | ")
        }
        Kind::Text(_) => "string".to_owned(),
        Kind::TextOrList(_) => "string | string[]".to_owned(),
        Kind::NamedOrCap(table) => format!("Record<string, number | {table}>"),
        Kind::OrNone(kind) => format!("{} | Off", typescript_kind(kind)),
        Kind::Table(table) => table.name.to_owned(),
        Kind::TableOr(table, kind) => format!("{} | {}", typescript_kind(kind), table.name),
        Kind::Named(table) => format!("Record<string, {}>", table.name),
        Kind::Special { typescript, .. } => (*typescript).to_owned(),
    }
}

fn python() -> String {
    let mut text = String::new();
    // A gate takes the keys of the top level as arguments.
    for table in TABLES.into_iter().filter(|table| table.name != "Config") {
        let base = match table.name {
            "StepConfig" => "TypedDict",
            "TargetSettings" => "RateConfig, total=False",
            "TargetConfig" => "TargetSettings, total=False",
            _ => "TypedDict, total=False",
        };
        let _ = write!(text, "\n\nclass {}({base}):\n{}", table.name, docstring(&prose(table.docs)));
        for key in table.keys {
            let kind = (key.kind)();
            let docs = format!("{}{}{}", explanation(key), range_of(&kind), default_of(table, key));
            let _ = write!(text, "\n    {}: {}\n{}", key.name, python_kind(&kind), docstring(&docs));
        }
    }
    text
}

/// Returns a docstring. If it does not fit on one line, the first sentence has a line of its own.
fn docstring(text: &str) -> String {
    let line = format!("    \"\"\"{text}\"\"\"\n");
    if line.len() <= 101 {
        return line;
    }
    let (summary, rest) = text.split_once(". ").unwrap_or((text, ""));
    let summary = wrap(&format!("\"\"\"{}.", summary.trim_end_matches('.')), "    ");
    if rest.is_empty() {
        return format!("{summary}    \"\"\"\n");
    }
    format!("{summary}\n{}    \"\"\"\n", wrap(rest, "    "))
}

fn python_kind(kind: &Kind) -> String {
    match kind {
        Kind::Number(_) => "float".to_owned(),
        Kind::Whole(_) => "int".to_owned(),
        Kind::Count(_) => "Count".to_owned(),
        Kind::Duration(_) => "Duration".to_owned(),
        Kind::Bool => "bool".to_owned(),
        Kind::Keywords(words) => {
            let words: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            format!("Literal[{}]", words.join(", "))
        }
        Kind::Text(_) => "str".to_owned(),
        Kind::TextOrList(_) => "str | list[str]".to_owned(),
        Kind::NamedOrCap(table) => format!("dict[str, int | {table}]"),
        Kind::OrNone(kind) => format!("{} | Off", python_kind(kind)),
        Kind::Table(table) => table.name.to_owned(),
        Kind::TableOr(table, kind) => format!("{} | {}", python_kind(kind), table.name),
        Kind::Named(table) => format!("dict[str, {}]", table.name),
        Kind::Special { python, .. } => (*python).to_owned(),
    }
}
