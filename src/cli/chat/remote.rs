//! A conversation in a process that has the store: lines in, answers out.

use std::io::{IsTerminal as _, Write as _};

use serde_json::json;
use subtend_session::ids::Seq;

use super::super::fail::{Code, Fail};
use super::super::hosted::Hosted;
use super::super::work::hub;
use super::super::work::remote::Remote;
use super::{Args, earlier, piped};

/// Prints what was said before in the session of a verb; the conversation starts after it.
pub(super) fn earlier(args: &Args) -> Result<(), Fail> {
    let Some(name) = &args.session else { return Ok(()) };
    let Some(hosted) = Hosted::find(&args.work.store, name)? else { return Ok(()) };
    let mut out = anstream::stdout().lock();
    for text in earlier::read(&hosted.journal, hosted.id, Seq(u64::MAX), &hub::tools()?)? {
        writeln!(out, "{text}")?;
    }
    Ok(())
}

/// Sends each line, and follows its run to the end. Leaving stops nothing.
pub(super) async fn talk(args: &Args, remote: &mut Remote<'_>) -> Result<Code, Fail> {
    let (mut lines, typed) = (piped::stdin(), std::io::stdin().is_terminal());
    let (mut session, mut code) = (args.session.clone(), Code::Done);
    loop {
        if typed {
            write!(anstream::stderr(), "> ")?;
        }
        let line = tokio::select! {
            biased;
            () = remote.stop.asked() => return Ok(Code::Cancelled),
            line = lines.recv() => line,
        };
        let Some(line) = line else { return Ok(code) };
        let line = line.map_err(|error| Fail::Other(format!("stdin cannot be read: {error}")))?;
        match line.trim() {
            "" => {}
            command if typed && command.starts_with('/') => {
                remote.screen.alert("no /commands where another process has the store: use the commands of subtend");
            }
            _ => {
                code = match &session {
                    Some(name) => remote.send(name, "inputs", &json!({"text": line})).await?,
                    None => {
                        let body = args.work.opening(args.agent.as_deref(), &line)?;
                        let (id, code) = remote.open(&body, false).await?;
                        session = Some(id.to_string());
                        code
                    }
                };
            }
        }
    }
}
