//! Lays out the live tree: styled lines fitted to a terminal.

use std::collections::BTreeSet;

use anstyle::Style;
use subtend_session::call::CallEnd;
use subtend_session::ids::SessionId;
use tokio::time::Instant;
use unicode_width::UnicodeWidthStr as _;

use super::super::cause;
use super::super::paint::{
    ASKS, ASKS_WORD, BAD, BOLD, DIM, GOOD, In, LIVE, ODD, clip, count, fill, limited, mark, span, tokens,
};
use super::live::{Doing, LiveNode, LiveTree, News};

pub(super) type StyledLine = Vec<(Style, String)>;

const WHEEL: [&str; 4] = ["◐", "◓", "◑", "◒"];

/// Returns the tree in at most `rows` lines of `columns`; `beat` turns the marks of what is under way.
pub(super) fn tree(live: &LiveTree, now: Instant, (rows, columns): (usize, usize), beat: usize) -> Vec<StyledLine> {
    let all = live.in_order();
    let shown = fitting(&all, rows.max(2));
    let visible: Vec<_> = all.iter().filter(|(id, _)| shown.contains(id)).map(|(_, node)| *node).collect();
    let widest = |of: &dyn Fn(&LiveNode) -> String| visible.iter().map(|node| of(node).width()).max().unwrap_or(0);
    let doing = |node: &LiveNode| doing(node, live.running(node));
    let stops = (widest(&name).min(columns / 2), widest(&doing).min(columns / 3));
    let mut lines: Vec<_> = visible
        .iter()
        .map(|node| fit(line(node, doing(node), figures(node, live, now), stops, beat), columns))
        .collect();
    if visible.len() < all.len() {
        let hidden: Vec<_> = all.iter().filter(|(id, _)| !shown.contains(id)).map(|(_, node)| *node).collect();
        lines.push(fit(vec![(DIM, rest(&hidden))], columns));
    }
    lines
}

/// Chooses the shown sessions: active ones, then waiting ones, then the last that ended; each only below a shown
/// parent.
fn fitting(all: &[(SessionId, &LiveNode)], rows: usize) -> BTreeSet<SessionId> {
    if all.len() <= rows {
        return all.iter().map(|(id, _)| *id).collect();
    }
    // One line says what is left out.
    let rows = rows.saturating_sub(1);
    let mut ranked: Vec<_> = all.iter().enumerate().collect();
    ranked.sort_by_key(|(place, (_, node))| match (&node.doing, node.ended) {
        _ if node.depth == 0 => (0, None, *place),
        (Doing::Thinking | Doing::Compacting | Doing::Writing | Doing::Tools | Doing::Asks | Doing::Held(_), _) => {
            (1, None, *place)
        }
        (Doing::Waiting | Doing::Limited(_), _) => (2, None, *place),
        (Doing::Idle | Doing::Queued, _) => (3, None, *place),
        (Doing::Ended(_), ended) => (4, ended.map(std::cmp::Reverse), *place),
    });
    let mut shown = BTreeSet::new();
    for (place, (id, _)) in ranked {
        let above: Vec<_> = ancestors(all, place).filter(|id| !shown.contains(id)).collect();
        if shown.len().saturating_add(above.len()) < rows {
            shown.extend(above);
            shown.insert(*id);
        }
    }
    shown
}

/// Returns the sessions above the one at `place`: in an order of parents before children, the nearest before it with a smaller depth.
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

fn line(node: &LiveNode, doing: String, figures: String, (names, doings): (usize, usize), beat: usize) -> StyledLine {
    let (sign, style) = sign(node, beat);
    let whole = name(node);
    let indent = "  ".repeat(node.depth);
    let rest = whole.get(indent.len()..).unwrap_or_default().trim_start().to_owned();
    vec![
        (style, format!("{indent}{sign} ")),
        (BOLD, rest),
        (Style::new(), fill(&whole, names)),
        (style, if doing.is_empty() { String::new() } else { format!("  {doing}") }),
        (DIM, if figures.is_empty() { figures } else { format!("{}  {figures}", fill(&doing, doings)) }),
    ]
}

/// Figures of the last run; at the root also what it cost with all below it.
fn figures(node: &LiveNode, live: &LiveTree, now: Instant) -> String {
    if node.doing == Doing::Idle {
        return String::new();
    }
    let mut figures = vec![format!("turn {}", node.turns), tokens(node.tokens), span(node.worked(now))];
    let all = live.tokens();
    if node.depth == 0 && all > node.tokens {
        figures.push(format!("{} in all", tokens(all)));
    }
    figures.join(" · ")
}

