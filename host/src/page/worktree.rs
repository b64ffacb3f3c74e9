//! The worktree of a session: its changes, and the forms that merge, keep or discard them.

use askama::Template;
use axum::extract::State;
use axum::response::Html;
use serde::Deserialize;
use subtend_actors::{ControlError, KeptBranch, SessionHandle, SessionWorktree};
use subtend_session::ids::SessionId;
use subtend_tools::worktree::{Stage, WorktreeChanges};

use super::diff::{self, ShownPatch};
use super::extract::{FormBody, PathPart};
use super::words::{self, StateLabel};
use super::{PageFrame, Refusal, html};
use crate::host::Host;

#[derive(Template)]
#[template(path = "worktree.html")]
struct WorktreePage {
    frame: PageFrame,
    id: SessionId,
    /// The result of an action.
    done: String,
    tree: Option<WorktreePanel>,
}

struct WorktreePanel {
    state: StateLabel,
    branch: String,
    path: String,
    target: String,
    /// The session whose run in flight uses the worktree.
    busy: Option<SessionId>,
    /// The reason why the changes cannot be shown.
    why_unreadable: Option<String>,
    changes: Option<ShownChanges>,
}

struct ShownChanges {
    summary: String,
    files: String,
    tip: String,
    patch: ShownPatch,
}

/// Returns the label of a worktree.
pub(super) fn state(tree: &SessionWorktree) -> StateLabel {
    let (word, class) = match tree.entry.stage {
        Stage::Making => ("being made", "wait"),
        Stage::Discarding | Stage::Keeping => ("being removed", "odd"),
        Stage::Ready if tree.busy.is_some() => ("in use", "live"),
        Stage::Ready => ("ready", "good"),
    };
    StateLabel { word, class }
}

pub(super) fn damaged() -> StateLabel {
    StateLabel { word: "damaged", class: "bad" }
}

impl WorktreePanel {
    async fn read(handle: &SessionHandle, tree: SessionWorktree) -> Result<Self, ControlError> {
        // One byte more shows that the patch is too long.
        let most = diff::MAX_PATCH_BYTES as u64 + 1;
        let shown = handle.worktree_diff(most, |changes, patch| ShownChanges::of(&changes, &patch)).await;
        let (changes, why_unreadable) = match shown {
            Ok(changes) => (Some(changes), None),
            Err(ControlError::Refused(why) | ControlError::NotFound(why)) => (None, Some(why)),
            Err(error) => return Err(error),
        };
        Ok(Self {
            state: state(&tree),
            branch: tree.entry.branch,
            path: tree.path.display().to_string(),
            target: tree.entry.target.display().to_string(),
            busy: tree.busy.map(|(session, _)| session),
            why_unreadable,
            changes,
        })
    }
}

impl ShownChanges {
    fn of(changes: &WorktreeChanges, patch: &[u8]) -> Self {
        Self {
            summary: changes.summary(),
            files: words::count(changes.files.len() as u64, "file"),
            tip: changes.tip.clone(),
            patch: diff::of_patch(&String::from_utf8_lossy(patch)),
        }
    }
}

async fn show(host: &Host, handle: &SessionHandle, done: String) -> Result<Html<String>, Refusal> {
    host.settled().await?;
    // Read first: the changes are not kept while another read is waited for.
    let frame = PageFrame::of_view(host, handle.id(), "Worktree", "worktree").await;
    let tree = match handle.worktree().await? {
        Some(found) => Some(WorktreePanel::read(handle, found).await?),
        None => None,
    };
    html(&WorktreePage { frame, id: handle.id(), done, tree })
}

pub(super) async fn page(State(host): State<Host>, PathPart(id): PathPart<String>) -> Result<Html<String>, Refusal> {
    let handle = host.session(&id).await?;
    show(&host, &handle, String::new()).await
}

/// The tip of the changes that the page showed; empty if it showed none.
#[derive(Debug, Deserialize)]
pub(super) struct TipForm {
    tip: String,
}

pub(super) async fn merge(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    FormBody(TipForm { tip }): FormBody<TipForm>,
) -> Result<Html<String>, Refusal> {
    let handle = host.session(&id).await?;
    let merged = handle.merge_worktree(tip).await?;
    let mut done = match merged.already_merged {
        true => "The changes were already merged.".to_owned(),
        false => format!("Merged {}.", words::count(merged.files.len() as u64, "file")),
    };
    if !merged.left.is_empty() {
        done.push_str(" Not merged, because other programs changed them during the merge: ");
        done.push_str(&merged.left.join(", "));
    }
    show(&host, &handle, done).await
}

pub(super) async fn keep(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    FormBody(TipForm { tip }): FormBody<TipForm>,
) -> Result<Html<String>, Refusal> {
    let handle = host.session(&id).await?;
    let kept = handle.keep_worktree(Some(tip)).await?;
    let (KeptBranch { name, already_kept, .. }, used) = (&kept, kept.to_use());
    let done = if *already_kept { "was already kept" } else { "is kept" };
    show(&host, &handle, format!("Branch {name} {done} with the changes, and its worktree is removed. {used}.")).await
}

pub(super) async fn discard(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    FormBody(TipForm { tip }): FormBody<TipForm>,
) -> Result<Html<String>, Refusal> {
    let handle = host.session(&id).await?;
    handle.discard_worktree(Some(tip).filter(|tip| !tip.is_empty())).await?;
    show(&host, &handle, "The worktree and its branch are discarded.".to_owned()).await
}
