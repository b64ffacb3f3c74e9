//! Births: what a session is born with, from its manifest and from the call that asks for it.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use subtend_agents::manifest::Manifest;
use subtend_agents::profile::Reader;
use subtend_agents::prompt::{self, Assembled, FileText, Parts};
use subtend_session::authority::Authority;
use subtend_session::call::{ToolEffect, ToolErrorKind};
use subtend_session::command::Refusal;
use subtend_session::dialect::Dialect;
use subtend_session::ids::{Interned, Short, Text};
use subtend_session::limits::Limits;
use subtend_session::message::ToolSpec;
use subtend_session::place::{Place, Source};
use subtend_session::record::SessionCreated;
use subtend_session::state::State;
use subtend_tools::dialect::StartRequest;

use crate::spawn::agents::Agents;
use crate::spawn::caches::Template;
use crate::spawn::profiles::Caller;
use crate::spawn::tool_set::{ToolSet, narrowed, whitelist};
use crate::values::answering::{agent_of, model_of};

/// Bytes of a name that is no tool's, as records keep it.
const SHOWN: usize = 64;

/// A child that is to be born.
pub(crate) struct ChildSpec {
    /// Its birth record, but for what `decide` settles.
    pub(crate) created: SessionCreated,
    /// Its first message.
    pub(crate) first: Text,
    /// Tools that the call wanted described to it and that it is not offered.
    pub(crate) skipped: Vec<Text>,
    /// What was left out of its prompt, and why.
    pub(crate) warnings: Vec<Text>,
}

impl ChildSpec {
    /// One that is told `prompt` and nothing else.
    fn told(created: SessionCreated, prompt: &Text) -> Self {
        Self { created, first: Arc::clone(prompt), skipped: Vec::new(), warnings: Vec::new() }
    }
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

impl Agents {
    /// The birth template of sessions of `agent` whose calls come from `source`.
    pub(crate) fn template(
        &self,
        agent: &Text,
        inherited_model: &Text,
        source: Source,
    ) -> Result<Arc<Template>, UnknownAgent> {
        let attended = self.approvals.attended();
        let key = (Arc::clone(agent), Arc::clone(inherited_model), source, attended);
        let mut births = self.offers.births.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(template) = births.get(&key) {
            return Ok(Arc::clone(template));
        }
        let unknown = || UnknownAgent {
            name: Arc::clone(agent),
            known: self.catalog.all().map(|manifest| &*manifest.name).collect::<Vec<_>>().join(", "),
        };
        let manifest = self.catalog.get(agent).ok_or_else(unknown)?;
        let dialects = self.dialects.offered();
        let authority = self.policy.body.as_ref().map(|policy| policy.meet(&manifest.authority()));
        let authority = authority.unwrap_or_else(Authority::deny_all);
        let (agent_name, only) = (&manifest.name, manifest.tools.as_ref());
        let caller = Caller { agent: agent_name, authority: &authority, only, attended };
        let system = self.assembled(Parts::of_agent(manifest), manifest, caller, (dialects, source)).system;
        let created = SessionCreated {
            place: Place::Root,
            short: Short("".into()),
            agent: Arc::clone(agent),
            agent_hash: manifest.hash(),
            model: self.model_name(manifest, inherited_model),
            system: Interned::new(system).map_err(|_| unknown())?,
            ceiling: self.policy.clone(),
            limits: self.limits.clone(),
            workspace: Arc::clone(&self.workspace_name),
            inspectable: manifest.inspectable,
            on_restart: manifest.on_restart,
            caller_line: manifest.caller,
            dialects: names(dialects),
            tools: None,
            returns: false,
            joins: false,
            rolls_back: false,
            in_full: None,
            source,
            task: false,
            title: None,
            inherited: Default::default(),
            metadata: None,
            servers: Vec::new(),
            imported: None,
        };
        let template = Arc::new(Template {
            created,
            manifest: Arc::new(manifest.authority()),
            turns: manifest.turns.unwrap_or(self.limits_body().turns),
            own_turns: manifest.turns,
            detached: manifest.detached,
        });
        births.insert(key, Arc::clone(&template));
        Ok(template)
    }

