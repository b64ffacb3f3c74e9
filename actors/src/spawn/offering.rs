//! The offer of a session: its tools under its authority, and the agents that it may start.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use subtend_agents::manifest::Manifest;
use subtend_agents::prompt::{self, ListedProfile, Parts};
use subtend_session::authority::{Access, Authority, Verdict};
use subtend_session::call::{CallKind, Invalid};
use subtend_session::command::NeededApproval;
use subtend_session::dialect::Dialect;
use subtend_session::ids::Text;
use subtend_session::place::{BranchKind, Place};
use subtend_session::state::State;
use subtend_tools::background::AGENT;
use subtend_tools::dialect::{Offered, Request, discovery, minion};
use subtend_tools::plan_exit;
use subtend_tools::registry::Registry;
use subtend_tools::tool::ToolError;

use crate::calls::in_flight::Parsed;
use crate::faults::InternalEvent;
use crate::spawn::agents::Agents;
use crate::spawn::background;
use crate::spawn::caches::ToolSetKey;
use crate::spawn::profiles::{self, Caller};
use crate::spawn::tool_set::{CallTarget, Classified, Finds, ToolSet, intersect_lists, spawn_access};
use crate::spawn::tree_call;
use crate::values::answering::{agent_of, pool_name};

impl Agents {
    pub(crate) fn offer(&self, state: &State) -> Arc<ToolSet> {
        let (agent, only) = (agent_of(state), self.listed_tools(state));
        let attended = self.approvals.is_attended();
        let above = self.ancestor_agents(state);
        let generation = self.tools.generation();
        let own_tools = self.tools.of_session(state.id);
        let key = ToolSetKey {
            generation,
            agent: Arc::clone(agent),
            ceiling: state.created.ceiling.hash,
            imported: state.created.imported.clone(),
            only,
            attended,
            dialects: self.dialects_of(state),
            nested: matches!(state.created.place, Place::Child { kind: BranchKind::Subagent, .. }),
            returns: state.created.returns,
            in_full: state.created.in_full.clone(),
            source: self.source(state.created.source),
            plans: self.plans(state),
            above,
            session: own_tools.as_ref().map(|_| state.id),
        };
        let mut tool_sets = self.offers.tool_sets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(offer) = tool_sets.get(&key) {
            return Arc::clone(offer);
        }
        let tools = own_tools.unwrap_or_else(|| self.tools.clone());
        let offer = Arc::new(self.make_offer(state, &key, tools));
        tool_sets.retain(|other| other.generation == generation);
        let manifest = self.catalog.get(&offer.agent).map_or(0, |manifest| manifest.body.len());
        let prompt = offer.offers.as_ref().map_or(0, |_| manifest.saturating_add(self.instructions.bytes()));
        let bytes = offer.bytes().saturating_add(key.bytes()).saturating_add(prompt);
        tool_sets.insert(key, &offer, bytes);
        offer
    }

    /// Returns the dialects of `state`'s session: the host's, or the recorded ones that the host still has.
    fn dialects_of(&self, state: &State) -> Vec<Dialect> {
        let host = self.dialects.offered().iter().copied();
        match state.created.place {
            Place::Child { call: Some(_), .. } => {
                host.filter(|dialect| state.created.dialects.iter().any(|name| **name == *dialect.name())).collect()
            }
            Place::Root | Place::Child { call: None, .. } => host.collect(),
        }
    }

    /// Returns the tools that `state`'s session may be offered, by its own list and its current manifest's; `None` for all.
    pub(crate) fn listed_tools(&self, state: &State) -> Option<Vec<Text>> {
        let of_a_call = matches!(state.created.place, Place::Child { call: Some(_), .. });
        if **agent_of(state) == *AGENT && !of_a_call {
            return Some(Vec::new());
        }
        let manifest = self.catalog.get(agent_of(state));
        intersect_lists(state.tools.as_ref(), manifest.and_then(|manifest| manifest.tools.as_ref()))
    }

