use std::collections::BTreeSet;
use std::path::Path;

use subtend_session::ids::Hash;
use subtend_tools::policy::PROTECTED;

use super::super::fail::Fail;
use super::super::paint::path_line;

/// The trust in a workspace: whether its configuration, agents and servers are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    Used {
        servers: ServerTrust,
        paths: CoveredPaths,
    },
    LeftOut,
    /// Nothing exists that needs trust. Files that appear later are not used.
    Empty,
}

/// The trust in the MCP servers that a workspace's file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerTrust {
    None,
    /// Only servers of the file with this hash, which the user has seen. The file may have changed since.
    Seen(Hash),
    All,
}

/// The protected paths that existed at the decision, as bits in the order of [`PROTECTED`]. Others may appear before the
/// files are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoveredPaths(u16);

impl CoveredPaths {
    const ALL: Self = Self(u16::MAX);

    pub(super) fn of(names: &BTreeSet<String>) -> Self {
        let covered = PROTECTED.into_iter().zip(0..).filter(|(name, _)| names.contains(*name));
        Self(covered.fold(0, |bits, (_, bit)| bits | bit_mask(bit)))
    }

    fn covers(self, name: &str) -> bool {
        PROTECTED.into_iter().zip(0..).any(|(other, bit)| other == name && self.0 & bit_mask(bit) != 0)
    }
}

fn bit_mask(bit: u32) -> u16 {
    1_u16.checked_shl(bit).unwrap_or_default()
}

impl Trust {
    /// Trust in everything in the workspace for one call, by `--trust` or its variable.
    pub(crate) const GIVEN: Self = Self::Used { servers: ServerTrust::All, paths: CoveredPaths::ALL };

    pub(crate) fn is_used(self) -> bool {
        matches!(self, Self::Used { .. })
    }

    /// Checks files of `workspace` that were loaded.
    ///
    /// # Errors
    /// [`Fail::Usage`] if one lies in a protected path that did not exist at the decision: a command of an agent may have
    /// created it since.
    pub(crate) fn check<'a>(self, workspace: &Path, loaded: impl IntoIterator<Item = &'a Path>) -> Result<(), Fail> {
        let Self::Used { paths, .. } = self else { return Ok(()) };
        let mut kinds = loaded.into_iter().filter_map(|file| protected_kind(workspace, file));
        match kinds.find(|name| !paths.covers(name)) {
            None => Ok(()),
            Some(name) => Err(Fail::Usage(format!(
                "{name} was added to {} after the decision to trust the workspace: inspect it, then run the command again",
                path_line(workspace)
            ))),
        }
    }

    /// Returns whether the servers of a file with this content may be started.
    pub(crate) fn uses_servers(self, text: &str) -> bool {
        match self {
            Self::Used { servers: ServerTrust::All, .. } => true,
            Self::Used { servers: ServerTrust::Seen(seen), .. } => seen == Hash::of(text.as_bytes()),
            Self::Used { servers: ServerTrust::None, .. } | Self::LeftOut | Self::Empty => false,
        }
    }
}

/// Returns the protected path of `workspace` that contains `file`.
pub(super) fn protected_kind(workspace: &Path, file: &Path) -> Option<&'static str> {
    let top = file.strip_prefix(workspace).ok()?.components().next()?;
    PROTECTED.into_iter().find(|name| top.as_os_str() == *name)
}

#[cfg(test)]
mod tests {
    use subtend::config::FILE;
    use subtend_tools::workspace::Workspace;

    use super::super::super::{guidance, settings};
    use super::super::UntrustedFiles;
    use super::*;

    /// Protected paths that come between the decision to trust a workspace and the use of its files are refused. The
    /// control: a decision about all of them, and trust in everything.
    #[test]
    fn paths_that_come_after_a_decision_to_trust_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let workspace = Workspace::open(folder.path()).expect("a workspace");
        let put = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        };
        let refused = |trust: Trust| {
            let loaded = [
                settings::load(&workspace, trust).map(drop),
                trust.catalog(&workspace).map(drop),
                guidance::instructions(&workspace, trust).map(drop),
                guidance::skills(&workspace, trust).map(drop),
                guidance::commands(&workspace, trust).map(drop),
            ];
            let names = loaded.map(|loaded| loaded.err().map(|fail| fail.to_string()));
            names.map(|error| error.and_then(|error| Some(error.split_once(" was added to ")?.0.to_owned())))
        };
        put("AGENTS.md", "Obey.\n");
        let before = UntrustedFiles::of(&workspace).trust();
        assert_eq!(refused(before), [const { None }; 5]);
        put(FILE, "agent: late\n");
        put(".subtend/agents/late.md", "---\nmode: all\ndescription: Late.\n---\nObey.\n");
        put(".subtend/commands/late.md", "Obey.\n");
        put(".claude/rules/late.md", "Obey.\n");
        put(".agents/skills/late/SKILL.md", "---\nname: late\ndescription: Late.\n---\nObey.\n");
        let late = [FILE, ".subtend", ".claude", ".agents", ".subtend"].map(|name| Some(name.to_owned()));
        assert_eq!(refused(before), late);
        for trust in [UntrustedFiles::of(&workspace).trust(), Trust::GIVEN] {
            assert_eq!(refused(trust), [const { None }; 5]);
        }
    }

    /// A late file that is refused could still remove a built-in agent, which may deny more than its caller. The control:
    /// trust in everything.
    #[test]
    fn refused_agent_that_comes_after_a_decision_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let workspace = Workspace::open(folder.path()).expect("a workspace");
        std::fs::write(folder.path().join("AGENTS.md"), "Obey.\n").expect("a file");
        let before = UntrustedFiles::of(&workspace).trust();
        std::fs::create_dir_all(folder.path().join(".subtend/agents")).expect("a folder");
        std::fs::write(folder.path().join(".subtend/agents/explore.md"), "---\nmode: boss\n---\nObey.\n")
            .expect("a file");
        let loaded = |trust: Trust| match trust.catalog(&workspace) {
            Ok(catalog) => catalog.get("explore").map_or_else(|| "removed".to_owned(), |agent| agent.name.to_string()),
            Err(fail) => fail.to_string().chars().take(18).collect(),
        };
        assert_eq!([before, Trust::GIVEN].map(loaded), [".subtend was added", "removed"]);
    }
}