    /// Whether a session whose calls come from `source` is shown the tools of `dialect` (B10).
    fn shows(&self, dialect: Dialect, source: Source) -> bool {
        self.source(source) == Source::Internal || !dialect.is_internal_only()
    }

    /// What `source` counts as: the host may lift what MCP clients are refused (K24).
    pub(crate) fn source(&self, source: Source) -> Source {
        if self.options.mcp_internal { Source::Internal } else { source }
    }

    /// What the session `of` of `manifest` is told that is offered `dialects`, as far as it may use them.
    fn assembled(
        &self,
        parts: Parts,
        manifest: &Manifest,
        of: Caller<'_>,
        (dialects, source): (&[Dialect], Source),
    ) -> Assembled {
        let mut usable = self.dialects.offered_to(manifest, of.authority, &self.catalog, of.attended);
        usable.retain(|dialect| dialects.contains(dialect) && self.shows(*dialect, source));
        prompt::assemble(&parts.offering(&usable, || self.named_profiles(of)))
    }

    /// Whether nothing that an agent may use changes anything.
    fn only_reads(&self, manifest: &Manifest) -> bool {
        let offered = self.tools.offered(&manifest.authority(), manifest.tools.as_deref(), true);
        let effect = |spec: &ToolSpec| self.tools.get(&spec.name).map(|tool| tool.effect());
        offered.iter().all(|spec| effect(spec) == Some(ToolEffect::ReadOnly))
    }

    /// The birth of a child that a call asks for, with the files that `read` gives.
    pub(crate) fn child_spec(
        &self,
        state: &State,
        offer: &ToolSet,
        asked: &StartRequest,
        template: &Template,
        read: Reader<'_>,
    ) -> Result<ChildSpec, Refusal> {
        let mut created = template.created.clone();
        created.limits = state.created.limits.clone();
        created.limits.body = Some(Arc::clone(&state.limits));
        if let Some(cap) = asked.output_tokens {
            created.limits = capped(&state.limits, cap.get())?;
        }
        created.workspace = Arc::clone(&state.created.workspace);
        created.metadata = asked.metadata.clone();
        let dialects: &[Dialect] = if asked.dialect.nests() { &offer.opens.dialects } else { &[] };
        // Those of its parent are among the host's, which the template names.
        created.dialects.retain(|name| dialects.iter().any(|dialect| *dialect.name() == **name));
        created.returns = asked.dialect == Dialect::Minion;
        let template_of = asked.template.as_ref().and_then(|name| self.dialects.templates.get(name));
        let rolls_back = template_of.and_then(|template| template.rollback_on_error);
        created.rolls_back = created.returns && rolls_back.unwrap_or(self.dialects.minion.rollback_on_error);
        created.joins = asked.dialect == Dialect::Spawn;
        // A list that its caller has binds all that is below.
        created.tools = state.tools.clone();
        created.title = asked.title.clone();
        if asked.dialect == Dialect::Task {
            return Ok(ChildSpec::told(created, &asked.prompt));
        }
        // Its first message may begin with files.
        created.title = created.title.or_else(|| asked.label.clone());
        created.tools = whitelist(asked.tools.as_ref(), offer.only.as_ref());
        self.choose_model(state, asked, &mut created);
        let manifest = self.catalog.get(&asked.agent);
        let Some(manifest) = manifest else { return Ok(ChildSpec::told(created, &asked.prompt)) };
        let authority = offer.authority.meet(&template.manifest);
        let only = narrowed(created.tools.as_ref(), manifest.tools.as_ref());
        let (tools, skipped) = self.prefetched(asked, offer, only.as_deref(), &authority, &mut created);
        let parts = Parts {
            tools,
            task: Some(Arc::clone(&asked.prompt)),
            discovers: created.in_full.is_some(),
            ..self.parts(state, asked, manifest, read)
        };
        let of = Caller { agent: &asked.agent, authority: &authority, only: only.as_ref(), attended: offer.attended };
        let assembled = self.assembled(parts, manifest, of, (dialects, created.source));
        let warnings = assembled.warnings.into_iter().map(Text::from).collect();
        created.system = Interned::new(assembled.system).map_err(|error| Refusal {
            kind: ToolErrorKind::Failed,
            message: format!("its prompt cannot be written down: {error}").into(),
        })?;
        let first = assembled.first.unwrap_or_else(|| Arc::clone(&asked.prompt));
        Ok(ChildSpec { created, first, skipped, warnings })
    }

