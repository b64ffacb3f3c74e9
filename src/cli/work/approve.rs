//! Approvals at the terminal: questions, and the typed answers.

use std::collections::BTreeSet;
use std::io::{BufRead as _, IsTerminal as _};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{QueueSelector, tcflush};
use serde::Deserialize;
use serde_json::Value;
use subtend_actors::Approval;
use subtend_actors::event::{Event, EventKind};
use subtend_session::ids::{CallId, SessionId, Text, TurnNo};
use subtend_session::record::{AskVerdict, Record};
use subtend_tools::workspace::Workspace;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::super::approvals::waiting;
use super::super::fail::Fail;
use super::frame::columns;
use question::question;

mod question;

/// Time in which a question in the place of another one cannot be answered with yes: the answer was meant for the other one.
const READING_TIME: Duration = Duration::from_secs(1);
const CHANGED: &str = "this question has just taken the place of another one: read it, then answer it";

pub(crate) struct TerminalApprover {
    lines: mpsc::UnboundedReceiver<String>,
    /// True if questions are asked; otherwise only the end of stdin matters.
    asks: bool,
    question: Option<OpenQuestion>,
    replaced: ReplacedQuestion,
    waiting: WaitingCalls,
}

/// Whether the open question took the place of one that was closed without an answer, and until when it cannot be allowed.
#[derive(Debug, Default)]
pub(crate) struct ReplacedQuestion {
    closed: bool,
    until: Option<Instant>,
}

impl ReplacedQuestion {
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    pub(crate) fn open(&mut self) {
        self.until = std::mem::take(&mut self.closed).then(|| Instant::now() + READING_TIME);
    }

    /// Returns whether `verdict` does not answer the open question yet.
    pub(crate) fn refuses(&self, verdict: AskVerdict) -> bool {
        verdict != AskVerdict::Deny && self.until.is_some_and(|until| Instant::now() < until)
    }
}

/// Waiting calls as known from shown events: a call is asked about only after the answer that contains it is shown.
#[derive(Debug)]
pub(crate) struct WaitingCalls {
    known: BTreeSet<(SessionId, CallId)>,
    /// True if further calls may wait, whose events were missed.
    others: bool,
}

impl WaitingCalls {
    /// Creates an empty set. `others` is true if calls may have been waiting before the first event.
    pub(crate) fn new(others: bool) -> Self {
        Self { known: BTreeSet::new(), others }
    }

    /// Adds a call that needs an approval, or removes an answered one.
    pub(crate) fn observe(&mut self, event: &Event) {
        let EventKind::Record { record, .. } = &event.what else { return };
        if let Record::AskOpened { call, .. } = &**record {
            self.known.insert((event.session, *call));
        } else if let Record::AskAnswered { call, .. } = &**record {
            self.known.remove(&(event.session, *call));
        }
    }

    pub(crate) fn mark_missed_events(&mut self) {
        self.others = true;
    }

    pub(crate) fn may_wait(&self) -> bool {
        self.others || !self.known.is_empty()
    }

