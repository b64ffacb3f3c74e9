//! Lays out the live tree as styled lines that fit the terminal.

use std::collections::BTreeSet;

use anstyle::Style;
use subtend_session::call::CallEnd;
use subtend_session::ids::SessionId;
use tokio::time::Instant;
use unicode_width::UnicodeWidthStr as _;

use super::super::cause;
use super::super::paint::{
    APPROVAL_MARK, APPROVAL_TEXT, BAD, BOLD, CAUTION, DIM, GOOD, LIVE, Styled, clip, count, fill, format_duration,
    limited, mark, tokens,
};
use super::live::{ActivityUpdate, LiveNode, LiveTree, NodeActivity};

pub(super) type StyledLine = Vec<(Style, String)>;

const SPINNER: [&str; 4] = ["◐", "◓", "◑", "◒"];

/// Returns the tree in at most `rows` lines of `columns`; `tick` selects the frame of the spinners.
pub(super) fn tree(live: &LiveTree, now: Instant, (rows, columns): (usize, usize), tick: usize) -> Vec<StyledLine> {
    let all = live.in_order();
    let shown = visible_sessions(&all, rows.max(2));
    let visible: Vec<_> = all.iter().filter(|(id, _)| shown.contains(id)).map(|(_, node)| *node).collect();
    let widest = |of: &dyn Fn(&LiveNode) -> String| visible.iter().map(|node| of(node).width()).max().unwrap_or(0);
    let activity = |node: &LiveNode| activity(node, live.running(node));
    let stops = (widest(&name).min(columns / 2), widest(&activity).min(columns / 3));
    let mut lines: Vec<_> = visible
        .iter()
        .map(|node| fit(line(node, activity(node), usage_text(node, live, now), stops, tick), columns))
        .collect();
    if visible.len() < all.len() {
        let hidden: Vec<_> = all.iter().filter(|(id, _)| !shown.contains(id)).map(|(_, node)| *node).collect();
        lines.push(fit(vec![(DIM, rest(&hidden))], columns));
    }
    lines
}

/// Chooses the sessions to show: active, then waiting, then the last that ended, and always parents of shown ones.
fn visible_sessions(all: &[(SessionId, &LiveNode)], rows: usize) -> BTreeSet<SessionId> {
    if all.len() <= rows {
        return all.iter().map(|(id, _)| *id).collect();
    }
    // One line is reserved for the count of hidden sessions.
    let rows = rows.saturating_sub(1);
    let mut ranked: Vec<_> = all.iter().enumerate().collect();
    ranked.sort_by_key(|(place, (_, node))| match (&node.activity, node.ended) {
        _ if node.depth == 0 => (0, None, *place),
        (
            NodeActivity::Thinking
            | NodeActivity::Compacting
            | NodeActivity::Writing
            | NodeActivity::Tools
            | NodeActivity::Asks
            | NodeActivity::Held(_),
            _,
        ) => (1, None, *place),
        (NodeActivity::Waiting | NodeActivity::Limited(_), _) => (2, None, *place),
        (NodeActivity::Idle | NodeActivity::Queued, _) => (3, None, *place),
        (NodeActivity::Ended(_), ended) => (4, ended.map(std::cmp::Reverse), *place),
    });
    let mut shown = BTreeSet::new();
    for (place, (id, _)) in ranked {
        let missing_ancestors: Vec<_> = ancestors(all, place).filter(|id| !shown.contains(id)).collect();
        if shown.len().saturating_add(missing_ancestors.len()) < rows {
            shown.extend(missing_ancestors);
            shown.insert(*id);
        }
    }
    shown
}

/// Returns the ancestors of the session at `place`: each is the nearest earlier session with a smaller depth.
fn ancestors<'a>(all: &'a [(SessionId, &LiveNode)], place: usize) -> impl Iterator<Item = SessionId> + 'a {
    let mut depth = all.get(place).map_or(0, |(_, node)| node.depth);
    let nearer = move |(id, node): &(SessionId, &LiveNode)| {
        if node.depth >= depth {
            return None;
        }
        depth = node.depth;
        Some(*id)
    };
    all.iter().take(place).rev().filter_map(nearer)
}

fn name(node: &LiveNode) -> String {
    let indent = "  ".repeat(node.depth);
    let agent = clip(&node.agent, 32);
    if node.short.is_empty() { format!("{indent}  {agent}") } else { format!("{indent}  {agent} {}", node.short) }
}

fn line(
    node: &LiveNode,
    activity: String,
    numbers: String,
    (names, doings): (usize, usize),
    tick: usize,
) -> StyledLine {
    let (sign, style) = sign(node, tick);
    let whole = name(node);
    let indent = "  ".repeat(node.depth);
    let rest = whole.get(indent.len()..).unwrap_or_default().trim_start().to_owned();
    vec![
        (style, format!("{indent}{sign} ")),
        (BOLD, rest),
        (Style::new(), fill(&whole, names)),
        (style, if activity.is_empty() { String::new() } else { format!("  {activity}") }),
        (DIM, if numbers.is_empty() { numbers } else { format!("{}  {numbers}", fill(&activity, doings)) }),
    ]
}

/// Returns turns, tokens and time of the last run; for the root also the tokens of the tree.
fn usage_text(node: &LiveNode, live: &LiveTree, now: Instant) -> String {
    if node.activity == NodeActivity::Idle {
        return String::new();
    }
    let mut numbers =
        vec![format!("turn {}", node.turns), tokens(node.tokens), format_duration(node.working_time(now))];
    let all = live.tokens();
    if node.depth == 0 && all > node.tokens {
        numbers.push(format!("{} in all", tokens(all)));
    }
    numbers.join(" · ")
}

