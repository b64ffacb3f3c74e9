//! Tools that succeed, fail, take long, ignore a stop, and panic at random.

use std::sync::Arc;

use serde_json::json;
use subtend_session::authority::Access;
use subtend_session::call::ToolEffect;
use subtend_session::message::ToolSpec;
use subtend_tools::closure::FnTool;
use subtend_tools::message;
use subtend_tools::registry::{Registry, RegistryError};
use subtend_tools::tool::{ToolError, ToolInvocation, ToolOutput};

use crate::simulate::fake_catalog::{FakeTool, GUARDED, TOOLS};
use crate::simulate::oracle::Intent;
use crate::simulate::plan::CallDuration;
use crate::simulate::tally::FaultKind;
use crate::simulate::world::{RunningEffect, World, injected_panic};

pub(crate) fn registry(world: &Arc<World>) -> Result<Registry, RegistryError> {
    let tools = TOOLS.iter().map(|fake| Arc::new(tool(world, *fake)));
    let tools = tools.into_iter().try_fold(Registry::builder(), |builder, tool| builder.tool(tool))?;
    Ok(tools.tools(world.plan.has_messages().then(message::tool))?.build())
}

fn tool(world: &Arc<World>, fake: FakeTool) -> FnTool {
    let spec = ToolSpec {
        name: fake.name.into(),
        description: "A tool of the simulator.".into(),
        schema: Arc::new(json!({"type": "object", "additionalProperties": false})),
    };
    let leaves = world.swarm.tools_leave_process;
    let of = Arc::clone(world);
    let tool = FnTool::new(spec, fake.effect, move |call| work(Arc::clone(&of), fake, call));
    let tool = tool.access(move |_| {
        let guard = Access { action: GUARDED.into(), resource: "*".into() };
        Some(guard).filter(|_| fake.guarded).into_iter().collect()
    });
    if leaves { tool } else { tool.in_process() }
}

async fn work(world: Arc<World>, tool: FakeTool, call: ToolInvocation) -> Result<ToolOutput, ToolError> {
    world.step();
    {
        let oracle = world.oracle.lock();
        oracle.trace(|| format!("  {} call {} {}", oracle.session_number(call.key.session), call.key.call, tool.name));
    }
    let reads = tool.effect == ToolEffect::ReadOnly;
    let waits = !reads || world.swarm.tools_leave_process || world.swarm.durable_before_call;
    let intent = Intent::Call(call.key.run, call.key.call, tool.effect != ToolEffect::SideEffect);
    let at_work = world.oracle.lock().effect(call.key.session, intent, waits);
    let _at_work = RunningEffect::new(&world, at_work);
    if tool.effect == ToolEffect::SideEffect {
        world.oracle.lock().record_single_start(call.key);
    }
    if tool.panics && !world.is_calm() {
        world.wait(world.draw_duration()).await;
        world.oracle.lock().record_fault(FaultKind::ToolPanic);
        injected_panic();
    }
    let duration = if tool.slow && !world.is_calm() { CallDuration::Long } else { world.draw_duration() };
    if duration == CallDuration::Long {
        world.oracle.lock().record_fault(FaultKind::ToolHangs);
    }
    if tool.stubborn {
        world.wait(duration).await;
    } else {
        tokio::select! {
            biased;
            () = call.cancel.cancelled() => return Err(ToolError::cancelled()),
            () = world.wait(duration) => {}
        }
    }
    if world.rng.one_in(6) && !world.is_calm() {
        world.oracle.lock().record_fault(FaultKind::ToolFails);
        return Err(ToolError::failed("the simulator drew a failure"));
    }
    Ok(ToolOutput::text(format!("{} {}", tool.name, world.rng.below(1000))))
}
