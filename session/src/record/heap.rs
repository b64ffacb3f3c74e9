//! The bytes that a record keeps in memory besides its own.

use super::{
    AgentOverride, AttemptDiscarded, BranchCreated, CallFinished, ChildSpawned, Compacted, CompactionFailed,
    ContinueAsked, Hold, InputAccepted, MetadataSet, Notice, NoticeTaken, QueueChange, Record, RunEnded, RunOpened,
    SessionCreated, SummarySet, TitleSet, ToolCall, TurnAnswered,
};
use crate::authority::{Access, Authority};
use crate::call::CallKind;
use crate::ids::{Hash, Text};
use crate::message::Message;
use crate::outcome::{FailKind, Outcome};
use crate::place::{Owner, Service};
use crate::values::json_bytes;

/// Bytes of the allocation of a text without its content. Counted for texts in lists: a list may have a million.
const ALLOCATION: u64 = 32;
/// Bytes of a permission rule without its patterns.
const RULE: u64 = 128;

impl Record {
    /// Estimates the bytes of the record's texts and lists, with texts as JSON, which journals and responses contain.
    ///
    /// Bodies that sessions share are left out ([`Record::bodies`]), and so is the size of the record itself.
    pub fn heap_bytes(&self) -> u64 {
        // Every field with a text or a list counts: an import refuses sessions by this number.
        match self {
            Self::SessionCreated(created) => created.heap_bytes(),
            Self::RunOpened(opened) => {
                let RunOpened { owner, inputs, .. } = &**opened;
                of_owner(owner).saturating_add(of_list(inputs))
            }
            Self::InputAccepted(input) => input.heap_bytes(),
            Self::InputsTaken { ids, .. } | Self::QueueChanged { change: QueueChange::Removed(ids), .. } => {
                of_list(ids)
            }
            Self::TurnStarted { model, .. } => json_bytes(model),
            Self::AttemptDiscarded(discarded) => {
                let AttemptDiscarded { message, model, awaits, .. } = &**discarded;
                sum([json_bytes(message), of(model), of(awaits)])
            }
            Self::TurnAnswered(answered) => answered.heap_bytes(),
            Self::CallStarted { kind, access, .. } => {
                let access = access.as_ref().map_or(0, |access| {
                    let Access { action, resource } = &**access;
                    json_bytes(action).saturating_add(json_bytes(resource))
                });
                of_kind(kind).saturating_add(access)
            }
            Self::CallFinished(finished) => {
                let CallFinished { content, .. } = &**finished;
                json_bytes(content)
            }
            Self::ChildSpawned(spawned) => {
                let ChildSpawned { short, agent, label, skipped, warnings, .. } = &**spawned;
                sum([json_bytes(&short.0), json_bytes(agent), of(label), of_texts(skipped), of_texts(warnings)])
            }
            Self::ContinueAsked(request) => {
                let ContinueAsked { input, tools, .. } = &**request;
                json_bytes(input).saturating_add(of_names(tools))
            }
            Self::RunHeld { why, .. } => match &**why {
                Hold::Closing { outcome, .. } => of_outcome(outcome),
                Hold::Interrupted { .. } | Hold::OutOfTurns => 0,
            },
            Self::RunEnded(ended) => {
                let RunEnded { outcome, text, gave_up, .. } = &**ended;
                sum([of_outcome(outcome), of(text), of(gave_up)])
            }
            Self::NoticeTaken(taken) => {
                let NoticeTaken { items, .. } = &**taken;
                let texts = items
                    .iter()
                    .map(|Notice { outcome, prefix, .. }| sum([of_outcome(outcome), json_bytes(prefix), ALLOCATION]));
                texts.fold(of_list(items), u64::saturating_add)
            }
            Self::AskOpened { action, resource, .. } => json_bytes(action).saturating_add(json_bytes(resource)),
            Self::BranchCreated(created) => {
                let BranchCreated { short, agent, .. } = &**created;
                json_bytes(&short.0).saturating_add(json_bytes(agent))
            }
            Self::TitleSet(set) => {
                let TitleSet { title, .. } = &**set;
                json_bytes(title)
            }
            Self::SummarySet(set) => {
                let SummarySet { text, .. } = &**set;
                json_bytes(text)
            }
            Self::MetadataSet(set) => {
                let MetadataSet { metadata, .. } = &**set;
                json_bytes(metadata)
            }
            Self::Compacted(compacted) => {
                let Compacted { text, verbatim, .. } = &**compacted;
                json_bytes(text).saturating_add(of_list(verbatim))
            }
            Self::CompactionFailed(failed) => {
                let CompactionFailed { message, .. } = &**failed;
                json_bytes(message)
            }
            Self::RunStarted { .. }
            | Self::QueueChanged { change: QueueChange::Cleared, .. }
            | Self::ContinueRefused { .. }
            | Self::CancelAsked { .. }
            | Self::RunParked { .. }
            | Self::RunResumed { .. }
            | Self::AskAnswered { .. }
            | Self::AlternativeSwitched { .. }
            | Self::RolledBack { .. }
            | Self::CompactionUndone { .. }
            | Self::SessionDeleted { .. }
            | Self::SessionClosed { .. }
            | Self::SessionReopened { .. } => 0,
        }
    }
}

