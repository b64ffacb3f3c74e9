//! Checks that the store opens, and its rows.

use subtend_journal::verify::UNFINISHED;
use subtend_journal::{EngineError, Journal, OpenError, ReadError, Report};
use subtend_session::ids::SessionId;
use subtend_session::index::Head;

use super::super::client::Attached;
use super::super::data::{StoreLocation, no_room};
use super::super::paint::{clip, count, size};
use super::super::progress::ProgressLine;
use super::super::{checkpoints, verify, worktree};
use super::{DoctorArea, Finding, Grade};

/// Hosts, one after the other, through which the store is read before this process opens it itself.
const HOSTS: u32 = 3;

pub(super) fn look(place: &StoreLocation) -> Vec<Finding> {
    if place.is_in_memory() {
        let advice = "give a directory with --data DIR where sessions are to stay";
        return vec![Finding::note(
            DoctorArea::Store,
            "opens",
            "the store is in memory, and gone with the process",
            advice,
        )];
    }
    match place.exists() {
        Ok(true) => {}
        Ok(false) => {
            let found = format!("no store at {}", place.name());
            return vec![Finding::note(DoctorArea::Store, "opens", found, "nothing: `subtend run` creates one")];
        }
        Err(fail) => {
            let advice = "let this user read the directory, or name another with --data DIR";
            return vec![Finding::bad(DoctorArea::Store, "opens", fail.to_string(), advice)];
        }
    }
    for _ in 0..HOSTS {
        match Attached::to(place) {
            Ok(Some(host)) => {
                let pid = host.serving.pid;
                let findings = hosted(host, place);
                if findings.iter().all(|finding| finding.grade != Grade::Bad) || hosts(place, pid) {
                    return findings;
                }
            }
            Ok(None) => break,
            Err(fail) => {
                let advice = "stop that process, or use its version";
                return vec![Finding::bad(DoctorArea::Store, "host", fail.to_string(), advice)];
            }
        }
    }
    match place.try_read() {
        Err(error) => vec![refused(&error)],
        Ok(journal) => opened(&journal, place),
    }
}

/// Returns whether process `pid` still hosts the store: if it ended, failed reads are explained.
fn hosts(place: &StoreLocation, pid: u32) -> bool {
    Attached::to(place).is_ok_and(|host| host.is_some_and(|host| host.serving.pid == pid))
}

fn hosted(host: Attached, place: &StoreLocation) -> Vec<Finding> {
    let found = format!("process {} has the store; it is read through that process", host.serving.pid);
    let mut findings = vec![Finding::good(DoctorArea::Store, "host", found)];
    match host.journal() {
        Ok(journal) => findings.extend(opened(&journal, place)),
        Err(fail) => findings.push(Finding::bad(DoctorArea::Store, "host", fail.to_string(), "call this again")),
    }
    findings
}

fn refused(error: &OpenError) -> Finding {
    let advice = match error {
        OpenError::Held { .. } => {
            let advice = "nothing, if that process is yours; to inspect the store, stop it first";
            return Finding::note(DoctorArea::Store, "opens", error.to_string(), advice);
        }
        OpenError::Missing { .. } => "name the shard of the sessions, or leave it: `subtend run` creates it",
        OpenError::Unreachable { .. } => {
            "check the address, the server, its `pg_hba.conf` and the password (PGPASSWORD)"
        }
        OpenError::Engine(EngineError::Weak { .. }) => {
            "change the setting of the server, or accept it by name in the address"
        }
        OpenError::InUse { pid, .. } => {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            let name = name.map_or_else(|_| String::new(), |name| format!(" ({})", name.trim()));
            let advice = format!("nothing, if process {pid}{name} is yours; to inspect the store, stop it first");
            return Finding::note(DoctorArea::Store, "opens", error.to_string(), advice);
        }
        error if error.is_full() => return Finding::bad(DoctorArea::Store, "opens", error.to_string(), no_room(error)),
        OpenError::Newer { .. } => "install that version: this one cannot read the store",
        OpenError::Behind { .. } => {
            "restore the newest copy; if the tail is lost, open the store once with `subtend recover --accept-loss`"
        }
        OpenError::Watermark { .. } => {
            "run `subtend verify` on a copy of the store; to rewrite the file, `subtend recover --accept-loss`"
        }
        OpenError::Io { .. } => "check the owner and the permissions of that path, and that its disk is mounted",
        OpenError::Engine(_) => {
            "move this directory away, and restore a backup or `subtend import` an export into a new one"
        }
        OpenError::Thread(_) => "raise the limit of threads of this user",
        OpenError::OtherEngine { .. } => "name it with --store as the error says",
        OpenError::BadSpec { .. } => "name a store with --data DIR or --store ENGINE:PATH",
    };
    Finding::bad(DoctorArea::Store, "opens", error.to_string(), advice)
}

