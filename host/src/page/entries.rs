//! Renders the entries of a transcript as HTML, one element per entry.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use subtend_actors::transcript::{CallEntry, CallOutcome, Entry, NestedTranscript, OwnedEnd, ShownEntry, Transcript};
use subtend_actors::{Alternatives, Runtime};
use subtend_session::call::CallEnd;
use subtend_session::ids::{RunNo, Seq, SessionId};
use subtend_session::outcome::{Initiator, Outcome};
use subtend_session::place::BranchKind;
use subtend_session::record::{AnsweredBy, AskVerdict, From, Hold};
use subtend_session::values::parse_recorded;

use super::minion::MinionWork;
use super::words::{self, StateLabel};
use super::{activity, bounds, diff, markdown, render_fragment, render_within};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) id: String,
    pub(super) html: String,
}

#[derive(Default, Template)]
#[template(path = "entry.html")]
struct EntryView {
    id: String,
    class: &'static str,
    head: String,
    facts: String,
    markdown: Option<String>,
    text: Option<String>,
    calls: Vec<CallView>,
    ends: Vec<EndView>,
    links: Vec<Link>,
    hidden: bool,
    /// The reason why the entry is hidden from models.
    hidden_why: &'static str,
    /// The session that actions apply to.
    session: String,
    at: Option<Seq>,
    answer: bool,
    switch: Option<AlternativeCount>,
    /// The run that the entry offers to roll back.
    failed: Option<RunNo>,
}

struct AlternativeCount {
    shown: u32,
    of: usize,
}

struct Link {
    id: SessionId,
    text: String,
}

struct EndView {
    child: SessionId,
    short: String,
    state: StateLabel,
    text: String,
    cause: Option<String>,
}

struct CallView {
    id: String,
    line: String,
    tool: String,
    args: String,
    diff: Option<String>,
    child: Option<SessionId>,
    child_short: String,
    receiver: Option<Link>,
    warnings: Vec<String>,
    state: StateLabel,
    result: Option<String>,
    ends: Vec<EndView>,
    minion: Option<MinionWork>,
    nested: Option<String>,
    open: bool,
}

pub(super) struct NewestItems {
    /// Number of earlier entries, which are not rendered.
    pub(super) earlier: usize,
    pub(super) items: Vec<Item>,
}

/// Renders the newest entries: at most `most`, within the bound of a view, without inputs that the queue shows.
/// `alternatives` are in the order of their answers.
pub(super) fn newest<'a>(
    runtime: &Runtime,
    of: &'a Transcript,
    alternatives: &[Alternatives],
    most: usize,
) -> NewestItems {
    let mut seen: BTreeMap<Seq, u32> = BTreeMap::new();
    let back = |shown: &ShownEntry| if let Entry::RolledBack { run, .. } = shown.entry { Some(run) } else { None };
    let rolled_back: BTreeSet<RunNo> = of.entries.iter().filter_map(back).collect();
    let with_id = |shown: &'a ShownEntry| {
        let nth = seen.entry(shown.record).and_modify(|nth| *nth = nth.saturating_add(1)).or_default();
        (format!("e-{}-{nth}", shown.record), shown)
    };
    let shown = of.entries.iter().filter(|shown| !matches!(shown.entry, Entry::Waiting { .. }));
    let shown: Vec<(String, &ShownEntry)> = shown.map(with_id).collect();
    let item = |(id, shown): &(String, &ShownEntry)| {
        let (id, mut view) = (id.clone(), view(runtime, of, shown));
        view.id.clone_from(&id);
        view.session = of.header.id.to_string();
        view.hidden = shown.rolled_back || shown.compacted;
        view.hidden_why = if shown.rolled_back { "rolled back" } else { "compacted" };
        view.failed = view.failed.filter(|run| !rolled_back.contains(run));
        let at = view.at.filter(|_| view.answer);
        let found = at.and_then(|at| alternatives.binary_search_by_key(&at, |found| found.of).ok());
        if let Some(found) = found.and_then(|nth| alternatives.get(nth)) {
            view.switch = Some(AlternativeCount { shown: found.active.saturating_add(1), of: found.choices.len() });
        }
        Item { id, html: rendered(view, of.header.id, shown.record) }
    };
    let newest = shown.iter().rev().take(most).map(item);
    let items = bounds::newest_within(newest, bounds::MAX_ENTRIES_BYTES, |item| item.html.len());
    let earlier = of.earlier.saturating_add(shown.len()).saturating_sub(items.len());
    NewestItems { earlier, items }
}

