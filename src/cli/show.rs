//! `subtend show`: what was said and done in one session, for people.

use std::io::Write as _;

use serde::Serialize;
use subtend_session::ids::{Hash, SessionId, Short, Text};
use subtend_session::state::Phase;

use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::shelf::Shelf;
use entry::Shown;

mod draw;
mod entry;

/// Shows what was said and done in one session: prompt, messages, calls with their results, and how each run ended.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: its id, a unique part of it, a short name, or a path such as `root/a3f9c1`
    #[arg(value_name = "ID")]
    session: String,

    /// Cut nothing: the whole system prompt, arguments and results
    #[arg(long)]
    full: bool,

    /// Print one JSON object, with nothing cut
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// A session, as it is shown.
#[derive(Serialize)]
struct Transcript {
    id: SessionId,
    short: Short,
    agent: Text,
    agent_hash: Option<Hash>,
    model: Option<Text>,
    parent: Option<SessionId>,
    root: SessionId,
    depth: u32,
    state: Phase,
    title: Text,
    workspace: Option<Text>,
    created_ms: i64,
    system: Option<String>,
    summary: Option<Text>,
    entries: Vec<Shown>,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let shelf = Shelf::must_open(&args.store)?;
    let id = shelf.find(&args.session)?;
    let head = shelf.heads().get(&id).ok_or_else(|| Fail::Other(format!("session {id} is not in the index")))?;
    let records = shelf.records(id)?;
    let created = entry::birth(&records);
    let system = created.map(|created| shelf.text(&created.system)).transpose()?;
    let transcript = Transcript {
        id,
        short: head.short.clone(),
        agent: head.agent.clone(),
        agent_hash: created.map(|created| created.agent_hash),
        model: created.map(|created| created.model.clone()),
        parent: head.parent,
        root: head.root,
        depth: head.depth,
        state: head.state,
        title: head.title.clone(),
        workspace: created.map(|created| created.workspace.clone()),
        created_ms: head.created_ms,
        system,
        summary: entry::summary(&records),
        entries: entry::entries(&records),
    };
    let mut out = anstream::stdout().lock();
    if args.json {
        serde_json::to_writer(&mut out, &transcript)?;
        writeln!(out)?;
    } else {
        draw::draw(&mut out, &transcript, args.full)?;
    }
    Ok(Code::Done)
}
