//! The worktree of a session: what is changed there, and what a person does with it.

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
    /// The session that works there.
    busy: Option<SessionId>,
    /// Why the changes cannot be shown.
    unread: Option<String>,
    changes: Option<ShownChanges>,
}

struct ShownChanges {
    summary: String,
    files: String,
    tip: String,
    patch: ShownPatch,
}

/// Returns the label of a worktree.
pub(super) fn state(of: &SessionWorktree) -> StateLabel {
    let (word, class) = match of.entry.stage {
        Stage::Making => ("being made", "wait"),
        Stage::Discarding | Stage::Keeping => ("being removed", "odd"),
        Stage::Ready if of.busy.is_some() => ("in use", "live"),
        Stage::Ready => ("ready", "good"),
    };
    StateLabel { word, class }
}

/// Returns the label of a worktree that cannot be read.
pub(super) fn damaged() -> StateLabel {
    StateLabel { word: "damaged", class: "bad" }
}

impl WorktreePanel {
    async fn read(handle: &SessionHandle, of: SessionWorktree) -> Result<Self, ControlError> {
        let (changes, unread) = match handle.worktree_diff().await {
            Ok((changes, patch)) => (Some(ShownChanges::of(&changes, &patch)), None),
            Err(ControlError::Refused(why) | ControlError::NotFound(why)) => (None, Some(why)),
            Err(error) => return Err(error),
        };
        Ok(Self {
            state: state(&of),
            branch: of.entry.branch,
            path: of.path.display().to_string(),
            target: of.entry.target.display().to_string(),
            busy: of.busy.map(|(session, _)| session),
            unread,
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

async fn shown(host: &Host, handle: &SessionHandle, done: String) -> Result<Html<String>, Refusal> {
    host.settled().await?;
    let tree = match handle.worktree().await? {
        Some(found) => Some(WorktreePanel::read(handle, found).await?),
        None => None,
    };
    let frame = PageFrame::of_session(host, format!("Worktree of {}", handle.id().short()), "worktree").await;
    html(&WorktreePage { frame, id: handle.id(), done, tree })
}

pub(super) async fn page(State(host): State<Host>, PathPart(id): PathPart<String>) -> Result<Html<String>, Refusal> {
    let handle = host.session(&id).await?;
    shown(&host, &handle, String::new()).await
}

/// Names the changes that were shown; empty if they could not be.
#[derive(Debug, Deserialize)]
pub(super) struct TipForm {
    tip: String,
}

/// Merges what was shown, and shows what is left.
pub(super) async fn merge(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    FormBody(TipForm { tip }): FormBody<TipForm>,
) -> Result<Html<String>, Refusal> {
    let handle = host.session(&id).await?;
    let merged = handle.merge_worktree(tip).await?;
    let mut done = match merged.already_merged {
        true => "The changes had been merged.".to_owned(),
        false => format!("Merged {}.", words::count(merged.files.len() as u64, "file")),
    };
    if !merged.left.is_empty() {
        done.push_str(" Left as they are, since they were changed meanwhile: ");
        done.push_str(&merged.left.join(", "));
    }
    shown(&host, &handle, done).await
}

/// Leaves what was shown on its branch.
pub(super) async fn keep(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    FormBody(TipForm { tip }): FormBody<TipForm>,
) -> Result<Html<String>, Refusal> {
    let handle = host.session(&id).await?;
    let KeptBranch { name, already_kept } = handle.keep_worktree(Some(tip)).await?;
    let done = if already_kept { "had been kept" } else { "is kept" };
    shown(&host, &handle, format!("Branch {name} {done} with the changes; its worktree is removed.")).await
}

/// Discards what was shown.
pub(super) async fn discard(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    FormBody(TipForm { tip }): FormBody<TipForm>,
) -> Result<Html<String>, Refusal> {
    let handle = host.session(&id).await?;
    handle.discard_worktree(Some(tip).filter(|tip| !tip.is_empty())).await?;
    shown(&host, &handle, "The worktree and its branch are discarded.".to_owned()).await
}
