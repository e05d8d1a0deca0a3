//! Reads the untyped values of a configuration, with the path and the line that errors state.

use std::collections::HashSet;

use super::{Entry, InvalidValue, KeyTable, Node, Problems, Scalar, Setting, Value, names, suggest};

/// An untyped value of the configuration, with the path and the line that errors about it state.
#[derive(Clone)]
pub(crate) struct Given<'a> {
    /// The full path of the key, such as `targets.openai.cap`. Empty for the whole configuration.
    pub(crate) path: String,
    /// The line of the value in the file, from 1. `None` for JSON and builders.
    pub(crate) line: Option<usize>,
    pub(crate) value: &'a Value,
    /// The collection to which problems are reported.
    pub(crate) problems: &'a Problems,
}

impl<'a> Given<'a> {
    pub(crate) fn new(path: &str, node: &'a Node, problems: &'a Problems) -> Self {
        Self { path: path.to_owned(), line: node.line, value: &node.value, problems }
    }

    /// Reports a problem with this value. `text` follows the path of the key in the error.
    pub(crate) fn reject(&self, text: impl Into<String>) {
        self.problems.add(self.line, &self.path, text);
    }

    /// Reports a problem with the value of `key`. Does nothing if this table does not have the key.
    pub(crate) fn reject_key(&self, key: &str, text: impl Into<String>) {
        if let Some(given) = self.get(key) {
            given.reject(text);
        }
    }

    /// Reports a problem if the value of `key` is above the value of `bound`, and this table sets
    /// at least one of them. If both are inherited, the problem is reported at the table that sets
    /// them.
    pub(crate) fn reject_above<T: Scalar + PartialOrd>(
        &self,
        (key, value): (&str, &T),
        (bound, bound_value): (&str, &T),
    ) {
        let Some(given) = self.get(key).or_else(|| self.get(bound)) else { return };
        if value > bound_value {
            let (low, high) = (bound_value.to_value().show(), value.to_value().show());
            given.reject(format!("{key} ({high}) is above {bound} ({low}); lower {key} or raise {bound}"));
        }
    }

    /// Converts the value with `reader`. Reports a problem and returns `None` if it is invalid.
    pub(crate) fn read<T>(&self, reader: impl Fn(&Value) -> Result<T, InvalidValue>) -> Option<T> {
        reader(self.value).map_err(|invalid| self.reject(invalid.message(self.value))).ok()
    }

    /// Reads the value of `key` into `setting`. Leaves `setting` unchanged if the key is absent or
    /// its value is invalid. Reports an invalid value. `bounds` limits the value.
    pub(crate) fn set<T: Setting>(&self, key: &str, setting: &mut T, bounds: &T::Bounds) {
        if let Some(given) = self.get(key) {
            setting.overlay(&given, bounds);
        }
    }

