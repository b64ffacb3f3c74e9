//! Prints a transcript as text.

use std::io::{self, Write};

use subtend_actors::transcript::{
    CallEntry, CallOutcome, Entry, Header, NestedTranscript, OwnedEnd, ShownEntry, Transcript,
};
use subtend_actors::worked::Worked;
use subtend_session::call::CallEnd;
use subtend_session::ids::{Seq, Short};
use subtend_session::place::BranchKind;
use subtend_session::record::{AnsweredBy, AskVerdict, From, Hold};
use subtend_tools::registry::Registry;

use crate::cli::cause;
use crate::cli::paint::{
    APPROVAL_MARK, APPROVAL_TEXT, BAD, BOLD, CAUTION, DIM, GOOD, LIVE, Styled, UNKNOWN_WORK, activity, clip, count,
    first_line, harmless, in_flight, mark, size, tokens, work_span,
};

/// Number of lines shown of a shortened system prompt.
const PROMPT_LINES: usize = 4;
/// Number of lines shown of a shortened result.
const RESULT_LINES: usize = 12;
/// Width of a line of shortened text.
const LINE_WIDTH: usize = 160;

#[derive(Clone, Copy)]
pub(super) struct DrawOptions {
    pub(super) full: bool,
    /// True if a process hosts the store, so that runs in flight are active.
    pub(super) hosted: bool,
}

pub(super) fn draw(out: &mut dyn Write, transcript: &Transcript, options: DrawOptions) -> io::Result<()> {
    header(out, &transcript.header)?;
    if let Some(system) = &transcript.header.system {
        writeln!(out, "\n{}", Styled(BOLD, "system prompt"))?;
        block(out, system, "  ", if options.full { None } else { Some(PROMPT_LINES) })?;
    }
    if let Some(same) = transcript.header.system_of {
        writeln!(out, "\n{}", Styled(BOLD, format!("system prompt: that of session {}", same.short())))?;
    }
    let mut own = 0;
    for shown in &transcript.entries {
        entry(out, &transcript.header.short, shown, options, own)?;
        own = if let Entry::Ended { .. } = shown.entry { 0 } else { own.saturating_add(tokens_used(&shown.entry)) };
    }
    if let Some(summary) = &transcript.header.summary {
        writeln!(out, "\n{}", Styled(BOLD, "summary"))?;
        block(out, summary, "  ", None)?;
    }
    if in_flight(transcript.header.state) {
        let of = if options.hosted { "" } else { " when the last process ended" };
        let text = format!("run in flight{of}: {}", activity(transcript.header.state, transcript.header.limited_until));
        writeln!(out, "\n{}", Styled(LIVE, text))?;
    }
    Ok(())
}

fn header(out: &mut dyn Write, session: &Header) -> io::Result<()> {
    writeln!(out, "{} {}  {}", Styled(BOLD, clip(&session.agent, 64)), session.short, clip(&session.title, 80))?;
    let mut facts = vec![format!("session {}", session.id), format!("depth {}", session.depth)];
    facts.extend(session.parent.map(|parent| format!("parent {parent}")));
    facts.extend(session.model.as_ref().map(|model| format!("model {}", clip(model, 64))));
    let metadata = &*session.metadata.0;
    if metadata.starts_with('{') && metadata != "{}" {
        facts.push(format!("metadata {}", clip(metadata, 200)));
    }
    facts.extend(session.workspace.as_ref().map(|workspace| format!("workspace {}", clip(workspace, 200))));
    facts.extend(session.servers.iter().map(|server| format!("server {}", clip(server, 120))));
    if session.imported {
        let rights: Vec<String> =
            session.rights.iter().map(|(action, verdict)| format!("{action} {}", verdict.as_str())).collect();
        facts.push(format!("imported, at most {}", rights.join(", ")));
    }
    writeln!(out, "{}", Styled(DIM, facts.join(" · ")))
}

/// Returns the tokens of an answer or of a discarded attempt.
fn tokens_used(entry: &Entry) -> u64 {
    let (Entry::Answer { usage, .. } | Entry::Discarded { usage: Some(usage), .. }) = entry else { return 0 };
    usage.tokens()
}

