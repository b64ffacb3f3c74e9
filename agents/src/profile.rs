//! Profiles: named ways to start a child with `spawn`. They come from a configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use subtend_session::authority::Authority;
use subtend_session::ids::Text;

use crate::front::{TOOL_NAMES, is_tool_name};
use crate::instructions::Instructions;
use crate::manifest::first_sentence;
use crate::name;

/// A function that reads a file of the workspace by its relative path. The error is the reason why the file cannot be
/// read. The function must prevent reads outside the workspace, for example by a directory handle.
pub type Reader<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Maximum size of the prompt files of all profiles, in bytes. Each profile keeps its own copy.
pub const MAX_PROMPT_FILES: usize = 4 << 20;

/// Maximum bytes of the purpose of a profile, as of that of an agent: each prompt has those of all profiles.
const MAX_ABOUT: usize = 1_000;

/// Maximum number of `bootstrap_files` of a profile.
pub const MAX_BOOTSTRAP_FILES: usize = 64;

/// A named way to start a child: its prompt, tools and models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Profile {
    /// Its name: its key in the configuration.
    #[serde(skip)]
    pub name: Text,
    /// Its purpose, for models; by default the first sentence of its prompt.
    pub description: Text,
    /// The agent whose manifest and authority the child has; without it the caller's own. Its prompt comes first.
    #[serde(deserialize_with = "none_if_empty")]
    pub agent: Option<Text>,
    /// Files of the workspace that the child's prompt begins with, in this order. Empty: the instruction files, such as AGENTS.md, and
    /// ENVIRONMENT.md. A missing file is omitted.
    pub bootstrap_files: Vec<Text>,
    /// A file of the workspace with instructions for the child, after the bootstrap files. It must exist.
    #[serde(deserialize_with = "none_if_empty")]
    pub system_prompt_file: Option<Text>,
    /// Instructions for the child. They follow the instructions in the file.
    #[serde(deserialize_with = "none_if_empty")]
    pub system_prompt: Option<Text>,
    /// Whether the prompt of the caller's agent precedes these parts.
    pub prompt: Inherit,
    /// The tools that the child may be offered. Empty: all that its caller has.
    pub tools: Vec<Text>,
    /// The pool of models that the child uses. By default it uses the pool of sessions.
    #[serde(deserialize_with = "none_if_empty")]
    pub pool: Option<Text>,
    /// The text of `system_prompt_file`, read when the profile was loaded. A child's prompt has what the child may read.
    #[serde(skip)]
    pub file_text: Option<Text>,
}

/// Whether a child's prompt includes the prompt of its caller's agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Inherit {
    /// The child starts with its profile's prompt alone.
    #[default]
    Own,
    /// The prompt of the caller's agent comes first.
    Inherit,
}

