//! Errors of the configuration, shared by all its parts.

/// An invalid configuration value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct ConfigError {
    /// Dotted path of the key.
    pub key: &'static str,
    /// The reason, for the user.
    pub problem: String,
}

/// Returns an error with `key` and `problem` unless `holds`.
pub(crate) fn require(key: &'static str, problem: &str, holds: bool) -> Result<(), ConfigError> {
    if holds { Ok(()) } else { Err(ConfigError { key, problem: problem.to_owned() }) }
}
