//! `subtend delete`: a session and all below it are deleted.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use hyper::Method;
use serde::Deserialize;
use subtend_journal::Journal;
use subtend_session::ids::SessionId;
use subtend_session::place::BranchKind;

use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::hosted::Hosted;
use super::paint::{clip, count, harmless, size};
use super::shelf::Shelf;

/// Sessions that the question lists.
const LISTED: usize = 20;
/// Columns of a title.
const TITLE: usize = 50;

/// Deletes a session and everything below it: they take no input and are in no listing and no export.
///
/// Their text stays in the files of the store until `subtend compact` erases it. At a terminal it shows what it deletes and asks first.
/// A session above keeps what belongs to its own conversation: the task of a subagent and the result that it was given, and an answer
/// that was regenerated. Delete that session to erase those too.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    session: String,

    /// Cancel what is in flight there first
    #[arg(long)]
    force: bool,

    /// Delete without asking; required where stdin or stderr is not a terminal
    #[arg(long, short)]
    yes: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// What a host deleted.
#[derive(Deserialize)]
struct Deleted {
    sessions: u64,
}

/// Runs the command.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let attended = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !args.yes && !attended {
        // A name that means nothing is the better answer.
        Shelf::must_open(&args.store)?.find(&args.session)?;
        return Err(Fail::Usage(
            "nothing is deleted: delete asks first, and no terminal can answer; use --yes to delete without asking"
                .into(),
        ));
    }
    if let Some(hosted) = Hosted::find(&args.store, &args.session)? {
        if !args.yes && !confirmed(&hosted.journal, hosted.id)? {
            return Err(Fail::Other("nothing is deleted".into()));
        }
        let done: Deleted = hosted.call(Method::DELETE, &format!("?force={}", args.force), None)?;
        return told(args, done.sessions);
    }
    control::with_runtime(&args.store, async |runtime| {
        let session = control::session(runtime, &args.session)?;
        if !args.yes && !confirmed(runtime.journal(), session.id())? {
            return Err(Fail::Other("nothing is deleted".into()));
        }
        told(args, session.delete(args.force).await?)
    })
}

fn told(args: &Args, deleted: impl Into<u64>) -> Result<Code, Fail> {
    let (sessions, again) = (count(deleted, "session"), args.store.again());
    control::say(&format!("deleted {sessions}; `subtend compact{again}` erases their text from the store"))?;
    Ok(Code::Done)
}

/// Shows what is to be deleted, and asks.
fn confirmed(journal: &Journal, session: SessionId) -> Result<bool, Fail> {
    let mut err = anstream::stderr();
    writeln!(err, "{}", listed(journal, session)?)?;
    write!(err, "Delete? [y/N] ")?;
    err.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// What the session above keeps of one of this kind: it is part of that one's own conversation.
fn kept_above(kind: Option<BranchKind>) -> Option<&'static str> {
    match kind {
        Some(BranchKind::Subagent) => Some("The session above keeps the task and the result that its model was given."),
        Some(BranchKind::Alternative) => Some("The session above keeps the answer that was regenerated here."),
        Some(BranchKind::Human | BranchKind::Service) | None => None,
    }
}

/// The sessions that are to be deleted, with their titles and sizes.
fn listed(journal: &Journal, top: SessionId) -> Result<String, Fail> {
    let (mut lines, mut bytes, mut records, mut sessions) = (Vec::new(), 0_u64, 0_u64, 0_u64);
    let mut next = vec![(top, 0_usize)];
    while let Some((id, depth)) = next.pop() {
        let Some(head) = journal.head(id)?.filter(|head| !head.deleted) else { continue };
        let own = journal.bytes_of(id)?;
        bytes = bytes.saturating_add(own);
        records = records.saturating_add(head.last_seq.0);
        sessions = sessions.saturating_add(1);
        let title = clip(&harmless(&head.title), TITLE);
        let pad = "  ".repeat(depth);
        lines.push(format!(
            "  {pad}{}  {}  {title}  {}, {}",
            head.short,
            head.agent,
            count(head.last_seq.0, "record"),
            size(own)
        ));
        let below = journal.kids(id)?.into_iter().rev();
        next.extend(below.map(|kid| (kid, depth.saturating_add(1))));
    }
    let hidden = lines.len().saturating_sub(LISTED);
    lines.truncate(LISTED);
    if hidden > 0 {
        lines.push(format!("  and {hidden} more"));
    }
    let kind = journal.head(top)?.filter(|head| head.parent.is_some()).and_then(|head| head.kind);
    lines.extend(kept_above(kind).map(str::to_owned));
    let all = format!("{}, {}, {}", count(sessions, "session"), count(records, "record"), size(bytes));
    Ok(format!("This deletes {all}:\n{}", lines.join("\n")))
}
