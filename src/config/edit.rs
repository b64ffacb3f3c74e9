//! Sets a value in the text of a file without changing anything else: comments, order and spelling are kept.

use serde_json::Value;
use subtend_agents::yaml;

use super::key::Key;

/// A value that cannot be set without rewriting other lines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}. Write `{line}` there by hand")]
pub struct EditError {
    /// The reason.
    pub why: String,
    /// The line that would have been written.
    pub line: String,
}

/// Returns the text with `key` set to `value`. All other lines stay as they are. The result is parsed again, and returned
/// only if it differs from the original in that value alone.
///
/// # Errors
/// When the value cannot be changed line by line, for example in a map on one line.
pub fn set(text: &str, key: &Key, value: &Value) -> Result<String, EditError> {
    let cannot = |why: &str| EditError { why: why.to_owned(), line: format!("{key}: {}", format_value(value)) };
    let before = yaml::parse(text).map_err(|why| cannot(&format!("the file is not valid YAML ({why})")))?;
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    if let Some(last) = lines.last_mut().filter(|last| !last.ends_with('\n')) {
        last.push('\n');
    }
    edit(&mut lines, key.names(), value).map_err(cannot)?;
    let after = lines.concat();
    let mut expected = before;
    put(&mut expected, key.names(), value);
    match yaml::parse(&after) {
        Ok(read) if read == expected => Ok(after),
        Ok(_) | Err(_) => Err(cannot("one value of it cannot be changed without changing others")),
    }
}

fn put(tree: &mut Value, names: &[String], value: &Value) {
    let Some((name, rest)) = names.split_first() else {
        *tree = value.clone();
        return;
    };
    if tree.is_null() {
        *tree = Value::Object(serde_json::Map::new());
    }
    if let Value::Object(map) = tree {
        put(map.entry(name.clone()).or_insert(Value::Null), rest, value);
    }
}

/// Sets the value of the key with these names in the lines of a file.
fn edit(lines: &mut Vec<String>, names: &[String], value: &Value) -> Result<(), &'static str> {
    let (mut from, mut to, mut parent_indent) = (0, lines.len(), None::<usize>);
    for (at, name) in names.iter().enumerate() {
        let indent = block_indent(lines, from, to);
        let Some(line) = indent.and_then(|indent| find(lines, from, to, indent, name)) else {
            let indent =
                indent.unwrap_or_else(|| parent_indent.map_or(0, |parent_indent| parent_indent.saturating_add(2)));
            let place = end_of_content(lines, from, to);
            let rest = names.get(at..).unwrap_or_default();
            lines.splice(place..place, nest(rest, indent, value));
            return Ok(());
        };
        let (indent, end) = (indent.unwrap_or_default(), end_of_value(lines, line, to, indent.unwrap_or_default()));
        let is_last = at.saturating_add(1) == names.len();
        let Some((head, inline, tail)) = lines.get(line).and_then(|text| parts(text)) else {
            return Err("the line of the key cannot be read");
        };
        if is_last {
            let new = format!("{head} {}{tail}\n", format_value(value));
            lines.splice(line..end, [new]);
            return Ok(());
        }
        match inline.as_str() {
            "" => {}
            "{}" => {
                if let Some(text) = lines.get_mut(line) {
                    *text = format!("{head}{tail}\n");
                }
            }
            _ => return Err("the parent of the key is written on one line"),
        }
        (from, to, parent_indent) = (line.saturating_add(1), end, Some(indent));
    }
    Ok(())
}

fn nest(names: &[String], indent: usize, value: &Value) -> Vec<String> {
    let last = names.len().saturating_sub(1);
    let line = |(at, name): (usize, &String)| {
        let space = " ".repeat(indent.saturating_add(at.saturating_mul(2)));
        let value = if at == last { format!(" {}", format_value(value)) } else { String::new() };
        format!("{space}{}:{value}\n", quoted(name))
    };
    names.iter().enumerate().map(line).collect()
}

/// Returns whether a line has no content: it is empty, a comment, or a document marker.
fn is_blank(line: &str) -> bool {
    let text = line.trim();
    text.is_empty() || text.starts_with('#') || text == "---"
}