fn opened(journal: &Journal, place: &StoreLocation) -> Vec<Finding> {
    let info = journal.info();
    let found = format!(
        "{} at {}, frames of format {}, nothing lost up to lsn {}",
        info.engine,
        place.name(),
        info.format,
        journal.durable()
    );
    let mut findings = vec![Finding::good(DoctorArea::Store, "opens", found), durability(&info.durability)];
    findings.push(rows(journal).unwrap_or_else(|error| unread(&error)));
    findings.push(waits(journal).unwrap_or_else(|error| unread(&error)));
    findings.push(imports(journal).unwrap_or_else(|error| unread(&error)));
    findings.extend(contents(journal).unwrap_or_else(|error| vec![unread(&error)]));
    findings.extend(worktrees(journal, place));
    findings.extend(saved_files(place));
    findings
}

/// Finds worktrees without a session, which nothing removes.
fn worktrees(journal: &Journal, place: &StoreLocation) -> Option<Finding> {
    let worktrees = worktree::of(place).ok()??;
    let entries = match worktrees.list() {
        Ok(list) => match list.damaged.first() {
            Some((session, error)) => {
                let found = format!("the entry of {session} is damaged: {error}");
                let advice = format!("remove {0} and {0}.json", worktrees.path(*session).display());
                return Some(Finding::bad(DoctorArea::Store, "worktrees", found, advice));
            }
            None if list.entries.is_empty() => return None,
            None => list.entries,
        },
        Err(error) => {
            let advice = "let this user read the directory of the worktrees";
            return Some(Finding::bad(DoctorArea::Store, "worktrees", error.to_string(), advice));
        }
    };
    let lives = |id: SessionId| journal.head(id).is_ok_and(|head| head.is_some_and(|head| !head.deleted));
    let left: Vec<String> =
        entries.iter().filter(|entry| !lives(entry.session)).map(|entry| entry.session.to_string()).collect();
    let all = count(entries.len() as u64, "worktree");
    Some(match left.as_slice() {
        [] => Finding::good(DoctorArea::Store, "worktrees", all),
        left => {
            let found = format!("{all}; of no session: {}", left.join(", "));
            Finding::note(DoctorArea::Store, "worktrees", found, "`subtend worktree discard ID` removes one")
        }
    })
}

/// Returns the size of the saved files.
fn saved_files(place: &StoreLocation) -> Option<Finding> {
    let checkpoints = checkpoints::of(place)?;
    let found = checkpoints.sessions().and_then(|sessions| Ok((sessions.len(), checkpoints.bytes()?)));
    match found {
        Ok((0, _)) => None,
        Ok((sessions, bytes)) => {
            let found = format!("{} of {}", size(bytes), count(sessions as u64, "session"));
            Some(Finding::good(DoctorArea::Store, "checkpoints", found))
        }
        Err(error) => {
            let advice = "let this user read the directory of the checkpoints";
            Some(Finding::bad(DoctorArea::Store, "checkpoints", error.to_string(), advice))
        }
    }
}

/// Reports weak settings of a database that its address accepts.
fn durability(text: &str) -> Finding {
    if text.starts_with("weak") {
        let advice = "set them to on, unless the sessions may be lost";
        return Finding::note(DoctorArea::Store, "durability", text, advice);
    }
    Finding::good(DoctorArea::Store, "durability", text)
}

/// Problems that are listed one by one; `subtend verify` lists all.
const LISTED: usize = 20;

