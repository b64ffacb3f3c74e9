//! Specs of new sessions, from a manifest and the call that requests the session.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use subtend_agents::instructions::may_read;
use subtend_agents::manifest::Manifest;
use subtend_agents::profile::Reader;
use subtend_agents::prompt::{self, Assembled, FileText, Parts};
use subtend_agents::skill::{self, Skill};
use subtend_session::authority::Authority;
use subtend_session::call::{ToolEffect, ToolErrorKind};
use subtend_session::command::Refusal;
use subtend_session::dialect::Dialect;
use subtend_session::escape::on_one_line;
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
use crate::spawn::tool_set::{ToolSet, intersect_lists, whitelist};
use crate::values::answering::{agent_of, model_of};

/// Maximum bytes of an unknown tool name in records.
const MAX_NAME_BYTES: usize = 64;

pub(crate) struct ChildSpec {
    /// The first record of the child, without the fields that `decide` sets.
    pub(crate) created: SessionCreated,
    pub(crate) first: Text,
    /// Tools whose schemas were requested but that the child is not offered.
    pub(crate) skipped: Vec<Text>,
    /// Omissions from the prompt, each with its reason.
    pub(crate) warnings: Vec<Text>,
}

impl ChildSpec {
    fn new(created: SessionCreated, prompt: &Text) -> Self {
        Self { created, first: Arc::clone(prompt), skipped: Vec::new(), warnings: Vec::new() }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("unknown agent `{name}`; known agents: {known}")]
pub(crate) struct UnknownAgent {
    pub(crate) name: Text,
    pub(crate) known: String,
}

impl Agents {
    /// Returns the template of sessions of `agent` whose calls come from `source`.
    pub(crate) fn template(
        &self,
        agent: &Text,
        inherited_model: &Text,
        source: Source,
    ) -> Result<Arc<Template>, UnknownAgent> {
        let attended = self.approvals.is_attended();
        let key = (Arc::clone(agent), Arc::clone(inherited_model), source, attended);
        let mut templates = self.offers.templates.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(template) = templates.get(&key) {
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
        let parts = Parts::of_agent(manifest).with_instructions(&self.instructions, manifest, &authority);
        let read =
            parts.instructions.iter().filter(|file| file.in_workspace).map(|file| Arc::clone(&file.name)).collect();
        let system = self.assemble_prompt(parts, manifest, caller, (dialects, source)).system;
        let created = SessionCreated {
            place: Place::Root,
            short: Short("".into()),
            agent: Arc::clone(agent),
            agent_hash: manifest.hash(),
            model: self.model_name(manifest, inherited_model),
            system: Interned::new(system).map_err(|_| unknown())?,
            ceiling: self.policy.clone(),
            limits: self.limits.clone(),
            turns: None,
            workspace: Arc::clone(&self.workspace_name),
            worktree: None,
            inspectable: manifest.inspectable,
            on_restart: manifest.on_restart.unwrap_or_default(),
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
            isolation: manifest.isolation,
            on_restart: manifest.on_restart,
            read,
            skills: self.readable_skills(caller, manifest),
        });
        let prompt = template.created.system.body.as_ref().map_or(0, |system| system.len());
        templates.insert(key, &template, prompt);
        Ok(template)
    }

    /// Returns the prompt of a session from `template`, without files and skills that it may not read.
    pub(crate) fn system_under(
        &self,
        template: &Template,
        authority: &Authority,
        only: Option<&Vec<Text>>,
    ) -> Result<Interned<str>, serde_json::Error> {
        let SessionCreated { agent, source, system, .. } = &template.created;
        let caller = Caller { agent, authority, only, attended: self.approvals.is_attended() };
        let is_same = |manifest: &Manifest| {
            let reads = template.read.iter().all(|path| may_read(authority, path));
            reads && self.readable_skills(caller, manifest) == template.skills
        };
        let manifest = self.catalog.get(agent).filter(|manifest| !is_same(manifest));
        let Some(manifest) = manifest else { return Ok(system.clone()) };
        let parts = Parts::of_agent(manifest).with_instructions(&self.instructions, manifest, authority);
        Interned::new(self.assemble_prompt(parts, manifest, caller, (self.dialects.offered(), *source)).system)
    }

    /// Returns the skills that a session may read, none without their tool, and those whose texts its prompt has.
    fn readable_skills(&self, of: Caller<'_>, manifest: &Manifest) -> [Vec<Arc<Skill>>; 2] {
        if self.skills.all().next().is_none() {
            return [Vec::new(), Vec::new()];
        }
        let offered = self.tools.offered(of.authority, of.only.map(Vec::as_slice), of.attended);
        let has = offered.iter().any(|tool| *tool.name == *skill::TOOL);
        let listed = if has { self.skills.under(of.authority, of.attended) } else { Vec::new() };
        [listed, self.skills.preloaded(manifest, of.authority)]
    }

    /// Returns whether a session with calls from `source` is offered the tools of `dialect`.
    fn shows(&self, dialect: Dialect, source: Source) -> bool {
        self.source(source) == Source::Internal || !dialect.is_internal_only()
    }

