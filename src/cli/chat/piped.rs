//! A conversation without a terminal: lines in, answers out.

use std::io::BufRead as _;

use subtend_actors::SessionHandle;
use subtend_actors::event::Subscription;
use tokio::sync::mpsc;

use super::super::fail::{Code, Fail};
use super::super::work::Work;

/// Sends each line of stdin that says something, and waits for the end of its run before the next. `events` are followed to the end
/// of the first run.
pub(super) async fn talk(work: &mut Work<'_>, session: &SessionHandle, events: Subscription) -> Result<Code, Fail> {
    let (mut lines, mut first) = (stdin(), Some(events));
    let mut code = Code::Done;
    loop {
        let line = tokio::select! {
            biased;
            // Also after a run that was cancelled by it: the lines that follow are not sent.
            () = work.stop.asked() => return Ok(Code::Cancelled),
            line = lines.recv() => line,
        };
        let Some(line) = line else { return Ok(code) };
        let line = line.map_err(|error| Fail::Other(format!("stdin cannot be read: {error}")))?;
        if line.trim().is_empty() {
            continue;
        }
        let events = first.take().unwrap_or_else(|| session.watch());
        let receipt = session.send(line).await?;
        code = work.answer(events, session, &receipt).await?;
    }
}

pub(super) fn stdin() -> mpsc::Receiver<std::io::Result<String>> {
    let (tell, told) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let over = line.is_err();
            if tell.blocking_send(line).is_err() || over {
                return;
            }
        }
    });
    told
}
