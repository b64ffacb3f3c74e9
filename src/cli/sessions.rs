//! `subtend sessions`: what is in the store.

use std::io::Write as _;

use serde::Serialize;
use subtend_session::ids::{SessionId, Short, Text};
use subtend_session::index::Head;
use subtend_session::outcome::OutcomeKind;
use subtend_session::place::BranchKind;
use subtend_session::state::Phase;

use super::aside::Aside;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::find::Heads;
use super::paint::{BAD, DIM, In, LIVE, ago, clip, fill, in_flight, mark, phase_word};
use super::shelf::Shelf;

/// Lists sessions, newest first: those that a person opened, branches too, and children that ask to be listed.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// List every session, also the children that trees show
    #[arg(long)]
    all: bool,

    /// Print one JSON array
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Serialize)]
struct Row<'a> {
    id: SessionId,
    short: &'a Short,
    agent: &'a Text,
    state: Phase,
    outcome: Option<OutcomeKind>,
    title: &'a Text,
    parent: Option<SessionId>,
    root: SessionId,
    depth: u32,
    inspectable: bool,
    closed: bool,
    kind: Option<BranchKind>,
    created_ms: i64,
    updated_ms: i64,
    /// What is wrong with its row in the index, where something is: the rest is told by its own records then.
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged: Option<&'a str>,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let shelf = Shelf::open(&args.store)?;
    let none = (Heads::new(), Aside::default());
    let (heads, aside) = shelf.as_ref().map_or((&none.0, &none.1), |shelf| (shelf.heads(), shelf.aside()));
    let rows = listed(heads, aside, args.all);
    for (session, why) in aside.all().filter(|(session, _)| !heads.contains_key(session)) {
        writeln!(anstream::stderr(), "session {session} cannot be read and is left out: {why}")?;
    }
    let mut out = anstream::stdout().lock();
    if args.json {
        serde_json::to_writer(&mut out, &rows)?;
        writeln!(out)?;
        return Ok(Code::Done);
    }
    if rows.is_empty() {
        writeln!(
            anstream::stderr(),
            "no sessions yet in {}: `subtend run PROMPT` opens one",
            args.store.place()?.name()
        )?;
    }
    let now = super::clock::wall_ms();
    let agents = rows.iter().map(|row| row.agent.chars().count()).max().unwrap_or(0).min(24);
    rows.iter().try_for_each(|row| writeln!(out, "{}", line(row, agents, now)))?;
    Ok(Code::Done)
}

fn listed<'a>(heads: &'a Heads, aside: &'a Aside, all: bool) -> Vec<Row<'a>> {
    let own = |head: &Head| head.parent.is_none() || head.kind == Some(BranchKind::Human);
    let shown = |head: &Head| all || own(head) || head.inspectable;
    let mut rows: Vec<_> =
        heads.iter().filter(|(_, head)| shown(head)).map(|(id, head)| row(*id, head, aside)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.created_ms, row.id)));
    rows
}

fn row<'a>(id: SessionId, head: &'a Head, aside: &'a Aside) -> Row<'a> {
    Row {
        id,
        short: &head.short,
        agent: &head.agent,
        state: head.state,
        outcome: head.last_outcome,
        title: &head.title,
        parent: head.parent,
        root: head.root,
        depth: head.depth,
        inspectable: head.inspectable,
        closed: head.closed,
        kind: head.kind,
        created_ms: head.created_ms,
        updated_ms: head.updated_ms,
        damaged: aside.why(id),
    }
}

fn line(row: &Row<'_>, agents: usize, now: i64) -> String {
    let agent = clip(row.agent, agents);
    let (sign, style, word) = match row.outcome {
        _ if row.damaged.is_some() => ("✗", BAD, "damaged"),
        _ if in_flight(row.state) => ("●", LIVE, phase_word(row.state)),
        _ if row.closed => ("◦", DIM, "closed"),
        Some(outcome) => {
            let (sign, style) = mark(outcome);
            (sign, style, outcome.word())
        }
        None => ("○", DIM, "no run yet"),
    };
    format!(
        "{id}  {sign} {agent}{pad}  {word}{gap}  {age}  {title}",
        id = In(DIM, row.id),
        sign = In(style, sign),
        pad = fill(&agent, agents),
        word = In(style, word),
        gap = fill(word, 18),
        age = In(DIM, format!("{:<14}", ago(now, row.created_ms))),
        title = clip(row.title, 60),
    )
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
        let none = Aside::default();
        let ids = |all| listed(&heads, &none, all).iter().map(|row| row.id.to_string()).collect::<Vec<_>>();
        assert_eq!(ids(false), [shown, root]);
        assert_eq!(ids(true), [shown, hidden, root]);
    }

    #[test]
    fn a_row_is_one_line() {
        let root = "0192f0c1-2d3e-7abc-8def-0123456789ab";
        let mut heads = Heads::new();
        session(&mut heads, root, None, false, 0);
        let none = Aside::default();
        let rows = listed(&heads, &none, false);
        let text = anstream::adapter::strip_str(&line(&rows[0], 7, 120_000)).to_string();
        assert_eq!(text, format!("{root}  ✓ general  completed           2 minutes ago   count the lines"));
    }
}
