//! Assembly of prompts from their parts, in a fixed order.
//!
//! System prompt:
//! 1. the agent's prompt, and the skills that the agent names;
//! 2. instruction files and bootstrap files;
//! 3. the list of other skills;
//! 4. the profile's file and text, and the text of the call;
//! 5. instructions for a child of the dialect that started the session;
//! 6. hints for the dialects that the session is offered, and the profiles for `spawn`;
//! 7. `CALLER_LINE`.
//!
//! Empty parts are left out.
//!
//! First user message: the task, after blocks for context, files and tools.

use std::sync::Arc;

use subtend_session::authority::Authority;
use subtend_session::dialect::Dialect;
use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;

use crate::dialect;
use crate::instructions::{self, Instruction, Instructions};
use crate::manifest::{CALLER_LINE, Manifest};
use crate::markup::escape_tags;
use crate::profile::{Inherit, Profile, Reader};
use crate::skill::{self, Skill};

mod message;

/// Parts of a prompt. Empty parts add nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    pub body: Option<Text>,
    pub instructions: Vec<Arc<Instruction>>,
    pub bootstrap: Vec<FileText>,
    /// Skills that the session may read.
    pub skills: Vec<Arc<Skill>>,
    /// Skills that the agent names. The prompt has their texts.
    pub preloaded: Vec<Arc<Skill>>,
    /// The profile's `system_prompt_file`.
    pub prompt_file: Option<FileText>,
    /// The profile's own text.
    pub inline: Option<Text>,
    /// The `system_prompt` of the call.
    pub parameter: Option<Text>,
    /// The dialect that started the session; `None` if a user or `task` started it.
    pub started_by: Option<Dialect>,
    /// True if the session finds further tools with `get_tools`.
    pub discovers: bool,
    /// True if all tools of the agent are read-only.
    pub only_reads: bool,
    pub offered: Vec<Dialect>,
    /// The profiles that its calls of `spawn` may name.
    pub profiles: Vec<ListedProfile>,
    pub caller: bool,
    /// The task: the first user message.
    pub task: Option<Text>,
    pub context: Option<Text>,
    pub files: Vec<FileText>,
    /// Tools that the task describes. This list does not restrict the child's tools.
    pub tools: Vec<ToolSpec>,
}

/// Maximum size of the bootstrap files of one prompt, in bytes.
pub const MAX_BOOTSTRAP_BYTES: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileText {
    /// The path in the workspace, or the name that the call gave.
    pub name: Text,
    /// The text, or the reason why the file cannot be read.
    pub text: Result<Text, Text>,
}

impl FileText {
    pub fn read(name: &Text, read: Reader<'_>) -> Self {
        let text = crate::profile::check_confined(name).map_err(|why| format!("it {why}"));
        let text = text.and_then(|()| read(name));
        Self { name: Arc::clone(name), text: text.map(Text::from).map_err(Text::from) }
    }

    /// Omits the text of a bootstrap file that exceeds the remaining bytes. A prompt has a file as often as it is named.
    fn within(self, remaining: &mut usize) -> Self {
        let text = self.text.and_then(|text| {
            let rest = remaining.checked_sub(text.len());
            let why = || format!("bootstrap files may have {MAX_BOOTSTRAP_BYTES} bytes in total");
            *remaining = rest.ok_or_else(why)?;
            Ok(text)
        });
        Self { text, ..self }
    }
}

/// The part of a profile that models see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedProfile {
    pub name: Text,
    pub about: String,
    pub tools: Vec<Text>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembled {
    pub system: Text,
    /// The first user message, if any.
    pub first: Option<Text>,
    /// Warnings for users about files that were omitted.
    pub warnings: Vec<String>,
}

impl Parts {
    pub fn of_agent(manifest: &Manifest) -> Self {
        Self { body: Some(Arc::clone(&manifest.body)), caller: manifest.caller, ..Self::default() }
    }

