//! The replay view: a tree as of any record of its journal, and the model input of one session at that record.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::State;
use axum::response::Html;
use serde::Deserialize;
use subtend_journal::{ReadError, Stored};
use subtend_session::context;
use subtend_session::ids::{Lsn, Seq, SessionId};
use subtend_session::message::Message;
use subtend_session::record::Record;
use subtend_session::state::State as Folded;

use super::extract::{PathPart, Query};
use super::words::{self, StateLabel as Shown};
use super::{PageFrame, Refusal, bounds, entries, html, render_fragment};
use crate::host::Host;
use crate::problem::Problem;

/// Maximum number of frames that are searched for records of a tree.
const MAX_FRAMES: u64 = 200_000;
/// Maximum size in bytes of the shown messages. Escaping may enlarge them six times.
const MAX_CONTEXT_BYTES: usize = 2 << 20;

/// A record of the tree in the order of the store. Only the shown one is read again.
#[derive(Clone, Copy)]
struct ReplayStep {
    session: SessionId,
    seq: Seq,
    lsn: Lsn,
}

/// The shown record, and the session whose messages are shown.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReplayQuery {
    at: Option<usize>,
    of: Option<SessionId>,
}

struct ReplayRow {
    id: SessionId,
    name: String,
    state: Shown,
    shown: bool,
}

struct ReplayMessage {
    who: String,
    text: String,
}

/// The tree at one record.
#[derive(Template)]
#[template(path = "replay_at.html")]
struct ReplayFrame {
    id: SessionId,
    at: usize,
    all: usize,
    when: String,
    session: SessionId,
    name: String,
    kind: &'static str,
    record: String,
    rows: Vec<ReplayRow>,
    model: String,
    messages: Vec<ReplayMessage>,
    /// The session whose messages are shown.
    whose: SessionId,
    /// Number of messages that are left out after the system prompt.
    left_out: usize,
    before: Option<usize>,
    next: Option<usize>,
    /// The session that the user chose. It stays chosen at other records.
    of: Option<SessionId>,
}

#[derive(Template)]
#[template(path = "replay.html")]
struct ReplayPage {
    frame: PageFrame,
    id: SessionId,
    at: usize,
    all: usize,
    of: Option<SessionId>,
    moment: String,
}

