//! The error of an invalid configuration.

/// A setting with an invalid value. The message names its key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct ConfigError {
    /// The key, with a dot between its parts.
    pub key: &'static str,
    /// What is wrong with the value.
    pub problem: String,
}

/// Returns an error about `key` unless the condition holds.
pub(crate) fn require(key: &'static str, problem: &str, holds: bool) -> Result<(), ConfigError> {
    if holds { Ok(()) } else { Err(ConfigError { key, problem: problem.to_owned() }) }
}
