use subtend_journal::Stored;
use subtend_session::ids::{CallId, InputId, RunNo, Seq, Text, TurnNo};
use subtend_session::record::{Lane, Prompt, QueueChange, Record, RunEnded, Stop, ToolCall, TurnAnswered};
use subtend_session::render;
use subtend_session::state::JoinedText;

use super::{AnswerError, Answered};
use crate::values::ended::Ended;

/// A search through the records in order, from the opening of the run in flight at the acceptance, or earlier.
pub(super) struct Scan {
    input: InputId,
    /// False to find only whether there is a result, without its texts.
    keeps_texts: bool,
    accepted: bool,
    taken: Option<RunNo>,
    /// True if the input waits for a rest point instead of steering.
    waits: bool,
    run: RunNo,
    /// True if `run` is in flight and a model's call opened it: only steering inputs enter it.
    of_a_model: bool,
    /// True if the current turn continues a truncated answer.
    continues: bool,
    /// The last answer without calls, by the same rules as the session's fold.
    answer: Option<JoinedText>,
    partial: JoinedText,
    /// An answer by `return`, which applies if its call ends the run.
    returning: Option<(TurnNo, Seq, Vec<ToolCall>)>,
}

impl Scan {
    pub(super) fn new(input: InputId) -> Self {
        Self {
            input,
            keeps_texts: true,
            accepted: false,
            taken: None,
            waits: false,
            run: RunNo(0),
            of_a_model: false,
            continues: false,
            answer: None,
            partial: JoinedText::default(),
            returning: None,
        }
    }

    pub(super) fn without_texts(self) -> Self {
        Self { keeps_texts: false, ..self }
    }

    pub(super) fn is_taken(&self) -> bool {
        self.taken.is_some()
    }

    pub(super) fn run(&self) -> RunNo {
        let last = if self.of_a_model && self.waits { self.run.next() } else { self.run };
        self.taken.unwrap_or(last)
    }

    pub(super) fn last(&self) -> Option<Text> {
        self.answer.as_ref().map(JoinedText::text)
    }

    /// Reads the next record. Returns the result once it is known: the answer, or the reason why it is missing.
    pub(super) fn read(&mut self, stored: &Stored) -> Option<Result<Answered, AnswerError>> {
        let record = &stored.record;
        if let Record::InputAccepted(accepted) = record {
            if accepted.id == self.input {
                (self.accepted, self.waits) = (true, accepted.lane == Lane::Send);
            }
        } else if let Record::RunOpened(opened) = record {
            (self.run, self.of_a_model) = (opened.run, opened.owner.is_model_call());
            (self.answer, self.partial, self.returning) = (None, JoinedText::default(), None);
            if opened.inputs.contains(&self.input) {
                self.taken = Some(opened.run);
            }
        } else if let Record::InputsTaken { ids, run, .. } = record {
            if ids.contains(&self.input) {
                self.taken = Some(*run);
            }
        } else if let Record::QueueChanged { change, by } = record {
            let waits = self.accepted && self.taken.is_none();
            let removed = match change {
                QueueChange::Removed(ids) => ids.contains(&self.input),
                QueueChange::Cleared => true,
            };
            return (waits && removed).then(|| Err(AnswerError::Removed { by: by.clone() }));
        } else if let Record::TurnStarted { prompt, .. } = record {
            self.continues = *prompt == Prompt::Continuation;
        } else if let Record::TurnAnswered(answered) = record {
            return self.on_answer(answered, stored.seq).map(Ok);
        } else if let Record::RunEnded(ended) = record {
            self.of_a_model = false;
            return (self.taken == Some(ended.run)).then(|| self.on_end(ended));
        }
        None
    }

    fn on_answer(&mut self, answered: &TurnAnswered, seq: Seq) -> Option<Answered> {
        // These are the rules of the session's fold.
        let text = answered.text.as_ref().filter(|text| self.keeps_texts && !text.trim().is_empty());
        if text.is_none() && answered.calls.is_empty() && answered.stop == Stop::Length {
            self.answer = None;
        }
        if let Some(text) = text {
            let between = if self.continues && self.answer.is_some() { "" } else { "\n\n" };
            self.partial.push(between, text);
            if answered.calls.is_empty() && answered.stop != Stop::Refused {
                let mut whole = self.answer.take().filter(|_| self.continues).unwrap_or_default();
                whole.push("", text);
                self.answer = Some(whole);
            }
        }
        if !answered.answers.contains(&self.input) {
            return None;
        }
        if !answered.calls.is_empty() {
            if self.keeps_texts {
                self.returning = Some((answered.turn, seq, answered.calls.clone()));
            }
            return None;
        }
        let text = self.answer.as_ref().map(JoinedText::text).unwrap_or_default();
        Some(Answered { input: self.input, run: answered.run, turn: answered.turn, seq, text })
    }

    fn on_end(&mut self, ended: &RunEnded) -> Result<Answered, AnswerError> {
        if let (Some((turn, seq, calls)), Some(CallId { ix, .. })) = (self.returning.take(), ended.returned)
            && let Some(call) = calls.get(ix as usize)
        {
            let text = render::return_result(&call.args);
            return Ok(Answered { input: self.input, run: ended.run, turn, seq, text });
        }
        let mut usage = ended.usage_self;
        usage.add(&ended.usage_owned);
        // The record's own text is truncated to what an owner receives.
        let text = Some(self.partial.text()).filter(|text| !text.is_empty()).or_else(|| ended.text.clone());
        let (run, outcome, turns) = (ended.run, ended.outcome.clone(), ended.turns);
        Err(AnswerError::Ended(Box::new(Ended { run, outcome, text, turns, usage })))
    }
}

#[cfg(test)]
mod tests;
