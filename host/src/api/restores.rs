//! Preview of the file changes of a rollback or a branch.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use subtend_actors::RestorePoint;
use subtend_session::ids::{Hash, RunNo, Seq};
use subtend_tools::checkpoint::{FileChange, RestoreConflict, RestorePlan};
use subtend_tools::workspace::FileState;
use utoipa::{IntoParams, ToSchema};

use super::{Path, Query};
use crate::host::Host;
use crate::json::Json;
use crate::problem::Problem;

/// Selects the writes to undo: those of a run, or those after a message. Default: those of the last run.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct RestoreQuery {
    /// Number of the run. Not with `at`.
    run: Option<u32>,
    /// Record of the message.
    at: Option<u64>,
    /// False leaves the patch empty, and does not compare the files.
    #[serde(default = "yes")]
    #[param(default = true)]
    patch: bool,
}

const fn yes() -> bool {
    true
}

/// The files that a rollback or a branch with this digest restores.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FilesRestore {
    digest: String,
    files: Vec<RestoredFile>,
    /// Files that cannot be restored. If there are any, no file is restored.
    conflicts: Vec<FileConflict>,
    /// The changes as a patch of at most 5 MiB. A file that is too long for it has one line with the hashes of its contents.
    patch: String,
}

/// A file that is restored.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RestoredFile {
    path: String,
    /// Base directory of the path.
    root: String,
    /// True if the file is removed because the session created it.
    removed: bool,
    /// Hash of the content that is restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    /// Why the patch does not show the lines of the file, and its sizes and hashes.
    #[serde(skip_serializing_if = "Option::is_none")]
    hidden: Option<String>,
}

/// A file that cannot be restored.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FileConflict {
    path: String,
    why: String,
}

impl From<RestorePlan> for FilesRestore {
    fn from(plan: RestorePlan) -> Self {
        let (digest, patch) = (plan.digest().to_string(), plan.patch());
        let mut patches = plan.patches.into_iter();
        let file = |change: FileChange| RestoredFile {
            root: change.root.display().to_string(),
            path: change.path,
            removed: change.after == FileState::Absent,
            content: match change.after {
                FileState::File { hash, .. } => Some(hash.to_string()),
                FileState::Absent | FileState::Link { .. } | FileState::Other => None,
            },
            hidden: patches.next().and_then(|patch| patch.hidden),
        };
        let files = plan.changes.into_iter().map(file).collect();
        let conflict = |RestoreConflict { path, why }| FileConflict { path, why };
        Self { digest, files, conflicts: plan.conflicts.into_iter().map(conflict).collect(), patch }
    }
}

/// Returns the files that a rollback or a branch would restore.
#[utoipa::path(get, path = "/v1/sessions/{id}/restore", tag = "branches", operation_id = "plan_restore",
    params(("id" = String, Path, description = "The session"), RestoreQuery),
    responses((status = 200, body = FilesRestore), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn get(
    State(host): State<Host>,
    Path(id): Path<String>,
    Query(query): Query<RestoreQuery>,
) -> Result<Json<FilesRestore>, Problem> {
    let point = match (query.run, query.at) {
        (Some(_), Some(_)) => {
            return Err(Problem::invalid("invalid_restore", "`run` and `at` were both given: leave one out"));
        }
        (run, None) => RestorePoint::Run(run.map(RunNo)),
        (None, at) => RestorePoint::Message(at.map(Seq)),
    };
    let plan = host.session(&id).await?.restore_plan(point, query.patch).await?;
    Ok(Json(plan.into()))
}

/// Parses the digest of a request.
///
/// # Errors
/// [`Problem`] `invalid_digest`.
pub(crate) fn parse_digest(text: &str) -> Result<Hash, Problem> {
    text.parse().map_err(|_| {
        let why = format!("`{text}` is not the digest of a restore: GET /v1/sessions/ID/restore returns it");
        Problem::invalid("invalid_digest", why)
    })
}
