//! Waits for runs that the command does not follow: background children, runs of other terminals, resumed runs.

use std::time::Duration;

use subtend_actors::{Runtime, Stopped};
use subtend_session::ids::SessionId;
use subtend_session::index::Inflight;
use subtend_session::place::Owner;

use super::super::fail::Fail;
use super::super::paint::count;
use super::super::serve;
use super::{Screen, StopSignal};

/// Interval of checks whether these runs have ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Waits until all runs have ended, because they would end with this process. A signal that cancelled the command's own
/// run does not end this wait, unless it asks the process to end.
///
/// # Errors
/// If the journal has failed: then no run can end.
pub(super) async fn wait_for_runs(runtime: &Runtime, screen: &mut Screen, stop: &mut StopSignal) -> Result<(), Fail> {
    let mut is_reported = false;
    loop {
        if let Some(poisoned) = runtime.journal().poisoned() {
            return Err(Fail::Store(Stopped::Poisoned(poisoned.to_string()).to_string()));
        }
        let rows = runtime.journal().inflight().unwrap_or_default();
        // Services of the host, such as titles, are not waited for here.
        let sent = |row: &Inflight| !matches!(row.owner, Owner::Host(_));
        let busy = |(_, row): &&(SessionId, Inflight)| sent(row) && serve::is_busy(row);
        let left = rows.iter().filter(busy).count();
        if left == 0 || stop.is_leave_requested() {
            return Ok(());
        }
        if !is_reported {
            stop.rearm();
            let runs = count(left as u64, "run");
            screen.note(&format!("waiting for {runs} hosted by this process; Ctrl-C stops waiting and ends them"));
            is_reported = true;
        }
        tokio::select! {
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
            () = stop.requested() => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use subtend_actors::OpenOptions;
    use subtend_journal::faulty::Faulty;
    use subtend_journal::memory::Memory;
    use subtend_journal::{Journal, Options};
    use subtend_models::closure::fn_model;

    use super::super::setup;
    use super::*;

    #[tokio::test]
    async fn wait_ends_with_an_error_when_the_journal_fails() {
        let (engine, faults) = Faulty::new(Box::new(Memory::new()));
        let journal = Journal::open(Box::new(engine), Options::default()).expect("a journal");
        let silent = fn_model("silent", |_, _| std::future::pending());
        let runtime = setup::begin(journal.clone(), Runtime::builder().model(Arc::new(silent)), None).await;
        let runtime = runtime.expect("a runtime");
        let [first, second] = [(); 2].map(|()| runtime.open(OpenOptions::agent("general")).expect("a session"));
        first.send("work").await.expect("accepted");
        let (mut screen, mut stop) = (Screen::new(true, false), StopSignal::listen().expect("signals"));
        faults.fill(faults.writes() + 1);
        let wait = wait_for_runs(&runtime, &mut screen, &mut stop);
        let fail = async {
            // The wait has begun: it is polled first.
            second.send("more").await.expect_err("refused");
        };
        let (waited, ()) = tokio::join!(wait, fail);
        let poisoned = journal.poisoned().expect("a failed journal");
        assert!(
            matches!(&waited, Err(Fail::Store(why)) if *why == format!("the journal failed: {poisoned}. Open the store again to recover")),
            "{waited:?}"
        );
    }
}
