//! Lower bound: groups written to one preallocated file, which is synced. A sync that lengthens a file also commits the file system.

use std::borrow::Cow;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use subtend_journal::EngineError;
use subtend_journal::engine::{Engine, Group, Payload, Range, Result, ScanFlow, StoredFrame};
use subtend_session::ids::{Hash, Lsn, Seq, SessionId, Text};
use subtend_session::index::{Head, Inflight, Row};

pub struct Floor {
    file: Mutex<File>,
    syncs: AtomicU64,
}

impl Floor {
    pub fn open(path: &Path, bytes: usize) -> Self {
        std::fs::write(path, vec![0; bytes]).expect("room");
        let file = File::options().write(true).open(path).expect("a file");
        file.sync_all().expect("a sync");
        Self { file: Mutex::new(file), syncs: AtomicU64::new(0) }
    }
}

impl Engine for Floor {
    fn name(&self) -> &'static str {
        "floor"
    }

    fn durability(&self) -> Cow<'static, str> {
        "fsync, and nothing is read back".into()
    }

    fn write(&self, group: Group) -> Result<()> {
        let mut out = Vec::new();
        for frame in group.frames {
            if let Payload::Bytes(bytes) = frame.payload {
                out.extend_from_slice(&bytes);
            }
        }
        let mut file = self.file.lock().expect("one writer");
        let written = file.write_all(&out).and_then(|()| file.sync_data());
        written.map_err(|source| EngineError::Io { what: "write", source })?;
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn wants_bytes(&self) -> bool {
        true
    }

    fn max_body(&self) -> u64 {
        1 << 20
    }

    fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    fn last_lsn(&self) -> Result<Lsn> {
        Ok(Lsn(0))
    }

    fn frame(&self, _: Lsn) -> Result<Option<StoredFrame>> {
        Ok(None)
    }

    fn frames(&self, _: Lsn, _: &mut dyn FnMut(Lsn, StoredFrame) -> ScanFlow) -> Result<()> {
        Ok(())
    }

    fn positions(&self, _: SessionId) -> Result<Vec<(Seq, Lsn)>> {
        Ok(Vec::new())
    }

    fn range(&self, _: SessionId, _: Seq, _: Seq, _: u64) -> Result<Range> {
        Ok(Range { head: Ok(None), inflight: Ok(None), frames: Vec::new() })
    }

    fn all_positions(&self, _: &mut dyn FnMut(SessionId, Seq, Lsn) -> ScanFlow) -> Result<()> {
        Ok(())
    }

    fn head(&self, _: SessionId) -> Result<Option<Head>> {
        Ok(None)
    }

    fn heads(&self, _: &mut dyn FnMut(SessionId, Result<Head>) -> ScanFlow) -> Result<()> {
        Ok(())
    }

    fn inflight(&self, _: SessionId) -> Result<Option<Inflight>> {
        Ok(None)
    }

    fn inflights(&self, _: &mut dyn FnMut(SessionId, Result<Inflight>) -> ScanFlow) -> Result<()> {
        Ok(())
    }

    fn children(&self, _: SessionId) -> Result<Vec<SessionId>> {
        Ok(Vec::new())
    }

    fn all_children(&self, _: &mut dyn FnMut(SessionId, SessionId) -> ScanFlow) -> Result<()> {
        Ok(())
    }

    fn outbox(&self, _: Option<SessionId>, _: &mut dyn FnMut(Result<(Row, Lsn)>) -> ScanFlow) -> Result<()> {
        Ok(())
    }

    fn def(&self, _: Hash) -> Result<Option<Text>> {
        Ok(None)
    }

    fn defs(&self, _: &mut dyn FnMut(Hash, Result<Text>) -> ScanFlow) -> Result<()> {
        Ok(())
    }
}