    /// Returns the first call of the host's list whose event was shown.
    pub(crate) fn first(&mut self, listed: &[(SessionId, CallId)]) -> Option<usize> {
        if std::mem::take(&mut self.others) {
            self.known.extend(listed);
        }
        // A call that has left the list was answered, even if the event has not arrived yet.
        self.known.retain(|known| listed.contains(known));
        listed.iter().position(|listed| self.known.contains(listed))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct OpenQuestion {
    session: SessionId,
    call: CallId,
    /// Digest of the shown content.
    digest: String,
    pub(crate) question: String,
    /// Whether the question offers to allow the access from now on.
    offers_always: bool,
}

/// A call that waits for an approval, as the host lists it.
#[derive(Deserialize)]
pub(crate) struct ListedCall {
    session: SessionId,
    pub(crate) root: SessionId,
    path: String,
    call: String,
    tool: Text,
    args: Text,
    action: Text,
    resource: Text,
    plan: Option<Text>,
    /// Absent in a list if the texts are truncated.
    digest: Option<String>,
    #[serde(default)]
    shortened: bool,
}

impl ListedCall {
    /// Returns the session and the call, as the host names them in the next page.
    pub(crate) fn position(&self) -> (SessionId, &str) {
        (self.session, &self.call)
    }

    /// Returns the path of the whole call, if its texts are truncated.
    pub(crate) fn path_of_rest(&self) -> Option<String> {
        self.shortened.then(|| waiting::call_path(self.session, &self.call))
    }

    /// Returns the session and the call.
    ///
    /// # Errors
    /// If the name of the session or the call cannot be parsed.
    pub(crate) fn id(&self) -> Result<(SessionId, CallId), Fail> {
        let call = self
            .call
            .split_once('.')
            .and_then(|(turn, ix)| Some(CallId { turn: TurnNo(turn.parse().ok()?), ix: ix.parse().ok()? }));
        let bad = || Fail::Store(format!("a call that waits for an approval cannot be read: {}", self.call));
        Ok((self.session, call.ok_or_else(bad)?))
    }

    /// Returns the question to show.
    ///
    /// # Errors
    /// As [`ListedCall::id`].
    pub(crate) fn question(self, workspace: Option<&Workspace>) -> Result<OpenQuestion, Fail> {
        let (session, call) = self.id()?;
        let Self { root, path, tool, args, action, resource, plan, digest, .. } = self;
        // The host refuses an answer without one.
        let digest = digest.unwrap_or_default();
        let approval = Approval { root, session, path, call, tool, action, resource, args, plan, deadline_ms: None };
        let question = question(&approval, workspace, columns());
        Ok(OpenQuestion { session, call, digest, question, offers_always: approval.always_scope().is_some() })
    }
}

impl OpenQuestion {
    /// Returns the path of the HTTP resource that takes the answer.
    pub(crate) fn path(&self) -> String {
        waiting::call_path(self.session, &self.call.to_string())
    }

    /// Returns the body of the answer. Its digest limits the answer to the shown content.
    pub(crate) fn body(&self, verdict: AskVerdict) -> Value {
        serde_json::json!({"verdict": verdict, "digest": self.digest})
    }

    /// Returns whether the question does not offer `verdict`.
    pub(crate) fn refuses(&self, verdict: AskVerdict) -> bool {
        verdict == AskVerdict::Always && !self.offers_always
    }

    pub(crate) fn is_closed(&self, event: &Event) -> bool {
        let EventKind::Record { record, .. } = &event.what else { return false };
        let Record::AskAnswered { call, .. } = &**record else { return false };
        event.session == self.session && *call == self.call
    }
}

/// Returns whether the user can be asked at the terminal.
///
/// If so, calls that need an approval wait for an answer; otherwise they are denied at once.
pub(super) fn has_approver(silent: bool) -> bool {
    !silent && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Returns the lines of stdin. A blocking read cannot be cancelled, so it has its own thread, which ends with the process.
fn lines() -> mpsc::UnboundedReceiver<String> {
    let (sender, lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Maximum number of 4 KiB pieces of typed-ahead input to discard. A program could write to the terminal endlessly.
const MAX_DISCARDED: usize = 64;

/// Discards lines that were typed before the first question. A resumed run may ask one at once.
fn discard_typed_ahead() {
    let (stdin, mut piece) = (std::io::stdin(), [0; 4096]);
    for _ in 0..MAX_DISCARDED {
        let mut typed = [PollFd::new(&stdin, PollFlags::IN)];
        let is_typed = poll(&mut typed, Some(&Timespec::default())).is_ok_and(|ready| ready > 0);
        if !(is_typed && rustix::io::read(&stdin, &mut piece).is_ok_and(|read| read > 0)) {
            return;
        }
    }
}

impl TerminalApprover {
    /// Starts reading lines. With `asks`, they answer questions; otherwise only the end of stdin matters.
    pub(super) fn new(asks: bool, waiting: WaitingCalls) -> Self {
        discard_typed_ahead();
        Self { lines: lines(), asks, question: None, replaced: ReplacedQuestion::default(), waiting }
    }

    /// Returns the next line; `None` at the end of stdin. Never resolves without an approver.
    ///
    /// # Cancel safety
    /// No line is lost when the future is dropped.
    pub(super) async fn line(me: &mut Option<Self>) -> Option<String> {
        match me {
            None => std::future::pending().await,
            Some(me) => me.lines.recv().await,
        }
    }

    /// Returns the waiting calls if a question can be asked now.
    pub(super) fn next(&mut self) -> Option<&mut WaitingCalls> {
        (self.asks && self.question.is_none() && self.waiting.may_wait()).then_some(&mut self.waiting)
    }

    pub(super) fn mark_missed_events(&mut self) {
        self.waiting.mark_missed_events();
    }

    /// Opens a question that was shown. What was typed before it is discarded, so that it does not answer it.
    pub(super) fn ask(&mut self, question: OpenQuestion) {
        // The beginning of a line, which the terminal holds. An error means that stdin is not a terminal.
        let _ = tcflush(std::io::stdin(), QueueSelector::IFlush);
        while self.lines.try_recv().is_ok() {}
        self.replaced.open();
        self.question = Some(question);
    }

    /// Handles an event: adds a call that waits, or closes the question, for example after a cancel or a deadline.
    pub(super) fn observe(&mut self, event: &Event) {
        if self.question.take_if(|question| question.is_closed(event)).is_some() {
            self.replaced.close();
        }
        self.waiting.observe(event);
    }

    pub(super) fn is_asking(&self) -> bool {
        self.question.is_some()
    }

    /// Returns the verdict of `line`, or the text to show if the line is unclear; `None` without an open question.
    pub(super) fn answer(&mut self, line: &str) -> Option<Result<(OpenQuestion, AskVerdict), String>> {
        self.question.as_ref()?;
        let Some(verdict) = verdict(line) else {
            return Some(Err("answer y (this once), a (always, in this session) or n".to_owned()));
        };
        if self.question.as_ref().is_some_and(|question| question.refuses(verdict)) {
            return Some(Err("this question is for once: answer y or n".to_owned()));
        }
        if self.replaced.refuses(verdict) {
            return Some(Err(CHANGED.to_owned()));
        }
        self.question.take().map(|question| Ok((question, verdict)))
    }
}

/// Parses a typed line as a verdict; `None` if it is unclear.
pub(crate) fn verdict(line: &str) -> Option<AskVerdict> {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Some(AskVerdict::Allow),
        "a" | "always" => Some(AskVerdict::Always),
        "" | "n" | "no" => Some(AskVerdict::Deny),
        _ => None,
    }
}

#[cfg(test)]
mod offered;
#[cfg(test)]
mod tests {
    use subtend_session::record::AnsweredBy;

    use super::super::super::paint::exact;
    use super::super::live::tests::{ROOT, ask_opened, event, id};
    use super::*;

    fn answered(ix: u32) -> Record {
        Record::AskAnswered { call: CallId { turn: TurnNo(1), ix }, verdict: AskVerdict::Allow, by: AnsweredBy::Person }
    }

    #[test]
    fn call_is_asked_about_after_its_event() {
        let call = |ix| (id(ROOT), CallId { turn: TurnNo(1), ix });
        let mut waiting = WaitingCalls::new(false);
        assert!(!waiting.may_wait());
        assert_eq!(waiting.first(&[call(0)]), None, "its event was not shown");
        waiting.observe(&event(ROOT, ask_opened()));
        assert_eq!((waiting.may_wait(), waiting.first(&[call(1), call(0)])), (true, Some(1)));
        waiting.observe(&event(ROOT, answered(0)));
        assert_eq!((waiting.may_wait(), waiting.first(&[call(0)])), (false, None));
    }

    #[test]
    fn calls_are_asked_about_after_missed_events() {
        let call = (id(ROOT), CallId { turn: TurnNo(1), ix: 0 });
        for mut waiting in [WaitingCalls::new(true), WaitingCalls::new(false)] {
            waiting.mark_missed_events();
            assert_eq!((waiting.may_wait(), waiting.first(&[call])), (true, Some(0)));
            assert_eq!(waiting.first(&[call]), Some(0), "it is still listed");
            assert_eq!((waiting.first(&[]), waiting.may_wait()), (None, false), "it was answered");
        }
    }

    #[test]
    fn plan_is_shown_in_full_without_control_characters() {
        let id: subtend_session::ids::SessionId = "0192f0c1-2d3e-7abc-8def-0123456789ab".parse().expect("an id");
        let approval = Approval {
            root: id,
            session: id,
            path: "a3f9c1".to_owned(),
            call: subtend_session::ids::CallId { turn: subtend_session::ids::TurnNo(1), ix: 0 },
            tool: "plan_exit".into(),
            action: "plan_exit".into(),
            resource: "build".into(),
            args: "{}".into(),
            plan: Some("1. Write `a`.\n2. Test it.\u{1b}[2J\n".into()),
            deadline_ms: None,
        };
        let dir = tempfile::tempdir().expect("a directory");
        let workspace = Workspace::open(dir.path()).expect("a workspace");
        let text = question(&approval, Some(&workspace), None);
        assert!(text.starts_with("a3f9c1 has a plan:\n\n| 1. Write `a`.\n| 2. Test it."), "{text}");
        assert!(text.ends_with("\n\nlet build carry it out? [y]es, [N]o: continue planning"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
        let other = Approval {
            plan: None,
            action: "shell.run".into(),
            resource: "make".into(),
            tool: "shell".into(),
            ..approval
        };
        assert_eq!(
            question(&other, Some(&workspace), None),
            "a3f9c1 asks for shell.run on make (shell)\nallow? [y]es, [a]lways in this session (this command), [N]o"
        );
        let folded = "git status # scan only\ntouch PWNED \u{202e}\u{200b}\u{1b}[2J\r\n";
        let text = question(&Approval { resource: folded.into(), ..other.clone() }, Some(&workspace), None);
        assert_eq!(
            text,
            "a3f9c1 asks for shell.run on git status # scan only (and 2 more lines) (shell)\n\n| git status # scan only\n\
             | touch PWNED <U+202E><U+200B><U+001B>[2J<U+000D>\n| \n\nallow? [y]es, [a]lways in this session (this command), [N]o"
        );
        // With duplicate keys, the recorded resource is the one that runs, and not the first key.
        let args = "{\"command\": \"ls\", \"command\": \"rm\"}";
        let text =
            question(&Approval { resource: "rm".into(), args: args.into(), ..other.clone() }, Some(&workspace), None);
        assert!(!text.contains("ls"), "{text}");
        // A shortened command is shown in full if it matches the recorded hash.
        let (command, other_one) = (format!("{} \u{202e}", "x".repeat(2000)), "y".repeat(2002));
        let recorded = format!("xx{}", subtend_tools::registry::mark(&command));
        for (name, given, is_shown) in
            [("command", &command, true), ("text", &command, true), ("command", &other_one, false)]
        {
            let args = serde_json::json!({name: given}).to_string();
            let long = Approval { resource: recorded.as_str().into(), args: args.into(), ..other.clone() };
            assert_eq!(question(&long, Some(&workspace), None).contains(&format!("| {}", exact(given))), is_shown);
        }
        let args = "{\"city\": \"x\"}";
        let fetch = Approval { action: "tool:rain".into(), tool: "rain".into(), args: args.into(), ..other };
        assert!(question(&fetch, Some(&workspace), None).contains("\n\n| {\"city\": \"x\"}\n\nallow?"));
    }

    /// Another file with a name that looks the same would run. The control: a command without such a character.
    #[test]
    fn short_command_names_its_invisible_characters() {
        let question = |command: &str| {
            let call = serde_json::json!({"session": id(ROOT), "root": id(ROOT), "path": "a3f9c1", "call": "1.0",
                "tool": "shell", "args": "{}", "action": "shell.run", "resource": command, "digest": "d"});
            let call: ListedCall = serde_json::from_value(call).expect("a call");
            call.question(None).expect("a question").question
        };
        let allow = "\nallow? [y]es, [a]lways in this session (this command), [N]o";
        assert_eq!(
            question("sh pr\u{fc}fung.sh"),
            format!("a3f9c1 asks for shell.run on sh pr\u{fc}fung.sh (shell){allow}")
        );
        for (command, shown) in [
            ("sh deploy.sh\u{2800}--dry-run", "sh deploy.sh<U+2800>--dry-run"),
            ("sh pr\u{fc}\u{fe0e}fung.sh", "sh pr\u{fc}<U+FE0E>fung.sh"),
        ] {
            assert_eq!(question(command), format!("a3f9c1 asks for shell.run on {shown} (shell){allow}"));
        }
    }

    /// Arguments named like those of a command or an edit hide no others of a server's tool. The control: an edit.
    #[test]
    fn call_of_another_tool_is_shown_with_all_arguments() {
        const ATTACKS: [&str; 3] = [
            r#"{"sql":"DROP TABLE users","command":"SELECT 1"}"#,
            r#"{"sql":"DROP TABLE users","path":"notes.txt","content":"hello"}"#,
            r#"{"sql":"DROP TABLE users","path":"notes.txt","old":"a","new":"b"}"#,
        ];
        let dir = tempfile::tempdir().expect("a directory");
        let workspace = Workspace::open(dir.path()).expect("a workspace");
        let shown = |tool: &str, action: &str, args: &str| {
            let approval = Approval {
                root: id(ROOT),
                session: id(ROOT),
                path: "a3f9c1".to_owned(),
                call: CallId { turn: TurnNo(1), ix: 0 },
                tool: tool.into(),
                action: action.into(),
                resource: "*".into(),
                args: args.into(),
                plan: None,
                deadline_ms: None,
            };
            question(&approval, Some(&workspace), None)
        };
        for attack in ATTACKS {
            let text = shown("mcp__db__exec", "mcp:db:exec", attack);
            assert!(text.contains(&format!("\n\n| {attack}\n\nallow?")), "{text}");
        }
        // The same text in another process does something else, so an answer is for once.
        let typed = r#"{"action":"input","session_id":"b","text":"*"}"#;
        let text = shown("process", "shell.run", typed);
        assert!(text.contains(&format!("\n\n| *\n| \n| {typed}\n\nallow? [y]es, [N]o")), "{text}");
        let long = format!("mcp:db:{}_and_drop", "archive".repeat(8));
        assert!(shown("mcp__db__x", &long, "{\"a\":1}").contains(&format!("\n\n| {long}\n| {{\"a\":1}}\n\nallow?")));
        let text = shown("edit", "fs.write", r#"{"path":"notes.txt","old":"a","new":"b"}"#);
        assert!(text.contains("\n\n| notes.txt\n| -a\n| +b\n\nallow?"), "{text}");
    }

    /// A model can have a call withdrawn while its question is read, so that the next one is in its place. The control: without a change of
    /// questions, and after a second.
    #[tokio::test(start_paused = true)]
    async fn answer_to_a_replaced_question_allows_nothing() {
        let mut replaced = ReplacedQuestion::default();
        let verdicts = [AskVerdict::Allow, AskVerdict::Always, AskVerdict::Deny];
        let refused = |replaced: &ReplacedQuestion| verdicts.map(|verdict| replaced.refuses(verdict));
        replaced.open();
        assert_eq!(refused(&replaced), [false; 3]);
        replaced.close();
        replaced.open();
        assert_eq!(refused(&replaced), [true, true, false]);
        tokio::time::advance(READING_TIME).await;
        assert_eq!(refused(&replaced), [false; 3]);
        replaced.open();
        assert_eq!(refused(&replaced), [false; 3]);
    }

    #[test]
    fn unknown_answer_has_no_verdict() {
        let verdicts = ["y", " YES ", "a", "always", "", "n", "No", "maybe"].map(verdict);
        let (allow, always, deny) = (Some(AskVerdict::Allow), Some(AskVerdict::Always), Some(AskVerdict::Deny));
        assert_eq!(verdicts, [allow, allow, always, always, deny, deny, deny, None]);
    }
}
