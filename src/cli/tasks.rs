//! `subtend tasks`: what agents were given to do, newest first.

use std::io::Write as _;

use serde::Serialize;
use subtend_actors::tasks::TaskStatus;
use subtend_session::ids::{SessionId, Short, Text};
use subtend_session::outcome::OutcomeKind;
use subtend_session::place::BranchKind;

use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::find::{Heads, find};
use super::paint::{BAD, DIM, GOOD, In, LIVE, ODD, ago, clip, fill};
use super::shelf::Shelf;

/// Lists what agents were given to do by others, newest first.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Only those that stand so
    #[arg(long, value_name = "STATUS", value_parser = ["pending", "running", "completed", "failed", "cancelled"])]
    status: Option<String>,

    /// Only those that this session started: an id, a unique part of one, or a path
    #[arg(long, value_name = "ID")]
    parent: Option<String>,

    /// So many at most
    #[arg(long, value_name = "N")]
    limit: Option<usize>,

    /// Print one JSON array
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, PartialEq, Serialize)]
struct Row {
    id: SessionId,
    short: Short,
    status: &'static str,
    outcome: Option<OutcomeKind>,
    agent: Text,
    title: Text,
    parent: Option<SessionId>,
    root: SessionId,
    created_ms: i64,
    updated_ms: i64,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let shelf = Shelf::open(&args.store)?;
    let none = Heads::new();
    let heads = shelf.as_ref().map_or(&none, Shelf::heads);
    let parent = args.parent.as_deref().map(|name| find(heads, name)).transpose()?;
    let rows = listed(heads, args.status.as_deref(), parent, args.limit.unwrap_or(usize::MAX));
    let mut out = anstream::stdout().lock();
    if args.json {
        serde_json::to_writer(&mut out, &rows)?;
        writeln!(out)?;
        return Ok(Code::Done);
    }
    if rows.is_empty() {
        writeln!(anstream::stderr(), "no such tasks in {}", args.store.place()?.name())?;
    }
    let now = super::clock::wall_ms();
    rows.iter().try_for_each(|row| writeln!(out, "{}", line(row, now)))?;
    Ok(Code::Done)
}

fn listed(heads: &Heads, status: Option<&str>, parent: Option<SessionId>, limit: usize) -> Vec<Row> {
    let tasks = heads.iter().filter(|(_, head)| head.kind == Some(BranchKind::Subagent));
    let mut rows: Vec<Row> = tasks
        .map(|(id, head)| Row {
            id: *id,
            short: head.short.clone(),
            status: TaskStatus::of(head.state, head.last_outcome).word(),
            outcome: head.last_outcome,
            agent: head.agent.clone(),
            title: head.title.clone(),
            parent: head.parent,
            root: head.root,
            created_ms: head.created_ms,
            updated_ms: head.updated_ms,
        })
        .filter(|row| status.is_none_or(|status| row.status == status))
        .filter(|row| parent.is_none_or(|parent| row.parent == Some(parent)))
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.created_ms, row.id)));
    rows.truncate(limit);
    rows
}

fn line(row: &Row, now: i64) -> String {
    let style = match row.status {
        "completed" => GOOD,
        "running" => LIVE,
        "pending" => DIM,
        "cancelled" => ODD,
        _ => BAD,
    };
    let agent = clip(&row.agent, 24);
    format!(
        "{id}  {short}  {status}{gap}  {agent}{pad}  {age}  {title}",
        id = In(DIM, row.id),
        short = row.short,
        status = In(style, row.status),
        gap = fill(row.status, 9),
        pad = fill(&agent, 12),
        age = In(DIM, ago(now, row.updated_ms)),
        title = clip(&row.title, 60),
    )
}

#[cfg(test)]
mod tests {
    use subtend_session::ids::{Epoch, Seq};
    use subtend_session::index::Head;
    use subtend_session::state::Phase;

    use super::*;

    const ROOT: &str = "0192f0c1-2d3e-7abc-8def-0123456789ab";

    fn id(word: &str) -> SessionId {
        word.parse().expect("an id")
    }

    fn head(kind: Option<BranchKind>, state: Phase, last_outcome: Option<OutcomeKind>, created_ms: i64) -> Head {
        Head {
            parent: kind.map(|_| id(ROOT)),
            root: id(ROOT),
            short: Short("a3f9c1".into()),
            agent: "explore".into(),
            depth: 1,
            inspectable: false,
            last_seq: Seq(3),
            epoch: Epoch(1),
            state,
            kind,
            closed: false,
            deleted: false,
            last_outcome,
            title: "look".into(),
            created_ms,
            updated_ms: created_ms,
        }
    }

    #[test]
    fn tasks_are_subagents_newest_first_by_status_and_number() {
        let task = Some(BranchKind::Subagent);
        let heads = Heads::from([
            (id(ROOT), head(None, Phase::Quiet, Some(OutcomeKind::Completed), 1)),
            (id("0192f0c2-0000-7abc-8def-000000000002"), head(task, Phase::Working, None, 2)),
            (id("0192f0c2-0000-7abc-8def-000000000003"), head(task, Phase::Quiet, Some(OutcomeKind::Lost), 3)),
            (id("0192f0c2-0000-7abc-8def-000000000004"), head(task, Phase::Quiet, Some(OutcomeKind::OutOfTurns), 4)),
        ]);
        let statuses = |rows: Vec<Row>| rows.iter().map(|row| (row.created_ms, row.status)).collect::<Vec<_>>();
        assert_eq!(statuses(listed(&heads, None, None, 9)), [(4, "failed"), (3, "failed"), (2, "running")]);
        assert_eq!(statuses(listed(&heads, Some("failed"), Some(id(ROOT)), 1)), [(4, "failed")]);
        assert_eq!(statuses(listed(&heads, None, Some(id("0192f0c2-0000-7abc-8def-000000000004")), 9)), []);
    }
}
