//! Manifests: what an agent is, as data.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use subtend_session::authority::{Authority, RuleSet, Verdict};
use subtend_session::ids::{Hash, Text};
use subtend_session::place::OnRestart;
use subtend_session::settings::Settings;

/// The one line that `caller: agent` adds to a system prompt (G10).
pub const CALLER_LINE: &str = "Your caller is another agent; return structured output.";

/// An agent: prompt, model, tools, authority, limits. Data, not a process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Manifest {
    /// Its name: `[a-z0-9][a-z0-9_-]{0,63}`.
    pub name: Text,
    /// Who may start it.
    pub mode: AgentMode,
    /// When to use it, for models and people.
    pub description: Text,
    /// The model that it wants, if any.
    pub model: Option<Text>,
    /// The pool of models that it wants, if any (S6). Never beside a model.
    pub pool: Option<Text>,
    /// How its models are to answer; what is not set is as the host has it.
    pub settings: Settings,
    /// The tools that it is offered at most; `None`: all that its authority allows. An empty list: none.
    pub tools: Option<Vec<Text>>,
    /// Its own rules; `None`: it narrows nothing.
    pub rules: Option<RuleSet>,
    /// Whether listings show its sessions as rows of their own.
    pub inspectable: bool,
    /// Whether its prompt carries the caller line (G10).
    pub caller: bool,
    /// Turn allowance of its runs.
    pub turns: Option<u32>,
    /// Whether its runs are nobody's: the call that starts one is answered at once, no cancel but that of the whole tree ends
    /// it, and it has a wall-clock cap of its own. Never a model's choice.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub detached: bool,
    /// What a restart of the host does with its runs: they go on only if all their owners do (X2).
    #[serde(skip_serializing_if = "fails")]
    pub on_restart: OnRestart,
    /// The prompt.
    pub body: Text,
    /// Whether it is kept out of pickers and of the types that `task` accepts.
    pub hidden: bool,
    /// Whether its root sessions are offered `plan_exit`, by which it proposes that its plan be carried out (G12, K14).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub plan_exit: bool,
    /// Keys of the front matter that mean nothing here: kept, so that a host can read them.
    pub extra: std::collections::BTreeMap<String, serde_json::Value>,
    /// Where it comes from. Not part of what it is: the same agent elsewhere has the same hash.
    #[serde(skip)]
    pub source: Source,
}

/// Agents that say nothing of restarts have the hash that they had before there was a word for it.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference to what it asks")]
fn fails(on_restart: &OnRestart) -> bool {
    *on_restart == OnRestart::Fail
}

/// Who may start an agent (G1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentMode {
    /// People: it is in pickers, and `task` refuses it.
    Primary,
    /// Other agents, through `task`.
    Subagent,
    /// Both.
    All,
}

impl AgentMode {
    /// The word in front matter and listings.
    pub fn word(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Subagent => "subagent",
            Self::All => "all",
        }
    }
}

/// Where a manifest comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// This crate.
    Builtin,
    /// A file.
    File(PathBuf),
    /// The embedding host's own code.
    Host,
}

impl Manifest {
    /// A manifest with a name, a mode and a prompt; everything else is as if it were left out of a file.
    ///
    /// ```
    /// use subtend_agents::manifest::{AgentMode, Manifest};
    ///
    /// let critic = Manifest::new("critic", AgentMode::Subagent, "Find what is wrong with the text. Be brief.");
    /// assert_eq!(&*critic.description, "Find what is wrong with the text.");
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
            inspectable: false,
            caller: false,
            turns: None,
            detached: false,
            on_restart: OnRestart::Fail,
            body,
            hidden: false,
            plan_exit: false,
            extra: std::collections::BTreeMap::new(),
            source: Source::Host,
        }
    }

    /// Names what the agent is by its content, for births in the journal. Where it was loaded from does not count.
    pub fn hash(&self) -> Hash {
        // Strings, numbers and maps with string keys always have a JSON form, so the empty text is never hashed.
        Hash::of(&serde_json::to_vec(self).unwrap_or_default())
    }

    /// The system prompt: the body, and the caller line where the manifest asks for it (G10).
    pub fn system(&self) -> Text {
        if self.caller { format!("{}\n\n{CALLER_LINE}", self.body.trim_end()).into() } else { self.body.clone() }
    }

    /// What the agent may do by its own word; met with the caller's authority before it counts.
    pub fn authority(&self) -> Authority {
        let all = || RuleSet { default: Verdict::Allow, rules: Vec::new() };
        Authority::of(self.rules.clone().unwrap_or_else(all))
    }

    /// Whether a session of it is offered `plan_exit`: a root session only, since nobody could approve it elsewhere (K14).
    pub fn offers_plan_exit(&self, is_root: bool) -> bool {
        self.plan_exit && is_root
    }

    /// Whether another agent may start it.
    pub fn spawnable(&self) -> bool {
        !self.hidden && matches!(self.mode, AgentMode::Subagent | AgentMode::All)
    }

    /// Whether a person may pick it.
    pub fn pickable(&self) -> bool {
        !self.hidden && matches!(self.mode, AgentMode::Primary | AgentMode::All)
    }
}

/// The first sentence of a prompt: the description of an agent that has none.
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
    fn the_caller_line_is_added_once_and_only_on_request() {
        assert_eq!(&*critic().system(), "Criticise.\n");
        let told = Manifest { caller: true, ..critic() };
        assert_eq!(&*told.system(), "Criticise.\n\nYour caller is another agent; return structured output.");
    }

    #[test]
    fn the_hash_names_the_content_and_not_the_place() {
        let here = critic();
        let there = Manifest { source: Source::File("elsewhere/critic.md".into()), ..critic() };
        assert_eq!(here.hash(), there.hash());
        for other in [
            Manifest { turns: Some(3), ..critic() },
            Manifest { pool: Some("cheap".into()), ..critic() },
            Manifest { settings: Settings { temperature: Some(0.5), ..Settings::default() }, ..critic() },
            Manifest { body: "Praise.\n".into(), ..critic() },
            Manifest { hidden: true, ..critic() },
            Manifest { plan_exit: true, ..critic() },
            Manifest { detached: true, ..critic() },
            Manifest { rules: Some(RuleSet { default: Verdict::Deny, rules: Vec::new() }), ..critic() },
        ] {
            assert_ne!(here.hash(), other.hash(), "{other:?}");
        }
    }

    #[test]
    fn mode_and_hidden_say_who_may_start_it() {
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
    fn a_description_falls_back_to_the_first_sentence() {
        assert_eq!(first_sentence("# Title\n\nReads\nfiles. And more."), "Reads files.");
        assert_eq!(first_sentence("no dot"), "no dot");
        assert_eq!(first_sentence("  \n"), "");
    }
}
