//! `subtend chat`: a conversation at the terminal, with the live tree below it.

use std::io::IsTerminal as _;

use subtend_actors::SessionHandle;
use subtend_actors::event::Subscription;

use super::client::Serving;
use super::fail::{Code, Fail};
use super::work::remote::Remote;
use super::work::{self, About, HereArgs, Screen, Work, WorkArgs, hub};
use talk::Talk;

mod command;
pub(super) mod earlier;
mod lines;
mod piped;
mod remote;
mod talk;
mod told;

/// Talks with an agent, and shows what it and all below it do.
///
/// A line is sent when the session is quiet, and steers when it works: it enters at the next turn boundary. /help tells the
/// commands. A run that an earlier process left and that goes on (`on_restart: resume`) is shown. Without a terminal, each line of
/// stdin is sent in turn and each answer goes to stdout.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session to go on with: an id, the start of one, a short name, or a path such as `root/a3f9c1` [default: a new one]
    session: Option<String>,

    /// Agent that answers in a new session [default: `agent` in subtend.yaml, else `general`]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    #[command(flatten)]
    here: HereArgs,

    #[command(flatten)]
    work: WorkArgs,
}

pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    if args.session.is_some() {
        args.work.not_for_opened()?;
    } else if args.here.here {
        return Err(Fail::Usage(
            "`--here` is for a session that is there: a new one belongs to this directory".to_owned(),
        ));
    }
    remote::earlier(args)?;
    let fits = |serving: &Serving| args.work.through(serving, args.session.is_some());
    let hosted = work::remote::verb(args.work.face(), fits, async |mut through: Remote<'_>| {
        remote::talk(args, &mut through).await
    });
    if let Some(code) = hosted? {
        return Ok(code);
    }
    let typed = std::io::stdin().is_terminal();
    let about = match args.session.as_deref() {
        Some(name) => About::Session(name, args.here),
        None => About::New(args.agent.as_deref()),
    };
    // Where lines are what is said, there is nobody to ask.
    let asked = |screen: &Screen| typed && screen.is_drawn();
    work::verb_asking(&args.work, about, asked, async |mut work: Work<'_>| {
        let (session, events) = session(args, &work)?;
        if !(typed && work.screen.is_drawn()) {
            return piped::talk(&mut work, &session, events).await;
        }
        // A new session may not be in the journal yet.
        let agent = match args.session {
            Some(_) => work.agent_of(session.id())?,
            None => work.opens.agent.clone(),
        };
        let id = session.id();
        let code = Talk::begin(&mut work, session, events, agent).await?.talk().await?;
        if args.work.store.place()?.path().is_some() && work.runtime.journal().head(id)?.is_some() {
            work.screen.note(&format!("return to it: subtend chat {}{}", id.short().0, args.work.store.again()));
        }
        Ok(code)
    })
}

fn session(args: &Args, work: &Work<'_>) -> Result<(SessionHandle, Subscription), Fail> {
    match &args.session {
        Some(_) => work.session().map(|session| {
            let events = session.watch();
            (session, events)
        }),
        None => hub::open(work.runtime, work.opens.clone()),
    }
}
