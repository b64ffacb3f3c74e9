//! The page of one session: its transcript, its current state, and its controls.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, Response};
use serde::Deserialize;
use subtend_actors::history;
use subtend_actors::transcript::{Header, Transcript, TranscriptError, TranscriptReading};
use subtend_actors::{Alternatives, QueueEntry, SessionHandle};
use subtend_journal::{Journal, ReadError, Stored};
use subtend_session::ids::{RunNo, Seq, SessionId};
use subtend_session::place::BranchKind;
use subtend_session::record::{Lane, Record};
use subtend_session::state::Phase;

use super::activity::OpenWork;
use super::approvals::{self, ApprovalsPart};
use super::entries::{self, Item, NewestItems};
use super::extract::{PathPart, Query};
use super::live::{self, Changes, Fragment, Partial, Swap};
use super::words::{self, StateLabel};
use super::{PageFrame, Refusal, html, markdown, render_fragment, worktree};
use crate::host::Host;
use crate::problem::Problem;

/// Maximum number of entries that a page shows at first.
const MAX_ENTRIES: usize = 200;

#[derive(Template)]
#[template(path = "session.html")]
struct ConversationPage {
    frame: PageFrame,
    id: SessionId,
    head: String,
    /// Number of oldest entries that are left out.
    earlier: usize,
    /// True if all entries were requested; the size limit of a page still applies.
    all: bool,
    items: Vec<Item>,
    asks: String,
    queue: String,
    children: String,
    seen: Seq,
}

/// The head of the page: the state of the session, its branch point and its controls.
#[derive(Template)]
#[template(path = "session_head.html")]
struct ConversationHead {
    id: SessionId,
    title: String,
    agent: String,
    short: String,
    model: String,
    workspace: String,
    state: StateLabel,
    activity: String,
    back: Option<BranchParent>,
    worktree: Option<WorktreeLine>,
    run: Option<RunNo>,
    /// True if the session can be continued: it is held, or its last run did not complete.
    resumes: bool,
    closed: bool,
    summary: Option<String>,
    /// The last record that hid or restored messages; `None` if no compaction hides messages now.
    compacted: Option<Seq>,
}

struct WorktreeLine {
    branch: String,
    state: StateLabel,
}

/// A link to the session that was branched.
struct BranchParent {
    id: SessionId,
    title: String,
    kind: &'static str,
    task: Option<String>,
}

/// Inputs that no run has taken yet.
#[derive(Template)]
#[template(path = "queue.html")]
struct Queue {
    id: SessionId,
    entries: Vec<QueuedInput>,
}

struct QueuedInput {
    id: String,
    text: String,
    steers: bool,
    removable: bool,
}

#[derive(Template)]
#[template(path = "running.html")]
struct RunningChildren {
    id: SessionId,
    all: usize,
    queued: usize,
    children: Vec<ChildRow>,
}

struct ChildRow {
    id: SessionId,
    run: RunNo,
    short: String,
    agent: String,
    title: String,
    state: StateLabel,
    activity: String,
}

#[derive(Template)]
#[template(path = "streaming.html")]
struct Streaming {
    markdown: String,
    calls: Vec<String>,
}

/// What the page shows of the records in addition to the transcript.
#[derive(Default)]
struct RecordFacts {
    open: OpenWork,
    /// The last record that changed which messages models see.
    revision: Option<Seq>,
    /// Children in the order of creation.
    children: Vec<SessionId>,
}

struct TranscriptRead {
    head: String,
    newest: NewestItems,
    asks: String,
    all_asks: usize,
    queue: String,
    children: String,
    seen: Seq,
    title: String,
}

