use std::io::Write as _;

use serde::Serialize;
use subtend_journal::{Problem, Progress, Report};
use subtend_session::ids::{Lsn, Seq, SessionId};

use super::client::{Attached, Store};
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::paint::{BAD, GOOD, Styled, clip, count};
use super::progress::ProgressLine;
use crate::cli::json;

/// Reads the whole store and reports every violation; the exit code is 1 if there are any.
///
/// It does not change the store, except for its lock file, which names this process meanwhile. An engine may write when
/// it opens a store, for example to repair a torn end. With redb these writes go to memory, and with sled to a copy of
/// the files under TMPDIR. Parts that a host changes meanwhile are read again.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Serialize)]
struct Findings<'a> {
    sound: bool,
    frames: u64,
    records: u64,
    sessions: u64,
    bytes: u64,
    problems: Vec<Finding<'a>>,
    unsettled: usize,
}

#[derive(Serialize)]
struct Finding<'a> {
    session: Option<SessionId>,
    lsn: Option<Lsn>,
    seq: Option<Seq>,
    what: &'a str,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    let place = args.store.place()?;
    if !place.exists()? {
        return Err(place.missing_store());
    }
    let journal = match Attached::to(&place)? {
        Some(host) => Store::Hosted(host).into_journal(place)?.0,
        None => place.read()?,
    };
    let mut progress = ProgressLine::new();
    let describe = |at: Progress| format!("{} frames, {} sessions read", at.frames, at.sessions);
    let report = journal.verify(&mut |at| progress.report(|| describe(at)))?;
    drop(progress);
    // Release the store first, because a reader of the report, such as a pager, may take long.
    drop(journal);
    let mut out = anstream::stdout().lock();
    if args.json {
        json::write_line(&mut out, &findings(&report))?;
    } else {
        writeln!(out, "{}", text(&report))?;
    }
    Ok(if report.problems.is_empty() { Code::Done } else { Code::Failed })
}

fn findings(report: &Report) -> Findings<'_> {
    let finding = |problem: &'_ Problem| (problem.session, problem.lsn, problem.seq);
    let problems = report.problems.iter().map(|problem| {
        let (session, lsn, seq) = finding(problem);
        Finding { session, lsn, seq, what: &problem.what }
    });
    Findings {
        sound: report.problems.is_empty(),
        frames: report.frames,
        records: report.records,
        sessions: report.sessions,
        bytes: report.bytes,
        problems: problems.collect(),
        unsettled: report.unsettled.len(),
    }
}

fn text(report: &Report) -> String {
    let read = format!(
        "read {} in {} of {}, {} bytes",
        count(report.records, "record"),
        count(report.frames, "frame"),
        count(report.sessions, "session"),
        report.bytes
    );
    let found = match report.problems.len() as u64 {
        0 => format!("{} {read}: no problems", Styled(GOOD, "✓")),
        problems => format!("{} {read}: {}", Styled(BAD, "✗"), count(problems, "problem")),
    };
    let mut lines = vec![found];
    lines.extend(report.problems.iter().map(|problem| format!("  {}", line(problem))));
    if !report.unsettled.is_empty() {
        lines.push(format!(
            "  {} could not be checked, because the host of the store changed it during each read: run the command again when \
             no run is in flight",
            count(report.unsettled.len() as u64, "row")
        ));
    }
    lines.join("\n")
}

pub(super) fn line(problem: &Problem) -> String {
    let session = problem.session.map(|session| format!("session {session}"));
    let lsn = problem.lsn.map(|lsn| format!("lsn {lsn}"));
    let seq = problem.seq.map(|seq| format!("record {seq}"));
    let place: Vec<_> = [session, lsn, seq].into_iter().flatten().collect();
    let place = if place.is_empty() { "store".to_owned() } else { place.join(", ") };
    format!("{place}: {}", clip(&problem.what, 1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(report: &Report) -> String {
        anstream::adapter::strip_str(&text(report)).to_string()
    }

    #[test]
    fn sound_store_is_reported_on_one_line() {
        let report = Report { frames: 2, records: 9, sessions: 1, bytes: 1_234, ..Report::default() };
        assert_eq!(plain(&report), "✓ read 9 records in 2 frames of 1 session, 1234 bytes: no problems");
    }

    #[test]
    fn problem_is_printed_with_its_location() {
        let problem = |lsn, what: &str| Problem { session: None, lsn, seq: Some(Seq(4)), what: what.to_owned() };
        let anywhere = Problem { session: None, lsn: None, seq: None, what: "no meta row".to_owned() };
        let problems = vec![problem(Some(Lsn(7)), "a gap"), anywhere];
        let report = Report { frames: 2, records: 9, sessions: 1, problems, ..Report::default() };
        let expected = "\
✗ read 9 records in 2 frames of 1 session, 0 bytes: 2 problems
  lsn 7, record 4: a gap
  store: no meta row";
        assert_eq!(plain(&report), expected);
    }

    #[test]
    fn rows_changed_by_the_host_are_not_problems() {
        let row = Problem { session: None, lsn: Some(Lsn(7)), seq: None, what: "no meta row".to_owned() };
        let report = Report { frames: 2, records: 9, sessions: 1, unsettled: vec![row], ..Report::default() };
        let expected = "\
✓ read 9 records in 2 frames of 1 session, 0 bytes: no problems
  1 row could not be checked, because the host of the store changed it during each read: run the command again when no run is \
  in flight";
        assert_eq!(plain(&report), expected);
        assert_eq!((findings(&report).sound, findings(&report).unsettled), (true, 1));
    }
}
