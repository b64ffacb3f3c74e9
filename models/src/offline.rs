//! The offline model: a rule-based model that lists, searches and reads the workspace through its tools, without a key or a network.
//!
//! For a question, the model lists the workspace, searches it for the words of the question, and chooses areas. It starts an explorer for each
//! area in the background, and merges their reports. An explorer lists, searches and reads one area (see `brief`). Without the tool `task`, the
//! model explores by itself. The model is stateless: each step follows from the transcript, so it can resume after a restart.
//!
//! Every path, line and count comes from the result of a tool. Counts from truncated output are marked with "at least".

mod answer;
mod areas;
mod brief;
mod markdown;
mod report;
mod results;
mod transcript;
mod words;
mod work;

#[cfg(test)]
mod tests;

use futures_util::FutureExt as _;
use futures_util::future::{self, BoxFuture};
use serde_json::{Value, json};
use subtend_session::ids::{CallId, Text, TurnNo};
use subtend_session::message::{Message, ToolSpec};
use subtend_session::record::ToolCall;
use subtend_session::values::parse_recorded;

use self::answer::Part;
use self::areas::{AreaHits, AreaPlan};
use self::brief::{Area, Brief};
use self::report::ChildReport;
use self::results::{Matched, ToolListing};
use self::transcript::{AT_WORK, Done, OpenQuestion};
use self::work::{NextWork, Offered};
use crate::model::{Answer, Delta, Deltas, Model, ModelError, Request};
use crate::scripted::play::pieces;

#[derive(Clone, Copy, Debug, Default)]
pub struct Offline;

impl Offline {
    pub fn new() -> Self {
        Self
    }
}

impl Model for Offline {
    fn name(&self) -> &str {
        "offline"
    }

    fn leaves_process(&self) -> bool {
        false
    }

    fn call(&self, request: Request, deltas: Deltas) -> BoxFuture<'static, Result<Answer, ModelError>> {
        let answer = respond(&request.messages, &request.tools);
        let turn = request.turn;
        drop(request);
        stream(&answer, turn, &deltas);
        future::ready(Ok(answer)).boxed()
    }
}

fn stream(answer: &Answer, turn: TurnNo, deltas: &Deltas) {
    if !deltas.has_receiver() {
        return;
    }
    for piece in pieces(answer.text.as_deref().unwrap_or_default()) {
        deltas.send(Delta::Text(piece.into()));
    }
    for (ix, call) in (0_u32..).zip(&answer.calls) {
        deltas.send(Delta::Call { call: CallId { turn, ix }, tool: Text::clone(&call.tool) });
    }
}

