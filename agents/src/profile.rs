//! Profiles: named ways to start a child by `spawn`, as a configuration says them (S5).

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use subtend_session::ids::Text;

use crate::front::is_tool_name;
use crate::manifest::first_sentence;
use crate::name;

/// The files that a child's prompt begins with where its profile names none, and where it has no profile.
pub const BOOTSTRAP: [&str; 2] = ["AGENTS.md", "ENVIRONMENT.md"];

/// Reads a file of the workspace by its relative path; the error says why it cannot be read. Whoever gives one sees to it that
/// it reads nothing outside: by a handle of the directory, as a workspace has it.
pub type Reader<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// A way to start a child: prompt, tools, models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Profile {
    /// Its name: the key that it stands under.
    #[serde(skip)]
    pub name: Text,
    /// What it is for, as models read it. Without it: the first sentence of its prompt.
    pub description: Text,
    /// The agent whose manifest and authority count for the child; without it the caller's own. Its prompt comes first.
    #[serde(deserialize_with = "none_if_empty")]
    pub agent: Option<Text>,
    /// Files of the workspace that the child's prompt begins with, in this order. Empty: AGENTS.md and ENVIRONMENT.md. One that
    /// is not there is left out.
    pub bootstrap_files: Vec<Text>,
    /// A file of the workspace with instructions for the child, after the bootstrap files. It must be there.
    #[serde(deserialize_with = "none_if_empty")]
    pub system_prompt_file: Option<Text>,
    /// Instructions for the child, after those of the file.
    #[serde(deserialize_with = "none_if_empty")]
    pub system_prompt: Option<Text>,
    /// Whether the prompt of the caller's agent comes before all of that.
    pub prompt: Inherit,
    /// The tools that the child is offered at most. Empty: all that its caller has.
    pub tools: Vec<Text>,
    /// The pool of models that the child uses. Without it: the pool or model that sessions use by default.
    #[serde(deserialize_with = "none_if_empty")]
    pub pool: Option<Text>,
    /// What stands in `system_prompt_file`, read when the profile was loaded.
    #[serde(skip)]
    pub file_text: Option<Text>,
}

/// Whether a child's prompt takes in that of its caller's agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Inherit {
    /// It does not: the child starts with what its profile says.
    #[default]
    Own,
    /// It does.
    Inherit,
}

/// In configurations an empty text says as much as none.
pub(crate) fn none_if_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text>, D::Error> {
    let text = Option::<Text>::deserialize(deserializer)?;
    Ok(text.filter(|text| !text.trim().is_empty()))
}

/// A profile that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the profile `{profile}` cannot be used: {why}")]
pub struct BadProfile {
    /// Its name.
    pub profile: Text,
    /// What is wrong, and what to do.
    pub why: String,
}

impl Profile {
    /// What models read of it: the description, else the first sentence of the prompt (S5).
    pub fn about(&self) -> String {
        let prompts = [self.system_prompt.as_deref(), self.file_text.as_deref()];
        let first = || prompts.into_iter().flatten().map(first_sentence).find(|sentence| !sentence.is_empty());
        match self.description.trim() {
            "" => first().unwrap_or_default(),
            said => said.split_whitespace().collect::<Vec<_>>().join(" "),
        }
    }

    /// The files that the child's prompt begins with.
    pub fn bootstrap(&self) -> Vec<Text> {
        if self.bootstrap_files.is_empty() { BOOTSTRAP.map(Text::from).to_vec() } else { self.bootstrap_files.clone() }
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
            return Err(bad(format!(
                "its `tools` name {tool:?}, which no tool can be called: names have at most 64 of [a-zA-Z0-9_-]"
            )));
        }
        let named = self.bootstrap_files.iter().map(|file| ("bootstrap_files", file));
        for (key, file) in named.chain(self.system_prompt_file.iter().map(|file| ("system_prompt_file", file))) {
            confined(file).map_err(|why| bad(format!("its `{key}` names `{file}`, which {why}")))?;
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

/// Whether a path is plainly one of the workspace. That no link on it leads out is for whoever opens it.
///
/// # Errors
/// With what it does instead, to follow `which`.
pub fn confined(path: &str) -> Result<(), &'static str> {
    if path.trim().is_empty() || path.contains('\0') {
        return Err("is no path: name a file of the workspace");
    }
    if path.starts_with(['/', '~', '\\']) || path.contains(":\\") {
        return Err("is not relative: paths start at the workspace");
    }
    if path.split(['/', '\\']).any(|part| part == "..") {
        return Err("leads out of the workspace by `..`: name a file in it");
    }
    Ok(())
}

/// All profiles by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profiles(BTreeMap<Text, Arc<Profile>>);

impl Profiles {
    /// Takes profiles as a configuration has them, and reads their prompt files.
    ///
    /// # Errors
    /// [`BadProfile`] for the first that cannot be used: its prompt file is missing, say, or lies outside.
    pub fn load(profiles: BTreeMap<Text, Profile>, read: Reader<'_>) -> Result<Self, BadProfile> {
        let loaded = profiles.into_iter().map(|(name, profile)| {
            let profile = profile.load(Arc::clone(&name), read)?;
            Ok((name, Arc::new(profile)))
        });
        loaded.collect::<Result<_, _>>().map(Self)
    }

    /// The profile of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<Profile>> {
        self.0.get(name)
    }

    /// All of them, by name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Profile>> {
        self.0.values()
    }

    /// Whether there are none: then the `profile` parameter is an open text, and no prompt speaks of profiles (S5).
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their names, as the schema of `spawn` lists them.
    pub fn names(&self) -> Vec<Text> {
        self.0.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests;
