//! The JSON Schema of an agent file's front matter, for editors: what a manifest may say.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// The schema of the front matter of an agent file. Keys that it does not have are
/// kept without effect and warned of, unless they restrict: those refuse the file.
pub fn front_matter() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<FrontMatter>().into()
}

/// The front matter of an agent file: YAML between two lines `---`, above the prompt.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "what is written is read by hand, for better errors; this says its form")]
struct FrontMatter {
    /// The agent's name; without it the name of the file, less `.md`.
    #[schemars(regex(pattern = "^[a-z0-9][a-z0-9_-]{0,63}$"))]
    name: Option<String>,
    /// Who may start it: people (`primary`), other agents (`subagent`), or both (`all`).
    mode: Mode,
    /// When to use it, for models and people; without it the first sentence of the prompt.
    description: Option<String>,
    /// The model that it uses, such as `anthropic/MODEL`; without it its caller's. Never beside `pool`.
    model: Option<String>,
    /// The pool of models that it uses; where there is none of that name, its caller's model is used.
    pool: Option<String>,
    /// Sampling temperature.
    #[schemars(range(min = 0))]
    temperature: Option<f64>,
    /// Nucleus sampling: the probability mass that is sampled from.
    #[schemars(range(min = 0, max = 1))]
    top_p: Option<f64>,
    /// Output tokens of one model call at most.
    #[schemars(range(min = 1))]
    output_tokens: Option<u64>,
    /// How much a reasoning model is to think.
    effort: Option<EffortWord>,
    /// The tools that it is offered at most, as a list or as one text with commas; an empty list is none.
    tools: Option<Tools>,
    /// What it may do at most, met with what its caller may: an action, such as `fs.read` or `task:*`, to a verdict, or to a map of
    /// resource patterns to verdicts, such as `fs.read: {"secret/**": deny}`. `"*"` is what holds for the rest.
    permissions: Option<BTreeMap<String, Permission>>,
    /// Whether listings show its sessions as rows of their own.
    inspectable: Option<bool>,
    /// `agent` adds one line to the prompt, which says that the caller is an agent.
    caller: Option<Caller>,
    /// Turns that one run may take.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    turns: Option<u32>,
    /// Whether its runs are nobody's, and live to their own cap.
    detached: Option<bool>,
    /// What a restart of the host does with its runs.
    on_restart: Option<Restart>,
    /// Whether it is kept out of pickers and of the types that `task` accepts.
    hidden: Option<bool>,
    /// Whether its root sessions are offered `plan_exit`, by which it proposes that its plan be carried out.
    plan_exit: Option<bool>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "the words of the schema")]
enum Mode {
    Primary,
    Subagent,
    All,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "the words of the schema")]
enum EffortWord {
    None,
    Low,
    Medium,
    High,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "the forms of the schema")]
enum Tools {
    List(Vec<String>),
    Text(String),
}

#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "the forms of the schema")]
enum Permission {
    Verdict(VerdictWord),
    Resources(BTreeMap<String, VerdictWord>),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "the words of the schema")]
enum VerdictWord {
    Allow,
    Ask,
    Deny,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "the words of the schema")]
enum Caller {
    Agent,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "the words of the schema")]
enum Restart {
    Fail,
    Resume,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front;

    #[test]
    fn the_schema_has_the_keys_that_are_read_and_no_others() {
        let schema = front_matter();
        let mut said: Vec<&str> = schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        let mut read = front::KEYS.to_vec();
        said.sort_unstable();
        read.sort_unstable();
        assert_eq!(said, read);
        assert_eq!(schema["required"], serde_json::json!(["mode"]));
    }
}