enum OfflineStep {
    Say(String),
    Call(String, Vec<(&'static str, Value)>),
    /// There is no new question, so the earlier answer remains.
    Nothing,
}

fn respond(messages: &[Message], tools: &[ToolSpec]) -> Answer {
    let open = OpenQuestion::of(messages);
    let step = step(&open, &offered_tools(tools));
    match step {
        OfflineStep::Say(text) => Answer::of_text(text),
        OfflineStep::Nothing => Answer { text: None, ..Answer::of_text("") },
        OfflineStep::Call(text, calls) => {
            let number = open.answers.saturating_add(1);
            let tool_calls = calls.into_iter().enumerate().map(|(ix, (tool, args))| ToolCall {
                provider_id: format!("call_{number}_{ix}").into(),
                tool: tool.into(),
                args: args.to_string().into(),
            });
            Answer::of_calls(Some(format!("{AT_WORK}{text}").into()), tool_calls.collect())
        }
    }
}

fn offered_tools(tools: &[ToolSpec]) -> Offered {
    let tool = |name: &str| tools.iter().find(|tool| &*tool.name == name);
    let agents =
        tool("task").map(|task| task.schema.pointer("/properties/subagent_type/enum").and_then(Value::as_array));
    let agent = agents.and_then(|agents| {
        let Some(agents) = agents else { return Some("explore".to_owned()) };
        let known = ["explore", "general"].into_iter().find(|name| agents.iter().any(|agent| agent == name));
        known.map(str::to_owned)
    });
    let [list, search, read] = ["list", "search", "read"].map(|name| tool(name).is_some());
    Offered { list, search, read, task: agent }
}

fn step(open: &OpenQuestion<'_>, offered: &Offered) -> OfflineStep {
    if open.question.is_empty() {
        return OfflineStep::Nothing;
    }
    if !offered.can_explore() {
        return OfflineStep::Say(answer::plain(
            "It can only list, search and read a workspace, and none of the tools `list`, `search` and `read` is offered here.",
        ));
    }
    let brief = Brief::parse(open.first).filter(|_| open.only_first);
    match brief {
        Some(brief) => explore(&brief, open, offered),
        None => divide_work(open, offered),
    }
}

fn explore(brief: &Brief, open: &OpenQuestion<'_>, offered: &Offered) -> OfflineStep {
    match work::next(brief, open, offered) {
        NextWork::Calls(calls) => OfflineStep::Call(format!("reading {}.", brief.area.to_text()), calls),
        NextWork::Report(report) => OfflineStep::Say(report.text()),
    }
}

fn divide_work(open: &OpenQuestion<'_>, offered: &Offered) -> OfflineStep {
    let first = json!({ "path": ".", "depth": 2 });
    if !offered.list {
        return explore_alone(open, offered, None, &AreaPlan::default(), "");
    }
    let words = words::words(&open.question);
    let searches = offered.search && !words.is_empty();
    let scan = |at_starts: bool| ("search", areas::search(&words, at_starts));
    let mut missing = vec![("list", first.clone())];
    missing.extend(searches.then(|| scan(true)));
    missing.retain(|(tool, args)| open.find(tool, args).is_none());
    if !missing.is_empty() {
        let what = if searches {
            "listing the workspace and searching it for the question's words."
        } else {
            "listing the workspace."
        };
        return OfflineStep::Call(what.into(), missing);
    }
    let found = |at_starts: bool| open.find("search", &scan(at_starts).1).filter(|_| searches);
    let nothing = |done: &Done<'_>| !done.error && Matched::parse(done.content).files.is_empty();
    let at_starts = found(true).is_none_or(|done| !nothing(done));
    if !at_starts && found(false).is_none() {
        return OfflineStep::Call("searching for parts of the question's words.".into(), vec![scan(false)]);
    }
    let hits = found(at_starts).map(|done| match done.error {
        true => Err(report::display_line(done.content)),
        false => Ok(AreaHits { words: words.clone(), at_starts, matched: Matched::parse(done.content) }),
    });
    let Some(listed) = open.find("list", &first) else { return OfflineStep::Nothing };
    if listed.error {
        let why = report::display_line(listed.content);
        return OfflineStep::Say(answer::plain(&format!("The workspace could not be listed: {why}")));
    }
    let listing = ToolListing::parse(listed.content, false);
    if listing.dirs.is_empty() && listing.files.is_empty() {
        let why = report::display_line(listed.content);
        return OfflineStep::Say(answer::plain(&format!(
            "The workspace shows no files, so there is nothing to answer from. {why}"
        )));
    }
    let plan = AreaPlan { cut: open.cut, ..areas::plan(&listing, &open.question, hits) };
    match &offered.task {
        Some(agent) if plan.briefs.len() > 1 => divide(open, offered, &listing, &plan, agent),
        Some(_) | None => explore_alone(open, offered, Some(&listing), &plan, ""),
    }
}

/// Starts an explorer for each area, waits for all of them, and merges their reports.
fn divide(
    open: &OpenQuestion<'_>,
    offered: &Offered,
    listing: &ToolListing,
    plan: &AreaPlan,
    agent: &str,
) -> OfflineStep {
    let task =
        |brief: &Brief| json!({ "subagent_type": agent, "prompt": brief.prompt(&open.question), "background": true });
    let briefs = || plan.briefs.iter().map(|(brief, _)| brief);
    let missing: Vec<(&str, Value)> =
        briefs().map(&task).filter(|args| open.find("task", args).is_none()).map(|args| ("task", args)).collect();
    if !missing.is_empty() {
        let areas: Vec<String> = briefs().map(|brief| brief.area.to_text()).collect();
        return OfflineStep::Call(format!("one explorer each for {}.", areas.join(", ")), missing);
    }
    let calls: Vec<Option<&Done<'_>>> = briefs().map(|brief| open.find("task", &task(brief))).collect();
    if let Some(Some(first)) = calls.first()
        && calls.iter().flatten().all(|call| call.error)
    {
        return explore_alone(open, offered, Some(listing), plan, &report::display_line(first.content));
    }
    let ends: Vec<_> = briefs().zip(&calls).map(|(brief, call)| end(open, &brief.area, (*call)?)).collect();
    let (all, back) = (ends.len(), ends.iter().flatten().count());
    if back < all {
        return OfflineStep::Say(format!(
            "{AT_WORK}{back} of {all} explorers are back; the answer comes when all have ended."
        ));
    }
    let parts = plan.briefs.iter().zip(ends.into_iter().flatten());
    let parts = parts.map(|((brief, why), report)| Part { area: brief.area.clone(), why: why.clone(), report });
    OfflineStep::Say(answer::markdown(Some(listing), plan, &parts.collect::<Vec<_>>()))
}

/// Finds the report of the explorer of `area`, by the id of its call or the area in the report. Returns `None` while the explorer runs, and
/// an error if it ended without a report.
fn end(open: &OpenQuestion<'_>, area: &Area, call: &Done<'_>) -> Option<Result<ChildReport, String>> {
    if call.error {
        return Some(Err(format!("the explorer could not be started: {}", report::display_line(call.content))));
    }
    let reported = |text: &str| ChildReport::parse(text).filter(|report| report.area == *area);
    if let Some(report) = reported(call.content) {
        return Some(Ok(report));
    }
    let given: Value = parse_recorded(call.content).unwrap_or(Value::Null);
    let ids: Vec<&str> = ["session_id", "short"].iter().filter_map(|key| given.get(key)?.as_str()).collect();
    let by_id = open.ends.iter().find(|end| ids.contains(&end.id));
    let end = by_id.or_else(|| open.ends.iter().find(|end| end.text.is_some_and(|text| reported(text).is_some())))?;
    let how = if end.is_completed() { "ended without a report that can be read" } else { end.how };
    Some(end.text.and_then(reported).ok_or_else(|| format!("the explorer {how}")))
}

/// Explores without children: the whole workspace, or the only area that the question names.
fn explore_alone(
    open: &OpenQuestion<'_>,
    offered: &Offered,
    listing: Option<&ToolListing>,
    plan: &AreaPlan,
    refused: &str,
) -> OfflineStep {
    let (area, why) = match &*plan.briefs {
        [(only, why)] if !only.area.shallow => (only.area.clone(), why.clone()),
        _ => (Area::deep("."), "the whole workspace".to_owned()),
    };
    let brief = Brief { area, words: words::words(&open.question) };
    match work::next(&brief, open, offered) {
        NextWork::Calls(calls) => OfflineStep::Call(format!("reading {} directly.", brief.area.to_text()), calls),
        NextWork::Report(mut report) => {
            if !refused.is_empty() {
                report.notes.push(format!("no explorer could be started: {refused}"));
            }
            let parts = [Part { area: brief.area.clone(), why: why.clone(), report: Ok(*report) }];
            let plan = AreaPlan { briefs: vec![(brief, why)], cut: open.cut, ..AreaPlan::default() };
            OfflineStep::Say(answer::markdown(listing, &plan, &parts))
        }
    }
}
