//! Checks of agent files outside a catalog.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::catalog::products::id;
use crate::catalog::{AgentProblem, Catalog, ProblemKind, bad_rule, has_ending, read_bounded};
use crate::foreign::{self, file::ForeignFile};
use crate::front;
use crate::manifest::{Manifest, Source};
use crate::product::Product;

/// Result of checking one file.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    pub path: PathBuf,
    /// Its agent, unless refused.
    pub agent: Option<Arc<Manifest>>,
    /// Its problems.
    pub problems: Vec<AgentProblem>,
}

impl Checked {
    pub fn is_refused(&self) -> bool {
        self.agent.is_none()
    }
}

/// Checks agent files, and all below folders, as a workspace would load them. The second file of one name is refused, and so is a rule for
/// an agent that is neither among them nor in `around`.
///
/// A file is of `product`, or else of the product whose folder its path names, or else a native one.
pub fn lint(paths: &[PathBuf], product: Option<Product>, around: &Catalog) -> Vec<Checked> {
    let mut all: Vec<Checked> = Vec::new();
    for path in paths {
        if !path.is_dir() {
            let of = product.or_else(|| product_of(path));
            let checked = one(path, of.map(|product| (product, folder_of(path))), &all);
            all.push(checked);
            continue;
        }
        let of = |path: &Path| product.or_else(|| product_of(path));
        let wanted = |path: &Path| has_ending(path, of(path).map_or("md", Product::ending));
        let (mut seen, mut files) = (Catalog::default(), Vec::new());
        seen.find(path, 0, &wanted, &mut files);
        for problem in seen.problems() {
            all.push(Checked { path: problem.path.clone(), agent: None, problems: vec![problem.clone()] });
        }
        files.sort_unstable();
        for file in files {
            let folder = || if Product::of(&file).is_some() { folder_of(&file) } else { path.clone() };
            let checked = one(&file, of(&file).map(|product| (product, folder())), &all);
            all.push(checked);
        }
    }
    let mut known = around.names();
    known.extend(all.iter().map(|file| match &file.agent {
        Some(agent) => agent.name.to_string(),
        None => file.path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
    }));
    for file in &mut all {
        let native = file.agent.as_ref().filter(|agent| matches!(agent.source, Source::File(_)));
        if let Some(message) = native.and_then(|agent| bad_rule(agent, &known)) {
            file.agent = None;
            file.problems.push(AgentProblem {
                path: file.path.clone(),
                kind: ProblemKind::Refused,
                product: None,
                message,
            });
        }
    }
    all
}

fn product_of(path: &Path) -> Option<Product> {
    Product::of(path).or_else(|| Product::of(&std::path::absolute(path).ok()?))
}

/// Returns the folder of agents that the path names, or else the one that the file is in.
fn folder_of(path: &Path) -> PathBuf {
    let is_agents =
        |above: &&Path| Product::of(above).is_some() && above.parent().is_some_and(|up| Product::of(up).is_none());
    let found = path.ancestors().skip(1).filter(is_agents).last();
    found.or_else(|| path.parent()).unwrap_or(path).to_owned()
}

fn one(path: &Path, of: Option<(Product, PathBuf)>, before: &[Checked]) -> Checked {
    let text = match read_bounded(path) {
        Ok(text) => text,
        Err(message) => return refused(path, message),
    };
    match of {
        Some((product, folder)) => checked_foreign(path, product, &id(&folder, path), &text, before),
        None => self::text(path, &text, before),
    }
}

fn refused(path: &Path, message: String) -> Checked {
    let problems = vec![AgentProblem { path: path.to_owned(), kind: ProblemKind::Refused, product: None, message }];
    Checked { path: path.to_owned(), agent: None, problems }
}

/// Checks `text` as the agent file of `product` at `path`, which need not exist; `id` is its path in the folder of agents.
pub fn checked_foreign(path: &Path, product: Product, id: &str, text: &str, before: &[Checked]) -> Checked {
    match foreign::parse(ForeignFile { product, path, id, text, workspace: None }) {
        Ok(parsed) => taken(path, parsed, before),
        Err(error) => refused(path, error.to_string()),
    }
}

/// Checks `text` as the native agent file at `path`, which need not exist. [`lint`] checks rules for unknown agents.
pub fn text(path: &Path, text: &str, before: &[Checked]) -> Checked {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    match front::parse(text, &stem, Source::File(path.to_owned())) {
        Ok(parsed) => taken(path, parsed, before),
        Err(error) => refused(path, error.to_string()),
    }
}

fn taken(path: &Path, parsed: front::Parsed, before: &[Checked]) -> Checked {
    let problem = |kind, message| AgentProblem { path: path.to_owned(), kind, product: None, message };
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
