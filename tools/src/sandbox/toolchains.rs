//! Toolchains below the home directory: which of their parts a sandboxed command can use.
//!
//! Programs and libraries are named one by one. All else stays closed, since settings and clones of repositories may hold tokens.

use std::path::{Path, PathBuf};

use super::outside::{Writable, resolve};

/// One toolchain. `*` in its parts is any name.
pub(super) struct Toolchain {
    /// The variable with its location. In the sandbox, `HOME` is another directory, so a command gets it even for the default location.
    pub(super) variable: &'static str,
    /// Default location below the home directory.
    pub(super) default: &'static str,
    /// Programs, libraries and files that hold no secrets.
    parts: &'static [&'static str],
    /// Directories of installed versions, of which [`VERSION_PARTS`], [`VERSION_SETTINGS`] and programs are granted.
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
        // The images of npm, pnpm and yarn are packages.
        parts: &[
            "bin",
            "tools/user",
            "tools/inventory",
            "tools/image/*/*/node_modules",
            "tools/image/*/*/dist",
            "tools/image/*/*/index.js",
            "tools/image/*/*/package.json",
        ],
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
        versions: &["installs/*/*", "installs/golang/*/go", "installs/golang/*/packages"],
        ..NONE
    },
    Toolchain {
        variable: "MISE_DATA_DIR",
        default: ".local/share/mise",
        // The programs of some tools are in a directory with the name of the release.
        parts: &["shims", "installs/*/*/*/bin", "installs/*/*/*/lib", "installs/go/*/pkg", "installs/go/*/src"],
        versions: &["installs/*/*"],
        ..NONE
    },
    Toolchain { variable: "SDKMAN_DIR", default: ".sdkman", versions: &["candidates/*/*"], ..NONE },
    Toolchain { variable: "GOPATH", default: "go", parts: &["bin", "pkg"], ..NONE },
    Toolchain { variable: "GOROOT", parts: &["pkg", "src"], versions: &["."], ..NONE },
    Toolchain { variable: "JAVA_HOME", parts: &["jre/bin", "jre/lib"], versions: &["."], ..NONE },
    Toolchain {
        variable: "HOMEBREW_PREFIX",
        parts: &["bin", "lib", "Cellar/go/*/libexec/pkg", "Cellar/go/*/libexec/src"],
        versions: &["Cellar/*/*"],
        ..NONE
    },
];

/// Parts of an installed version, which may be of Python, Node, Java, Maven, Go, or a program of any kind.
const VERSION_PARTS: [&str; 18] = [
    "bin",
    "sbin",
    "lib",
    "lib64",
    "include",
    "share",
    "libexec/bin",
    "libexec/lib",
    "libexec/gcc",
    "libexec/git-core",
    "jmods",
    "release",
    "conf/security",
    "conf/logging",
    "conf/logging.properties",
    "boot",
    "ssl/cacert.pem",
    "VERSION",
];

/// Settings of an installed version that its programs read.
const VERSION_SETTINGS: [&str; 6] =
    ["etc/npmrc", "pip.conf", "pyvenv.cfg", "libexec/pyvenv.cfg", "go.env", "conf/settings.xml"];

/// Words of settings with secrets, in lower case. An address with a password has an `@`.
const SECRET_WORDS: [&str; 7] = ["token", "secret", "passw", "credential", "_auth", "_key", "@"];

/// Maximum bytes of a settings file that is searched for secrets. A longer one is not granted.
const MAX_SETTINGS: u64 = 64 << 10;

impl Toolchain {
    /// Returns whether the toolchain selects one of several versions, for which its programs list names.
    pub(super) fn has_versions(&self) -> bool {
        self.versions.iter().any(|pattern| pattern.contains('*'))
    }

    /// Returns the granted parts of the toolchain in `root`: programs and libraries, and settings.
    pub(super) fn wanted(&self, root: &Path, writable: &Writable) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let found = |patterns: &[&str]| -> Vec<PathBuf> {
            patterns.iter().flat_map(|pattern| matching(root, pattern)).collect()
        };
        let mut parts = found(self.parts);
        let mut settings = found(self.settings);
        for version in found(self.versions) {
            parts.extend(VERSION_PARTS.iter().map(|part| version.join(part)));
            settings.extend(VERSION_SETTINGS.iter().map(|file| version.join(file)));
            for dir in [version.join("libexec"), version] {
                let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
                parts.extend(entries.map(|entry| entry.path()).filter(|path| is_program(path)));
            }
        }
        // A version may be a link to a project, of which a directory `lib` may hold anything.
        let real_root = resolve(root, writable);
        let is_own = |path: &PathBuf| {
            let is_named = path.parent() == Some(root);
            is_named
                || resolve(path, writable).zip(real_root.as_ref()).is_some_and(|(real, root)| real.starts_with(root))
        };
        parts.retain(is_own);
        settings.retain(|path| path.exists());
        (parts, settings)
    }
}

/// Returns the paths that `pattern` names below `root`.
fn matching(root: &Path, pattern: &str) -> Vec<PathBuf> {
    let step = |dirs: Vec<PathBuf>, part: &str| match part {
        "." => dirs,
        "*" => dirs.iter().flat_map(std::fs::read_dir).flatten().flatten().map(|entry| entry.path()).collect(),
        name => dirs.iter().map(|dir| dir.join(name)).filter(|path| path.exists()).collect(),
    };
    pattern.split('/').fold(vec![root.to_owned()], step)
}

/// Returns whether settings are too long, unreadable, or have a word of [`SECRET_WORDS`]. Their name may be any: they may be a link.
pub(super) fn may_hold_secret(settings: &Path) -> bool {
    let is_short = settings.metadata().is_ok_and(|found| found.is_file() && found.len() <= MAX_SETTINGS);
    let text = if is_short { std::fs::read_to_string(settings).ok() } else { None };
    text.is_none_or(|text| SECRET_WORDS.iter().any(|word| text.to_lowercase().contains(word)))
}

#[cfg(unix)]
pub(super) fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
pub(super) fn is_program(path: &Path) -> bool {
    path.is_file()
}