    /// Returns the effective source. The host may lift the restrictions of MCP clients.
    pub(crate) fn source(&self, source: Source) -> Source {
        if self.options.mcp_internal { Source::Internal } else { source }
    }

    /// Assembles the prompt of a session of `manifest`, with hints about those `dialects` that the session may use.
    fn assemble_prompt(
        &self,
        mut parts: Parts,
        manifest: &Manifest,
        of: Caller<'_>,
        (dialects, source): (&[Dialect], Source),
    ) -> Assembled {
        [parts.skills, parts.preloaded] = self.readable_skills(of, manifest);
        let mut usable = self.dialects.offered_to(manifest, of.authority, &self.catalog, of.attended);
        usable.retain(|dialect| dialects.contains(dialect) && self.shows(*dialect, source));
        prompt::assemble(&parts.offering(&usable, || self.named_profiles(of)))
    }

    /// Returns whether an agent's tools are all read-only.
    fn only_reads(&self, manifest: &Manifest) -> bool {
        let offered = self.tools.offered(&manifest.authority(), manifest.tools.as_deref(), true);
        offered.iter().all(|spec| self.tools.effect(&spec.name) == Some(ToolEffect::ReadOnly))
    }

    /// Returns the spec of the child that a call requests, with its files from `read`.
    pub(crate) fn child_spec(
        &self,
        state: &State,
        offer: &ToolSet,
        request: &StartRequest,
        template: &Template,
        read: Reader<'_>,
    ) -> Result<ChildSpec, Refusal> {
        let spec = self.spec_of(state, offer, request, template, read)?;
        let refused = |why: String| Refusal { kind: ToolErrorKind::Refused, message: why.into() };
        spec.created.check_names().map_err(refused)?;
        let model = &spec.created.model;
        if self.models.lacks_window(&state.limits, model) {
            let message = format!(
                "the limit compact_at needs a context window, and that of the model `{model}` is unknown. Name another model"
            );
            return Err(Refusal { kind: ToolErrorKind::Limit, message: message.into() });
        }
        Ok(spec)
    }

    fn spec_of(
        &self,
        state: &State,
        offer: &ToolSet,
        request: &StartRequest,
        template: &Template,
        read: Reader<'_>,
    ) -> Result<ChildSpec, Refusal> {
        let mut created = template.created.clone();
        created.limits = state.created.limits.clone();
        created.limits.body = Some(Arc::clone(&state.limits));
        if let Some(cap) = request.output_tokens {
            created.limits = cap_limits(&state.limits, cap.get())?;
        }
        created.workspace = Arc::clone(&state.created.workspace);
        created.metadata = request.metadata.clone();
        created.on_restart = template.on_restart.unwrap_or(state.created.on_restart);
        created.worktree =
            self.own_worktree(state.id, template.isolation, request.isolation).map_err(isolation_refusal)?;
        let dialects: &[Dialect] = if request.dialect.allows_nesting() { &offer.opens.dialects } else { &[] };
        // The parent's dialects are among the host's, which the template lists.
        created.dialects.retain(|name| dialects.iter().any(|dialect| *dialect.name() == **name));
        created.returns = request.dialect == Dialect::Minion;
        let template_of = request.template.as_ref().and_then(|name| self.dialects.templates.get(name));
        let rolls_back = template_of.and_then(|template| template.rollback_on_error);
        created.rolls_back = created.returns && rolls_back.unwrap_or(self.dialects.minion.rollback_on_error);
        created.joins = request.dialect == Dialect::Spawn;
        // The caller's tool list binds all its descendants.
        created.tools = state.tools.clone();
        created.title = request.title.clone();
        if request.dialect == Dialect::Task {
            let tools = self.catalog.get(&request.agent).and_then(|manifest| manifest.tools.as_ref());
            let only = intersect_lists(created.tools.as_ref(), tools);
            let authority = offer.authority.meet(&template.manifest);
            created.system = self.system_under(template, &authority, only.as_ref()).map_err(recording_refusal)?;
            return Ok(ChildSpec::new(created, &request.prompt));
        }
        // Its first message may start with files, so the label is a better title.
        created.title = created.title.or_else(|| request.label.clone());
        created.tools = whitelist(request.tools.as_ref(), offer.only.as_ref());
        self.choose_model(state, request, &mut created);
        let manifest = self.catalog.get(&request.agent);
        let Some(manifest) = manifest else { return Ok(ChildSpec::new(created, &request.prompt)) };
        let authority = offer.authority.meet(&template.manifest);
        let only = intersect_lists(created.tools.as_ref(), manifest.tools.as_ref());
        let (tools, skipped) = self.prefetch_tools(request, offer, only.as_deref(), &authority, &mut created);
        let parts = Parts {
            tools,
            task: Some(Arc::clone(&request.prompt)),
            discovers: created.in_full.is_some(),
            ..self.parts(state, request, (manifest, &authority), read)
        };
        let of = Caller { agent: &request.agent, authority: &authority, only: only.as_ref(), attended: offer.attended };
        let assembled = self.assemble_prompt(parts, manifest, of, (dialects, created.source));
        let warnings = assembled.warnings.into_iter().map(Text::from).collect();
        created.system = Interned::new(assembled.system).map_err(recording_refusal)?;
        let first = assembled.first.unwrap_or_else(|| Arc::clone(&request.prompt));
        Ok(ChildSpec { created, first, skipped, warnings })
    }

