//! Import into a running store: handles runs in flight of the export as a start handles those of an earlier process.

use std::collections::BTreeMap;
use std::io::{BufRead, Seek};
use std::sync::Arc;

use subtend_journal::{ImportBounds, ImportError, Progress, Tally};
use subtend_session::ids::SessionId;

use super::boot::{BootSteps, StartRecovery, levels};
use crate::values::at_boot::{AtBoot, Lost};

impl StartRecovery {
    /// Imports an export. Its runs in flight end as lost, deepest first, and undelivered rows between its sessions are delivered. Queued inputs
    /// remain until a person continues, since an import does not start work.
    pub(crate) async fn import<R: BufRead + Seek>(
        self: &Arc<Self>,
        file: &mut R,
        within: &ImportBounds,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Tally, ImportError> {
        let _alone = self.imports.lock().await;
        let written = self.log.journal.write_import(file, within, progress).await?;
        let (in_flight, owed) = (written.in_flight(), written.unsent_receivers());
        // Marked before clients see them: a session activated without its mark would resume as if it had run here.
        let lost = |(session, _): &(SessionId, _)| (*session, AtBoot::Lost(Lost { keeps_queue: true }));
        self.takeover.mark(in_flight.iter().map(lost));
        let tally = match self.log.journal.publish_import(written).await {
            Ok(tally) => tally,
            Err(error) => {
                for (session, _) in &in_flight {
                    self.takeover.take_mark(*session);
                }
                return Err(error);
            }
        };
        let mut by_depth: BTreeMap<u32, Vec<SessionId>> = BTreeMap::new();
        for (session, depth) in levels(&in_flight) {
            by_depth.entry(depth).or_default().push(session);
        }
        let _rows = self.takeover.sweep_rows();
        let mut failed = Vec::new();
        let mut course = BootSteps { done: 0, total: 0, progress: &|_| {} };
        for level in by_depth.into_values().rev().chain([owed.into_iter().collect()]) {
            failed.extend(self.visit(level, &mut course).await?);
        }
        for session in failed {
            tracing::error!(%session, "cannot end the run of an imported session; `subtend verify` shows why");
        }
        Ok(tally)
    }
}
