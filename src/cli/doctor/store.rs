//! Checks that the store opens and that its rows are sound.

use subtend_journal::verify::UNFINISHED;
use subtend_journal::{EngineError, Journal, OpenError, ReadError, Report};
use subtend_session::ids::SessionId;
use subtend_session::index::Head;

use super::super::client::Attached;
use super::super::data::{StoreLocation, no_space_error};
use super::super::fail::Fail;
use super::super::paint::{clip, count, size};
use super::super::progress::ProgressLine;
use super::super::{checkpoints, verify, worktrees};
use super::{DoctorArea, Finding, Severity};

const UNREACHABLE_ADVICE: &str = "check the address, the server, its `pg_hba.conf` and the password (PGPASSWORD)";

/// Number of hosts that are tried in turn before this process opens the store itself.
const MAX_HOSTS: u32 = 3;

pub(super) fn check(place: &StoreLocation) -> Vec<Finding> {
    if place.is_in_memory() {
        let advice = "to keep sessions, name a directory with --data DIR";
        return vec![Finding::note(
            DoctorArea::Store,
            "opens",
            "the store is in memory, and lost when the process ends",
            advice,
        )];
    }
    match place.path().map_or(Ok(true), |_| place.exists()) {
        // The opening below says why a database cannot be used.
        Ok(true) => {}
        Ok(false) => {
            let found = format!("no store at {}", place.name());
            return vec![Finding::note(DoctorArea::Store, "opens", found, "nothing: `subtend run` creates one")];
        }
        Err(fail) => {
            let advice = if matches!(fail, Fail::Unavailable(_)) {
                UNREACHABLE_ADVICE
            } else {
                "let this user read the directory, or name another with --data DIR"
            };
            return vec![Finding::bad(DoctorArea::Store, "opens", fail.to_string(), advice)];
        }
    }
    for _ in 0..MAX_HOSTS {
        match Attached::to(place) {
            Ok(Some(host)) => {
                let pid = host.serving.pid;
                let findings = hosted_findings(host, place);
                if findings.iter().all(|finding| finding.grade != Severity::Bad) || is_host(place, pid) {
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
        Err(error) => vec![refused_finding(&error)],
        Ok(journal) => opened_findings(&journal, place),
    }
}

/// Returns whether process `pid` still hosts the store. If it does not, failed reads are not findings.
fn is_host(place: &StoreLocation, pid: u32) -> bool {
    Attached::to(place).is_ok_and(|host| host.is_some_and(|host| host.serving.pid == pid))
}

fn hosted_findings(host: Attached, place: &StoreLocation) -> Vec<Finding> {
    let found = format!("process {} hosts the store; it is read through that process", host.serving.pid);
    let mut findings = vec![Finding::good(DoctorArea::Store, "host", found)];
    match host.journal() {
        Ok(journal) => findings.extend(opened_findings(&journal, place)),
        Err(fail) => findings.push(Finding::bad(DoctorArea::Store, "host", fail.to_string(), "run the command again")),
    }
    findings
}

fn refused_finding(error: &OpenError) -> Finding {
    let advice = match error {
        OpenError::ClaimedElsewhere { .. } => {
            let advice = "nothing, if that process is yours; to inspect the store, stop it first";
            return Finding::note(DoctorArea::Store, "opens", error.to_string(), advice);
        }
        OpenError::Missing { .. } => {
            let advice = "nothing, or name another shard: `subtend run` creates this one, and nodes (`serve --node`) have others";
            return Finding::note(DoctorArea::Store, "opens", error.to_string(), advice);
        }
        OpenError::Unreachable { .. } => UNREACHABLE_ADVICE,
        OpenError::Engine(EngineError::Weak { .. }) => {
            "change the setting of the server, or accept it by name in the address"
        }
        OpenError::InUse { pid, .. } => {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            let name = name.map_or_else(|_| String::new(), |name| format!(" ({})", name.trim()));
            let advice = format!("nothing, if process {pid}{name} is yours; to inspect the store, stop it first");
            return Finding::note(DoctorArea::Store, "opens", error.to_string(), advice);
        }
        error if error.is_full() => {
            return Finding::bad(DoctorArea::Store, "opens", error.to_string(), no_space_error(error));
        }
        OpenError::Newer { .. } => "install that version: this one cannot read the store",
        OpenError::Behind { .. } => {
            "restore the newest copy; if the tail is lost, open the store once with `subtend recover --accept-loss`"
        }
        OpenError::Watermark { .. } => {
            "run `subtend verify` on a copy of the store; to rewrite the file, `subtend recover --accept-loss`"
        }
        OpenError::Irregular { .. } => "find out what made that entry before you open the store",
        OpenError::Io { .. } => "check the owner and the permissions of that path, and that its disk is mounted",
        OpenError::Engine(_) => {
            "move this directory away, and restore a backup or `subtend import` an export into a new one"
        }
        OpenError::Thread(_) => "raise this user's limit of threads",
        OpenError::OtherEngine { .. } => "name it with --store as the error says",
        OpenError::BadSpec { .. } => "name a store with --data DIR or --store ENGINE:PATH",
    };
    Finding::bad(DoctorArea::Store, "opens", error.to_string(), advice)
}

fn opened_findings(journal: &Journal, place: &StoreLocation) -> Vec<Finding> {
    let info = journal.info();
    let found =
        format!("{} at {}, format {}, durable up to LSN {}", info.engine, place.name(), info.format, journal.durable());
    let mut findings = vec![Finding::good(DoctorArea::Store, "opens", found), durability(&info.durability)];
    findings.push(rows(journal).unwrap_or_else(|error| unreadable(&error)));
    findings.push(unfinished_work(journal).unwrap_or_else(|error| unreadable(&error)));
    findings.push(imports(journal).unwrap_or_else(|error| unreadable(&error)));
    findings.extend(contents(journal).unwrap_or_else(|error| vec![unreadable(&error)]));
    findings.extend(worktrees(journal, place));
    findings.extend(saved_files(place));
    findings
}

/// Reports worktrees, and names those whose session is missing, because they are not removed automatically.
fn worktrees(journal: &Journal, place: &StoreLocation) -> Option<Finding> {
    let worktrees = worktrees::for_store(place).ok()??;
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
    let is_live = |id: SessionId| journal.head(id).is_ok_and(|head| head.is_some_and(|head| !head.deleted));
    let orphans: Vec<String> =
        entries.iter().filter(|entry| !is_live(entry.session)).map(|entry| entry.session.to_string()).collect();
    let all = count(entries.len() as u64, "worktree");
    Some(match orphans.as_slice() {
        [] => Finding::good(DoctorArea::Store, "worktrees", all),
        orphans => {
            let found = format!("{all}; without a session: {}", orphans.join(", "));
            Finding::note(DoctorArea::Store, "worktrees", found, "`subtend worktree discard ID` removes one")
        }
    })
}

/// Reports the size of checkpoints.
fn saved_files(place: &StoreLocation) -> Option<Finding> {
    let checkpoints = checkpoints::for_store(place)?;
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
    if text.starts_with("weak, and not accepted") {
        let advice = "set them to on, or accept them by name in the address (`accept_weak=NAME`); until then the store is refused";
        return Finding::bad(DoctorArea::Store, "durability", text, advice);
    }
    if text.starts_with("weak") {
        let advice = "set them to on, unless the sessions may be lost";
        return Finding::note(DoctorArea::Store, "durability", text, advice);
    }
    Finding::good(DoctorArea::Store, "durability", text)
}

/// Maximum number of problems listed; `subtend verify` lists all.
const MAX_LISTED: usize = 20;

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
    let advice = "restore a backup; until then, commands do not change the damaged sessions, and `subtend export --skip-damaged` saves all \
    other trees";
    let bad = |found: String| Finding::bad(DoctorArea::Store, "contents", found, advice);
    let mut findings: Vec<_> =
        report.problems.iter().take(MAX_LISTED).map(|problem| bad(verify::line(problem))).collect();
    findings.push(growth);
    if report.problems.len() > MAX_LISTED {
        let more = report.problems.len().saturating_sub(MAX_LISTED);
        findings.push(bad(format!("{} more: `subtend verify` lists all", count(more as u64, "problem"))));
    }
    Ok(findings)
}

/// Number of largest sessions named.
const LARGEST: usize = 3;
/// Size in bytes above which a session is reported: the default limit of recorded bytes.
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

fn unreadable(error: &ReadError) -> Finding {
    let advice = "`subtend verify` reports what is wrong; restore a backup if it cannot be read either";
    Finding::bad(DoctorArea::Store, "rows", error.to_string(), advice)
}

fn rows(journal: &Journal) -> Result<Finding, ReadError> {
    let damaged = journal.damaged_rows()?;
    let Some((_, error)) = damaged.first() else {
        let found = format!("the rows of {} are sound", count(journal.heads()?.len() as u64, "session"));
        return Ok(Finding::good(DoctorArea::Store, "rows", found));
    };
    let found = format!("{} damaged; the first one: {error}", count_rows(damaged.len()));
    let advice = "`subtend verify` reports all; commands do not change these sessions, and `subtend export --skip-damaged` saves all other trees";
    Ok(Finding::bad(DoctorArea::Store, "rows", found, advice))
}

fn count_rows(rows: usize) -> String {
    if rows == 1 { "1 row is".into() } else { format!("{rows} rows are") }
}

fn imports(journal: &Journal) -> Result<Finding, ReadError> {
    let orphans = journal.unfinished_import()?;
    let Some(first) = orphans.first() else {
        return Ok(Finding::good(DoctorArea::Store, "imports", "no import is unfinished"));
    };
    let found =
        format!("an import did not finish and left {}, such as {first}", count(orphans.len() as u64, "session"));
    let advice = format!(
        "{UNFINISHED}: to remove its sessions, copy the store into a new one with `subtend export --out FILE` and \
         `subtend import --data DIR FILE`"
    );
    Ok(Finding::note(DoctorArea::Store, "imports", found, advice))
}

fn unfinished_work(journal: &Journal) -> Result<Finding, ReadError> {
    let (runs, owed) = (journal.inflight()?.len() as u64, journal.outbox()?.len() as u64);
    Ok(unfinished_finding(runs, owed, journal.unfinished_deletions()?.len() as u64))
}

fn unfinished_finding(runs: u64, owed: u64, deletions: u64) -> Finding {
    if (runs, owed, deletions) == (0, 0, 0) {
        return Finding::good(DoctorArea::Store, "left to do", "none: the last process shut down in order");
    }
    let mut found = format!("{} in flight, {} not delivered", count(runs, "run"), count(owed, "message"));
    if deletions > 0 {
        found.push_str(&format!(", {} not complete", count(deletions, "deletion")));
    }
    let advice =
        "nothing: the next process completes it. `subtend recover` completes it now, if no process hosts the store";
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

    use super::super::Severity;
    use super::*;

    #[test]
    fn store_in_use_is_a_note_but_newer_store_is_a_fault() {
        let in_use = OpenError::InUse { path: "/data/redb".into(), pid: "0".into(), boot: "b".into() };
        let finding = refused_finding(&in_use);
        assert_eq!((finding.grade, finding.found.contains("process 0")), (Severity::Note, true));
        let full = EngineError::Io { what: "open the sled store", source: std::io::ErrorKind::StorageFull.into() };
        let full = refused_finding(&OpenError::Engine(full));
        let advice = full.advice.expect("what to do");
        assert!(
            advice.contains("Free some space") && advice.contains("TMPDIR") && !advice.contains("backup"),
            "{advice}"
        );
        let newer = refused_finding(&OpenError::Newer { found: 9, known: 1 });
        assert_eq!((newer.grade, newer.advice.is_some()), (Severity::Bad, true));
    }

    #[test]
    fn x12_weak_settings_that_are_accepted_are_a_note() {
        let of = |text| {
            let finding = durability(text);
            (finding.grade, finding.found, finding.advice.is_some())
        };
        let weak = "weak, as accepted: fsync is off: a crash of the server's machine may damage the store";
        assert_eq!(of(weak), (Severity::Note, weak.to_owned(), true));
        let refused = "weak, and not accepted: fsync is off: a crash of the server's machine may damage the store";
        assert_eq!(of(refused), (Severity::Bad, refused.to_owned(), true));
        assert_eq!(of("commit of PostgreSQL"), (Severity::Good, "commit of PostgreSQL".to_owned(), false));
    }

    #[test]
    fn x12_interrupted_deletion_is_reported_as_unfinished() {
        let of = |runs, owed, deletions| {
            let finding = unfinished_finding(runs, owed, deletions);
            (finding.grade, finding.found)
        };
        assert_eq!(of(0, 0, 0), (Severity::Good, "none: the last process shut down in order".to_owned()));
        let half = "0 runs in flight, 0 messages not delivered, 1 deletion not complete";
        assert_eq!(of(0, 0, 1), (Severity::Note, half.to_owned()));
        assert_eq!(of(2, 1, 0), (Severity::Note, "2 runs in flight, 1 message not delivered".to_owned()));
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
        assert_eq!(of(&[(1, 2_048), (2, 4_096), (3, 1_024), (4, 3_072)]), (Severity::Good, small));
        assert_eq!(of(&[(1, 65 << 20)]).0, Severity::Note);
        assert_eq!(of(&[]), (Severity::Good, "nothing is recorded yet".to_owned()));
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
            .expect_err("the import did not fail before its rows");
        let journal = open(Box::new(store));
        let finding = imports(&journal).expect("a finding");
        let advice = finding.advice.expect("what to do");
        assert_eq!(
            (finding.grade, finding.found.contains("and left 11 sessions")),
            (Severity::Note, true),
            "{}",
            finding.found
        );
        assert!(advice.starts_with("repeat it with its own file") && advice.contains("subtend export"), "{advice}");
        journal.import(&mut file(), &ImportBounds::none(), &mut |_| {}).await.expect("the import resumes");
        assert_eq!(imports(&journal).expect("a finding").grade, Severity::Good);
    }
}
