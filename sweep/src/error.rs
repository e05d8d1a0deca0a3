//! Errors of a sweep.

/// An error with its cause and what to do about it. Contains no API key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// The options are invalid.
    #[error("{0}")]
    Options(String),
    /// The preflight call failed.
    #[error("{0}")]
    Preflight(String),
    /// The journal cannot be resumed.
    #[error("{0}")]
    Resume(String),
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// Path of the file.
        path: String,
        /// The I/O error.
        error: std::io::Error,
    },
    /// The gate cannot be created.
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
