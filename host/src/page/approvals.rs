//! The view of calls that wait for an approval, with the full command or diff.

use askama::Template;
use axum::extract::State;
use axum::response::{Html, Response};
use serde::{Deserialize, Serialize};
use subtend_session::ids::{SessionId, Text};
use subtend_tools::escape::exact;

use super::live::{self, Changes, Fragment, Swap};
use super::{PageFrame, Refusal, bounds, diff, entries, html, render_fragment, render_within, words};
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
    /// What an approval for the session covers; `None` without one.
    always: Option<&'static str>,
    /// False if only a part is shown: then the call cannot be approved here.
    whole: bool,
}

#[derive(Template)]
#[template(path = "approvals.html")]
struct ApprovalsPage {
    frame: PageFrame,
    stream: String,
    cards: String,
}

/// A host's cards. With several shards, parts of different hosts are joined.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ApprovalsPart {
    /// The oldest calls first.
    cards: Vec<String>,
    /// Number of calls that are too long to be shown together.
    left_out: usize,
    /// Number of all waiting calls.
    all: usize,
    pub(super) now_ms: i64,
}

impl ApprovalsPart {
    /// Reads the cards of the waiting calls; with `only`, those of that session.
    pub(super) async fn read(host: &Host, only: Option<SessionId>) -> Result<Self, Problem> {
        let mut waiting = host.runtime().waiting_calls().await?;
        let mut part = Self { all: waiting.len(), now_ms: host.runtime().now_ms(), ..Self::default() };
        waiting.retain(|asked| only.is_none_or(|only| asked.session == only));
        let mut bytes = 0_usize;
        // A card that does not fit is dropped at once, like all after it.
        approvals::read_open(host, &waiting, |open| {
            let card = if part.left_out == 0 { card(&open) } else { String::new() };
            bytes = bytes.saturating_add(card.len());
            match bytes <= MAX_CARDS_BYTES && part.left_out == 0 {
                true => part.cards.push(card),
                false => part.left_out = part.left_out.saturating_add(1),
            }
        })?;
        Ok(part)
    }
}

/// Returns the HTML of the cards of all parts, as far as it is short enough, and the number of all waiting calls.
pub(super) fn cards(parts: &[&ApprovalsPart]) -> (String, usize) {
    let mut html = String::new();
    let mut left_out: usize = parts.iter().map(|part| part.left_out).sum();
    for card in parts.iter().flat_map(|part| &part.cards) {
        match html.len().saturating_add(card.len()) <= MAX_CARDS_BYTES {
            true => html.push_str(card),
            false => left_out = left_out.saturating_add(1),
        }
    }
    if left_out > 0 {
        let left = words::count(left_out as u64, "further call");
        let note =
            ["<p class=\"dim\">Too long to be shown here: ", &left, ". <code>subtend approvals</code> lists all.</p>"];
        html.push_str(&note.concat());
    }
    (html, parts.iter().map(|part| part.all).sum())
}

/// Returns the page around the cards of these parts; `query` names the only shard, if any.
pub(super) fn page_of(
    frame: PageFrame,
    query: &str,
    parts: &[&ApprovalsPart],
    cards: String,
) -> Result<Html<String>, Refusal> {
    let now_ms = parts.iter().map(|part| part.now_ms).max().unwrap_or_default();
    html(&ApprovalsPage { frame: PageFrame { now_ms, ..frame }, stream: format!("/live/approvals{query}"), cards })
}

/// Returns the card of a call. One that is too long has the beginning of its arguments, and no button that approves it.
fn card(open: &OpenApproval) -> String {
    let of = &open.approval;
    let bytes = of.args.len().saturating_add(of.resource.len());
    // A plan that would be clipped is not shown whole.
    let is_whole = |plan: &Text| plan.len().max(exact(plan).len()) <= bounds::MAX_MESSAGE_BYTES;
    let fits = bytes <= bounds::MAX_MESSAGE_BYTES && of.plan.as_ref().is_none_or(is_whole);
    let args = fits.then(|| entries::pretty(&of.args));
    let args = args.filter(|args| args.len() <= bounds::MAX_ENTRY_BYTES);
    let whole = args.and_then(|args| render_within(&Ask::new(open, Some(&args)), bounds::MAX_ENTRY_BYTES));
    whole.unwrap_or_else(|| render_fragment(&Ask::new(open, None)))
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
            always: of.always_scope().filter(|_| args.is_some()),
            whole: args.is_some(),
        }
    }
}

