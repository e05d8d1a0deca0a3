//! The generic tree that files, dicts and builders are converted to before any value is checked.

use std::time::Duration;

use super::show_duration;

/// A value, and its line if it is from a file.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) line: Option<usize>,
}

/// A value that is not from a file.
impl From<Value> for Node {
    fn from(value: Value) -> Self {
        Self { value, line: None }
    }
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
    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

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

impl<const N: usize> From<[(&str, Value); N]> for Table {
    fn from(keys: [(&str, Value); N]) -> Self {
        let mut table = Self::default();
        keys.into_iter().for_each(|(key, value)| table.push(key, value));
        table
    }
}

impl Table {
    /// Sets a key, replacing its value.
    pub(crate) fn put(&mut self, key: &str, value: Value) {
        match self.get_mut(key) {
            Some(old) => *old = value,
            None => self.push(key, value),
        }
    }

    /// Appends to the list of a key.
    pub(crate) fn append(&mut self, key: &str, item: Value) {
        match self.get_mut(key) {
            Some(Value::List(items)) => items.push(item.into()),
            _ => self.put(key, Value::List(vec![item.into()])),
        }
    }

    /// Adds a named table to the table of a key. Keeps one of the same name, so that the duplicate
    /// is rejected when the configuration is read.
    pub(crate) fn add(&mut self, key: &str, name: &str, table: Table) {
        if !matches!(self.get_mut(key), Some(Value::Table(_))) {
            self.put(key, Value::Table(Table::default()));
        }
        if let Some(Value::Table(named)) = self.get_mut(key) {
            named.push(name, Value::Table(table));
        }
    }

    fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.node.value)
    }

    fn push(&mut self, key: &str, value: Value) {
        self.entries.push(Entry { key: key.into(), line: None, node: value.into() });
    }
}
