//! The error of a configuration that is malformed or impossible.

use std::fmt;

/// Every problem found in a configuration, in the order of the file.
///
/// Displays one problem a line. No problem repeats a value that may be a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    source: Option<String>,
    problems: Vec<ConfigProblem>,
}

/// One problem of a configuration: what is wrong, where, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The line of the file, from 1. `None` for configurations that are not text.
    pub line: Option<usize>,
    /// The full path of the key (`targets.openai.cap`). Empty if the problem has no key, such as
    /// malformed TOML.
    pub key: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl ConfigError {
    /// Creates the error of these problems, sorted by line.
    pub(super) fn new(mut problems: Vec<ConfigProblem>) -> Self {
        // Stable: problems on one line, and those without a line, stay in the order they were
        // found.
        problems.sort_by_key(|problem| problem.line);
        Self { source: None, problems }
    }

    /// Names the file or other source of the configuration. Each line of the display then starts
    /// with it, as in `tidegate.toml:3: ...`; otherwise it starts with `line 3: ...`.
    pub fn in_source(mut self, name: &str) -> Self {
        self.source = Some(name.to_owned());
        self
    }

    /// Returns the problems. There is at least one.
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
