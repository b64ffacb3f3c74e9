//! Stores in a database.

use std::sync::Arc;

use crate::compact::Compacted;
use crate::engine::Engine as _;
use crate::error::OpenError;
use crate::journal::{Journal, Options};
use crate::postgres::{self, Postgres, ShardAddress};
use crate::watermark::Watermark;

pub(super) fn open(target: &ShardAddress, options: &Options) -> Result<Journal, OpenError> {
    let engine = Postgres::open(target)?;
    let found = engine.last_lsn()?;
    let remember = |dir: &std::path::PathBuf| Watermark::open_shared(dir, found, options.accept_loss);
    let watermark = options.node_dir.as_ref().map(remember).transpose()?;
    Journal::start(Arc::new(engine), options.queue_bytes, None, None, watermark)
}

pub(super) fn open_to_read(target: &ShardAddress, options: &Options) -> Result<Journal, OpenError> {
    let engine = Postgres::open_to_read(target)?;
    if let Some(dir) = &options.node_dir {
        Watermark::check_shared(dir, engine.last_lsn()?, options.accept_loss)?;
    }
    Journal::start(Arc::new(engine), options.queue_bytes, None, None, None)
}

/// Removes the rows of deleted sessions from a shard that no process has open.
pub(super) fn compact(target: &ShardAddress, options: &Options) -> Result<Compacted, OpenError> {
    let engine = Postgres::open(target)?;
    if let Some(dir) = &options.node_dir {
        Watermark::check_shared(dir, engine.last_lsn()?, options.accept_loss)?;
    }
    Ok(postgres::compact(&engine)?)
}
