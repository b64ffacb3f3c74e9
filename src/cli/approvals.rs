use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use serde::Serialize;
use subtend_journal::ReadError;
use subtend_session::dialect::discovery;
use subtend_session::ids::{CallId, SessionId, Short, Text, TurnNo};
use subtend_session::index::{Head, RowKey, RowKind};
use subtend_session::record::{AnsweredBy, AskVerdict, Record};
use subtend_tools::plan_exit;

use super::client::Attached;
use super::clock::wall_ms;
use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::hosted::Hosted;
use super::paint::{BAD, CAUTION, DIM, GOOD, Styled, clip, first_line, format_duration, harmless};
use super::store_reader::StoreReader;
use super::work::{diff, frame};
use crate::cli::json;
use waiting::WaitingApproval;

pub(crate) mod waiting;

/// Lists calls that wait for approval, and answers them.
///
/// `run`, `send` and `chat` ask on their own terminal; from any other one, --allow, --always and --deny answer a waiting
/// call. The list names each call with a digest of its content (`3.0:5f1c22a09b7d`), so that an answer applies to that
/// content only.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// List only calls of this session and those below it: an id, the start of one, a short name, or a path
    session: Option<String>,

    /// Include answered requests
    #[arg(long)]
    all: bool,

    /// Allow this call of SESSION, named as in the list; without the digest, the command shows the call and asks
    #[arg(long, value_name = "CALL", requires = "session", conflicts_with_all = ["all", "always", "deny"])]
    allow: Option<String>,

    /// Allow this call, and from now on in that session all calls of its tool on its resource, with any content
    #[arg(long, value_name = "CALL", requires = "session", conflicts_with_all = ["all", "deny"])]
    always: Option<String>,

    /// Deny this call
    #[arg(long, value_name = "CALL", requires = "session", conflicts_with_all = ["all"])]
    deny: Option<String>,

    /// Print one JSON array, or one object for an answer
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, PartialEq, Serialize)]
struct ApprovalRow {
    session: SessionId,
    short: Short,
    root: SessionId,
    agent: Text,
    title: Text,
    /// Unix time in ms at which the call is denied if no answer has arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<i64>,
    call: CallId,
    #[serde(skip)]
    tool: Text,
    action: Text,
    resource: Text,
    verdict: Option<AskVerdict>,
    by: Option<AnsweredBy>,
    /// The full resource of the call. The record may contain a shortened one.
    #[serde(skip)]
    full_resource: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<Text>,
    /// Digest of the shown content, which an answer must name; present if a host has the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    /// The arguments; present if the call can be answered.
    #[serde(skip)]
    args: Option<Text>,
}

impl WaitingApproval {
    fn row(self) -> Option<ApprovalRow> {
        let (turn, ix) = self.call.split_once('.')?;
        Some(ApprovalRow {
            full_resource: diff::resource(&self.action, &self.resource, &self.args),
            session: self.session,
            short: self.session.short(),
            root: self.root,
            agent: self.agent,
            title: self.title,
            deadline_ms: self.deadline_ms,
            call: CallId { turn: TurnNo(turn.parse().ok()?), ix: ix.parse().ok()? },
            tool: self.tool,
            action: self.action,
            resource: self.resource,
            verdict: None,
            by: None,
            plan: self.plan,
            digest: self.digest,
            args: Some(self.args),
        })
    }
}

const INDENT: &str = "    ";
const TITLE_WIDTH: usize = 50;

/// Maximum width of an action in a listing: that of a server's tool contains the whole name of the tool.
const ACTION_WIDTH: usize = 200;