/// Returns the records of `top` and its descendants, in the order of the log.
fn steps(host: &Host, top: SessionId) -> Result<Vec<ReplayStep>, Problem> {
    let journal = host.runtime().journal().without_bodies();
    let mut members: BTreeMap<SessionId, bool> = BTreeMap::from([(top, true)]);
    let mut steps = Vec::new();
    let last = journal.durable().0;
    let first = last.saturating_sub(MAX_FRAMES);
    for lsn in first..=last {
        let frame = match journal.frame_at(Lsn(lsn)) {
            Ok(Some(frame)) => frame,
            Ok(None) | Err(ReadError::Damaged { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        let (session, records) = frame;
        let member = match members.get(&session) {
            Some(member) => *member,
            None => {
                // Deleted sessions are not shown.
                let parent = journal.head(session)?.filter(|head| !head.deleted).and_then(|head| head.parent);
                let member = parent.is_some_and(|parent| members.get(&parent) == Some(&true));
                members.insert(session, member);
                member
            }
        };
        if member {
            steps.extend(records.iter().map(|stored| ReplayStep { session, seq: stored.seq, lsn: Lsn(lsn) }));
        }
    }
    Ok(steps)
}

fn read_step(host: &Host, step: ReplayStep) -> Result<Option<Stored>, ReadError> {
    let frame = host.runtime().journal().frame_at(step.lsn)?;
    Ok(frame.and_then(|(_, records)| records.into_iter().find(|stored| stored.seq == step.seq)))
}

impl ReplayFrame {
    /// Builds the view of the tree at the wanted record, counted from 1.
    fn of(host: &Host, id: SessionId, steps: &[ReplayStep], wanted: &ReplayQuery) -> Result<Self, Problem> {
        let all = steps.len();
        let at = wanted.at.unwrap_or(all).clamp(1, all.max(1));
        let nothing = || Problem::no_session(&id.to_string());
        let step = steps.get(at.saturating_sub(1)).ok_or_else(nothing)?;
        let shown = read_step(host, *step)?.ok_or_else(nothing)?;
        // The last record of each session.
        let then: BTreeMap<_, _> = steps.iter().take(at).map(|step| (step.session, step.seq)).collect();
        // By default, the session at the top: the last record may belong to the service that writes titles.
        let own = if wanted.at.is_some() { step.session } else { id };
        let whose = wanted.of.filter(|of| then.contains_key(of)).unwrap_or(own);
        let mut rows = Vec::with_capacity(then.len());
        let (mut messages, mut model, mut left_out) = (Vec::new(), String::new(), 0);
        for (session, last) in &then {
            let count = usize::try_from(last.0).unwrap_or(usize::MAX);
            let mut records = host.runtime().journal().records_from(*session, Seq(1), count)?;
            records.retain(|stored| stored.seq <= *last);
            let Ok(state) = Folded::fold(*session, records.iter().map(|stored| &stored.record)) else { continue };
            let outcome = records.iter().rev().find_map(|stored| {
                let Record::RunEnded(ended) = &stored.record else { return None };
                Some(ended.outcome.kind())
            });
            let name = format!("{} {}", state.created.agent, state.created.short);
            if *session == whose {
                let context = context::context(&state);
                model = context.model.to_string();
                let system = super::transcript::transcript(host, whose, Some(*last), 0)?.header.system;
                messages.push(ReplayMessage {
                    who: "system prompt".to_owned(),
                    text: escape_text(&system.unwrap_or_default()),
                });
                let newest = context.messages.iter().rev().map(replay_message);
                let newest = bounds::newest_within(newest, MAX_CONTEXT_BYTES, |message| message.text.len());
                left_out = context.messages.len().saturating_sub(newest.len());
                messages.extend(newest);
            }
            rows.push(ReplayRow {
                id: *session,
                name,
                state: Shown::of(state.phase(), outcome),
                shown: *session == whose,
            });
        }
        let record = escape_text(&serde_json::to_string_pretty(&shown.record).unwrap_or_default());
        Ok(Self {
            id,
            at,
            all,
            when: words::utc_text(shown.at_ms),
            session: step.session,
            name: rows.iter().find(|row| row.id == step.session).map(|row| row.name.clone()).unwrap_or_default(),
            kind: shown.record.kind(),
            record,
            rows,
            model,
            messages,
            whose,
            left_out,
            before: at.checked_sub(1).filter(|at| *at > 0),
            next: Some(at.saturating_add(1)).filter(|at| *at <= all),
            of: wanted.of.filter(|of| steps.iter().any(|step| step.session == *of)),
        })
    }
}

fn replay_message(of: &Message) -> ReplayMessage {
    let (who, text) = match of {
        Message::User { text, .. } => ("user".to_owned(), text.to_string()),
        Message::Assistant { text, calls, .. } => {
            let calls = calls.iter().map(|call| format!("call {}: {}", call.tool, entries::pretty(&call.args)));
            let texts = text.iter().map(ToString::to_string).chain(calls);
            ("assistant".to_owned(), texts.collect::<Vec<_>>().join("\n"))
        }
        Message::Result { call, error, content } => {
            (format!("{} of call {call}", if *error { "error" } else { "result" }), content.to_string())
        }
        Message::Notice { text, .. } => ("notice".to_owned(), text.to_string()),
        Message::Prompt { text } => ("prompt of the runtime".to_owned(), text.to_string()),
    };
    ReplayMessage { who, text: escape_text(&text) }
}

fn escape_text(text: &str) -> String {
    bounds::clip(text, bounds::MAX_MESSAGE_BYTES)
}

/// Shows a tree as of a record. Default: the last record.
pub(super) async fn page(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    Query(at): Query<ReplayQuery>,
) -> Result<Html<String>, Refusal> {
    let id = host.session(&id).await?.id();
    host.settled().await?;
    host.await_turn_of_tree(id).await?;
    let steps = steps(&host, id)?;
    let moment = ReplayFrame::of(&host, id, &steps, &at)?;
    let frame = PageFrame::of_view(&host, id, "Replay", "replay").await;
    html(&ReplayPage { frame, id, at: moment.at, all: moment.all, of: moment.of, moment: render_fragment(&moment) })
}

/// Returns the same view as a fragment, for the slider.
pub(super) async fn at(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    Query(at): Query<ReplayQuery>,
) -> Result<Html<String>, Refusal> {
    let id = host.session(&id).await?.id();
    host.await_turn_of_tree(id).await?;
    let steps = steps(&host, id)?;
    html(&ReplayFrame::of(&host, id, &steps, &at)?)
}
