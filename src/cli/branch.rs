use std::io::Write as _;

use hyper::Method;
use serde::Deserialize;
use serde_json::json;
use subtend_session::ids::SessionId;
use subtend_session::title;

use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::hosted;
use super::names;
use super::paint::count;
use super::restore::{FilesArgs, RestorePreview, describe_restored};
use crate::cli::json;

/// Branches off a session at one of its messages, and prints the id of the branch.
///
/// The branch has the conversation up to that message; `subtend send ID TEXT` continues it. The session itself does not
/// change. Files stay as they are, unless `--files` restores them to that message.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Message: SESSION:RECORD as `subtend show` names it, or SESSION for its last one
    message: String,

    /// Agent that answers in the branch [default: the session's own]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    /// Start with an empty context, as a subagent does, instead of the earlier conversation
    #[arg(long)]
    fresh: bool,

    /// Title for listings
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    restore: FilesArgs,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Deserialize)]
struct CreatedBranch {
    session: SessionId,
    files: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    let (session, at) = names::message(&args.message)?;
    if let Some(title) = &args.title {
        title::check(title).map_err(|bad| Fail::Usage(format!("{bad} (--title TEXT)")))?;
    }
    hosted::with(&args.store, session, |hosted| {
        let last = hosted.journal.head(hosted.id)?.map_or(0, |head| head.last_seq.0);
        let of = format!("?at={}", at.map_or(last, |at| at.0));
        if let Some(file) = &args.restore.print {
            return RestorePreview::print_content(hosted, &of, (file, &args.store));
        }
        let mut digest = None;
        if args.restore.files {
            let preview = RestorePreview::read(hosted, &of)?;
            let name = hosted.id.short().0;
            let message = at.map_or_else(|| name.to_string(), |at| format!("{name}:{at}"));
            let command = format!("subtend branch {message} --files{}", args.store.options_for_shell());
            preview.confirm(&args.restore, (&format!("branch of session {name}"), "branched off", &command))?;
            digest = Some(preview.digest);
        }
        let left = if args.restore.files { None } else { RestorePreview::count(hosted, &of) };
        let body = json!({"at": at.map(|at| at.0), "fresh": args.fresh, "agent": args.agent, "title": args.title, "files": digest});
        let made: CreatedBranch = hosted.call(Method::POST, "/branches", Some(&body))?;
        if args.json {
            control::say(&json::text(&json!({"session": made.session, "files": made.files}))?)?;
            return Ok(Code::Done);
        }
        control::say(&made.session.to_string())?;
        let mut err = anstream::stderr();
        if args.restore.files {
            writeln!(err, "{}", describe_restored(&made.files))?;
        } else if let Some(left) = left {
            writeln!(err, "{} changed after that message; branch with --files to restore them", count(left, "file"))?;
        }
        Ok(Code::Done)
    })
}
