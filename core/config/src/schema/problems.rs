//! The problems that are found while a configuration is read.

use std::cell::RefCell;

use crate::{ConfigError, ConfigProblem};

/// Collects problems, so that one [`ConfigError`] reports all of them.
#[derive(Default)]
pub(crate) struct Problems(RefCell<Vec<ConfigProblem>>);

impl Problems {
    /// Adds a problem with the key whose full path is `key`. `line` is counted from 1, and is
    /// `None` if the problem has no line, as for JSON and builders.
    pub(crate) fn add(&self, line: Option<usize>, key: &str, message: impl Into<String>) {
        let problem = ConfigProblem { line, key: key.to_owned(), message: message.into() };
        self.0.borrow_mut().push(problem);
    }

    /// Returns the number of problems so far.
    pub(crate) fn count(&self) -> usize {
        self.0.borrow().len()
    }

    /// Returns the result of `read` if it adds no problem, otherwise the error of all problems.
    pub(crate) fn check<T>(read: impl FnOnce(&Self) -> T) -> Result<T, ConfigError> {
        let problems = Self::default();
        let value = read(&problems);
        let problems = problems.0.into_inner();
        if problems.is_empty() { Ok(value) } else { Err(ConfigError::new(problems)) }
    }
}
