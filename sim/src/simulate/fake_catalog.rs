use subtend_session::call::ToolEffect;

#[derive(Clone, Copy)]
pub(crate) struct FakeTool {
    pub(crate) name: &'static str,
    pub(crate) effect: ToolEffect,
    /// True if the tool always takes long.
    pub(crate) slow: bool,
    /// True if the tool continues after it is asked to stop.
    pub(crate) stubborn: bool,
    pub(crate) panics: bool,
    pub(crate) guarded: bool,
}

const PLAIN: FakeTool = FakeTool {
    name: "read",
    effect: ToolEffect::ReadOnly,
    slow: false,
    stubborn: false,
    panics: false,
    guarded: false,
};

pub(crate) const TOOLS: [FakeTool; 7] = [
    PLAIN,
    FakeTool { name: "write", effect: ToolEffect::SideEffect, ..PLAIN },
    FakeTool { name: "keep", effect: ToolEffect::Idempotent, ..PLAIN },
    FakeTool { name: "slow", slow: true, ..PLAIN },
    FakeTool { name: "stubborn", effect: ToolEffect::SideEffect, slow: true, stubborn: true, ..PLAIN },
    FakeTool { name: "broken", effect: ToolEffect::SideEffect, panics: true, ..PLAIN },
    FakeTool { name: "guarded", effect: ToolEffect::SideEffect, guarded: true, ..PLAIN },
];

/// The action of the tool that needs an approval.
pub(crate) const GUARDED: &str = "guarded.use";

/// An agent with fewer tools than the others.
pub(crate) const READER: (&str, [&str; 4]) = ("reader", ["read", "slow", "guarded", "task"]);

pub(crate) fn tool_names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|tool| tool.name)
}

pub(crate) fn is_guarded(name: &str) -> bool {
    TOOLS.iter().any(|tool| tool.guarded && tool.name == name)
}

/// Returns whether the agent is a service of the host: titles, summaries or compactions.
pub(crate) fn is_service(agent: &str) -> bool {
    matches!(agent, "title" | "summary" | "compaction")
}
