//! `edit`: replaces one text in a file.

use std::io::Read as _;

use schemars::JsonSchema;
use serde::Deserialize;
use subtend_session::call::ToolEffect;

use super::file_tool::{Builtin, Job, MeasureFn, WRITE};
use super::open;
use super::replace::{self, WriteTarget};
use crate::bounded::{count, len};
use crate::tool::{ToolError, ToolOutput};
use crate::workspace::failure;
use crate::workspace::names::READ;

const MAX_FILE: u64 = 16 << 20;

pub(super) struct EditTool;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EditArgs {
    /// The path of the file in the workspace.
    path: String,
    /// The text to replace, exactly as in the file and without line numbers, with enough of its surroundings to be unique.
    #[schemars(length(min = 1))]
    old: String,
    /// The replacement text.
    new: String,
    /// Replace every occurrence.
    #[serde(default)]
    replace_all: bool,
}

impl Builtin for EditTool {
    const NAME: &'static str = "edit";
    const ABOUT: &'static str = "Change a part of a text file of the workspace: replaces `old` with `new`. `old` must occur \
        exactly once, unless replace_all is true. Spaces and line breaks count. Read the place before you edit it.";
    const EFFECT: ToolEffect = ToolEffect::SideEffect;
    const MEASURE: Option<MeasureFn<EditArgs>> = Some(measure);
    const ACTIONS: &'static [&'static str] = &[READ, WRITE];
    type Args = EditArgs;

    fn path(args: &EditArgs) -> &str {
        &args.path
    }

    fn run(args: EditArgs, path: &str, job: &mut Job) -> Result<ToolOutput, ToolError> {
        let real = job.real(Self::ACTIONS, path)?;
        edit(&args, (path, &real), job)
    }
}

/// Checks the arguments, and returns the bytes that the edit takes.
fn measure(args: &EditArgs, path: &str, job: &Job) -> Result<usize, ToolError> {
    if args.old.is_empty() {
        return Err(ToolError::bad_args("`old` is empty: give the text to replace, or use write for a new file"));
    }
    if args.old == args.new {
        return Err(ToolError::bad_args("`old` and `new` are the same: nothing would change"));
    }
    let real = job.real(EditTool::ACTIONS, path)?;
    Ok(memory_of(replace::present_bytes(job, &real), args))
}

fn edit(args: &EditArgs, (path, real): (&str, &str), job: &Job) -> Result<ToolOutput, ToolError> {
    let text = text(job, path, real)?;
    // It grew since it was measured.
    if memory_of(text.len(), args) > job.reserved {
        return Err(changed_meanwhile(path));
    }
    let found = text.matches(&args.old).count();
    let Some(first) = text.find(&args.old) else { return Err(not_found_error(path, &text, &args.old)) };
    if found > 1 && !args.replace_all {
        return Err(ToolError::bad_args(format!(
            "`old` is found {found} times in `{path}` ({}): give more of the text around it, or set replace_all",
            line_list(&text, &args.old)
        )));
    }
    let size = size_after(&text, found, args);
    if size > MAX_FILE {
        return Err(ToolError::limit(format!(
            "`{path}` would have {size} bytes; the limit of edit is {MAX_FILE}: replace less of it"
        )));
    }
    let changed = text.replace(&args.old, &args.new);
    let target = WriteTarget::find(job, EditTool::ACTIONS, real)?;
    job.check_cancelled()?;
    // Another session may have written the file meanwhile. Its change must not be lost.
    if self::text(job, path, real)? != text {
        return Err(changed_meanwhile(path));
    }
    target.replace(job, path, (changed.as_bytes(), Some(text.as_bytes())))?;
    let times = count(len(found), "occurrence", "occurrences");
    Ok(ToolOutput::text(format!("replaced {times} in `{real}`, the first at line {}", line_number(&text, first))))
}

/// Returns the most bytes that the edit of a file with `present` bytes takes.
fn memory_of(present: usize, args: &EditArgs) -> usize {
    let most = if args.replace_all { present.checked_div(args.old.len()).unwrap_or(present) } else { 1 };
    let added = most.saturating_mul(args.new.len()).min(usize::try_from(MAX_FILE).unwrap_or(usize::MAX));
    replace::memory_of(present, added)
}

fn changed_meanwhile(path: &str) -> ToolError {
    let changed = ToolError::refused(format!("`{path}` was just changed by another program: read it again, then edit"));
    ToolError { retryable: true, ..changed }
}

/// Returns the size of the file after `found` replacements. The caller checks it before it allocates memory.
fn size_after(text: &str, found: usize, args: &EditArgs) -> u64 {
    let (removed, added) =
        (len(found).saturating_mul(len(args.old.len())), len(found).saturating_mul(len(args.new.len())));
    len(text.len()).saturating_sub(removed).saturating_add(added)
}

fn text(job: &Job, path: &str, real: &str) -> Result<String, ToolError> {
    let (file, size) = open::file(job, "edit", path, real)?;
    if size > MAX_FILE {
        return Err(ToolError::limit(format!("`{path}` has {size} bytes; the limit of edit is {MAX_FILE}")));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut bytes).map_err(|error| failure("edit", path, &error))?;
    if open::is_binary(&bytes) {
        return Err(ToolError::refused(format!("`{path}` is binary ({size} bytes), not text: it cannot be edited")));
    }
    String::from_utf8(bytes)
        .map_err(|_| ToolError::refused(format!("`{path}` is not UTF-8 text: editing would damage the other bytes")))
}

/// Returns the error for an `old` that was not found, with the likely reason.
fn not_found_error(path: &str, text: &str, old: &str) -> ToolError {
    let hint = if text.contains("\r\n") && text.replace("\r\n", "\n").contains(&old.replace("\r\n", "\n")) {
        "; the file ends its lines with \\r\\n".into()
    } else if let Some(line) = line_of_similar(text, old) {
        format!("; line {line} differs only in leading or trailing spaces")
    } else {
        String::new()
    };
    ToolError::not_found(format!(
        "`old` is not in `{path}`{hint}: read the file and give the text exactly as the file has it"
    ))
}

/// Returns the number of the first line that equals the first line of `old` except for surrounding spaces.
fn line_of_similar(text: &str, old: &str) -> Option<usize> {
    let wanted = old.lines().map(str::trim).find(|line| !line.is_empty())?;
    text.lines().position(|line| line.trim() == wanted).map(|at| at.saturating_add(1))
}

fn line_list(text: &str, old: &str) -> String {
    let lines: Vec<String> = text.match_indices(old).take(5).map(|(at, _)| line_number(text, at).to_string()).collect();
    format!("lines {}", lines.join(", "))
}

fn line_number(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count().saturating_add(1)
}
