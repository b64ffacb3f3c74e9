//! `subtend recover`: ends what a former process left in flight, and tells what it did.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use subtend_actors::{BootReport, Runtime};
use subtend_journal::Journal;
use subtend_session::ids::SessionId;
use subtend_session::state::State;

use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::paint::{BAD, GOOD, In, clip, count, span};
use super::progress::Teller;

/// Ends what a former process left in flight and delivers what is owed; the exit code is 3 if a session cannot be read.
///
/// Every verb that changes sessions does this when it opens the store; this one does nothing else, and reports. No agent works:
/// runs that were opened to go on over a restart are left to the next process that works.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Serialize)]
struct Recovered {
    /// Runs that were in flight and were swept.
    swept: usize,
    /// Runs that go on with the next process that works.
    goes_on: usize,
    /// Notices that were owed and delivered.
    notices: usize,
    unreadable: Vec<Unreadable>,
    took_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Unreadable {
    session: Option<SessionId>,
    why: String,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let teller = Mutex::new(Teller::new());
    let on_boot = move |at: subtend_actors::BootProgress| {
        let words = || format!("{} of {} swept", at.done, count(at.total as u64, "session"));
        teller.lock().unwrap_or_else(PoisonError::into_inner).tell(words);
    };
    control::with_boot(&args.store, on_boot, async |runtime: &Runtime| {
        let recovered = recovered(runtime)?;
        let mut out = anstream::stdout().lock();
        if args.json {
            serde_json::to_writer(&mut out, &recovered)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{}", text(&recovered))?;
        }
        Ok(if recovered.unreadable.is_empty() { Code::Done } else { Code::Store })
    })
}

fn recovered(runtime: &Runtime) -> Result<Recovered, Fail> {
    let BootReport { swept, resumed, notices, unreadable, took_ms } = runtime.boot().clone();
    let found = if unreadable == 0 { BTreeSet::new() } else { unread(runtime.journal())? };
    let mut found: Vec<Unreadable> = found.into_iter().collect();
    if found.is_empty() && unreadable > 0 {
        let why = format!("{} could not be swept, and read now", count(unreadable as u64, "session"));
        found.push(Unreadable { session: None, why });
    }
    Ok(Recovered { swept, goes_on: resumed, notices, unreadable: found, took_ms })
}

/// Rows that are damaged, and what is still in flight or owed to because its session cannot be read.
fn unread(journal: &Journal) -> Result<BTreeSet<Unreadable>, Fail> {
    let rows = journal.damaged()?.into_iter();
    let mut found: BTreeSet<_> = rows.map(|(session, error)| Unreadable { session, why: error.to_string() }).collect();
    let in_flight = journal.inflight()?.into_iter().map(|(session, _)| session);
    let owed = journal.outbox()?.into_iter().map(|(row, _)| row.to);
    for session in in_flight.chain(owed).collect::<BTreeSet<_>>() {
        let why = match journal.records(session) {
            Ok(stored) => State::fold(session, stored.iter().map(|stored| &stored.record)).err().map(|e| e.to_string()),
            Err(error) => Some(error.to_string()),
        };
        found.extend(why.map(|why| Unreadable { session: Some(session), why }));
    }
    Ok(found)
}

fn text(recovered: &Recovered) -> String {
    let Recovered { swept, goes_on, notices, unreadable, took_ms } = recovered;
    let mut parts = vec![
        format!("{} swept", count(*swept as u64, "run")),
        format!("{} delivered", count(*notices as u64, "notice")),
    ];
    if *goes_on > 0 {
        parts.push(format!("{} left to go on with the next process that works", count(*goes_on as u64, "run")));
    }
    let mark = if unreadable.is_empty() { In(GOOD, "✓") } else { In(BAD, "✗") };
    let took = span(Duration::from_millis(*took_ms));
    let mut lines = vec![format!("{mark} recovered in {took}: {}", parts.join(", "))];
    lines.extend(unreadable.iter().map(|one| {
        let place = one.session.map_or_else(|| "store".to_owned(), |session| format!("session {session}"));
        format!("  {place}: {}", clip(&one.why, 1_000))
    }));
    if !unreadable.is_empty() {
        lines.push(
            "  they stay as they are, and all others work: `subtend verify` tells what is wrong with them".into(),
        );
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(recovered: &Recovered) -> String {
        anstream::adapter::strip_str(&text(recovered)).to_string()
    }

    #[test]
    fn what_was_done_is_one_line_and_each_unreadable_session_one_more() {
        let mut recovered = Recovered { swept: 3, goes_on: 0, notices: 1, unreadable: vec![], took_ms: 420 };
        assert_eq!(plain(&recovered), "✓ recovered in 0.4s: 3 runs swept, 1 notice delivered");
        recovered.goes_on = 1;
        recovered.unreadable.push(Unreadable { session: None, why: "a row is damaged".into() });
        let expected = "\
✗ recovered in 0.4s: 3 runs swept, 1 notice delivered, 1 run left to go on with the next process that works
  store: a row is damaged
  they stay as they are, and all others work: `subtend verify` tells what is wrong with them";
        assert_eq!(plain(&recovered), expected);
    }
}
