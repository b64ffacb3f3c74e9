use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use subtend_actors::{KeptBranch, SessionWorktree, TreeWorktrees};
use subtend_session::ids::SessionId;
use subtend_tools::worktree::{ChangedFile, Merged, Stage, WorktreeChanges};
use utoipa::ToSchema;

use super::{Body, NoKey, NoParameters, Path, names};
use crate::host::Host;
use crate::json::{Json, JsonText};
use crate::problem::Problem;

/// A worktree of a session.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WorktreeInfo {
    #[schema(value_type = String, format = Uuid)]
    session: SessionId,
    /// `making`, `ready`, `discarding` or `keeping`. In all states but `ready`, an operation is in progress or was
    /// interrupted.
    #[schema(value_type = String)]
    stage: Stage,
    branch: String,
    /// Base commit of its changes.
    base: String,
    /// Directory of the worktree.
    path: String,
    /// Directory into which its changes are merged.
    target: String,
    /// The session whose run in flight uses the worktree. Meanwhile the worktree cannot be merged, kept or discarded.
    #[schema(value_type = Option<String>, format = Uuid)]
    busy: Option<SessionId>,
}

impl From<SessionWorktree> for WorktreeInfo {
    fn from(SessionWorktree { entry, path, busy }: SessionWorktree) -> Self {
        Self {
            session: entry.session,
            stage: entry.stage,
            branch: entry.branch,
            base: entry.base,
            path: path.display().to_string(),
            target: entry.target.display().to_string(),
            busy: busy.map(|(session, _)| session),
        }
    }
}

/// The worktrees of a tree.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WorktreeListing {
    worktrees: Vec<WorktreeInfo>,
    damaged: Vec<DamagedWorktree>,
}

/// A worktree that cannot be read, merged or removed.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DamagedWorktree {
    #[schema(value_type = String, format = Uuid)]
    session: SessionId,
    /// The reason, and what to do.
    error: String,
}

/// Lists the worktrees of a session and its descendants.
#[utoipa::path(get, path = "/v1/trees/{id}/worktrees", tag = "worktrees", operation_id = "list_worktrees",
    params(("id" = String, Path, description = "The session at the top")),
    responses((status = 200, body = WorktreeListing), (status = 404, body = Problem)))]
pub(super) async fn list(
    State(host): State<Host>,
    Path(id): Path<String>,
    _: NoParameters,
) -> Result<Json<WorktreeListing>, Problem> {
    let TreeWorktrees { worktrees, damaged } = host.session(&id).await?.worktrees().await?;
    let damaged = damaged.into_iter().map(|(session, error)| DamagedWorktree { session, error }).collect();
    Ok(Json(WorktreeListing { worktrees: worktrees.into_iter().map(WorktreeInfo::from).collect(), damaged }))
}

/// The changes in a worktree.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WorktreeDiff {
    branch: String,
    /// Commit of the changes. A merge, keep or discard with this `tip` is refused if the changes are different by then.
    tip: String,
    files: Vec<WorktreeFile>,
    /// The first of the files and directories that git ignores. They are not part of the changes.
    ignored: Vec<String>,
    /// Number of further ignored files and directories.
    more_ignored: usize,
    /// Files that earlier merges left out because other programs had changed them. The branch has their changes.
    left: Vec<String>,
    /// The changes as a patch.
    patch: String,
}

/// A file that differs from the base of a worktree.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WorktreeFile {
    /// Path in the workspace.
    path: String,
    /// Number of added lines; absent if the file is not text.
    added: Option<u64>,
    /// Number of removed lines; absent if the file is not text.
    removed: Option<u64>,
}

impl From<ChangedFile> for WorktreeFile {
    fn from(ChangedFile { path, added, removed }: ChangedFile) -> Self {
        Self { path, added, removed }
    }
}

/// Maximum bytes of the paths and the patch in a response. As JSON they take up to six times as many.
const MAX_DIFF_BYTES: usize = 4 << 20;
/// Bytes that a file takes alongside its path.
const FILE_BYTES: usize = 64;

