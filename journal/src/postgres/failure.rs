//! Failures of operations on the server.

use std::error::Error as _;

use tokio_postgres::error::{DbError, Severity, SqlState};

use super::server_text::server_text;
use super::target::ShardAddress;
use crate::error::{EngineError, OpenError};
use crate::rows::EV_KEY_LEN;
use crate::tables::Table;

pub(super) enum ServerFailure {
    /// The connection was lost, so it is unknown whether the server performed the operation.
    Lost(String),
    /// The server refused the operation.
    Refused(Box<DbError>),
    /// Another process has claimed the shard.
    Fenced,
    /// Another process holds the shard's lock.
    Held(String),
    Missing,
    Newer {
        found: u64,
        known: u64,
    },
    Engine(EngineError),
}

impl From<EngineError> for ServerFailure {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl From<tokio_postgres::Error> for ServerFailure {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(db) if !ends_connection(db) => Self::Refused(Box::new(db.clone())),
            Some(_) | None => Self::Lost(describe(&error)),
        }
    }
}

/// Returns whether the server ends the connection with this error, which leaves the outcome of a running commit unknown.
fn ends_connection(error: &DbError) -> bool {
    let code = error.code().code();
    let fatal = matches!(error.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
    fatal || code.starts_with("57P") || code.starts_with("08")
}

/// Returns the error with its causes, since the outer error is too general.
pub(super) fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        return describe_refusal(db);
    }
    let causes = std::iter::successors(error.source(), |error: &&dyn std::error::Error| (*error).source());
    server_text(&causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}")))
}

fn describe_refusal(error: &DbError) -> String {
    format!("{} (SQLSTATE {})", server_text(error.message()), server_text(error.code().code()))
}

impl ServerFailure {
    pub(super) fn engine(self, what: &'static str, shard: &str) -> EngineError {
        match self {
            Self::Engine(error) => error,
            Self::Fenced => EngineError::Fenced { shard: shard.to_owned() },
            Self::Refused(error) => match overwrite_error(&error) {
                Some(error) => error,
                None => EngineError::Store { what, why: Self::Refused(error).describe() },
            },
            Self::Lost(_) | Self::Held(_) | Self::Missing | Self::Newer { .. } => {
                EngineError::Store { what, why: self.describe() }
            }
        }
    }

    pub(super) fn describe(self) -> String {
        match self {
            Self::Engine(error) => error.to_string(),
            Self::Fenced => "it was claimed by another process".to_owned(),
            Self::Refused(error) => describe_refusal(&error),
            Self::Lost(why) => format!("the connection to the database was lost: {why}"),
            Self::Held(holder) => format!("the shard is in use by {holder}"),
            Self::Missing => "the shard no longer exists".to_owned(),
            Self::Newer { found, known } => format!("the schema has version {found}, but this build supports {known}"),
        }
    }

    pub(super) fn open(self, target: &ShardAddress) -> OpenError {
        let store = target.to_string();
        match self {
            Self::Lost(why) => OpenError::Unreachable { store, why },
            Self::Refused(error) => OpenError::Unreachable { store, why: describe_refusal(&error) },
            Self::Held(holder) => OpenError::ClaimedElsewhere { store, holder },
            Self::Missing => OpenError::Missing { store },
            Self::Newer { found, known } => OpenError::Newer { found, known },
            Self::Fenced => OpenError::Engine(EngineError::Fenced { shard: target.shard.clone() }),
            Self::Engine(error) => OpenError::Engine(error),
        }
    }
}

/// Returns the error for a frame that a group would have replaced, from the server's message.
fn overwrite_error(error: &DbError) -> Option<EngineError> {
    let of_log = matches!(error.table(), Some("ev" | "log"));
    if *error.code() != SqlState::UNIQUE_VIOLATION || !of_log {
        return None;
    }
    let (_, hex) = error.detail()?.split_once("\\x")?;
    let digits =
        hex.as_bytes().chunks(2).map_while(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    let key: Vec<u8> = digits.collect();
    Some(if key.len() == EV_KEY_LEN { Table::Ev } else { Table::Log }.overwrite(&key))
}
