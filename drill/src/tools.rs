//! The tools of a drill, in addition to the tools of a workspace. Each call leaves a mark that the drill counts.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use subtend_session::authority::Access;
use subtend_session::call::ToolEffect;
use subtend_tools::closure::FnTool;
use subtend_tools::tool::{Tool, ToolError, ToolInvocation};

use super::marks::{self, MarkedEffect};
use super::store_dir::StoreDir;
use super::trigger::Trigger;

/// The tool that must never be repeated.
pub(crate) const MARK: &str = "mark";
/// The tool that may be repeated with the same key (idempotent).
pub(crate) const NOTE: &str = "note";

/// The arguments of a call: its duration before and after the effect.
#[derive(Debug, Deserialize, JsonSchema)]
struct EffectArgs {
    /// Milliseconds before the effect.
    before_ms: u64,
    /// Milliseconds after the effect.
    after_ms: u64,
}

pub(crate) fn all(store_dir: &StoreDir, trigger: &Arc<Trigger>) -> [Arc<dyn Tool>; 2] {
    let mark = tool(MARK, ToolEffect::SideEffect, MarkedEffect::Once, store_dir, trigger);
    let note = tool(NOTE, ToolEffect::Idempotent, MarkedEffect::Idempotent, store_dir, trigger);
    // Calls of `note` need an approval.
    let note = note.access(|_| vec![Access { action: NOTE.into(), resource: "*".into() }]);
    [Arc::new(mark), Arc::new(note)]
}

fn tool(
    name: &'static str,
    effect: ToolEffect,
    left: MarkedEffect,
    store_dir: &StoreDir,
    trigger: &Arc<Trigger>,
) -> FnTool {
    let (path, trigger) = (store_dir.marks(), Arc::clone(trigger));
    let about = "Leaves a mark that the drill counts.";
    FnTool::typed(name, about, effect, move |args: EffectArgs, call: ToolInvocation| {
        let (path, trigger) = (path.clone(), Arc::clone(&trigger));
        async move {
            if args.before_ms > 0 {
                tokio::time::sleep(Duration::from_millis(args.before_ms)).await;
            }
            marks::leave(&path, left, call.key).map_err(|error| ToolError::failed(error.to_string()))?;
            trigger.on_tool_effect();
            tokio::time::sleep(Duration::from_millis(args.after_ms)).await;
            Ok("marked")
        }
    })
}
