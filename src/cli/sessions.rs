use std::collections::BTreeSet;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use serde::Serialize;
use subtend_actors::history::History;
use subtend_session::ids::{SessionId, Short, Text};
use subtend_session::index::Head;
use subtend_session::outcome::OutcomeKind;
use subtend_session::place::BranchKind;
use subtend_session::record::SessionCreated;
use subtend_session::state::Phase;

use super::branched::is_fresh;
use super::damaged_sessions::DamagedSessions;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::find::Heads;
use super::paint::{
    APPROVAL_MARK, APPROVAL_TEXT, BAD, DIM, MARKS, Styled, activity, ago, clip, fill, in_flight, mark, phase_mark,
};
use super::store_reader::StoreReader;
use crate::cli::json;

const FOLDER_WIDTH: usize = 24;

/// Lists sessions, newest first: those that users opened, with branches, and children of agents with `inspectable: true`.
#[derive(clap::Args, Debug)]
#[command(after_help = MARKS)]
pub(crate) struct Args {
    /// List every session, including all children
    #[arg(long)]
    all: bool,

    /// List only sessions of this workspace
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,

    /// List only the newest N
    #[arg(long, value_name = "N")]
    limit: Option<NonZeroUsize>,

    /// Print one JSON array
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Serialize)]
struct SessionRow<'a> {
    id: SessionId,
    short: &'a Short,
    agent: &'a Text,
    state: Phase,
    /// Unix time in ms until which its run is parked at a provider's limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    limited_until: Option<i64>,
    outcome: Option<OutcomeKind>,
    title: &'a Text,
    /// Directory of the session; absent if its journal cannot be read.
    workspace: Option<Text>,
    parent: Option<SessionId>,
    root: SessionId,
    depth: u32,
    inspectable: bool,
    closed: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    asks: bool,
    kind: Option<BranchKind>,
    /// True for a branch of a user with an empty context.
    #[serde(skip)]
    fresh: bool,
    created_ms: i64,
    updated_ms: i64,
    /// Error of its index row, if damaged. The other fields are then derived from its records.
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged: Option<&'a str>,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    let reader = StoreReader::open(&args.store)?;
    let none = (Heads::new(), DamagedSessions::default());
    let (heads, damaged) = reader.as_ref().map_or((&none.0, &none.1), |reader| (reader.heads(), reader.damaged()));
    let creation = |id| reader.as_ref().map_or(Ok(None), |reader| reader.creation(id));
    let asking = reader.as_ref().map_or(Ok(BTreeSet::new()), StoreReader::sessions_waiting_for_approval)?;
    let mut rows = filter(list_rows(heads, damaged, args.all), args, &creation)?;
    for row in &mut rows {
        row.asks = asking.contains(&row.id);
        // The index does not contain the time of the reset. Other commands report a session that cannot be read.
        let reader = reader.as_ref().filter(|_| row.state == Phase::WaitingMidTurn && !row.asks);
        let records = reader.and_then(|reader| reader.records(row.id).ok());
        row.limited_until = records.and_then(|records| History::of(&records).limited_until);
    }
    for (session, why) in damaged.all().filter(|(session, _)| !heads.contains_key(session)) {
        writeln!(anstream::stderr(), "session {session} cannot be read and is not listed: {why}")?;
    }
    let is_hosted = reader.as_ref().is_none_or(StoreReader::is_hosted);
    // Format the rows now: they borrow from the reader, which is released before the output.
    let mut text = Vec::new();
    let left = match args.json {
        true => {
            json::write_line(&mut text, &rows)?;
            None
        }
        false => write_lines(&mut text, &rows, is_hosted)?,
    };
    let is_empty = rows.is_empty() && !args.json;
    reader.into_iter().for_each(StoreReader::release);
    if is_empty {
        let place = args.store.place()?;
        let others = if place.node_dir().is_some() {
            "; those of nodes are in other shards, which `GET /v1/nodes` lists"
        } else {
            ""
        };
        let place = place.name();
        match &args.workspace {
            Some(dir) => writeln!(anstream::stderr(), "no sessions of workspace {} in {place}{others}", dir.display())?,
            None => writeln!(anstream::stderr(), "no sessions yet in {place}: `subtend run PROMPT` opens one{others}")?,
        }
    }
    anstream::stdout().lock().write_all(&text)?;
    if let Some(name) = left {
        let left = "no process hosts the store, so no run is active";
        writeln!(
            anstream::stderr(),
            "{left}: `subtend tree {name}` shows what the next start does with runs in flight"
        )?;
    }
    Ok(Code::Done)
}

