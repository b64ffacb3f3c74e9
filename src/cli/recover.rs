use std::io::Write as _;
use std::time::Duration;

use serde::Serialize;
use subtend_actors::{BootFailure, BootReport, UnrecordedWrite};
use subtend_session::ids::SessionId;
use subtend_tools::worktree::{Merged, Stage};

use super::checkpoints;
use super::client;
use super::control;
use super::data::{StoreArgs, StoreLocation};
use super::fail::{Code, Fail};
use super::paint::{BAD, GOOD, Styled, clip, count, format_duration};
use super::{work, worktrees};
use crate::cli::json;

/// Recovers the store: ends or keeps the runs that an earlier process left in flight, and delivers pending notices. The
/// exit code is 3 if a part cannot be recovered.
///
/// Every command that changes sessions does this when it opens the store. This one does nothing else, and prints a
/// report. It does not run agents. Runs that resume after a restart wait for the next process that runs agents.
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
    swept: usize,
    /// Queued runs; they stay queued.
    waiting: usize,
    /// Runs that resume with the next process that runs agents.
    #[serde(rename = "goes_on")]
    resumes: usize,
    /// Queued inputs of sessions whose run has ended.
    inputs: usize,
    notices: usize,
    /// Files restored by completing interrupted restores.
    #[serde(skip_serializing_if = "is_zero")]
    restored: usize,
    /// Interrupted merges of worktrees that were completed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    merged: Vec<MergedWorktree>,
    /// Sessions whose worktrees were not completed when a process ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    incomplete: Vec<SessionId>,
    /// Writes of runs in flight whose results are not recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unrecorded: Vec<UnrecordedWrite>,
    #[serde(rename = "undone")]
    failures: Vec<BootFailure>,
    took_ms: u64,
}