fn event_entry(head: impl Into<String>) -> EntryView {
    EntryView { class: "aside", head: head.into(), ..EntryView::default() }
}

fn view(runtime: &Runtime, of: &Transcript, shown: &ShownEntry) -> EntryView {
    match &shown.entry {
        Entry::Input { seq, from, run, text, at_ms, relative, .. } => EntryView {
            class: "input",
            links: if *relative { message_links(from, of.header.id) } else { Vec::new() },
            head: sender(from),
            facts: format!("message {}:{seq} · run {run} · {}", of.header.short, words::utc_text(*at_ms)),
            text: Some(message(text)),
            at: Some(*seq),
            ..EntryView::default()
        },
        Entry::Waiting { text, .. } => event_entry(words::line(text)),
        Entry::Answer { turn, seq, text, calls, agent, model, usage, queued_ms, at_ms } => EntryView {
            class: "answer",
            head: agent.as_ref().map_or_else(|| "answer".to_owned(), |agent| words::line(agent)),
            facts: {
                let model = model.as_ref().map(|model| format!("{} · ", words::line(model))).unwrap_or_default();
                let wait = if *queued_ms == 0 {
                    String::new()
                } else {
                    format!(" · waited {} for a permit", words::span(*queued_ms))
                };
                let (usage, at) = (words::usage(usage), words::utc_text(*at_ms));
                format!("message {}:{seq} · turn {turn} · {model}{usage}{wait} · {at}", of.header.short)
            },
            markdown: text.as_ref().map(|text| markdown::render(text)),
            calls: self::calls(runtime, calls),
            at: Some(*seq),
            answer: true,
            ..EntryView::default()
        },
        Entry::Discarded { turn, attempt, model, message, .. } => {
            let by = model.as_ref().map(|model| format!(" by {}", words::line(model))).unwrap_or_default();
            let why = if message.is_empty() { "no message".to_owned() } else { words::clip(message, 400) };
            event_entry(format!("turn {turn}, attempt {attempt}{by} was discarded: {why}"))
        }
        Entry::Notice { ends } => EntryView {
            class: "notice",
            head: "results of children".to_owned(),
            ends: self::ends(ends),
            ..EntryView::default()
        },
        Entry::Ended { run, outcome, turns, usage, worked_ms, worked_at_least, at_ms } => {
            let least = if *worked_at_least { "at least " } else { "" };
            let (turns, usage) = (words::count(*turns, "turn"), words::usage(usage));
            let (worked, at) = (words::span(*worked_ms), words::utc_text(*at_ms));
            EntryView {
                class: match StateLabel::of_outcome(outcome).class {
                    "good" => "aside good",
                    "odd" => "aside odd",
                    _ => "aside bad",
                },
                head: format!("run {run} {}", outcome_text(outcome)),
                facts: format!("{turns} · {usage} · {least}{worked} of work · {at}"),
                failed: Some(*run).filter(|_| *outcome != Outcome::Completed),
                ..EntryView::default()
            }
        }
        Entry::Branch { child, kind, at } => EntryView {
            links: vec![Link { id: *child, text: child.short().to_string() }],
            ..event_entry(format!("{} at message {}:{at}", branch_kind_name(*kind), of.header.short))
        },
        other @ (Entry::Held { .. }
        | Entry::Switched { .. }
        | Entry::RolledBack { .. }
        | Entry::Compacted { .. }
        | Entry::NotCompacted { .. }
        | Entry::CompactionUndone { .. }
        | Entry::Asked { .. }
        | Entry::Decided { .. }
        | Entry::Deleted { .. }
        | Entry::Closed { .. }) => event_entry(event(other)),
    }
}

