//! What a session is offered: its tools under its authority, and the agents that it may spawn.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use subtend_agents::manifest::Manifest;
use subtend_session::authority::{Access, Authority, Verdict};
use subtend_session::call::{CallKind, Invalid};
use subtend_session::command::{Answered, AskedCall};
use subtend_session::ids::{Hash, Interned, Short, Text};
use subtend_session::message::ToolSpec;
use subtend_session::place::Place;
use subtend_session::record::SessionCreated;
use subtend_session::settings::Settings;
use subtend_session::state::State;
use subtend_tools::dialect::manage;
use subtend_tools::dialect::task::{self, Request};
use subtend_tools::tool::Tool;

use crate::above::Lines;
use crate::builder::pool_name;
use crate::hub::Hub;
use crate::names;
use crate::overrides::agent_of;

/// The dialect that every session with spawnable agents is offered.
pub(crate) const TASK: &str = "task";

/// What sessions of one agent under one ceiling are offered.
pub(crate) struct Offer {
    /// Tools, as the model sees them.
    pub(crate) specs: Arc<[ToolSpec]>,
    /// The agent whose offer it is.
    pub(crate) agent: Text,
    /// Whether anybody was there to be asked: else what needs a person's word is not shown to the model.
    pub(crate) attended: bool,
    /// The authority at use: the ceiling met with the present policy and manifest, and with those above (P-4).
    pub(crate) authority: Arc<Authority>,
    /// The whitelist of the session or its manifest.
    pub(crate) only: Option<Vec<Text>>,
    /// Agents that may be spawned, with their descriptions; those that need a person's word among them.
    pub(crate) agents: Vec<(Text, Text)>,
    /// Whether the `task` tool is among the tools.
    pub(crate) spawns: bool,
    /// How the agent's model is to answer, by the present manifest.
    pub(crate) settings: Settings,
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    agent: Text,
    ceiling: Hash,
    only: Option<Vec<Text>>,
    attended: bool,
    /// Agents of the sessions above.
    above: Arc<[Text]>,
}

/// Offers and birth templates, made once per distinct kind of session.
#[derive(Default)]
pub(crate) struct Offers {
    made: Mutex<HashMap<Key, Arc<Offer>>>,
    births: Mutex<HashMap<(Text, Text), Arc<Template>>>,
    pub(crate) lines: Lines,
}

/// What all children of one agent have in common.
pub(crate) struct Template {
    /// Birth record but for what `decide` settles.
    pub(crate) created: SessionCreated,
    /// The manifest's own authority.
    pub(crate) manifest: Arc<Authority>,
    /// Turn allowance.
    pub(crate) turns: u32,
    /// Whether nobody owns its runs.
    pub(crate) detached: bool,
}

/// An agent that this host does not know.
#[derive(Debug, thiserror::Error)]
#[error("there is no agent {name:?}; there are: {known}")]
pub(crate) struct UnknownAgent {
    /// The name.
    pub(crate) name: Text,
    /// The agents that there are, joined.
    pub(crate) known: String,
}

impl Hub {
    /// What `state`'s session is offered.
    pub(crate) fn offer(&self, state: &State) -> Arc<Offer> {
        let agent = agent_of(state);
        let manifest = self.catalog.get(agent);
        let only = narrowed(state.created.tools.as_ref(), manifest.and_then(|manifest| manifest.tools.as_ref()));
        let attended = self.approvals.attended();
        let above = self.agents_above(state);
        let key = Key { agent: Arc::clone(agent), ceiling: state.created.ceiling.hash, only, attended, above };
        let mut made = self.offers.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(offer) = made.get(&key) {
            return Arc::clone(offer);
        }
        let offer = Arc::new(self.make_offer(state, &key));
        made.insert(key, Arc::clone(&offer));
        offer
    }

    fn make_offer(&self, state: &State, key: &Key) -> Offer {
        let Key { agent, only, attended, above, .. } = key;
        let manifest = self.catalog.get(agent);
        let above: Vec<Authority> = above.iter().map(|agent| self.present(agent)).collect();
        let policy = self.policy.body.as_deref().cloned().unwrap_or_else(Authority::deny_all);
        let authority = Arc::new(state.ceiling.at_use(&policy, &self.present(agent), &above));
        let mut specs = self.tools.offered(&authority, only.as_deref(), *attended);
        let may_spawn = only.as_ref().is_none_or(|only| only.iter().any(|name| &**name == TASK));
        let (mut agents, mut shown) = (Vec::new(), Vec::new());
        for manifest in self.catalog.spawnable().filter(|_| may_spawn) {
            let entry = (Arc::clone(&manifest.name), Arc::clone(&manifest.description));
            let verdict = authority.verdict(&spawning(&manifest.name));
            if verdict == Verdict::Allow || (verdict == Verdict::Ask && *attended) {
                shown.push(entry.clone());
            }
            if verdict > Verdict::Deny {
                agents.push(entry);
            }
        }
        let spawns = !agents.is_empty();
        if !shown.is_empty() {
            specs.push(task::spec(&shown));
            specs.extend(manage::specs());
        }
        let settings = manifest.map(|manifest| manifest.settings).unwrap_or_default();
        let (agent, only, attended) = (Arc::clone(agent), only.clone(), *attended);
        Offer { specs: specs.into(), agent, attended, authority, only, agents, spawns, settings }
    }

    /// The model that sessions of `manifest` name: its pool, its model, or the one that they inherit.
    pub(crate) fn model_name(&self, manifest: &Manifest, inherited: &Text) -> Text {
        let Some(pool) = &manifest.pool else {
            return manifest.model.clone().unwrap_or_else(|| Arc::clone(inherited));
        };
        let name = pool_name(pool);
        if self.models.has_pool(&name) {
            return name;
        }
        tracing::warn!(agent = %manifest.name, %pool, model = %inherited, "there is no such pool: its caller's model is used");
        Arc::clone(inherited)
    }

