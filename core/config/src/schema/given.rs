//! Values with their key paths.

use std::collections::HashSet;

use super::{Entry, InvalidValue, KeyTable, Node, Problems, Scalar, Setting, Value, names, nearest};

/// A given value, with the full path of its key and the line it is on.
#[derive(Clone)]
pub(crate) struct Given<'a> {
    pub(crate) path: String,
    pub(crate) line: Option<usize>,
    pub(crate) value: &'a Value,
    pub(crate) problems: &'a Problems,
}

impl<'a> Given<'a> {
    pub(crate) fn new(path: &str, node: &'a Node, problems: &'a Problems) -> Self {
        Self { path: path.to_owned(), line: node.line, value: &node.value, problems }
    }

    /// Reports a problem with the value.
    pub(crate) fn reject(&self, text: impl Into<String>) {
        self.problems.add(self.line, &self.path, text);
    }

    /// Reports a problem with the first of these keys that is given, or with the table if none is.
    pub(crate) fn reject_key(&self, keys: &[&str], text: impl Into<String>) {
        keys.iter().find_map(|key| self.get(key)).as_ref().unwrap_or(self).reject(text);
    }

    /// Rejects a value above another. Values that are both inherited are rejected where they were
    /// written.
    pub(crate) fn reject_above<T: Scalar + PartialOrd>(
        &self,
        (key, value): (&str, &T),
        (bound, most): (&str, &T),
    ) {
        if value > most && (self.has(key) || self.has(bound)) {
            let (value, most) = (value.to_value().show(), most.to_value().show());
            let text = format!("{key} ({value}) is above {bound} ({most}); lower {key} or raise {bound}");
            self.reject_key(&[key, bound], text);
        }
    }

    /// Reads the value. Reports a problem and returns `None` if it is invalid.
    pub(crate) fn read<T>(&self, reader: impl Fn(&Value) -> Result<T, InvalidValue>) -> Option<T> {
        reader(self.value).map_err(|invalid| self.reject(invalid.message(self.value))).ok()
    }

    /// Reads a key into `setting`, which is unchanged if the key is absent or invalid.
    pub(crate) fn set<T: Setting>(&self, key: &str, setting: &mut T, bounds: &T::Bounds) {
        if let Some(given) = self.get(key) {
            setting.overlay(&given, bounds);
        }
    }

    /// Returns the value of a key such as `cap` or `limit.start`, if this is a table that has it.
    pub(crate) fn get(&self, keys: &str) -> Option<Given<'a>> {
        let (key, rest) = keys.split_once('.').unwrap_or((keys, ""));
        let entry = self.entries().iter().find(|entry| entry.key == key)?;
        let given = self.at(entry);
        if rest.is_empty() { Some(given) } else { given.get(rest) }
    }

    pub(crate) fn has(&self, keys: &str) -> bool {
        self.get(keys).is_some()
    }

    pub(crate) fn is_table(&self) -> bool {
        matches!(self.value, Value::Table(_))
    }

    /// Returns the items of a list, or a value that is not a list.
    pub(crate) fn items(&self) -> Vec<Given<'a>> {
        let Value::List(items) = self.value else { return vec![self.clone()] };
        let item = |(index, node)| Given::new(&format!("{}[{index}]", self.path), node, self.problems);
        items.iter().enumerate().map(item).collect()
    }

    /// Returns `true` if the value is a table. Reports each key that is not in `tables` with the
    /// nearest valid one.
    pub(crate) fn check_table(&self, tables: &[&KeyTable]) -> bool {
        self.check_keys(&names(tables), |_| None)
    }

    /// As [`Given::check_table`]. `advice` returns what to write instead of an unknown key, if that
    /// is known.
    pub(crate) fn check_keys(&self, keys: &[&str], advice: impl Fn(&str) -> Option<String>) -> bool {
        let is_table = self.expect_table("a table");
        for entry in self.entries().iter().filter(|entry| !keys.contains(&&*entry.key)) {
            let advice = advice(&entry.key).unwrap_or_else(|| nearest::advice(&entry.key, keys));
            self.reject_entry(entry, &format!("unknown key; {advice}"));
        }
        is_table
    }

    /// Returns the values of a table whose keys are names that the user chose. Reports invalid
    /// names and omits them.
    pub(crate) fn named(&self) -> Vec<(&'a str, Given<'a>)> {
        self.expect_table("a table of names");
        let is_valid = |entry: &&Entry| match check_name(&entry.key) {
            Ok(()) => true,
            Err(why) => {
                self.reject_entry(entry, why);
                false
            }
        };
        self.entries().iter().filter(is_valid).map(|entry| (&*entry.key, self.at(entry))).collect()
    }

    /// Reports a value that is not a table, and keys that are given twice.
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

    fn reject_entry(&self, entry: &Entry, text: &str) {
        self.problems.add(entry.line, &join(&self.path, &entry.key), text);
    }

    fn at(&self, entry: &'a Entry) -> Given<'a> {
        Given::new(&join(&self.path, &entry.key), &entry.node, self.problems)
    }

    fn entries(&self) -> &'a [Entry] {
        match self.value {
            Value::Table(table) => &table.entries,
            _ => &[],
        }
    }
}

/// Checks the name of a target, tenant, budget or tool, which metrics and errors show.
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

/// Appends a key to a path as TOML writes it: quoted if necessary. Cuts keys after 64 characters.
pub(crate) fn join(path: &str, key: &str) -> String {
    const SHOWN: usize = 64;
    let cut: String = key.chars().take(SHOWN).collect();
    let more = if cut.len() < key.len() { "..." } else { "" };
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let dot = if path.is_empty() { "" } else { "." };
    if bare { format!("{path}{dot}{cut}{more}") } else { format!("{path}{dot}{:?}", cut + more) }
}
