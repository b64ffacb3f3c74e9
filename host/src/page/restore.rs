//! The view that restores a session and its files to a message, or to the state before a run.

use askama::Template;
use axum::extract::State;
use axum::response::Html;
use serde::Deserialize;
use subtend_actors::{ControlError, RestorePoint};
use subtend_session::ids::{Hash, RunNo, Seq, SessionId};
use subtend_tools::checkpoint::{RestoreConflict, RestorePlan};
use subtend_tools::escape::exact;

use super::diff::{self, ShownPatch};
use super::extract::{PathPart, Query};
use super::{PageFrame, Refusal, html, words};
use crate::host::Host;
use crate::problem::Problem;

/// The run whose writes are undone, or the message whose files are restored.
#[derive(Debug, Deserialize)]
pub(super) struct RestoreTarget {
    run: Option<u32>,
    at: Option<u64>,
}

#[derive(Template)]
#[template(path = "restore.html")]
struct RestorePage {
    frame: PageFrame,
    id: SessionId,
    at: Option<u64>,
    run: u32,
    /// The reason if files cannot be restored.
    why_unreadable: Option<String>,
    files: Option<ShownRestore>,
}

struct ShownRestore {
    count: usize,
    files: String,
    conflicts: Vec<RestoreConflict>,
    patch: ShownPatch,
    digest: Hash,
}

impl ShownRestore {
    fn of(plan: RestorePlan) -> Self {
        let conflict = |of: RestoreConflict| RestoreConflict { path: exact(&of.path), why: exact(&of.why) };
        Self {
            count: plan.changes.len(),
            files: words::count(plan.changes.len() as u64, "file"),
            digest: plan.digest(),
            patch: diff::of_patches(&plan.patches),
            conflicts: plan.conflicts.into_iter().map(conflict).collect(),
        }
    }
}

pub(super) async fn page(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    Query(target): Query<RestoreTarget>,
) -> Result<Html<String>, Refusal> {
    let handle = host.session(&id).await?;
    let (point, title) = match (target.run, target.at) {
        (Some(run), None) => (RestorePoint::Run(Some(RunNo(run))), format!("Back to before run {run}")),
        (None, Some(at)) => (RestorePoint::Message(Some(Seq(at))), format!("Back to message {at}")),
        _ => return Err(Problem::malformed("restore: name either a `run` or a message by `at`").into()),
    };
    let (files, why_unreadable) = match handle.restore_plan(point, true).await {
        Ok(plan) => (Some(ShownRestore::of(plan)), None),
        // The page shows the reason: the conversation can be rolled back without the files.
        Err(ControlError::Refused(why)) => (None, Some(why)),
        Err(error) => return Err(error.into()),
    };
    let frame = PageFrame::of_view(&host, handle.id(), &title, "restore").await;
    html(&RestorePage { frame, id: handle.id(), at: target.at, run: target.run.unwrap_or(0), why_unreadable, files })
}
