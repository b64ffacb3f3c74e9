//! A person at the terminal gives the word that agents ask for.

use std::io::{BufRead as _, IsTerminal as _};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use subtend_actors::event::{Event, Next, What};
use subtend_actors::{Approval, Approver};
use subtend_session::ids::Hash;
use subtend_session::record::{AskVerdict, Record};
use subtend_tools::workspace::Workspace;
use tokio::sync::mpsc;

use super::super::paint::{clip, exact, first_line};
use super::diff;

/// Columns of what an agent wants to do.
const COLUMNS: usize = 90;

/// A person who is asked.
pub(super) struct Approving {
    approver: Approver,
    workspace: Arc<Workspace>,
    lines: mpsc::UnboundedReceiver<String>,
    asked: Option<Approval>,
}

/// Whether a person can be asked at the terminal.
///
/// While one can, calls that need a word wait for it; without one they are denied at once.
pub(super) fn is_somebody_there(silent: bool) -> bool {
    !silent && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Lines of stdin, read on a thread of their own: a read cannot be given up, so the process ends around it.
fn lines() -> mpsc::UnboundedReceiver<String> {
    let (tell, told) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    told
}

/// What a person types ahead at most, in pieces of 4 KiB: a program that feeds the terminal without end must not hold us up.
const AHEAD: usize = 64;

/// Throws away the lines that were typed before anybody was asked: a question of a run that goes on is open already.
fn forget_typed() {
    let (stdin, mut piece) = (std::io::stdin(), [0; 4096]);
    for _ in 0..AHEAD {
        let mut typed = [PollFd::new(&stdin, PollFlags::IN)];
        let is_typed = poll(&mut typed, Some(&Timespec::default())).is_ok_and(|ready| ready > 0);
        if !(is_typed && rustix::io::read(&stdin, &mut piece).is_ok_and(|read| read > 0)) {
            return;
        }
    }
}

impl Approving {
    /// Asks the person at the terminal, and reads what they type from here on.
    pub(super) fn by(approver: Approver, workspace: Arc<Workspace>) -> Self {
        forget_typed();
        Self { approver, workspace, lines: lines(), asked: None }
    }

    /// What is to be said next: a question, or what became of the word that was given. Never, where nobody is asked.
    ///
    /// Cancel safe: a question stays open until it is answered.
    pub(super) async fn next(me: &mut Option<Self>) -> Option<String> {
        match me {
            None => std::future::pending().await,
            Some(me) => Some(me.step().await),
        }
    }

    /// Takes note of an event: a question that was closed, as by a cancel or its deadline, needs no word any more.
    pub(super) fn hear(me: &mut Option<Self>, next: &Next) {
        if let (Some(me), Next::Event(event)) = (me, next) {
            me.asked.take_if(|asked| is_closed(asked, event));
        }
    }

    /// Whether a question is open.
    pub(super) fn is_asking(&self) -> bool {
        self.asked.is_some()
    }

    async fn step(&mut self) -> String {
        loop {
            let Some(approval) = self.asked.clone() else {
                let approval = self.approver.next().await;
                // What was typed before the question was seen is no word on it.
                while self.lines.try_recv().is_ok() {}
                let question = question(&approval, &self.workspace);
                self.asked = Some(approval);
                return question;
            };
            let Some(line) = self.lines.recv().await else { return std::future::pending().await };
            let Some(verdict) = verdict(&line) else {
                return "answer y (this once), a (always, in this session) or n".to_owned();
            };
            self.asked = None;
            if let Err(error) = self.approver.answer(&approval, verdict).await {
                return error.to_string();
            }
        }
    }
}

/// Whether the event closes the question.
pub(crate) fn is_closed(asked: &Approval, event: &Event) -> bool {
    let What::Record { record, .. } = &event.what else { return false };
    let Record::AskAnswered { call, .. } = &**record else { return false };
    event.session == asked.session && *call == asked.call
}

/// The question, with the whole plan, command or diff: the person who approves it must be able to read all of it.
pub(crate) fn question(approval: &Approval, workspace: &Workspace) -> String {
    if let Some(plan) = &approval.plan {
        let (path, agent) = (clip(&approval.path, 40), clip(&approval.resource, 64));
        let plan = exact(plan);
        return format!("{path} has a plan:\n\n{plan}\n\nlet {agent} carry it out? [y]es, [N]o: go on planning");
    }
    let resource = first_line(&resource(&approval.action, &approval.resource, &approval.args), COLUMNS);
    let whole = whole(approval, workspace).filter(|whole| *whole != resource);
    let whole = whole.map(|whole| format!("\n\n{}\n", framed(&whole))).unwrap_or_default();
    format!(
        "{} wants to {} on {resource} ({}){whole}\nallow? [y]es, [a]lways in this session, [N]o",
        clip(&approval.path, 40),
        clip(&approval.action, 40),
        clip(&approval.tool, 24),
    )
}

/// All that the call does: the command that runs, the lines that change, or the arguments.
fn whole(approval: &Approval, workspace: &Workspace) -> Option<String> {
    if *approval.action == *"shell.run" {
        return Some(resource(&approval.action, &approval.resource, &approval.args));
    }
    let args = Some(approval.args.trim()).filter(|args| !matches!(*args, "" | "{}"));
    diff::whole(&approval.args, workspace)
        .or_else(|| args.map(str::to_owned))
        .or_else(|| Some(approval.resource.to_string()))
}

/// The resource as the call has it. A record shortens a command that is long or has misleading characters and adds its hash: then
/// the command of the arguments is taken, if that is the one that was recorded.
pub(crate) fn resource(action: &str, recorded: &str, args: &str) -> String {
    let command = || serde_json::from_str::<Value>(args).ok()?.get("command")?.as_str().map(str::to_owned);
    let is_recorded = |command: &String| {
        let mark = format!("({} bytes, {})", command.len(), Hash::of(command.as_bytes()));
        *command == recorded || recorded.ends_with(&mark)
    };
    let command = (action == "shell.run").then(command).flatten().filter(is_recorded);
    command.unwrap_or_else(|| recorded.to_owned())
}

/// Each line behind a mark, with every character in it visible: no line can pass for a part of the question.
pub(crate) fn framed(text: &str) -> String {
    exact(text).split('\n').map(|line| format!("| {line}")).collect::<Vec<_>>().join("\n")
}

/// The word that a line gives, if it gives one.
pub(crate) fn verdict(line: &str) -> Option<AskVerdict> {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Some(AskVerdict::Allow),
        "a" | "always" => Some(AskVerdict::Always),
        "" | "n" | "no" => Some(AskVerdict::Deny),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_shown_whole_and_cannot_move_the_cursor() {
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
        };
        let dir = tempfile::tempdir().expect("a directory");
        let workspace = Workspace::open(dir.path()).expect("a workspace");
        let told = question(&approval, &workspace);
        assert!(told.starts_with("a3f9c1 has a plan:\n\n1. Write `a`.\n2. Test it."), "{told}");
        assert!(told.ends_with("\n\nlet build carry it out? [y]es, [N]o: go on planning"), "{told}");
        assert!(!told.contains('\u{1b}'), "{told:?}");
        let other = Approval {
            plan: None,
            action: "shell.run".into(),
            resource: "make".into(),
            tool: "shell".into(),
            ..approval
        };
        assert_eq!(
            question(&other, &workspace),
            "a3f9c1 wants to shell.run on make (shell)\nallow? [y]es, [a]lways in this session, [N]o"
        );
        let folded = "git status # look only\ntouch PWNED \u{202e}\u{200b}\u{1b}[2J\r\n";
        let told = question(&Approval { resource: folded.into(), ..other.clone() }, &workspace);
        assert_eq!(
            told,
            "a3f9c1 wants to shell.run on git status # look only (and 2 more lines) (shell)\n\n| git status # look only\n\
             | touch PWNED <U+202E><U+200B><U+001B>[2J<U+000D>\n| \n\nallow? [y]es, [a]lways in this session, [N]o"
        );
        // What the arguments say is not what runs: two keys of one name.
        let args = "{\"command\": \"ls\", \"command\": \"rm\"}";
        let told = question(&Approval { resource: "rm".into(), args: args.into(), ..other.clone() }, &workspace);
        assert!(!told.contains("ls"), "{told}");
        // A shortened one is shown whole, if it is the one whose hash was recorded.
        let (command, other_one) = (format!("{} \u{202e}", "x".repeat(2000)), "y".repeat(2002));
        let recorded = format!("xx… ({} bytes, {})", command.len(), Hash::of(command.as_bytes()));
        for (given, is_shown) in [(&command, true), (&other_one, false)] {
            let args = serde_json::json!({"command": given}).to_string();
            let long = Approval { resource: recorded.as_str().into(), args: args.into(), ..other.clone() };
            assert_eq!(question(&long, &workspace).contains(&format!("| {}", exact(given))), is_shown);
        }
        let args = "{\"city\": \"x\"}";
        let fetch = Approval { action: "tool:rain".into(), tool: "rain".into(), args: args.into(), ..other };
        assert!(question(&fetch, &workspace).contains("\n\n| {\"city\": \"x\"}\n\nallow?"));
    }

    #[test]
    fn a_word_is_a_verdict_and_anything_else_is_asked_again() {
        let said = ["y", " YES ", "a", "always", "", "n", "No", "maybe"].map(verdict);
        let (allow, always, deny) = (Some(AskVerdict::Allow), Some(AskVerdict::Always), Some(AskVerdict::Deny));
        assert_eq!(said, [allow, allow, always, always, deny, deny, deny, None]);
    }
}
