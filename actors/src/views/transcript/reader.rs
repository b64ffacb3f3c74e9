//! Reads the transcript of a session, and what the journals of other sessions say about it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use subtend_journal::{Journal, ReadError, Stored};
use subtend_session::authority::Verdict;
use subtend_session::call::CallEnd;
use subtend_session::ids::{Hash, Interned, RunNo, Seq, SessionId, Text};
use subtend_session::index::Head;
use subtend_session::record::{Record, SessionCreated};
use subtend_session::values::{JsonText, parse_recorded};
use subtend_tools::dialect::minion;
use subtend_tools::message;

use super::end::OwnedEnd;
use super::entry::{CallOutcome, NestedTranscript, ShownEntry};
use super::minion::MinionRuns;
use super::session_reading::{SessionReading, fold};
use super::{ACTIONS, Branch, Header, MAX_NESTED_LEVELS, Transcript, TranscriptError, TranscriptReading, each, head};
use crate::views::history::History;

/// Number of records of a child that are read at a time to find the ends of its runs.
const ENDS_PAGE: u64 = 64;
/// Maximum number of records of other sessions that one reading decodes.
const MAX_OTHER_RECORDS: u64 = 100_000;
/// Maximum encoded bytes of these records, and of ends: several owners may repeat the text of one child.
const MAX_OTHER_BYTES: u64 = 24 << 20;
/// Number of sessions that are remembered for one name: the sender and two others, which make it ambiguous.
const MAX_NAMED: usize = 3;

/// One reading of a transcript. Imported records may name any session any number of times, so each is read once for each
/// purpose, and all together have a limit.
pub(super) struct TranscriptReader<'a> {
    journal: &'a Journal,
    nested: BTreeSet<SessionId>,
    /// The sessions with the system prompts that were read.
    systems: BTreeMap<Hash, SessionId>,
    minions: BTreeSet<SessionId>,
    /// Owners, and the children whose ends were read for them.
    ends: BTreeSet<(SessionId, SessionId)>,
    /// The children of a session by short name and by id.
    names: BTreeMap<SessionId, BTreeMap<Text, Vec<SessionId>>>,
    /// Number of records of other sessions that may still be decoded, and of their bytes.
    left: u64,
    left_bytes: u64,
}

impl<'a> TranscriptReader<'a> {
    pub(super) fn new(journal: &'a Journal) -> Self {
        let (nested, systems, minions, ends, names) = Default::default();
        Self { journal, nested, systems, minions, ends, names, left: MAX_OTHER_RECORDS, left_bytes: MAX_OTHER_BYTES }
    }

    /// Reads a session. `task` comes from the call that started it.
    pub(super) fn read(
        &mut self,
        id: SessionId,
        how: TranscriptReading,
        task: Option<&Text>,
    ) -> Result<Transcript, TranscriptError> {
        let mut head = head(self.journal, id)?.ok_or(ReadError::NoSuchSession(id))?;
        let last = how.at.map_or(head.last_seq, |at| at.min(head.last_seq));
        let read = SessionReading::read(self.journal, id, last, how)?;
        if let Some(at) = how.at {
            head = read.head(self.journal, id).ok_or(TranscriptError::NoReplay { session: id, at })?;
        }
        let SessionReading { history, created, summary, builder, last_seq, is_compacted, .. } = read;
        let created = created.as_deref();
        let system_of = created.and_then(|created| self.systems.get(&created.system.hash)).copied();
        let named = created.map(|created| &created.system).filter(|_| system_of.is_none());
        let system = named.map(|named| self.text(named)).transpose()?;
        self.systems.extend(named.map(|named| (named.hash, id)));
        let (mut entries, earlier, next) = builder.build();
        let is_compacted = is_compacted && self.mark_compacted(id, last_seq, &mut entries);
        let first = how.newest.map_or(0, |newest| entries.len().saturating_sub(newest));
        let shown = entries.get_mut(first..).unwrap_or_default();
        self.complete(id, shown);
        self.address((id, head.parent), shown);
        if let Some(levels) = how.nests {
            self.nest(id, &history, shown, levels.min(MAX_NESTED_LEVELS));
        }
        let header = Header {
            id,
            short: head.short.clone(),
            agent: head.agent.clone(),
            agent_hash: created.map(|created| created.agent_hash),
            model: created.map(|created| created.model.clone()),
            parent: head.parent,
            root: head.root,
            depth: head.depth,
            state: head.state,
            limited_until: history.limited_until,
            outcome: head.last_outcome,
            title: head.title.clone(),
            workspace: created.map(|created| created.workspace.clone()),
            servers: created.map(|created| created.servers.clone()).unwrap_or_default(),
            imported: created.is_some_and(|created| created.imported.is_some()),
            rights: created.map(rights).unwrap_or_default(),
            created_ms: head.created_ms,
            metadata: JsonText::of_metadata(history.metadata.as_ref()),
            branch: Branch::of(id, &head, &history, task),
            system,
            system_of,
            summary,
        };
        Ok(Transcript { header, entries, earlier, is_compacted, last_seq, next })
    }