fn sign(node: &LiveNode, beat: usize) -> (&'static str, Style) {
    match &node.doing {
        Doing::Idle | Doing::Queued => ("○", DIM),
        Doing::Thinking | Doing::Compacting | Doing::Writing | Doing::Tools => {
            (WHEEL.get(beat % WHEEL.len()).copied().unwrap_or("●"), LIVE)
        }
        Doing::Waiting | Doing::Limited(_) => ("◌", DIM),
        Doing::Asks => ASKS,
        Doing::Held(_) => ("■", ODD),
        Doing::Ended(outcome) => mark(outcome.kind()),
    }
}

fn doing(node: &LiveNode, running: usize) -> String {
    match &node.doing {
        Doing::Idle => String::new(),
        Doing::Queued => "queued".to_owned(),
        Doing::Thinking => "thinking".to_owned(),
        Doing::Compacting => "compacting".to_owned(),
        Doing::Writing => "writing".to_owned(),
        Doing::Waiting if running == 0 => "waiting".to_owned(),
        Doing::Waiting => format!("waiting for {}", count(running as u64, "subagent")),
        Doing::Limited(until) => limited(*until),
        Doing::Asks => ASKS_WORD.to_owned(),
        Doing::Held(why) => format!("held: {why}"),
        Doing::Ended(outcome) => outcome.kind().word().to_owned(),
        Doing::Tools => {
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
    let ended = hidden.iter().filter(|node| matches!(node.doing, Doing::Ended(_))).count();
    let queued = hidden.iter().filter(|node| node.doing == Doing::Queued).count();
    let active = hidden.len().saturating_sub(ended).saturating_sub(queued);
    let parts = [(active, "under way"), (queued, "queued"), (ended, "ended")];
    let parts: Vec<_> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
    format!("… {} more: {}", hidden.len(), parts.join(", "))
}

/// Returns the line without what does not fit: a line that wraps would move everything below it.
fn fit(line: StyledLine, columns: usize) -> StyledLine {
    let mut left = columns.saturating_sub(1);
    let mut out = StyledLine::new();
    for (style, text) in line {
        let width = text.width();
        if width > left {
            // `clip` drops spaces at both ends: those at the start keep pieces apart.
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
    line.iter().map(|(style, text)| if colours { In(*style, text).to_string() } else { text.clone() }).collect()
}

/// Returns one piece of news as a line, where there is no live tree.
pub(super) fn news(node: &LiveNode, news: &News, now: Instant) -> StyledLine {
    let mut line = vec![(BOLD, clip(&node.agent, 32)), (DIM, format!(" {}", node.short))];
    if node.short.is_empty() {
        line.truncate(1);
    }
    let indent = "  ".repeat(node.depth);
    line.insert(0, (Style::new(), indent));
    match news {
        News::Born => line.push((DIM, "  started".to_owned())),
        News::Tool(brief) => {
            line.push((LIVE, format!("  {brief}")));
            line.push((DIM, format!("  turn {}", node.turns)));
        }
        News::Called(brief, _, end, result) => {
            let (sign, style, why) = called(end, result);
            line.insert(0, (style, format!("{sign} ")));
            line.push((Style::new(), format!("  {brief}")));
            line.push((style, why));
        }
        News::Failed(message) => line.push((ODD, format!("  model: {}", clip(message, 160)))),
        News::Compacted(message) => line.push((ODD, format!("  {}", clip(message, 160)))),
        News::Ended(outcome) => {
            let (sign, style) = mark(outcome.kind());
            let figures = [count(node.turns, "turn"), tokens(node.tokens), span(node.worked(now))].join(" · ");
            line.push((style, format!("  {sign} {}", clip(&cause::sentence(outcome), 160))));
            line.push((DIM, format!("  {figures}")));
        }
    }
    line
}

/// Returns how a call ended: its sign, and why it did not work.
fn called(end: &CallEnd, result: &str) -> (&'static str, Style, String) {
    let why = |word: &str| format!("  {word}: {}", clip(result, 60));
    match end {
        CallEnd::Ok | CallEnd::Backgrounded => ("✓", GOOD, String::new()),
        CallEnd::ToolError { .. } => ("✗", BAD, why("failed")),
        CallEnd::Denied => ("✗", BAD, why("denied")),
        CallEnd::TimedOut => ("✗", BAD, why("timed out")),
        CallEnd::Interrupted => ("■", ODD, "  interrupted".to_owned()),
        CallEnd::Cancelled => ("■", ODD, "  cancelled".to_owned()),
        CallEnd::UnknownEffects => ("■", ODD, "  interrupted, and may have had effects".to_owned()),
    }
}

#[cfg(test)]
mod tests;
