//! Errors of a sweep.

/// Error of a sweep. The message states what happened and what to do, and contains no API key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// An option is invalid, or options contradict each other.
    #[error("{0}")]
    Options(String),
    /// The preflight call failed, so the server cannot be measured.
    #[error("{0}")]
    Preflight(String),
    /// The sweep was stopped or reached its time ceiling during the preflight call, so it has
    /// measured nothing.
    #[error("{0}")]
    Stopped(String),
    /// A sweep cannot be resumed from its directory, or the directory of a new sweep already
    /// contains one.
    #[error("{0}")]
    Resume(String),
    /// A file cannot be read or written.
    #[error("{path}: cannot be read or written: {error}")]
    File {
        /// Path of the file.
        path: String,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// The gate rejected the target's configuration.
    #[error("{0}")]
    Gate(#[from] tidegate::Error),
}

impl SweepError {
    pub(crate) fn options(text: impl Into<String>) -> Self {
        Self::Options(text.into())
    }

    pub(crate) fn file(path: &std::path::Path, error: std::io::Error) -> Self {
        Self::File { path: path.display().to_string(), error }
    }
}