    /// Fills in the texts of ends that are only in the child's journal. A text that is not read remains empty.
    fn complete(&mut self, owner: SessionId, entries: &mut [ShownEntry]) {
        let ends = entries.iter_mut().flat_map(|shown| shown.entry.ends_mut());
        let short = ends.filter(|end| end.text.is_empty() && end.len > 0);
        for (child, ends) in by_child(short.map(|end| (end.child, end))) {
            let Some(head) = self.opt_head(child) else {
                ends.into_iter().for_each(|end| end.deleted = true);
                continue;
            };
            if !self.ends.insert((owner, child)) {
                continue;
            }
            let mut wanted: BTreeMap<RunNo, &mut OwnedEnd> = BTreeMap::new();
            for (run, end) in ends.into_iter().filter_map(|end| Some((end.run?, end))) {
                // The end of a run is noticed once, so forged repetitions do not multiply its text.
                wanted.entry(run).or_insert(end);
            }
            self.find_ends(child, head.last_seq.next(), wanted);
        }
    }

    /// Reads the records of `child` before `until` backwards, since an end is among the last records of its run.
    fn find_ends(&mut self, child: SessionId, mut until: Seq, mut wanted: BTreeMap<RunNo, &mut OwnedEnd>) {
        while until > Seq(1) && !wanted.is_empty() && self.left > 0 && self.left_bytes > 0 {
            let page = self.journal.page_before(child, until, ENDS_PAGE, self.left_bytes);
            let page = page.or_else(|_| self.journal.salvage(child).map(|all| (all, self.left_bytes)));
            // For an unreadable child the text names the command that shows the reason.
            let Ok((page, bytes)) = page else { return };
            for stored in &page {
                if let Record::RunEnded(ended) = &stored.record
                    && let Some(end) = wanted.remove(&ended.run)
                {
                    end.complete(ended);
                    self.left_bytes = self.left_bytes.saturating_sub(end.text.len() as u64);
                }
            }
            self.left = self.left.saturating_sub(page.len() as u64);
            self.left_bytes = self.left_bytes.saturating_sub(bytes);
            until = page.first().map_or(Seq(1), |first| first.seq.min(Seq(until.0.saturating_sub(1))));
        }
    }

    /// Names the receivers of delivered messages.
    fn address(&mut self, (id, parent): (SessionId, Option<SessionId>), entries: &mut [ShownEntry]) {
        for call in entries.iter_mut().flat_map(|shown| shown.entry.calls_mut()) {
            let is_delivered = matches!(&call.result, Some(CallOutcome::Result { end: CallEnd::Ok, .. }));
            if *call.tool != *message::NAME || !is_delivered {
                continue;
            }
            let args: Value = parse_recorded(&call.args).unwrap_or_default();
            let to = args.get("to").and_then(Value::as_str).map_or("", message::receiver);
            if to == message::PARENT {
                call.receiver = parent;
                continue;
            }
            let mut named: Vec<SessionId> = Vec::new();
            for of in parent.into_iter().chain([id]) {
                named.extend(self.names(of).get(to).into_iter().flatten().filter(|child| **child != id));
            }
            // An agent that was created later may have the same name.
            call.receiver = if let [one] = *named { Some(one) } else { None };
        }
    }

    fn names(&mut self, of: SessionId) -> &BTreeMap<Text, Vec<SessionId>> {
        let journal = self.journal;
        self.names.entry(of).or_insert_with(|| {
            let mut names: BTreeMap<Text, Vec<SessionId>> = BTreeMap::new();
            for child in journal.children(of).unwrap_or_default() {
                let Ok(Some(head)) = head(journal, child) else { continue };
                for name in [head.short.0, child.to_string().into()] {
                    let named = names.entry(name).or_default();
                    if named.len() < MAX_NAMED {
                        named.push(child);
                    }
                }
            }
            names
        })
    }