fn indent_of(line: &str) -> usize {
    line.len().saturating_sub(line.trim_start_matches(' ').len())
}

/// Returns the indent of the keys of a block: that of its first line with content.
fn block_indent(lines: &[String], from: usize, to: usize) -> Option<usize> {
    lines.get(from..to)?.iter().find(|line| !is_blank(line)).map(|line| indent_of(line))
}

fn find(lines: &[String], from: usize, to: usize, indent: usize, name: &str) -> Option<usize> {
    let fits = |line: &&String| {
        !is_blank(line)
            && indent_of(line) == indent
            && parts(line).is_some_and(|(head, ..)| unquoted(head.trim().trim_end_matches(':').trim_end()) == name)
    };
    lines.get(from..to)?.iter().position(|line| fits(&line)).map(|at| from.saturating_add(at))
}

/// Returns the end of the value of the key on `line`. The items of a list may have the indent of their key.
fn end_of_value(lines: &[String], line: usize, to: usize, indent: usize) -> usize {
    let first = line.saturating_add(1);
    let belongs = |text: &String| {
        is_blank(text) || indent_of(text) > indent || (indent_of(text) == indent && text.trim_start().starts_with('-'))
    };
    let length = lines.get(first..to).map_or(0, |rest| rest.iter().take_while(|text| belongs(text)).count());
    end_of_content(lines, first, first.saturating_add(length))
}

/// Returns the end of `from..to` without trailing lines that have no content.
fn end_of_content(lines: &[String], from: usize, to: usize) -> usize {
    let blank = lines.get(from..to).map_or(0, |block| block.iter().rev().take_while(|line| is_blank(line)).count());
    to.saturating_sub(blank)
}

/// Splits a line `KEY: VALUE # comment` into the key with its colon, the value, and the comment with the space before it.
fn parts(line: &str) -> Option<(String, String, String)> {
    let line = line.trim_end();
    let colon = if let Some(quote) = line.trim_start().chars().next().filter(|c| matches!(c, '"' | '\'')) {
        let open = line.find(quote)?;
        let close = line.get(open.saturating_add(1)..)?.find(quote)?;
        let after = open.saturating_add(close).saturating_add(2);
        after.saturating_add(line.get(after..)?.find(':')?)
    } else {
        let ends = |(at, _): &(usize, &str)| {
            line.get(at.saturating_add(1)..).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        line.match_indices(':').find(ends)?.0
    };
    let (head, rest) = line.split_at_checked(colon.saturating_add(1))?;
    let comment = comment_at(rest).unwrap_or(rest.len());
    let (value, tail) = rest.split_at_checked(comment)?;
    let space = value.len().saturating_sub(value.trim_end().len());
    let gap = if tail.is_empty() { String::new() } else { " ".repeat(space.max(1)) };
    Some((head.to_owned(), value.trim().to_owned(), format!("{gap}{tail}")))
}

/// Returns the start of a comment: a `#` after a space, outside quotes.
fn comment_at(text: &str) -> Option<usize> {
    let (mut quote, mut before) = (None, ' ');
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '#') if before == ' ' => return Some(at),
            (None, '"' | '\'') if matches!(before, ' ' | '[' | '{' | ',') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            (None | Some(_), _) => {}
        }
        before = c;
    }
    None
}

fn unquoted(name: &str) -> &str {
    let name = name.trim();
    let inside = |quote| name.strip_prefix(quote).and_then(|name| name.strip_suffix(quote));
    inside('"').or_else(|| inside('\'')).unwrap_or(name)
}

fn quoted(name: &str) -> String {
    if is_word(name) { name.to_owned() } else { Value::from(name).to_string() }
}

fn is_word(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '.');
    let word = text.to_ascii_lowercase();
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(plain)
        && !matches!(word.as_str(), "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n")
}

/// Formats a value as one line of YAML: as JSON, with words unquoted.
fn format_value(value: &Value) -> String {
    match value {
        Value::String(text) if is_word(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(format_value).collect::<Vec<_>>().join(", ")),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            other.to_string()
        }
    }
}
