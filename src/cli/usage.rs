use std::io::Write as _;
use std::path::Path;

use serde::Serialize;
use subtend_actors::usage::{ChildUsage, ContextShare, UsageView};
use subtend_session::ids::{SessionId, Short, Text};
use subtend_session::usage::Usage;

use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::paint::{BOLD, DIM, Styled, ago, clip, size, tokens};
use super::store_reader::StoreReader;
use super::trust::Trust;
use super::{settings, workspace};
use crate::cli::json;

/// Shows the usage of a session: its own, with the runs that it owns, and with all its descendants.
///
/// Each of these sums counts a model call only once.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    session: String,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Serialize)]
struct SessionUsage<'a> {
    id: SessionId,
    parent: Option<SessionId>,
    own: &'a Usage,
    owned: &'a Usage,
    tree: &'a Usage,
    context: ContextUse,
    children: Vec<ChildRow<'a>>,
    recorded: u64,
    recorded_below: u64,
    created_ms: i64,
    updated_ms: i64,
}

/// Use of the model's context at the last answer; 0 before the first one.
#[derive(Serialize)]
struct ContextUse {
    used: u64,
    window: KnownCount,
    percent: KnownCount,
}

#[derive(Serialize)]
#[serde(untagged)]
enum KnownCount {
    Number(u64),
    Unknown(&'static str),
}

impl From<Option<u64>> for KnownCount {
    fn from(number: Option<u64>) -> Self {
        number.map_or(Self::Unknown("unknown"), Self::Number)
    }
}

impl From<Option<ContextShare>> for ContextUse {
    fn from(share: Option<ContextShare>) -> Self {
        let of = share.unwrap_or(ContextShare { used: 0, window: None });
        Self { used: of.used, window: of.window.into(), percent: of.percent().into() }
    }
}

#[derive(Serialize)]
struct ChildRow<'a> {
    id: SessionId,
    short: &'a Short,
    agent: &'a Text,
    own: &'a Usage,
    context: ContextUse,
    recorded: u64,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    let workspace = workspace::open(Path::new("."))?;
    let windows = settings::load(&workspace, Trust::decide_and_warn(&workspace)?)?.config.llm.windows();
    let reader = StoreReader::open_existing(&args.store)?;
    let id = reader.find(&args.session)?;
    let view = UsageView::read(reader.journal(), id, |model| windows.of(model))?;
    reader.release();
    let mut out = anstream::stdout().lock();
    if args.json {
        json::write_line(&mut out, &usage_of(id, &view))?;
        return Ok(Code::Done);
    }
    lines(&view, super::clock::wall_ms()).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    Ok(Code::Done)
}

fn usage_of(id: SessionId, view: &UsageView) -> SessionUsage<'_> {
    let UsageView { own, owned, tree, parent, children, recorded, recorded_below, created_ms, updated_ms, .. } = view;
    SessionUsage {
        id,
        parent: *parent,
        own,
        owned,
        tree,
        context: view.context.into(),
        children: children.iter().map(child).collect(),
        recorded: *recorded,
        recorded_below: *recorded_below,
        created_ms: *created_ms,
        updated_ms: *updated_ms,
    }
}

fn child(usage: &ChildUsage) -> ChildRow<'_> {
    let ChildUsage { session, short, agent, own, context, recorded } = usage;
    ChildRow { id: *session, short, agent, own, context: (*context).into(), recorded: *recorded }
}

