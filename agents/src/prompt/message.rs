//! Builds the first message of a session from its context, files, tools and task.

use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;

use super::{FileText, Parts};

pub(super) fn first_message(parts: &Parts) -> Option<Text> {
    let mut blocks: Vec<String> = Vec::new();
    if let Some(context) = parts.context.as_deref().filter(|context| !context.trim().is_empty()) {
        blocks.push(format!("## Context\n\n{}", context.trim_end()));
    }
    if !parts.files.is_empty() {
        let files: Vec<String> = parts.files.iter().map(file).collect();
        blocks.push(format!("## Files\n\n{}", files.join("\n\n")));
    }
    if !parts.tools.is_empty() {
        let tools: Vec<String> = parts.tools.iter().map(tool).collect();
        let others =
            if parts.discovers { "`get_tools` lists the others" } else { "others that you have can be used as well" };
        blocks.push(format!(
            "## Tools for this task\n\nThese are likely to be needed; {others}.\n\n{}",
            tools.join("\n\n")
        ));
    }
    match (&parts.task, blocks.is_empty()) {
        (task, true) => task.clone(),
        (None, false) => Some(blocks.join("\n\n").into()),
        (Some(task), false) => Some(format!("{}\n\n## Task\n\n{task}", blocks.join("\n\n")).into()),
    }
}

fn file(file: &FileText) -> String {
    // The name comes from a model, so line breaks are removed.
    let name = file.name.replace(char::is_control, " ");
    match &file.text {
        Ok(text) => format!("### {name}\n\n{}", fenced(text, "")),
        Err(why) => format!("### {name}\n\n(This file could not be read: {why}.)"),
    }
}

fn tool(tool: &ToolSpec) -> String {
    let schema = serde_json::to_string_pretty(&tool.schema).unwrap_or_else(|_| tool.schema.to_string());
    let about = tool.description.trim();
    let gap = if about.is_empty() { "" } else { "\n\n" };
    format!("### {}\n\n{about}{gap}Parameters:\n\n{}", tool.name, fenced(&schema, "json"))
}

/// Encloses the text in a fence with more backticks than the text contains, so that the text cannot close it.
fn fenced(text: &str, language: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.saturating_add(1).max(3));
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}{language}\n{text}{gap}{fence}")
}
