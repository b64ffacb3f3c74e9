//! The view of the branches of a session and the alternatives of its answers.

use askama::Template;
use axum::extract::State;
use axum::response::Html;
use serde::Deserialize;
use subtend_session::ids::{Seq, SessionId};

use super::extract::{PathPart, Query};
use super::words::{self, StateLabel};
use super::{PageFrame, Refusal, bounds, entries, html, markdown, title_or_name, worktree};
use crate::api::branches::full_page;
use crate::host::Host;

struct BranchCard {
    id: SessionId,
    title: String,
    kind: &'static str,
    agent: String,
    short: String,
    task: String,
    state: StateLabel,
    turns: String,
    created: String,
    worktree: Option<StateLabel>,
}

struct AnswerChoices {
    of: Seq,
    choices: Vec<BranchChoice>,
}

struct BranchChoice {
    nth: usize,
    active: bool,
    session: Option<SessionId>,
    text: String,
}

#[derive(Template)]
#[template(path = "branches.html")]
struct BranchesPage {
    frame: PageFrame,
    id: SessionId,
    branches: Vec<BranchCard>,
    /// The last branch, if others may follow.
    next: Option<SessionId>,
    answers: Vec<AnswerChoices>,
}

/// The branch after which the page starts.
#[derive(Deserialize)]
pub(super) struct AfterBranch {
    after: Option<SessionId>,
}

pub(super) async fn page(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    Query(page): Query<AfterBranch>,
) -> Result<Html<String>, Refusal> {
    let handle = host.session(&id).await?;
    // The view of each worktree reports its errors.
    let trees = handle.worktrees().await.unwrap_or_default();
    let damaged = |id| trees.damaged.iter().any(|(of, _)| *of == id).then(worktree::damaged);
    let branch = |of: subtend_actors::BranchInfo| BranchCard {
        id: of.id,
        title: title_or_name(100, &of.title, &of.agent, &of.short),
        kind: entries::branch_kind_name(of.kind),
        agent: of.agent.to_string(),
        short: of.short.to_string(),
        task: of.task.map(|task| words::line(&task)).unwrap_or_default(),
        state: StateLabel::of(of.phase, of.outcome),
        turns: words::count(of.iterations, "turn"),
        created: words::utc_text(of.created_ms),
        worktree: {
            let good = trees.worktrees.iter().find(|tree| tree.entry.session == of.id);
            good.map(worktree::state).or_else(|| damaged(of.id))
        },
    };
    let filter = full_page(page.after);
    let branches: Vec<_> = handle.list_branches(filter).await?.into_iter().map(branch).collect();
    let next = branches.last().filter(|_| filter.limit == Some(branches.len())).map(|last| last.id);
    let mut bytes = 0_usize;
    let mut rendered = |text: &str| {
        if bytes > bounds::MAX_ENTRIES_BYTES {
            return "<p class=\"dim\">Too long to be shown here: open its session.</p>".to_owned();
        }
        let html = markdown::render(text);
        bytes = bytes.saturating_add(html.len());
        html
    };
    let answer = |of: subtend_actors::Alternatives| {
        let active = of.active as usize;
        let choice = |(nth, choice): (usize, subtend_actors::Alternative)| BranchChoice {
            nth,
            active: nth == active,
            session: choice.session,
            text: choice.text.map(|text| rendered(&text)).unwrap_or_default(),
        };
        AnswerChoices { of: of.of, choices: of.choices.into_iter().enumerate().map(choice).collect() }
    };
    let answers = handle.alternatives().await?.into_iter().map(answer).collect();
    let frame = PageFrame::of_view(&host, handle.id(), "Branches", "branches").await;
    html(&BranchesPage { frame, id: handle.id(), branches, next, answers })
}
