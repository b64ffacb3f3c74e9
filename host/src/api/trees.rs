//! A session with its descendants, and a cursor for following their events.

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
use crate::json::Json;
use crate::problem::Problem;

/// Maximum number of levels of children: parsers of JSON accept 128 levels of values.
const MAX_LEVELS: u32 = 60;

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
    /// Unix time in ms until which its run is parked at a provider's limit.
    limited_until: Option<i64>,
    #[schema(value_type = u32)]
    run: RunNo,
    /// Outcome of its last run.
    #[schema(value_type = Option<String>)]
    outcome: Option<OutcomeKind>,
    background: bool,
    /// Number of answered turns of the run.
    turns: u32,
    /// Usage of this session, without descendants.
    #[schema(value_type = Object)]
    usage: Usage,
    /// Working time in ms.
    worked_ms: u64,
    /// The reason if its journal cannot be read.
    error: Option<String>,
    /// Children in the order of creation; empty beyond the requested depth.
    #[schema(no_recursion)]
    children: Vec<TreeNode>,
    /// Number of children, including those not in `children`.
    child_count: usize,
}

impl TreeNode {
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

/// A tree, and a cursor for following its events.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Snapshot {
    /// The value of `after` for the event stream. The first events of the stream may already be part of the tree.
    cursor: String,
    tree: TreeNode,
}

/// The part of a tree to return.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Levels {
    /// Number of levels of children, at most 60, which is the default.
    depth: Option<u32>,
}

/// Returns a session with its descendants.
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
    // Read the cursor before the tree. A record appended in between may then be in both, but is never missed.
    let cursor = Cursor::end_of(journal.durable()).to_string();
    let tree = Tree::read(journal, handle.id())?;
    Ok(Json(Snapshot {
        cursor,
        tree: TreeNode::of(tree, levels.depth.map_or(MAX_LEVELS, |depth| depth.min(MAX_LEVELS))),
    }))
}