impl TranscriptRead {
    async fn read(host: &Host, handle: &SessionHandle, most: usize) -> Result<Self, Problem> {
        let runtime = host.runtime();
        let id = handle.id();
        host.await_turn_with_relatives(id).await?;
        let alternatives = handle.alternatives().await?;
        // The worktree view reports why a worktree cannot be read.
        let worktree = match handle.worktree().await {
            Ok(found) => found.map(|tree| WorktreeLine { state: worktree::state(&tree), branch: tree.entry.branch }),
            Err(_) => Some(WorktreeLine { state: worktree::damaged(), branch: String::new() }),
        };
        // The thread that frees the texts should be the one that read them.
        let shared = host.clone();
        let read = move || {
            let transcript = transcript(&shared, id, None, most)?;
            let newest = entries::newest(shared.runtime(), &transcript, &alternatives, most);
            let Transcript { header, is_compacted, last_seq, .. } = transcript;
            Ok::<_, Problem>((header, newest, is_compacted, last_seq))
        };
        let (header, newest, is_compacted, seen) = host.reads().read_in_turn(read).await?;
        let facts = RecordFacts::read(runtime.journal(), id)?;
        let asks = ApprovalsPart::read(host, Some(id)).await?;
        let (asks, all_asks) = approvals::cards(&[&asks]);
        Ok(Self {
            head: render_fragment(&ConversationHead::new(host, &header, worktree, (&facts, is_compacted))?),
            newest,
            asks,
            all_asks,
            queue: render_fragment(&Queue {
                id,
                entries: handle.queue().await?.into_iter().map(QueuedInput::from).collect(),
            }),
            children: render_fragment(&RunningChildren::read(host, id, &facts.children)?),
            seen,
            title: super::session_title(&header.title, &header.agent, &header.short),
        })
    }
}

/// Reads a session, now or as of an earlier record, with what children did for its `most` newest entries.
pub(super) fn transcript(host: &Host, id: SessionId, at: Option<Seq>, most: usize) -> Result<Transcript, Problem> {
    // A call shows the number of messages of its child.
    let reading = TranscriptReading { nests: Some(1), at, newest: Some(most), ..TranscriptReading::default() };
    Transcript::read(host.runtime().journal(), id, reading).map_err(|error| match error {
        TranscriptError::Read(error) => error.into(),
        other @ (TranscriptError::NoText(_) | TranscriptError::BadText { .. } | TranscriptError::NoReplay { .. }) => {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "session_damaged", other.to_string())
        }
    })
}

impl ConversationHead {
    fn new(
        host: &Host,
        header: &Header,
        worktree: Option<WorktreeLine>,
        (facts, is_compacted): (&RecordFacts, bool),
    ) -> Result<Self, Problem> {
        let journal = host.runtime().journal();
        let head = journal.head(header.id)?.ok_or_else(|| Problem::no_session(&header.id.to_string()))?;
        let back = match header.parent {
            Some(parent) => journal.head(parent)?.map(|parent_head| BranchParent {
                id: parent,
                title: super::title_or_name(60, &parent_head.title, &parent_head.agent, &parent_head.short),
                kind: head.kind.map_or("branch", entries::branch_kind_name),
                task: header.branch.as_ref().and_then(|branch| branch.task.as_ref()).map(|task| words::line(task)),
            }),
            None => None,
        };
        let run = journal.inflight_of(header.id)?.map(|row| row.run);
        let state = StateLabel::of(head.state, head.last_outcome);
        Ok(Self {
            id: header.id,
            title: super::title_or_name(120, &header.title, &header.agent, &header.short),
            agent: header.agent.to_string(),
            short: header.short.to_string(),
            model: header.model.as_ref().map(ToString::to_string).unwrap_or_default(),
            workspace: header.workspace.as_ref().map(ToString::to_string).unwrap_or_default(),
            activity: facts.open.describe(host.runtime(), head.state),
            back,
            worktree,
            run,
            resumes: matches!(head.state, Phase::HeldInterrupted)
                || (run.is_none() && matches!(state.class, "bad" | "odd")),
            state,
            closed: head.closed,
            summary: header.summary.as_ref().map(|summary| entries::clip(summary)),
            compacted: facts.revision.filter(|_| is_compacted),
        })
    }
}

