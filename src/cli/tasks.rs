use std::io::Write as _;
use std::num::NonZeroUsize;

use serde::Serialize;
use subtend_actors::tasks::{Task, TaskFilter, TaskStatus};
use subtend_session::dialect::task_id;
use subtend_session::ids::{SessionId, Short, Text};
use subtend_session::outcome::{Outcome, OutcomeKind};
use subtend_session::values::JsonText;

use super::cause;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::paint::{BAD, CAUTION, DIM, GOOD, LIVE, Styled, ago, clip, fill, harmless};
use super::store_reader::StoreReader;
use crate::cli::json;

/// Lists the tasks that were given to agents, newest first.
///
/// Each task has an id `task_…`, which every command accepts in place of the id of its session.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// List only tasks with this status
    #[arg(long, value_name = "STATUS", value_parser = ["pending", "running", "completed", "failed", "cancelled"])]
    status: Option<String>,

    /// List only tasks below this session: an id, the start of one, a short name, or a path
    #[arg(long, value_name = "ID")]
    parent: Option<String>,

    /// List at most N tasks
    #[arg(long, value_name = "N")]
    limit: Option<NonZeroUsize>,

    /// Print one JSON array with complete results; times are Unix times in ms
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, PartialEq, Serialize)]
struct TaskRow {
    id: String,
    session: SessionId,
    short: Short,
    r#type: Text,
    status: &'static str,
    outcome: Option<OutcomeKind>,
    description: Text,
    prompt: Option<Text>,
    /// Session below which it was started; absent for a task of the host.
    parent: Option<SessionId>,
    root: SessionId,
    /// Full result of the last run that a model or the host opened.
    result: Option<Text>,
    /// Cause if the last run did not complete.
    error: Option<String>,
    metadata: JsonText,
    created: i64,
    updated: i64,
    completed: Option<i64>,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    let reader = StoreReader::open(&args.store)?;
    let rows = reader.map_or_else(|| Ok(Vec::new()), |reader| list_rows(&reader, args))?;
    let mut out = anstream::stdout().lock();
    if args.json {
        json::write_line(&mut out, &rows)?;
        return Ok(Code::Done);
    }
    if rows.is_empty() {
        writeln!(anstream::stderr(), "no such tasks in {}", args.store.place()?.name())?;
    }
    let now = super::clock::wall_ms();
    rows.iter().try_for_each(|row| writeln!(out, "{}", line(row, now)))?;
    Ok(Code::Done)
}

fn list_rows(reader: &StoreReader, args: &Args) -> Result<Vec<TaskRow>, Fail> {
    let status = args.status.as_deref().and_then(|word| TaskStatus::ALL.into_iter().find(|of| of.as_str() == word));
    let parent = args.parent.as_deref().map(|name| reader.find(name)).transpose()?;
    let filter = TaskFilter { status, parent, limit: args.limit.map(NonZeroUsize::get), ..TaskFilter::default() };
    let tasks = Task::list(reader.journal(), filter)?;
    Ok(tasks.into_iter().map(row).collect())
}

fn row(task: Task) -> TaskRow {
    let cause = task.cause.filter(|cause| *cause != Outcome::Completed);
    let unread = task.unread.map(|why| format!("its records cannot be read: {}", harmless(&why)));
    TaskRow {
        id: task_id(task.session),
        session: task.session,
        short: task.short,
        r#type: task.agent,
        status: task.status.as_str(),
        outcome: task.outcome,
        description: task.title,
        prompt: task.prompt,
        parent: task.parent,
        root: task.root,
        result: task.result,
        error: unread.or_else(|| cause.as_ref().map(cause::describe_outcome)),
        metadata: JsonText::of_metadata(task.metadata.as_ref()),
        created: task.created_ms,
        updated: task.updated_ms,
        completed: task.ended_ms,
    }
}

