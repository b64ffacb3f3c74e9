//! What an export may say in names: it is somebody else's text, and is judged field by field as a model's is.

use subtend_session::ids::{Short, Text};
use subtend_session::record::{AskVerdict, Record, SessionCreated};

/// Bytes of a name of an agent, a tool or a dialect, at most.
const NAME: usize = 256;
/// Bytes of a title, a label, a model, a path or a warning, at most.
const LINE: usize = 4 << 10;

/// What is wrong with a field.
type Wrong = String;

/// Judges the names that records hold, and takes back what a person allowed for good: that was said to another host.
pub(super) fn admit(records: &mut [Record]) -> Result<(), Wrong> {
    for record in records {
        if let Record::AskAnswered { verdict: verdict @ AskVerdict::Always, .. } = record {
            *verdict = AskVerdict::Allow;
        }
        judge(record)?;
    }
    Ok(())
}

fn judge(record: &Record) -> Result<(), Wrong> {
    if let Record::SessionCreated(created) = record {
        return birth(created);
    }
    if let Record::ChildSpawned(spawned) = record {
        short(&spawned.short)?;
        agent(&spawned.agent)?;
        spawned.label.iter().try_for_each(|label| line("label", label))?;
        spawned.warnings.iter().try_for_each(|warning| line("warning", warning))?;
        return spawned.skipped.iter().try_for_each(|tool| line("tool", tool));
    }
    if let Record::BranchCreated(created) = record {
        short(&created.short)?;
        return agent(&created.agent);
    }
    if let Record::TitleSet(set) = record {
        return line("title", &set.title);
    }
    if let Record::InputAccepted(input) = record {
        input.key.iter().try_for_each(|key| line("key", key))?;
        let Some(other) = &input.agent_override else { return Ok(()) };
        agent(&other.agent)?;
        return line("model", &other.model);
    }
    Ok(())
}

fn birth(created: &SessionCreated) -> Result<(), Wrong> {
    short(&created.short)?;
    agent(&created.agent)?;
    line("model", &created.model)?;
    line("workspace", &created.workspace)?;
    created.title.iter().try_for_each(|title| line("title", title))?;
    created.dialects.iter().try_for_each(|dialect| name("dialect", dialect))?;
    let tools = [&created.tools, &created.in_full];
    tools.into_iter().flatten().flatten().try_for_each(|tool| name("tool", tool))
}

/// A short name is the end of an id, in hexadecimal.
pub(super) fn short(short: &Short) -> Result<(), Wrong> {
    let digits = short.0.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    let fits = digits && (6..=32).contains(&short.0.len());
    if fits {
        Ok(())
    } else {
        Err(format!("the short name {:?} is not 6 to 32 lower-case hexadecimal digits", &*short.0))
    }
}

/// An agent is found by its name, which is also that of a file.
fn agent(text: &Text) -> Result<(), Wrong> {
    name("agent", text)?;
    let is_path = text.contains(['/', '\\']) || text.starts_with('.');
    if is_path { Err(format!("the agent {:?} is a path, not a name", &**text)) } else { Ok(()) }
}

fn name(what: &str, text: &Text) -> Result<(), Wrong> {
    if text.is_empty() || text.len() > NAME || text.chars().any(char::is_whitespace) && what != "agent" {
        return Err(format!("the {what} {:?} is not a name of 1 to {NAME} bytes", start(text)));
    }
    line(what, text)
}

/// Text that a terminal shows as it is. Line breaks of earlier versions are folded where it is shown.
fn line(what: &str, text: &Text) -> Result<(), Wrong> {
    if text.len() > LINE {
        return Err(format!("the {what} {:?} has {} bytes, the limit is {LINE}", start(text), text.len()));
    }
    let obeyed = |c: char| (c.is_control() && !matches!(c, '\n' | '\r' | '\t')) || turns(c);
    match text.chars().find(|c| obeyed(*c)) {
        None => Ok(()),
        Some(c) => Err(format!("the {what} {:?} has the control character {c:?}", start(text))),
    }
}

/// Whether a character turns the direction of writing.
fn turns(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn start(text: &str) -> String {
    text.chars().take(64).collect()
}
