//! `subtend approvals`: what agents asked a person for, and what became of it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::Write as _;

use serde::Serialize;
use subtend_journal::ReadError;
use subtend_session::ids::{CallId, SessionId, Short, Text};
use subtend_session::index::{Head, RowKey, RowKind};
use subtend_session::record::{AskBy, AskVerdict, Record};
use subtend_tools::plan_exit;

use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::hosted::Hosted;
use super::paint::{BAD, DIM, GOOD, In, ODD, clip, exact, first_line, harmless};
use super::shelf::Shelf;
use super::work::approve;
use crate::cli::json;

/// Lists what agents asked a person for: what still waits, or with --all everything that was ever asked.
///
/// `run`, `send` and `chat` ask on their own terminal; from any other one, --allow, --always and --deny answer a call that waits.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Only of this session and what is below it: an id, the start of one, a short name, or a path
    session: Option<String>,

    /// Also what was answered
    #[arg(long)]
    all: bool,

    /// Allow this call of SESSION, named as the list does (`3.0`)
    #[arg(long, value_name = "CALL", requires = "session", conflicts_with_all = ["all", "always", "deny", "json"])]
    allow: Option<String>,

    /// Allow this call, and the same in that session from here on
    #[arg(long, value_name = "CALL", requires = "session", conflicts_with_all = ["all", "deny", "json"])]
    always: Option<String>,

    /// Deny this call
    #[arg(long, value_name = "CALL", requires = "session", conflicts_with_all = ["all", "json"])]
    deny: Option<String>,

    /// Print one JSON array
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, PartialEq, Serialize)]
struct Row {
    session: SessionId,
    short: Short,
    root: SessionId,
    call: CallId,
    action: Text,
    resource: Text,
    verdict: Option<AskVerdict>,
    by: Option<AskBy>,
    /// The resource as the call has it, where the record shortens it.
    #[serde(skip)]
    whole: String,
    /// The plan that is proposed, where that is what is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<Text>,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    if let Some((call, verdict)) = args.answer() {
        return answer(args, call, verdict);
    }
    let Some(shelf) = Shelf::open(&args.store)? else { return nothing(args) };
    let above = args.session.as_deref().map(|name| shelf.find(name)).transpose()?;
    // A session whose head is damaged is in no listing.
    for (session, error) in shelf.journal().damaged()? {
        if let Some(session) = session {
            left_out(session, &error)?;
        }
    }
    let rows = if args.all { ever(&shelf, above)? } else { open(&shelf, above)? };
    let mut out = anstream::stdout().lock();
    if args.json {
        json::write(&mut out, &rows)?;
        writeln!(out)?;
        return Ok(Code::Done);
    }
    if rows.is_empty() {
        return nothing(args);
    }
    rows.iter().try_for_each(|row| writeln!(out, "{}", line(row)))?;
    Ok(Code::Done)
}

impl Args {
    /// The call that is answered, and how.
    fn answer(&self) -> Option<(&str, &'static str)> {
        let answers = [(&self.allow, "allow"), (&self.always, "always"), (&self.deny, "deny")];
        answers.into_iter().find_map(|(call, verdict)| Some((call.as_deref()?, verdict)))
    }
}

/// Answers a call that waits in the process that hosts the store.
fn answer(args: &Args, call: &str, verdict: &str) -> Result<Code, Fail> {
    let name = args.session.as_deref().unwrap_or_default();
    match Hosted::find(&args.store, name)? {
        Some(hosted) => hosted.answer(call, verdict),
        None => Err(Fail::Other("no process hosts the store, so no call waits for an answer".to_owned())),
    }
}

/// What was ever asked, by session.
fn ever(shelf: &Shelf, above: Option<SessionId>) -> Result<Vec<Row>, Fail> {
    let mut rows = Vec::new();
    for (id, head) in shelf.heads() {
        if above.is_none_or(|above| below(shelf, *id, above)) {
            rows.extend(readable(shelf, *id, head)?);
        }
    }
    Ok(rows)
}

/// What waits, oldest first: the rows that oblige to a word name it, and no other session needs to be read.
fn open(shelf: &Shelf, above: Option<SessionId>) -> Result<Vec<Row>, Fail> {
    let mut rows = Vec::new();
    let mut read: BTreeMap<SessionId, Vec<Row>> = BTreeMap::new();
    for (row, _) in shelf.journal().outbox()? {
        let (RowKind::Ask, RowKey::Call(call), Some(head)) = (row.kind, row.key, shelf.heads().get(&row.from)) else {
            continue;
        };
        if !above.is_none_or(|above| below(shelf, row.from, above)) {
            continue;
        }
        let asked = match read.entry(row.from) {
            Entry::Occupied(asked) => asked.into_mut(),
            Entry::Vacant(none) => none.insert(readable(shelf, row.from, head)?),
        };
        let at = asked.iter().position(|asked| asked.call == call && asked.verdict.is_none());
        rows.extend(at.map(|at| asked.remove(at)));
    }
    Ok(rows)
}