fn line(row: &TaskRow, now: i64) -> String {
    let style = match row.status {
        "completed" => GOOD,
        "running" => LIVE,
        "pending" => DIM,
        "cancelled" => CAUTION,
        _ => BAD,
    };
    let agent = clip(&row.r#type, 24);
    let error = row.error.as_ref().map(|error| format!("  {}", Styled(DIM, clip(error, 80)))).unwrap_or_default();
    format!(
        "{id}  {short}  {status}{gap}  {agent}{pad}  {age}  {title}{error}",
        id = Styled(DIM, &row.id),
        short = row.short,
        status = Styled(style, row.status),
        gap = fill(row.status, 9),
        pad = fill(&agent, 12),
        age = Styled(DIM, ago(now, row.completed.unwrap_or(row.updated))),
        title = clip(&row.description, 60),
    )
}

#[cfg(test)]
mod tests {
    use subtend_session::outcome::FailKind;

    use super::*;

    fn failed_task() -> Task {
        let id: SessionId = "0192f0c1-2d3e-7abc-8def-0123456789ab".parse().expect("an id");
        Task {
            session: id,
            short: Short("a3f9c1".into()),
            parent: Some(id),
            root: id,
            agent: "explore".into(),
            title: "scan".into(),
            status: TaskStatus::Failed,
            outcome: Some(OutcomeKind::Failed),
            cause: Some(Outcome::Failed { kind: FailKind::Refused }),
            prompt: Some("scan all".into()),
            result: None,
            metadata: Some(r#"{"ticket":7}"#.into()),
            created_ms: 1,
            updated_ms: 3,
            ended_ms: Some(2),
            unread: None,
            shortened: false,
        }
    }

    #[test]
    fn failed_task_has_its_error() {
        let row = row(failed_task());
        assert_eq!((row.error.as_deref(), &*row.metadata.0), (Some("failed: the model refused"), r#"{"ticket":7}"#));
        let line = anstream::adapter::strip_str(&line(&row, 60_002)).to_string();
        assert!(line.ends_with("1 minute ago  scan  failed: the model refused"), "{line}");
    }

    #[test]
    fn r1_unreadable_task_has_its_error() {
        let row = row(Task { unread: Some("session x is damaged".into()), cause: None, ..failed_task() });
        assert_eq!(row.error.as_deref(), Some("its records cannot be read: session x is damaged"));
    }

    #[test]
    fn completed_task_has_no_error_and_keeps_metadata_text() {
        let task = Task { cause: Some(Outcome::Completed), metadata: Some("plain".into()), ..failed_task() };
        let row = row(task);
        assert_eq!((row.error, row.metadata), (None, JsonText("plain".into())));
    }

    #[test]
    fn r1_task_row_prints_every_fact_of_a_task() {
        let task =
            Task { cause: Some(Outcome::Completed), result: Some("seen".into()), metadata: None, ..failed_task() };
        let id = "0192f0c1-2d3e-7abc-8def-0123456789ab";
        let expected = serde_json::json!({
            "id": "task_0192f0c12d3e7abc8def0123456789ab", "session": id, "short": "a3f9c1", "type": "explore",
            "status": "failed", "outcome": "failed", "description": "scan", "prompt": "scan all", "parent": id, "root": id,
            "result": "seen", "error": null, "metadata": {}, "created": 1, "updated": 3, "completed": 2,
        });
        assert_eq!(serde_json::to_value(row(task)).expect("JSON"), expected);
    }

    #[test]
    fn status_option_accepts_every_task_status() {
        use clap::CommandFactory as _;
        #[derive(clap::Parser)]
        struct TestCommand {
            #[command(flatten)]
            args: Args,
        }
        let command = TestCommand::command();
        let option = command.get_arguments().find(|option| option.get_id() == "status").expect("--status");
        let values: Vec<_> = option.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
        assert_eq!(values, TaskStatus::ALL.map(TaskStatus::as_str));
    }
}