    /// Returns the parts of the prompt of a child that `spawn` starts. `caller` is the agent of the calling session,
    /// and `named` is the agent that the profile names. Without a profile, the child has the prompt of `caller`. If the
    /// profile lists bootstrap files, they replace the instruction files.
    pub fn of_spawn(
        profile: Option<&Profile>,
        (caller, named): (&Manifest, Option<&Manifest>),
        (instructions, authority): (&Instructions, &Authority),
        read: Reader<'_>,
    ) -> Self {
        let files = Profile::bootstrap(profile, instructions);
        let instructed = profile.is_none_or(|profile| profile.bootstrap_files.is_empty());
        let manifest = named.unwrap_or(caller);
        let inherits = profile.is_none_or(|profile| profile.prompt == Inherit::Inherit);
        let mut remaining = MAX_BOOTSTRAP_BYTES;
        let bootstrap = files.iter().map(|file| FileText::read(file, read).within(&mut remaining)).collect();
        let bodies = [inherits.then_some(caller), named].into_iter().flatten().map(|manifest| &*manifest.body);
        Self {
            body: join_parts(bodies),
            instructions: if instructed { instructions.under(manifest, authority) } else { Vec::new() },
            bootstrap,
            prompt_file: profile.and_then(|of| of.system_prompt_file.as_ref()).map(|file| FileText::read(file, read)),
            inline: profile.and_then(|profile| profile.system_prompt.clone()),
            started_by: Some(Dialect::Spawn),
            caller: manifest.caller,
            ..Self::default()
        }
    }

    /// Adds the instruction files that a session of `manifest` may read under that authority.
    #[must_use]
    pub fn with_instructions(mut self, by: &Instructions, manifest: &Manifest, authority: &Authority) -> Self {
        self.instructions = by.under(manifest, authority);
        self
    }

    /// Adds the dialects that the session is offered, and the profiles that it may name.
    #[must_use]
    pub fn offering(mut self, offered: &[Dialect], profiles: impl FnOnce() -> Vec<ListedProfile>) -> Self {
        self.offered = offered.to_vec();
        self.profiles = if offered.contains(&Dialect::Spawn) { profiles() } else { Vec::new() };
        self
    }
}

/// Assembles a prompt. Equal parts always give the same prompt.
pub fn assemble(parts: &Parts) -> Assembled {
    let mut warnings = Vec::new();
    let mut system: Vec<&str> = Vec::new();
    let instructions = instructions::block(&parts.instructions);
    let own_skills = skill::texts(&parts.preloaded);
    system.extend(parts.body.as_deref());
    system.extend(own_skills.as_deref());
    system.extend(instructions.as_deref());
    for file in &parts.bootstrap {
        match &file.text {
            Ok(text) => system.push(text),
            Err(why) => warnings.push(format!("the bootstrap file `{}` is left out: {why}", file.name)),
        }
    }
    let listed: Vec<Arc<Skill>> =
        parts.skills.iter().filter(|skill| !parts.preloaded.contains(skill)).map(Arc::clone).collect();
    let skills = skill::block(&listed);
    system.extend(skills.as_deref());
    match &parts.prompt_file {
        Some(FileText { text: Ok(text), .. }) => system.push(text),
        Some(FileText { name, text: Err(why) }) => {
            warnings.push(format!("the prompt file `{name}` of the profile is left out: {why}"));
        }
        None => {}
    }
    system.extend([&parts.inline, &parts.parameter].into_iter().filter_map(|part| part.as_deref()));
    let situation =
        parts.started_by.and_then(|dialect| dialect::instructions(dialect, parts.discovers, parts.only_reads));
    system.extend(situation.as_deref());
    let offers = offers(&parts.offered, &parts.profiles);
    system.extend(offers.as_deref());
    system.extend(parts.caller.then_some(CALLER_LINE));
    Assembled {
        system: join_parts(system).unwrap_or_else(|| "".into()),
        first: message::first_message(parts),
        warnings,
    }
}

