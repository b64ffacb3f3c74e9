//! `subtend run`: one prompt, one answer, and the tree of sessions that finds it.

use super::client::Serving;
use super::fail::{Code, Fail};
use super::work::background;
use super::work::remote::{self, Remote};
use super::work::{self, About, Work, WorkArgs, hub, prompt};

/// Runs one prompt in a new session and prints the answer.
///
/// The answer goes to stdout, progress to stderr. Every session that takes part is kept: `subtend tree` shows them.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// What to do; `-` reads it from stdin
    prompt: String,

    /// Agent that answers [default: `agent` in subtend.yaml, else `general`]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    /// Leave the run to the process that hosts the store, and print the id of its session; without such a process, one is started
    /// that ends when nothing is left to do
    #[arg(long, conflicts_with_all = ["json", "raw"])]
    detach: bool,

    #[command(flatten)]
    work: WorkArgs,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let prompt = prompt::read(&args.prompt, std::io::stdin())?;
    let fits = |serving: &Serving| args.work.through(serving, false);
    if args.detach {
        background::host(&args.work.store)?;
    }
    let hosted = remote::verb(args.work.face(), fits, async |mut remote: Remote<'_>| {
        let body = args.work.opening(args.agent.as_deref(), &prompt)?;
        Ok(remote.open(&body, args.detach).await?.1)
    })?;
    if let Some(code) = hosted {
        return Ok(code);
    }
    work::verb(&args.work, About::New(args.agent.as_deref()), async |mut work: Work<'_>| {
        let (session, events) = hub::open(work.runtime, work.opens.clone())?;
        let receipt = session.send(prompt).await?;
        work.follow(events, &session, receipt.run).await
    })
}
