//! The view of calls that wait for an approval, with the full command or diff.

use askama::Template;
use axum::extract::State;
use axum::response::{Html, Response};
use subtend_session::ids::SessionId;
use subtend_tools::escape::exact;

use super::live::{self, Changes, Fragment, Swap};
use super::{PageFrame, Refusal, bounds, diff, entries, html, render_fragment, words};
use crate::api::approvals::{self, OpenApproval};
use crate::host::Host;
use crate::problem::Problem;

/// Maximum size in bytes of the HTML of all cards of a view.
const MAX_CARDS_BYTES: usize = 4 << 20;
/// Maximum size in bytes of the shown part of a call that is too long.
const MAX_PART_BYTES: usize = 4 << 10;

#[derive(Template)]
#[template(path = "asks.html")]
struct Ask {
    session: SessionId,
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
    /// False if only a part is shown: then the call cannot be approved here.
    whole: bool,
}

#[derive(Template)]
#[template(path = "approvals.html")]
struct ApprovalsPage {
    frame: PageFrame,
    cards: String,
}

/// Returns the cards of the waiting calls, oldest first, and the number of all waiting calls. With `only`, the cards are those of that
/// session.
pub(super) async fn cards(host: &Host, only: Option<SessionId>) -> Result<(String, usize), Problem> {
    let mut waiting = host.runtime().waiting_calls().await?;
    let all = waiting.len();
    waiting.retain(|asked| only.is_none_or(|only| asked.session == only));
    let mut bytes = 0_usize;
    // A card that does not fit is dropped at once, like all after it.
    let cards = approvals::read_open(host, &waiting, |open| {
        let card = (bytes <= MAX_CARDS_BYTES).then(|| card(&open)).unwrap_or_default();
        bytes = bytes.saturating_add(card.len());
        if bytes <= MAX_CARDS_BYTES { card } else { String::new() }
    })?;
    let shown = cards.iter().filter(|card| !card.is_empty()).count();
    let mut html = cards.concat();
    if shown < cards.len() {
        let left = words::count(cards.len().saturating_sub(shown) as u64, "further call");
        let note =
            ["<p class=\"dim\">Too long to be shown here: ", &left, ". <code>subtend approvals</code> lists all.</p>"];
        html.push_str(&note.concat());
    }
    Ok((html, all))
}

/// Returns the card of a call. One that is too long has the beginning of its arguments, and no button that approves it.
fn card(open: &OpenApproval) -> String {
    let of = &open.approval;
    let bytes = of.args.len().saturating_add(of.resource.len());
    let args = (bytes <= bounds::MAX_MESSAGE_BYTES).then(|| entries::pretty(&of.args));
    let args = args.filter(|args| args.len() <= bounds::MAX_ENTRY_BYTES);
    let whole = args.map(|args| render_fragment(&Ask::new(open, Some(&args))));
    let fits = whole.filter(|html| html.len() <= bounds::MAX_ENTRY_BYTES);
    fits.unwrap_or_else(|| render_fragment(&Ask::new(open, None)))
}

impl Ask {
    /// Creates a card with these arguments; without them, one with a part of the call.
    fn new(OpenApproval { approval: of, run, head }: &OpenApproval, args: Option<&str>) -> Self {
        let part = |text: &str| exact(&bounds::clip(text, MAX_PART_BYTES));
        Self {
            agent: exact(&head.agent),
            title: exact(&words::clip(&head.title, 80)),
            deadline_ms: of.deadline_ms,
            until: of.deadline_ms.map(words::utc_text).unwrap_or_default(),
            digest: approvals::digest(of, *run),
            session: of.session,
            run: run.0,
            call: of.call.to_string(),
            diff: args.and_then(|_| diff::of_call(&of.tool, &of.args)),
            // Invisible characters are made visible, so that the user approves the exact content.
            args: args.map_or_else(|| part(&of.args), exact),
            path: exact(&of.path),
            tool: exact(&of.tool),
            action: exact(&of.action),
            resource: args.map_or_else(|| part(&of.resource), |_| exact(&of.resource)),
            plan: of.plan.as_ref().filter(|_| args.is_some()).map(|plan| super::markdown::render(&exact(plan))),
            whole: args.is_some(),
        }
    }
}

pub(super) fn badge(asks: usize) -> Fragment {
    let shown = if asks == 0 { String::new() } else { asks.to_string() };
    Fragment::new("asks", shown, Swap::Inner)
}

pub(super) async fn page(State(host): State<Host>) -> Result<Html<String>, Refusal> {
    let (cards, _) = cards(&host, None).await?;
    html(&ApprovalsPage { frame: PageFrame::new(&host, "Approvals", "approvals").await, cards })
}

struct LiveApprovals;

impl live::LiveView for LiveApprovals {
    async fn changed(&mut self, host: &Host, _: &Changes) -> Result<Vec<Fragment>, Problem> {
        let (cards, all) = cards(host, None).await?;
        Ok(vec![Fragment::new("cards", cards, Swap::Inner), badge(all)])
    }
}

pub(super) async fn live(State(host): State<Host>) -> Response {
    live::follow(&host, None, LiveApprovals)
}
