//! The error of an invalid configuration.

use std::fmt;

/// The error of an invalid configuration: all of its problems, in the order of their lines.
///
/// `Display` prints one problem per line. No problem repeats a value that may be a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    source: Option<String>,
    problems: Vec<ConfigProblem>,
}

/// One problem of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The line of the problem in the file, counted from 1. `None` if the problem has no line, as
    /// for JSON and builders.
    pub line: Option<usize>,
    /// The full path of the key (`targets.openai.cap`). Empty if the problem concerns no single
    /// key, as for malformed TOML.
    pub key: String,
    /// What is wrong, and what to write instead.
    pub message: String,
}

impl ConfigError {
    /// Creates an error from `problems`, which must not be empty, and sorts them by line.
    pub(super) fn new(mut problems: Vec<ConfigProblem>) -> Self {
        // The sort is stable: problems of the same line stay in the order in which they were found.
        problems.sort_by_key(|problem| problem.line);
        Self { source: None, problems }
    }

    /// Sets the name of the file or other source of the configuration. `Display` then starts each
    /// problem with `name:3: ` instead of `line 3: `, or with `name: ` if the problem has no line.
    pub fn in_source(mut self, name: &str) -> Self {
        self.source = Some(name.to_owned());
        self
    }

    /// Returns the problems, at least one, sorted by line.
    pub fn problems(&self) -> &[ConfigProblem] {
        &self.problems
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, ConfigProblem { line, key, message }) in self.problems.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "\n" })?;
            match (&self.source, line) {
                (Some(source), Some(line)) => write!(f, "{source}:{line}: ")?,
                (Some(source), None) => write!(f, "{source}: ")?,
                (None, Some(line)) => write!(f, "line {line}: ")?,
                (None, None) => {}
            }
            let separator = if key.is_empty() { "" } else { ": " };
            write!(f, "{key}{separator}{message}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