/// Writes a line for each session. Returns a session whose run was left in flight by an ended process, if any.
fn write_lines(out: &mut Vec<u8>, rows: &[SessionRow<'_>], is_hosted: bool) -> Result<Option<Short>, Fail> {
    let now = super::clock::wall_ms();
    let agents = rows.iter().map(|row| row.agent.chars().count()).max().unwrap_or(0).min(24);
    rows.iter().try_for_each(|row| writeln!(out, "{}", line(row, agents, now)))?;
    let held = [Phase::HeldInterrupted, Phase::HeldOutOfTurns];
    let is_left = |row: &&SessionRow<'_>| !is_hosted && in_flight(row.state) && !held.contains(&row.state);
    Ok(rows.iter().find(is_left).map(|row| row.short.clone()))
}

/// Applies the filters, and fills in fields from the creation record, which is read for selected rows only.
fn filter<'a>(
    rows: Vec<SessionRow<'a>>,
    args: &Args,
    creation: &dyn Fn(SessionId) -> Result<Option<SessionCreated>, Fail>,
) -> Result<Vec<SessionRow<'a>>, Fail> {
    let wanted = args.workspace.as_deref().map(resolve_dir).transpose()?;
    let limit = args.limit.map_or(usize::MAX, NonZeroUsize::get);
    let mut selected = Vec::new();
    for row in rows {
        if selected.len() >= limit {
            break;
        }
        let creation = creation(row.id)?;
        let fresh = creation.as_ref().is_some_and(|creation| is_fresh(&creation.place));
        let workspace = creation.map(|creation| creation.workspace);
        if wanted.is_none() || wanted == workspace {
            selected.push(SessionRow { workspace, fresh, ..row });
        }
    }
    Ok(selected)
}

/// Returns the folder as sessions record it. A removed folder may still have sessions.
fn resolve_dir(dir: &Path) -> Result<Text, Fail> {
    let is_missing = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    let found =
        dir.canonicalize().or_else(|error| if is_missing(&error) { std::path::absolute(dir) } else { Err(error) });
    let path = found.map_err(|error| {
        Fail::Usage(format!("workspace {} cannot be read: {error} (--workspace DIR)", dir.display()))
    })?;
    Ok(path.to_string_lossy().into())
}

fn list_rows<'a>(heads: &'a Heads, damaged: &'a DamagedSessions, all: bool) -> Vec<SessionRow<'a>> {
    let own = |head: &Head| head.parent.is_none() || head.kind == Some(BranchKind::Human);
    let shown = |head: &Head| all || own(head) || head.inspectable;
    let mut rows: Vec<_> =
        heads.iter().filter(|(_, head)| shown(head)).map(|(id, head)| row(*id, head, damaged)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.created_ms, row.id)));
    rows
}

fn row<'a>(id: SessionId, head: &'a Head, damaged: &'a DamagedSessions) -> SessionRow<'a> {
    SessionRow {
        id,
        short: &head.short,
        agent: &head.agent,
        state: head.state,
        limited_until: None,
        outcome: head.last_outcome,
        title: &head.title,
        workspace: None,
        parent: head.parent,
        root: head.root,
        depth: head.depth,
        inspectable: head.inspectable,
        closed: head.closed,
        asks: false,
        kind: head.kind,
        fresh: false,
        created_ms: head.created_ms,
        updated_ms: head.updated_ms,
        damaged: damaged.reason(id),
    }
}

fn line(row: &SessionRow<'_>, agents: usize, now: i64) -> String {
    let agent = clip(row.agent, agents);
    let (sign, style, word) = match row.outcome {
        _ if row.damaged.is_some() => ("✗", BAD, "damaged".to_owned()),
        _ if row.asks => (APPROVAL_MARK.0, APPROVAL_MARK.1, APPROVAL_TEXT.to_owned()),
        _ if in_flight(row.state) => {
            let (sign, style) = phase_mark(row.state);
            (sign, style, activity(row.state, row.limited_until))
        }
        _ if row.closed => ("◦", DIM, "closed".to_owned()),
        Some(outcome) => {
            let (sign, style) = mark(outcome);
            (sign, style, outcome.as_str().to_owned())
        }
        None => ("○", DIM, "no run yet".to_owned()),
    };
    let folder = row.workspace.as_deref().map(|path| path_end(path, FOLDER_WIDTH)).unwrap_or_default();
    format!(
        "{short}{room}  {sign} {agent}{pad}  {word}{gap}  {age}  {folder}{space}  {title}",
        short = Styled(DIM, row.short),
        room = fill(&row.short.0, 6),
        sign = Styled(style, sign),
        pad = fill(&agent, agents),
        word = Styled(style, &word),
        gap = fill(&word, 18),
        age = Styled(DIM, format!("{:<14}", ago(now, row.created_ms))),
        space = fill(&folder, FOLDER_WIDTH),
        title = title_with_kind(row),
    )
}

