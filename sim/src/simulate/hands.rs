//! The hands: tools that work, fail, drag on, ignore that they are stopped, and panic, as it is drawn.

use std::sync::Arc;

use serde_json::json;
use subtend_session::authority::Access;
use subtend_session::call::ToolEffect;
use subtend_session::message::ToolSpec;
use subtend_tools::closure::FnTool;
use subtend_tools::registry::{Registry, RegistryError};
use subtend_tools::tool::{ToolCall, ToolError, ToolOutput};

use crate::simulate::book::Intent;
use crate::simulate::plan::Takes;
use crate::simulate::tally::Mishap;
use crate::simulate::world::{AtWork, World, ordered_panic};

/// What a tool is like.
#[derive(Clone, Copy)]
struct Hand {
    name: &'static str,
    effect: ToolEffect,
    /// Takes long, whatever is drawn.
    slow: bool,
    /// Goes on when it is told to stop.
    stubborn: bool,
    panics: bool,
    /// Needs a person's word.
    guarded: bool,
}

const PLAIN: Hand =
    Hand { name: "read", effect: ToolEffect::ReadOnly, slow: false, stubborn: false, panics: false, guarded: false };

const HANDS: [Hand; 7] = [
    PLAIN,
    Hand { name: "write", effect: ToolEffect::SideEffect, ..PLAIN },
    Hand { name: "keep", effect: ToolEffect::Idempotent, ..PLAIN },
    Hand { name: "slow", slow: true, ..PLAIN },
    Hand { name: "stubborn", effect: ToolEffect::SideEffect, slow: true, stubborn: true, ..PLAIN },
    Hand { name: "broken", effect: ToolEffect::SideEffect, panics: true, ..PLAIN },
    Hand { name: "guarded", effect: ToolEffect::SideEffect, guarded: true, ..PLAIN },
];

/// The names of all tools.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    HANDS.iter().map(|hand| hand.name)
}

/// Whether the tool needs a person's word.
pub(crate) fn is_guarded(name: &str) -> bool {
    HANDS.iter().any(|hand| hand.guarded && hand.name == name)
}

/// The action of the tool that needs a person's word.
pub(crate) const GUARDED: &str = "guarded.use";

/// All tools of a simulation.
pub(crate) fn registry(world: &Arc<World>) -> Result<Registry, RegistryError> {
    let tools = HANDS.iter().map(|hand| Arc::new(tool(world, *hand)));
    tools.into_iter().try_fold(Registry::builder(), |builder, tool| builder.tool(tool)).map(|builder| builder.build())
}

fn tool(world: &Arc<World>, hand: Hand) -> FnTool {
    let spec = ToolSpec {
        name: hand.name.into(),
        description: "A tool of the simulator.".into(),
        schema: Arc::new(json!({"type": "object", "additionalProperties": false})),
    };
    let leaves = world.swarm.leaves;
    let of = Arc::clone(world);
    let tool = FnTool::new(spec, hand.effect, move |call| work(Arc::clone(&of), hand, call));
    let tool = tool.access(move |_| {
        let guard = Access { action: GUARDED.into(), resource: "*".into() };
        Some(guard).filter(|_| hand.guarded).into_iter().collect()
    });
    if leaves { tool } else { tool.in_process() }
}

async fn work(world: Arc<World>, hand: Hand, call: ToolCall) -> Result<ToolOutput, ToolError> {
    world.step();
    {
        let book = world.book.open();
        book.tell(|| format!("  {} call {} {}", book.nick(call.key.session), call.key.call, hand.name));
    }
    let reads = hand.effect == ToolEffect::ReadOnly;
    let waits = !reads || world.swarm.leaves || world.swarm.durable_before_call;
    let intent = Intent::Call(call.key.run, call.key.call, hand.effect != ToolEffect::SideEffect);
    let at_work = world.book.open().effect(call.key.session, intent, waits);
    let _at_work = AtWork::new(&world, at_work);
    if hand.effect == ToolEffect::SideEffect {
        world.book.open().once(call.key);
    }
    if hand.panics && !world.is_calm() {
        world.pass(world.takes()).await;
        world.book.open().mishap(Mishap::ToolPanic);
        ordered_panic();
    }
    let takes = if hand.slow && !world.is_calm() { Takes::Long } else { world.takes() };
    if takes == Takes::Long {
        world.book.open().mishap(Mishap::ToolHangs);
    }
    if hand.stubborn {
        world.pass(takes).await;
    } else {
        tokio::select! {
            biased;
            () = call.cancel.cancelled() => return Err(ToolError::cancelled()),
            () = world.pass(takes) => {}
        }
    }
    if world.chance.one_in(6) && !world.is_calm() {
        world.book.open().mishap(Mishap::ToolFails);
        return Err(ToolError::failed("it failed, as drawn"));
    }
    Ok(ToolOutput::text(format!("{} {}", hand.name, world.chance.below(1000))))
}
