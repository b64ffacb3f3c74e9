//! `subtend tree`: a session and everything below it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use serde::Serialize;
use subtend_actors::boot::at_next_boot;
use subtend_actors::history::History;
use subtend_actors::worked::Worked;
use subtend_session::ids::{SessionId, Short, Text};
use subtend_session::index::Head;
use subtend_session::outcome::Outcome;
use subtend_session::place::BranchKind;
use subtend_session::state::Phase;
use subtend_session::usage::Usage;

use super::branched::{Branch, is_fresh};
use super::cause;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::find::Heads;
use super::paint::{
    ASKS, ASKS_WORD, BAD, BOLD, DIM, In, MARKS, UNKNOWN_WORK, clip, count, doing, flight_mark, harmless, in_flight,
    mark, tokens, work_span,
};
use super::store_reader::StoreReader;
use crate::cli::json;

/// Shows a session and everything below it, with how each run ended.
#[derive(clap::Args, Debug)]
#[command(after_help = MARKS)]
pub(crate) struct Args {
    /// Session: its id, the start of it, a short name, or a path such as `root/a3f9c1`
    #[arg(value_name = "ID")]
    session: String,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// One session of a tree. Skipped fields are drawn for people; `show --json` has them for machines.
#[derive(Serialize)]
struct TreeNode {
    id: SessionId,
    #[serde(skip)]
    short: Short,
    agent: Text,
    #[serde(skip)]
    title: Text,
    state: Phase,
    /// Until when its run is parked at a provider's limit, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    limited_until: Option<i64>,
    outcome: Option<Outcome>,
    depth: u32,
    background: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<BranchKind>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    closed: bool,
    #[serde(skip)]
    runs: u32,
    #[serde(skip)]
    turns: u32,
    usage: Usage,
    #[serde(skip)]
    worked: Worked,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    asks: bool,
    /// Whether it is a person's branch without inherited messages.
    #[serde(skip)]
    fresh: bool,
    /// Why the session's journal cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    branch: Option<Branch>,
    children: Vec<TreeNode>,
}

pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let reader = StoreReader::must_open(&args.store)?;
    let top = reader.find(&args.session)?;
    let read = |id| {
        let history = reader.records(id).map(|records| History::of(&records))?;
        let why = reader.damaged().why(id).map(|why| format!("its row in the index is damaged: {why}"));
        Ok((history, why))
    };
    let tree = grow(reader.heads(), &reader.asking()?, top, &read)?;
    let mut out = anstream::stdout().lock();
    if args.json {
        json::write(&mut out, &tree)?;
        writeln!(out)?;
    } else {
        let mut text = String::new();
        draw(&tree, &mut Vec::new(), &mut text);
        write!(out, "{text}")?;
        let fates = at_next_boot(&reader.journal().inflight()?);
        let fates = (!reader.is_hosted()).then_some((&fates.0, &fates.1));
        writeln!(out, "{}", footer(&tree, fates))?;
    }
    Ok(if broken(&tree) { Code::Failed } else { Code::Done })
}

/// Reads the history of a session, and its damage, if any.
type ReadSession<'a> = dyn Fn(SessionId) -> Result<(History, Option<String>), Fail> + 'a;

