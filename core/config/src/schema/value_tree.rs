//! The tree of untyped values that TOML, JSON and builders are converted to before any value is
//! checked.

use std::time::Duration;

use super::show_duration;

/// A value and its line in the file, from 1. The line is `None` for JSON and builders.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) line: Option<usize>,
}

/// Creates a node without a line.
impl From<Value> for Node {
    fn from(value: Value) -> Self {
        Self { value, line: None }
    }
}

/// An untyped value.
#[derive(Clone)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// A whole number. `i128` holds every integer of TOML, JSON and Rust callers.
    Whole(i128),
    Float(f64),
    Text(String),
    /// A duration that was passed to a builder. Unlike a float of seconds, it is exact.
    Time(Duration),
    List(Vec<Node>),
    Table(Table),
    /// A value that no key accepts, such as a TOML date. The text describes the value in errors.
    Other(&'static str),
}

/// A table of untyped values.
#[derive(Clone, Default)]
pub(crate) struct Table {
    /// The keys in the order in which they were given. A key may occur twice; the duplicate is
    /// rejected when the table is read.
    pub(crate) entries: Vec<Entry>,
}

/// A key of a [`Table`] and its value.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// The line of the key, from 1. `None` for JSON and builders.
    pub(crate) line: Option<usize>,
    pub(crate) node: Node,
}

/// The maximum length, in characters, of a string that errors repeat. A longer string may be a
/// credential.
const MAX_SHOWN_TEXT: usize = 24;

impl Value {
    /// Returns the text, or `None` if the value is not a text.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value as `tidegate check` prints it, with thousands separators in whole numbers.
    pub(crate) fn show(&self) -> String {
        match self {
            Value::Whole(number) => group_thousands(&number.to_string()),
            Value::Float(number) => number.to_string(),
            Value::Text(text) => text.clone(),
            Value::Time(time) => show_duration(*time),
            other => other.describe(),
        }
    }

    /// Returns the description of the value in an error, which follows "got". Texts that may be
    /// credentials are described by their length; see [`describe_text`].
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

/// Adds thousands separators: `10,000` for `10000`.
fn group_thousands(digits: &str) -> String {
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// Returns the description of a string in an error.
///
/// The description contains the string if it has at most 24 characters and no `@` or `?`.
/// Otherwise the string may contain a credential, and the description contains only its length.
///
/// ```
/// use tidegate_config::describe_text;
///
/// assert_eq!(describe_text("fast"), "the string \"fast\"");
/// assert_eq!(describe_text("http://user:secret@host"), "a string of 23 characters");
/// ```
pub fn describe_text(text: &str) -> String {
    let length = text.chars().count();
    if text.is_empty() {
        "an empty string".into()
    } else if length <= MAX_SHOWN_TEXT && !text.contains(['@', '?']) {
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
    /// Returns the value of a key, to be changed by the caller. If the table does not have the key,
    /// adds it with the value null first.
    pub(crate) fn value_mut(&mut self, key: &str) -> &mut Value {
        let at = self.entries.iter().position(|entry| entry.key == key).unwrap_or_else(|| {
            self.push(key, Value::Null);
            self.entries.len() - 1
        });
        &mut self.entries[at].node.value
    }

    /// Appends a key and its value, even if the table already has the key.
    pub(crate) fn push(&mut self, key: &str, value: Value) {
        self.entries.push(Entry { key: key.into(), line: None, node: value.into() });
    }
}