    /// The birth template of children of `agent`.
    pub(crate) fn template(&self, agent: &Text, inherited_model: &Text) -> Result<Arc<Template>, UnknownAgent> {
        let key = (Arc::clone(agent), Arc::clone(inherited_model));
        let mut births = self.offers.births.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(template) = births.get(&key) {
            return Ok(Arc::clone(template));
        }
        let unknown = || UnknownAgent {
            name: Arc::clone(agent),
            known: self.catalog.all().map(|manifest| &*manifest.name).collect::<Vec<_>>().join(", "),
        };
        let manifest = self.catalog.get(agent).ok_or_else(unknown)?;
        let created = SessionCreated {
            place: Place::Root,
            short: Short("".into()),
            agent: Arc::clone(agent),
            agent_hash: manifest.hash(),
            model: self.model_name(manifest, inherited_model),
            system: Interned::new(manifest.system()).map_err(|_| unknown())?,
            ceiling: self.policy.clone(),
            limits: self.limits.clone(),
            workspace: self.workspace_name(),
            inspectable: manifest.inspectable,
            on_restart: manifest.on_restart,
            caller_line: manifest.caller,
            dialects: vec![TASK.into()],
            tools: None,
            title: None,
            inherited: Default::default(),
            metadata: None,
        };
        let template = Arc::new(Template {
            created,
            manifest: Arc::new(manifest.authority()),
            turns: manifest.turns.unwrap_or(self.limits_body().turns),
            detached: manifest.detached,
        });
        births.insert(key, Arc::clone(&template));
        Ok(template)
    }
}

/// What a call turns out to be, with what is needed to start it.
pub(crate) struct Classified {
    /// Its kind.
    pub(crate) kind: CallKind,
    /// What the model is told when it is invalid.
    pub(crate) note: Option<Text>,
    /// What its tool needs to be allowed, for local ones.
    pub(crate) access: Option<Box<Access>>,
    /// Whether a person is to be asked first.
    pub(crate) ask: bool,
    /// The tool and its arguments, for local ones.
    pub(crate) ready: Option<(Arc<dyn Tool>, Value)>,
}

impl Classified {
    /// A call of the tree's own tools, or what the model is told about its arguments.
    fn tree(kind: Result<CallKind, Text>) -> Self {
        let (kind, note) = match kind {
            Ok(kind) => (kind, None),
            Err(told) => (CallKind::Invalid(Invalid::BadArgs), Some(told)),
        };
        Self { kind, note, access: None, ask: false, ready: None }
    }
}

impl Hub {
    /// Settles what a call is, where a person allowed `always` for good. Deterministic in these: a later activation finds the
    /// same, whether anybody is there to be asked or not.
    pub(crate) fn classify(&self, offer: &Offer, always: &BTreeSet<Access>, tool: &str, args: &str) -> Classified {
        use subtend_tools::registry::Classified as Found;
        if offer.spawns && tool == TASK {
            return match task::parse(args, &offer.agents) {
                Ok(Request::Start(start)) => {
                    let access = spawning(&start.agent);
                    // What is allowed needs no record: a birth has its own.
                    let ask = offer.authority.verdict(&access) != Verdict::Allow && !always.contains(&access);
                    let access = ask.then(|| Box::new(access));
                    Classified { access, ask, ..Classified::tree(Ok(CallKind::Child(start.mode))) }
                }
                Ok(Request::Continue(again)) => Classified::tree(Ok(CallKind::Continue(again.mode))),
                Err(error) => Classified::tree(Err(error.message.into())),
            };
        }
        if offer.spawns
            && let Some(kind) = names::unnamed(tool, args)
        {
            return Classified::tree(kind);
        }
        let granted = |access: &Access| always.contains(access);
        match self.tools.classify(tool, args, &offer.authority, offer.only.as_deref(), true, &granted) {
            Found::Ready { tool, args, kind, access, ask } => {
                Classified { kind, note: None, access: access.map(Box::new), ask, ready: Some((tool, args)) }
            }
            Found::Invalid { kind, message } => {
                Classified { kind: CallKind::Invalid(kind), note: Some(message), access: None, ask: false, ready: None }
            }
        }
    }

    /// Takes back what a person need not be asked for: it was allowed for good in `state`'s session, which the one who
    /// classified the calls did not know.
    pub(crate) fn settle_words(&self, state: &State, offer: &Offer, answer: &mut Answered) {
        if state.always.is_empty() {
            return;
        }
        // Those that let a task go on are settled by who knows the tasks.
        let asks = |call: &&mut AskedCall| call.ask && !matches!(call.kind, CallKind::Continue(_));
        for call in answer.calls.iter_mut().filter(asks) {
            let found = self.classify(offer, &state.always, &call.asked.tool, &call.asked.args);
            (call.access, call.ask) = (found.access, found.ask);
        }
    }
}

/// What a call that starts `agent` does.
pub(crate) fn spawning(agent: &Text) -> Access {
    Access { action: format!("task:{agent}").into(), resource: ".".into() }
}

/// The tools that both lists have; no list has all.
fn narrowed(session: Option<&Vec<Text>>, manifest: Option<&Vec<Text>>) -> Option<Vec<Text>> {
    match (session, manifest) {
        (Some(session), Some(manifest)) => {
            Some(session.iter().filter(|name| manifest.contains(name)).map(Arc::clone).collect())
        }
        (only, None) | (None, only) => only.cloned(),
    }
}
