//! `subtend continue`: continues a session whose last run ended.

use serde_json::json;

use super::fail::{Code, Fail};
use super::work::{self, CommandSubject, HereArgs, Work, WorkArgs, prompt};

const DEFAULT: &str = "Continue your previous work.";

/// Continues a session whose last run ended: completed, failed, cancelled, out of turns or lost.
///
/// It opens the next run, with the earlier conversation in context and a new allowance of turns. If a run of an earlier process
/// resumes (`on_restart: resume`) and no TEXT is given, it follows that run instead.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    session: String,

    /// Message to the agent [default: Continue your previous work.]; `-` reads it from stdin
    text: Option<String>,

    /// Maximum number of turns of the run, up to the limit of the session
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    turns: Option<u32>,

    #[command(flatten)]
    here: HereArgs,

    #[command(flatten)]
    work: WorkArgs,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    args.work.refuse_for_existing_session()?;
    let text = args.text.as_deref().map(|text| prompt::read(text, std::io::stdin())).transpose()?;
    work::run(&args.work, CommandSubject::Session(&args.session, args.here), async |mut work: Work<'_>| {
        if let (Some(run), None, None) = (work.resuming_run, &text, args.turns) {
            // A sent text would be queued as a further task behind the run that resumes.
            let id = work.session()?;
            let since = work.since(Some(id)).await?;
            return work.follow(since, id, run).await;
        }
        let body = json!({"text": text.as_deref().unwrap_or(DEFAULT), "turns": args.turns});
        work.send("inputs", &body).await
    })
}
