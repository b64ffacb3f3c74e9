//! Contexts: whether a model is given what the journal says, and the tools that it may use.

use subtend_models::model::Request;
use subtend_session::authority::Verdict;
use subtend_session::ids::RunKey;
use subtend_session::invariant::observed::ContextGiven;
use subtend_session::message::Message;
use subtend_session::record::Record;

use crate::simulate::hands;
use crate::simulate::life::READER;
use crate::simulate::sights::offer;
use crate::simulate::world::World;

/// One model call is given its context.
pub(crate) fn given(world: &World, request: &Request) {
    answers(world, request);
    if world.chance.one_in(8) {
        tools(world, request);
    }
}

/// Answers are as they were given, where no alternative of them is seen (B13, E-2).
fn answers(world: &World, request: &Request) {
    let mut book = world.book.open();
    let Some(state) = book.archive.state(request.session) else { return };
    let inherited = state.created.inherited.len();
    let wrong = request.messages.iter().skip(inherited).find_map(|message| {
        let Message::Assistant { seq, text, .. } = message else { return None };
        let seen = state.alternatives.get(seq).is_some_and(|known| known.active != 0);
        let Some(Record::TurnAnswered(answered)) = book.archive.record(request.session, *seq) else { return None };
        (!seen && answered.text != *text).then(|| format!("message {seq} is {text:?}, and was {:?}", answered.text))
    });
    if let Some(wrong) = wrong {
        book.wrong("E-2", format!("turn {} of {} is given another context: {wrong}", request.turn, request.session));
    }
}

/// Tools are offered if they may be used (P-7).
fn tools(world: &World, request: &Request) {
    let given: Vec<&str> = request.tools.iter().map(|tool| &*tool.name).collect();
    let reader = &*request.agent == READER.0;
    let mut book = world.book.open();
    let attended = book.attended;
    let own = hands::names().map(|name| {
        let best = match (reader, hands::is_guarded(name)) {
            (true, _) if !READER.1.contains(&name) => Verdict::Deny,
            (_, true) => Verdict::Ask,
            (_, false) => Verdict::Allow,
        };
        offer(name, given.contains(&name), best, attended)
    });
    let others = given.iter().filter(|name| !hands::names().any(|own| own == **name));
    let tools = own.chain(others.map(|name| offer(name, true, Verdict::Allow, true))).collect();
    let Some(run) = book.archive.state(request.session).and_then(|state| state.run.as_ref()).map(|run| run.no) else {
        return;
    };
    let (run, turn, attempt) = (RunKey { session: request.session, run }, request.turn, request.attempt);
    book.sights.offered(ContextGiven { run, turn, attempt, messages: None, tools });
}
