//! Limits the memory for what an import keeps of all lines.

use super::ImportError;

// Estimated bytes. A map takes up to twice the size of its entries, and a growing vector too.
/// Position and LSN of a frame.
pub(super) const FRAME: usize = 64;
/// Rows and place of a session, with its first frame.
pub(super) const SESSION: usize = 1_024;
pub(super) const DELETED: usize = 640;
/// Position of a body.
pub(super) const BODY: usize = 96;
/// Creation and end of an obligation.
pub(super) const OBLIGATION: usize = 192;
/// Row of an open obligation.
pub(super) const OWED: usize = 384;

#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    limit: usize,
    remaining: usize,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, remaining: limit }
    }

    /// Takes `bytes` for what line `line` leaves in memory.
    pub(super) fn take(&mut self, line: u64, bytes: usize) -> Result<(), ImportError> {
        let remaining = self.remaining.checked_sub(bytes);
        self.remaining = remaining.ok_or(ImportError::TooMany { line, limit_mib: self.limit >> 20 })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::super::survey::survey;
    use super::*;

    /// All lines of a file leave something in memory, so their number is bounded. The control: exactly as much as the lines need.
    #[test]
    fn import_refuses_lines_beyond_its_memory() {
        let export = include_bytes!("../../fixtures/1/deleted.jsonl");
        let with = |bytes| {
            survey(&mut Cursor::new(export), u64::MAX, Budget::new(bytes)).map(|survey| survey.budget.remaining)
        };
        let needed = (1 << 20) - with(1 << 20).unwrap();
        let count = |kind| String::from_utf8_lossy(export).matches(kind).count();
        let (deleted, bodies, frames) = (count(",\"deleted\":{\"session"), count(",\"def\":"), count(",\"frame\":"));
        let sessions = count(",\"first_seq\":1,");
        let frames = frames - sessions;
        assert_eq!(needed, deleted * DELETED + bodies * BODY + sessions * SESSION + frames * FRAME);
        assert!(deleted * bodies * sessions > 0);
        assert_eq!(with(needed).unwrap(), 0);
        for bytes in [0, needed - 1] {
            let refused = with(bytes).unwrap_err();
            assert!(matches!(refused, ImportError::TooMany { limit_mib: 0, .. }), "{refused}");
        }
    }
}
