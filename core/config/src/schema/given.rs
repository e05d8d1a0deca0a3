//! Values with their key paths, and tables whose keys are known.

use super::nearest;
use super::problems::Problems;
use super::setting::{InvalidValue, Setting};
use super::tree::{Entry, Table, Value};

/// A given value, with the full path of its key and the line it is on.
pub(crate) struct Given<'a> {
    pub(crate) path: String,
    pub(crate) line: Option<usize>,
    pub(crate) value: &'a Value,
    pub(crate) problems: &'a Problems,
}

/// A table that is being read.
pub(crate) struct Section<'a> {
    path: String,
    line: Option<usize>,
    entries: &'a [Entry],
    problems: &'a Problems,
}

impl<'a> Given<'a> {
    /// Reports a problem with the value.
    pub(crate) fn reject(&self, text: impl Into<String>) {
        self.problems.add(self.line, &self.path, text);
    }

    /// Reads the value. Reports a problem and returns `None` if it is invalid.
    pub(crate) fn read<T>(&self, reader: impl Fn(&Value) -> Result<T, InvalidValue>) -> Option<T> {
        match reader(self.value) {
            Ok(value) => Some(value),
            Err(bad) => {
                self.reject(bad.message(self.value));
                None
            }
        }
    }

    /// Returns the value of a key, if this is a table that has the key.
    pub(crate) fn child(&self, key: &str) -> Option<Given<'a>> {
        let Value::Table(Table { entries }) = self.value else { return None };
        let entry = entries.iter().find(|entry| entry.key == key)?;
        let (path, line) = (join(&self.path, key), entry.node.line);
        Some(Given { path, line, value: &entry.node.value, problems: self.problems })
    }

    /// Opens a table that may have these keys only. Reports each unknown key with the nearest valid
    /// one.
    pub(crate) fn section(self, keys: &[&str]) -> Option<Section<'a>> {
        self.section_with(keys, |_| None)
    }

    /// As [`Given::section`]. `meant` returns what to write instead of an unknown key, if that is
    /// known.
    pub(crate) fn section_with(
        self,
        keys: &[&str],
        meant: impl Fn(&str) -> Option<String>,
    ) -> Option<Section<'a>> {
        let section = self.open("a table")?;
        for entry in section.entries {
            if !keys.contains(&entry.key.as_str()) {
                let advice = meant(&entry.key).unwrap_or_else(|| nearest::advice(&entry.key, keys));
                section.at(entry).reject_at(entry.line, format!("unknown key; {advice}"));
            }
        }
        Some(section)
    }

    /// Opens a table whose keys are names that the user chose. Reports invalid names and omits
    /// them.
    pub(crate) fn named(self) -> Vec<(&'a str, Given<'a>)> {
        let Some(section) = self.open("a table of names") else { return Vec::new() };
        let mut named = Vec::with_capacity(section.entries.len());
        for entry in section.entries {
            let given = section.at(entry);
            match check_name(&entry.key) {
                Ok(()) => named.push((entry.key.as_str(), given)),
                Err(why) => given.reject_at(entry.line, why),
            }
        }
        named
    }

    fn open(self, what: &str) -> Option<Section<'a>> {
        let Value::Table(Table { entries }) = self.value else {
            self.reject(format!("expected {what}; got {}", self.value.describe()));
            return None;
        };
        let section = Section { path: self.path, line: self.line, entries, problems: self.problems };
        let mut seen = std::collections::HashSet::with_capacity(entries.len());
        for entry in entries {
            if !seen.insert(entry.key.as_str()) {
                section.at(entry).reject_at(entry.line, "given twice; keep one");
            }
        }
        Some(section)
    }

    fn reject_at(self, line: Option<usize>, text: impl Into<String>) {
        Given { line, ..self }.reject(text);
    }
}

impl<'a> Section<'a> {
    pub(crate) fn get(&self, key: &str) -> Option<Given<'a>> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| self.at(entry))
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    /// Reads a key into `setting`, which is unchanged if the key is absent or invalid.
    pub(crate) fn set<T: Setting>(&self, key: &str, setting: &mut T, bounds: &T::Bounds) {
        if let Some(given) = self.get(key) {
            setting.overlay(given, bounds);
        }
    }

    /// Reports a problem with the first of these keys that is given, or with the table if none is.
    pub(crate) fn reject(&self, keys: &[&str], text: impl Into<String>) {
        match keys.iter().find_map(|key| self.get(key)) {
            Some(given) => given.reject(text),
            None => self.problems.add(self.line, &self.path, text),
        }
    }

    fn at(&self, entry: &'a Entry) -> Given<'a> {
        Given {
            path: join(&self.path, &entry.key),
            line: entry.node.line,
            value: &entry.node.value,
            problems: self.problems,
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