/// Number of hexadecimal digits of a digest that are shown and compared.
const DIGEST_DIGITS: usize = 12;

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    if let Some((call, verdict)) = args.answer() {
        return answer(args, call, verdict);
    }
    let Some(reader) = StoreReader::open(&args.store)? else { return print_no_approvals(args) };
    let ancestor = args.session.as_deref().map(|name| reader.find(name)).transpose()?;
    // Report sessions with a damaged head, which are missing from the list below.
    for (session, error) in reader.journal().damaged_rows()? {
        if let Some(session) = session {
            warn_skipped(session, &error)?;
        }
    }
    let waiting = if args.all || !reader.is_hosted() { None } else { live_approvals(args, &reader, ancestor)? };
    let rows = match waiting {
        Some(rows) => rows,
        None if args.all => all_approvals(&reader, ancestor)?,
        None => stored_approvals(&reader, ancestor)?,
    };
    reader.release();
    let mut out = anstream::stdout().lock();
    if args.json {
        json::write_line(&mut out, &rows)?;
        return Ok(Code::Done);
    }
    if rows.is_empty() {
        return print_no_approvals(args);
    }
    let now_ms = wall_ms();
    rows.iter().try_for_each(|row| writeln!(out, "{}", line(row, now_ms)))?;
    if let Some(row) = rows.iter().find(|row| row.digest.is_some()) {
        let (name, store_option, call) = (row.session.short().0, args.store.options_for_shell(), call_name(row));
        writeln!(
            anstream::stderr(),
            "answer: subtend approvals {name}{store_option} --allow {call}, or --deny {call}"
        )?;
    }
    Ok(Code::Done)
}

impl Args {
    fn answer(&self) -> Option<(&str, &'static str)> {
        let answers = [(&self.allow, "allow"), (&self.always, "always"), (&self.deny, "deny")];
        answers.into_iter().find_map(|(call, verdict)| Some((call.as_deref()?, verdict)))
    }
}

/// Answers a call that waits in the process that hosts the store. An answer that allows it must name the shown content by
/// its digest (`3.0:5f1c22a09b7d`); without a digest, the command shows the call and asks.
fn answer(args: &Args, call_name: &str, verdict: &str) -> Result<Code, Fail> {
    let session = args.session.as_deref().unwrap_or_default();
    let none = || {
        Fail::Other(format!(
            "no process hosts the store, so no call can be answered: a run that resumes asks again \
             (`subtend continue {session}`), and others end as lost at the next start"
        ))
    };
    let id = Hosted::find(&args.store, session)?.ok_or_else(none)?.id;
    let host = Attached::to(&args.store.place()?)?.ok_or_else(none)?;
    let (call, seen) = call_name.split_once(':').map_or((call_name, None), |(call, seen)| (call, Some(seen)));
    let name = id.short().0;
    let listed = waiting::list(&host)?.into_iter().find(|approval| approval.session == id && approval.call == call);
    let approval = listed.map(|listed| listed.whole(&host)).transpose()?.flatten();
    let Some((digest, approval)) = approval.and_then(|whole| Some((whole.digest.clone()?, whole))) else {
        return Err(Fail::Other(format!(
            "call {call} of session {name} does not wait for an approval: `subtend approvals` lists those that do"
        )));
    };
    match seen {
        Some(seen) if seen.len() >= DIGEST_DIGITS && digest.starts_with(seen) => {}
        Some(_) => {
            return Err(Fail::Other(format!(
                "call {call} of session {name} is not what was shown: `subtend approvals {name}` shows it as it is now"
            )));
        }
        None if verdict == "deny" => {}
        None => confirm(approval, call, &name)?,
    }
    let body = serde_json::json!({"verdict": verdict, "digest": digest});
    let _: serde_json::Value = host.call(Method::POST, &waiting::call_path(id, call), Some(&body))?;
    let done = if verdict == "deny" { "denied" } else { "allowed" };
    let value = serde_json::json!({"session": id, "call": call, "verdict": verdict});
    control::report(args.json, &value, &format!("session {name}: call {call} is {done}"))
}

fn confirm(approval: WaitingApproval, call: &str, name: &str) -> Result<(), Fail> {
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Err(Fail::Usage(format!(
            "call {call} needs a digest, since there is no terminal to show it and ask: pass `{call}:DIGEST` as `subtend approvals {name}` \
             shows it"
        )));
    }
    let mut err = anstream::stderr();
    let shown = approval.row().map(|row| line(&row, wall_ms())).unwrap_or_default();
    let again = shown.lines().next().filter(|_| frame::is_long(&shown)).map(|head| format!("{head}\n"));
    write!(err, "{shown}\n{}allow? [y/N] ", again.unwrap_or_default())?;
    err.flush()?;
    let mut typed = String::new();
    std::io::stdin().read_line(&mut typed)?;
    match typed.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Fail::Other(format!("call {call} of session {name} is not answered"))),
    }
}

