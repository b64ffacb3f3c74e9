//! `subtend show`: what was said and done in one session, for people.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use serde::Serialize;
use serde_json::Value;
use subtend_actors::past::Past;
use subtend_session::authority::Verdict;
use subtend_session::ids::{Hash, SessionId, Short, Text};
use subtend_session::record::SessionCreated;
use subtend_session::state::Phase;

use super::branched::Branch;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::import::rights::ACTIONS;
use super::shelf::Shelf;
use super::tasks;
use crate::cli::json;
use entry::{Nested, Shown};
use minion::Minion;

mod draw;
mod entry;
mod minion;

/// Shows what was said and done in one session: prompt, messages, calls with their results, and how each run ended.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: its id, the start of it, a short name, or a path such as `root/a3f9c1`
    #[arg(value_name = "ID")]
    session: String,

    /// Cut nothing: the whole system prompt, arguments, results, and the transcripts of children that have no row of their own
    #[arg(long)]
    full: bool,

    /// Print one JSON object, with nothing cut and such children within the calls that started them
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// A session, as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    /// Servers that its models are called at instead of the providers' own.
    #[serde(skip_serializing_if = "<[Text]>::is_empty")]
    servers: Vec<Text>,
    /// Whether an import brought it, and bounded its rights.
    imported: bool,
    /// The most that any resource of an action may get, by its ceiling.
    rights: BTreeMap<&'static str, Verdict>,
    created_ms: i64,
    metadata: Value,
    /// What its parent knows of it, where it is a branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    branch: Option<Branch>,
    system: Option<String>,
    summary: Option<Text>,
    entries: Vec<Shown>,
}

pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let shelf = Shelf::must_open(&args.store)?;
    let id = shelf.find(&args.session)?;
    let parent = shelf.heads().get(&id).and_then(|head| head.parent);
    let above = parent.and_then(|parent| shelf.records(parent).ok()).map(|records| Past::of(&records));
    let label = above.and_then(|past| past.tasks.get(&id).cloned());
    let nests = args.full || args.json;
    let transcript = transcript(&shelf, id, label.as_ref(), &mut nests.then(BTreeSet::new))?;
    let mut out = anstream::stdout().lock();
    if args.json {
        json::write(&mut out, &transcript)?;
        writeln!(out)?;
    } else {
        draw::draw(&mut out, &transcript, args.full)?;
    }
    Ok(Code::Done)
}

/// What a session may do at most, by action.
fn rights(created: &SessionCreated) -> BTreeMap<&'static str, Verdict> {
    let Some(ceiling) = &created.ceiling.body else { return BTreeMap::new() };
    let bound = created.imported.as_ref();
    let best = |action: &str| ceiling.best(action).min(bound.map_or(Verdict::Allow, |bound| bound.best(action)));
    ACTIONS.into_iter().map(|action| (action, best(action))).collect()
}

/// Fills in the ends whose text only the child's journal has (K26).
fn complete(shelf: &Shelf, entries: &mut [Shown]) {
    let ends = entries.iter_mut().flat_map(|shown| shown.entry.ends_mut());
    for end in ends.filter(|end| end.text.is_empty() && end.len > 0) {
        end.deleted = !shelf.heads().contains_key(&end.child);
        // A child that cannot be read is named with the command that says why.
        if !end.deleted
            && let Ok(records) = shelf.records(end.child)
        {
            end.complete(&records);
        }
    }
}

/// What the minion of a call did for it. One that cannot be read says so where its transcript would stand.
fn minion_of(shelf: &Shelf, id: SessionId, call: &entry::Call) -> Option<Minion> {
    let child = call.child.filter(|_| *call.tool == *subtend_tools::dialect::minion::NAME)?;
    let chat = shelf.heads().get(&child)?.short.clone();
    Minion::of(&shelf.records(child).ok()?, (id, call.call), chat)
}

/// Reads a session. With `seen`, the transcripts of opaque children stand in the calls that started them (G9), each once: a
/// damaged store may hold a ring.
fn transcript(
    shelf: &Shelf,
    id: SessionId,
    label: Option<&Text>,
    seen: &mut Option<BTreeSet<SessionId>>,
) -> Result<Transcript, Fail> {
    let head = shelf.heads().get(&id).ok_or_else(|| Fail::Other(format!("session {id} is not in the index")))?;
    let records = shelf.records(id)?;
    let past = Past::of(&records);
    let created = entry::birth(&records);
    let system = created.map(|created| shelf.text(&created.system)).transpose()?;
    let mut entries = entry::entries(&records);
    complete(shelf, &mut entries);
    if seen.is_some() {
        for call in entries.iter_mut().flat_map(|shown| shown.entry.calls_mut()) {
            call.minion = minion_of(shelf, id, call);
            let Some(child) = call.child.filter(|child| shelf.heads().get(child).is_some_and(|head| !head.inspectable))
            else {
                continue;
            };
            // A call that continues a child shows it no second time.
            if seen.as_mut().is_some_and(|seen| seen.insert(child)) {
                let nested = transcript(shelf, child, past.tasks.get(&child), seen);
                call.nested = Some(
                    nested.map_or_else(|fail| Nested::Unreadable(fail.to_string()), |it| Nested::Transcript(it.into())),
                );
            }
        }
    }
    Ok(Transcript {
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
        servers: created.map(|created| created.servers.clone()).unwrap_or_default(),
        imported: created.is_some_and(|created| created.imported.is_some()),
        rights: created.map(rights).unwrap_or_default(),
        created_ms: head.created_ms,
        metadata: tasks::object(past.metadata.as_ref()),
        branch: Branch::of(id, head, &past, label),
        system,
        summary: entry::summary(&records),
        entries,
    })
}

/// The name of the model that answered, which was asked for as `asked`: older records lack the provider.
fn model_name(answered: Option<&Text>, asked: Option<&Text>) -> Option<Text> {
    let is_same = |asked: &&Text| {
        answered.is_some_and(|name| asked.strip_suffix(&**name).is_some_and(|rest| rest.ends_with('/')))
    };
    asked.filter(|asked| answered.is_none() || is_same(asked)).or(answered).cloned()
}
