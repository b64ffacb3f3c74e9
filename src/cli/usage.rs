//! `subtend usage`: what a session cost.

use std::io::Write as _;

use serde::Serialize;
use subtend_actors::UsageView;
use subtend_session::ids::SessionId;
use subtend_session::usage::Usage;

use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::paint::{BOLD, DIM, In};
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
    own: &'a Usage,
    owned: &'a Usage,
    tree: &'a Usage,
    created_ms: i64,
    updated_ms: i64,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let shelf = Shelf::must_open(&args.store)?;
    let id = shelf.find(&args.session)?;
    let view = UsageView::read(shelf.journal(), id, |_| None)?;
    let UsageView { own, owned, tree, created_ms, updated_ms, .. } = &view;
    let mut out = anstream::stdout().lock();
    if args.json {
        let (created_ms, updated_ms) = (*created_ms, *updated_ms);
        serde_json::to_writer(&mut out, &Told { id, own, owned, tree, created_ms, updated_ms })?;
        writeln!(out)?;
        return Ok(Code::Done);
    }
    let parts = [("itself", own), ("runs that it owns", owned), ("the tree below", tree)];
    for (name, usage) in parts {
        writeln!(out, "{}  {}", In(BOLD, format!("{name:17}")), In(DIM, figures(usage)))?;
    }
    Ok(Code::Done)
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
}