impl Record {
    /// Returns the bodies that the record has in memory, with their estimated bytes. Records share them by hash.
    pub fn bodies(&self) -> impl Iterator<Item = (Hash, u64)> {
        let created = if let Self::SessionCreated(created) = self { Some(&**created) } else { None };
        created.into_iter().flat_map(|SessionCreated { system, ceiling, limits, .. }| {
            let system = system.body.as_ref().map(|body| (system.hash, json_bytes(body)));
            let ceiling = ceiling.body.as_ref().map(|body| (ceiling.hash, of_rules(body)));
            let limits = limits.body.as_ref().map(|body| (limits.hash, size_of_val(&**body) as u64));
            system.into_iter().chain(ceiling).chain(limits)
        })
    }

    pub fn body_bytes(&self) -> u64 {
        self.bodies().map(|(_, bytes)| bytes).fold(0, u64::saturating_add)
    }
}

impl SessionCreated {
    pub(crate) fn heap_bytes(&self) -> u64 {
        let Self { short, agent, model, workspace, dialects, tools, in_full, title, metadata, servers, .. } = self;
        let texts = [json_bytes(&short.0), json_bytes(agent), json_bytes(model), json_bytes(workspace)];
        let lists = [of_texts(dialects), of_names(tools), of_names(in_full), of_texts(servers)];
        let messages = self.inherited.iter().map(|message| {
            if let Message::Assistant { text, reasoning, calls, .. } = message {
                sum([of(text), of(reasoning), of_calls(calls)])
            } else {
                message.json_bytes()
            }
        });
        let own = [of(title), of(metadata), of_list(&self.inherited), self.imported.as_ref().map_or(0, of_rules)];
        messages.chain(texts).chain(lists).chain(own).fold(0, u64::saturating_add)
    }
}

impl InputAccepted {
    fn heap_bytes(&self) -> u64 {
        let Self { key, agent_override, tools, as_owner, .. } = self;
        let other = agent_override.as_ref().map_or(0, |other| {
            let AgentOverride { agent, model, .. } = &**other;
            json_bytes(agent).saturating_add(json_bytes(model))
        });
        sum([self.bytes(), of(key), other, of_names(tools), of_owner(as_owner)])
    }
}

impl TurnAnswered {
    fn heap_bytes(&self) -> u64 {
        let Self { text, reasoning, calls, model, answers, .. } = self;
        sum([of(text), of(reasoning), of(model), of_list(answers), of_calls(calls)])
    }
}

fn of_kind(kind: &CallKind) -> u64 {
    match kind {
        CallKind::Await { runs, .. } => of_list(runs),
        CallKind::Propose(other) => {
            let AgentOverride { agent, model, system, .. } = &**other;
            sum([json_bytes(agent), json_bytes(model), json_bytes(system)])
        }
        CallKind::Local(_)
        | CallKind::Child(_)
        | CallKind::Continue(_)
        | CallKind::Check { .. }
        | CallKind::Cancel { .. }
        | CallKind::Return
        | CallKind::Invalid(_) => 0,
    }
}

fn of_outcome(outcome: &Outcome) -> u64 {
    match outcome {
        Outcome::Failed { kind } => match kind {
            FailKind::Model { message, .. }
            | FailKind::Panic { message, .. }
            | FailKind::Unreadable { message }
            | FailKind::Workspace { message }
            | FailKind::Internal { message } => json_bytes(message),
            FailKind::Truncated
            | FailKind::Empty
            | FailKind::Refused
            | FailKind::AgentMissing
            | FailKind::NotContinued { .. }
            | FailKind::Authority => 0,
        },
        Outcome::RestartsExhausted { command } => of(command),
        Outcome::Completed
        | Outcome::Cancelled { .. }
        | Outcome::Interrupted { .. }
        | Outcome::TimedOut { .. }
        | Outcome::OutOfTurns
        | Outcome::OutOfBudget { .. }
        | Outcome::Lost => 0,
    }
}

fn of_owner(owner: &Owner) -> u64 {
    if let Owner::Host(Service::Custom(name)) = owner { json_bytes(name) } else { 0 }
}

fn of_rules(permissions: &Authority) -> u64 {
    (permissions.bytes() as u64).saturating_add(permissions.rules().saturating_mul(RULE))
}

fn of_calls(calls: &[ToolCall]) -> u64 {
    let texts = calls.iter().flat_map(|call| [&call.provider_id, &call.tool, &call.args]);
    texts.map(|text| json_bytes(text).saturating_add(ALLOCATION)).fold(of_list(calls), u64::saturating_add)
}

fn of_texts(texts: &[Text]) -> u64 {
    texts.iter().map(|text| json_bytes(text).saturating_add(ALLOCATION)).fold(of_list(texts), u64::saturating_add)
}

fn of_names(names: &Option<Vec<Text>>) -> u64 {
    names.as_deref().map_or(0, of_texts)
}

fn of(text: &Option<Text>) -> u64 {
    text.as_ref().map_or(0, |text| json_bytes(text))
}

fn of_list<T>(list: &[T]) -> u64 {
    size_of_val(list) as u64
}

fn sum<const N: usize>(parts: [u64; N]) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}
