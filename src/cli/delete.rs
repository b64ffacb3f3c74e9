use std::collections::HashSet;
use std::io::{BufRead as _, IsTerminal as _, Write as _};

use hyper::Method;
use serde::Deserialize;
use subtend_journal::Journal;
use subtend_session::ids::SessionId;
use subtend_session::place::BranchKind;

use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::hosted;
use super::paint::{clip, count, harmless, size};
use super::store_reader::StoreReader;
use super::worktrees;

/// Maximum number of sessions that the question lists.
const MAX_LISTED: usize = 20;
const TITLE_WIDTH: usize = 50;

/// Deletes a session and everything below it: they accept no input and appear in no listing or export.
///
/// Their text stays in the files of the store until `subtend compact` erases it. Their worktrees are removed, with all changes
/// that were not merged or kept. At a terminal, the command shows what it deletes and asks first. A parent session keeps its own
/// conversation: the task of a subagent, the result that it received, and regenerated answers. Delete that session to erase
/// those too.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    session: String,

    /// Cancel runs in flight first
    #[arg(long)]
    force: bool,

    /// Delete without asking; required if stdin or stderr is not a terminal
    #[arg(long, short)]
    yes: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Deserialize)]
struct DeleteReply {
    sessions: u64,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    let attended = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !args.yes && !attended {
        // Look up the session first, so that an unknown name is reported.
        StoreReader::open_existing(&args.store)?.find(&args.session)?;
        return Err(Fail::Usage(
            "nothing is deleted: there is no terminal to confirm the deletion. Use --yes to delete without asking"
                .into(),
        ));
    }
    hosted::with(&args.store, &args.session, |hosted| {
        let preview = preview(&hosted.journal, hosted.id);
        let lost = match &preview {
            Ok((_, sessions)) => match worktrees::describe_unmerged(&args.store, sessions) {
                // Errors are ignored: the list is only shown, and remaining worktrees are reported later.
                Err(_) if args.yes => Vec::new(),
                lost => lost?,
            },
            Err(_) => Vec::new(),
        };
        if !args.yes && !is_confirmed(&preview?.0, &lost)? {
            return Err(Fail::Other("nothing is deleted".into()));
        }
        let done: DeleteReply = hosted.call(Method::DELETE, &format!("?force={}", args.force), None)?;
        let discarded = worktrees::discard_deleted(&args.store, &hosted.journal);
        let reported = report(args, hosted.id, done.sessions, lost.len())?;
        discarded.map(|()| reported)
    })
}

fn report(args: &Args, session: SessionId, deleted: u64, lost: usize) -> Result<Code, Fail> {
    let again = args.store.options_for_shell();
    let sessions = match lost {
        0 => count(deleted, "session"),
        _ => format!("{}, and {}", count(deleted, "session"), unmerged_warning(lost)),
    };
    let value = serde_json::json!({"session": session, "deleted": deleted});
    let text = format!("deleted {sessions}; `subtend compact{again}` erases their text from the store");
    control::report(args.json, &value, &text)
}

fn unmerged_warning(worktrees: usize) -> String {
    format!("{} with unmerged changes", count(u64::try_from(worktrees).unwrap_or(u64::MAX), "worktree"))
}

fn is_confirmed(preview: &str, lost: &[String]) -> Result<bool, Fail> {
    let mut err = anstream::stderr();
    writeln!(err, "{preview}")?;
    if !lost.is_empty() {
        writeln!(err, "It also removes {}:\n  {}", unmerged_warning(lost.len()), lost.join("\n  "))?;
    }
    write!(err, "Delete? [y/N] ")?;
    err.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Returns a note about the parts that the parent session keeps in its own conversation.
fn parent_copy_note(kind: Option<BranchKind>) -> Option<&'static str> {
    match kind {
        Some(BranchKind::Subagent) => Some("The parent session keeps the task and the result that its model received."),
        Some(BranchKind::Alternative) => Some("The parent session keeps the answer that was regenerated here."),
        Some(BranchKind::Human | BranchKind::Service) | None => None,
    }
}

/// Returns the text of the question, and the sessions that are deleted.
fn preview(journal: &Journal, top: SessionId) -> Result<(String, HashSet<SessionId>), Fail> {
    let (mut lines, mut bytes, mut records, mut sessions) = (Vec::new(), 0_u64, 0_u64, 0_u64);
    let (mut seen, mut next) = (HashSet::new(), vec![(top, 0_usize)]);
    while let Some((id, depth)) = next.pop() {
        // Visit each session once: a damaged store may contain a cycle.
        if !seen.insert(id) {
            continue;
        }
        let Some(head) = journal.head(id)?.filter(|head| !head.deleted) else { continue };
        let own = journal.bytes_of(id)?;
        bytes = bytes.saturating_add(own);
        records = records.saturating_add(head.last_seq.0);
        sessions = sessions.saturating_add(1);
        let title = clip(&harmless(&head.title), TITLE_WIDTH);
        let pad = "  ".repeat(depth);
        lines.push(format!(
            "  {pad}{}  {}  {title}  {}, {}",
            head.short,
            head.agent,
            count(head.last_seq.0, "record"),
            size(own)
        ));
        let children = journal.children(id)?.into_iter().rev();
        next.extend(children.map(|child| (child, depth.saturating_add(1))));
    }
    let hidden = lines.len().saturating_sub(MAX_LISTED);
    lines.truncate(MAX_LISTED);
    if hidden > 0 {
        lines.push(format!("  and {hidden} more"));
    }
    let kind = journal.head(top)?.filter(|head| head.parent.is_some()).and_then(|head| head.kind);
    lines.extend(parent_copy_note(kind).map(str::to_owned));
    let all = format!("{}, {}, {}", count(sessions, "session"), count(records, "record"), size(bytes));
    Ok((format!("This deletes {all}:\n{}", lines.join("\n")), seen))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::Value;
    use subtend_journal::Options;
    use subtend_journal::memory::Memory;
    use subtend_journal::remote::{Read, Remote};
    use subtend_models::scripted::{Scripted, Step};

    use super::*;

    #[tokio::test]
    async fn cycle_of_sessions_is_listed_once() {
        let model = Scripted::builder("s").rule("*", [Step::text("a")]);
        let memory = Memory::new();
        let journal = || Journal::open(Box::new(memory.clone()), Options::default()).expect("a journal");
        let runtime = subtend_actors::Runtime::builder().journal(journal()).model(model.build().expect("a script"));
        let runtime = runtime.start().await.expect("a runtime");
        let session = runtime.open("general").expect("opened");
        session.send("hello").await.expect("accepted").answer().await.expect("answered");
        runtime.shutdown(std::time::Duration::from_secs(1)).await;
        let (top, count, journal) = (session.id(), AtomicUsize::new(0), journal());
        let ask = move |read: &Read| {
            // The session is its own child. Without the check for cycles, the listing would not end before 1,000 reads.
            if matches!(read, Read::Children { .. }) && count.fetch_add(1, Ordering::Relaxed) < 1_000 {
                return Ok(Value::from(vec![top.to_string()]));
            }
            journal.read(read).map_err(|error| error.to_string())
        };
        let cyclic = Journal::open(Box::new(Remote::new(ask)), Options::default()).expect("a journal");
        let (text, _) = preview(&cyclic, top).expect("a preview");
        assert!(text.starts_with("This deletes 1 session, "), "{text}");
    }
}
