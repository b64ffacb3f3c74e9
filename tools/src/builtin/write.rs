use schemars::JsonSchema;
use serde::Deserialize;
use subtend_session::call::ToolEffect;

use super::file_tool::{Builtin, Job, MeasureFn, WRITE};
use super::replace::{self, WriteTarget};
use crate::bounded::{count, len};
use crate::tool::{ToolError, ToolOutput};

pub(super) struct WriteTool;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteArgs {
    /// The path of the file in the workspace. Missing directories are created.
    path: String,
    /// The whole content of the file.
    content: String,
}

impl Builtin for WriteTool {
    const NAME: &'static str = "write";
    const ABOUT: &'static str = "Write a whole file of the workspace: creates it, or replaces its content. Read a file before \
        you replace it; to change a part, use edit.";
    const EFFECT: ToolEffect = ToolEffect::SideEffect;
    const MEASURE: Option<MeasureFn<WriteArgs>> = Some(measure);
    const ACTIONS: &'static [&'static str] = &[WRITE];
    type Args = WriteArgs;

    fn path(args: &WriteArgs) -> &str {
        &args.path
    }

    fn run(args: WriteArgs, path: &str, job: &mut Job) -> Result<ToolOutput, ToolError> {
        let target = WriteTarget::find(job, Self::ACTIONS, path)?;
        target.replace(job, path, (args.content.as_bytes(), None))?;
        let done = if target.present.is_some() { "replaced" } else { "created" };
        let bytes = count(len(args.content.len()), "byte", "bytes");
        let lines = count(len(args.content.lines().count()), "line", "lines");
        Ok(ToolOutput::text(format!("{done} `{}`: {bytes}, {lines}", target.real)))
    }
}

/// Checks the arguments, and returns the bytes that the write takes.
fn measure(args: &WriteArgs, path: &str, job: &Job) -> Result<usize, ToolError> {
    if args.path.ends_with('/') {
        return Err(ToolError::bad_args(format!("`{}` ends with `/`: name a file, not a directory", args.path)));
    }
    let target = WriteTarget::find(job, WriteTool::ACTIONS, path)?;
    Ok(replace::memory_of(replace::present_bytes(job, &target.real), args.content.len()))
}
