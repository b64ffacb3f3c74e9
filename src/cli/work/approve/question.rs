//! The text of a question.

use subtend_actors::Approval;
use subtend_tools::workspace::Workspace;
use unicode_width::UnicodeWidthStr as _;

use super::super::super::paint::{clip, exact, first_line};
use super::super::diff;
use super::super::frame::{frame_text, is_long, shown_text};

const RESOURCE_WIDTH: usize = 90;
/// Width reserved for the other words of the question.
const OTHER_WIDTH: usize = 40;
const MIN_RESOURCE_WIDTH: usize = 12;
/// A longer content differs from the resource, which fits on one row.
const MAX_COMPARED: usize = 4 << 10;

/// Returns the text of the question with the full plan, command or diff.
pub(super) fn question(approval: &Approval, workspace: Option<&Workspace>, columns: Option<usize>) -> String {
    if let Some(plan) = &approval.plan {
        let (path, agent) = (clip(&approval.path, 40), clip(&approval.resource, 64));
        let plan = frame_text(plan.trim_end(), columns);
        let again = if is_long(&plan) { format!("the plan above is of {path}\n") } else { String::new() };
        return format!(
            "{path} has a plan:\n\n{plan}\n\n{again}let {agent} carry it out? [y]es, [N]o: continue planning"
        );
    }
    let (path, action, tool) = (clip(&approval.path, 40), clip(&approval.action, 40), clip(&approval.tool, 24));
    // The first line must fit on one terminal row; otherwise the second row would begin with text of the call.
    let around = path.width().saturating_add(action.width()).saturating_add(tool.width()).saturating_add(OTHER_WIDTH);
    let width = columns
        .map_or(RESOURCE_WIDTH, |columns| columns.saturating_sub(around).clamp(MIN_RESOURCE_WIDTH, RESOURCE_WIDTH));
    let resource =
        first_line(&shown_text(&diff::resource(&approval.action, &approval.resource, &approval.args)), width);
    let whole =
        full_content(approval, workspace).filter(|whole| whole.len() > MAX_COMPARED || exact(whole) != resource);
    // The end of a long name may be what tells the tool from another one.
    let name = (*action != *approval.action).then(|| approval.action.to_string());
    let parts: Vec<String> = name.into_iter().chain(whole).collect();
    let head = format!("{path} asks for {action} on {resource} ({tool})");
    let (mut whole, mut again) = (String::new(), String::new());
    if !parts.is_empty() {
        let framed = frame_text(&parts.join("\n"), columns);
        if is_long(&framed) {
            again = format!("{head}\n");
        }
        whole = format!("\n\n{framed}\n");
    }
    let always =
        approval.always_scope().map(|scope| format!(", [a]lways in this session ({scope})")).unwrap_or_default();
    format!("{head}{whole}\n{again}allow? [y]es{always}, [N]o")
}

/// Returns the full content of the call: its command, its diff or its arguments.
fn full_content(approval: &Approval, workspace: Option<&Workspace>) -> Option<String> {
    let recorded = diff::resource(&approval.action, &approval.resource, &approval.args);
    if let Some(text) = diff::text_with_args(&approval.tool, &approval.action, &recorded, &approval.args) {
        return Some(text);
    }
    if *approval.action == *"shell.run" {
        return Some(recorded);
    }
    let args = Some(approval.args.trim()).filter(|args| !matches!(*args, "" | "{}"));
    // The arguments of other tools can have these names too, next to ones that a diff does not show.
    let is_edit = matches!(&*approval.tool, "edit" | "write");
    workspace
        .filter(|_| is_edit)
        .and_then(|workspace| diff::all_lines(&approval.args, workspace))
        .or_else(|| args.map(str::to_owned))
        .or_else(|| Some(approval.resource.to_string()))
}
