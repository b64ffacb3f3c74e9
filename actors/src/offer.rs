//! What a session is offered: its tools under its authority, and the agents that it may spawn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use subtend_agents::manifest::Manifest;
use subtend_session::authority::{Access, Authority, Verdict};
use subtend_session::call::{CallKind, Invalid};
use subtend_session::ids::{Hash, Interned, Short, Text};
use subtend_session::message::ToolSpec;
use subtend_session::place::Place;
use subtend_session::record::SessionCreated;
use subtend_session::settings::Settings;
use subtend_session::state::State;
use subtend_tools::dialect::task;

use crate::builder::pool_name;
use crate::hub::Hub;

/// The dialect that every session with spawnable agents is offered.
pub(crate) const TASK: &str = "task";

/// What sessions of one agent under one ceiling are offered.
pub(crate) struct Offer {
    /// Tools, as the model sees them.
    pub(crate) specs: Arc<[ToolSpec]>,
    /// The authority at use: the ceiling met with the present manifest (P-4).
    pub(crate) authority: Arc<Authority>,
    /// The whitelist of the session or its manifest.
    pub(crate) only: Option<Vec<Text>>,
    /// Agents that may be spawned, with their descriptions.
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
}

/// Offers and birth templates, made once per distinct kind of session.
#[derive(Default)]
pub(crate) struct Offers {
    made: Mutex<HashMap<Key, Arc<Offer>>>,
    births: Mutex<HashMap<(Text, Text), Arc<Template>>>,
}

/// What all children of one agent have in common.
pub(crate) struct Template {
    /// Birth record but for what `decide` settles.
    pub(crate) created: SessionCreated,
    /// The manifest's own authority.
    pub(crate) manifest: Arc<Authority>,
    /// Turn allowance.
    pub(crate) turns: u32,
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
        let manifest = self.catalog.get(&state.created.agent);
        let only = state.created.tools.clone().or_else(|| manifest.and_then(|manifest| manifest.tools.clone()));
        let key = Key { agent: Arc::clone(&state.created.agent), ceiling: state.created.ceiling.hash, only };
        let mut made = self.offers.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(offer) = made.get(&key) {
            return Arc::clone(offer);
        }
        let offer = Arc::new(self.make_offer(state, key.only.clone()));
        made.insert(key, Arc::clone(&offer));
        offer
    }

    fn make_offer(&self, state: &State, only: Option<Vec<Text>>) -> Offer {
        // An agent that the host does not know any more may do nothing at all.
        let present =
            self.catalog.get(&state.created.agent).map_or_else(Authority::deny_all, |manifest| manifest.authority());
        let authority = Arc::new(state.ceiling.meet(&present));
        let mut specs = self.tools.offered(&authority, only.as_deref(), false);
        let may_spawn = only.as_ref().is_none_or(|only| only.iter().any(|name| &**name == TASK));
        let agents: Vec<(Text, Text)> = self
            .catalog
            .spawnable()
            .filter(|manifest| {
                let access = Access { action: format!("task:{}", manifest.name).into(), resource: ".".into() };
                authority.verdict(&access) == Verdict::Allow
            })
            .map(|manifest| (Arc::clone(&manifest.name), Arc::clone(&manifest.description)))
            .collect();
        let spawns = may_spawn && !agents.is_empty();
        if spawns {
            specs.push(task::spec(&agents));
        }
        let settings = self.catalog.get(&state.created.agent).map(|manifest| manifest.settings).unwrap_or_default();
        Offer { specs: specs.into(), authority, only, agents, spawns, settings }
    }

    /// The model that sessions of `manifest` name: its pool, its model, or the one that they inherit.
    fn model_name(&self, manifest: &Manifest, inherited: &Text) -> Text {
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
            on_restart: subtend_session::place::OnRestart::Fail,
            caller_line: manifest.caller,
            dialects: vec![TASK.into()],
            tools: None,
            title: None,
            metadata: None,
        };
        let template = Arc::new(Template {
            created,
            manifest: Arc::new(manifest.authority()),
            turns: manifest.turns.unwrap_or(self.limits_body().turns),
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
    /// The tool and its arguments, for local ones.
    pub(crate) ready: Option<(Arc<dyn subtend_tools::tool::Tool>, serde_json::Value)>,
}

impl Hub {
    /// Settles what a call is. Deterministic in the offer: a later activation finds the same.
    pub(crate) fn classify(&self, offer: &Offer, tool: &str, args: &str) -> Classified {
        use subtend_tools::registry::Classified as Found;
        if tool == TASK && offer.spawns {
            return match task::parse(args, &offer.agents) {
                Ok(request) => Classified { kind: CallKind::Child(request.mode), note: None, ready: None },
                Err(error) => Classified {
                    kind: CallKind::Invalid(Invalid::BadArgs),
                    note: Some(error.message.into()),
                    ready: None,
                },
            };
        }
        match self.tools.classify(tool, args, &offer.authority, offer.only.as_deref(), false) {
            Found::Ready { tool, args, kind } => Classified { kind, note: None, ready: Some((tool, args)) },
            Found::Invalid { kind, message } => {
                Classified { kind: CallKind::Invalid(kind), note: Some(message), ready: None }
            }
        }
    }
}
