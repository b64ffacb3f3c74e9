//! The guide: a page for each task. After the first page, read them in any order.
//!
//! | page | what it explains |
//! |---|---|
//! | [`start`] | embed a runtime, send an input, get the answer |
//! | [`agents`] | define agents, in code or in files |
//! | [`products`] | use agent files of Claude Code, OpenCode and Codex, and how their keys are translated |
//! | [`tools`] | give agents your own tools, and decide what they may do |
//! | [`mcp`] | give agents the tools of MCP servers, and what a server can and cannot do |
//! | [`web`] | let agents read pages and search, and which hosts they can reach |
//! | [`configuration`] | set limits, models and profiles for a workspace, and see where each value comes from |
//! | [`models`] | choose models, write your own, and what happens when a model fails |
//! | [`approvals`] | decide what agents may do, require approvals for the rest, and read the decisions |
//! | [`subagents`] | let agents delegate to other agents, within limits |
//! | [`dialects`] | the tools by which models start agents: parameters, results, errors |
//! | [`patterns`] | let agents vote, judge, review and plan |
//! | [`branches`] | continue from an earlier message, and regenerate an answer |
//! | [`hooks`] | run your own code at fixed points of a session, for example to let another agent answer |
//! | [`events`] | follow sessions live, and read their records later |
//! | [`typed_output`] | get answers as values of a type |
//! | [`testing_agents`] | test agents without a network and without waiting |
//! | [`durability`] | what survives a kill, and how to build on it |
//! | [`operations`] | start, watch, check and stop a runtime in production |

#[doc = include_str!("guide/agents.md")]
pub mod agents {}

#[doc = include_str!("guide/approvals.md")]
pub mod approvals {}

#[doc = include_str!("guide/branches.md")]
pub mod branches {}

#[doc = include_str!("guide/configuration.md")]
pub mod configuration {}

#[doc = include_str!("guide/dialects.md")]
pub mod dialects {
    #[doc = include_str!("guide/dialects/minion.md")]
    pub mod minion {}

    #[doc = include_str!("guide/dialects/spawn.md")]
    pub mod spawn {}

    #[doc = include_str!("guide/dialects/spawn_task.md")]
    pub mod spawn_task {}

    #[doc = include_str!("guide/dialects/subagent.md")]
    pub mod subagent {}

    #[doc = include_str!("guide/dialects/task.md")]
    pub mod task {}
}

#[doc = include_str!("guide/durability.md")]
pub mod durability {}

#[doc = include_str!("guide/events.md")]
pub mod events {}

#[doc = include_str!("guide/hooks.md")]
pub mod hooks {}

#[doc = include_str!("guide/mcp.md")]
pub mod mcp {}

#[doc = include_str!("guide/models.md")]
pub mod models {}

#[doc = include_str!("guide/operations.md")]
pub mod operations {}

#[doc = include_str!("guide/patterns.md")]
pub mod patterns {}

#[doc = include_str!("guide/products.md")]
pub mod products {}

#[doc = include_str!("guide/start.md")]
pub mod start {}

#[doc = include_str!("guide/subagents.md")]
pub mod subagents {}

#[doc = include_str!("guide/processes.md")]
pub mod processes {}

#[doc = include_str!("guide/testing.md")]
#[cfg_attr(feature = "testing", doc = include_str!("guide/testing_example.md"))]
pub mod testing_agents {}

#[doc = include_str!("guide/tools.md")]
pub mod tools {}

#[doc = include_str!("guide/typed_output.md")]
pub mod typed_output {}

#[doc = include_str!("guide/web.md")]
pub mod web {}