/// Returns the tokens of a run, and those with its subagents if they used any.
fn tokens_line(own: u64, all: u64) -> String {
    if all > own { format!("{} · {} with subagents", tokens(own), tokens(all)) } else { tokens(own) }
}

/// Writes an entry. `own` is the number of tokens that its run has used so far.
fn entry(out: &mut dyn Write, me: &Short, shown: &ShownEntry, options: DrawOptions, own: u64) -> io::Result<()> {
    let entry = &shown.entry;
    let hidden = match (shown.rolled_back, shown.compacted) {
        (true, _) => " · rolled back",
        (false, true) => " · compacted",
        (false, false) => "",
    };
    match entry {
        Entry::Input { from, text, seq, .. } => {
            let figures = format!("{}{hidden}", message(me, *seq));
            writeln!(out, "\n{}  {}", Styled(BOLD, sender(from)), Styled(DIM, figures))?;
            block(out, text, "  ", None)
        }
        Entry::Waiting { text, .. } => {
            writeln!(out, "\n{}", Styled(CAUTION, "queued input"))?;
            block(out, text, "  ", None)
        }
        Entry::Answer { turn, seq, text, calls, agent, model, usage, .. } => {
            let who: String = [agent, model].into_iter().flatten().map(|who| format!("{} · ", clip(who, 64))).collect();
            let figures = format!("{} · {who}{}{hidden}", message(me, *seq), tokens(usage.tokens()));
            writeln!(out, "\n{}  {}", Styled(BOLD, format!("answer, turn {turn}")), Styled(DIM, figures))?;
            if let Some(text) = text {
                block(out, text, "  ", None)?;
            }
            calls.iter().try_for_each(|call| self::call(out, call, options))
        }
        Entry::Discarded { .. } => write_discarded(out, entry, options.full),
        Entry::Notice { ends } => {
            writeln!(out, "\n{}{}", Styled(BOLD, "notice"), Styled(DIM, hidden))?;
            ends.iter().try_for_each(|end| self::end(out, end, options.full))
        }
        Entry::Held { run, why } => {
            writeln!(out, "\n{}", Styled(CAUTION, format!("run {run} held: {}", hold_text(why))))
        }
        Entry::Ended { run, outcome, turns, usage, worked_ms, worked_at_least, .. } => {
            let (sign, style) = mark(outcome.kind());
            let output = clip(&format!("{sign} run {run} {}", cause::describe_outcome(outcome)), LINE_WIDTH);
            let worked = work_span(Worked { ms: *worked_ms, at_least: *worked_at_least });
            let worked = worked.map_or_else(|| UNKNOWN_WORK.to_owned(), |worked| format!("{worked} of work"));
            let figures = [count(*turns, "turn"), tokens_line(own, usage.tokens()), worked].join(" · ");
            writeln!(out, "\n{}  {}", Styled(style, output), Styled(DIM, figures))
        }
        Entry::Branch { .. }
        | Entry::Switched { .. }
        | Entry::RolledBack { .. }
        | Entry::NotCompacted { .. }
        | Entry::CompactionUndone { .. }
        | Entry::Asked { .. }
        | Entry::Decided { .. } => {
            writeln!(out, "\n{}", Styled(DIM, event_line(me, entry)))
        }
        Entry::Compacted { cause, messages, before, after, text, .. } => {
            let figures = format!("{messages} messages · about {before} tokens before, {after} after");
            let why = cause.phrase();
            writeln!(out, "\n{}  {}", Styled(CAUTION, format!("compacted, {why}")), Styled(DIM, figures))?;
            block(out, text, "  ", if options.full { None } else { Some(RESULT_LINES) })
        }
        Entry::Deleted { .. } => writeln!(out, "\n{}", Styled(CAUTION, "session deleted")),
        Entry::Closed { closed, .. } => {
            writeln!(out, "\n{}", Styled(DIM, if *closed { "session closed" } else { "session opened again" }))
        }
    }
}

fn message(me: &Short, seq: Seq) -> String {
    format!("{me}:{seq}")
}

