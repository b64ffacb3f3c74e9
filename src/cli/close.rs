//! `subtend close`: a quiet session is closed.

use std::io::Write as _;

use hyper::Method;
use serde_json::Value;
use subtend_actors::{ControlError, SessionHandle};

use super::control;
use super::fail::{Code, Fail};
use super::hosted::Hosted;
use super::paint::{In, ODD, count, harmless};
use super::work::serve::{self, ServeArgs, Unmet};

/// Closes a quiet session; the next input opens it again.
///
/// Where the host sums up what is closed (`sessions.summaries`), that is waited for, at most two minutes. The session is closed in any
/// case.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    session: String,

    #[command(flatten)]
    serve: ServeArgs,
}

pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    if let Some(hosted) = Hosted::find(&args.serve.store, &args.session)? {
        // The host sums it up where it is set to.
        let _: Value = hosted.call(Method::POST, "/close", None)?;
        control::say(&format!("session {} is closed; `subtend send` opens it again", hosted.id.short().0))?;
        return Ok(Code::Done);
    }
    match args.serve.ready(&args.session) {
        Ok(mut ready) if ready.parts.options.summaries && !ready.parts.models.is_offline() => {
            // Asked for below, where a failure can be reported.
            ready.parts.options.summaries = false;
            let tried = serve::with(serve::listen()?, ready, async |session, mut stop| {
                close(&session).await?;
                // Only a root is summed up by its close.
                if !session.is_root() || session.is_summed_up().await? {
                    return Ok(Code::Done);
                }
                let short = session.id().short();
                match serve::waited(session.summarise(), &mut stop).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(why)) => unsummed(&why.to_string(), &short.0),
                    Err(Unmet::Late) => unsummed("no summary: it took too long", &short.0),
                    Err(Unmet::Stopped) => {
                        unsummed("no summary: it was cancelled", &short.0);
                        return Ok(Code::Cancelled);
                    }
                }
                Ok(Code::Done)
            });
            match tried {
                // Nothing was started.
                Err(Fail::Usage(why)) => closed_alone(args, &why),
                done => done,
            }
        }
        Ok(ready) => {
            // It holds the store.
            drop(ready);
            control::with(&args.serve.store, &args.session, async |session| close(&session).await)
        }
        Err(_) if args.serve.wants_no_summaries() => {
            control::with(&args.serve.store, &args.session, async |session| close(&session).await)
        }
        Err(why) => closed_alone(args, &why.to_string()),
    }
}

/// Closes it where no model can be used, and tells why.
fn closed_alone(args: &Args, why: &str) -> Result<Code, Fail> {
    let closed = control::with(&args.serve.store, &args.session, async |session| close(&session).await)?;
    unsummed(&format!("no summary: {why}"), &args.session);
    Ok(closed)
}

async fn close(session: &SessionHandle) -> Result<Code, Fail> {
    session.close().await.map_err(|error| {
        if let ControlError::Waiting(inputs) = error { waiting(&session.id().short().0, inputs) } else { error.into() }
    })?;
    control::say(&format!("session {} is closed; `subtend send` opens it again", session.id().short().0))?;
    Ok(Code::Done)
}

/// What to do with the inputs of a session that would be closed without having taken them.
fn waiting(session: &str, inputs: usize) -> Fail {
    let what = count(inputs as u64, "input");
    Fail::Other(format!(
        "session {session} is not closed, since {what} in its queue would be left behind: `subtend continue {session}` lets it take what \
         waits, `subtend queue {session} clear` removes it"
    ))
}

/// Warns that the closed session has no summary. Without a stderr there is no reader.
fn unsummed(why: &str, session: &str) {
    let text = harmless(&format!("{why} (`subtend summary {session}` tries again)"));
    drop(writeln!(anstream::stderr(), "{} {text}", In(ODD, "warning:")));
}