    fn make_offer(&self, state: &State, key: &ToolSetKey, tools: Registry) -> ToolSet {
        let ToolSetKey { agent, only, attended, above, dialects, nested, returns, in_full, source, plans, .. } = key;
        let manifest = self.catalog.get(agent);
        let above: Vec<Authority> = above.iter().map(|agent| self.current_authority(agent)).collect();
        let policy = self.policy.body.as_deref().cloned().unwrap_or_else(Authority::deny_all);
        let authority = Arc::new(state.ceiling.effective(&policy, &self.current_authority(agent), &above));
        let mut specs = tools.offered(&authority, only.as_deref(), *attended);
        let shown_tools = specs.iter().map(|tool| Arc::clone(&tool.name)).collect();
        let finds = in_full.as_ref().map(|shown| Finds { all: specs.as_slice().into(), shown: shown.clone() });
        if let Some(finds) = &finds {
            specs.retain(|tool| finds.shown.contains(&tool.name));
            specs.extend(discovery::specs());
        }
        let (mut agents, mut shown, mut starts) = (Vec::new(), Vec::new(), HashMap::new());
        for manifest in self.catalog.spawnable() {
            let entry = (Arc::clone(&manifest.name), Arc::clone(&manifest.description));
            let access = spawn_access(&manifest.name);
            let verdict = authority.verdict(&access);
            starts.insert(Arc::clone(&manifest.name), (access, verdict));
            if verdict == Verdict::Allow || (verdict == Verdict::Ask && *attended) {
                shown.push(entry.clone());
            }
            if verdict > Verdict::Deny {
                agents.push(entry);
            }
        }
        let may = |dialect: &Dialect| {
            let listed = only.as_ref().is_none_or(|only| only.iter().any(|name| **name == *dialect.name()));
            let any = !agents.is_empty() || authority.verdict(&spawn_access(agent)) > Verdict::Deny;
            listed && any && (!agents.is_empty() || !dialect.allows_nesting())
        };
        let opens = Offered {
            dialects: dialects.iter().copied().filter(may).collect(),
            own: Arc::clone(agent),
            profiles: profiles::offered(&self.dialects, &authority),
            templates: profiles::offered_templates(&self.dialects),
            // Computed as if an approver were attached, so that a later activation classifies a call in the same way.
            tools: tools.offered(&authority, only.as_deref(), true).into_iter().map(|tool| tool.name).collect(),
            shown_tools,
            nested: *nested,
            source: *source,
            can_isolate: self.can_isolate().is_ok(),
            agents,
            shown,
        };
        specs.extend(opens.specs(self.options.manage_tasks));
        let is_shown = |dialect: &Dialect| specs.iter().any(|spec| *spec.name == *dialect.name());
        let shown: Vec<Dialect> = opens.dialects.iter().copied().filter(is_shown).collect();
        let caller = Caller { agent, authority: &authority, only: only.as_ref(), attended: *attended };
        let text = self.offers(&shown, caller);
        if *returns {
            specs.push(minion::return_spec());
        }
        // A tool of the host named `plan_exit` replaces the built-in one.
        let own = specs.iter().any(|spec| *spec.name == *plan_exit::NAME);
        let proposes = plans.as_ref().filter(|_| !own).and_then(|model| self.next_agent((model, *source), state));
        // Without an approver the model gives its plan as the answer.
        specs.extend(proposes.as_ref().filter(|_| *attended).map(|_| plan_exit::spec()));
        let settings = manifest.map(|manifest| manifest.settings).unwrap_or_default();
        let (agent, only, attended, returns) = (Arc::clone(agent), only.clone(), *attended, *returns);
        ToolSet {
            generation: key.generation,
            tools,
            specs: specs.into(),
            agent,
            attended,
            authority,
            only,
            opens,
            starts,
            returns,
            finds,
            offers: text,
            proposes,
            settings,
            last_prompt: Mutex::default(),
        }
    }

    fn offers(&self, dialects: &[Dialect], caller: Caller<'_>) -> Option<Text> {
        let parts = Parts::default().offering(dialects, || self.named_profiles(caller));
        prompt::offers(&parts.offered, &parts.profiles)
    }

    /// Returns the profiles that `caller` may name, with the tools of their jobs.
    pub(crate) fn named_profiles(&self, caller: Caller<'_>) -> Vec<ListedProfile> {
        profiles::named(&self.dialects.profiles, &self.catalog, &self.tools, caller)
    }

    /// Returns the model of sessions of `manifest`: its pool, its model, or the inherited one.
    pub(crate) fn model_name(&self, manifest: &Manifest, inherited: &Text) -> Text {
        let Some(pool) = &manifest.pool else {
            return manifest.model.clone().unwrap_or_else(|| Arc::clone(inherited));
        };
        let name = pool_name(pool);
        if self.models.models.has_pool(&name) {
            return name;
        }
        tracing::warn!(agent = %manifest.name, %pool, model = %inherited, "unknown pool; the caller's model is used");
        Arc::clone(inherited)
    }
}

