//! Checks of agent files outside a catalog.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::catalog::{Catalog, Problem, ProblemKind, bad_rule, read_bounded};
use crate::front;
use crate::manifest::{Manifest, Source};

/// Result of checking one file.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// The file.
    pub path: PathBuf,
    /// Its agent, unless refused.
    pub agent: Option<Arc<Manifest>>,
    /// Its problems.
    pub problems: Vec<Problem>,
}

impl Checked {
    /// Whether the file gives no agent.
    pub fn is_refused(&self) -> bool {
        self.agent.is_none()
    }
}

/// Checks agent files, and all `*.md` below folders, as a workspace would load them. The second file of one name is refused, and so is a
/// rule for an agent that is neither among them nor in `around`.
pub fn lint(paths: &[PathBuf], around: &Catalog) -> Vec<Checked> {
    let mut all: Vec<Checked> = Vec::new();
    for path in paths {
        if !path.is_dir() {
            let checked = one(path, &all);
            all.push(checked);
            continue;
        }
        let (mut seen, mut files) = (Catalog::default(), Vec::new());
        seen.find(path, 0, &mut files);
        for problem in seen.problems() {
            all.push(Checked { path: problem.path.clone(), agent: None, problems: vec![problem.clone()] });
        }
        files.sort_unstable();
        for file in files {
            let checked = one(&file, &all);
            all.push(checked);
        }
    }
    let mut known = around.names();
    known.extend(all.iter().map(|file| match &file.agent {
        Some(agent) => agent.name.to_string(),
        None => file.path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
    }));
    for file in &mut all {
        if let Some(message) = file.agent.as_ref().and_then(|agent| bad_rule(agent, &known)) {
            file.agent = None;
            file.problems.push(Problem { path: file.path.clone(), kind: ProblemKind::Refused, message });
        }
    }
    all
}

fn one(path: &Path, before: &[Checked]) -> Checked {
    match read_bounded(path) {
        Ok(read) => text(path, &read, before),
        Err(message) => refused(path, message),
    }
}

fn refused(path: &Path, message: String) -> Checked {
    let problems = vec![Problem { path: path.to_owned(), kind: ProblemKind::Refused, message }];
    Checked { path: path.to_owned(), agent: None, problems }
}

/// Checks `text` as the agent file at `path`, which need not exist. [`lint`] checks rules for unknown agents.
pub fn text(path: &Path, text: &str, before: &[Checked]) -> Checked {
    let problem = |kind, message| Problem { path: path.to_owned(), kind, message };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let parsed = match front::parse(text, &stem, Source::File(path.to_owned())) {
        Ok(parsed) => parsed,
        Err(error) => return refused(path, error.to_string()),
    };
    let name = &parsed.manifest.name;
    let twin = before.iter().find(|other| other.agent.as_ref().is_some_and(|agent| agent.name == *name));
    if let Some(twin) = twin {
        return refused(path, format!("`{name}` is already there, from {}: rename one", twin.path.display()));
    }
    let mut problems = Vec::new();
    if Catalog::replaces_builtin(&parsed.manifest) {
        problems.push(problem(ProblemKind::Warning, format!("replaces the built-in agent `{name}`")));
    }
    problems.extend(parsed.warnings.into_iter().map(|warning| problem(ProblemKind::Warning, warning)));
    Checked { path: path.to_owned(), agent: Some(Arc::new(parsed.manifest)), problems }
}
