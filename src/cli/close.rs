use std::io::Write as _;

use hyper::Method;
use serde_json::{Value, json};

use super::control;
use super::fail::{Code, Fail};
use super::hosted::{self, Hosted};
use super::paint::{CAUTION, Styled, harmless};
use super::work::StopSignal;
use super::work::serve::{self, ServeArgs, ServiceError};

/// Closes an idle session; the next input reopens it.
///
/// With `sessions.summaries`, it first waits up to two minutes for a summary. The session is closed in any case.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    session: String,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    serve: ServeArgs,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    let (store, session) = (&args.serve.store, &*args.session);
    if let Some(hosted) = Hosted::find(store, session)? {
        args.serve.refuse_for_other_host()?;
        // If summaries are configured, the host summarises the session.
        return close(&hosted, args.json);
    }
    match args.serve.ready(session) {
        Ok(mut ready) if ready.parts.options.summaries && !ready.parts.models.is_offline() => {
            // The summary is requested explicitly below, so that a failure can be reported.
            ready.parts.options.summaries = false;
            let (threads, mut stop) = serve::listen()?;
            match serve::with(threads, ready, |hosted| close_with_summary(hosted, &mut stop, args.json)) {
                // The host could not be started.
                Err(Fail::Usage(why)) => close_without_summary(args, &why),
                done => done,
            }
        }
        Ok(ready) => {
            // Release the store before the session is closed without a summary.
            drop(ready);
            hosted::with(store, session, |hosted| close(hosted, args.json))
        }
        Err(_) if args.serve.are_summaries_disabled() => {
            hosted::with(store, session, |hosted| close(hosted, args.json))
        }
        Err(why) => close_without_summary(args, &why.to_string()),
    }
}

fn close_with_summary(hosted: &Hosted, stop: &mut StopSignal, is_json: bool) -> Result<Code, Fail> {
    close(hosted, is_json)?;
    // Only root sessions are summarised when they are closed.
    if hosted.journal.head(hosted.id)?.is_some_and(|head| head.parent.is_some()) {
        return Ok(Code::Done);
    }
    let short = hosted.id.short();
    match serve::request_summary(hosted, stop, true) {
        Ok(Ok(_)) => {}
        Ok(Err(why)) => warn_no_summary(&why.to_string(), &short.0),
        Err(ServiceError::Late) => warn_no_summary("no summary: it took too long", &short.0),
        Err(ServiceError::Stopped) => {
            warn_no_summary("no summary: it was cancelled", &short.0);
            return Ok(Code::Cancelled);
        }
    }
    Ok(Code::Done)
}

fn close_without_summary(args: &Args, why: &str) -> Result<Code, Fail> {
    let closed = hosted::with(&args.serve.store, &args.session, |hosted| close(hosted, args.json))?;
    warn_no_summary(&format!("no summary: {why}"), &args.session);
    Ok(closed)
}

fn close(hosted: &Hosted, is_json: bool) -> Result<Code, Fail> {
    let (session, name) = (hosted.id, hosted.id.short().0);
    let _: Value = hosted.control(Method::POST, "/close", None)?;
    let value = json!({"session": session, "closed": true});
    control::report(is_json, &value, &format!("session {name} is closed; `subtend send` opens it again"))
}

/// Warns that the closed session has no summary. A failed write is ignored.
fn warn_no_summary(why: &str, session: &str) {
    let text = harmless(&format!("{why} (retry with `subtend summary {session}`)"));
    drop(writeln!(anstream::stderr(), "{} {text}", Styled(CAUTION, "warning:")));
}
