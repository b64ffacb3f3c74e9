//! The tool offer of a session, and the classification of its calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use subtend_agents::prompt;
use subtend_session::authority::{Access, Authority, Verdict};
use subtend_session::call::{CallKind, Invalid, ToolEffect};
use subtend_session::command::NeededApproval;
use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;
use subtend_session::record::AgentOverride;
use subtend_session::settings::Settings;
use subtend_tools::dialect::{Offered, discovery, is_locked};
use subtend_tools::registry::{Registry, list_contains};

use crate::calls::in_flight::Parsed;

/// The offer for sessions of one agent with the same ceiling.
pub(crate) struct ToolSet {
    /// The registry's generation, which changes when tools are added or removed.
    pub(crate) generation: u64,
    /// The host's tools, as the session sees them.
    pub(crate) tools: Registry,
    /// The tools, as the model sees them.
    pub(crate) specs: Arc<[ToolSpec]>,
    pub(crate) agent: Text,
    /// True if an approver was attached. Otherwise tools that need an approval are hidden from the model.
    pub(crate) attended: bool,
    /// The intersection of the ceiling, the current policy, the manifest and the ancestors' permissions.
    pub(crate) authority: Arc<Authority>,
    pub(crate) only: Option<Vec<Text>>,
    /// The runs that a session may open, including agents that need an approval.
    pub(crate) opens: Offered,
    pub(crate) starts: HashMap<Text, (Access, Verdict)>,
    pub(crate) returns: bool,
    pub(crate) finds: Option<Finds>,
    /// The part of the system prompt that describes the offer: hints and profiles.
    pub(crate) offers: Option<Text>,
    /// The agent that would continue, if the session may propose a plan.
    pub(crate) proposes: Option<Arc<AgentOverride>>,
    /// The settings of model calls by the current manifest.
    pub(crate) settings: Settings,
    /// The last system prompt and its completion. Children of one template share theirs.
    pub(crate) last_prompt: Mutex<Option<(Text, Text)>>,
}

/// The tools of a session that is not shown all of them in full.
pub(crate) struct Finds {
    pub(crate) all: Arc<[ToolSpec]>,
    pub(crate) shown: Vec<Text>,
}

/// A classified call, with everything needed to start it.
pub(crate) struct Classified {
    pub(crate) kind: CallKind,
    /// The error for the model, if the call is invalid.
    pub(crate) note: Option<Text>,
    /// The access of the call, for local tools.
    pub(crate) access: Option<Box<Access>>,
    pub(crate) ask: NeededApproval,
    pub(crate) ready: Option<Parsed>,
}

impl Classified {
    /// Returns a classified call of a built-in tool that controls runs, or the error in its arguments.
    pub(crate) fn tree(read: Result<(CallKind, Option<Parsed>), Text>) -> Self {
        let (kind, ready, note) = match read {
            Ok((kind, ready)) => (kind, ready, None),
            Err(offers) => (CallKind::Invalid(Invalid::BadArgs), None, Some(offers)),
        };
        Self { kind, note, access: None, ask: NeededApproval::None, ready }
    }
}

impl ToolSet {
    /// Returns `system` completed with the current offer, which may differ from the first record's.
    pub(crate) fn prompt(&self, system: &Text) -> Text {
        let mut last = self.last_prompt.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, prompt)) = &*last
            && Arc::ptr_eq(of, system)
        {
            return Arc::clone(prompt);
        }
        let prompt = prompt::with_offers(system, self.offers.as_deref());
        *last = Some((Arc::clone(system), Arc::clone(&prompt)));
        prompt
    }

    /// Returns the bytes of the permissions, and of what the tool set has for each agent that it may start.
    pub(crate) fn bytes(&self) -> usize {
        const SIZE_OF_START: usize = 512;
        let described = self.opens.shown.iter().map(|(_, description)| description.len()).sum::<usize>();
        let starts = self.starts.len().saturating_mul(SIZE_OF_START);
        let offers = self.offers.as_ref().map_or(0, |offers| offers.len().saturating_mul(2));
        let texts = described.saturating_mul(self.opens.dialects.len()).saturating_add(offers);
        self.authority.bytes().saturating_add(starts).saturating_add(texts)
    }

    pub(crate) fn start_access(&self, agent: &Text) -> (Access, Verdict) {
        self.starts.get(agent).cloned().unwrap_or_else(|| {
            let access = spawn_access(agent);
            let verdict = self.authority.verdict(&access);
            (access, verdict)
        })
    }
}

pub(crate) enum CallTarget {
    Plain,
    Used(String, String),
    Other(Classified),
}

impl Finds {
    pub(crate) fn classify(&self, offer: &ToolSet, tool: &str, args: &str) -> CallTarget {
        match tool {
            discovery::GET => CallTarget::Other(match discovery::GetTools::parse_call(args, &self.all, &self.shown) {
                Ok((tool, args)) => {
                    Classified::tree(Ok((CallKind::Local(ToolEffect::ReadOnly), Some(Parsed::Tool(tool, args)))))
                }
                Err(offers) => Classified::tree(Err(offers.message.into())),
            }),
            discovery::USE => match discovery::parse_use(args) {
                Ok((tool, args)) => CallTarget::Used(tool, args),
                Err(offers) => {
                    // A refusal keeps the format of its dialect, even through `use_tool`.
                    let used = subtend_session::dialect::discovery::resolve(tool, args);
                    let refused = used.and_then(|(tool, args)| offer.opens.read(&tool, &args)).and_then(Result::err);
                    CallTarget::Other(Classified::tree(Err(refused.unwrap_or(offers).message.into())))
                }
            },
            _ => CallTarget::Plain,
        }
    }
}

pub(crate) fn spawn_access(agent: &Text) -> Access {
    Access { action: format!("task:{agent}").into(), resource: ".".into() }
}

/// Returns the intersection of two lists, each of which may name all tools of a server.
fn intersect(one: &[Text], other: &[Text]) -> Vec<Text> {
    let mut common: Vec<Text> = one.iter().filter(|name| list_contains(other, name)).map(Arc::clone).collect();
    let more: Vec<Text> =
        other.iter().filter(|name| list_contains(one, name) && !common.contains(name)).map(Arc::clone).collect();
    common.extend(more);
    common
}

/// Returns whether `only` has all tools of `list`; no list means all tools.
pub(crate) fn lists_all(only: &[Text], list: Option<&Vec<Text>>) -> bool {
    list.is_some_and(|list| list.iter().all(|name| list_contains(only, name)))
}

/// Returns the intersection of two lists; no list means all tools.
pub(crate) fn intersect_lists(session: Option<&Vec<Text>>, manifest: Option<&Vec<Text>>) -> Option<Vec<Text>> {
    match (session, manifest) {
        (Some(session), Some(manifest)) => Some(intersect(session, manifest)),
        (only, None) | (None, only) => only.cloned(),
    }
}

/// Returns the tools of a child: those that its call names and its caller has, without tools that end or start runs.
pub(crate) fn whitelist(requested_tools: Option<&Vec<Text>>, caller: Option<&Vec<Text>>) -> Option<Vec<Text>> {
    match (requested_tools, caller) {
        (Some(requested_tools), caller) => {
            let mut names = caller.map_or_else(|| requested_tools.clone(), |caller| intersect(requested_tools, caller));
            names.retain(|name| !is_locked(name));
            Some(names)
        }
        (None, caller) => caller.cloned(),
    }
}