impl Agents {
    /// Classifies a call, given the permanent approvals `always`. The result is the same in a later activation, with or without an approver.
    pub(crate) fn classify(
        &self,
        offer: &ToolSet,
        always: &BTreeSet<(Text, Access)>,
        tool: &str,
        args: &str,
    ) -> Classified {
        use subtend_tools::registry::Classified as Found;
        if let Some(started) = self.starts_process(offer, tool, args) {
            return started;
        }
        if let Some(read) = self.read(offer, tool, args) {
            return match read {
                Ok(Request::Start(start)) => {
                    let (access, verdict) = offer.start_access(&start.agent);
                    if verdict == Verdict::Deny {
                        let text = format!("{} may not be started here: do the work yourself", start.agent);
                        return Classified::tree(Err(start.dialect.refused("NOT_ALLOWED", &text)));
                    }
                    // Allowed access needs no record here, since the child records its own.
                    let ask = verdict != Verdict::Allow && !background::is_granted(always, tool, &access);
                    let access = ask.then(|| Box::new(access));
                    let kind = CallKind::Child(start.mode);
                    let ready = Some(Parsed::Spawn(Request::Start(start)));
                    Classified { access, ask: NeededApproval::of_one(ask), ..Classified::tree(Ok((kind, ready))) }
                }
                Ok(again @ Request::Continue(_)) => {
                    Classified::tree(Ok((CallKind::Continue(again.mode()), Some(Parsed::Spawn(again)))))
                }
                Err(offers) => Classified::tree(Err(offers.message.into())),
            };
        }
        if let Some(read) = tree_call::read(offer, self.options.manage_tasks, tool, args) {
            return Classified::tree(read);
        }
        let (used, found);
        let (tool, args) = match offer.finds.as_ref().map(|finds| finds.classify(offer, tool, args)) {
            None | Some(CallTarget::Plain) => (tool, args),
            Some(CallTarget::Other(other)) => return other,
            // Classified like a direct call of the tool, so that the same rules apply.
            Some(CallTarget::Used(tool, args)) => {
                (used, found) = (tool, args);
                if let Some(started) = self.starts_process(offer, &used, &found) {
                    return started;
                }
                (&*used, &*found)
            }
        };
        let granted = |access: &Access| background::is_granted(always, tool, access);
        let invalid = |kind, message| Classified {
            kind: CallKind::Invalid(kind),
            note: Some(message),
            access: None,
            ask: NeededApproval::None,
            ready: None,
        };
        match offer.tools.classify_offered(tool, args, &offer.authority, offer.only.as_deref(), true, &granted) {
            Some(Found::Ready { tool, args, kind, access, ask }) => Classified {
                kind,
                note: None,
                access: access.map(Box::new),
                ask,
                ready: Some(Parsed::Tool(tool, args)),
            },
            Some(Found::Invalid { kind, message }) => invalid(kind, message),
            None => {
                let offered = offer.specs.iter().map(|spec| &*spec.name);
                invalid(Invalid::UnknownTool, self.tools.unknown_tool_error(tool, offered))
            }
        }
    }

    /// Parses a call that opens a run; `None` for other calls. Only this function and `classify` parse calls.
    pub(crate) fn read(&self, offer: &ToolSet, tool: &str, args: &str) -> Option<Result<Request, ToolError>> {
        self.faults.see(InternalEvent::Parsed(args));
        offer.opens.read(tool, args)
    }

    /// Returns the recorded access of a parsed call of `named`, and whether it needs an approval given `always`.
    pub(crate) fn required_access(
        &self,
        offer: &ToolSet,
        always: &BTreeSet<(Text, Access)>,
        named: &str,
        parsed: &Parsed,
    ) -> (Option<Access>, NeededApproval) {
        match parsed {
            Parsed::Tool(tool, args) => {
                let granted = |access: &Access| background::is_granted(always, &tool.spec().name, access);
                Registry::ruling(&**tool, args, &offer.authority, &granted).into_need()
            }
            Parsed::Spawn(Request::Start(start)) if *start.agent == *AGENT => (None, NeededApproval::None),
            Parsed::Spawn(Request::Start(start)) => {
                let (access, verdict) = offer.start_access(&start.agent);
                let ask = verdict == Verdict::Ask && !background::is_granted(always, named, &access);
                (ask.then_some(access), NeededApproval::of_one(ask))
            }
            Parsed::Spawn(Request::Continue(_))
            | Parsed::Refused(_)
            | Parsed::Check(_)
            | Parsed::Cancel(_)
            | Parsed::Stop(_)
            | Parsed::Await(_)
            | Parsed::Plan(_) => (None, NeededApproval::None),
        }
    }
}
