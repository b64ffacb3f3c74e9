//! What a session is offered, and what one of its calls turns out to be.

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

/// What sessions of one agent under one ceiling are offered.
pub(crate) struct ToolSet {
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
    /// What may be opened: agents that need a person's word among them.
    pub(crate) opens: Offered,
    /// What starting each of these agents takes, and whether it is allowed.
    pub(crate) starts: HashMap<Text, (Access, Verdict)>,
    /// Whether `return` is among the tools.
    pub(crate) returns: bool,
    /// What the session finds besides what it is shown.
    pub(crate) finds: Option<Finds>,
    /// The part of the system prompt that names what is offered: hints and profiles.
    pub(crate) told: Option<Text>,
    /// Who would go on, where the session may propose that its plan be carried out.
    pub(crate) proposes: Option<Arc<AgentOverride>>,
    /// How the agent's model is to answer, by the present manifest.
    pub(crate) settings: Settings,
    /// The last system prompt and what it became: children of one template share theirs.
    pub(crate) last_prompt: Mutex<Option<(Text, Text)>>,
}

/// Tools of a session that is not shown all of them in full (B8).
pub(crate) struct Finds {
    /// All that it may use.
    pub(crate) all: Arc<[ToolSpec]>,
    /// The names of those that it is shown.
    pub(crate) shown: Vec<Text>,
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
    /// What it was parsed to.
    pub(crate) ready: Option<Parsed>,
}

impl Classified {
    /// A call of the tree's own tools, or what the model is told about its arguments.
    pub(crate) fn tree(read: Result<(CallKind, Option<Parsed>), Text>) -> Self {
        let (kind, ready, note) = match read {
            Ok((kind, ready)) => (kind, ready, None),
            Err(told) => (CallKind::Invalid(Invalid::BadArgs), None, Some(told)),
        };
        Self { kind, note, access: None, ask: false, ready }
    }
}

impl ToolSet {
    /// Returns `system` with what is offered today, whatever its session was born with.
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

    /// Returns what a call that starts `agent` does, and whether it is allowed.
    pub(crate) fn starting(&self, agent: &Text) -> (Access, Verdict) {
        self.starts.get(agent).cloned().unwrap_or_else(|| {
            let access = spawning(agent);
            let verdict = self.authority.verdict(&access);
            (access, verdict)
        })
    }
}

/// What a call of a session that finds tools means.
pub(crate) enum Meant {
    /// The tool that it names.
    Plain,
    /// That tool, with those arguments.
    Used(String, String),
    /// Nothing that the registry has.
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
                    // What a dialect refuses has its shape, however it is called.
                    let used = subtend_session::dialect::discovery::used(tool, args);
                    let refused = used.and_then(|(tool, args)| offer.opens.read(&tool, &args)).and_then(Result::err);
                    Meant::Other(Classified::tree(Err(refused.unwrap_or(error).message.into())))
                }
            },
            _ => Meant::Plain,
        }
    }
}

/// What a call that starts `agent` does.
pub(crate) fn spawning(agent: &Text) -> Access {
    Access { action: format!("task:{agent}").into(), resource: ".".into() }
}

/// The tools that both lists have; no list has all.
pub(crate) fn narrowed(session: Option<&Vec<Text>>, manifest: Option<&Vec<Text>>) -> Option<Vec<Text>> {
    match (session, manifest) {
        (Some(session), Some(manifest)) => {
            Some(session.iter().filter(|name| manifest.contains(name)).map(Arc::clone).collect())
        }
        (only, None) | (None, only) => only.cloned(),
    }
}

/// The tools of a child: those that its call names, and no more than its caller is offered (S4, K20). What ends or starts runs
/// is not theirs to name.
pub(crate) fn whitelist(asked: Option<&Vec<Text>>, caller: Option<&Vec<Text>>) -> Option<Vec<Text>> {
    match (asked, caller) {
        (Some(asked), caller) => {
            let theirs = |name: &&Text| !is_locked(name) && caller.is_none_or(|caller| caller.contains(name));
            Some(asked.iter().filter(theirs).map(Arc::clone).collect())
        }
        (None, caller) => caller.cloned(),
    }
}
