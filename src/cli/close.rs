//! `subtend close`: a quiet session is closed.

use std::io::Write as _;

use hyper::Method;
use serde_json::Value;

use super::control;
use super::fail::{Code, Fail};
use super::hosted::{self, Hosted};
use super::paint::{In, ODD, harmless};
use super::work::StopSignal;
use super::work::serve::{self, ServeArgs, Unmet};

/// Closes an idle session; the next input reopens it.
///
/// With `sessions.summaries`, it first waits up to two minutes for a summary. The session is closed in any case.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    session: String,

    #[command(flatten)]
    serve: ServeArgs,
}

pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let (store, session) = (&args.serve.store, &*args.session);
    if let Some(hosted) = Hosted::find(store, session)? {
        args.serve.through()?;
        // The host summarises it if that is configured.
        return close(&hosted);
    }
    match args.serve.ready(session) {
        Ok(mut ready) if ready.parts.options.summaries && !ready.parts.models.is_offline() => {
            // Asked for below, where a failure can be reported.
            ready.parts.options.summaries = false;
            let (threads, mut stop) = serve::listen()?;
            match serve::with(threads, ready, |hosted| summed_up(hosted, &mut stop)) {
                // Nothing was started.
                Err(Fail::Usage(why)) => closed_alone(args, &why),
                done => done,
            }
        }
        Ok(ready) => {
            // It holds the store.
            drop(ready);
            hosted::with(store, session, close)
        }
        Err(_) if args.serve.wants_no_summaries() => hosted::with(store, session, close),
        Err(why) => closed_alone(args, &why.to_string()),
    }
}

fn summed_up(hosted: &Hosted, stop: &mut StopSignal) -> Result<Code, Fail> {
    close(hosted)?;
    // Only a root is summed up by its close.
    if hosted.journal.head(hosted.id)?.is_some_and(|head| head.parent.is_some()) {
        return Ok(Code::Done);
    }
    let short = hosted.id.short();
    match serve::summarised(hosted, stop, true) {
        Ok(Ok(_)) => {}
        Ok(Err(why)) => unsummed(&why.to_string(), &short.0),
        Err(Unmet::Late) => unsummed("no summary: it took too long", &short.0),
        Err(Unmet::Stopped) => {
            unsummed("no summary: it was cancelled", &short.0);
            return Ok(Code::Cancelled);
        }
    }
    Ok(Code::Done)
}

fn closed_alone(args: &Args, why: &str) -> Result<Code, Fail> {
    let closed = hosted::with(&args.serve.store, &args.session, close)?;
    unsummed(&format!("no summary: {why}"), &args.session);
    Ok(closed)
}

fn close(hosted: &Hosted) -> Result<Code, Fail> {
    let name = hosted.id.short().0;
    let _: Value = hosted.control(Method::POST, "/close", None)?;
    control::say(&format!("session {name} is closed; `subtend send` opens it again"))?;
    Ok(Code::Done)
}

/// Warns that the closed session has no summary. Without a stderr there is no reader.
fn unsummed(why: &str, session: &str) {
    let text = harmless(&format!("{why} (`subtend summary {session}` tries again)"));
    drop(writeln!(anstream::stderr(), "{} {text}", In(ODD, "warning:")));
}
