use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::json as object;
use subtend_session::ids::{RunNo, SessionId};

use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::hosted;
use super::json;
use super::paint::count;
use super::restore::{FilesArgs, RestorePreview, describe_restored};

/// Hides the messages of a run that did not complete from later model calls and branches.
///
/// Nothing is deleted: `subtend show` marks the messages. Files that the run changed stay as they are, unless `--files` restores them.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    #[arg(value_name = "ID")]
    session: String,

    /// Number of the run [default: the last one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    run: Option<u32>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    restore: FilesArgs,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Deserialize)]
struct RollbackReply {
    run: RunNo,
    files: Vec<String>,
}

#[derive(Serialize)]
struct RolledBack<'a> {
    session: SessionId,
    run: RunNo,
    rolled_back: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<&'a [String]>,
    /// Files that a rollback with files would restore.
    #[serde(skip_serializing_if = "Option::is_none")]
    restorable_files: Option<u64>,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    hosted::with(&args.store, &args.session, |hosted| {
        let of = args.run.map_or_else(String::new, |run| format!("?run={run}"));
        if let Some(file) = &args.restore.print {
            return RestorePreview::print_content(hosted, &of, (file, &args.store));
        }
        let mut body = object!({"run": args.run});
        if args.restore.files {
            let preview = RestorePreview::read(hosted, &of)?;
            let name = hosted.id.short().0;
            let run = args.run.map_or_else(String::new, |run| format!(" --run {run}"));
            let command = format!("subtend rollback {name}{run} --files{}", args.store.options_for_shell());
            preview.confirm(&args.restore, (&format!("session {name}"), "rolled back", &command))?;
            body = object!({"run": args.run, "files": preview.digest});
        }
        let done: RollbackReply = hosted.control(Method::POST, "/rollback", Some(&body))?;
        let restorable = if args.restore.files { None } else { RestorePreview::count(hosted, &of) };
        report(args, hosted.id, &done, restorable)
    })
}

fn report(args: &Args, session: SessionId, done: &RollbackReply, restorable: Option<u64>) -> Result<Code, Fail> {
    let run = done.run;
    if args.json {
        let files = args.restore.files.then_some(&*done.files);
        control::say(&json::text(&RolledBack {
            session,
            run,
            rolled_back: true,
            files,
            restorable_files: restorable,
        })?)?;
        return Ok(Code::Done);
    }
    let name = session.short().0;
    let files = match args.restore.files {
        true => describe_restored(&done.files),
        false => "files that it changed stay as they are".to_owned(),
    };
    control::say(&format!("session {name}: run {run} is rolled back; {files}"))?;
    if let Some(restorable) = restorable {
        let again = args.store.options_for_shell();
        control::say(&format!(
            "{} can be restored: `subtend rollback {name} --run {run} --files{again}` shows the changes and asks",
            count(restorable, "file")
        ))?;
    }
    Ok(Code::Done)
}
