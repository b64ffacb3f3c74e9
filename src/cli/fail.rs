use std::io;
use std::process::ExitCode;

use subtend_journal::{EngineError, OpenError, ReadError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    /// The command succeeded; a run completed.
    Done = 0,
    Failed = 1,
    /// The command line or the configuration is invalid.
    Usage = 2,
    /// The store was refused: it is in use, newer, damaged, or older than its watermark.
    Store = 3,
    Spent = 4,
    Cancelled = 130,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// An error of a command. Each variant represents what the caller can do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fail {
    /// Correct the command line or the configuration.
    #[error("{0}")]
    Usage(String),
    /// Inspect the store.
    #[error("{0}")]
    Store(String),
    /// Retry: another process held the store without serving it, or ended while it served this command.
    #[error("{0}")]
    Unavailable(String),
    /// Anything else; the message names the remedy.
    #[error("{0}")]
    Other(String),
    /// The reader of stdout has closed it. Nothing is reported.
    #[error("the output is closed")]
    Closed,
}

impl Fail {
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Usage(_) => Code::Usage,
            Self::Store(_) | Self::Unavailable(_) => Code::Store,
            Self::Other(_) => Code::Failed,
            Self::Closed => Code::Done,
        }
    }
}

impl From<io::Error> for Fail {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::Closed;
        }
        Self::Other(format!("the output cannot be written: {error}"))
    }
}

impl From<serde_json::Error> for Fail {
    fn from(error: serde_json::Error) -> Self {
        match error.io_error_kind() {
            Some(kind) => io::Error::from(kind).into(),
            None => Self::Other(format!("the output cannot be written as JSON: {error}")),
        }
    }
}

impl From<OpenError> for Fail {
    fn from(error: OpenError) -> Self {
        match &error {
            OpenError::Engine(EngineError::Unreachable(_)) => Self::Unavailable(error.to_string()),
            OpenError::BadSpec { .. } => Self::Usage(error.to_string()),
            OpenError::Unreachable { .. } | OpenError::ClaimedElsewhere { .. } => Self::Unavailable(error.to_string()),
            OpenError::InUse { .. } => Self::Unavailable(format!("{error} (--data DIR or --store ENGINE:PATH)")),
            OpenError::Io { .. }
            | OpenError::Missing { .. }
            | OpenError::OtherEngine { .. }
            | OpenError::Engine(_)
            | OpenError::Newer { .. }
            | OpenError::Behind { .. }
            | OpenError::Watermark { .. }
            | OpenError::Irregular { .. }
            | OpenError::Thread(_) => Self::Store(error.to_string()),
        }
    }
}

impl From<ReadError> for Fail {
    fn from(error: ReadError) -> Self {
        match &error {
            ReadError::Engine(EngineError::Unreachable(_)) => Self::Unavailable(error.to_string()),
            ReadError::Damaged { .. } | ReadError::Newer { .. } | ReadError::Engine(_) => {
                Self::Store(format!("{error}; `subtend verify` reports all damage"))
            }
            ReadError::NoSuchSession(_) | ReadError::Closed => Self::Other(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_output_is_not_a_failure() {
        let fail = Fail::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((fail.code(), matches!(fail, Fail::Closed)), (Code::Done, true));
    }

    #[test]
    fn store_in_use_names_the_process_and_a_remedy() {
        let fail = Fail::from(OpenError::InUse { path: "/data/redb".into(), pid: "4711".into(), boot: "b".into() });
        assert_eq!(fail.code(), Code::Store);
        let text = fail.to_string();
        assert!(text.contains("4711") && text.contains("--data DIR"), "{text}");
    }
}