/// Returns the open approvals of the process that hosts the store, by session; `None` if that process has ended.
fn live_approvals(
    args: &Args,
    reader: &StoreReader,
    ancestor: Option<SessionId>,
) -> Result<Option<Vec<ApprovalRow>>, Fail> {
    let Some(host) = Attached::to(&args.store.place()?)? else { return Ok(None) };
    let is_wanted =
        |approval: &WaitingApproval| ancestor.is_none_or(|ancestor| is_within(reader, approval.session, ancestor));
    let mut rows = Vec::new();
    for approval in waiting::list(&host)?.into_iter().filter(is_wanted) {
        rows.extend(approval.whole(&host)?.and_then(WaitingApproval::row));
    }
    Ok(Some(rows))
}

/// Returns all approvals, answered ones included, by session.
fn all_approvals(reader: &StoreReader, ancestor: Option<SessionId>) -> Result<Vec<ApprovalRow>, Fail> {
    let mut rows = Vec::new();
    for (id, head) in reader.heads() {
        if ancestor.is_none_or(|ancestor| is_within(reader, *id, ancestor)) {
            rows.extend(read_approvals(reader, *id, head)?);
        }
    }
    Ok(rows)
}

/// Returns open approvals, oldest first. Reads only sessions that outbox rows name.
fn stored_approvals(reader: &StoreReader, ancestor: Option<SessionId>) -> Result<Vec<ApprovalRow>, Fail> {
    let mut rows = Vec::new();
    let mut read: BTreeMap<SessionId, Vec<ApprovalRow>> = BTreeMap::new();
    for (row, _) in reader.journal().outbox()? {
        let (RowKind::Ask, RowKey::Call(call), Some(head)) = (row.kind, row.key, reader.heads().get(&row.from)) else {
            continue;
        };
        if !ancestor.is_none_or(|ancestor| is_within(reader, row.from, ancestor)) {
            continue;
        }
        let approvals = match read.entry(row.from) {
            Entry::Occupied(approvals) => approvals.into_mut(),
            Entry::Vacant(none) => none.insert(read_approvals(reader, row.from, head)?),
        };
        let at = approvals.iter().position(|approval| approval.call == call && approval.verdict.is_none());
        rows.extend(at.map(|at| approvals.remove(at)));
    }
    Ok(rows)
}

/// Returns the approvals of a session. One that cannot be read is skipped with a warning: the others are still listed.
fn read_approvals(reader: &StoreReader, id: SessionId, head: &Head) -> Result<Vec<ApprovalRow>, Fail> {
    match reader.journal().records(id) {
        Ok(records) => Ok(approvals_of(id, head, records.iter().map(|stored| &stored.record))),
        Err(error @ (ReadError::NoSuchSession(_) | ReadError::Damaged { .. } | ReadError::Newer { .. })) => {
            warn_skipped(id, &error)?;
            Ok(Vec::new())
        }
        Err(error @ (ReadError::Engine(_) | ReadError::Closed)) => Err(error.into()),
    }
}

fn warn_skipped(session: SessionId, error: &ReadError) -> Result<(), Fail> {
    let why = harmless(&error.to_string());
    Ok(writeln!(anstream::stderr(), "session {session} cannot be read and is not listed: {why}")?)
}

fn print_no_approvals(args: &Args) -> Result<Code, Fail> {
    if args.json {
        writeln!(anstream::stdout(), "[]")?;
    } else {
        let what = if args.all { "no approvals were requested" } else { "no call waits for approval" };
        writeln!(anstream::stderr(), "{what} in {}", args.store.place()?.name())?;
    }
    Ok(Code::Done)
}

