//! The live tree below a session. Children are loaded when a line is opened.

use askama::Template;
use axum::extract::State;
use axum::response::{Html, Response};
use serde::Deserialize;
use subtend_session::ids::SessionId;

use super::extract::{PathPart, Query};
use super::forest::{Forest, ForestRow};
use super::live::{self, Changes, Fragment, Swap};
use super::{PageFrame, Refusal, html, render_fragment};
use crate::host::Host;
use crate::problem::Problem;

#[derive(Template)]
#[template(path = "tree.html")]
struct TreePage {
    frame: PageFrame,
    id: SessionId,
    top: String,
}

/// The lines of a session's children, each with an element for the children of that child.
#[derive(Template)]
#[template(path = "tree_items.html")]
struct Items {
    rows: Vec<ForestRow>,
    /// True if the lines are expanded.
    open: bool,
    /// The rendered lines below the root line; empty for other lines.
    below: String,
}

#[derive(Template)]
#[template(path = "tree_row.html")]
struct TreeLine<'a> {
    row: &'a ForestRow,
}

impl Items {
    fn render_children(forest: &Forest, id: SessionId) -> String {
        Self::html(forest.child_rows(id))
    }

    fn html(rows: Vec<ForestRow>) -> String {
        render_fragment(&Self { rows, open: false, below: String::new() })
    }
}

/// The query of a browser that loads the children of a line.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub(super) struct OpenedLine {
    /// The level of the line in the shown tree, whose root has level 1.
    level: u32,
}

impl Default for OpenedLine {
    fn default() -> Self {
        Self { level: 1 }
    }
}

pub(super) async fn page(State(host): State<Host>, PathPart(id): PathPart<String>) -> Result<Html<String>, Refusal> {
    let id = host.session(&id).await?.id();
    host.settled().await?;
    let forest = Forest::read(host.runtime(), id)?;
    let top = forest.row(id).ok_or_else(|| Problem::no_session(&id.to_string()))?;
    let frame = PageFrame::of_view(&host, id, "Tree", "tree").await;
    let top = Items { rows: vec![top], open: true, below: Items::render_children(&forest, id) };
    html(&TreePage { frame, id, top: render_fragment(&top) })
}

/// Returns the lines of a session's children, which the browser inserts below the line of the session.
pub(super) async fn children(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    Query(opened): Query<OpenedLine>,
) -> Result<Html<String>, Refusal> {
    let id = host.session(&id).await?.id();
    let forest = Forest::read(host.runtime(), id)?;
    let mut rows = forest.child_rows(id);
    rows.iter_mut().for_each(|row| row.level = opened.level.saturating_add(1));
    Ok(Html(Items::html(rows)))
}

/// Sends the lines that change. Browsers ignore lines that they have not loaded.
struct LiveTree {
    id: SessionId,
    forest: Option<Forest>,
}

impl LiveTree {
    fn line(forest: &Forest, id: SessionId) -> Option<Fragment> {
        let row = forest.row(id)?;
        Some(Fragment::new(format!("row-{id}"), render_fragment(&TreeLine { row: &row }), Swap::Inner))
    }
}

impl live::LiveView for LiveTree {
    async fn changed(&mut self, host: &Host, changes: &Changes) -> Result<Vec<Fragment>, Problem> {
        let runtime = host.runtime();
        let mut fragments = Vec::new();
        let forest = match &mut self.forest {
            Some(forest) if !changes.all => forest,
            forest => {
                let read = forest.insert(Forest::read(runtime, self.id)?);
                // The lines of the top's children are left out here: the group below contains them.
                for id in read.ids().into_iter().filter(|id| read.path(*id).len() != 2) {
                    fragments.extend(Self::line(read, id));
                }
                let group =
                    Fragment::new(format!("kids-{}", self.id), Items::render_children(read, self.id), Swap::Inner);
                fragments.push(group);
                return Ok(fragments);
            }
        };
        let (mut lines, mut grown) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
        for id in &changes.sessions {
            grown.extend(forest.update(runtime, *id)?);
            lines.extend(forest.path(*id));
        }
        let groups = grown
            .into_iter()
            .map(|id| Fragment::new(format!("kids-{id}"), Items::render_children(forest, id), Swap::Inner));
        fragments.extend(groups);
        for id in lines {
            fragments.extend(Self::line(forest, id));
        }
        Ok(fragments)
    }
}

pub(super) async fn live(State(host): State<Host>, PathPart(id): PathPart<String>) -> Result<Response, Refusal> {
    let id = host.session(&id).await?.id();
    let head = host.runtime().journal().head(id)?.ok_or_else(|| Problem::no_session(&id.to_string()))?;
    Ok(live::follow(&host, Some(head.root), LiveTree { id, forest: None }))
}