fn event(entry: &Entry) -> String {
    match entry {
        Entry::Held { run, why } => {
            let why = match why {
                Hold::Interrupted { .. } => "interrupted, until the next input".to_owned(),
                Hold::OutOfTurns => "out of turns, until its owned runs have ended".to_owned(),
                Hold::Closing { outcome, .. } => format!("ending, {}", outcome_text(outcome)),
            };
            format!("run {run} is held: {why}")
        }
        Entry::Switched { of, to } => format!("models see alternative {to} of message {of} from here on"),
        Entry::RolledBack { run, .. } => {
            format!("run {run} is rolled back: models do not see its messages from here on")
        }
        Entry::Compacted { cause, messages, before, after, .. } => {
            let why = cause.phrase();
            format!("compacted, {why}: {messages} messages are summarised; about {before} tokens before, {after} after")
        }
        Entry::NotCompacted { turn, cause, message, .. } => {
            let why = cause.phrase();
            format!("not compacted before turn {turn}, {why}: {}", words::line(message))
        }
        Entry::CompactionUndone { by } => format!("the last compaction is undone{}", initiator_name(by)),
        Entry::Asked { call, action, resource } => {
            format!("call {call} needs an approval: {} {}", words::line(action), words::line(resource))
        }
        Entry::Decided { call, verdict, by } => {
            let verdict = match verdict {
                AskVerdict::Allow => "approved",
                AskVerdict::Always => "approved for the session",
                AskVerdict::Deny => "denied",
            };
            let by = match by {
                AnsweredBy::Person => "",
                AnsweredBy::Deadline => ": its deadline passed",
                AnsweredBy::NoApprover => ": no approver is attached",
                AnsweredBy::Closed => ": the call was closed before",
            };
            format!("call {call} is {verdict}{by}")
        }
        Entry::Deleted { by } => format!("session deleted{}", initiator_name(by)),
        Entry::Closed { closed: true, by } => format!("session closed{}", initiator_name(by)),
        Entry::Closed { closed: false, by } => format!("session reopened{}", initiator_name(by)),
        Entry::Input { .. }
        | Entry::Waiting { .. }
        | Entry::Answer { .. }
        | Entry::Discarded { .. }
        | Entry::Notice { .. }
        | Entry::Ended { .. }
        | Entry::Branch { .. } => String::new(),
    }
}

fn initiator_name(by: &Initiator) -> &'static str {
    match by {
        Initiator::Person => " by a person",
        Initiator::Host => " by the host",
        Initiator::Model { .. } => " by a call of its owner",
        Initiator::Owner { .. } => " by its owner's end",
        Initiator::Sweep => " at a start",
    }
}

/// Returns links to the sender and the receiver of a message between sessions.
fn message_links(from: &From, to: SessionId) -> Vec<Link> {
    let From::Model { session, .. } = from else { return Vec::new() };
    [("from", *session), ("to", to)].map(|(way, id)| Link { id, text: format!("{way} {}", id.short()) }).into()
}

fn sender(from: &From) -> String {
    match from {
        From::Person => "person".to_owned(),
        From::Host => "host".to_owned(),
        From::Model { session, call, .. } => format!("agent {}, call {call}", session.short()),
        From::AgentResult => "result of an agent elsewhere".to_owned(),
    }
}

pub(super) fn branch_kind_name(kind: BranchKind) -> &'static str {
    match kind {
        BranchKind::Human => "branch",
        BranchKind::Subagent => "subagent",
        BranchKind::Alternative => "alternative",
        BranchKind::Service => "service",
    }
}

/// Describes an outcome with its cause, on one line.
fn outcome_text(outcome: &Outcome) -> String {
    words::clip(&crate::cause::describe_outcome(outcome), 300)
}

fn ends(ends: &[OwnedEnd]) -> Vec<EndView> {
    bounds::build_parts(ends.iter().map(end), |end| end.text.len())
}

fn end(of: &OwnedEnd) -> EndView {
    EndView {
        child: of.child,
        short: of.child.short().to_string(),
        state: StateLabel::of_outcome(&of.outcome),
        text: match of.deleted {
            true => "deleted with its session".to_owned(),
            false if of.text.is_empty() && of.len > 0 => "in its own conversation".to_owned(),
            false => clip(&of.text),
        },
        cause: (of.text.is_empty() && of.outcome != Outcome::Completed).then(|| outcome_text(&of.outcome)),
    }
}