impl RecordFacts {
    fn read(journal: &Journal, id: SessionId) -> Result<Self, ReadError> {
        let mut facts = Self::default();
        history::each(journal, id, |stored| facts.add(stored))?;
        Ok(facts)
    }

    fn add(&mut self, stored: &Stored) {
        self.open.add(&stored.record);
        if let Record::Compacted(_) | Record::CompactionUndone { .. } | Record::RolledBack { .. } = stored.record {
            self.revision = Some(stored.seq);
        } else if let Record::ChildSpawned(spawned) = &stored.record {
            self.children.push(spawned.child);
        } else if let Record::BranchCreated(created) = &stored.record {
            self.children.push(created.child);
        }
    }
}

/// Returns the last record that changed which messages models see.
pub(super) fn last_revision(journal: &Journal, id: SessionId) -> Result<Option<Seq>, ReadError> {
    RecordFacts::read(journal, id).map(|facts| facts.revision)
}

impl From<QueueEntry> for QueuedInput {
    fn from(entry: QueueEntry) -> Self {
        Self {
            id: entry.id.to_string(),
            text: words::clip(&entry.text, 400),
            steers: entry.lane == Lane::Steer,
            removable: entry.kind == subtend_actors::QueueKind::User,
        }
    }
}

impl RunningChildren {
    /// Reads the children of a session, of which it spawned `spawned` in this order.
    fn read(host: &Host, id: SessionId, spawned: &[SessionId]) -> Result<Self, Problem> {
        let journal = host.runtime().journal();
        let (mut children, mut queued, mut all) = (Vec::new(), 0, 0);
        let known: BTreeSet<_> = spawned.iter().collect();
        let others = journal.children(id)?.into_iter().filter(|child| !known.contains(child)).collect::<Vec<_>>();
        for child in spawned.iter().copied().chain(others) {
            let Some(head) = journal.head(child)?.filter(|head| !head.deleted) else { continue };
            if head.kind == Some(BranchKind::Service) {
                continue;
            }
            all += 1;
            match head.state {
                Phase::Quiet => continue,
                Phase::Queued => {
                    queued += 1;
                    continue;
                }
                Phase::Working
                | Phase::WaitingMidTurn
                | Phase::WaitingAtRest
                | Phase::HeldInterrupted
                | Phase::HeldOutOfTurns
                | Phase::Closing => {}
            }
            let Some(row) = journal.inflight_of(child)? else { continue };
            let facts = RecordFacts::read(journal, child).unwrap_or_default();
            children.push(ChildRow {
                id: child,
                run: row.run,
                short: head.short.to_string(),
                agent: head.agent.to_string(),
                title: words::clip(&head.title, 80),
                state: StateLabel::of(head.state, head.last_outcome),
                activity: facts.open.describe(host.runtime(), head.state),
            });
        }
        Ok(Self { id, all, queued, children })
    }
}

fn streaming(partial: Option<&Partial>) -> String {
    let Some(partial) = partial else { return String::new() };
    render_fragment(&Streaming { markdown: markdown::render(&partial.text), calls: partial.calls.clone() })
}

/// The query of a conversation. With `all`, the page shows all entries instead of the newest.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TranscriptQuery {
    all: Option<String>,
}

pub(super) async fn page(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    Query(query): Query<TranscriptQuery>,
) -> Result<Html<String>, Refusal> {
    let handle = host.session(&id).await?;
    host.settled().await?;
    let (all, most) = (query.all.is_some(), if query.all.is_some() { usize::MAX } else { MAX_ENTRIES });
    let read = TranscriptRead::read(&host, &handle, most).await?;
    let NewestItems { earlier, items } = read.newest;
    html(&ConversationPage {
        frame: PageFrame::of_session(&host, read.title, "conversation").await,
        id: handle.id(),
        head: read.head,
        earlier,
        all,
        items,
        asks: read.asks,
        queue: read.queue,
        children: read.children,
        seen: read.seen,
    })
}

