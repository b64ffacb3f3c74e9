//! Agent files of other products: their folders, and their precedence when several files define one name.

use std::path::{Path, PathBuf};

use super::{Catalog, MAX_FILES, ReadBudget, first_symlink, has_ending};
use crate::files::HardLinks;
use crate::foreign::{self, file::ForeignFile};
use crate::manifest::Source;
use crate::name;
use crate::product::Product;

impl Catalog {
    pub(super) fn load_product(&mut self, product: Product, workspace: &Path) {
        self.reading = Some(product);
        for folder in product.agent_folders() {
            let below = Path::new(product.folder()).join(folder);
            match first_symlink(workspace, &below) {
                Some(link) => self.refuse(&link, "is a symbolic link, which is not followed: use a folder".to_owned()),
                None => self.load_folder(product, (workspace, &workspace.join(below)), workspace),
            }
        }
        self.reading = None;
    }

    /// Loads the user's own agents from `home`, such as `~/.claude`, unless it lies in `workspace`. Earlier agents win.
    pub fn add_own(&mut self, product: Product, home: &Path, workspace: &Path) {
        let Ok(home) = home.canonicalize() else { return };
        (self.links, self.budget) = (HardLinks::Read, ReadBudget::default());
        self.reading = Some(product);
        for folder in product.agent_folders() {
            let Ok(folder) = home.join(folder).canonicalize() else { continue };
            let real_workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
            if folder.starts_with(&real_workspace) {
                self.warn(
                    &folder,
                    format!("lies in the workspace, so its agents are not loaded as your own for {}", product.name()),
                );
                continue;
            }
            self.load_folder(product, (&folder, &folder), workspace);
        }
        self.reading = None;
        self.links = HardLinks::Refused;
        self.problems.sort_by(|a, b| a.path.cmp(&b.path));
    }

    fn load_folder(&mut self, product: Product, (root, folder): (&Path, &Path), workspace: &Path) {
        let mut files: Vec<PathBuf> = Vec::new();
        self.find(root, folder, 0, &|path| has_ending(path, product.extension()), &mut files);
        files.sort_unstable();
        if let Some(first) = files.get(MAX_FILES) {
            self.refuse(
                first,
                format!("this file and all after it are not read: there are more than {MAX_FILES} agent files"),
            );
        }
        for path in files.iter().take(MAX_FILES) {
            self.read_foreign(product, (root, folder), path, workspace);
        }
    }

    fn read_foreign(&mut self, product: Product, (root, folder): (&Path, &Path), path: &Path, workspace: &Path) {
        let id = id(folder, path);
        let text = match self.read_file(root, path) {
            Ok(text) => text,
            Err(message) => return self.refuse_foreign(path, &name::slug(&id), message),
        };
        let file = ForeignFile { product, path, id: &id, text: &text, workspace: Some(workspace) };
        let parsed = match foreign::parse(file) {
            Ok(parsed) => parsed,
            Err(error) => return self.refuse_foreign(path, &foreign::name(file), error.to_string()),
        };
        let name = &*parsed.manifest.name;
        if self.refused.contains(name) && self.get(name).is_none() {
            let message = format!("not used: another file of the agent `{name}`, which comes first, is refused");
            return self.refuse(path, message);
        }
        match self.get(name).map(|other| (other.source.clone(), other.hidden)) {
            Some((Source::File(first) | Source::Foreign(_, first), _)) => {
                self.refuse(path, format!("not used: `{name}` is already defined in {}", first.display()));
            }
            Some((Source::Builtin | Source::Host, true)) => {
                self.refuse(path, reserved_name_error(name));
            }
            Some((Source::Builtin | Source::Host, false)) => {
                self.warn(path, format!("replaces the built-in agent `{name}`"));
                self.insert_parsed(path, parsed);
            }
            None => self.insert_parsed(path, parsed),
        }
    }

    /// Refuses a file and blocks its name for later files, unless an earlier agent or one of the host has it.
    fn refuse_foreign(&mut self, path: &Path, name: &str, message: String) {
        if self.get(name).is_some_and(|agent| agent.hidden || agent.source != Source::Builtin) {
            return self.refuse(path, message);
        }
        self.refuse_agent(path, name, message);
    }
}

pub(crate) fn reserved_name_error(name: &str) -> String {
    format!("not used: `{name}` is an agent that the host itself starts: rename yours")
}

/// Returns the path of a file below `folder`, without its extension.
pub(crate) fn id(folder: &Path, path: &Path) -> String {
    let below = path.strip_prefix(folder).unwrap_or(path).with_extension("");
    below.iter().map(|name| name.to_string_lossy()).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests;
