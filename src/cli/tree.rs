use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use serde::Serialize;
use subtend_actors::boot::preview_recovery;
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
    APPROVAL_MARK, APPROVAL_TEXT, BAD, BOLD, DIM, MARKS, Styled, UNKNOWN_WORK, activity, clip, count, harmless,
    in_flight, mark, phase_mark, tokens, work_span,
};
use super::store_reader::StoreReader;
use crate::cli::json;

/// Shows a session and its descendants, with the outcome of each run.
#[derive(clap::Args, Debug)]
#[command(after_help = MARKS)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    #[arg(value_name = "ID")]
    session: String,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// A session of a tree. The JSON leaves out some fields, which `show --json` prints.
#[derive(Serialize)]
struct TreeNode {
    id: SessionId,
    #[serde(skip)]
    short: Short,
    agent: Text,
    #[serde(skip)]
    title: Text,
    state: Phase,
    /// Unix time in ms until which its run is parked at a provider's limit.
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
    /// True for a branch of a user without inherited messages.
    #[serde(skip)]
    fresh: bool,
    /// True if the session has a worktree of its own, whose changes may not be merged yet.
    #[serde(skip)]
    isolated: bool,
    /// Reason if the session's journal cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    branch: Option<Branch>,
    children: Vec<TreeNode>,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    let reader = StoreReader::open_existing(&args.store)?;
    let top = reader.find(&args.session)?;
    let read = |id| {
        let history = reader.records(id).map(|records| History::of(&records))?;
        let why = reader.damaged().reason(id).map(|why| format!("its row in the index is damaged: {why}"));
        Ok((history, why))
    };
    let tree = build(reader.heads(), &reader.sessions_waiting_for_approval()?, top, &read)?;
    let fates = if reader.is_hosted() || args.json { None } else { Some(preview_recovery(reader.journal())?) };
    reader.release();
    let mut out = anstream::stdout().lock();
    if args.json {
        json::write_line(&mut out, &tree)?;
    } else {
        let mut text = String::new();
        draw(&tree, &mut Vec::new(), &mut text);
        write!(out, "{text}")?;
        let fates = fates.as_ref().map(|(resuming, queued)| (resuming, queued));
        writeln!(out, "{}", footer(&tree, fates))?;
    }
    Ok(if has_unreadable(&tree) { Code::Failed } else { Code::Done })
}

/// Function that reads the history of a session, with its damage, if any.
type ReadSession<'a> = dyn Fn(SessionId) -> Result<(History, Option<String>), Fail> + 'a;

/// Builds the tree below `top`; `asking` are the sessions that wait for approval. A session that cannot be read is shown
/// with the reason; the others are still shown.
fn build(
    heads: &Heads,
    asking: &BTreeSet<SessionId>,
    top: SessionId,
    read: &ReadSession<'_>,
) -> Result<TreeNode, Fail> {
    let mut children_of: BTreeMap<SessionId, Vec<SessionId>> = BTreeMap::new();
    for (id, parent) in heads.iter().filter_map(|(id, head)| head.parent.map(|parent| (id, parent))) {
        children_of.entry(parent).or_default().push(*id);
    }
    // Parents come before children. Each session is visited once: a damaged store may contain a cycle.
    let mut order = Vec::new();
    let mut seen = BTreeSet::from([top]);
    let mut next = vec![top];
    while let Some(id) = next.pop() {
        order.push(id);
        let children = children_of.get(&id).into_iter().flatten().copied();
        next.extend(children.filter(|child| seen.insert(*child)));
    }
    // The label of `top` is recorded in its parent, which is not part of this tree.
    let parent = heads.get(&top).and_then(|head| head.parent).and_then(|parent| read(parent).ok());
    let label = parent.and_then(|(history, _)| history.tasks.get(&top).cloned());
    let mut done: BTreeMap<SessionId, TreeNode> = BTreeMap::new();
    for id in order.into_iter().rev() {
        let head = heads.get(&id).ok_or_else(|| Fail::Other(format!("session {id} is not in the index")))?;
        let (history, error) = match read(id) {
            Ok(read) => read,
            Err(fail) => (History::default(), Some(fail.to_string())),
        };
        let known: Vec<_> = children_of.get(&id).into_iter().flatten().copied().collect();
        // Imported records may name any number of children of one call. One of them shows its task.
        let mut tasks = BTreeSet::new();
        let labelled = |child: &SessionId| {
            let mut node = done.remove(child)?;
            let own = history.tasks.get(child).filter(|task| tasks.insert(task.as_ptr()));
            if let (Some(branch), Some(label)) = (&mut node.branch, own) {
                branch.task = Some(label.clone());
            }
            Some(node)
        };
        let children = history.children.iter().chain(&known).filter_map(labelled).collect();
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
        isolated: history.worktree_of == Some(id),
        error,
        branch: None,
        children,
    }
}

