use std::io::Write as _;

use subtend_session::ids::RunNo;

use super::control;
use super::fail::{Code, Fail};
use super::json;
use super::work::background;
use super::work::{self, CommandSubject, HereArgs, Work, WorkArgs, prompt};

/// Runs one prompt in a new session and prints the answer.
///
/// The answer goes to stdout, progress to stderr. All sessions of the run are kept; `subtend tree` shows them.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Prompt; `-` reads it from stdin
    prompt: String,

    /// Agent that answers [default: `agent` in subtend.yaml, else `general`]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    /// Start the run in the process that hosts the store, and print the id of its session; with `--json`, one object
    /// with `session` and `run`. If no process hosts the store, a background process is started, which ends when no run
    /// is left
    #[arg(long, conflicts_with = "raw")]
    detach: bool,

    #[command(flatten)]
    work: WorkArgs,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    let prompt = prompt::read(&args.prompt, std::io::stdin())?;
    if args.detach {
        background::ensure_host(&args.work.store)?;
    }
    work::run(&args.work, CommandSubject::New(args.agent.as_deref()), async |mut work: Work<'_>| {
        let prompt = args.work.prompt(&mut work, HereArgs { here: false }, &prompt)?;
        let since = work.since(None).await?;
        let opened = work.open(Some(&prompt)).await?;
        let id = opened.session.id;
        let run = opened.input.map_or(RunNo(1), |input| input.run);
        if args.detach && args.work.json {
            control::say(&json::text(&serde_json::json!({"session": id, "run": run}))?)?;
            return Ok(Code::Done);
        }
        if args.detach {
            writeln!(std::io::stdout(), "{id}")?;
            let again = args.work.store.options_for_shell();
            work.screen
                .note(&format!("it continues in the background; follow it: subtend attach {}{again}", id.short().0));
            return Ok(Code::Done);
        }
        work.follow(since, id, run).await
    })
}
