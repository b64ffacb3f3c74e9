//! Manifests: definitions of agents.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use subtend_session::authority::{Authority, RuleSet, Verdict};
use subtend_session::ids::{Hash, Text};
use subtend_session::place::{Isolation, OnRestart};
use subtend_session::settings::Settings;

use crate::product::Product;

/// The line that `caller: agent` adds to a system prompt.
pub const CALLER_LINE: &str = "Your caller is another agent; return structured output.";

/// The definition of an agent: prompt, model, tools, authority and limits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Manifest {
    /// The agent's name: `[a-z0-9][a-z0-9_-]{0,63}`.
    pub name: Text,
    pub mode: AgentMode,
    /// When to use it, for models and users.
    pub description: Text,
    /// The model that it requests, if any.
    pub model: Option<Text>,
    /// The pool of models that it requests, if any. Excludes `model`.
    pub pool: Option<Text>,
    /// Settings of its model calls. The host's settings apply where a field is not set.
    pub settings: Settings,
    /// The tools that it may be offered; `None` means all that its authority allows.
    pub tools: Option<Vec<Text>>,
    /// Its own permission rules; `None` leaves the caller's authority unchanged.
    pub rules: Option<RuleSet>,
    /// Further rule sets. Each one limits the agent, regardless of what the others allow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<RuleSet>,
    /// True if listings show its sessions as rows of their own.
    pub inspectable: bool,
    /// True if [`CALLER_LINE`] ends its prompt.
    pub caller: bool,
    /// Maximum number of turns of a run.
    pub turns: Option<u32>,
    /// True if its runs are independent of the session that starts them. The call that starts a run returns at once.
    /// Only a cancel of the whole tree or the run's wall-clock cap ends the run early. A model cannot choose this.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub detached: bool,
    /// Where the tools of its sessions work.
    #[serde(skip_serializing_if = "is_none")]
    pub isolation: Isolation,
    /// Whether its runs fail or resume after a restart of the host. A run resumes only if the sessions that own it are
    /// also set to resume. By default, a child has the setting of the session that starts it, and the runs of a root
    /// session fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_restart: Option<OnRestart>,
    pub body: Text,
    /// True if pickers and the agent types of `task` omit it.
    pub hidden: bool,
    /// True if its root sessions are offered `plan_exit`, the tool that asks the user to approve a plan.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub plan_exit: bool,
    /// Skills whose texts are in its prompt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<Text>,
    /// True if the instruction files of the workspace and the user are in its prompt.
    #[serde(skip_serializing_if = "is_true")]
    pub instructions: bool,
    /// Unknown keys of the front matter, kept for the host.
    pub extra: std::collections::BTreeMap<String, serde_json::Value>,
    /// The origin; not part of the hash.
    #[serde(skip)]
    pub source: Source,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_none(isolation: &Isolation) -> bool {
    *isolation == Isolation::None
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_true(flag: &bool) -> bool {
    *flag
}

/// Callers that may start an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AgentMode {
    /// Users only: pickers list it, and `task` refuses it.
    Primary,
    /// Other agents only, through `task`.
    Subagent,
    All,
}

impl AgentMode {
    /// Returns the name of the value in front matter and listings.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Builtin,
    File(PathBuf),
    /// A file of another product.
    Foreign(Product, PathBuf),
    Host,
}

impl Source {
    /// Returns the path of the file that defines the agent, if there is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) | Self::Foreign(_, path) => Some(path),
            Self::Builtin | Self::Host => None,
        }
    }
}

impl Manifest {
    /// Returns a manifest with a name, a mode and a prompt, and the defaults of an agent file.
    /// ```
    /// let critic = subtend_agents::manifest::Manifest::new("critic", subtend_agents::manifest::AgentMode::Subagent, "Find errors.");
    /// assert_eq!(&*critic.description, "Find errors.");
    /// ```
    pub fn new(name: impl Into<Text>, mode: AgentMode, body: impl Into<Text>) -> Self {
        let body = body.into();
        Self {
            name: name.into(),
            mode,
            description: first_sentence(&body).into(),
            model: None,
            pool: None,
            settings: Settings::default(),
            tools: None,
            rules: None,
            bounds: Vec::new(),
            inspectable: false,
            caller: false,
            turns: None,
            detached: false,
            isolation: Isolation::None,
            on_restart: None,
            body,
            hidden: false,
            plan_exit: false,
            skills: Vec::new(),
            instructions: true,
            extra: std::collections::BTreeMap::new(),
            source: Source::Host,
        }
    }

