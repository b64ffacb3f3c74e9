use subtend_journal::{OpenError, ReadError};

/// The reason why a drill cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum DrillError {
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{0}")]
    Other(String),
}
