use std::path::Path;

use super::{FileContent, OtherKind, ReadBelow, problem};
use crate::catalog::{AgentProblem, ProblemKind, has_ending};
use crate::instructions::rules::{FOLDER as RULES, RuleFiles};
use crate::instructions::{InstructionArea, Instructions, LOCAL, NAMES};

/// Instruction files of other products that subtend does not read.
const UNREAD: [&str; 4] = [".cursorrules", ".windsurfrules", "GEMINI.md", ".github/copilot-instructions.md"];

/// Returns the kind of the file, if it has the name of an instruction file.
pub(super) fn kind(path: &Path) -> Option<OtherKind> {
    // The order is reversed so that `.claude/CLAUDE.md` is found before `CLAUDE.md`.
    let name = NAMES.into_iter().rev().chain([LOCAL]).find(|name| path.ends_with(name));
    if let Some(name) = name {
        let folder = path.ancestors().nth(Path::new(name).components().count())?;
        return Some(OtherKind::Instructions(folder.to_owned(), name));
    }
    let unread = UNREAD.into_iter().find(|name| path.ends_with(name)).map(str::to_owned);
    unread.map(OtherKind::Unread).or_else(|| rule(path))
}

fn rule(path: &Path) -> Option<OtherKind> {
    let rules = path.ancestors().skip(1).find(|above| above.ends_with(RULES))?;
    let directory = rules.ancestors().nth(Path::new(RULES).components().count())?;
    let name = path.strip_prefix(directory).ok()?.to_string_lossy().into_owned();
    Some(match has_ending(path, "md") {
        true => OtherKind::Rule(directory.to_owned(), name),
        false => OtherKind::Unread(name),
    })
}

pub(super) fn read_problem(path: &Path, name: &str) -> AgentProblem {
    let why = format!("is not read: import it in an `AGENTS.md`, by a line `@{name}`");
    problem(path, ProblemKind::Refused, why)
}

/// Keeps the paths only. Many files may import the same text, and each import is a copy of it.
fn content(read: &Instructions) -> FileContent {
    FileContent::Instructions(read.files().iter().map(|file| file.path.clone()).collect())
}

/// Checks the file alone, and together with the others of `folder`, because one of them may replace it.
pub(super) fn check_file(folder: &Path, name: &str, read: ReadBelow<'_>) -> (Option<FileContent>, Vec<AgentProblem>) {
    let path = folder.join(name);
    let read = |path: &str| read(folder, path);
    let area = InstructionArea { path: folder, home: None, names: &[name], workspace: None, rules: None, read: &read };
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
    let gives = (is_used && unused.is_none()).then(|| content(&alone));
    (gives, problems)
}

pub(super) fn check_rule(folder: &Path, name: &str, read: ReadBelow<'_>) -> (Option<FileContent>, Vec<AgentProblem>) {
    let path = folder.join(name);
    let read = |path: &str| read(folder, path);
    let rules = RuleFiles { paths: vec![name.to_owned()], problems: Vec::new() };
    let area =
        InstructionArea { path: folder, home: None, names: &[], workspace: None, rules: Some(&rules), read: &read };
    let mut alone = Instructions::default();
    alone.add(area);
    let mut problems = alone.problems().to_vec();
    let is_used = !alone.files().is_empty();
    if !is_used && problems.is_empty() {
        problems.push(problem(&path, ProblemKind::Warning, "is empty, and adds nothing".to_owned()));
    }
    (is_used.then(|| content(&alone)), problems)
}
