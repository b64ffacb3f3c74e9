//! The front matter of an agent file: its type, and its JSON Schema for editors.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde_json::Value;
use subtend_session::ids::Text;
use subtend_session::place::{Isolation, OnRestart};
use subtend_session::settings::Effort;

use crate::manifest::AgentMode;

/// Returns the schema of front matter. Unknown keys are kept with a warning. A file is refused if the name of an unknown
/// key says that it restricts the agent, such as `disallowedTools`.
pub fn front_matter() -> Value {
    SCHEMA.clone()
}

pub(crate) static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<FrontMatter>().into()
});

pub(crate) fn keys() -> impl Iterator<Item = &'static str> {
    SCHEMA.get("properties").and_then(Value::as_object).into_iter().flat_map(|keys| keys.keys().map(String::as_str))
}

/// The front matter of an agent file: YAML between two lines `---`, above the prompt.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct FrontMatter {
    /// The agent's name; by default the name of the file without `.md`.
    #[schemars(regex(pattern = "^[a-z0-9][a-z0-9_-]{0,63}$"))]
    #[expect(dead_code, reason = "the name is read before the other keys, so that a refused file has a name")]
    name: Option<Text>,
    /// Callers that may start it: users (`primary`), other agents (`subagent`), or both (`all`).
    #[schemars(with = "String", extend("enum" = ["primary", "subagent", "all"]))]
    pub(crate) mode: AgentMode,
    /// When to use it, for models and users; by default the first sentence of the prompt.
    #[schemars(regex(pattern = "\\S"))]
    pub(crate) description: Option<Text>,
    /// The model that it uses, such as `anthropic/MODEL`; by default its caller's. Excludes `pool`.
    #[schemars(regex(pattern = "\\S"))]
    pub(crate) model: Option<Text>,
    /// The pool of models that it uses; without a pool of that name, its caller's model is used.
    #[schemars(regex(pattern = "\\S"))]
    pub(crate) pool: Option<Text>,
    /// Sampling temperature.
    #[schemars(range(min = 0))]
    pub(crate) temperature: Option<f64>,
    /// Nucleus sampling: the probability mass.
    #[schemars(range(min = 0, max = 1))]
    pub(crate) top_p: Option<f64>,
    /// Maximum output tokens of one model call.
    #[schemars(range(min = 1))]
    pub(crate) output_tokens: Option<u64>,
    /// Reasoning effort.
    #[schemars(with = "Option<String>", extend("enum" = ["none", "low", "medium", "high", null]))]
    pub(crate) effort: Option<Effort>,
    /// The tools that it may be offered, as a list or as one text with commas; an empty list means no tools.
    pub(crate) tools: Option<Tools>,
    /// Its rights, limited by those of its caller: maps an action, such as `fs.read` or `task:*`, to a verdict, or to a map
    /// of resource patterns to verdicts, such as `fs.read: {"secret/**": deny}`. `"*"` is the default.
    #[schemars(with = "Option<BTreeMap<String, Permission>>")]
    #[expect(dead_code, reason = "`permissions::parse` reads it, with errors of its own")]
    permissions: Option<Value>,
    /// True if listings show its sessions as rows of their own.
    pub(crate) inspectable: Option<bool>,
    /// `agent` adds a line to the prompt which says that the caller is an agent.
    #[schemars(extend("enum" = ["agent", null]))]
    pub(crate) caller: Option<String>,
    /// Maximum turns of one run.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub(crate) turns: Option<u32>,
    /// True if its runs have no owner, and run until their own cap.
    pub(crate) detached: Option<bool>,
    /// Where its tools work: in the workspace, or in a git worktree of each session's own.
    #[schemars(with = "Option<String>", extend("enum" = ["none", "worktree", null]))]
    pub(crate) isolation: Option<Isolation>,
    /// What its runs do after a restart of the host: fail or resume.
    #[schemars(with = "Option<String>", extend("enum" = ["fail", "resume", null]))]
    pub(crate) on_restart: Option<OnRestart>,
    /// True if pickers and the agent types of `task` omit it.
    pub(crate) hidden: Option<bool>,
    /// True if its root sessions are offered `plan_exit`, by which it asks to carry out its plan.
    pub(crate) plan_exit: Option<bool>,
    /// True, the default, if instruction files such as `AGENTS.md` are in its prompt.
    pub(crate) instructions: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Tools {
    List(Vec<Text>),
    Text(Text),
}

#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "the forms of the schema; `permissions` reads them, with better errors")]
enum Permission {
    Verdict(VerdictSchema),
    Resources(BTreeMap<String, VerdictSchema>),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "the variants only describe the schema")]
enum VerdictSchema {
    Allow,
    Ask,
    Deny,
}
