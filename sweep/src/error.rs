//! Why a sweep cannot be made.

/// What went wrong, and what to do about it. Holds no key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// What was asked for cannot work.
    #[error("{0}")]
    Options(String),
    /// The first call was not answered as a call of this kind is.
    #[error("{0}")]
    Preflight(String),
    /// A journal cannot be gone on with.
    #[error("{0}")]
    Resume(String),
    /// A file could not be read or written.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// The gate cannot be made.
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