fn event_line(me: &Short, entry: &Entry) -> String {
    match entry {
        Entry::Branch { child, kind, at } => {
            let kind = match kind {
                BranchKind::Human => "a branch",
                BranchKind::Subagent => "a fresh branch",
                BranchKind::Alternative => "an alternative",
                BranchKind::Service => "a service",
            };
            format!("{kind} at {}: {child}", message(me, *at))
        }
        Entry::Switched { of, to } => format!("alternative {to} of {} is active from here on", message(me, *of)),
        Entry::RolledBack { run, .. } => {
            format!("run {run} is rolled back: its messages are hidden from the model from here on")
        }
        Entry::NotCompacted { turn, cause, message, .. } => {
            let why = cause.phrase();
            clip(&format!("not compacted before turn {turn}, {why}: {message}"), LINE_WIDTH)
        }
        Entry::CompactionUndone { .. } => {
            "the last compaction is undone: its messages are visible again from here on".to_owned()
        }
        Entry::Asked { call, action, resource } => {
            format!("call {call} asks for approval of {} on {}", clip(action, 64), first_line(resource, LINE_WIDTH))
        }
        Entry::Decided { call, verdict, by } => {
            let verdict = match verdict {
                AskVerdict::Allow => "allowed",
                AskVerdict::Always => "always allowed",
                AskVerdict::Deny => "denied",
            };
            let by = match by {
                AnsweredBy::Person => "by a person",
                AnsweredBy::Deadline => "no answer in time",
                AnsweredBy::NoApprover => "no approver attached",
                AnsweredBy::Closed => "because the call ended first",
            };
            format!("call {call} is {verdict} {by}")
        }
        Entry::Input { .. }
        | Entry::Waiting { .. }
        | Entry::Answer { .. }
        | Entry::Discarded { .. }
        | Entry::Notice { .. }
        | Entry::Held { .. }
        | Entry::Ended { .. }
        | Entry::Compacted { .. }
        | Entry::Deleted { .. }
        | Entry::Closed { .. } => String::new(),
    }
}

/// Writes a discarded attempt with its message, or with the kind of its error if there is no message.
fn write_discarded(out: &mut dyn Write, entry: &Entry, full: bool) -> io::Result<()> {
    let Entry::Discarded { turn, attempt, model, error, message, usage, queued_ms: _ } = entry else { return Ok(()) };
    let who = model.as_ref().map(|model| format!(" by {}", clip(model, 64))).unwrap_or_default();
    let why = if message.is_empty() { cause::model(*error).to_owned() } else { harmless(message) };
    let text = format!("turn {turn}, attempt {attempt}{who} failed: {why}");
    let text = if full { text } else { clip(&text, LINE_WIDTH) };
    match usage {
        Some(usage) => writeln!(out, "\n{}  {}", Styled(CAUTION, text), Styled(DIM, tokens(usage.tokens()))),
        None => writeln!(out, "\n{}", Styled(CAUTION, text)),
    }
}

fn sender(from: &From) -> String {
    match from {
        From::Person => "input of the user".to_owned(),
        From::Host => "input of the host".to_owned(),
        From::Model { session, call, .. } => format!("input of {}, call {call}", session.short()),
        From::AgentResult => "result of an agent elsewhere".to_owned(),
    }
}

fn hold_text(why: &Hold) -> String {
    match why {
        Hold::Interrupted { .. } => "interrupted, until the next input".to_owned(),
        Hold::OutOfTurns => "out of turns, until its children have ended".to_owned(),
        Hold::Closing { outcome, .. } => format!("closing, {}", cause::describe_outcome(outcome)),
    }
}

