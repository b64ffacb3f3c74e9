//! Compares the context and the tools of each model call with the journal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use subtend_invariants::observed::{GivenContext, Offer};
use subtend_models::model::Request;
use subtend_session::authority::Verdict;
use subtend_session::ids::{AttemptNo, RunKey, Seq, SessionId, Text, TurnNo};
use subtend_session::message::{Message, Transcript};
use subtend_session::record::Record;

use crate::simulate::fake_catalog::{READER, is_guarded, tool_names};
use crate::simulate::oracle::OracleState;
use crate::simulate::oracle::observations::offer;

/// The approximate time until a started turn is durable. Offers may or may not consider an approver attached within it.
const DURABLE_DELAY: Duration = Duration::from_secs(5);

type CallPosition = (SessionId, TurnNo, AttemptNo);

/// Contexts of model calls whose start is not durable yet: a local call's context may be newer than the disk.
#[derive(Default)]
pub(crate) struct Contexts(BTreeMap<CallPosition, CallContext>);

struct CallContext {
    /// The session's own answers, without inherited ones.
    answers: Vec<(Seq, Option<Text>)>,
    messages: Transcript,
    /// The names of the offered tools, if they are checked.
    tools: Option<Vec<Text>>,
    reader: bool,
}

impl Contexts {
    /// Forgets all contexts, because the process was killed and records that were not durable are lost.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

impl OracleState {
    /// Records the context of one model call, and its tools if they are checked too.
    pub(crate) fn record_call(&mut self, request: &Request, checks_tools: bool) {
        let answers = request.messages.iter().filter_map(|message| {
            let Message::Assistant { seq, text, .. } = message else { return None };
            Some((*seq, text.clone()))
        });
        let given = CallContext {
            answers: answers.collect(),
            tools: checks_tools.then(|| request.tools.iter().map(|tool| tool.name.clone()).collect()),
            messages: Arc::clone(&request.messages),
            reader: &*request.agent == READER.0,
        };
        let at = (request.session, request.turn, request.attempt);
        self.contexts.0.insert(at, given);
        if self.started_at(at).is_some() {
            judge(self, at);
        }
    }
}

/// Judges a model call when the start of its turn becomes durable.
pub(super) fn judge(oracle: &mut OracleState, at: CallPosition) {
    let Some(given) = oracle.contexts.0.remove(&at) else { return };
    answers(oracle, at, &given);
    let (session, turn, attempt) = at;
    let tools = given.tools.as_ref().map(|names| tools(oracle, at, names, given.reader));
    // If the session hides messages, the context must not contain them.
    let hides =
        oracle.archive.state(session).is_some_and(|state| state.message_ranges.values().any(|stretch| stretch.hidden));
    let Some(run) = oracle.run_of(at).filter(|_| tools.is_some() || hides) else { return };
    let run = RunKey { session, run };
    let (messages, tools) = (Some(given.messages), tools.unwrap_or_default());
    oracle.observations.record_context(GivenContext { run, turn, attempt, messages, tools });
}

/// Checks that the context has the recorded answers unchanged, if no alternative is selected (B13, E-2).
fn answers(oracle: &mut OracleState, (session, turn, _): CallPosition, given: &CallContext) {
    let Some(state) = oracle.archive.state(session) else { return };
    let inherited =
        state.created.inherited.iter().filter(|message| matches!(message, Message::Assistant { .. })).count();
    let wrong = given.answers.iter().skip(inherited).find_map(|(seq, text)| {
        let seen = state.alternatives.get(seq).is_some_and(|known| known.active != 0);
        let Some(Record::TurnAnswered(answered)) = oracle.archive.record(session, *seq) else { return None };
        (!seen && answered.text != *text).then(|| format!("message {seq} is {text:?}, but was {:?}", answered.text))
    });
    if let Some(wrong) = wrong {
        oracle.wrong("E-2", format!("the context of turn {turn} of {session} differs from the journal: {wrong}"));
    }
}

/// Records the offered tools with their verdicts (P-7).
fn tools(oracle: &OracleState, at: CallPosition, given: &[Text], reader: bool) -> Vec<Offer> {
    let started = oracle.started_at(at).unwrap_or_default();
    let service = oracle.archive.is_service(at.0);
    let unsure = oracle
        .attended_since
        .is_some_and(|since| started < since.saturating_add(DURABLE_DELAY).saturating_add(oracle.jumped));
    let attended = oracle.attended_since.is_some();
    let offered = |name: &str| given.iter().any(|given| **given == *name);
    let own = tool_names().map(|name| {
        let best = match (reader, is_guarded(name)) {
            _ if service => Verdict::Deny,
            (true, _) if !READER.1.contains(&name) => Verdict::Deny,
            (_, true) => Verdict::Ask,
            (_, false) => Verdict::Allow,
        };
        let offered = offered(name);
        offer(name, offered, best, if unsure { offered } else { attended })
    });
    let others = given.iter().filter(|name| !tool_names().any(|own| *own == ***name));
    let best = if service { Verdict::Deny } else { Verdict::Allow };
    own.chain(others.map(|name| offer(name, true, best, true))).collect()
}