/// Returns the changes as JSON.
fn render_diff(id: SessionId, changes: WorktreeChanges, patch: Vec<u8>) -> Result<JsonText, Problem> {
    let WorktreeChanges { branch, tip, files, ignored, more_ignored, left } = changes;
    let paths = files.iter().map(|file| &file.path).chain(&ignored).chain(&left);
    let bytes = paths.map(|path| path.len().saturating_add(FILE_BYTES)).fold(patch.len(), usize::saturating_add);
    if bytes > MAX_DIFF_BYTES {
        let (most, short) = (MAX_DIFF_BYTES >> 20, id.short());
        let detail = format!(
            "the changes have more than {most} MiB, too long for a response: `subtend worktree diff {short}` shows \
             all, and `subtend worktree merge {short}` merges them"
        );
        return Err(Problem::conflict("refused", detail));
    }
    let patch = String::from_utf8(patch).unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned());
    let files = files.into_iter().map(WorktreeFile::from).collect();
    let diff = WorktreeDiff { branch, tip, files, ignored, more_ignored, left, patch };
    serde_json::to_vec(&diff).map(JsonText).map_err(|error| Problem::internal("internal", error.to_string()))
}

/// Commits the changes in the worktree of a session on its branch, and returns them.
#[utoipa::path(get, path = "/v1/sessions/{id}/worktree", tag = "worktrees", operation_id = "get_worktree",
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, body = WorktreeDiff), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn get(State(host): State<Host>, Path(id): Path<String>) -> Result<JsonText, Problem> {
    let handle = host.session(&id).await?;
    let id = handle.id();
    // One byte more shows that the patch is too long.
    let most = MAX_DIFF_BYTES as u64 + 1;
    handle.worktree_diff(most, move |changes, patch| render_diff(id, changes, patch)).await?
}

/// The changes to merge.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MergeRequest {
    /// The `tip` of the changes that were shown.
    #[serde(deserialize_with = "names::required")]
    tip: String,
}

/// The result of a merge.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct MergeResult {
    /// Changed files.
    files: Vec<String>,
    /// Files that were not merged because they were changed after an interrupted merge had been planned.
    left: Vec<String>,
    /// True if nothing was left to merge: an earlier request merged the changes, or nothing was changed.
    already_merged: bool,
}

/// Merges the changes in the worktree of a session into the files of its workspace, all files or none. A repeated
/// request has no effect.
#[utoipa::path(post, path = "/v1/sessions/{id}/worktree/merge", tag = "worktrees", operation_id = "merge_worktree", request_body = MergeRequest,
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, body = MergeResult), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn merge(
    State(host): State<Host>,
    Path(id): Path<String>,
    _: NoKey,
    Body(MergeRequest { tip }): Body<MergeRequest>,
) -> Result<Json<MergeResult>, Problem> {
    let Merged { files, left, already_merged } = host.session(&id).await?.merge_worktree(tip).await?;
    Ok(Json(MergeResult { files, left, already_merged }))
}

/// The removal of a worktree.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RemovalRequest {
    /// The `tip` of the changes that were shown. Without it, later changes are not detected.
    #[serde(default, deserialize_with = "names::optional")]
    tip: Option<String>,
}

/// A branch with the changes of a worktree.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct KeepResult {
    branch: String,
    /// The repository that contains the branch, if the workspace is not in a repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    repository: Option<String>,
    /// True if an earlier request had kept it.
    already_kept: bool,
}

/// Commits the changes in the worktree of a session on its branch. Then removes the worktree and keeps the branch. A
/// repeated request has no effect.
#[utoipa::path(post, path = "/v1/sessions/{id}/worktree/keep", tag = "worktrees", operation_id = "keep_worktree", request_body = RemovalRequest,
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, body = KeepResult), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn keep(
    State(host): State<Host>,
    Path(id): Path<String>,
    _: NoKey,
    Body(RemovalRequest { tip }): Body<RemovalRequest>,
) -> Result<Json<KeepResult>, Problem> {
    let KeptBranch { name: branch, repository, already_kept } = host.session(&id).await?.keep_worktree(tip).await?;
    let repository = repository.map(|at| at.to_string_lossy().into_owned());
    Ok(Json(KeepResult { branch, repository, already_kept }))
}

/// Removes the worktree of a session, its branch and all changes. A repeated request has no effect.
#[utoipa::path(post, path = "/v1/sessions/{id}/worktree/discard", tag = "worktrees", operation_id = "discard_worktree", request_body = RemovalRequest,
    params(("id" = String, Path, description = "The session")),
    responses((status = 204), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn discard(
    State(host): State<Host>,
    Path(id): Path<String>,
    _: NoKey,
    Body(RemovalRequest { tip }): Body<RemovalRequest>,
) -> Result<StatusCode, Problem> {
    host.session(&id).await?.discard_worktree(tip).await?;
    Ok(StatusCode::NO_CONTENT)
}
