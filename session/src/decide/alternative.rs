//! Regenerated answers, and the selection among them. The original stays unchanged in the journal and transcript. An
//! alternative replaces it only in what models and people see.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::branch::{hidden, list_last};
use super::draft::Draft;
use crate::command::{RegeneratePlan, SwitchTo};
use crate::context::{self, Exchange};
use crate::effect::{Effect, NewSession, Rejection, Reply};
use crate::ids::{RunNo, Seq};
use crate::limits::time_after;
use crate::message::Message;
use crate::outcome::Initiator;
use crate::place::{BranchKind, Mode, Owner};
use crate::record::{From, InputAccepted, Lane, Notice, Record, RunOpened, SessionCreated};
use crate::state::Alternatives;

pub(super) fn regenerate(draft: &mut Draft<'_>, plan: RegeneratePlan) -> Result<(), Rejection> {
    let RegeneratePlan { child, input, of, created, manifest, by } = plan;
    if draft.is_created(child)? {
        return Ok(());
    }
    draft.needs_quiet("regenerate")?;
    let (of, exchange) = answer(draft, of)?;
    let Some(Message::User { text, .. }) = draft.state.transcript.get(exchange.asked) else {
        return Err(Rejection::BadInput(format!("answer {of} answers no message of this session")));
    };
    let text = Arc::clone(text);
    let inherited = Arc::new(before(draft, exchange));
    let place = draft.place(BranchKind::Alternative, exchange.user, Some(of), draft.state.created.place.depth());
    let created = SessionCreated { place, inherited, ..created };
    let from = if by == Initiator::Person { From::Person } else { From::Host };
    let accepted_input = draft.state.asked.get(&exchange.user);
    let accepted = InputAccepted {
        turns: accepted_input.and_then(|accepted_input| accepted_input.turns),
        metadata: accepted_input.and_then(|accepted_input| accepted_input.metadata.clone()),
        format: accepted_input.and_then(|accepted_input| accepted_input.format.clone()),
        ..InputAccepted::new(input, from, Lane::Send, text, Owner::Person)
    };
    let opened = draft.first_run(&created, &accepted);
    let created = draft.create_branch(child, BranchKind::Alternative, of, by, created, &manifest)?;
    let records = vec![created, Record::InputAccepted(Box::new(accepted)), Record::RunOpened(Box::new(opened))];
    draft.decision.new_sessions.push(NewSession { session: child, records });
    draft.effect(Effect::StartChild { child });
    Ok(())
}

fn before(draft: &Draft<'_>, exchange: Exchange) -> Vec<Message> {
    // Uses the history before the compactions that hide the user message: their summaries also cover later messages.
    let visible = context::visible_before(draft.state, Some(exchange.user)).messages;
    // Inputs that were taken together share one record.
    let is_user = |message: &Message| matches!(message, Message::User { seq, .. } if *seq == exchange.user);
    let later = draft.state.transcript.iter().skip(exchange.asked.saturating_add(1)).filter(|it| is_user(it)).count();
    let at =
        visible.iter().enumerate().rev().filter(|(_, message)| is_user(message)).nth(later).map_or(0, |(at, _)| at);
    visible.into_iter().take(at).collect()
}

/// Returns the requested answer, which must end the exchange of a user message.
fn answer(draft: &Draft<'_>, of: Option<Seq>) -> Result<(Seq, Exchange), Rejection> {
    let answers = answers(draft);
    let target = match (of, answers.last()) {
        (Some(of), _) => of,
        (None, Some(last)) => *last,
        (None, None) => return Err(Rejection::BadInput("the session has no answer to regenerate yet".into())),
    };
    if let Some(run) = context::rolled_back(draft.state, target) {
        return Err(hidden(target, run));
    }
    if context::is_compacted(draft.state, target) {
        return Err(compacted(target));
    }
    match context::exchange(draft.state, target) {
        Some(exchange) => Ok((target, exchange)),
        None => Err(Rejection::NotFound(format!(
            "answer {target} not found or cannot be regenerated; {}",
            list_last("available answers:", &answers)
        ))),
    }
}

/// Returns the answers of this session that end an exchange, in order.
fn answers(draft: &Draft<'_>) -> Vec<Seq> {
    let mut answers = Vec::new();
    let mut last = None;
    for (_, message) in context::own(draft.state) {
        match message {
            Message::User { .. } => answers.extend(last.take()),
            Message::Assistant { seq, .. } => last = Some(*seq),
            Message::Result { .. } | Message::Notice { .. } | Message::Prompt { .. } => {}
        }
    }
    answers.extend(last);
    answers
}

