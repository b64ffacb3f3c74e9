//! Reports the end of a run as JSON or as text.

use std::io::Write;

use serde::Serialize;
use subtend_actors::Ended;
use subtend_session::ids::{RunNo, SessionId};
use subtend_session::outcome::Outcome;
use subtend_session::usage::Usage;

use super::super::cause;
use super::super::fail::Fail;
use super::super::paint::harmless;
use super::Screen;
use super::output_options::OutputOptions;
use crate::cli::json;

#[derive(Serialize)]
struct ResultLine<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    session: SessionId,
    run: RunNo,
    outcome: &'a Outcome,
    answer: Option<&'a str>,
    partial: Option<&'a str>,
    turns: u32,
    usage: &'a Usage,
}

/// Reports the end of a run: the answer on stdout, the cause and a hint on stderr.
pub(super) fn report_end(
    output_options: OutputOptions<'_>,
    screen: &mut Screen,
    session: SessionId,
    ended: &Ended,
) -> Result<(), Fail> {
    let result = if output_options.json {
        writeln!(std::io::stdout(), "{}", json(session, ended)?).map_err(Fail::from)
    } else if ended.text.as_deref().is_some_and(|text| screen.has_printed(text)) {
        Ok(())
    } else {
        answer(ended, output_options.raw)
    };
    if let Some(cause) = cause(ended) {
        screen.alert(&cause);
    }
    if output_options.store.place()?.is_in_memory() {
        screen.note(&format!("session {session} was kept in memory only"));
    } else {
        let again = output_options.store.options_for_shell();
        screen.note(&format!("session {session}\ninspect it: subtend tree {session}{again}"));
    }
    match result {
        // Stdout is closed, but the exit code and the store still have the outcome.
        Err(Fail::Closed) => Ok(()),
        other => other,
    }
}

fn json(session: SessionId, ended: &Ended) -> Result<String, Fail> {
    let text = ended.text.as_deref();
    let completed = ended.outcome == Outcome::Completed;
    let line = ResultLine {
        kind: "run_ended",
        session,
        run: ended.run,
        outcome: &ended.outcome,
        answer: text.filter(|_| completed),
        partial: text.filter(|_| !completed),
        turns: ended.turns,
        usage: &ended.usage,
    };
    json::text(&line)
}

/// Writes the answer, or its partial text, to stdout; with `raw`, unchanged.
fn answer(ended: &Ended, raw: bool) -> Result<(), Fail> {
    let Some(text) = ended.text.as_deref().filter(|text| !text.trim().is_empty()) else { return Ok(()) };
    let mut out = std::io::stdout().lock();
    // Sanitize output to a file or a pipe too, because it may reach a terminal later.
    if raw {
        writeln!(out, "{}", text.trim_end())?;
    } else {
        writeln!(out, "{}", harmless(text).trim_end())?;
    }
    Ok(out.flush()?)
}

/// Returns the cause in one sentence if the run did not complete.
fn cause(ended: &Ended) -> Option<String> {
    let partial = ended.text.as_deref().is_some_and(|text| !text.trim().is_empty());
    (ended.outcome != Outcome::Completed).then(|| {
        let cause = harmless(&cause::describe_outcome(&ended.outcome));
        let text = if partial { "; the partial answer is on stdout" } else { "" };
        format!("run {} {cause}{text}", ended.run)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use subtend_session::outcome::Initiator;

    use super::*;

    fn ended(outcome: Outcome, text: Option<&str>) -> Ended {
        let usage = Usage { input: 10, output: 2, ..Usage::default() };
        Ended { run: RunNo(1), outcome, text: text.map(Into::into), turns: 3, usage }
    }

    fn line(ended: &Ended) -> Value {
        let session = "0192f0c1-2d3e-7abc-8def-0123456789ab".parse().expect("an id");
        serde_json::from_str(&json(session, ended).expect("a line")).expect("json")
    }

    fn expected_line(outcome: Value, answer: Value, partial: Value) -> Value {
        json!({
            "type": "run_ended", "session": "0192f0c1-2d3e-7abc-8def-0123456789ab", "run": 1, "outcome": outcome,
            "answer": answer, "partial": partial, "turns": 3, "usage": {"in": 10, "out": 2},
        })
    }

    #[test]
    fn completed_run_has_an_answer_and_no_partial() {
        let ended = ended(Outcome::Completed, Some("forty-two"));
        assert_eq!(line(&ended), expected_line(json!("completed"), json!("forty-two"), Value::Null));
        assert_eq!(cause(&ended), None);
    }

    #[test]
    fn failed_run_has_partial_output_and_a_cause() {
        let stopped = ended(Outcome::Cancelled { by: Initiator::Person }, Some("forty"));
        assert_eq!(line(&stopped), expected_line(json!({"cancelled": {"by": "person"}}), Value::Null, json!("forty")));
        let text = "run 1 cancelled by a person; the partial answer is on stdout";
        assert_eq!(cause(&stopped).as_deref(), Some(text));
        let spent = ended(Outcome::OutOfTurns, None);
        assert_eq!(line(&spent), expected_line(json!("out_of_turns"), Value::Null, Value::Null));
        let text = "run 1 out of turns: no final answer within the allowed turns (--limit turns)";
        assert_eq!(cause(&spent).as_deref(), Some(text));
    }
}