/// Renders the calls of an answer. Diffs that no entry has room for are left out, so the arguments are shown.
fn calls(runtime: &Runtime, calls: &[CallEntry]) -> Vec<CallView> {
    let mut left = bounds::MAX_ENTRY_BYTES;
    let mut fits = |diff: &String| {
        let rest = left.checked_sub(diff.len());
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    let call = |of| {
        let view = call(runtime, of);
        CallView { diff: view.diff.filter(&mut fits), ..view }
    };
    bounds::build_parts(calls.iter().map(call), CallView::text_bytes)
}

impl CallView {
    /// Returns a lower bound of the text that the call shows.
    fn text_bytes(&self) -> usize {
        let input = self.diff.as_ref().unwrap_or(&self.args).len();
        let result = self.result.as_ref().map_or(0, String::len);
        let warnings = self.warnings.iter().map(String::len).sum::<usize>();
        let ends = self.ends.iter().map(|end| end.text.len()).sum::<usize>();
        let minion = self.minion.as_ref().map_or(0, MinionWork::text_bytes);
        [self.line.len(), input, result, warnings, ends, minion].into_iter().fold(0, usize::saturating_add)
    }
}

fn call(runtime: &Runtime, of: &CallEntry) -> CallView {
    let (state, result, ends) = match &of.result {
        None if of.asks => (StateLabel { word: "needs approval", class: "bad" }, None, Vec::new()),
        None => (StateLabel { word: "running", class: "live" }, None, Vec::new()),
        Some(CallOutcome::Result { end, content, truncated_from }) => {
            let cut = truncated_from.map(|bytes| format!("\n[cut for the model: {bytes} bytes]")).unwrap_or_default();
            (call_state(end), Some(format!("{}{cut}", clip(content))), Vec::new())
        }
        Some(CallOutcome::Ends(ends)) => {
            let state = ends
                .first()
                .map_or(StateLabel { word: "done", class: "good" }, |end| StateLabel::of_outcome(&end.outcome));
            (state, None, self::ends(ends))
        }
    };
    CallView {
        id: format!("c-{}-{}", of.call.turn, of.call.ix),
        line: activity::call_line(runtime, &of.tool, &of.args),
        tool: words::line(&of.tool),
        args: clip(&pretty(&of.args)),
        diff: diff::of_call(&of.tool, &of.args),
        child: of.child,
        child_short: of.child.map(|child| child.short().to_string()).unwrap_or_default(),
        receiver: of.receiver.map(|id| Link { id, text: id.short().to_string() }),
        warnings: bounds::build_parts(of.warnings.iter().map(|warning| clip(warning)), String::len),
        open: of.asks,
        state,
        result,
        ends,
        minion: of.minion.as_ref().map(|minion| MinionWork::of(of.call, minion)),
        nested: of.nested.as_ref().map(|nested| match nested {
            NestedTranscript::Transcript(of) => {
                format!("{} in its own conversation", words::count(of.entries.len() as u64, "message"))
            }
            NestedTranscript::Unreadable(why) => why.clone(),
        }),
    }
}

fn call_state(end: &CallEnd) -> StateLabel {
    let (word, class) = match end {
        CallEnd::Ok => ("ok", "good"),
        CallEnd::ToolError { .. } => ("error", "bad"),
        CallEnd::Denied => ("denied", "odd"),
        CallEnd::TimedOut => ("timed out", "bad"),
        CallEnd::Interrupted => ("interrupted", "odd"),
        CallEnd::Cancelled => ("cancelled", "odd"),
        CallEnd::UnknownEffects => ("effects unknown", "bad"),
        CallEnd::Backgrounded => ("in the background", "wait"),
    };
    StateLabel { word, class }
}

/// Pretty-prints arguments; unchanged if not JSON, if they are too long or have too many values, or if they repeat a key: parsing would keep
/// only its last value.
pub(super) fn pretty(args: &str) -> String {
    if args.len() > bounds::MAX_MESSAGE_BYTES {
        return args.to_owned();
    }
    let value: Option<serde_json::Value> = parse_recorded(args).ok();
    let pretty = value.and_then(|value| serde_json::to_string_pretty(&value).ok());
    let same = |pretty: &String| {
        let bare = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        bare(pretty) == bare(args)
    };
    pretty.filter(same).unwrap_or_else(|| args.to_owned())
}

pub(super) fn clip(text: &str) -> String {
    bounds::clip(text, bounds::MAX_RESULT_BYTES)
}

fn message(text: &str) -> String {
    bounds::clip(text, bounds::MAX_MESSAGE_BYTES)
}

/// Renders an entry, or a notice if it has too much HTML.
fn rendered(mut view: EntryView, session: SessionId, record: Seq) -> String {
    if let Some(html) = render_within(&view, bounds::MAX_ENTRY_BYTES) {
        return html;
    }
    (view.markdown, view.calls, view.ends) = (None, Vec::new(), Vec::new());
    view.text = Some(bounds::entry_left_out(session, record));
    render_fragment(&view)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pretty_arguments_keep_repeated_keys() {
        assert_eq!(pretty("{\"a\": [1]}"), "{\n  \"a\": [\n    1\n  ]\n}");
        for args in ["{\"what\": \"ls\", \"what\": \"rm\"}", "{\"a\": 12345678901234567890123}", "{"] {
            assert_eq!(pretty(args), args);
        }
    }
}
