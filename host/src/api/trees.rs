//! A session with all below it, and the cursor from which its events continue.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use subtend_actors::Tree;
use subtend_session::ids::{RunNo, SessionId};
use subtend_session::outcome::{Outcome, OutcomeKind};
use subtend_session::state::Phase;
use subtend_session::usage::Usage;
use utoipa::{IntoParams, ToSchema};

use super::{Path, Query};
use crate::follow::Cursor;
use crate::host::Host;
use crate::problem::Problem;

/// A session of a tree.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TreeNode {
    #[schema(value_type = String, format = Uuid)]
    id: SessionId,
    short: String,
    agent: String,
    title: String,
    depth: u32,
    #[schema(value_type = String)]
    state: Phase,
    /// Until when its run is parked at a provider's limit, in milliseconds since 1970.
    limited_until: Option<i64>,
    #[schema(value_type = u32)]
    run: RunNo,
    /// How its last run ended.
    #[schema(value_type = Option<String>)]
    outcome: Option<OutcomeKind>,
    background: bool,
    /// Answered turns of the run; at the root those of the subtree are in `usage`'s terms.
    turns: u32,
    /// By this session itself.
    #[schema(value_type = Object)]
    usage: Usage,
    /// Milliseconds of working time.
    worked_ms: u64,
    /// Why its journal cannot be read.
    error: Option<String>,
    /// Children, in the order of their births; absent beyond the depth that was asked for.
    #[schema(no_recursion)]
    children: Vec<TreeNode>,
    /// How many children it has, also those that are not listed.
    child_count: usize,
}

impl TreeNode {
    /// Makes the node of `tree` with `levels` of children below it.
    fn of(tree: Tree, levels: u32) -> Self {
        let child_count = tree.children.len();
        let children = match levels.checked_sub(1) {
            Some(left) => tree.children.into_iter().map(|child| Self::of(child, left)).collect(),
            None => Vec::new(),
        };
        Self {
            id: tree.id,
            short: tree.short.to_string(),
            agent: tree.agent.to_string(),
            title: tree.title.to_string(),
            depth: tree.depth,
            state: tree.phase,
            limited_until: tree.limited_until,
            run: tree.run,
            outcome: tree.outcome.as_ref().map(Outcome::kind),
            background: tree.background,
            turns: tree.turns,
            usage: tree.usage,
            worked_ms: tree.worked_ms,
            error: tree.unread,
            children,
            child_count,
        }
    }
}

/// A tree, and where its events continue.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Snapshot {
    /// `after` of the event stream that follows. Its first events may repeat what the tree contains.
    cursor: String,
    tree: TreeNode,
}

/// How much of a tree is returned.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Levels {
    /// Levels of children: all if not given.
    depth: Option<u32>,
}

/// Returns a session with all below it.
#[utoipa::path(get, path = "/v1/trees/{id}", tag = "trees", operation_id = "get_tree",
    params(("id" = String, Path, description = "The session at the top"), Levels),
    responses((status = 200, body = Snapshot), (status = 404, body = Problem)))]
pub(super) async fn get(
    State(host): State<Host>,
    Path(id): Path<String>,
    Query(levels): Query<Levels>,
) -> Result<Json<Snapshot>, Problem> {
    let handle = host.session(&id).await?;
    let journal = host.runtime().journal();
    // Before the tree is read: what is appended meanwhile comes in both, never in neither.
    let cursor = Cursor::end_of(journal.durable()).to_string();
    let tree = Tree::read(journal, handle.id())?;
    Ok(Json(Snapshot { cursor, tree: TreeNode::of(tree, levels.depth.unwrap_or(u32::MAX)) }))
}