#[derive(Debug, Serialize)]
struct MergedWorktree {
    session: SessionId,
    #[serde(flatten)]
    merged: Merged,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    let place = args.store.place()?;
    if !place.exists()? {
        return Err(place.missing_store());
    }
    if let Some(host) = client::Attached::to(&place)? {
        return Err(Fail::Store(format!(
            "the store is hosted by process {}, which recovered it when it started: nothing is left to do. `subtend sessions` lists \
             what runs",
            host.serving.pid
        )));
    }
    let journal = client::open_exclusive(&place)?;
    let runtime = work::async_runtime()?;
    let recovered = runtime.block_on(async {
        let host = control::begin(journal, &place).await?;
        let mut recovered = summarize(host.runtime().boot());
        control::end(host).await;
        // Read after the end, because a resumed run may have been creating its worktree.
        recovered.incomplete = incomplete_worktrees(&place)?;
        Ok::<_, Fail>(recovered)
    })?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    let mut out = anstream::stdout().lock();
    if args.json {
        json::write_line(&mut out, &recovered)?;
    } else {
        writeln!(out, "{}", text(&recovered))?;
    }
    Ok(if recovered.failures.is_empty() { Code::Done } else { Code::Store })
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn summarize(boot: &BootReport) -> Recovered {
    let BootReport {
        swept,
        waiting,
        resumed,
        dormant,
        inputs,
        notices,
        restored,
        merged,
        unrecorded,
        failures,
        took_ms,
    } = boot.clone();
    Recovered {
        swept,
        waiting,
        resumes: resumed.saturating_add(dormant),
        inputs,
        notices,
        restored,
        merged: merged.into_iter().map(|(session, merged)| MergedWorktree { session, merged }).collect(),
        incomplete: Vec::new(),
        unrecorded,
        failures,
        took_ms,
    }
}

/// Returns the sessions whose worktrees lack files. An unreadable directory of worktrees is a failure of the recovery.
fn incomplete_worktrees(place: &StoreLocation) -> Result<Vec<SessionId>, Fail> {
    let list = worktrees::for_store(place)?.and_then(|worktrees| worktrees.list().ok()).unwrap_or_default();
    let incomplete = list.entries.into_iter().filter(|entry| entry.stage == Stage::Making);
    Ok(incomplete.map(|entry| entry.session).collect())
}

fn text(recovered: &Recovered) -> String {
    let Recovered {
        swept,
        waiting,
        resumes,
        inputs,
        notices,
        restored,
        merged,
        incomplete,
        unrecorded,
        failures,
        took_ms,
    } = recovered;
    let mut parts = vec![
        format!("{} ended as lost", count(*swept as u64, "run")),
        format!("{} delivered", count(*notices as u64, "notice")),
    ];
    if *waiting > 0 {
        parts.push(format!("{} waiting for a slot", count(*waiting as u64, "run")));
    }
    if *resumes > 0 {
        parts.push(format!("{} to resume", count(*resumes as u64, "run")));
    }
    if *inputs > 0 {
        parts.push(format!("{} queued in sessions whose runs ended", count(*inputs as u64, "input")));
    }
    if *restored > 0 {
        parts.push(format!("{} of an interrupted restore completed", count(*restored as u64, "file")));
    }
    if !failures.is_empty() {
        parts.push(format!("{} not recovered", count(failures.len() as u64, "problem")));
    }
    let mark = if failures.is_empty() { Styled(GOOD, "✓") } else { Styled(BAD, "✗") };
    let took = format_duration(Duration::from_millis(*took_ms));
    let mut lines = vec![format!("{mark} recovered in {took}: {}", parts.join(", "))];
    if *swept > 0 {
        lines.push("  lost runs: `subtend sessions` lists them, `subtend continue ID` continues one".into());
    }
    if *resumes > 0 || *waiting > 0 {
        lines.push(
            "  runs that resume or wait: the next command that runs agents continues them, such as `subtend serve`"
                .into(),
        );
    }
    if *inputs > 0 {
        lines.push("  queued inputs: `subtend queue ID` lists and removes those of a session".into());
    }
    lines.extend(merged.iter().map(|one| format!("  {}", worktrees::describe_finished(one.session, &one.merged))));
    lines.extend(incomplete.iter().map(|session| {
        let name = session.short().0;
        format!(
            "  the worktree of session {name} is incomplete, since a process ended while it was made: `subtend continue {name}` completes \
             it, `subtend worktree discard {name}` removes it"
        )
    }));
    lines.extend(checkpoints::describe_unrecorded(unrecorded));
    lines.extend(failures.iter().map(|one| {
        let subject = one.session.map_or_else(|| "store".to_owned(), |session| format!("session {session}"));
        format!("  {subject}: {}", clip(&one.why, 1_000))
    }));
    if !failures.is_empty() {
        lines.push(
            "  what is not recovered is unchanged, and all other sessions work: `subtend verify` locates the damage; restore a copy of the \
             store, or `subtend delete ID`"
                .into(),
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
    fn recovery_prints_one_summary_line_and_failures() {
        let mut recovered = Recovered {
            swept: 3,
            waiting: 0,
            resumes: 0,
            inputs: 0,
            notices: 1,
            restored: 0,
            merged: vec![],
            incomplete: vec![],
            unrecorded: vec![],
            failures: vec![],
            took_ms: 420,
        };
        let lost = "  lost runs: `subtend sessions` lists them, `subtend continue ID` continues one";
        let summary = "✓ recovered in 0.4s: 3 runs ended as lost, 1 notice delivered";
        assert_eq!(plain(&recovered), format!("{summary}\n{lost}"));
        (recovered.waiting, recovered.resumes, recovered.inputs) = (2, 1, 1);
        let left = Merged { files: vec!["a".into()], left: vec!["b".into()], already_merged: false };
        let session = "01920000-0000-7000-8000-0000000000aa".parse().unwrap();
        recovered.merged.push(MergedWorktree { session, merged: left });
        recovered.incomplete.push(session);
        recovered.failures.push(BootFailure { session: None, why: "a row is damaged".into() });
        let expected = "\
✗ recovered in 0.4s: 3 runs ended as lost, 1 notice delivered, 2 runs waiting for a slot, 1 run to resume, 1 input queued \
in sessions whose runs ended, 1 problem not recovered
  lost runs: `subtend sessions` lists them, `subtend continue ID` continues one
  runs that resume or wait: the next command that runs agents continues them, such as `subtend serve`
  queued inputs: `subtend queue ID` lists and removes those of a session
  an interrupted merge of the worktree of session 0000aa was completed: merged 1 file; not merged, since they were changed \
meanwhile: b
  the worktree of session 0000aa is incomplete, since a process ended while it was made: `subtend continue 0000aa` completes \
it, `subtend worktree discard 0000aa` removes it
  store: a row is damaged
  what is not recovered is unchanged, and all other sessions work: `subtend verify` locates the damage; restore a copy of the \
store, or `subtend delete ID`";
        assert_eq!(plain(&recovered), expected);
    }
}