fn lines(view: &UsageView, now: i64) -> Vec<String> {
    let line = |name: &str, text: String| format!("{}  {}", Styled(BOLD, format!("{name:17}")), Styled(DIM, text));
    let mut with_owned = view.own;
    with_owned.add(&view.owned);
    let mut lines = vec![
        line("session", amounts_text(&view.own)),
        line("with owned runs", amounts_text(&with_owned)),
        line("with descendants", amounts_text(&view.tree)),
    ];
    lines.extend(view.context.as_ref().map(|of| line("context", context(of))));
    // A store in memory does not count bytes.
    if view.recorded > 0 {
        let below = format!("{} · {} with descendants", size(view.recorded), size(view.recorded_below));
        lines.push(line("recorded", below));
    }
    lines.extend(view.parent.map(|parent| line("parent", parent.to_string())));
    // Stores of earlier versions may lack times.
    let times = [("created", view.created_ms), ("last changed", view.updated_ms)];
    lines.extend(times.iter().filter(|(_, ms)| *ms > 0).map(|(name, ms)| line(name, ago(now, *ms))));
    lines.extend(view.children.iter().map(|child| {
        let name = format!("{} {}", child.short, clip(&child.agent, 24));
        let share = child.context.as_ref().map(|of| format!(" · context {}", context(of))).unwrap_or_default();
        line(&format!("child {name}"), format!("{}{share}", amounts_text(&child.own)))
    }));
    lines
}

fn context(of: &ContextShare) -> String {
    match (of.window, of.percent()) {
        (Some(window), Some(percent)) => format!("{} of {window} ({percent}%)", tokens(of.used)),
        _ => format!("{} of unknown", tokens(of.used)),
    }
}

fn amounts_text(usage: &Usage) -> String {
    let named = [
        (usage.input, "in"),
        (usage.output, "out"),
        (usage.reasoning, "reasoning"),
        (usage.cache_new, "newly cached"),
        (usage.cache_read, "read from cache"),
    ];
    let mut parts: Vec<String> =
        named.iter().filter(|(tokens, _)| *tokens > 0).map(|(tokens, name)| format!("{tokens} {name}")).collect();
    if parts.is_empty() {
        parts.push("no tokens".to_owned());
    }
    if let Some(micro) = usage.cost_micro {
        parts.push(format!("${}.{:06}", micro / 1_000_000, micro % 1_000_000));
    }
    if usage.unreliable {
        parts.push("and calls without reported usage".to_owned());
    }
    parts.join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_prints_cost_and_missing_figures() {
        assert_eq!(amounts_text(&Usage::default()), "no tokens");
        let usage = Usage { input: 10, output: 2, cost_micro: Some(1_500_020), unreliable: true, ..Usage::default() };
        assert_eq!(amounts_text(&usage), "10 in · 2 out · $1.500020 · and calls without reported usage");
    }

    #[test]
    fn usage_prints_known_times_context_and_children() {
        let id: SessionId = "0192f0c1-2d3e-7abc-8def-0123456789ab".parse().expect("an id");
        let own = Usage { input: 10, output: 2, ..Usage::default() };
        let child = ChildUsage {
            session: id,
            short: Short("a3f9c1".into()),
            agent: "explore".into(),
            own,
            context: None,
            recorded: 0,
        };
        let context = Some(ContextShare { used: 1_500, window: Some(10_000) });
        let (children, parent) = (vec![child], Some(id));
        let (recorded, recorded_below) = (2_048, 3 << 20);
        let (owned, tree, updated_ms) = (own, own, 0);
        let view = UsageView {
            own,
            owned,
            tree,
            parent,
            children,
            context,
            recorded,
            recorded_below,
            created_ms: 1,
            updated_ms,
        };
        let plain = |view: &UsageView| -> Vec<String> {
            let lines = lines(view, 60_001);
            lines.iter().skip(1).map(|line| anstream::adapter::strip_str(line).to_string()).collect()
        };
        let sums = ["with owned runs    20 in · 4 out", "with descendants   10 in · 2 out"];
        let all = [
            "context            1.5k tokens of 10000 (15%)",
            "recorded           2.0 kB · 3.1 MB with descendants",
            "parent             0192f0c1-2d3e-7abc-8def-0123456789ab",
            "created            1 minute ago",
            "child a3f9c1 explore  10 in · 2 out",
        ];
        assert_eq!(plain(&view), [&sums[..], &all].concat());
        let context = Some(ContextShare { used: 1_500, window: None });
        let view = UsageView { parent: None, children: Vec::new(), context, recorded: 0, created_ms: 0, ..view };
        assert_eq!(plain(&view), [&sums[..], &["context            1.5k tokens of unknown"]].concat());
    }
}
