//! `skill`: reads a file of a skill, like `read` in the skill's folder.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use subtend_session::authority::{Access, Authority};
use subtend_session::call::ToolEffect;
use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;

use super::file_tool::FileTool;
use super::read::ReadTool;
use crate::path::resource;
use crate::schema;
use crate::skills::{SkillFolder, SkillPlace};
use crate::tool::{Tool, ToolError, ToolInvocation, ToolOutput};

const NAME: &str = "skill";
const FILE: &str = "SKILL.md";
const MAX_LINES: u64 = 2000;

pub(crate) struct SkillTool {
    spec: ToolSpec,
    read: FileTool<ReadTool>,
    skills: BTreeMap<Text, SkillFolder>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SkillArgs {
    /// The skill, by its name.
    name: String,
    /// A file of the skill's folder, as the skill's text names it.
    #[serde(default = "file")]
    file: String,
    /// The first line to show, from 1.
    #[serde(default = "first")]
    #[schemars(range(min = 1))]
    from_line: u64,
}

fn file() -> String {
    FILE.to_owned()
}

fn first() -> u64 {
    1
}

impl SkillTool {
    pub(crate) fn new(skills: Vec<SkillFolder>) -> Self {
        let description = "Read a skill: instructions for a special task. Without `file`, returns the skill's own text; with \
            `file`, another file of its folder that this text names. The system prompt lists the skills.";
        let spec = ToolSpec { name: NAME.into(), description: description.into(), schema: schema::of::<SkillArgs>() };
        let skills = skills.into_iter().map(|skill| (Arc::clone(&skill.name), skill)).collect();
        Self { spec, read: FileTool::new(), skills }
    }

    /// Returns the skill and the path of the file in its folder.
    fn find(&self, args: &Value) -> Result<(&SkillFolder, Text, SkillArgs), ToolError> {
        let args: SkillArgs = serde_json::from_value(args.clone())
            .map_err(|error| ToolError::bad_args(format!("the arguments of {NAME} do not fit: {error}")))?;
        let Some(skill) = self.skills.get(&*args.name) else {
            let known: Vec<&str> = self.skills.keys().map(|name| &**name).collect();
            let name: String = args.name.chars().take(80).collect();
            return Err(ToolError::bad_args(format!("unknown skill `{name}`; skills: {}", known.join(", "))));
        };
        Ok((skill, resource(&args.file)?, args))
    }
}

impl Tool for SkillTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> ToolEffect {
        ToolEffect::ReadOnly
    }

    fn leaves_process(&self) -> bool {
        false
    }

    /// Returns the access that `read` needs for the file. Paths of the user's own skills begin with `~`.
    fn access(&self, args: Option<&Value>) -> Vec<Access> {
        let path = args.map(|args| match self.find(args) {
            Ok((skill, file, _)) => format!("{}/{file}", skill.resource),
            // A placeholder: the call is refused when it runs.
            Err(_) => ".".to_owned(),
        });
        self.read.access(path.map(|path| json!({"path": path})).as_ref())
    }

    fn run(&self, call: ToolInvocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let args = |path: &str, from: u64| json!({"path": path, "from_line": from, "lines": MAX_LINES});
        match self.find(&call.args) {
            Err(error) => std::future::ready(Err(error)).boxed(),
            Ok((SkillFolder { place: SkillPlace::Workspace, resource, .. }, file, given)) => {
                let path = format!("{resource}/{file}");
                self.read.run(ToolInvocation { args: args(&path, given.from_line), ..call })
            }
            // A folder outside the workspace: the handle gives access to that folder only.
            Ok((SkillFolder { place: SkillPlace::Own(folder), .. }, file, given)) => {
                let authority = Arc::new(Authority::allow_all());
                let workspace = Arc::clone(folder);
                self.read.run(ToolInvocation { args: args(&file, given.from_line), workspace, authority, ..call })
            }
        }
    }
}
