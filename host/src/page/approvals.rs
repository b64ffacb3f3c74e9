//! The view of calls that wait for an approval, with the full command or diff.

use askama::Template;
use axum::extract::State;
use axum::response::{Html, Response};
use subtend_session::ids::SessionId;
use subtend_tools::escape::exact;

use super::live::{self, Changes, Fragment, Swap};
use super::{PageFrame, Refusal, diff, entries, html, render_fragment, words};
use crate::api::approvals;
use crate::host::Host;
use crate::problem::Problem;

pub(super) struct Ask {
    pub(super) session: SessionId,
    path: String,
    agent: String,
    title: String,
    deadline_ms: Option<i64>,
    until: String,
    run: u32,
    call: String,
    tool: String,
    action: String,
    resource: String,
    args: String,
    diff: Option<String>,
    plan: Option<String>,
    digest: String,
}

#[derive(Template)]
#[template(path = "asks.html")]
struct Cards<'a> {
    asks: &'a [Ask],
}

#[derive(Template)]
#[template(path = "approvals.html")]
struct ApprovalsPage {
    frame: PageFrame,
    cards: String,
}

/// Reads the waiting calls, oldest first.
pub(super) async fn asks(host: &Host) -> Result<Vec<Ask>, Problem> {
    let open = approvals::open_approvals(host).await?;
    let ask = |approvals::OpenApproval { approval: of, run, head }| Ask {
        agent: exact(&head.agent),
        title: exact(&words::clip(&head.title, 80)),
        deadline_ms: of.deadline_ms,
        until: of.deadline_ms.map(words::utc_text).unwrap_or_default(),
        digest: approvals::digest(&of, run),
        session: of.session,
        run: run.0,
        call: of.call.to_string(),
        diff: diff::of_call(&of.tool, &of.args),
        // Shown in full, with invisible characters made visible, so that the user approves the exact content.
        args: exact(&entries::pretty(&of.args)),
        path: exact(&of.path),
        tool: exact(&of.tool),
        action: exact(&of.action),
        resource: exact(&of.resource),
        plan: of.plan.map(|plan| super::markdown::render(&exact(&plan))),
    };
    Ok(open.into_iter().map(ask).collect())
}

pub(super) fn cards(asks: &[Ask]) -> String {
    render_fragment(&Cards { asks })
}

pub(super) fn badge(asks: usize) -> Fragment {
    let shown = if asks == 0 { String::new() } else { asks.to_string() };
    Fragment::new("asks", shown, Swap::Inner)
}

pub(super) async fn page(State(host): State<Host>) -> Result<Html<String>, Refusal> {
    let cards = cards(&asks(&host).await?);
    html(&ApprovalsPage { frame: PageFrame::new(&host, "Approvals", "approvals").await, cards })
}

struct LiveApprovals;

impl live::LiveView for LiveApprovals {
    async fn changed(&mut self, host: &Host, _: &Changes) -> Result<Vec<Fragment>, Problem> {
        let asks = asks(host).await?;
        Ok(vec![Fragment::new("cards", cards(&asks), Swap::Inner), badge(asks.len())])
    }
}

pub(super) async fn live(State(host): State<Host>) -> Response {
    live::follow(&host, None, LiveApprovals)
}
