//! Toolchains below the home directory: which of their parts a sandboxed command can use.
//!
//! Of its own directory, parts are named one by one. All else stays closed, since settings and clones of repositories may hold tokens.
//! Installed versions are walked.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::outside::{Writable, resolve};
use super::versions::{DEPTH, Walk};

/// One toolchain. `*` in its parts is any name.
pub(super) struct Toolchain {
    /// The variable with its location. In the sandbox, `HOME` is another directory, so a command gets it even for the default location.
    pub(super) variable: &'static str,
    /// Default location below the home directory.
    pub(super) default: &'static str,
    /// Programs, libraries and files that hold no secrets.
    parts: &'static [&'static str],
    /// Directories of installed versions, which are granted as [`Walk`] finds.
    versions: &'static [&'static str],
    /// Settings, which are granted if they hold no secrets.
    settings: &'static [&'static str],
}

const NONE: Toolchain = Toolchain { variable: "", default: "", parts: &[], versions: &[], settings: &[] };

pub(super) const TOOLCHAINS: [Toolchain; 13] = [
    Toolchain { variable: "RUSTUP_HOME", default: ".rustup", parts: &["settings.toml", "toolchains"], ..NONE },
    Toolchain {
        variable: "CARGO_HOME",
        default: ".cargo",
        parts: &["bin", "registry", "git"],
        // Cargo does not run if it cannot read its settings.
        settings: &["config", "config.toml"],
        ..NONE
    },
    Toolchain {
        variable: "PYENV_ROOT",
        default: ".pyenv",
        parts: &[
            "bin",
            "libexec",
            "shims",
            "completions",
            "pyenv.d",
            "version",
            "plugins/*/bin",
            "plugins/*/libexec",
            "plugins/*/shims",
            "plugins/*/etc/pyenv.d",
        ],
        versions: &["versions/*", "versions/*/envs/*"],
        ..NONE
    },
    Toolchain {
        variable: "RBENV_ROOT",
        default: ".rbenv",
        parts: &[
            "bin",
            "libexec",
            "shims",
            "completions",
            "rbenv.d",
            "version",
            "plugins/*/bin",
            "plugins/*/libexec",
            "plugins/*/etc/rbenv.d",
        ],
        versions: &["versions/*"],
        ..NONE
    },
    Toolchain {
        variable: "NVM_DIR",
        default: ".nvm",
        parts: &["nvm.sh", "nvm-exec", "bash_completion", "alias"],
        versions: &["versions/*/*"],
        ..NONE
    },
    Toolchain {
        variable: "VOLTA_HOME",
        default: ".volta",
        parts: &["bin", "tools/user", "tools/inventory"],
        versions: &["tools/image/*/*", "tools/image/packages/*/*"],
        ..NONE
    },
    Toolchain {
        variable: "ASDF_DATA_DIR",
        default: ".asdf",
        parts: &[
            "asdf.sh",
            "bin",
            "lib",
            "libexec",
            "shims",
            "completions",
            "plugins/*/bin",
            "plugins/*/lib",
            "plugins/*/libexec",
            "plugins/*/shims",
            "plugins/*/share",
            "installs/rust/*/settings.toml",
            "installs/rust/*/toolchains",
            "installs/golang/*/go/pkg",
            "installs/golang/*/go/src",
            "installs/golang/*/packages/pkg",
        ],
        versions: &["installs/*/*"],
        ..NONE
    },
    Toolchain {
        variable: "MISE_DATA_DIR",
        default: ".local/share/mise",
        parts: &["shims", "installs/go/*/pkg", "installs/go/*/src"],
        versions: &["installs/*/*"],
        ..NONE
    },
    Toolchain { variable: "SDKMAN_DIR", default: ".sdkman", versions: &["candidates/*/*"], ..NONE },
    Toolchain { variable: "GOPATH", default: "go", parts: &["bin", "pkg"], ..NONE },
    Toolchain { variable: "GOROOT", parts: &["pkg", "src"], versions: &["."], ..NONE },
    Toolchain { variable: "JAVA_HOME", versions: &["."], ..NONE },
    Toolchain {
        variable: "HOMEBREW_PREFIX",
        parts: &["bin", "lib", "Cellar/go/*/libexec/pkg", "Cellar/go/*/libexec/src"],
        versions: &["Cellar/*/*"],
        ..NONE
    },
];

impl Toolchain {
    /// Returns whether the toolchain selects one of several versions, for which its programs list names.
    pub(super) fn has_versions(&self) -> bool {
        self.versions.iter().any(|pattern| pattern.contains('*'))
    }

    /// Returns the granted paths of the toolchain in `root`, and those that are not granted, with the reasons. Both are without links.
    pub(super) fn wanted(
        &self,
        root: &Path,
        writable: &Writable,
        refusal_reason: &dyn Fn(&Path) -> Option<String>,
    ) -> (Vec<PathBuf>, Vec<(PathBuf, String)>) {
        let Some(real_root) = resolve(root, writable) else { return (Vec::new(), Vec::new()) };
        let found = |patterns: &'static [&'static str]| {
            let named = patterns.iter().flat_map(|pattern| matching(root, pattern));
            named.filter_map(|named| resolve(&named, writable).map(|real| (named, real)))
        };
        // A plugin may be a link to a project, of which a directory `lib` may hold anything.
        let parts: Vec<PathBuf> = found(self.parts)
            .filter(|(named, real)| named.parent() == Some(root) || real.starts_with(&real_root))
            .map(|(_, real)| real)
            .collect();
        let own: HashSet<PathBuf> = parts.iter().cloned().collect();
        let (mut whole, mut seen) = (own.clone(), HashSet::new());
        let mut walk = Walk { writable, root: &real_root, refused: Vec::new(), parts: own, granted: parts };
        for (named, real) in found(self.settings) {
            if walk.settings(&named, &real, true) {
                walk.granted.push(real);
            }
        }
        for (_, real) in found(self.versions).filter(|(_, real)| real.is_dir()) {
            if !seen.insert(real.clone()) || real.ancestors().any(|dir| whole.contains(dir)) {
                continue;
            }
            let outside = || format!("it is outside of {}", root.display());
            let refused = (!real.starts_with(&real_root)).then(outside).or_else(|| refusal_reason(&real));
            if let Some(why) = refused {
                walk.refused.push((real, why));
            } else if walk.directory(&real, DEPTH, false) {
                whole.insert(real.clone());
                walk.granted.push(real);
            }
        }
        // Settings may be a link to a file that has another name in the same directory.
        let refused: HashSet<&PathBuf> = walk.refused.iter().map(|(path, _)| path).collect();
        walk.granted.retain(|path| !refused.contains(path));
        (walk.granted, walk.refused)
    }
}

/// Returns the paths that `pattern` names below `root`.
fn matching(root: &Path, pattern: &str) -> Vec<PathBuf> {
    let step = |dirs: Vec<PathBuf>, part: &str| match part {
        "." => dirs,
        "*" => {
            let entries = dirs.iter().flat_map(std::fs::read_dir).flatten().flatten();
            let is_hidden = |entry: &std::fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b".");
            entries.filter(|entry| !is_hidden(entry)).map(|entry| entry.path()).collect()
        }
        name => dirs.iter().map(|dir| dir.join(name)).filter(|path| path.exists()).collect(),
    };
    pattern.split('/').fold(vec![root.to_owned()], step)
}
