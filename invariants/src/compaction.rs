//! Invariant N-8: a compaction hides no message that the model has yet to answer.

use std::collections::{BTreeMap, BTreeSet};

use crate::world::{SessionFacts, World};
use crate::{InvariantId, Verdict, ensure, ensure_if};
use subtend_session::ids::{CallId, InputId, Seq, SessionId, TurnNo};
use subtend_session::message::Message;
use subtend_session::record::{Carrier, Compacted, Record};
use subtend_session::state::State;

/// Messages and owned runs that a compaction must not hide, after some of a session's records.
#[derive(Default)]
struct RequiredMessages {
    /// Inputs of the run in flight without a final answer, by the records that took them.
    inputs: BTreeMap<InputId, Seq>,
    /// Messages of relatives that no run has taken. The model need not answer them.
    relatives: BTreeSet<InputId>,
    /// Completions and messages of relatives without a later answer, by the records that took them.
    unread: BTreeSet<Seq>,
    /// The last answer, while its calls are open or their results are unanswered.
    answer: Option<(Seq, TurnNo)>,
    /// Owned runs without a notice.
    live: BTreeMap<CallId, SessionId>,
}

impl RequiredMessages {
    fn after_records(seen: &SessionFacts<'_>, records: usize) -> Self {
        let mut required = Self::default();
        for (seq, record) in (1_u64..).map(Seq).zip(seen.view.records).take(records) {
            required.read(seq, record);
        }
        required
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other records change no required message")]
    fn read(&mut self, seq: Seq, record: &Record) {
        match record {
            Record::InputAccepted(input) if input.is_from_relative() => _ = self.relatives.insert(input.id),
            Record::InputsTaken { ids, .. } => {
                for id in ids {
                    if self.relatives.remove(id) {
                        self.unread.insert(seq);
                    } else {
                        self.inputs.insert(*id, seq);
                    }
                }
            }
            Record::TurnAnswered(answered) => {
                self.unread.clear();
                self.inputs.retain(|id, _| !answered.answers.contains(id));
                self.answer = (!answered.calls.is_empty()).then_some((seq, answered.turn));
            }
            Record::NoticeTaken(taken) => {
                self.live.retain(|key, _| !taken.items.iter().any(|item| item.key == Some(*key)));
                if taken.carrier == Carrier::Message {
                    self.unread.insert(seq);
                }
            }
            Record::ChildSpawned(spawned) if !spawned.detached => _ = self.live.insert(spawned.call, spawned.child),
            Record::ContinueAsked(request) => _ = self.live.insert(request.call, request.child),
            Record::RunEnded(_) => {
                self.inputs.clear();
                self.unread.clear();
                self.answer = None;
            }
            _ => {}
        }
    }
}

/// Checks that a compaction hides no message that the model has yet to answer, and that its text names each live child.
pub(super) fn nothing_required_is_hidden(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let Some(state) = seen.view.state.or(seen.view.folded) else { continue };
        for (at, record) in seen.view.records.iter().enumerate() {
            let Record::Compacted(compacted) = record else { continue };
            let required = RequiredMessages::after_records(seen, at);
            check_required(*session, state, compacted, &required)?;
            for child in required.live.values() {
                let named = state.children.get(child).is_none_or(|child| compacted.text.contains(&*child.short.0))
                    || compacted.text.contains(&child.to_string());
                ensure(named, InvariantId::N8, *session, || {
                    format!("record {} does not name the live child {child}", at.saturating_add(1))
                })?;
            }
        }
    }
    Ok(())
}

fn check_required(session: SessionId, state: &State, compacted: &Compacted, required: &RequiredMessages) -> Verdict {
    let hidden = (0_u64..).zip(state.transcript.iter()).skip(state.created.inherited.len());
    let hidden = hidden.take_while(|(at, _)| *at < compacted.upto);
    let hidden = hidden.filter(|(at, _)| !compacted.verbatim.contains(at)).map(|(_, message)| message);
    let lost = hidden.into_iter().find(|message| match message {
        Message::User { seq, .. } => {
            required.unread.contains(seq) || required.inputs.values().any(|taken| taken == seq)
        }
        Message::Assistant { seq, .. } => required.answer.is_some_and(|(answer, _)| answer == *seq),
        Message::Result { call, .. } => required.answer.is_some_and(|(_, turn)| turn == call.turn),
        Message::Notice { seq, .. } => required.unread.contains(seq),
        Message::Prompt { .. } => false,
    });
    let premise = !required.inputs.is_empty() || !required.unread.is_empty() || required.answer.is_some();
    ensure_if(premise, lost.is_none(), InvariantId::N8, session, || {
        format!("a compaction hides {lost:?}, which the model has not answered")
    })
}
