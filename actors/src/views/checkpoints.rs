//! Comparison of a session's checkpoints with its journal: the changes of a restore, and writes without a result.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use subtend_journal::{Journal, ReadError};
use subtend_session::call::CallEnd;
use subtend_session::ids::{CallId, RunKey, RunNo, Seq, SessionId};
use subtend_session::outcome::Outcome;
use subtend_session::place::Owner;
use subtend_session::record::Record;
use subtend_tools::checkpoint::{Checkpoint, CheckpointError, Checkpoints, ExaminedFile, Patches, RestorePlan};

use crate::values::error::ControlError;
use crate::values::owned_runs::runs_below;
use crate::views::history::each;

/// The extent of a restore: writes of a session and of the runs that it owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestorePoint {
    /// Writes of a run that did not complete; by default the last run.
    Run(Option<RunNo>),
    /// Writes whose results come after a message; by default the last record.
    Message(Option<Seq>),
}

/// A write whose result is missing in the journal, for example after a crash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnrecordedWrite {
    pub session: SessionId,
    pub run: RunNo,
    pub call: CallId,
    #[serde(flatten)]
    pub file: ExaminedFile,
}

/// Runs and calls of a session, read from its journal.
#[derive(Default)]
struct KnownCalls {
    /// The session whose worktree this one works in.
    worktree: Option<SessionId>,
    runs: BTreeMap<RunNo, Owner>,
    completed: BTreeSet<RunNo>,
    results: BTreeMap<(RunNo, CallId), (Seq, CallEnd)>,
    /// The record at which each call opened an owned run.
    opened: BTreeMap<(RunNo, CallId), Seq>,
}

impl KnownCalls {
    fn of(journal: &Journal, session: SessionId) -> Result<Self, ReadError> {
        let mut calls = Self::default();
        let mut run = RunNo(0);
        #[expect(clippy::wildcard_enum_match_arm, reason = "other records do not concern runs and calls")]
        each(journal, session, |stored| match &stored.record {
            Record::SessionCreated(created) => calls.worktree = created.worktree.map(|worktree| worktree.of),
            Record::RunOpened(opened) => _ = calls.runs.insert(opened.run, opened.owner.clone()),
            Record::TurnAnswered(answered) => run = answered.run,
            Record::CallFinished(finished) => {
                calls.results.insert((run, finished.call), (stored.seq, finished.end.clone()));
            }
            Record::ChildSpawned(spawned) => _ = calls.opened.insert((run, spawned.call), stored.seq),
            Record::ContinueAsked(request) => _ = calls.opened.insert((run, request.call), stored.seq),
            Record::RunEnded(ended) if ended.outcome == Outcome::Completed => _ = calls.completed.insert(ended.run),
            _ => {}
        })?;
        Ok(calls)
    }
}

/// Returns the file changes of a restore to `point`, with their patch if `patches` formats it, and the run that it belongs to. Blocks.
/// # Errors
/// [`ControlError::Working`] if a session whose files would be restored has a run in flight.
pub(crate) fn restore_plan(
    journal: &Journal,
    checkpoints: &Checkpoints,
    (session, point): (SessionId, RestorePoint),
    patches: Option<Patches>,
) -> Result<(RunNo, RestorePlan), ControlError> {
    let tree = below(journal, session).map_err(|error| unreadable(&error))?;
    let (mut all, mut known) = (Vec::new(), BTreeMap::new());
    for id in &tree {
        all.extend(checkpoints.of_session(*id).map_err(|error| unreadable(&error))?);
        known.insert(*id, KnownCalls::of(journal, *id).map_err(|error| unreadable(&error))?);
    }
    all.sort_by_key(|checkpoint| checkpoint.number);
    let last = known.get(&session).and_then(|calls| calls.runs.keys().next_back().copied()).unwrap_or(RunNo(0));
    let run = match point {
        RestorePoint::Run(run) => run.unwrap_or(last),
        RestorePoint::Message(_) => last,
    };
    let is_taken = is_undone(session, &known, point, run);
    let of: BTreeMap<u64, SessionId> =
        all.iter().filter(|at| is_taken(at)).map(|checkpoint| (checkpoint.number, checkpoint.session)).collect();
    let sessions: BTreeSet<SessionId> = of.values().copied().collect();
    for id in sessions {
        if let Some(at) = journal.inflight_of(id).map_err(|error| unreadable(&error))? {
            return Err(ControlError::Working(format!(
                "cannot restore files: run {} of session {} is in flight. Wait for its end, or cancel it",
                at.run,
                id.short().0
            )));
        }
    }
    Ok((run, checkpoints.plan(&all, &of.into_keys().collect(), patches)))
}

