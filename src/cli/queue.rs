use std::io::Write as _;

use hyper::Method;
use serde::Serialize;
use serde_json::{Value, json};
use subtend_actors::boot::preview_recovery;
use subtend_actors::{QueueEntry, QueueKind};
use subtend_session::ids::InputId;
use subtend_session::record::Lane;
use subtend_session::state::Boundary;

use super::answers::Removed;
use super::clock::wall_ms;
use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::hosted;
use super::paint::{DIM, Styled, ago, clip, count};
use super::store_reader::StoreReader;
use crate::cli::json;

/// Lists the queue of a session (inputs, and completions that its model has not received), removes an input, or clears
/// all inputs.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    session: String,

    #[command(subcommand)]
    command: Option<QueueCommand>,

    /// Print one JSON array, or one object for a removal
    #[arg(long, global = true)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, clap::Subcommand)]
enum QueueCommand {
    /// List the entries in the order of processing (default)
    List,
    /// Remove an input
    Remove {
        /// Id of the input
        input: String,
    },
    /// Remove all inputs
    Clear,
}

#[derive(Serialize)]
struct QueueRow<'a> {
    id: InputId,
    kind: &'static str,
    lane: Lane,
    taken_at: Option<Boundary>,
    text: &'a str,
    metadata: Option<&'a str>,
    time_ms: Option<i64>,
}

fn row(entry: &QueueEntry) -> QueueRow<'_> {
    let (text, metadata) = (&*entry.text, entry.metadata.as_deref());
    QueueRow {
        id: entry.id,
        kind: kind(entry.kind),
        lane: entry.lane,
        taken_at: entry.taken_at,
        text,
        metadata,
        time_ms: entry.time_ms,
    }
}

/// Describes the kind of an entry and the boundary at which it is taken.
pub(crate) fn describe_entry(entry: &QueueEntry) -> String {
    let steers = match entry.lane {
        Lane::Steer => ", steers",
        Lane::Send => "",
    };
    let taken = match entry.taken_at {
        Some(Boundary::Turn) => ", at a turn boundary",
        Some(Boundary::Rest) => ", at a rest point",
        Some(Boundary::Run) => ", by the next run",
        None => "",
    };
    format!("{}{steers}{taken}", kind(entry.kind))
}

fn kind(kind: QueueKind) -> &'static str {
    match kind {
        QueueKind::User => "user",
        QueueKind::System => "system",
        QueueKind::AgentResult => "agent result",
        QueueKind::Completion => "completion",
    }
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    match &args.command {
        None | Some(QueueCommand::List) => list(args),
        Some(QueueCommand::Remove { input }) => {
            let id: InputId = input.parse().map_err(|_| {
                Fail::Usage(format!(
                    "`{}` is not the id of an input; `subtend queue SESSION` lists them",
                    clip(input, 80)
                ))
            })?;
            hosted::with(&args.store, &args.session, |hosted| {
                let _: Value = hosted.call(Method::DELETE, &format!("/queue/{id}"), None)?;
                let value = json!({"session": hosted.id, "input": id, "removed": true});
                control::report(args.json, &value, &format!("removed {id}"))
            })
        }
        Some(QueueCommand::Clear) => clear(args),
    }
}

fn clear(args: &Args) -> Result<Code, Fail> {
    hosted::with(&args.store, &args.session, |hosted| {
        let done: Removed = hosted.call(Method::DELETE, "/queue", None)?;
        let value = json!({"session": hosted.id, "removed": done.removed});
        control::report(args.json, &value, &format!("removed {}", count(done.removed, "input")))
    })
}

/// Lists the queue as recorded in the journal, without recovering runs of a killed process.
fn list(args: &Args) -> Result<Code, Fail> {
    let reader = StoreReader::open_existing(&args.store)?;
    let id = reader.find(&args.session)?;
    let has_run = reader.is_hosted() || {
        let (resuming, queued) = preview_recovery(reader.journal())?;
        resuming.contains(&id) || queued.contains(&id)
    };
    let entries = QueueEntry::list(reader.journal(), id, has_run)?;
    reader.release();
    let mut out = anstream::stdout().lock();
    if args.json {
        json::write_line(&mut out, &entries.iter().map(row).collect::<Vec<_>>())?;
        return Ok(Code::Done);
    }
    if entries.is_empty() {
        writeln!(anstream::stderr(), "the queue of session {} is empty", id.short().0)?;
    }
    for entry in &entries {
        let age = entry.time_ms.map(|sent| format!("  {}", ago(wall_ms(), sent))).unwrap_or_default();
        writeln!(
            out,
            "{}  {}{}  {}",
            Styled(DIM, entry.id),
            describe_entry(entry),
            Styled(DIM, age),
            clip(&entry.text, 80)
        )?;
    }
    Ok(Code::Done)
}