/// Appends one line for each session. `lasts` contains for each ancestor whether it is the last of its siblings.
fn draw(node: &TreeNode, lasts: &mut Vec<bool>, text: &mut String) {
    if let Some((last, parent)) = lasts.split_last() {
        parent.iter().for_each(|last| text.push_str(if *last { "   " } else { "│  " }));
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
    let (sign, style, word) = status(node);
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
    if node.isolated {
        figures.push("worktree".to_owned());
    }
    if node.closed {
        figures.push("closed".to_owned());
    }
    format!(
        "{sign} {agent} {short}  {word}  {figures}  {title}",
        sign = Styled(style, sign),
        agent = Styled(BOLD, clip(&node.agent, 40)),
        short = Styled(DIM, &node.short),
        word = Styled(style, word),
        figures = Styled(DIM, figures.join(" · ")),
        title = clip(&node.title, 60),
    )
}

fn status(node: &TreeNode) -> (&'static str, anstyle::Style, String) {
    match (&node.error, &node.outcome) {
        (Some(error), _) => ("!", BAD, clip(&format!("unreadable: {error}"), 200)),
        (None, _) if node.asks => (APPROVAL_MARK.0, APPROVAL_MARK.1, APPROVAL_TEXT.to_owned()),
        (None, _) if in_flight(node.state) => {
            let (sign, style) = phase_mark(node.state);
            (sign, style, activity(node.state, node.limited_until))
        }
        (None, None) => ("○", DIM, "no run yet".to_owned()),
        (None, Some(outcome)) => {
            let (sign, style) = mark(outcome.kind());
            (sign, style, clip(&harmless(&cause::describe_outcome(outcome)), 200))
        }
    }
}

/// Returns the summary line. `fates`: sessions whose runs resume, and those that stay queued. Other runs end as lost.
fn footer(tree: &TreeNode, fates: Option<(&BTreeSet<SessionId>, &BTreeSet<SessionId>)>) -> String {
    let (mut sessions, mut usage) = (0_u64, Usage::default());
    let (mut live, mut resuming, mut queued, mut topmost) = (0_u64, 0_u64, 0_u64, None);
    visit_all(tree, &mut |node| {
        sessions = sessions.saturating_add(1);
        usage.add(&node.usage);
        if in_flight(node.state) {
            live = live.saturating_add(1);
            let Some((resume_set, starts)) = fates else { return };
            let (resumes, starts) = (resume_set.contains(&node.id), starts.contains(&node.id));
            resuming = resuming.saturating_add(u64::from(resumes));
            queued = queued.saturating_add(u64::from(starts));
            // Name only the topmost run, because the runs that it owns resume with it.
            if (resumes || starts) && topmost.is_none() {
                topmost = Some(node.short.clone());
            }
        }
    });
    let mut text = format!("{}, {} in all; session {}", count(sessions, "session"), tokens(usage.tokens()), tree.id);
    if fates.is_some() && live > 0 {
        // No process hosts the store, so runs in flight were left by a process that died.
        let were = if live == 1 { "1 run was".to_owned() } else { format!("{live} runs were") };
        let lost = live.saturating_sub(resuming).saturating_sub(queued);
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
        let runs = [(resuming, "resumes", "resume"), (queued, "starts", "start")];
        let runs = runs.into_iter().filter(|(runs, ..)| *runs > 0).map(|(runs, one, more)| count_text(runs, one, more));
        let runs = runs.collect::<Vec<_>>().join(", ");
        if let Some(short) = topmost {
            fates.push(format!("{runs} with the next command that runs agents (`subtend continue {short}`)"));
        }
        text.push_str(&format!("\n{were} in flight when the last process ended: {}", fates.join("; ")));
    }
    Styled(DIM, text).to_string()
}

fn has_unreadable(tree: &TreeNode) -> bool {
    let mut found = false;
    visit_all(tree, &mut |node| found |= node.error.is_some());
    found
}

fn visit_all<'a>(node: &'a TreeNode, visit: &mut dyn FnMut(&'a TreeNode)) {
    visit(node);
    node.children.iter().for_each(|child| visit_all(child, visit));
}

#[cfg(test)]
mod tests;