pub(super) fn switch(draft: &mut Draft<'_>, of: Option<Seq>, to: SwitchTo, by: Initiator) -> Result<(), Rejection> {
    if draft.state.deleted {
        return Err(Rejection::Deleted);
    }
    draft.needs_quiet("switch")?;
    let visible: BTreeSet<Seq> = context::own(draft.state).filter_map(|(_, message)| context::point(message)).collect();
    let last = draft.state.alternatives.keys().rev().find(|of| visible.contains(of)).copied();
    let Some(of) = of.or(last) else {
        return Err(Rejection::BadInput("no answer of this session has alternatives: regenerate one".into()));
    };
    let Some(alternatives) = draft.state.alternatives.get(&of) else {
        let known: Vec<Seq> = draft.state.alternatives.keys().copied().collect();
        return Err(Rejection::NotFound(if known.is_empty() {
            format!("answer {of} has no alternatives, and no other answer has any: regenerate one first")
        } else {
            format!("answer {of} has no alternatives; {}", list_last("answers with alternatives:", &known))
        }));
    };
    if let Some(run) = context::rolled_back(draft.state, of) {
        return Err(hidden(of, run));
    }
    if context::is_compacted(draft.state, of) {
        return Err(compacted(of));
    }
    let active = alternatives.active;
    let to = resolve_alternative(alternatives, to)?;
    if to != active {
        draft.emit(Record::AlternativeSwitched { of, to, by });
    }
    draft.reply(Reply::Switched { of, to });
    Ok(())
}

fn compacted(of: Seq) -> Rejection {
    Rejection::BadInput(format!(
        "answer {of} is hidden, because its part of the history was compacted: undo the compaction first, or branch \
         off there"
    ))
}

/// Returns the index of the requested alternative, which must have a text.
fn resolve_alternative(alternatives: &Alternatives, to: SwitchTo) -> Result<u32, Rejection> {
    let (active, last) = (alternatives.active, u32::try_from(alternatives.branches.len()).unwrap_or(u32::MAX));
    let has_text = |to: &u32| *to == 0 || alternatives.text(*to).is_some();
    match to {
        SwitchTo::Previous => Ok((0..active).rev().find(has_text).unwrap_or(active)),
        SwitchTo::Next => Ok((active..=last).skip(1).find(has_text).unwrap_or(active)),
        SwitchTo::Index(to) if to > last => {
            Err(Rejection::BadInput(format!("unknown alternative {to}: use 0, the original, to {last}")))
        }
        SwitchTo::Index(to) if has_text(&to) => Ok(to),
        SwitchTo::Index(to) => {
            Err(Rejection::BadInput(format!("alternative {to} has no answer: its run has not completed")))
        }
    }
}

impl Draft<'_> {
    fn needs_quiet(&self, command: &'static str) -> Result<(), Rejection> {
        match self.run() {
            Some(_) => Err(Rejection::Working { command, why: "a run is in flight: wait for its end, or cancel it" }),
            None => Ok(()),
        }
    }

    /// Returns the first run of an alternative: owned by a person, and queued for a slot.
    fn first_run(&self, created: &SessionCreated, input: &InputAccepted) -> RunOpened {
        let limits = created.limits.body.as_ref().unwrap_or(&self.state.limits);
        RunOpened {
            run: RunNo(1),
            owner: input.as_owner.clone(),
            inputs: vec![input.id],
            mode: Mode::Background,
            max_turns: input.turns.unwrap_or_else(|| self.state.allowance()).min(limits.turns),
            base_turns: 0,
            deadline_ms: None,
            wall_cap_at: limits.wall_ms.map(|ms| time_after(self.clock.wall_ms, ms)),
            on_restart: created.on_restart,
            slot: true,
        }
    }

    /// Takes the notices of a quiet session. Selects a completed alternative if the original is still the last message.
    pub(super) fn take_notices_when_quiet(&mut self) {
        if self.state.alternatives.is_empty() {
            return self.take_notices();
        }
        // Later runs of the branch answer other messages.
        let first = |row: &&Notice| row.run == Some(RunNo(1));
        let ended: Vec<_> = self.state.arrived.iter().filter(first).map(|row| row.child).collect();
        self.take_notices();
        if self.state.deleted {
            return;
        }
        for child in ended {
            let found = self.state.alternatives.iter().find_map(|(of, alternatives)| {
                let at = alternatives.branches.iter().position(|branch| branch.child == child)?;
                let to = u32::try_from(at.saturating_add(1)).ok()?;
                alternatives.text(to)?;
                let by = alternatives.branches.get(at)?.by.clone();
                Some((*of, to, by, alternatives.active))
            });
            if let Some((of, to, by, active)) = found
                && active != to
                && self.is_last_answer(of)
            {
                self.emit(Record::AlternativeSwitched { of, to, by });
            }
        }
    }

    /// Returns whether answer `of` is the last message, tool results and notices aside.
    fn is_last_answer(&self, of: Seq) -> bool {
        let is_answer = |(_, message): (usize, &Message)| match message {
            Message::User { .. } => Some(false),
            Message::Assistant { seq, .. } => Some(*seq == of),
            Message::Result { .. } | Message::Notice { .. } | Message::Prompt { .. } => None,
        };
        context::own(self.state).rev().find_map(is_answer).unwrap_or(false)
    }
}