/// Builds the tree below `top`; `asking` are the sessions that wait for approval. A session that cannot be read is shown with the reason and hides no other.
fn grow(heads: &Heads, asking: &BTreeSet<SessionId>, top: SessionId, read: &ReadSession<'_>) -> Result<TreeNode, Fail> {
    let mut kids: BTreeMap<SessionId, Vec<SessionId>> = BTreeMap::new();
    for (id, parent) in heads.iter().filter_map(|(id, head)| head.parent.map(|parent| (id, parent))) {
        kids.entry(parent).or_default().push(*id);
    }
    // Parents before children, each session once: a damaged store may hold a ring.
    let mut order = Vec::new();
    let mut seen = BTreeSet::from([top]);
    let mut next = vec![top];
    while let Some(id) = next.pop() {
        order.push(id);
        let below = kids.get(&id).into_iter().flatten().copied();
        next.extend(below.filter(|kid| seen.insert(*kid)));
    }
    // Its parent is not in the tree.
    let above = heads.get(&top).and_then(|head| head.parent).and_then(|parent| read(parent).ok());
    let label = above.and_then(|(history, _)| history.tasks.get(&top).cloned());
    let mut done: BTreeMap<SessionId, TreeNode> = BTreeMap::new();
    for id in order.into_iter().rev() {
        let head = heads.get(&id).ok_or_else(|| Fail::Other(format!("session {id} is not in the index")))?;
        let (history, error) = match read(id) {
            Ok(read) => read,
            Err(fail) => (History::default(), Some(fail.to_string())),
        };
        let known: Vec<_> = kids.get(&id).into_iter().flatten().copied().collect();
        let labelled = |kid: &SessionId| {
            let mut node = done.remove(kid)?;
            if let (Some(branch), Some(label)) = (&mut node.branch, history.tasks.get(kid)) {
                branch.task = Some(label.clone());
            }
            Some(node)
        };
        let children = history.born.iter().chain(&known).filter_map(labelled).collect();
        let branch = Branch::of(id, head, &history, label.as_ref().filter(|_| id == top));
        done.insert(id, TreeNode { branch, asks: asking.contains(&id), ..node(id, head, history, error, children) });
    }
    done.remove(&top).ok_or_else(|| Fail::Other(format!("session {top} is its own descendant: run `subtend verify`")))
}

fn node(id: SessionId, head: &Head, history: History, error: Option<String>, children: Vec<TreeNode>) -> TreeNode {
    TreeNode {
        id,
        short: head.short.clone(),
        agent: head.agent.clone(),
        title: head.title.clone(),
        state: head.state,
        limited_until: history.limited_until,
        outcome: history.outcome,
        depth: head.depth,
        background: history.background,
        kind: head.kind.filter(|kind| *kind != BranchKind::Subagent),
        closed: head.closed,
        runs: history.run.0,
        turns: history.turns,
        usage: history.usage,
        worked: history.worked,
        asks: false,
        fresh: history.place.as_ref().is_some_and(is_fresh),
        error,
        branch: None,
        children,
    }
}

/// Appends one line for each session; `lasts` says for each level above whether its session is the last of its siblings.
fn draw(node: &TreeNode, lasts: &mut Vec<bool>, text: &mut String) {
    if let Some((last, above)) = lasts.split_last() {
        above.iter().for_each(|last| text.push_str(if *last { "   " } else { "│  " }));
        text.push_str(if *last { "└─ " } else { "├─ " });
    }
    text.push_str(&line(node));
    text.push('\n');
    let many = node.children.len();
    for (place, child) in node.children.iter().enumerate() {
        lasts.push(place.saturating_add(1) == many);
        draw(child, lasts, text);
        lasts.pop();
    }
}

fn line(node: &TreeNode) -> String {
    let (sign, style, word) = standing(node);
    let mut figures = vec![count(node.turns, "turn"), tokens(node.usage.tokens())];
    if node.runs > 1 {
        figures.insert(0, count(node.runs, "run"));
    }
    if node.worked != Worked::default() {
        figures.push(work_span(node.worked).unwrap_or_else(|| UNKNOWN_WORK.to_owned()));
    }
    if node.background {
        figures.push("background".to_owned());
    }
    match node.kind {
        Some(BranchKind::Human) => figures.push("branch".to_owned()),
        Some(BranchKind::Alternative) => figures.push("alternative".to_owned()),
        Some(BranchKind::Service) => figures.push("service".to_owned()),
        Some(BranchKind::Subagent) | None if node.fresh => figures.push("branch".to_owned()),
        Some(BranchKind::Subagent) | None => {}
    }
    if node.closed {
        figures.push("closed".to_owned());
    }
    format!(
        "{sign} {agent} {short}  {word}  {figures}  {title}",
        sign = In(style, sign),
        agent = In(BOLD, clip(&node.agent, 40)),
        short = In(DIM, &node.short),
        word = In(style, word),
        figures = In(DIM, figures.join(" · ")),
        title = clip(&node.title, 60),
    )
}

