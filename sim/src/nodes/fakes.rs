//! The runtime of a shard with its models and tools, which report each call that begins.

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

/// Runs of this agent continue with the next owner of their shard.
pub(super) const RESUMES: &str = "worker";
/// Runs of this agent end as lost with the owner of their shard.
pub(super) const FAILS: &str = "reader";

/// Most answers of a model in one run.
const TURNS: usize = 4;

/// Composes the runtime of a shard under a lease.
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
        of.begins(place.0, place.1, "a model call", None);
        let (world, answer) = (Arc::clone(&of), answer(&of, &request));
        async move {
            rest(&world).await;
            Ok(answer)
        }
    });
    builder.model(Arc::new(model))
}

fn catalog() -> Catalog {
    let mut catalog = Catalog::builtin();
    for (name, on_restart) in [(RESUMES, OnRestart::Resume), (FAILS, OnRestart::Fail)] {
        catalog.insert(Manifest { on_restart, ..Manifest::new(name, AgentMode::All, "You work.") });
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
        of.begins(shard, lease, name(effect), once);
        let world = Arc::clone(&of);
        async move {
            rest(&world).await;
            Ok(ToolOutput::text("done"))
        }
    })
}

fn name(effect: ToolEffect) -> &'static str {
    if effect == ToolEffect::SideEffect { "write" } else { "read" }
}

/// Takes the time of a call: short ones, and some that outlast a lease.
async fn rest(world: &NodesWorld) {
    let most = if world.strikes(20) { 20_000 } else { 400 };
    tokio::time::sleep(world.chance.ms(0, most)).await;
}

fn answer(world: &NodesWorld, request: &Request) -> Answer {
    let answers = request.messages.iter().filter(|message| matches!(message, Message::Assistant { .. })).count();
    let text = || Answer::of_text("done");
    if answers >= TURNS || world.is_calm() {
        return text();
    }
    let call = |tool: &str, args: serde_json::Value| {
        let call = ToolCall { provider_id: "c".into(), tool: tool.into(), args: args.to_string().into() };
        Answer::of_calls(None, vec![call])
    };
    match world.chance.below(6) {
        0 | 1 => text(),
        2 | 3 => call("write", json!({})),
        4 => call("read", json!({})),
        _ => {
            let agent = world.chance.pick(&[RESUMES, FAILS]).unwrap_or(RESUMES);
            let background = world.chance.one_in(2);
            call("task", json!({"subagent_type": agent, "prompt": "a part", "background": background}))
        }
    }
}
