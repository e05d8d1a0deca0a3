//! The error type of the configuration and its parts.

/// A configuration value is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct ConfigError {
    /// Path of the key, such as `engine.num_blocks`.
    pub key: &'static str,
    /// The condition that the value breaks, such as `must be above 0`.
    pub problem: String,
}

/// Returns an error with `key` and `problem` if `holds` is `false`.
pub(crate) fn require(key: &'static str, problem: &str, holds: bool) -> Result<(), ConfigError> {
    if holds { Ok(()) } else { Err(ConfigError { key, problem: problem.to_owned() }) }
}
