//! A conversation without a terminal: reads lines from stdin and prints answers.

use std::io::BufRead as _;

use serde_json::json;
use subtend_session::ids::RunNo;
use tokio::sync::mpsc;

use super::super::fail::{Code, Fail};
use super::super::work::Work;
use super::Args;

/// Sends each non-empty line of stdin, and waits for the end of its run before it sends the next.
pub(super) async fn run(work: &mut Work<'_>, args: &Args) -> Result<Code, Fail> {
    let mut lines = stdin();
    let mut session = if args.session.is_some() { Some(work.session()?) } else { None };
    let mut code = Code::Done;
    loop {
        let line = tokio::select! {
            biased;
            // Skips the remaining lines after Ctrl-C.
            () = work.stop.requested() => return Ok(Code::Cancelled),
            line = lines.recv() => line,
        };
        let Some(line) = line else { return Ok(code) };
        let line = line.map_err(|error| Fail::Other(format!("stdin cannot be read: {error}")))?;
        if line.trim().is_empty() {
            continue;
        }
        let line = args.work.prompt(work, args.here, &line)?;
        code = match session {
            Some(id) => work.send_to(id, "inputs", &json!({"text": line})).await?,
            None => {
                let since = work.since(None).await?;
                let opened = work.open(Some(&line)).await?;
                session = Some(opened.session.id);
                work.follow(since, opened.session.id, opened.input.map_or(RunNo(1), |input| input.run)).await?
            }
        };
        work.warn_of_servers();
    }
}

fn stdin() -> mpsc::Receiver<std::io::Result<String>> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let is_last = line.is_err();
            if sender.blocking_send(line).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}