    fn parts(&self, state: &State, asked: &StartRequest, manifest: &Manifest, read: Reader<'_>) -> Parts {
        let own = match asked.dialect {
            Dialect::Spawn => {
                let profile = asked.profile.as_ref().and_then(|name| self.dialects.profiles.get(name));
                let named = profile.and_then(|profile| profile.agent.as_ref()).map(|_| manifest);
                let caller = self.catalog.get(agent_of(state)).map_or(manifest, Arc::as_ref);
                Parts::of_spawn(profile.map(Arc::as_ref), caller, named, read)
            }
            Dialect::Minion => {
                let (body, _) = self.minions(state);
                let agents = Parts::of_agent(manifest);
                Parts { body: asked.body.clone().or(body).or_else(|| agents.body.clone()), ..agents }
            }
            Dialect::Task | Dialect::Subagent | Dialect::SpawnTask => Parts::of_agent(manifest),
        };
        Parts {
            parameter: asked.system.clone(),
            started_by: Some(asked.dialect),
            only_reads: asked.dialect == Dialect::SpawnTask && self.only_reads(manifest),
            context: asked.context.clone(),
            files: asked.files.iter().map(|file| FileText::read(file, read)).collect(),
            ..own
        }
    }

    /// The tools whose schemas the call wants in the first message, and those of them that the child is not offered. Where it may
    /// use many, it is shown these in full and finds the others (B8).
    fn prefetched(
        &self,
        asked: &StartRequest,
        offer: &ToolSet,
        only: Option<&[Text]>,
        authority: &Authority,
        created: &mut SessionCreated,
    ) -> (Vec<ToolSpec>, Vec<Text>) {
        if asked.dialect != Dialect::Subagent {
            return (Vec::new(), Vec::new());
        }
        let offered = self.tools.offered(authority, only, offer.attended);
        let names: BTreeSet<&Text> = asked.prefetch.iter().flat_map(|(_, names)| names).collect();
        let (found, lacking): (Vec<&Text>, Vec<&Text>) =
            names.into_iter().partition(|name| offered.iter().any(|tool| tool.name == **name));
        let many = offered.len() > usize::try_from(self.dialects.subagent.tools_in_full).unwrap_or(usize::MAX);
        created.in_full = many.then(|| found.iter().map(|name| Arc::clone(name)).collect());
        let tools = offered.into_iter().filter(|tool| found.contains(&&tool.name)).collect();
        // A name is a model's word, and may be as long as it likes.
        let shown = |name: &Text| name.get(..name.floor_char_boundary(SHOWN)).unwrap_or_default().into();
        (tools, lacking.into_iter().map(shown).collect())
    }

    fn choose_model(&self, state: &State, asked: &StartRequest, created: &mut SessionCreated) {
        let profile = asked.profile.as_ref().and_then(|name| self.dialects.profiles.get(name));
        if let Some(pool) = profile.and_then(|profile| profile.pool.as_ref()) {
            let manifest = Manifest { pool: Some(Arc::clone(pool)), ..nobody() };
            created.model = self.model_name(&manifest, model_of(state));
        }
        if asked.dialect == Dialect::Minion {
            let template = asked.template.as_ref().and_then(|name| self.dialects.templates.get(name));
            let named = template.and_then(|template| template.model.clone());
            created.model = named.unwrap_or_else(|| self.minions(state).1);
        }
    }
}

fn nobody() -> Manifest {
    Manifest::new("", subtend_agents::manifest::AgentMode::Subagent, "")
}

/// Returns `limits` with a cap on output tokens that only falls (B18).
fn capped(limits: &Limits, cap: u64) -> Result<Interned<Limits>, Refusal> {
    let output_tokens = Some(limits.output_tokens.map_or(cap, |above| above.min(cap)));
    Interned::new(Arc::new(Limits { output_tokens, ..limits.clone() })).map_err(|error| Refusal {
        kind: ToolErrorKind::Failed,
        message: format!("its limits cannot be recorded: {error}").into(),
    })
}

/// The names of dialects, as a birth records them.
fn names(dialects: &[Dialect]) -> Vec<Text> {
    dialects.iter().map(|dialect| dialect.name().into()).collect()
}