    fn parts(
        &self,
        state: &State,
        request: &StartRequest,
        (manifest, authority): (&Manifest, &Authority),
        read: Reader<'_>,
    ) -> Parts {
        let of_agent = || Parts::of_agent(manifest).with_instructions(&self.instructions, manifest, authority);
        let own = match request.dialect {
            Dialect::Spawn => {
                let profile = request.profile.as_ref().and_then(|name| self.dialects.profiles.get(name));
                let named = profile.and_then(|profile| profile.agent.as_ref()).map(|_| manifest);
                let caller = self.catalog.get(agent_of(state)).map_or(manifest, Arc::as_ref);
                Parts::of_spawn(profile.map(Arc::as_ref), (caller, named), (&*self.instructions, authority), read)
            }
            Dialect::Minion => {
                let (body, _) = self.minions(state);
                let agents = of_agent();
                Parts { body: request.body.clone().or(body).or_else(|| agents.body.clone()), ..agents }
            }
            Dialect::Task | Dialect::Subagent | Dialect::SpawnTask => of_agent(),
        };
        Parts {
            parameter: request.system.clone(),
            started_by: Some(request.dialect),
            only_reads: request.dialect == Dialect::SpawnTask && self.only_reads(manifest),
            context: request.context.clone(),
            files: request.files.iter().map(|file| FileText::read(file, read)).collect(),
            ..own
        }
    }

    /// Returns the tools whose schemas the call requests in the first message, and those that the child is not offered.
    fn prefetch_tools(
        &self,
        request: &StartRequest,
        offer: &ToolSet,
        only: Option<&[Text]>,
        authority: &Authority,
        created: &mut SessionCreated,
    ) -> (Vec<ToolSpec>, Vec<Text>) {
        if request.dialect != Dialect::Subagent {
            return (Vec::new(), Vec::new());
        }
        let offered = self.tools.offered(authority, only, offer.attended);
        let names: BTreeSet<&Text> = request.prefetch.iter().flat_map(|(_, names)| names).collect();
        let (found, lacking): (Vec<&Text>, Vec<&Text>) =
            names.into_iter().partition(|name| offered.iter().any(|tool| tool.name == **name));
        let many = offered.len() > usize::try_from(self.dialects.subagent.tools_in_full).unwrap_or(usize::MAX);
        created.in_full = many.then(|| found.iter().map(|name| Arc::clone(name)).collect());
        let tools = offered.into_iter().filter(|tool| found.contains(&&tool.name)).collect();
        // A model chose the name, so it may have any length and any characters. An import refuses invisible ones.
        let shown = |name: &Text| {
            let start = name.get(..name.floor_char_boundary(MAX_NAME_BYTES)).unwrap_or_default();
            on_one_line(start).into()
        };
        (tools, lacking.into_iter().map(shown).collect())
    }

    fn choose_model(&self, state: &State, request: &StartRequest, created: &mut SessionCreated) {
        let profile = request.profile.as_ref().and_then(|name| self.dialects.profiles.get(name));
        if let Some(pool) = profile.and_then(|profile| profile.pool.as_ref()) {
            let manifest = Manifest { pool: Some(Arc::clone(pool)), ..agent_without_rights() };
            created.model = self.model_name(&manifest, model_of(state));
        }
        if request.dialect == Dialect::Minion {
            let template = request.template.as_ref().and_then(|name| self.dialects.templates.get(name));
            let named = template.and_then(|template| template.model.clone());
            created.model = named.unwrap_or_else(|| self.minions(state).1);
        }
    }
}

fn isolation_refusal(why: String) -> Refusal {
    Refusal { kind: ToolErrorKind::Refused, message: why.into() }
}

fn recording_refusal(error: serde_json::Error) -> Refusal {
    Refusal { kind: ToolErrorKind::Failed, message: format!("its prompt cannot be recorded: {error}").into() }
}

fn agent_without_rights() -> Manifest {
    Manifest::new("", subtend_agents::manifest::AgentMode::Subagent, "")
}

/// Returns `limits` with the lower of their cap on output tokens and `cap`.
fn cap_limits(limits: &Limits, cap: u64) -> Result<Interned<Limits>, Refusal> {
    let output_tokens = Some(limits.output_tokens.map_or(cap, |above| above.min(cap)));
    Interned::new(Arc::new(Limits { output_tokens, ..limits.clone() })).map_err(|error| Refusal {
        kind: ToolErrorKind::Failed,
        message: format!("its limits cannot be recorded: {error}").into(),
    })
}

fn names(dialects: &[Dialect]) -> Vec<Text> {
    dialects.iter().map(|dialect| dialect.name().into()).collect()
}
