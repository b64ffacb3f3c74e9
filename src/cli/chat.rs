use std::io::IsTerminal as _;

use super::fail::{Code, Fail};
use super::work::{self, CommandSubject, HereArgs, Screen, Work, WorkArgs};
use conversation::Conversation;

mod command;
mod condensing;
mod conversation;
pub(super) mod earlier;
mod lines;
mod piped;
mod read_positions;

/// Talks with an agent, and shows what it and its subagents do.
///
/// A line opens a run if the session is idle; otherwise it steers the run in flight at its next turn boundary. /help
/// lists the commands. A run of an earlier process that resumes (`on_restart: resume`) is shown. Without a terminal, each
/// line of stdin is sent in turn, and each answer goes to stdout.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session to continue: an id, the start of one, a short name, or a path such as `root/a3f9c1` [default: a new one]
    session: Option<String>,

    /// Agent that answers in a new session [default: `agent` in subtend.yaml, else `general`]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    #[command(flatten)]
    here: HereArgs,

    #[command(flatten)]
    work: WorkArgs,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    if let Some(session) = &args.session {
        args.work.refuse_for_existing_session()?;
        if let Some(agent) = &args.agent {
            return Err(Fail::Usage(format!(
                "`--agent {agent}`: an existing session keeps its agent; choose another one in the chat with `/agent NAME`, or with \
                 `subtend send {session} --agent NAME TEXT`"
            )));
        }
    } else if args.here.here {
        return Err(Fail::Usage(
            "`--here` needs an existing session: a new session always uses this directory. Omit it".to_owned(),
        ));
    }
    let typed = std::io::stdin().is_terminal();
    let about = match args.session.as_deref() {
        Some(name) => CommandSubject::Session(name, args.here),
        None => CommandSubject::New(args.agent.as_deref()),
    };
    // Without a terminal, each line is a message and cannot answer a question, so no approver is attached.
    let may_ask = |screen: &Screen| typed && screen.is_drawn();
    work::run_and_ask_if(&args.work, about, may_ask, async |mut work: Work<'_>| {
        if !(typed && work.screen.is_drawn()) {
            return piped::run(&mut work, args).await;
        }
        let (id, since) = match &args.session {
            Some(_) => {
                let id = work.session()?;
                let since = work.since(Some(id)).await?;
                (id, since)
            }
            None => {
                let since = work.since(None).await?;
                (work.open(None).await?.session.id, since)
            }
        };
        let commands = args.work.slash_commands(&work, args.here)?;
        let code = Conversation::begin(&mut work, commands, (id, since)).await?.run().await?;
        if !args.work.store.place()?.is_in_memory() && work.read(|journal| journal.head(id))?.is_some() {
            work.screen.note(&format!(
                "return to it: subtend chat {}{}",
                id.short().0,
                args.work.store.options_for_shell()
            ));
        }
        Ok(code)
    })
}