/// What a session asked; nothing, and a warning, where it cannot be read: the others are not concerned.
fn readable(shelf: &Shelf, id: SessionId, head: &Head) -> Result<Vec<Row>, Fail> {
    match shelf.journal().records(id) {
        Ok(records) => Ok(asked(id, &head.short, head.root, records.iter().map(|stored| &stored.record))),
        Err(error @ (ReadError::NoSuchSession(_) | ReadError::Damaged { .. } | ReadError::Newer { .. })) => {
            left_out(id, &error)?;
            Ok(Vec::new())
        }
        Err(error @ (ReadError::Engine(_) | ReadError::Closed)) => Err(error.into()),
    }
}

fn left_out(session: SessionId, error: &ReadError) -> Result<(), Fail> {
    let why = harmless(&error.to_string());
    Ok(writeln!(anstream::stderr(), "session {session} cannot be read and is left out: {why}")?)
}

fn nothing(args: &Args) -> Result<Code, Fail> {
    if args.json {
        writeln!(anstream::stdout(), "[]")?;
    } else {
        let what = if args.all { "nothing was asked" } else { "nothing waits for a word" };
        writeln!(anstream::stderr(), "{what} in {}", args.store.place()?.name())?;
    }
    Ok(Code::Done)
}

/// Whether `id` is `above` or stands below it.
fn below(shelf: &Shelf, id: SessionId, above: SessionId) -> bool {
    let mut at = Some(id);
    // No chain is longer than there are sessions: a damaged store may hold a ring.
    for _ in 0..=shelf.heads().len() {
        let Some(session) = at else { return false };
        if session == above {
            return true;
        }
        at = shelf.heads().get(&session).and_then(|head| head.parent);
    }
    false
}

fn asked<'a>(
    session: SessionId,
    short: &Short,
    root: SessionId,
    records: impl Iterator<Item = &'a Record>,
) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut answers = BTreeMap::new();
    for record in records {
        if let Record::TurnAnswered(answer) = record {
            answers.insert(answer.turn, &answer.calls);
        } else if let Record::AskOpened { call, action, resource, .. } = record {
            let (action, resource) = (action.clone(), resource.clone());
            let of = answers.get(&call.turn).and_then(|calls| calls.get(call.ix as usize));
            let plan = of.filter(|of| *of.tool == *plan_exit::NAME).and_then(|of| plan_exit::parse(&of.args).ok());
            let whole = approve::resource(&action, &resource, of.map_or("", |of| &*of.args));
            rows.push(Row {
                whole,
                session,
                short: short.clone(),
                root,
                call: *call,
                action,
                resource,
                verdict: None,
                by: None,
                plan,
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

fn line(row: &Row) -> String {
    let (word, style) = match (row.verdict, row.by) {
        (None, _) => ("waits", ODD),
        (Some(AskVerdict::Allow), _) => ("allowed", GOOD),
        (Some(AskVerdict::Always), _) => ("allowed for good", GOOD),
        (Some(AskVerdict::Deny), Some(AskBy::Deadline)) => ("denied: nobody answered in time", BAD),
        (Some(AskVerdict::Deny), Some(AskBy::NoApprover)) => ("denied: nobody could be asked", BAD),
        (Some(AskVerdict::Deny), Some(AskBy::Closed)) => ("denied: the call was closed before", BAD),
        (Some(AskVerdict::Deny), Some(AskBy::Person) | None) => ("denied", BAD),
    };
    // A command of several lines is listed whole: its first line alone may say something else.
    let several = row.plan.is_none() && row.whole.contains('\n');
    let text = row.plan.as_deref().map(str::trim_end).or_else(|| several.then_some(&*row.whole));
    let lines = text.into_iter().flat_map(|text| text.split('\n'));
    let plan: String = lines.map(|line| format!("\n    {}", exact(line)).trim_end_matches(' ').to_owned()).collect();
    format!(
        "{session} call {call}  {action} on {resource}  {word}{plan}",
        session = In(DIM, row.session),
        call = row.call,
        action = clip(&row.action, 40),
        resource = first_line(&row.whole, 80),
        word = In(style, word),
    )
}

#[cfg(test)]
mod tests {
    use subtend_session::ids::TurnNo;

    use super::*;

    #[test]
    fn a_question_stands_until_its_answer() {
        let id: SessionId = "0192f0c1-2d3e-7abc-8def-0123456789ab".parse().expect("an id");
        let call = |ix| CallId { turn: TurnNo(1), ix };
        let opened =
            |ix| Record::AskOpened { call: call(ix), action: "shell.run".into(), resource: "make".into(), root: id };
        let answered = Record::AskAnswered { call: call(0), verdict: AskVerdict::Always, by: AskBy::Person };
        let rows = asked(id, &id.short(), id, [opened(0), opened(1), answered].iter());
        let verdicts: Vec<_> = rows.iter().map(|row| (row.call, row.verdict)).collect();
        assert_eq!(verdicts, [(call(0), Some(AskVerdict::Always)), (call(1), None)]);
        assert!(line(&rows[0]).contains("allowed for good") && line(&rows[1]).contains("waits"));
    }
}