fn sign(node: &LiveNode, tick: usize) -> (&'static str, Style) {
    match &node.activity {
        NodeActivity::Idle | NodeActivity::Queued => ("○", DIM),
        NodeActivity::Thinking | NodeActivity::Compacting | NodeActivity::Writing | NodeActivity::Tools => {
            (SPINNER.get(tick % SPINNER.len()).copied().unwrap_or("●"), LIVE)
        }
        NodeActivity::Waiting | NodeActivity::Limited(_) => ("◌", DIM),
        NodeActivity::Asks => APPROVAL_MARK,
        NodeActivity::Held(_) => ("■", CAUTION),
        NodeActivity::Ended(outcome) => mark(*outcome),
    }
}

fn activity(node: &LiveNode, running: usize) -> String {
    match &node.activity {
        NodeActivity::Idle => String::new(),
        NodeActivity::Queued => "queued".to_owned(),
        NodeActivity::Thinking => "thinking".to_owned(),
        NodeActivity::Compacting => "compacting".to_owned(),
        NodeActivity::Writing => "writing".to_owned(),
        NodeActivity::Waiting if running == 0 => "waiting".to_owned(),
        NodeActivity::Waiting => format!("waiting for {}", count(running as u64, "subagent")),
        NodeActivity::Limited(until) => limited(*until),
        NodeActivity::Asks => APPROVAL_TEXT.to_owned(),
        NodeActivity::Held(why) => (*why).to_owned(),
        NodeActivity::Ended(outcome) => outcome.as_str().to_owned(),
        NodeActivity::Tools => {
            let mut tools = node.tools();
            match (tools.next(), tools.count()) {
                (None, _) => "working".to_owned(),
                (Some(tool), 0) => tool.to_owned(),
                (Some(tool), more) => format!("{tool} and {more} more"),
            }
        }
    }
}

fn rest(hidden: &[&LiveNode]) -> String {
    let ended = hidden.iter().filter(|node| matches!(node.activity, NodeActivity::Ended(_))).count();
    let queued = hidden.iter().filter(|node| node.activity == NodeActivity::Queued).count();
    let active = hidden.len().saturating_sub(ended).saturating_sub(queued);
    let parts = [(active, "active"), (queued, "queued"), (ended, "ended")];
    let parts: Vec<_> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
    format!("… {} more: {}", hidden.len(), parts.join(", "))
}

/// Truncates a line to the width of the terminal: a wrapped line would move everything below it.
fn fit(line: StyledLine, columns: usize) -> StyledLine {
    let mut left = columns.saturating_sub(1);
    let mut out = StyledLine::new();
    for (style, text) in line {
        let width = text.width();
        if width > left {
            // `clip` trims spaces; leading ones must stay to separate the parts.
            let gap = text.len().saturating_sub(text.trim_start().len()).min(left);
            out.push((style, format!("{}{}", " ".repeat(gap), clip(text.trim_start(), left.saturating_sub(gap)))));
            break;
        }
        left = left.saturating_sub(width);
        out.push((style, text));
    }
    out
}

pub(super) fn paint(line: &StyledLine, colours: bool) -> String {
    line.iter().map(|(style, text)| if colours { Styled(*style, text).to_string() } else { text.clone() }).collect()
}

pub(super) fn activity_line(node: &LiveNode, news: &ActivityUpdate, now: Instant) -> StyledLine {
    let mut line = vec![(BOLD, clip(&node.agent, 32)), (DIM, format!(" {}", node.short))];
    if node.short.is_empty() {
        line.truncate(1);
    }
    let indent = "  ".repeat(node.depth);
    line.insert(0, (Style::new(), indent));
    match news {
        ActivityUpdate::Created => line.push((DIM, "  started".to_owned())),
        ActivityUpdate::Tool(brief) => {
            line.push((LIVE, format!("  {brief}")));
            line.push((DIM, format!("  turn {}", node.turns)));
        }
        ActivityUpdate::Called(brief, _, end, result) => {
            let (sign, style, why) = describe_end(end, result);
            line.insert(0, (style, format!("{sign} ")));
            line.push((Style::new(), format!("  {brief}")));
            line.push((style, why));
        }
        ActivityUpdate::Failed(message) => line.push((CAUTION, format!("  model: {}", clip(message, 160)))),
        ActivityUpdate::Compacted(message) => line.push((CAUTION, format!("  {}", clip(message, 160)))),
        ActivityUpdate::Ended(outcome) => {
            let (sign, style) = mark(outcome.kind());
            let numbers =
                [count(node.turns, "turn"), tokens(node.tokens), format_duration(node.working_time(now))].join(" · ");
            line.push((style, format!("  {sign} {}", clip(&cause::describe_outcome(outcome), 160))));
            line.push((DIM, format!("  {numbers}")));
        }
    }
    line
}

/// Returns the mark of a call's end, and the reason if it failed.
fn describe_end(end: &CallEnd, result: &str) -> (&'static str, Style, String) {
    let why = |word: &str| format!("  {word}: {}", clip(result, 60));
    match end {
        CallEnd::Ok | CallEnd::Backgrounded => ("✓", GOOD, String::new()),
        CallEnd::ToolError { .. } => ("✗", BAD, why("failed")),
        CallEnd::Denied => ("✗", BAD, why("denied")),
        CallEnd::TimedOut => ("✗", BAD, why("timed out")),
        CallEnd::Interrupted => ("■", CAUTION, "  interrupted".to_owned()),
        CallEnd::Cancelled => ("■", CAUTION, "  cancelled".to_owned()),
        CallEnd::UnknownEffects => ("■", CAUTION, "  interrupted, and may have had effects".to_owned()),
    }
}

#[cfg(test)]
mod tests;