pub(super) fn badge(asks: usize) -> Fragment {
    Fragment::new("asks", count_text(asks), Swap::Inner)
}

fn count_text(asks: usize) -> String {
    if asks == 0 { String::new() } else { asks.to_string() }
}

pub(super) async fn page(State(host): State<Host>) -> Result<Html<String>, Refusal> {
    let part = ApprovalsPart::read(&host, None).await?;
    let (cards, _) = cards(&[&part]);
    page_of(PageFrame::new(&host, "Approvals", "approvals").await, "", &[&part], cards)
}

/// Returns the fragments of a view of these parts.
pub(super) fn fragments(parts: &[&ApprovalsPart]) -> Vec<Fragment> {
    let (cards, all) = cards(parts);
    vec![Fragment::new("cards", cards, Swap::Inner), badge(all)]
}

struct LiveApprovals;

impl live::LiveView for LiveApprovals {
    async fn changed(&mut self, host: &Host, _: &Changes) -> Result<Vec<Fragment>, Problem> {
        Ok(fragments(&[&ApprovalsPart::read(host, None).await?]))
    }
}

pub(super) async fn live(State(host): State<Host>) -> Response {
    live::follow(&host, None, LiveApprovals)
}

/// Returns the number of calls that wait for an approval; an empty text for zero.
pub(super) async fn count(State(host): State<Host>) -> Result<Html<String>, Refusal> {
    Ok(Html(count_text(host.runtime().waiting_calls().await?.len())))
}

#[cfg(test)]
mod tests {
    use subtend_actors::Approval;
    use subtend_session::ids::{CallId, Epoch, RunNo, Seq, Short, TurnNo};
    use subtend_session::index::Head;
    use subtend_session::state::Phase;
    use uuid::Uuid;

    use super::*;

    fn waiting(tool: &str, action: &str, plan: Option<String>) -> OpenApproval {
        let id = SessionId(Uuid::from_u128(7));
        let head = Head {
            parent: None,
            root: id,
            short: Short("build".into()),
            agent: "build".into(),
            depth: 0,
            inspectable: true,
            last_seq: Seq(1),
            epoch: Epoch(1),
            state: Phase::Working,
            kind: None,
            closed: false,
            deleted: false,
            imported: false,
            last_outcome: None,
            title: "Build it".into(),
            created_ms: 0,
            updated_ms: 0,
        };
        let approval = Approval {
            root: id,
            session: id,
            path: "build".to_owned(),
            call: CallId { turn: TurnNo(1), ix: 0 },
            tool: tool.into(),
            args: "{}".into(),
            action: action.into(),
            resource: "make".into(),
            plan: plan.map(Text::from),
            deadline_ms: None,
        };
        OpenApproval { approval, run: RunNo(1), head }
    }

    fn buttons(open: &OpenApproval) -> Vec<String> {
        let html = card(open);
        let texts = html.split("<button ").skip(1).filter_map(|rest| Some(rest.split_once('>')?.1.split_once('<')?.0));
        texts.map(str::to_owned).collect()
    }

    /// A plan approved for the session would be approved once only, so the card does not offer it. The control: a
    /// command, whose button says what it covers.
    #[test]
    fn cards_offer_only_what_an_approval_covers() {
        let command = buttons(&waiting("shell", "shell.run", None));
        assert_eq!(command, ["Approve once", "Approve for this session: this command", "Deny"]);
        let edit = buttons(&waiting("edit", "file.write", None));
        let covers = "Approve for this session: this tool on this resource, with any content";
        assert_eq!(edit, ["Approve once", covers, "Deny"]);
        assert_eq!(buttons(&waiting("process", "shell.run", None)), ["Approve once", "Deny"]);
        assert_eq!(buttons(&waiting("plan_exit", "plan_exit", Some("1. Do".to_owned()))), ["Approve once", "Deny"]);
    }

    /// A plan whose end is not shown must not be approved. The control: one that is shown whole.
    #[test]
    fn plan_too_long_to_be_shown_cannot_be_approved() {
        let plan = |bytes| waiting("plan_exit", "plan_exit", Some("a ".repeat(bytes / 2)));
        assert_eq!(buttons(&plan(64)), ["Approve once", "Deny"]);
        assert_eq!(buttons(&plan(bounds::MAX_MESSAGE_BYTES + 2)), ["Deny"]);
    }
}
