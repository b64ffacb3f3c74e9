//! The runtime of a shard, with fake models and tools that report the start of each call.

use std::sync::Arc;

use serde_json::json;
use subtend_actors::runtime::builder::Builder;
use subtend_actors::{Options, Runtime};
use subtend_agents::catalog::Catalog;
use subtend_agents::manifest::{AgentMode, Manifest};
use subtend_journal::Journal;
use subtend_models::closure::fn_model;
use subtend_models::model::{Answer, Request};
use subtend_session::call::ToolEffect;
use subtend_session::message::{Message, ToolSpec};
use subtend_session::place::OnRestart;
use subtend_session::record::ToolCall;
use subtend_tools::closure::FnTool;
use subtend_tools::registry::Registry;
use subtend_tools::tool::ToolOutput;

use super::database::LeaseId;
use super::world::NodesWorld;

/// Agent whose runs continue with the next owner of their shard.
pub(super) const RESUMING_AGENT: &str = "worker";
/// Agent whose runs end as lost with the owner of their shard.
pub(super) const LOST_AGENT: &str = "reader";

/// Maximum number of a model's answers in one run.
const MAX_ANSWERS: usize = 4;

/// Builds the runtime of a shard under a lease.
pub(super) fn builder(world: &Arc<NodesWorld>, place: (usize, LeaseId), journal: Journal) -> Builder {
    let seed = world.plan.seed.wrapping_mul(10_000).wrapping_add(world.next_start());
    let options = Options { titles: false, summaries: false, seed: Some(seed), ..Options::default() };
    let builder = Runtime::builder().journal(journal).catalog(catalog()).options(options);
    let tools = [ToolEffect::SideEffect, ToolEffect::ReadOnly].map(|effect| Arc::new(tool(world, place, effect)));
    let registry = tools.into_iter().try_fold(Registry::builder(), |registry, tool| registry.tool(tool));
    let builder = match registry {
        Ok(registry) => builder.tools(registry.build()),
        Err(error) => {
            world.database().wrong(format!("tools: {error}"));
            builder
        }
    };
    let of = Arc::clone(world);
    let model = fn_model("nodes", move |request: Request, _| {
        of.judge_call(place.0, place.1, "a model call", None);
        let (world, answer) = (Arc::clone(&of), answer(&of, &request));
        async move {
            wait_for_call(&world).await;
            Ok(answer)
        }
    });
    builder.model(Arc::new(model))
}

fn catalog() -> Catalog {
    let mut catalog = Catalog::builtin();
    for (name, on_restart) in [(RESUMING_AGENT, OnRestart::Resume), (LOST_AGENT, OnRestart::Fail)] {
        catalog.insert(Manifest { on_restart: Some(on_restart), ..Manifest::new(name, AgentMode::All, "You work.") });
    }
    catalog
}

fn tool(world: &Arc<NodesWorld>, (shard, lease): (usize, LeaseId), effect: ToolEffect) -> FnTool {
    let spec = ToolSpec {
        name: name(effect).into(),
        description: "A tool of the simulator.".into(),
        schema: Arc::new(json!({"type": "object", "additionalProperties": false})),
    };
    let of = Arc::clone(world);
    FnTool::new(spec, effect, move |call| {
        let once = (effect == ToolEffect::SideEffect).then_some(call.key);
        of.judge_call(shard, lease, name(effect), once);
        let world = Arc::clone(&of);
        async move {
            wait_for_call(&world).await;
            Ok(ToolOutput::text("done"))
        }
    })
}

fn name(effect: ToolEffect) -> &'static str {
    if effect == ToolEffect::SideEffect { "write" } else { "read" }
}

/// Waits for the duration of a call, which is sometimes longer than a lease.
async fn wait_for_call(world: &NodesWorld) {
    let most = if world.draw_fault(20) { 20_000 } else { 400 };
    tokio::time::sleep(world.rng.ms(0, most)).await;
}

fn answer(world: &NodesWorld, request: &Request) -> Answer {
    let answers = request.messages.iter().filter(|message| matches!(message, Message::Assistant { .. })).count();
    let text = || Answer::of_text("done");
    if answers >= MAX_ANSWERS || world.is_calm() {
        return text();
    }
    let call = |tool: &str, args: serde_json::Value| {
        let call = ToolCall { provider_id: "c".into(), tool: tool.into(), args: args.to_string().into() };
        Answer::of_calls(None, vec![call])
    };
    match world.rng.below(6) {
        0 | 1 => text(),
        2 | 3 => call("write", json!({})),
        4 => call("read", json!({})),
        _ => {
            let agent = world.rng.pick(&[RESUMING_AGENT, LOST_AGENT]).unwrap_or(RESUMING_AGENT);
            let background = world.rng.one_in(2);
            call("task", json!({"subagent_type": agent, "prompt": "a part", "background": background}))
        }
    }
}
