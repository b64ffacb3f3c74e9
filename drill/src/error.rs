//! Why a drill comes to nothing.

use subtend_journal::{OpenError, ReadError};

/// Why a drill cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum DrillError {
    /// It was asked for something that cannot be drilled.
    #[error("{0}")]
    Usage(String),
    /// A store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A store cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The system refused something.
    #[error("{0}")]
    Other(String),
}
