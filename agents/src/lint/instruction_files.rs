//! Checks of instruction files, one at a time.

use std::path::Path;

use super::{FileContent, OtherKind, ReadBelow, problem};
use crate::catalog::{AgentProblem, ProblemKind};
use crate::instructions::{InstructionArea, Instructions, LOCAL, NAMES};

/// Instruction files of products that nothing reads here.
const UNREAD: [&str; 4] = [".cursorrules", ".windsurfrules", "GEMINI.md", ".github/copilot-instructions.md"];

/// The folder of such files of Claude Code.
const RULES: &str = ".claude/rules";

/// Returns what the file is, if its name says that it is an instruction file.
pub(super) fn kind(path: &Path) -> Option<OtherKind> {
    // `.claude/CLAUDE.md` is a longer name than `CLAUDE.md`.
    let name = NAMES.into_iter().rev().chain([LOCAL]).find(|name| path.ends_with(name));
    if let Some(name) = name {
        let folder = path.ancestors().nth(Path::new(name).components().count())?;
        return Some(OtherKind::Instructions(folder.to_owned(), name));
    }
    let rules = path.ancestors().find(|above| above.ends_with(RULES));
    let below = rules.and_then(|rules| path.strip_prefix(rules).ok());
    let unread = UNREAD.into_iter().find(|name| path.ends_with(name)).map(str::to_owned);
    unread.or_else(|| below.map(|below| format!("{RULES}/{}", below.display()))).map(OtherKind::Unread)
}

pub(super) fn unread(path: &Path, name: &str) -> AgentProblem {
    let why = format!("is not read: import it in an `AGENTS.md`, by a line `@{name}`");
    problem(path, ProblemKind::Refused, why)
}

/// Checks the instruction file `name` of `folder`: alone, and next to the others of its directory.
pub(super) fn checked(folder: &Path, name: &str, read: ReadBelow<'_>) -> (Option<FileContent>, Vec<AgentProblem>) {
    let path = folder.join(name);
    let read = |path: &str| read(folder, path);
    let area = InstructionArea { path: folder, home: None, names: &[name], workspace: None, read: &read };
    let mut alone = Instructions::default();
    let is_used = alone.add(area);
    let mut problems = alone.problems().to_vec();
    let mut all = Instructions::default();
    all.add(InstructionArea { names: &NAMES, workspace: Some(""), ..area });
    let unused =
        all.problems().iter().find(|of| of.path == path && of.kind == ProblemKind::Warning && !problems.contains(of));
    problems.extend(unused.cloned());
    if !is_used && problems.is_empty() {
        problems.push(problem(&path, ProblemKind::Warning, "is empty, and adds nothing".to_owned()));
    }
    let gives = (is_used && unused.is_none()).then(|| FileContent::Instructions(alone.files().to_vec()));
    (gives, problems)
}
