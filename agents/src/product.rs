//! The products whose agent files are loaded.

use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Product {
    /// Claude Code: Markdown in `.claude/agents`.
    Claude,
    /// OpenCode, both generations: Markdown in `.opencode/agent` and `.opencode/agents`.
    OpenCode,
    /// Codex: TOML in `.codex/agents`.
    Codex,
}

impl Product {
    /// All products. If several have a file of one name, the product that comes first wins.
    pub const ALL: [Self; 3] = [Self::Claude, Self::OpenCode, Self::Codex];

    pub fn name(self) -> &'static str {
        match self {
            Self::Claude => "Claude Code",
            Self::OpenCode => "OpenCode",
            Self::Codex => "Codex",
        }
    }

    /// Returns its folder in a workspace.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Claude => ".claude",
            Self::OpenCode => ".opencode",
            Self::Codex => ".codex",
        }
    }

    /// Returns the folders of agents below [`Product::folder`], or below the user's folder of the product.
    pub fn agent_folders(self) -> &'static [&'static str] {
        match self {
            Self::Claude | Self::Codex => &["agents"],
            Self::OpenCode => &["agent", "agents"],
        }
    }

    pub fn skill_folders(self) -> &'static [&'static str] {
        match self {
            Self::Claude | Self::Codex => &["skills"],
            Self::OpenCode => &["skill", "skills"],
        }
    }

    pub fn command_folders(self) -> &'static [&'static str] {
        match self {
            Self::Claude => &["commands"],
            Self::OpenCode => &["command", "commands"],
            Self::Codex => &["prompts"],
        }
    }

    pub fn rule_folders(self) -> &'static [&'static str] {
        match self {
            Self::Claude => &["rules"],
            Self::OpenCode | Self::Codex => &[],
        }
    }

    pub fn extension(self) -> &'static str {
        match self {
            Self::Claude | Self::OpenCode => "md",
            Self::Codex => "toml",
        }
    }

    /// Returns names of the user's instruction file in the product's folder in the home directory. The first wins.
    pub fn instruction_files(self) -> &'static [&'static str] {
        match self {
            Self::Claude => &["CLAUDE.md"],
            Self::OpenCode => &["AGENTS.md"],
            Self::Codex => &["AGENTS.override.md", "AGENTS.md"],
        }
    }

    /// Returns the product whose folder of agents is in the path.
    pub fn of(path: &Path) -> Option<Self> {
        let names: Vec<_> = path.iter().collect();
        let pair = |pair: &[&std::ffi::OsStr]| {
            let [above, below] = pair else { return None };
            Self::ALL.into_iter().find(|product| {
                let folders = product.agent_folders();
                *above == product.folder() && folders.iter().any(|folder| *below == *folder)
            })
        };
        names.windows(2).rev().find_map(pair)
    }
}