fn contents(journal: &Journal) -> Result<Vec<Finding>, ReadError> {
    let mut progress = ProgressLine::new();
    let report =
        journal.verify(&mut |at| progress.report(|| format!("{} frames, {} sessions read", at.frames, at.sessions)))?;
    drop(progress);
    let growth = growth(&report, &journal.heads()?);
    if report.problems.is_empty() {
        let found = format!("{} of {} hold", count(report.records, "record"), count(report.sessions, "session"));
        return Ok(vec![Finding::good(DoctorArea::Store, "contents", found), growth]);
    }
    let advice = "put back a backup; until then the sessions concerned are left alone, and `subtend export --skip-damaged` saves the \
                  trees of all others";
    let bad = |found: String| Finding::bad(DoctorArea::Store, "contents", found, advice);
    let mut findings: Vec<_> = report.problems.iter().take(LISTED).map(|problem| bad(verify::line(problem))).collect();
    findings.push(growth);
    if report.problems.len() > LISTED {
        let more = report.problems.len().saturating_sub(LISTED);
        findings.push(bad(format!("{} more: `subtend verify` lists all", count(more as u64, "problem"))));
    }
    Ok(findings)
}

/// Sessions that are named as the largest.
const LARGEST: usize = 3;
/// A session above this is reported: its runs recorded more than the default limit.
const LARGE: u64 = 64 << 20;

fn growth(report: &Report, heads: &[(SessionId, Head)]) -> Finding {
    let mut sizes: Vec<_> = report.sizes.iter().collect();
    sizes.sort_by_key(|(session, bytes)| (std::cmp::Reverse(**bytes), **session));
    let average = report.bytes.checked_div(sizes.len() as u64).unwrap_or(0);
    let name = |session: &SessionId| {
        let head = heads.iter().find(|(of, _)| of == session).map(|(_, head)| &head.title);
        head.map_or_else(|| session.to_string(), |title| format!("{session} ({})", clip(title, 40)))
    };
    let largest = sizes.iter().take(LARGEST).map(|(session, bytes)| format!("{} in {}", size(**bytes), name(session)));
    let largest = largest.collect::<Vec<_>>().join(", ");
    let sessions = count(sizes.len() as u64, "session");
    let found = format!("{} of {sessions}, {} each on average; largest: {largest}", size(report.bytes), size(average));
    if sizes.is_empty() {
        return Finding::good(DoctorArea::Store, "growth", "nothing is recorded yet");
    }
    if sizes.first().is_some_and(|(_, bytes)| **bytes > LARGE) {
        let advice = "nothing, if they are needed; else `subtend delete ID`, then `subtend compact`";
        return Finding::note(DoctorArea::Store, "growth", found, advice);
    }
    Finding::good(DoctorArea::Store, "growth", found)
}

fn unread(error: &ReadError) -> Finding {
    let advice = "`subtend verify` reports what is wrong; restore a backup if it cannot be read either";
    Finding::bad(DoctorArea::Store, "rows", error.to_string(), advice)
}

fn rows(journal: &Journal) -> Result<Finding, ReadError> {
    let damaged = journal.damaged()?;
    let Some((_, error)) = damaged.first() else {
        let found = format!("those of {} are sound", count(journal.heads()?.len() as u64, "session"));
        return Ok(Finding::good(DoctorArea::Store, "rows", found));
    };
    let found = format!("{} not what was written, such as this: {error}", are(damaged.len()));
    let advice = "`subtend verify` reports all; these sessions are not touched, `subtend export --skip-damaged` saves the trees of all others";
    Ok(Finding::bad(DoctorArea::Store, "rows", found, advice))
}

fn are(rows: usize) -> String {
    if rows == 1 { "1 row is".into() } else { format!("{rows} rows are") }
}

fn imports(journal: &Journal) -> Result<Finding, ReadError> {
    let left = journal.unfinished_import()?;
    let Some(first) = left.first() else {
        return Ok(Finding::good(DoctorArea::Store, "imports", "no import is unfinished"));
    };
    let found = format!("one did not finish and has left {}, such as {first}", count(left.len() as u64, "session"));
    let advice = format!(
        "{UNFINISHED}: to be rid of them, take the store into a new one with `subtend export --out FILE` and \
         `subtend import --data DIR FILE`"
    );
    Ok(Finding::note(DoctorArea::Store, "imports", found, advice))
}

fn waits(journal: &Journal) -> Result<Finding, ReadError> {
    let (runs, owed) = (journal.inflight()?.len() as u64, journal.outbox()?.len() as u64);
    Ok(left_to_do(runs, owed, journal.half_deleted()?.len() as u64))
}