    /// Adds the transcripts of children to the calls that started them, down to `levels` levels.
    fn nest(&mut self, id: SessionId, history: &History, entries: &mut [ShownEntry], levels: u32) {
        let below = levels.checked_sub(1);
        if below.is_some() {
            self.add_minions(id, entries);
        }
        // The texts of shared tasks that a child shows. The others show their first inputs.
        let mut tasks = BTreeSet::new();
        for call in entries.iter_mut().flat_map(|shown| shown.entry.calls_mut()) {
            let Some(child) = call.child else { continue };
            let Some(head) = self.opt_head(child).filter(|head| !head.inspectable) else { continue };
            // A call that continues a child does not show it a second time. A damaged store may hold a cycle.
            if !self.nested.insert(child) {
                continue;
            }
            let left_out = |why| NestedTranscript::Unreadable(format!("left out: {why}; read session {child} itself"));
            call.nested = Some(match below {
                None => left_out("it is nested too deep"),
                Some(_) if !self.spend(child, head.last_seq) => {
                    left_out("the transcript has too many records of children")
                }
                nests => {
                    let whole = TranscriptReading { nests, ..TranscriptReading::default() };
                    let task = history.tasks.get(&child).filter(|task| tasks.insert(task.as_ptr()));
                    match self.read(child, whole, task) {
                        Ok(nested) => NestedTranscript::Transcript(nested.into()),
                        Err(error) => NestedTranscript::Unreadable(error.to_string()),
                    }
                }
            });
        }
    }

    /// Adds the work of minions to their calls, except of one that is not read, which its transcript reports.
    fn add_minions(&mut self, id: SessionId, entries: &mut [ShownEntry]) {
        let calls = entries.iter_mut().flat_map(|shown| shown.entry.calls_mut());
        let calls = calls.filter(|call| *call.tool == *minion::NAME);
        for (child, calls) in by_child(calls.filter_map(|call| Some((call.child?, call)))) {
            let Some(head) = self.opt_head(child) else { continue };
            if !self.minions.insert(child) || !self.spend(child, head.last_seq) {
                continue;
            }
            let mut runs = MinionRuns::new(id, head.short);
            let add = |stored: &Stored| runs.add(&stored.record);
            if each(&self.journal.without_bodies(), child, head.last_seq, add).is_err() {
                continue;
            }
            for call in calls {
                call.minion = runs.by_call.remove(&call.call);
            }
        }
    }

    /// Takes the records of a session, whose last one is `last`, and their bytes from those that are left; returns whether they
    /// suffice. Measured before they are read: one session may have more than all may.
    fn spend(&mut self, session: SessionId, last: Seq) -> bool {
        // A session that cannot be measured cannot be read.
        let bytes = self.journal.bytes_from(session, Seq(1), self.left_bytes.saturating_add(1)).unwrap_or_default();
        let (Some(left), Some(left_bytes)) = (self.left.checked_sub(last.0), self.left_bytes.checked_sub(bytes)) else {
            return false;
        };
        (self.left, self.left_bytes) = (left, left_bytes);
        true
    }

    /// Marks the entries that a compaction hides. Returns whether it hides any. Records that cannot be folded hide nothing.
    fn mark_compacted(&self, session: SessionId, last: Seq, entries: &mut [ShownEntry]) -> bool {
        let state = fold(self.journal, session, last);
        let hidden = state.map(|state| state.compacted_records()).unwrap_or_default();
        for shown in entries {
            shown.compacted = hidden.contains(&shown.record);
        }
        !hidden.is_empty()
    }

    fn opt_head(&self, session: SessionId) -> Option<Head> {
        head(self.journal, session).ok().flatten()
    }

    fn text(&self, named: &Interned<str>) -> Result<Text, TranscriptError> {
        if let Some(body) = &named.body {
            return Ok(Text::clone(body));
        }
        let hash = named.hash;
        let json = self.journal.def(hash)?.ok_or(TranscriptError::NoText(hash))?;
        serde_json::from_str(&json).map_err(|error| TranscriptError::BadText { hash, error })
    }
}

/// Groups parts of a page by their child, so that its journal is read once for all of them.
fn by_child<T>(parts: impl Iterator<Item = (SessionId, T)>) -> BTreeMap<SessionId, Vec<T>> {
    let mut children: BTreeMap<SessionId, Vec<T>> = BTreeMap::new();
    parts.for_each(|(child, part)| children.entry(child).or_default().push(part));
    children
}

fn rights(created: &SessionCreated) -> BTreeMap<Text, Verdict> {
    let Some(ceiling) = &created.ceiling.body else { return BTreeMap::new() };
    let bound = created.imported.as_ref();
    let best = |action: &str| ceiling.best(action).min(bound.map_or(Verdict::Allow, |bound| bound.best(action)));
    ACTIONS.into_iter().map(|action| (action.into(), best(action))).collect()
}