fn join_parts<'a>(parts: impl IntoIterator<Item = &'a str>) -> Option<Text> {
    let parts: Vec<&str> = parts.into_iter().map(trim_part).filter(|part| !part.trim().is_empty()).collect();
    (!parts.is_empty()).then(|| parts.join("\n\n").into())
}

fn trim_part(part: &str) -> &str {
    part.trim_start_matches(['\r', '\n']).trim_end()
}

const HEADING: &str = "When to hand work to other agents:\n\n";

/// Returns the part of a system prompt about the offered dialects and profiles, or `None` if no dialect is offered.
pub fn offers(offered: &[Dialect], profiles: &[ListedProfile]) -> Option<Text> {
    let hints: Vec<&str> = offered.iter().map(|dialect| dialect::hint(*dialect)).collect();
    let hints = (!hints.is_empty()).then(|| format!("{HEADING}{}", hints.join("\n")))?;
    let profiles = profile_block(profiles);
    join_parts([Some(&*hints), profiles.as_deref()].into_iter().flatten())
}

/// Replaces the part about dialects and profiles by `offers`: what the host currently offers.
pub fn with_offers(system: &Text, offers: Option<&str>) -> Text {
    let (before, after) = around_offers(system);
    // This runs at every call. A prompt that does not change is not copied.
    if offers.is_none() && after.is_empty() && trim_part(before).len() == system.len() {
        return Arc::clone(system);
    }
    let parts = [before, offers.unwrap_or_default(), after];
    let made = join_parts(parts).unwrap_or_default();
    if made == *system { Arc::clone(system) } else { made }
}

/// Splits around the part about dialects and profiles, or before the caller line, where it would be.
fn around_offers(system: &str) -> (&str, &str) {
    let begins = |at: &usize| *at == 0 || system.get(..*at).is_some_and(|before| before.ends_with("\n\n"));
    let found = system.rfind(HEADING).filter(begins).and_then(|start| {
        let (before, rest) = (system.get(..start)?, system.get(start..)?);
        let hints = rest.get(HEADING.len()..)?;
        let (hints, after) = hints.split_once("\n\n").unwrap_or((hints, ""));
        let profiles = after.starts_with(PROFILES).then(|| after.split_once(PROFILES_END)).flatten();
        hints.lines().all(|line| line.starts_with("- ")).then_some((before, profiles.map_or(after, |(_, after)| after)))
    });
    let caller = || system.strip_suffix(CALLER_LINE).filter(|before| before.is_empty() || before.ends_with("\n\n"));
    found.or_else(|| caller().map(|before| (before, CALLER_LINE))).unwrap_or((system, ""))
}

const PROFILES: &str = "<available_spawn_profiles>\n";
const PROFILES_END: &str = "</available_spawn_profiles>";

/// Maximum size of the list of profiles in a prompt, in bytes.
const MAX_PROFILE_BYTES: usize = 64 << 10;

/// Returns the list of profiles for the prompt, or `None` if there are no profiles. Those that do not fit are counted.
pub fn profile_block(profiles: &[ListedProfile]) -> Option<String> {
    if profiles.is_empty() {
        return None;
    }
    let (mut block, mut left_out) = (String::from(PROFILES), 0_usize);
    for profile in profiles {
        let tools = if profile.tools.is_empty() { "none".to_owned() } else { profile.tools.join(", ") };
        let stop = if profile.about.ends_with(['.', '!', '?']) || profile.about.is_empty() { "" } else { "." };
        let text = format!("{}{stop} Tools: {tools}.", profile.about);
        let (name, text) = (escape_tags(&profile.name), escape_tags(text.trim()));
        let line = format!("  <profile name=\"{name}\">{text}</profile>\n");
        match block.len().saturating_add(line.len()) > MAX_PROFILE_BYTES {
            true => left_out = left_out.saturating_add(1),
            false => block.push_str(&line),
        }
    }
    if left_out > 0 {
        block.push_str(&format!("  ({left_out} more are left out)\n"));
    }
    block.push_str(PROFILES_END);
    Some(block)
}

#[cfg(test)]
mod tests;
