//! The offer of a session, and the classification of its calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use subtend_agents::prompt;
use subtend_session::authority::{Access, Authority, Verdict};
use subtend_session::call::{CallKind, Invalid, ToolEffect};
use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;
use subtend_session::record::AgentOverride;
use subtend_session::settings::Settings;
use subtend_tools::dialect::{Offered, discovery, is_locked};

use crate::calls::in_flight::Parsed;

/// The offer to sessions of one agent under one ceiling.
pub(crate) struct ToolSet {
    /// The tools, as the model sees them.
    pub(crate) specs: Arc<[ToolSpec]>,
    pub(crate) agent: Text,
    /// Whether an approver was attached: otherwise tools that need an approval are hidden from the model.
    pub(crate) attended: bool,
    /// The authority at use: the ceiling met with the present policy and manifest, and with the ancestors' (P-4).
    pub(crate) authority: Arc<Authority>,
    /// The tool list of the session or its manifest.
    pub(crate) only: Option<Vec<Text>>,
    /// The runs that it may open, including agents that need an approval.
    pub(crate) opens: Offered,
    /// The access and verdict of starting each of these agents.
    pub(crate) starts: HashMap<Text, (Access, Verdict)>,
    /// Whether `return` is offered.
    pub(crate) returns: bool,
    /// Tools that the session discovers.
    pub(crate) finds: Option<Finds>,
    /// The part of the system prompt that names the offer: hints and profiles.
    pub(crate) told: Option<Text>,
    /// The agent that would continue, if the session may propose a plan.
    pub(crate) proposes: Option<Arc<AgentOverride>>,
    /// The format of the model's answers, by the present manifest.
    pub(crate) settings: Settings,
    /// The last system prompt and its completion: children of one template share theirs.
    pub(crate) last_prompt: Mutex<Option<(Text, Text)>>,
}

/// Tools of a session that is not shown all of them in full (B8).
pub(crate) struct Finds {
    /// All permitted tools.
    pub(crate) all: Arc<[ToolSpec]>,
    /// The names of those shown in full.
    pub(crate) shown: Vec<Text>,
}

/// A classified call, with everything that its start needs.
pub(crate) struct Classified {
    pub(crate) kind: CallKind,
    /// The error for the model, if it is invalid.
    pub(crate) note: Option<Text>,
    /// The access of its tool, for local ones.
    pub(crate) access: Option<Box<Access>>,
    /// Whether an approval is needed first.
    pub(crate) ask: bool,
    /// The parsed call.
    pub(crate) ready: Option<Parsed>,
}

impl Classified {
    /// A call of the tree's own tools, or the error in its arguments.
    pub(crate) fn tree(read: Result<(CallKind, Option<Parsed>), Text>) -> Self {
        let (kind, ready, note) = match read {
            Ok((kind, ready)) => (kind, ready, None),
            Err(told) => (CallKind::Invalid(Invalid::BadArgs), None, Some(told)),
        };
        Self { kind, note, access: None, ask: false, ready }
    }
}

impl ToolSet {
    /// Returns `system` with the present offer, whatever the first record says.
    pub(crate) fn prompt(&self, system: &Text) -> Text {
        let mut last = self.last_prompt.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, prompt)) = &*last
            && Arc::ptr_eq(of, system)
        {
            return Arc::clone(prompt);
        }
        let prompt = prompt::with_offers(system, self.told.as_deref());
        *last = Some((Arc::clone(system), Arc::clone(&prompt)));
        prompt
    }

    /// Returns the access of a call that starts `agent`, and its verdict.
    pub(crate) fn starting(&self, agent: &Text) -> (Access, Verdict) {
        self.starts.get(agent).cloned().unwrap_or_else(|| {
            let access = spawning(agent);
            let verdict = self.authority.verdict(&access);
            (access, verdict)
        })
    }
}

/// The target of a call in a session with discovery.
pub(crate) enum Meant {
    /// The tool that it names.
    Plain,
    /// Another tool, with these arguments.
    Used(String, String),
    /// An unknown tool.
    Other(Classified),
}

impl Finds {
    pub(crate) fn meant(&self, offer: &ToolSet, tool: &str, args: &str) -> Meant {
        match tool {
            discovery::GET => Meant::Other(match discovery::GetTools::asked(args, &self.all, &self.shown) {
                Ok((tool, args)) => {
                    Classified::tree(Ok((CallKind::Local(ToolEffect::ReadOnly), Some(Parsed::Tool(tool, args)))))
                }
                Err(error) => Classified::tree(Err(error.message.into())),
            }),
            discovery::USE => match discovery::parse_use(args) {
                Ok((tool, args)) => Meant::Used(tool, args),
                Err(error) => {
                    // A dialect's refusal keeps its shape, also through `use_tool`.
                    let used = subtend_session::dialect::discovery::used(tool, args);
                    let refused = used.and_then(|(tool, args)| offer.opens.read(&tool, &args)).and_then(Result::err);
                    Meant::Other(Classified::tree(Err(refused.unwrap_or(error).message.into())))
                }
            },
            _ => Meant::Plain,
        }
    }
}

/// Returns the access of a call that starts `agent`.
pub(crate) fn spawning(agent: &Text) -> Access {
    Access { action: format!("task:{agent}").into(), resource: ".".into() }
}

/// Returns the intersection of two lists; no list means all tools.
pub(crate) fn narrowed(session: Option<&Vec<Text>>, manifest: Option<&Vec<Text>>) -> Option<Vec<Text>> {
    match (session, manifest) {
        (Some(session), Some(manifest)) => {
            Some(session.iter().filter(|name| manifest.contains(name)).map(Arc::clone).collect())
        }
        (only, None) | (None, only) => only.cloned(),
    }
}

/// Returns the tools of a child: those that its call names, at most those of its caller, without tools that end or start runs (S4, K20).
pub(crate) fn whitelist(asked: Option<&Vec<Text>>, caller: Option<&Vec<Text>>) -> Option<Vec<Text>> {
    match (asked, caller) {
        (Some(asked), caller) => {
            let theirs = |name: &&Text| !is_locked(name) && caller.is_none_or(|caller| caller.contains(name));
            Some(asked.iter().filter(theirs).map(Arc::clone).collect())
        }
        (None, caller) => caller.cloned(),
    }
}
