//! `subtend usage`: what a session cost.

use std::io::Write as _;

use serde::Serialize;
use subtend_actors::usage::{ChildUsage, ContextShare, UsageView};
use subtend_session::ids::{SessionId, Short, Text};
use subtend_session::usage::Usage;

use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::paint::{BOLD, DIM, In, ago, clip, tokens};
use super::shelf::Shelf;

/// Tells what a session cost: by itself, with the runs that it owns, and with everything below it.
///
/// Each model call is counted once in each of these.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, a unique part of one, or a path such as `root/a3f9c1`
    session: String,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Serialize)]
struct Told<'a> {
    id: SessionId,
    parent: Option<SessionId>,
    own: &'a Usage,
    owned: &'a Usage,
    tree: &'a Usage,
    context: Option<Context>,
    children: Vec<Child<'a>>,
    created_ms: i64,
    updated_ms: i64,
}

/// How full the model's context was at the last answer.
#[derive(Serialize)]
struct Context {
    used: u64,
    window: Option<u64>,
    percent: Option<u64>,
}

#[derive(Serialize)]
struct Child<'a> {
    id: SessionId,
    short: &'a Short,
    agent: &'a Text,
    own: &'a Usage,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let shelf = Shelf::must_open(&args.store)?;
    let id = shelf.find(&args.session)?;
    let view = UsageView::read(shelf.journal(), id, |_| None)?;
    let mut out = anstream::stdout().lock();
    if args.json {
        serde_json::to_writer(&mut out, &told(id, &view))?;
        writeln!(out)?;
        return Ok(Code::Done);
    }
    lines(&view, super::clock::wall_ms()).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    Ok(Code::Done)
}

fn told(id: SessionId, view: &UsageView) -> Told<'_> {
    let context = |of: &ContextShare| Context { used: of.used, window: of.window, percent: of.percent() };
    let UsageView { own, owned, tree, parent, children, created_ms, updated_ms, .. } = view;
    Told {
        id,
        parent: *parent,
        own,
        owned,
        tree,
        context: view.context.as_ref().map(context),
        children: children.iter().map(child).collect(),
        created_ms: *created_ms,
        updated_ms: *updated_ms,
    }
}

fn child(of: &ChildUsage) -> Child<'_> {
    let ChildUsage { session, short, agent, own } = of;
    Child { id: *session, short, agent, own }
}

fn lines(view: &UsageView, now: i64) -> Vec<String> {
    let line = |name: &str, said: String| format!("{}  {}", In(BOLD, format!("{name:17}")), In(DIM, said));
    let mut lines = vec![
        line("itself", figures(&view.own)),
        line("runs that it owns", figures(&view.owned)),
        line("the tree below", figures(&view.tree)),
    ];
    lines.extend(view.context.as_ref().map(|of| line("context", context(of))));
    lines.extend(view.parent.map(|parent| line("parent", parent.to_string())));
    // A store of a former version may not say when.
    let times = [("begun", view.created_ms), ("last changed", view.updated_ms)];
    lines.extend(times.iter().filter(|(_, ms)| *ms > 0).map(|(name, ms)| line(name, ago(now, *ms))));
    lines.extend(view.children.iter().map(|child| {
        let name = format!("{} {}", child.short, clip(&child.agent, 24));
        line(&format!("child {name}"), figures(&child.own))
    }));
    lines
}

/// How full the model's context was.
fn context(of: &ContextShare) -> String {
    match (of.window, of.percent()) {
        (Some(window), Some(percent)) => format!("{} of {window} ({percent}%)", tokens(of.used)),
        _ => tokens(of.used),
    }
}

/// Figures that are not zero, in words.
fn figures(usage: &Usage) -> String {
    let named = [
        (usage.input, "in"),
        (usage.output, "out"),
        (usage.reasoning, "reasoning"),
        (usage.cache_new, "cached anew"),
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
        parts.push("and some that nobody told".to_owned());
    }
    parts.join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_told_with_their_cost_and_their_holes() {
        assert_eq!(figures(&Usage::default()), "no tokens");
        let usage = Usage { input: 10, output: 2, cost_micro: Some(1_500_020), unreliable: true, ..Usage::default() };
        assert_eq!(figures(&usage), "10 in · 2 out · $1.500020 · and some that nobody told");
    }

    #[test]
    fn times_the_context_and_children_are_told_where_they_are_known() {
        let id: SessionId = "0192f0c1-2d3e-7abc-8def-0123456789ab".parse().expect("an id");
        let own = Usage { input: 10, output: 2, ..Usage::default() };
        let child = ChildUsage { session: id, short: Short("a3f9c1".into()), agent: "explore".into(), own };
        let context = Some(ContextShare { used: 1_500, window: Some(10_000) });
        let (children, parent) = (vec![child], Some(id));
        let view = UsageView { own, owned: own, tree: own, parent, children, context, created_ms: 1, updated_ms: 0 };
        let plain = |view: &UsageView| -> Vec<String> {
            let lines = lines(view, 60_001);
            lines.iter().skip(3).map(|line| anstream::adapter::strip_str(line).to_string()).collect()
        };
        let all = [
            "context            1.5k tokens of 10000 (15%)",
            "parent             0192f0c1-2d3e-7abc-8def-0123456789ab",
            "begun              1 minute ago",
            "child a3f9c1 explore  10 in · 2 out",
        ];
        assert_eq!(plain(&view), all);
        let context = Some(ContextShare { used: 1_500, window: None });
        let view = UsageView { parent: None, children: Vec::new(), context, created_ms: 0, ..view };
        assert_eq!(plain(&view), ["context            1.5k tokens"]);
    }
}
