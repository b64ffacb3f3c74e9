//! Import while sessions work.

use std::io::{BufRead, Seek};

use subtend_journal::{ImportError, Tally};
use subtend_session::authority::Authority;

use super::Runtime;

impl Runtime {
    /// Imports all sessions of an export or none, as [`Journal::import`] does, while other sessions work. Blocks its thread while it reads.
    ///
    /// Runs that were in flight in the export have ended as lost when this returns. Inputs that were queued remain until a person
    /// continues: an import starts no work.
    ///
    /// [`Journal::import`]: subtend_journal::Journal::import
    /// # Errors
    /// [`ImportError`]. For an invalid file nothing was written; after a failure of the store nothing is visible.
    /// # Cancel safety
    /// Dropped or killed, it leaves nothing or all visible. Runs in flight that it did not end yet are ended by the next start.
    /// # Durability
    /// Everything is durable when this returns without an error.
    pub async fn import<R: BufRead + Seek>(&self, file: &mut R, within: &Authority) -> Result<Tally, ImportError> {
        self.rooms.recovery.import(file, within).await
    }
}