fn call(out: &mut dyn Write, call: &CallEntry, options: DrawOptions) -> io::Result<()> {
    let child = call.child.map(|child| format!("  → {}", child.short())).unwrap_or_default();
    // A shortened call is shown as its tool displays it, a full one with the model's arguments.
    let shown = Registry::default().render_call(&call.tool, &call.args, None);
    let named = !options.full && !shown.display.name.is_empty();
    let icon = if named { format!("{} ", clip(&shown.display.icon, 4)) } else { String::new() };
    let tool = if named { &shown.display.name } else { &call.tool };
    let args = match shown.input.filter(|_| !options.full) {
        Some(input) => clip(&input, LINE_WIDTH),
        None if options.full => harmless(&call.args),
        None => clip(&call.args, LINE_WIDTH),
    };
    writeln!(out, "  {} {icon}{} {args}{}", Styled(LIVE, "▸"), Styled(BOLD, clip(tool, 64)), Styled(DIM, child))?;
    match &call.result {
        None if call.asks => {
            writeln!(out, "    {}", Styled(APPROVAL_MARK.1, format!("{} {APPROVAL_TEXT}", APPROVAL_MARK.0)))?
        }
        None => writeln!(out, "    {}", Styled(CAUTION, "no result"))?,
        Some(CallOutcome::Ends(ends)) => ends.iter().try_for_each(|end| self::end(out, end, options.full))?,
        Some(CallOutcome::Result { end, content, truncated_from }) => {
            if *end != CallEnd::Ok {
                writeln!(out, "    {}", Styled(BAD, call_end(end)))?;
            }
            block(out, content, "    ", if options.full { None } else { Some(RESULT_LINES) })?;
            if let Some(bytes) = truncated_from {
                writeln!(out, "    {}", Styled(DIM, format!("truncated from {bytes} bytes")))?;
            }
        }
    }
    write_nested(out, call.nested.as_ref(), options)
}

/// Writes the transcript of a child, with a margin that shows its depth.
fn write_nested(out: &mut dyn Write, nested: Option<&NestedTranscript>, options: DrawOptions) -> io::Result<()> {
    let mut text = Vec::new();
    match nested {
        None => return Ok(()),
        Some(NestedTranscript::Transcript(transcript)) => draw(&mut text, transcript, options)?,
        Some(NestedTranscript::Unreadable(why)) => writeln!(text, "{}", Styled(BAD, harmless(why)))?,
    }
    String::from_utf8_lossy(&text).lines().try_for_each(|line| writeln!(out, "    {} {line}", Styled(DIM, "│")))
}

fn call_end(end: &CallEnd) -> &'static str {
    match end {
        CallEnd::Ok => "done",
        CallEnd::ToolError { .. } => "error",
        CallEnd::Denied => "denied",
        CallEnd::TimedOut => "timed out",
        CallEnd::Interrupted => "interrupted",
        CallEnd::Cancelled => "cancelled",
        CallEnd::UnknownEffects => "stopped, with unknown effects",
        CallEnd::Backgrounded => "moved to the background",
    }
}

fn end(out: &mut dyn Write, end: &OwnedEnd, full: bool) -> io::Result<()> {
    let (sign, style) = mark(end.outcome.kind());
    let text = clip(&cause::describe_outcome(&end.outcome), LINE_WIDTH);
    writeln!(out, "    {} {}  {}", Styled(style, sign), Styled(GOOD, end.child.short()), Styled(style, text))?;
    block(out, &end.text, "    ", if full { None } else { Some(RESULT_LINES) })?;
    let shown = u64::try_from(end.text.len()).unwrap_or(u64::MAX);
    if end.deleted {
        writeln!(out, "    {}", Styled(DIM, format!("its text of {} was deleted with its session", size(end.len))))?;
    } else if end.len > shown {
        let rest = format!("the whole text has {} bytes: subtend show {}", end.len, end.child);
        writeln!(out, "    {}", Styled(DIM, rest))?;
    }
    Ok(())
}

/// Writes indented text; with `lines`, only that many lines and the number of omitted ones.
fn block(out: &mut dyn Write, text: &str, indent: &str, lines: Option<usize>) -> io::Result<()> {
    let text = harmless(text);
    let all: Vec<_> = text.trim_end().lines().collect();
    // Print a single remaining line instead of a notice, which would take a line too.
    let shown = lines.filter(|lines| all.len() > lines.saturating_add(1)).unwrap_or(all.len());
    for line in all.iter().take(shown) {
        match lines {
            Some(_) => writeln!(out, "{indent}{}", clip_line(line))?,
            None => writeln!(out, "{indent}{line}")?,
        }
    }
    match all.len().saturating_sub(shown) {
        0 => Ok(()),
        left => writeln!(out, "{indent}{}", Styled(DIM, format!("… {} more (--full)", count(left as u64, "line")))),
    }
}

fn clip_line(line: &str) -> String {
    let start = line.find(|c: char| !c.is_whitespace()).unwrap_or(line.len());
    let (indent, rest) = line.split_at(start.min(LINE_WIDTH));
    format!("{indent}{}", clip(rest, LINE_WIDTH))
}
