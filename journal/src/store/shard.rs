//! Stores in a database.

use std::sync::Arc;

use crate::compact::Compacted;
use crate::engine::Engine as _;
use crate::error::{EngineError, OpenError};
use crate::journal::{Journal, Options};
use crate::postgres::{Postgres, ShardAddress};
use crate::watermark::Watermark;

pub(super) fn open(target: &ShardAddress, options: &Options) -> Result<Journal, OpenError> {
    let engine = Postgres::open(target)?;
    let found = engine.last_lsn()?;
    let remember = |dir: &std::path::PathBuf| Watermark::remember(dir, found, options.accept_loss);
    let watermark = options.node_dir.as_ref().map(remember).transpose()?;
    Journal::start(Arc::new(engine), options.queue_bytes, None, None, watermark)
}

pub(super) fn open_to_read(target: &ShardAddress, options: &Options) -> Result<Journal, OpenError> {
    let engine = Postgres::open_to_read(target)?;
    if let Some(dir) = &options.node_dir {
        Watermark::recall(dir, engine.last_lsn()?, options.accept_loss)?;
    }
    Journal::start(Arc::new(engine), options.queue_bytes, None, None, None)
}

/// Refuses: the rows of a shard lie in files that other shards share.
pub(super) fn compact(target: &ShardAddress) -> Result<Compacted, OpenError> {
    let why = format!(
        "{target} is a shard of a database, which this version does not rewrite. Export it and import the file into a new shard: deleted \
         sessions stay behind"
    );
    Err(OpenError::Engine(EngineError::Store { what: "compact", why }))
}