fn is_within(reader: &StoreReader, id: SessionId, ancestor: SessionId) -> bool {
    let mut at = Some(id);
    // The bound guards against a cycle of parents in a damaged store.
    for _ in 0..=reader.heads().len() {
        let Some(session) = at else { return false };
        if session == ancestor {
            return true;
        }
        at = reader.heads().get(&session).and_then(|head| head.parent);
    }
    false
}

fn approvals_of<'a>(session: SessionId, head: &Head, records: impl Iterator<Item = &'a Record>) -> Vec<ApprovalRow> {
    let mut rows: Vec<ApprovalRow> = Vec::new();
    let mut answers = BTreeMap::new();
    for record in records {
        if let Record::TurnAnswered(answer) = record {
            answers.insert(answer.turn, &answer.calls);
        } else if let Record::AskOpened { call, action, resource, deadline_at, .. } = record {
            let (action, resource) = (action.clone(), resource.clone());
            let of = answers.get(&call.turn).and_then(|calls| calls.get(call.ix as usize));
            let plan = of.filter(|of| *of.tool == *plan_exit::NAME).and_then(|of| plan_exit::parse(&of.args).ok());
            // The called tool has the text of the access, also where the call goes through `use_tool`.
            let (tool, args) = of.map(|of| discovery::called(&of.tool, &of.args)).unwrap_or_default();
            let full_resource = diff::resource(&action, &resource, &args);
            rows.push(ApprovalRow {
                full_resource,
                session,
                short: head.short.clone(),
                root: head.root,
                agent: Arc::clone(&head.agent),
                title: Arc::clone(&head.title),
                deadline_ms: *deadline_at,
                call: *call,
                tool: (&*tool).into(),
                action,
                resource,
                verdict: None,
                by: None,
                plan,
                digest: None,
                args: None,
            });
        } else if let Record::AskAnswered { call, verdict, by } = record
            && let Some(row) = rows.iter_mut().rfind(|row| row.call == *call)
        {
            row.verdict = Some(*verdict);
            row.by = Some(*by);
        }
    }
    rows
}

/// Returns the time until the denial of a waiting call, such as `, 4m 09s left`.
fn time_left(row: &ApprovalRow, now_ms: i64) -> String {
    let Some(at) = row.deadline_ms.filter(|_| row.verdict.is_none()) else { return String::new() };
    match u64::try_from(at.saturating_sub(now_ms)) {
        Ok(left) if left > 0 => format!(", {} left", format_duration(Duration::from_millis(left))),
        Ok(_) | Err(_) => ", its deadline has passed".to_owned(),
    }
}

/// Returns the id of the call, with the digest of its content if it can be answered.
fn call_name(row: &ApprovalRow) -> String {
    match row.digest.as_deref().and_then(|digest| digest.get(..DIGEST_DIGITS)) {
        Some(digest) => format!("{}:{digest}", row.call),
        None => row.call.to_string(),
    }
}

fn line(row: &ApprovalRow, now_ms: i64) -> String {
    let (word, style) = match (row.verdict, row.by) {
        (None, _) => ("waits", CAUTION),
        (Some(AskVerdict::Allow), _) => ("allowed", GOOD),
        (Some(AskVerdict::Always), _) => ("always allowed", GOOD),
        (Some(AskVerdict::Deny), Some(AnsweredBy::Deadline)) => ("denied: no answer in time", BAD),
        (Some(AskVerdict::Deny), Some(AnsweredBy::NoApprover)) => ("denied: no approver attached", BAD),
        (Some(AskVerdict::Deny), Some(AnsweredBy::Closed)) => ("denied: the call ended first", BAD),
        (Some(AskVerdict::Deny), Some(AnsweredBy::Person) | None) => ("denied", BAD),
    };
    let exact_resource = frame::shown_text(&row.full_resource);
    let resource = first_line(&exact_resource, 80);
    // A shortened call is also shown in full below the line, because its beginning alone could mislead.
    let is_truncated = row.plan.is_none() && exact_resource != resource;
    let types = diff::types_text(&row.tool, &row.action);
    let args = row.args.as_deref().filter(|_| types || *row.action != *"shell.run");
    let asked = diff::text_with_args(&row.tool, &row.action, &row.full_resource, args.unwrap_or_default());
    let text = row
        .plan
        .as_deref()
        .map(str::trim_end)
        .or(asked.as_deref())
        .or(args)
        .or_else(|| is_truncated.then_some(&*row.full_resource));
    let shown = text.map(|text| match frame::columns() {
        Some(columns) => frame::frame_text(text, Some(columns.saturating_sub(INDENT.len()))),
        None => frame::shown_text(text),
    });
    let lines = shown.iter().flat_map(|text| text.split('\n'));
    let details: String = lines.map(|line| format!("\n{INDENT}{line}").trim_end_matches(' ').to_owned()).collect();
    let title = clip(&row.title, TITLE_WIDTH);
    let about = if title.is_empty() { row.agent.to_string() } else { format!("{}: {title}", row.agent) };
    format!(
        "{session} call {call}  {action} on {resource}{by}  {word}{left}  {about}{details}",
        by = if types { " (process)" } else { "" },
        session = Styled(DIM, row.session),
        left = time_left(row, now_ms),
        about = Styled(DIM, harmless(&about)),
        call = call_name(row),
        action = clip(&row.action, ACTION_WIDTH),
        word = Styled(style, word),
    )
}

