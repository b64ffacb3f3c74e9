//! A journal engine whose store is in memory and whose writes a simulation controls.

use std::borrow::Cow;

use subtend_journal::engine::{Engine, Group, Range, Result, ScanFlow, StoredFrame};
use subtend_journal::memory::Memory;
use subtend_session::ids::{Hash, Lsn, Seq, SessionId, Text};
use subtend_session::index::{Head, Inflight, Row};

/// The part of an engine that a simulation controls.
pub(crate) trait Storage: Send + Sync + 'static {
    /// Returns the store for reads. Clones share it.
    fn memory(&self) -> Memory;

    /// Writes a group, or fails if the simulation injects a failure.
    fn store(&self, group: Group) -> Result<()>;
}

/// An engine on top of a simulated storage.
pub(crate) struct Simulated<S>(pub(crate) S);

impl<S: Storage> Engine for Simulated<S> {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn durability(&self) -> Cow<'static, str> {
        "as ordered".into()
    }

    fn write(&self, group: Group) -> Result<()> {
        self.0.store(group)
    }

    fn wants_bytes(&self) -> bool {
        false
    }

    fn max_body(&self) -> u64 {
        self.0.memory().max_body()
    }

    fn syncs(&self) -> u64 {
        self.0.memory().syncs()
    }

    fn last_lsn(&self) -> Result<Lsn> {
        self.0.memory().last_lsn()
    }

    fn frame(&self, lsn: Lsn) -> Result<Option<StoredFrame>> {
        self.0.memory().frame(lsn)
    }

    fn frames(&self, from: Lsn, visit: &mut dyn FnMut(Lsn, StoredFrame) -> ScanFlow) -> Result<()> {
        self.0.memory().frames(from, visit)
    }

    fn positions(&self, session: SessionId) -> Result<Vec<(Seq, Lsn)>> {
        self.0.memory().positions(session)
    }

    fn range(&self, session: SessionId, from: Seq, until: Seq, max_bytes: u64) -> Result<Range> {
        self.0.memory().range(session, from, until, max_bytes)
    }

    fn all_positions(&self, visit: &mut dyn FnMut(SessionId, Seq, Lsn) -> ScanFlow) -> Result<()> {
        self.0.memory().all_positions(visit)
    }

    fn head(&self, session: SessionId) -> Result<Option<Head>> {
        self.0.memory().head(session)
    }

    fn heads(&self, visit: &mut dyn FnMut(SessionId, Result<Head>) -> ScanFlow) -> Result<()> {
        self.0.memory().heads(visit)
    }

    fn inflight(&self, session: SessionId) -> Result<Option<Inflight>> {
        self.0.memory().inflight(session)
    }

    fn inflights(&self, visit: &mut dyn FnMut(SessionId, Result<Inflight>) -> ScanFlow) -> Result<()> {
        self.0.memory().inflights(visit)
    }

    fn children(&self, parent: SessionId) -> Result<Vec<SessionId>> {
        self.0.memory().children(parent)
    }

    fn all_children(&self, visit: &mut dyn FnMut(SessionId, SessionId) -> ScanFlow) -> Result<()> {
        self.0.memory().all_children(visit)
    }

    fn outbox(&self, to: Option<SessionId>, visit: &mut dyn FnMut(Result<(Row, Lsn)>) -> ScanFlow) -> Result<()> {
        self.0.memory().outbox(to, visit)
    }

    fn def(&self, hash: Hash) -> Result<Option<Text>> {
        self.0.memory().def(hash)
    }

    fn defs(&self, visit: &mut dyn FnMut(Hash, Result<Text>) -> ScanFlow) -> Result<()> {
        self.0.memory().defs(visit)
    }
}
