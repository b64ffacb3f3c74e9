//! Describes the current activity of a session in one line.

use std::collections::BTreeMap;

use subtend_actors::Runtime;
use subtend_session::ids::{CallId, Text};
use subtend_session::record::{Carrier, Park, Record, ToolCall};
use subtend_session::state::Phase;

use super::words;

/// Open model call, tool calls and waits of a session, folded from its records.
#[derive(Debug, Default)]
pub(super) struct OpenWork {
    model: Option<Text>,
    calls: BTreeMap<CallId, OpenCall>,
    /// Unix time in ms until which the run is parked at a provider's limit.
    limited: Option<i64>,
}

#[derive(Debug)]
struct OpenCall {
    tool_call: ToolCall,
    child: bool,
    ask: Option<String>,
}

impl OpenWork {
    pub(super) fn add(&mut self, record: &Record) {
        if let Record::RunParked { why, .. } = record {
            self.limited = if let Park::Limit { until } = why { Some(*until) } else { None };
        } else if let Record::RunResumed { .. } | Record::RunHeld { .. } = record {
            self.limited = None;
        } else if let Record::TurnStarted { model, .. } = record {
            self.model = Some(model.clone());
        } else if let Record::AttemptDiscarded(_) = record {
            self.model = None;
        } else if let Record::TurnAnswered(answered) = record {
            self.model = None;
            let calls = (0_u32..).zip(&answered.calls);
            self.calls = calls
                .map(|(ix, tool_call)| {
                    let call = OpenCall { tool_call: tool_call.clone(), child: false, ask: None };
                    (CallId { turn: answered.turn, ix }, call)
                })
                .collect();
        } else if let Record::ChildSpawned(spawned) = record {
            self.calls.entry(spawned.call).and_modify(|call| call.child = true);
        } else if let Record::ContinueAsked(request) = record {
            self.calls.entry(request.call).and_modify(|call| call.child = true);
        } else if let Record::AskOpened { call, action, resource, .. } = record {
            let ask = words::line(&format!("{action} {resource}"));
            self.calls.entry(*call).and_modify(|call| call.ask = Some(ask));
        } else if let Record::AskAnswered { call, .. } = record {
            self.calls.entry(*call).and_modify(|call| call.ask = None);
        } else if let Record::CallFinished(finished) = record {
            self.calls.remove(&finished.call);
        } else if let Record::NoticeTaken(taken) = record {
            match taken.carrier {
                Carrier::Result => taken.items.iter().filter_map(|item| item.key).for_each(|key| {
                    self.calls.remove(&key);
                }),
                Carrier::Await { call } => _ = self.calls.remove(&call),
                Carrier::Message => {}
            }
        } else if let Record::RunEnded(_) = record {
            *self = Self::default();
        }
    }

    /// Describes the work of a session in this phase. Returns an empty text if the phase alone is enough.
    pub(super) fn describe(&self, runtime: &Runtime, phase: Phase) -> String {
        if let Some(ask) = self.calls.values().find_map(|call| call.ask.as_ref()) {
            return words::line(&format!("needs approval: {ask}"));
        }
        let children = self.calls.values().filter(|call| call.child).count();
        match phase {
            Phase::Working => words::line(&self.line(runtime)),
            Phase::WaitingMidTurn if self.limited.is_some() => words::limited(self.limited.unwrap_or_default()),
            Phase::WaitingMidTurn if children > 0 => format!("waiting for {children} of its children"),
            Phase::WaitingMidTurn => "waiting".to_owned(),
            Phase::WaitingAtRest => "waiting for background children".to_owned(),
            Phase::Queued => "waiting for a slot".to_owned(),
            Phase::HeldInterrupted => "held until the next input".to_owned(),
            Phase::HeldOutOfTurns => "held until its owned runs have ended".to_owned(),
            Phase::Closing | Phase::Quiet => String::new(),
        }
    }

    fn line(&self, runtime: &Runtime) -> String {
        if let Some(model) = &self.model {
            let is_of =
                |quota: &str| model.strip_prefix(quota).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            let waiting: usize =
                runtime.quotas().iter().filter(|seen| is_of(&seen.name)).map(|seen| seen.waiting).sum();
            // The quota knows only how many calls wait, not their sessions.
            let wait = if waiting == 0 { String::new() } else { format!(" ({waiting} calls wait for a permit)") };
            return format!("asking {model}{wait}");
        }
        let mut local = self.calls.values().filter(|call| !call.child);
        let Some(first) = local.next() else { return "working".to_owned() };
        let more = local.count();
        let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
        format!("{}{rest}", call_line(runtime, &first.tool_call.tool, &first.tool_call.args))
    }
}

/// Describes a call as its tool displays it.
pub(super) fn call_line(runtime: &Runtime, tool: &str, args: &str) -> String {
    let shown = runtime.render_call(tool, args, None);
    let name = if shown.display.name.is_empty() { &*shown.tool } else { &*shown.display.name };
    let input = shown.input.as_deref().unwrap_or(args);
    words::line(&format!("{name} {input}"))
}