fn title_with_kind(row: &SessionRow<'_>) -> String {
    let title = if row.title.is_empty() { "no message yet".to_owned() } else { clip(row.title, 60) };
    match row.kind {
        None => title,
        // A task that the host opened has no parent.
        Some(_) if row.parent.is_none() => format!("task: {title}"),
        Some(BranchKind::Human) => format!("branch: {title}"),
        Some(BranchKind::Subagent) if row.fresh => format!("branch: {title}"),
        Some(BranchKind::Subagent) => format!("child: {title}"),
        Some(BranchKind::Alternative) => format!("alternative: {title}"),
        Some(BranchKind::Service) => format!("service: {title}"),
    }
}

/// Returns the end of a path, which distinguishes directories, at most `width` columns wide.
fn path_end(path: &str, width: usize) -> String {
    let path = clip(path, usize::MAX);
    let many = path.chars().count();
    if many <= width {
        return path;
    }
    let rest: String = path.chars().skip(many.saturating_sub(width.saturating_sub(1))).collect();
    format!("…{rest}")
}

#[cfg(test)]
mod tests {
    use subtend_session::ids::{Epoch, Seq};

    use super::*;

    fn session(heads: &mut Heads, id: &str, parent: Option<&str>, inspectable: bool, created_ms: i64) {
        let id: SessionId = id.parse().expect("an id");
        let parent = parent.map(|id| id.parse().expect("an id"));
        let head = Head {
            parent,
            root: parent.unwrap_or(id),
            short: id.short(),
            agent: "general".into(),
            depth: 0,
            inspectable,
            last_seq: Seq(9),
            epoch: Epoch(1),
            state: Phase::Quiet,
            kind: None,
            closed: false,
            deleted: false,
            imported: false,
            last_outcome: Some(OutcomeKind::Completed),
            title: "count the\nlines".into(),
            created_ms,
            updated_ms: created_ms,
        };
        heads.insert(id, head);
    }

    #[test]
    fn roots_and_inspectable_children_are_listed_newest_first() {
        let root = "0192f0c1-2d3e-7abc-8def-0123456789ab";
        let hidden = "0192f0c2-0000-7abc-8def-012345a3f9c1";
        let shown = "0192f0c3-0000-7abc-8def-012345a3f9c2";
        let mut heads = Heads::new();
        session(&mut heads, root, None, false, 1_000);
        session(&mut heads, hidden, Some(root), false, 2_000);
        session(&mut heads, shown, Some(root), true, 3_000);
        let none = DamagedSessions::default();
        let ids = |all| list_rows(&heads, &none, all).iter().map(|row| row.id.to_string()).collect::<Vec<_>>();
        assert_eq!(ids(false), [shown, root]);
        assert_eq!(ids(true), [shown, hidden, root]);
    }

    #[test]
    fn row_is_printed_on_one_line() {
        let root = "0192f0c1-2d3e-7abc-8def-0123456789ab";
        let mut heads = Heads::new();
        session(&mut heads, root, None, false, 0);
        let none = DamagedSessions::default();
        let mut rows = list_rows(&heads, &none, false);
        rows[0].workspace = Some("/home/kim/work/projects/subtend".into());
        let text = anstream::adapter::strip_str(&line(&rows[0], 7, 120_000)).to_string();
        let expected =
            "6789ab  ✓ general  completed           2 minutes ago   …m/work/projects/subtend  count the lines";
        assert_eq!(text, expected);
        (rows[0].state, rows[0].limited_until) = (Phase::WaitingMidTurn, Some(1_795_510_695_000));
        let text = anstream::adapter::strip_str(&line(&rows[0], 7, 120_000)).to_string();
        let parked = "6789ab  ◌ general  waits for the provider's limit until 24 Nov 2026 08:58:15 UTC  2 minutes ago";
        assert!(text.starts_with(parked), "{text}");
    }
}