    /// Returns the hash of the content, for new sessions in the journal. The origin is not part of it.
    pub fn hash(&self) -> Hash {
        // Serialization cannot fail, because all map keys are strings. The empty default is therefore never hashed.
        Hash::of(&serde_json::to_vec(self).unwrap_or_default())
    }

    /// Returns the system prompt: the body, and the caller line where requested.
    pub fn system(&self) -> Text {
        if self.caller { format!("{}\n\n{CALLER_LINE}", self.body.trim_end()).into() } else { self.body.clone() }
    }

    /// Returns the authority that the agent requests. The caller's authority limits it further.
    pub fn authority(&self) -> Authority {
        let all = || RuleSet { default: Verdict::Allow, rules: Vec::new() };
        let own = Authority::of(self.rules.clone().unwrap_or_else(all));
        self.bounds.iter().fold(own, |met, bound| met.meet(&Authority::of(bound.clone())))
    }

    /// Returns whether a session of the agent is offered `plan_exit`. Only root sessions are, because only they have an approver.
    pub fn offers_plan_exit(&self, is_root: bool) -> bool {
        self.plan_exit && is_root
    }

    /// Returns whether another agent may start this agent.
    pub fn spawnable(&self) -> bool {
        !self.hidden && matches!(self.mode, AgentMode::Subagent | AgentMode::All)
    }

    /// Returns whether a user may pick this agent.
    pub fn pickable(&self) -> bool {
        !self.hidden && matches!(self.mode, AgentMode::Primary | AgentMode::All)
    }
}

pub(crate) fn first_sentence(body: &str) -> String {
    const LONGEST: usize = 200;
    let paragraph = body.split("\n\n").map(str::trim).find(|part| !part.is_empty() && !part.starts_with('#'));
    let line = paragraph.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    let end = line.find(". ").map_or(line.len(), |dot| dot.saturating_add(1));
    line.get(..end).unwrap_or(&line).chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn critic() -> Manifest {
        Manifest::new("critic", AgentMode::Subagent, "Criticise.\n")
    }

    #[test]
    fn caller_line_is_added_once_and_only_on_request() {
        assert_eq!(&*critic().system(), "Criticise.\n");
        let by_caller = Manifest { caller: true, ..critic() };
        assert_eq!(&*by_caller.system(), "Criticise.\n\nYour caller is another agent; return structured output.");
    }

    #[test]
    fn hash_depends_on_content_and_not_on_source() {
        let here = critic();
        let elsewhere = Manifest { source: Source::File("elsewhere/critic.md".into()), ..critic() };
        assert_eq!(here.hash(), elsewhere.hash());
        for other in [
            Manifest { turns: Some(3), ..critic() },
            Manifest { pool: Some("cheap".into()), ..critic() },
            Manifest { settings: Settings { temperature: Some(0.5), ..Settings::default() }, ..critic() },
            Manifest { body: "Praise.\n".into(), ..critic() },
            Manifest { hidden: true, ..critic() },
            Manifest { plan_exit: true, ..critic() },
            Manifest { instructions: false, ..critic() },
            Manifest { detached: true, ..critic() },
            Manifest { isolation: Isolation::Worktree, ..critic() },
            Manifest { rules: Some(RuleSet { default: Verdict::Deny, rules: Vec::new() }), ..critic() },
        ] {
            assert_ne!(here.hash(), other.hash(), "{other:?}");
        }
    }

    #[test]
    fn mode_and_hidden_decide_who_may_start_an_agent() {
        let seen = |mode, hidden| {
            let manifest = Manifest { mode, hidden, ..critic() };
            (manifest.pickable(), manifest.spawnable())
        };
        assert_eq!(seen(AgentMode::Primary, false), (true, false));
        assert_eq!(seen(AgentMode::Subagent, false), (false, true));
        assert_eq!(seen(AgentMode::All, false), (true, true));
        assert_eq!(seen(AgentMode::All, true), (false, false));
    }

    #[test]
    fn description_falls_back_to_the_first_sentence() {
        assert_eq!(first_sentence("# Title\n\nReads\nfiles. And more."), "Reads files.");
        assert_eq!(first_sentence("no dot"), "no dot");
        assert_eq!(first_sentence("  \n"), "");
    }
}