/// Sends new and changed parts of a session to the browser.
struct LiveTranscript {
    handle: SessionHandle,
    /// Hashes of the entries that the browser has, by id.
    known: BTreeMap<String, u64>,
    /// Number of entries at the last message, with earlier ones that are not in `known`.
    total: usize,
    seen: Seq,
}

impl LiveTranscript {
    /// Returns the entries that are new to the browser, or changed. A large update leaves out the oldest, with a link.
    fn changed_items(&mut self, NewestItems { earlier, items }: NewestItems) -> Vec<Fragment> {
        let total = earlier.saturating_add(items.len());
        let left_out = earlier.saturating_sub(self.total);
        // Entries before the first known one are not new: the browser has left them out.
        let first = items.iter().position(|item| self.known.contains_key(&item.id)).unwrap_or_default();
        self.total = total;
        let mut fragments = Vec::new();
        if left_out > 0 {
            let id = self.handle.id();
            let notice = format!(
                "<p class=\"small dim\">{} left out here: <a href=\"/s/{id}\">load the page again</a>.</p>",
                words::count(left_out as u64, "change")
            );
            fragments.push(Fragment::new("entries", notice, Swap::Append));
        }
        for item in items.into_iter().skip(first) {
            let hash = live::hash(&item.html);
            match self.known.get(&item.id) {
                Some(known) if *known == hash => continue,
                Some(_) => fragments.push(Fragment::new(&item.id, item.html, Swap::Outer)),
                None => fragments.push(Fragment::new("entries", item.html, Swap::Append)),
            }
            self.known.insert(item.id, hash);
        }
        fragments
    }
}

impl live::LiveView for LiveTranscript {
    async fn changed(&mut self, host: &Host, changes: &Changes) -> Result<Vec<Fragment>, Problem> {
        let mut fragments = Vec::new();
        if changes.all || !changes.sessions.is_empty() {
            let read = TranscriptRead::read(host, &self.handle, usize::MAX).await?;
            fragments = self.changed_items(read.newest);
            fragments.extend([
                Fragment::new("head", read.head, Swap::Inner),
                Fragment::new("approvals", read.asks, Swap::Inner),
                Fragment::new("queue", read.queue, Swap::Inner),
                Fragment::new("kids", read.children, Swap::Inner),
            ]);
            // With several shards, the browser loads the count of all.
            fragments.extend((!host.options().is_shard).then(|| approvals::badge(read.all_asks)));
            self.seen = read.seen;
        }
        fragments.push(Fragment::new("streaming", streaming(changes.partial.as_ref()), Swap::Inner));
        Ok(fragments)
    }

    fn shown(&self) -> Option<SessionId> {
        Some(self.handle.id())
    }

    /// Returns the last record that was sent.
    fn id(&self) -> Option<String> {
        Some(self.seen.to_string())
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct StreamPosition {
    /// The last record that the page showed.
    seen: u64,
}

/// Follows a session from the record that a browser has.
pub(super) async fn live(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    Query(seen): Query<StreamPosition>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let handle = host.session(&id).await?;
    let head = host.runtime().journal().head(handle.id())?.ok_or_else(|| Problem::no_session(&id))?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let seen = Seq(last.unwrap_or(seen.seen)).min(head.last_seq);
    let alternatives: Vec<Alternatives> = handle.alternatives().await?;
    let NewestItems { earlier, items } = match seen {
        Seq(0) => NewestItems { earlier: 0, items: Vec::new() },
        seen => {
            let then = transcript(&host, handle.id(), Some(seen), usize::MAX)?;
            entries::newest(host.runtime(), &then, &alternatives, usize::MAX)
        }
    };
    let total = earlier.saturating_add(items.len());
    let known = items.into_iter().map(|item| (item.id, live::hash(&item.html))).collect();
    Ok(live::follow(&host, Some(head.root), LiveTranscript { handle, known, total, seen }))
}
