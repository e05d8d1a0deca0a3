//! Collects the problems found while a configuration is read.

use std::cell::RefCell;

use crate::{ConfigError, ConfigProblem};

#[derive(Default)]
pub(crate) struct Problems(RefCell<Vec<ConfigProblem>>);

impl Problems {
    pub(crate) fn add(&self, line: Option<usize>, key: &str, message: impl Into<String>) {
        let problem = ConfigProblem { line, key: key.to_owned(), message: message.into() };
        self.0.borrow_mut().push(problem);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.borrow().len()
    }

    /// Returns `value` if no problem was added.
    pub(crate) fn into_result<T>(self, value: T) -> Result<T, ConfigError> {
        let problems = self.0.into_inner();
        if problems.is_empty() { Ok(value) } else { Err(ConfigError::new(problems)) }
    }
}