#[cfg(test)]
mod called;
#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn session() -> (SessionId, Head) {
        let id: SessionId = "0192f0c1-2d3e-7abc-8def-0123456789ab".parse().expect("an id");
        let head = serde_json::from_value(serde_json::json!({
            "parent": null, "root": id, "short": id.short(), "agent": "general", "depth": 0, "inspectable": true,
            "last_seq": 1, "epoch": 1, "state": "working", "last_outcome": null, "title": "Fix the build",
            "created_ms": 0, "updated_ms": 0,
        }))
        .expect("a head");
        (id, head)
    }

    #[test]
    fn ask_remains_open_until_its_answer() {
        let (id, head) = session();
        let call = |ix| CallId { turn: TurnNo(1), ix };
        let opened = |ix, deadline_at| Record::AskOpened {
            call: call(ix),
            action: "shell.run".into(),
            resource: "make".into(),
            root: id,
            deadline_at,
        };
        let answered = Record::AskAnswered { call: call(0), verdict: AskVerdict::Always, by: AnsweredBy::Person };
        let records = [opened(0, Some(9_000)), opened(1, Some(250_000)), opened(2, None), answered];
        let rows = approvals_of(id, &head, records.iter());
        let shown: Vec<_> =
            rows.iter().map(|row| anstream::adapter::strip_str(&line(row, 1_000)).to_string()).collect();
        let expected = |call, word| format!("{id} call {call}  shell.run on make  {word}  general: Fix the build");
        let waits = [("1.0", "always allowed"), ("1.1", "waits, 4m 09s left"), ("1.2", "waits")];
        assert_eq!(shown, waits.map(|(call, word)| expected(call, word)));
        assert_eq!(time_left(&rows[1], 250_000), ", its deadline has passed");
    }

    /// The arguments contain only the id of the question, so the question and the page that it names must be shown too.
    #[test]
    fn answer_to_a_server_is_shown_with_its_question() {
        let (id, head) = session();
        let asked = Record::AskOpened {
            call: CallId { turn: TurnNo(1), ix: 0 },
            action: "answer:s".into(),
            resource: "May I delete all?\npage: https://evil.example/oauth".into(),
            root: id,
            deadline_at: None,
        };
        let mut rows = approvals_of(id, &head, [asked].iter());
        rows[0].args = Some("{\"ok\":true}".into());
        let shown = line(&rows[0], 1_000);
        assert!(
            ["May I delete all?", "https://evil.example/oauth", "{\"ok\":true}"]
                .iter()
                .all(|part| shown.contains(part)),
            "{shown}"
        );
        // The text that is typed into a process says nothing without the process.
        (rows[0].tool, rows[0].action) = ("process".into(), "shell.run".into());
        rows[0].args = Some("{\"session_id\":\"b\"}".into());
        let shown = line(&rows[0], 1_000);
        assert!(shown.contains(" (process)  ") && shown.contains("{\"session_id\":\"b\"}"), "{shown}");
    }
}
