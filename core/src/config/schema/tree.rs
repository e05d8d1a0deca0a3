//! The generic tree that files, dicts and builders are converted to before any value is checked.

use std::time::Duration;

use super::setting::show_duration;

/// A value and, where it came from a file, the line it stands on.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) line: Option<usize>,
}

#[derive(Clone)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// Wide enough for every integer that TOML, JSON and Rust callers can write.
    Whole(i128),
    Float(f64),
    Text(String),
    /// From a builder only: exact, where a float of seconds would round.
    Time(Duration),
    List(Vec<Node>),
    Table(Table),
    /// Something no key takes (a TOML date, a tree too deep), named for the error.
    Other(&'static str),
}

#[derive(Clone, Default)]
pub(crate) struct Table {
    /// In the order they were written. Keys may repeat: the walker says so.
    pub(crate) entries: Vec<Entry>,
}

#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) line: Option<usize>,
    pub(crate) node: Node,
}

/// Longer strings are not repeated in an error: what stands in the wrong place may be a credential.
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

/// A string as an error may show it: whole where it is short and harmless, else its length.
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
    /// Sets a key; the last word wins.
    pub(crate) fn put(&mut self, key: &str, value: Value) {
        let node = Node { value, line: None };
        match self.entries.iter_mut().find(|entry| entry.key == key) {
            Some(entry) => entry.node = node,
            None => self.entries.push(Entry { key: key.into(), line: None, node }),
        }
    }

    /// Appends to the list under a key.
    pub(crate) fn append(&mut self, key: &str, value: Value) {
        let node = Node { value, line: None };
        for entry in &mut self.entries {
            if let (true, Value::List(items)) = (entry.key == key, &mut entry.node.value) {
                return items.push(node);
            }
        }
        self.put(key, Value::List(vec![node]));
    }

    /// Adds a named table under a key, beside one of the same name rather than over it, so that a name given twice is found.
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