fn left_to_do(runs: u64, owed: u64, deletions: u64) -> Finding {
    if (runs, owed, deletions) == (0, 0, 0) {
        return Finding::good(DoctorArea::Store, "left to do", "nothing: the last process ended in order");
    }
    let mut found = format!("{} in flight, {} not delivered", count(runs, "run"), count(owed, "message"));
    if deletions > 0 {
        found.push_str(&format!(", {} not complete", count(deletions, "deletion")));
    }
    let advice = "nothing: the next process does it; `subtend recover` does it now";
    Finding::note(DoctorArea::Store, "left to do", found, advice)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::{BufReader, Cursor};

    use subtend_journal::ImportBounds;
    use subtend_journal::Options;
    use subtend_journal::faulty::Faulty;
    use subtend_journal::memory::Memory;

    use super::super::Grade;
    use super::*;

    #[test]
    fn a_store_in_use_is_no_fault_and_a_newer_one_is() {
        let in_use = OpenError::InUse { path: "/data/redb".into(), pid: "0".into(), boot: "b".into() };
        let finding = refused(&in_use);
        assert_eq!((finding.grade, finding.found.contains("process 0")), (Grade::Note, true));
        let full = EngineError::Io { what: "open the sled store", source: std::io::ErrorKind::StorageFull.into() };
        let full = refused(&OpenError::Engine(full));
        let advice = full.advice.expect("what to do");
        assert!(advice.contains("make room") && advice.contains("TMPDIR") && !advice.contains("backup"), "{advice}");
        let newer = refused(&OpenError::Newer { found: 9, known: 1 });
        assert_eq!((newer.grade, newer.advice.is_some()), (Grade::Bad, true));
    }

    #[test]
    fn x12_a_deletion_that_a_kill_interrupted_is_left_to_do() {
        let of = |runs, owed, deletions| {
            let finding = left_to_do(runs, owed, deletions);
            (finding.grade, finding.found)
        };
        assert_eq!(of(0, 0, 0), (Grade::Good, "nothing: the last process ended in order".to_owned()));
        let half = "0 runs in flight, 0 messages not delivered, 1 deletion not complete";
        assert_eq!(of(0, 0, 1), (Grade::Note, half.to_owned()));
        assert_eq!(of(2, 1, 0), (Grade::Note, "2 runs in flight, 1 message not delivered".to_owned()));
    }

    #[test]
    fn x12_growth_names_the_largest_sessions() {
        let id = |n: u8| SessionId(format!("0190aaaa-0000-7000-8000-0000000000{n:02}").parse().expect("an id"));
        let of = |sizes: &[(u8, u64)]| {
            let sizes: BTreeMap<_, _> = sizes.iter().map(|(n, bytes)| (id(*n), *bytes)).collect();
            let finding = growth(&Report { bytes: sizes.values().sum(), sizes, ..Report::default() }, &[]);
            (finding.grade, finding.found)
        };
        let small = format!(
            "10.2 kB of 4 sessions, 2.5 kB each on average; largest: 4.0 kB in {}, 3.0 kB in {}, 2.0 kB in {}",
            id(2),
            id(4),
            id(1)
        );
        assert_eq!(of(&[(1, 2_048), (2, 4_096), (3, 1_024), (4, 3_072)]), (Grade::Good, small));
        assert_eq!(of(&[(1, 65 << 20)]).0, Grade::Note);
        assert_eq!(of(&[]), (Grade::Good, "nothing is recorded yet".to_owned()));
    }

    #[tokio::test]
    async fn unfinished_import_is_reported_until_it_is_repeated() {
        const EXPORT: &str = include_str!("../../../journal/fixtures/1/example.jsonl");
        let store = Memory::new();
        let open = |engine| Journal::open(engine, Options::default()).expect("a journal");
        let (engine, faults) = Faulty::new(Box::new(store.clone()));
        faults.fail_write(2);
        let file = || BufReader::new(Cursor::new(EXPORT));
        open(Box::new(engine))
            .import(&mut file(), &ImportBounds::none(), &mut |_| {})
            .await
            .expect_err("it breaks off before its rows");
        let journal = open(Box::new(store));
        let finding = imports(&journal).expect("a finding");
        let advice = finding.advice.expect("what to do");
        assert_eq!((finding.grade, finding.found.contains("has left 1")), (Grade::Note, true), "{}", finding.found);
        assert!(advice.starts_with("repeat it with its own file") && advice.contains("subtend export"), "{advice}");
        journal.import(&mut file(), &ImportBounds::none(), &mut |_| {}).await.expect("the import resumes");
        assert_eq!(imports(&journal).expect("a finding").grade, Grade::Good);
    }
}