    /// Returns the value of a key of this table, such as `cap` or `limit.start`. Returns `None` if
    /// this is not a table or does not have the key.
    pub(crate) fn get(&self, keys: &str) -> Option<Given<'a>> {
        let (key, rest) = keys.split_once('.').unwrap_or((keys, ""));
        let entry = self.entries().iter().find(|entry| entry.key == key)?;
        let given = self.entry_value(entry);
        if rest.is_empty() { Some(given) } else { given.get(rest) }
    }

    /// Returns `true` if this is a table that has a key such as `cap` or `limit.start`.
    pub(crate) fn has(&self, keys: &str) -> bool {
        self.get(keys).is_some()
    }

    pub(crate) fn is_table(&self) -> bool {
        matches!(self.value, Value::Table(_))
    }

    /// Returns the items of a list, or only this value if it is not a list.
    pub(crate) fn items(&self) -> Vec<Given<'a>> {
        let Value::List(items) = self.value else { return vec![self.clone()] };
        let item = |(index, node)| Given::new(&format!("{}[{index}]", self.path), node, self.problems);
        items.iter().enumerate().map(item).collect()
    }

    /// Returns `true` if this is a table. Otherwise reports a problem. Also reports each key that
    /// none of `tables` declares, with what to write instead.
    pub(crate) fn check_table(&self, tables: &[&KeyTable]) -> bool {
        self.check_keys(&names(tables), |_| None)
    }

    /// Returns `true` if this is a table. Otherwise reports a problem. Also reports each key that
    /// is not in `keys`, with what to write instead: the text that `advice` returns for the key, or
    /// that of [`suggest::suggest_key`] if `advice` returns `None`.
    pub(crate) fn check_keys(&self, keys: &[&str], advice: impl Fn(&str) -> Option<&'static str>) -> bool {
        let is_table = self.expect_table("a table");
        for entry in self.entries().iter().filter(|entry| !keys.contains(&&*entry.key)) {
            let similar = || suggest::suggest_key(&entry.key, keys);
            let advice = advice(&entry.key).map_or_else(similar, str::to_owned);
            self.reject_entry(entry, &format!("unknown key; {advice}"));
        }
        is_table
    }

    /// Returns the names and values of a table whose keys are names that the user chose, such as
    /// `targets`. Omits invalid names. Reports them, and a value that is not a table.
    pub(crate) fn named(&self) -> Vec<(&'a str, Given<'a>)> {
        self.expect_table("a table of names");
        let is_valid =
            |entry: &&Entry| check_name(&entry.key).map_err(|why| self.reject_entry(entry, why)).is_ok();
        self.entries().iter().filter(is_valid).map(|entry| (&*entry.key, self.entry_value(entry))).collect()
    }

    /// Returns `true` if this is a table. Otherwise reports that `what` was expected. Also reports
    /// keys that the table has twice.
    fn expect_table(&self, what: &str) -> bool {
        if !self.is_table() {
            self.reject(format!("expected {what}; got {}", self.value.describe()));
        }
        let mut seen = HashSet::new();
        for entry in self.entries().iter().filter(|entry| !seen.insert(&entry.key)) {
            self.reject_entry(entry, "given twice; keep one");
        }
        self.is_table()
    }

    /// Reports a problem with a key of this table, at the line of the key.
    fn reject_entry(&self, entry: &Entry, text: &str) {
        self.problems.add(entry.line, &join(&self.path, &entry.key), text);
    }

    fn entry_value(&self, entry: &'a Entry) -> Given<'a> {
        Given::new(&join(&self.path, &entry.key), &entry.node, self.problems)
    }

    /// Returns the keys and values of a table. Empty if this is not a table.
    fn entries(&self) -> &'a [Entry] {
        match self.value {
            Value::Table(table) => &table.entries,
            _ => &[],
        }
    }
}

/// Checks the name of a target, tenant, budget or tool: not blank, at most 200 bytes, and without
/// control characters, because metrics and errors contain it. Otherwise returns why it is invalid.
fn check_name(name: &str) -> Result<(), &'static str> {
    if name.trim().is_empty() {
        Err("a name must not be empty")
    } else if name.len() > 200 {
        Err("a name may have at most 200 bytes")
    } else if name.chars().any(char::is_control) {
        Err("a name must not hold control characters")
    } else {
        Ok(())
    }
}

/// Returns the path of `key` in the table at `path`, as TOML writes it: the key is quoted if
/// necessary. A key of more than 64 characters is cut and ends with `...`.
pub(crate) fn join(path: &str, key: &str) -> String {
    const MAX_SHOWN_KEY: usize = 64;
    let cut: String = key.chars().take(MAX_SHOWN_KEY).collect();
    let more = if cut.len() < key.len() { "..." } else { "" };
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let dot = if path.is_empty() { "" } else { "." };
    if bare { format!("{path}{dot}{cut}{more}") } else { format!("{path}{dot}{:?}", cut + more) }
}