fn standing(node: &TreeNode) -> (&'static str, anstyle::Style, String) {
    match (&node.error, &node.outcome) {
        (Some(error), _) => ("!", BAD, clip(&format!("unreadable: {error}"), 200)),
        (None, _) if node.asks => (ASKS.0, ASKS.1, ASKS_WORD.to_owned()),
        (None, _) if in_flight(node.state) => {
            let (sign, style) = flight_mark(node.state);
            (sign, style, doing(node.state, node.limited_until))
        }
        (None, None) => ("○", DIM, "no run yet".to_owned()),
        (None, Some(outcome)) => {
            let (sign, style) = mark(outcome.kind());
            (sign, style, clip(&harmless(&cause::sentence(outcome)), 200))
        }
    }
}

/// `fates` are the sessions whose runs resume and those whose runs stay queued; other runs in flight end as lost.
fn footer(tree: &TreeNode, fates: Option<(&BTreeSet<SessionId>, &BTreeSet<SessionId>)>) -> String {
    let (mut sessions, mut usage) = (0_u64, Usage::default());
    let (mut live, mut going, mut kept, mut left) = (0_u64, 0_u64, 0_u64, None);
    each(tree, &mut |node| {
        sessions = sessions.saturating_add(1);
        usage.add(&node.usage);
        if in_flight(node.state) {
            live = live.saturating_add(1);
            let Some((goes_on, keeps)) = fates else { return };
            let (goes, keeps) = (goes_on.contains(&node.id), keeps.contains(&node.id));
            going = going.saturating_add(u64::from(goes));
            kept = kept.saturating_add(u64::from(keeps));
            // The topmost run: the runs that it owns resume with it.
            if (goes || keeps) && left.is_none() {
                left = Some(node.short.clone());
            }
        }
    });
    let mut text = format!("{}, {} in all; session {}", count(sessions, "session"), tokens(usage.tokens()), tree.id);
    if fates.is_some() && live > 0 {
        // No other process holds the store while it is read: runs in flight were left by a dead one.
        let were = if live == 1 { "1 run was".to_owned() } else { format!("{live} runs were") };
        let lost = live.saturating_sub(going).saturating_sub(kept);
        let count_text = |runs: u64, one: &str, more: &str| match runs {
            1 if live == 1 => format!("it {one}"),
            all if all == live => format!("they {more}"),
            1 => format!("1 {one}"),
            some => format!("{some} {more}"),
        };
        let mut fates = Vec::new();
        if lost > 0 {
            let lost = count_text(lost, "ends as lost", "end as lost");
            fates.push(format!("{lost} with the next command that changes this store"));
        }
        let runs = [(going, "resumes", "resume"), (kept, "starts", "start")];
        let runs = runs.into_iter().filter(|(runs, ..)| *runs > 0).map(|(runs, one, more)| count_text(runs, one, more));
        let runs = runs.collect::<Vec<_>>().join(", ");
        if let Some(short) = left {
            fates.push(format!("{runs} with the next command that lets agents work (`subtend continue {short}`)"));
        }
        text.push_str(&format!("\n{were} in flight when the last process ended: {}", fates.join("; ")));
    }
    In(DIM, text).to_string()
}

fn broken(tree: &TreeNode) -> bool {
    let mut found = false;
    each(tree, &mut |node| found |= node.error.is_some());
    found
}

fn each<'a>(node: &'a TreeNode, visit: &mut dyn FnMut(&'a TreeNode)) {
    visit(node);
    node.children.iter().for_each(|child| each(child, visit));
}

#[cfg(test)]
mod tests;
