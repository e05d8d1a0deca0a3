//! The generic tree that files, dicts and builders are converted to before any value is checked.

use std::time::Duration;

use super::setting::show_duration;

/// A value, and its line if it is from a file.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) line: Option<usize>,
}

#[derive(Clone)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// Wide enough for every integer of TOML, JSON and Rust callers.
    Whole(i128),
    Float(f64),
    Text(String),
    /// A duration of a builder. Exact, unlike a float of seconds.
    Time(Duration),
    List(Vec<Node>),
    Table(Table),
    /// A value that no key accepts, such as a TOML date, with its description for errors.
    Other(&'static str),
}

#[derive(Clone, Default)]
pub(crate) struct Table {
    /// The keys in the order they were written. Duplicates are rejected when the table is read.
    pub(crate) entries: Vec<Entry>,
}

#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) line: Option<usize>,
    pub(crate) node: Node,
}

/// The longest string that errors repeat, in characters. A longer one may be a credential.
const SHOWN: usize = 24;

impl Value {
    /// Returns the value as the configuration shows it: numbers with thousands separators.
    pub(crate) fn show(&self) -> String {
        match self {
            Value::Whole(number) => group_thousands(&number.to_string()),
            Value::Float(number) => number.to_string(),
            Value::Text(text) => text.clone(),
            Value::Time(time) => show_duration(*time),
            other => other.describe(),
        }
    }

    /// Describes the value in an error, after "got".
    pub(crate) fn describe(&self) -> String {
        match self {
            Value::Null => "null".into(),
            Value::Bool(flag) => flag.to_string(),
            Value::Whole(number) => number.to_string(),
            Value::Float(number) => format!("{number:?}"),
            Value::Text(text) => describe_text(text),
            Value::Time(time) => humantime::format_duration(*time).to_string(),
            Value::List(items) if items.is_empty() => "an empty list".into(),
            Value::List(_) => "a list".into(),
            Value::Table(_) => "a table".into(),
            Value::Other(what) => (*what).into(),
        }
    }
}

/// `10,000` for `10000`.
fn group_thousands(digits: &str) -> String {
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Describes a string in an error: the string itself if it is short and holds no `@` or `?`,
/// otherwise its length.
pub fn describe_text(text: &str) -> String {
    let length = text.chars().count();
    if text.is_empty() {
        "an empty string".into()
    } else if length <= SHOWN && !text.contains(['@', '?']) {
        format!("the string {text:?}")
    } else {
        format!("a string of {length} characters")
    }
}

impl Table {
    /// Sets a key, replacing its value.
    pub(crate) fn put(&mut self, key: &str, value: Value) {
        let node = Node { value, line: None };
        match self.entries.iter_mut().find(|entry| entry.key == key) {
            Some(entry) => entry.node = node,
            None => self.entries.push(Entry { key: key.into(), line: None, node }),
        }
    }

    /// Appends to the list of a key.
    pub(crate) fn append(&mut self, key: &str, value: Value) {
        let node = Node { value, line: None };
        for entry in &mut self.entries {
            if let (true, Value::List(items)) = (entry.key == key, &mut entry.node.value) {
                return items.push(node);
            }
        }
        self.put(key, Value::List(vec![node]));
    }

    /// Adds a named table to the table of a key. Keeps one of the same name, so that the duplicate
    /// is rejected when the configuration is read.
    pub(crate) fn add(&mut self, key: &str, name: String, table: Table) {
        let named = Entry { key: name, line: None, node: Node { value: Value::Table(table), line: None } };
        for entry in &mut self.entries {
            if let (true, Value::Table(names)) = (entry.key == key, &mut entry.node.value) {
                return names.entries.push(named);
            }
        }
        self.put(key, Value::Table(Table { entries: vec![named] }));
    }
}