pub(crate) fn none_if_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text>, D::Error> {
    let text = Option::<Text>::deserialize(deserializer)?;
    Ok(text.filter(|text| !text.trim().is_empty()))
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the profile `{profile}` cannot be used: {why}")]
pub struct BadProfile {
    pub profile: Text,
    pub why: String,
}

impl Profile {
    /// Returns its purpose: the description, or else the first sentence of the prompt. A long one is truncated.
    pub fn about(&self) -> String {
        let prompts = [self.system_prompt.as_deref(), self.file_text.as_deref()];
        let first = || prompts.into_iter().flatten().map(first_sentence).find(|sentence| !sentence.is_empty());
        let about = match self.description.trim() {
            "" => first().unwrap_or_default(),
            text => text.split_whitespace().collect::<Vec<_>>().join(" "),
        };
        match about.get(..about.floor_char_boundary(MAX_ABOUT)) {
            Some(start) if start.len() < about.len() => format!("{start}…"),
            Some(_) | None => about,
        }
    }

    /// Returns its purpose for models that `authority` limits. Where that restricts reading, no part of the prompt file
    /// is shown.
    pub fn about_under(&self, authority: &Authority) -> String {
        match self.file_text {
            Some(_) if !authority.unrestricted(&["fs.read"]) => Self { file_text: None, ..self.clone() }.about(),
            Some(_) | None => self.about(),
        }
    }

    /// Returns the bootstrap files of a child: those of its profile, or the default files that are not among `instructions`.
    pub fn bootstrap(profile: Option<&Self>, instructions: &Instructions) -> Vec<Text> {
        let own = profile.map(|profile| &profile.bootstrap_files).filter(|files| !files.is_empty());
        own.cloned().unwrap_or_else(|| instructions.bootstrap())
    }

    fn load(mut self, name: Text, read: Reader<'_>) -> Result<Self, BadProfile> {
        let bad = |why: String| BadProfile { profile: name.clone(), why };
        name::check(&name).map_err(|_| {
            bad("a name has 1 to 64 of a-z, 0-9, `-` and `_`, and begins with a letter or a digit".to_owned())
        })?;
        if let Some(agent) = &self.agent {
            name::check(agent).map_err(|error| bad(format!("its `agent`: {error}")))?;
        }
        if let Some(tool) = self.tools.iter().find(|tool| !is_tool_name(tool)) {
            return Err(bad(format!("its `tools` name {tool:?}, which is not a valid name of a tool: {TOOL_NAMES}")));
        }
        if self.bootstrap_files.len() > MAX_BOOTSTRAP_FILES {
            return Err(bad(format!("its `bootstrap_files` name more than {MAX_BOOTSTRAP_FILES} files")));
        }
        let named = self.bootstrap_files.iter().map(|file| ("bootstrap_files", file));
        for (key, file) in named.chain(self.system_prompt_file.iter().map(|file| ("system_prompt_file", file))) {
            check_confined(file).map_err(|why| bad(format!("its `{key}` names `{file}`, which {why}")))?;
        }
        if let Some(file) = &self.system_prompt_file {
            let text =
                read(file).map_err(|why| bad(format!("its `system_prompt_file` `{file}` cannot be read: {why}")))?;
            self.file_text = Some(text.into());
        }
        self.name = name;
        Ok(self)
    }
}

/// Checks that a path is relative and has no `..`. Links are not resolved, so the reader must check them. The error
/// text follows the word "which" in a sentence.
pub fn check_confined(path: &str) -> Result<(), &'static str> {
    if path.trim().is_empty() || path.contains('\0') {
        return Err("is not a path: name a file of the workspace");
    }
    if path.starts_with(['/', '~', '\\']) || path.contains(":\\") {
        return Err("is not relative: paths start at the workspace");
    }
    if path.split(['/', '\\']).any(|part| part == "..") {
        return Err("leads out of the workspace by `..`: name a file in it");
    }
    Ok(())
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profiles(BTreeMap<Text, Arc<Profile>>);

impl Profiles {
    /// Loads profiles of a configuration with their prompt files. Returns [`BadProfile`] for the first one that cannot
    /// be used.
    pub fn load(profiles: BTreeMap<Text, Profile>, read: Reader<'_>) -> Result<Self, BadProfile> {
        let mut remaining = MAX_PROMPT_FILES;
        let loaded = profiles.into_iter().map(|(name, profile)| {
            let profile = profile.load(Arc::clone(&name), read)?;
            let bytes = profile.file_text.as_ref().map_or(0, |text| text.len());
            remaining = remaining.checked_sub(bytes).ok_or_else(|| BadProfile {
                profile: Arc::clone(&name),
                why: format!("the `system_prompt_file` of all profiles may have {MAX_PROMPT_FILES} bytes in total"),
            })?;
            Ok((name, Arc::new(profile)))
        });
        loaded.collect::<Result<_, _>>().map(Self)
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Profile>> {
        self.0.get(name)
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Profile>> {
        self.0.values()
    }

    /// Returns whether there are no profiles. In that case the parameter `profile` accepts any text, and prompts do not
    /// mention profiles.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn names(&self) -> Vec<Text> {
        self.0.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests;
