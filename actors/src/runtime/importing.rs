//! Import while sessions are running.

use std::io::{BufRead, Seek};

use subtend_journal::{ImportBounds, ImportError, Progress, Tally};

use super::Runtime;

impl Runtime {
    /// Imports all sessions of an export or none, as [`Journal::import`] does, while other sessions are running. Blocks its thread while it reads.
    ///
    /// Runs that were in flight in the export have ended as lost when this returns. Queued inputs remain until a person continues, since an import
    /// does not start work.
    ///
    /// [`Journal::import`]: subtend_journal::Journal::import
    /// # Errors
    /// [`ImportError`]. For an invalid file nothing is written; after a failure of the store nothing is visible.
    /// # Cancel safety
    /// If the future is dropped or the process killed, either nothing or everything is visible. Runs in flight that it did not end are ended by the
    /// next start.
    /// # Durability
    /// Everything is durable when this returns without an error.
    pub async fn import<R: BufRead + Seek>(
        &self,
        file: &mut R,
        within: &ImportBounds,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Tally, ImportError> {
        self.components.recovery.import(file, within, progress).await
    }
}