fn is_undone(
    session: SessionId,
    known: &BTreeMap<SessionId, KnownCalls>,
    point: RestorePoint,
    run: RunNo,
) -> impl Fn(&Checkpoint) -> bool {
    let own = known.get(&session);
    let completed = own.is_some_and(|calls| calls.completed.contains(&run));
    let after = |at: Option<Seq>, seq: Option<Seq>| match (at, seq) {
        (Some(at), Some(seq)) => seq > at,
        (None, Some(_)) => false,
        (_, None) => true,
    };
    let own_call = move |of: RunNo, call: CallId| match point {
        RestorePoint::Run(_) => !completed && of == run,
        RestorePoint::Message(at) => {
            after(at, own.and_then(|calls| calls.results.get(&(of, call))).map(|(seq, _)| *seq))
        }
    };
    let opened_run = move |of: RunNo, call: CallId| match point {
        RestorePoint::Run(_) => !completed && of == run,
        RestorePoint::Message(at) => after(at, own.and_then(|calls| calls.opened.get(&(of, call))).copied()),
    };
    let below = known.iter().filter(|(id, _)| **id != session);
    let owners =
        below.flat_map(|(id, calls)| calls.runs.iter().map(|(of, owner)| (RunKey { session: *id, run: *of }, owner)));
    let owners = owners.filter_map(|(run, owner)| {
        let Owner::Run { session: owner, run: above, call } = owner else { return None };
        let counts = *owner != session || opened_run(*above, *call);
        counts.then_some((run, RunKey { session: *owner, run: *above }))
    });
    let runs = runs_below(owners, |owner| owner.session == session);
    move |checkpoint| {
        let Some(call) = checkpoint.call else { return false };
        if checkpoint.session == session {
            own_call(checkpoint.run, call)
        } else {
            // Another worktree is merged or discarded as a whole.
            let worktree = known.get(&checkpoint.session).map(|calls| calls.worktree);
            worktree == own.map(|calls| calls.worktree)
                && runs.contains(&RunKey { session: checkpoint.session, run: checkpoint.run })
        }
    }
}

/// Returns the runs of a session that are rolled back.
/// # Errors
/// If its records cannot be read.
pub fn rolled_back(journal: &Journal, session: SessionId) -> Result<BTreeSet<RunNo>, ReadError> {
    let mut runs = BTreeSet::new();
    each(journal, session, |stored| {
        if let Record::RolledBack { run, .. } = stored.record {
            runs.insert(run);
        }
    })?;
    Ok(runs)
}

/// Returns a session and all readable sessions below it.
pub(crate) fn below(journal: &Journal, session: SessionId) -> Result<Vec<SessionId>, ReadError> {
    let (mut all, mut next) = (BTreeSet::new(), vec![session]);
    while let Some(id) = next.pop() {
        let lives = journal.head(id)?.is_some_and(|head| !head.deleted);
        if lives && all.insert(id) {
            next.extend(journal.children(id)?);
        }
    }
    Ok(all.into_iter().collect())
}

/// Returns the writes of a session whose results are missing in the journal. With `open`, includes those of calls without any result.
/// `patches` bounds what is shown of all of them. Blocks.
/// # Errors
/// The error of reading the journal or a checkpoint.
pub fn unrecorded(
    journal: &Journal,
    checkpoints: &Checkpoints,
    of: (SessionId, bool),
    patches: &mut Patches,
) -> Result<Vec<UnrecordedWrite>, ControlError> {
    let mut found = Vec::new();
    for (call, checkpoint) in unrecorded_checkpoints(journal, checkpoints, of)? {
        let files = checkpoints.examine(&checkpoint, patches).into_iter();
        found.extend(files.map(|file| UnrecordedWrite { session: of.0, run: checkpoint.run, call, file }));
    }
    Ok(found)
}

/// Returns the checkpoints of the writes that [`unrecorded`] returns, with their calls. Blocks.
pub(crate) fn unrecorded_checkpoints(
    journal: &Journal,
    checkpoints: &Checkpoints,
    (session, open): (SessionId, bool),
) -> Result<Vec<(CallId, Checkpoint)>, ControlError> {
    let saved = checkpoints.of_session(session).map_err(|error| unreadable(&error))?;
    if saved.is_empty() {
        return Ok(Vec::new());
    }
    let calls = KnownCalls::of(journal, session).map_err(|error| unreadable(&error))?;
    let mut found = Vec::new();
    for checkpoint in saved {
        let Some(call) = checkpoint.call else { continue };
        let unknown = match calls.results.get(&(checkpoint.run, call)).map(|(_, end)| end) {
            None => open,
            Some(CallEnd::Ok | CallEnd::ToolError { .. } | CallEnd::Denied | CallEnd::Backgrounded) => false,
            Some(CallEnd::TimedOut | CallEnd::Interrupted | CallEnd::Cancelled | CallEnd::UnknownEffects) => true,
        };
        if unknown {
            found.push((call, checkpoint));
        }
    }
    Ok(found)
}

pub(crate) fn unreadable(error: &dyn std::fmt::Display) -> ControlError {
    ControlError::Refused(format!("the checkpoints cannot be used: {error}"))
}

/// Converts the failure of a restore for the caller.
pub(crate) fn unrestored(error: &CheckpointError) -> ControlError {
    ControlError::Refused(error.to_string())
}
