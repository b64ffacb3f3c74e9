//! Walks an installed version of a toolchain, and grants all of it except what may hold secrets.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::outside::{Writable, resolve};

/// Directories of programs and libraries, which are granted without a walk.
const LIBRARIES: [&str; 11] =
    ["bin", "sbin", "lib", "lib64", "include", "share", "jmods", "legal", "man", "node_modules", "Frameworks"];
/// Files and directories without secrets that are named like settings, or hidden.
const PLAIN: [&str; 6] = [".brew", ".gitignore", ".lock", "cacert.pem", "cert.pem", "pyvenv.cfg"];
/// Directories of settings, of which each file is searched for secrets.
const SETTINGS: [&str; 5] = ["conf", "config", "etc", "settings", "ssl"];
/// Directories of settings without secrets: of Java, Maven and shells.
const PLAIN_SETTINGS: [&str; 3] = ["bash_completion.d", "logging", "security"];
/// Directories of data and logs, and of conda, whose history has the addresses of channels. An environment in `envs` is a version itself.
const CLOSED: [&str; 7] = ["conda-meta", "data", "envs", "logs", "pkgs", "tmp", "var"];
const SETTINGS_ENDINGS: [&str; 6] = ["cfg", "conf", "env", "ini", "properties", "toml"];
const SETTINGS_STEMS: [&str; 3] = ["auth", "config", "settings"];
/// Words of settings with secrets, in lower case. An address with a password has an `@`.
const SECRET_WORDS: [&str; 8] = ["token", "secret", "passw", "credential", "_auth", "_key", "private key", "@"];

/// Maximum bytes of a settings file that is searched for secrets. A longer one is not granted.
const MAX_SETTINGS: u64 = 64 << 10;
/// Levels of directories below a version that are walked: of a release, such as `apache-maven-3.9.9`, and of its parts.
pub(super) const DEPTH: u32 = 2;
/// Levels of directories below one of settings. Deeper ones are not granted.
const SETTINGS_DEPTH: u32 = 4;

/// The granted parts of toolchains, as paths without links.
pub(super) struct Walk<'a> {
    pub(super) writable: &'a Writable,
    /// The directory of the toolchain. Programs and libraries behind links must be in it.
    pub(super) root: &'a Path,
    pub(super) granted: Vec<PathBuf>,
    /// The paths that are not granted, with the reasons.
    pub(super) refused: Vec<(PathBuf, String)>,
    /// Parts that are granted without a walk.
    pub(super) parts: HashSet<PathBuf>,
}

impl Walk<'_> {
    /// Returns whether all of `dir` is granted. If not, adds its granted parts.
    pub(super) fn directory(&mut self, dir: &Path, depth: u32, is_settings: bool) -> bool {
        let Ok(entries) = std::fs::read_dir(dir) else { return false };
        let (mut parts, mut is_whole) = (Vec::new(), true);
        for entry in entries {
            let Some((entry, kind)) = entry.ok().and_then(|entry| entry.file_type().ok().map(|kind| (entry, kind)))
            else {
                is_whole = false;
                continue;
            };
            let path = entry.path();
            if kind.is_symlink() {
                is_whole &= self.link(&path, is_settings);
                continue;
            }
            let is_granted =
                if kind.is_dir() { self.below(&path, depth, is_settings) } else { self.file(&path, is_settings) };
            is_whole &= is_granted;
            parts.extend(is_granted.then_some(path));
        }
        if !is_whole {
            self.granted.append(&mut parts);
        }
        is_whole
    }

    fn below(&mut self, dir: &Path, depth: u32, is_settings: bool) -> bool {
        let name = name_of(dir);
        if PLAIN.contains(&&*name) || self.parts.contains(dir) {
            return true;
        }
        if name.starts_with('.') || CLOSED.contains(&&*name) {
            if name != "envs" {
                self.refused.push((dir.to_owned(), "it may contain a token or password".to_owned()));
            }
            return false;
        }
        if if is_settings { PLAIN_SETTINGS.contains(&&*name) } else { LIBRARIES.contains(&&*name) } {
            return true;
        }
        let (depth, is_settings) = match !is_settings && SETTINGS.contains(&&*name) {
            true => (SETTINGS_DEPTH, true),
            false => (depth, is_settings),
        };
        match depth.checked_sub(1) {
            Some(rest) => self.directory(dir, rest, is_settings),
            None => !is_settings,
        }
    }

    fn file(&mut self, file: &Path, is_settings: bool) -> bool {
        !is_suspect(file, is_settings) || self.settings(file, file, is_settings)
    }

    /// Returns whether a link permits that its directory is granted whole. Adds its target if that is granted.
    fn link(&mut self, link: &Path, is_settings: bool) -> bool {
        let Some(real) = resolve(link, self.writable) else { return true };
        let is_dir = real.is_dir();
        if !is_dir && is_suspect(link, is_settings) {
            let is_granted = self.settings(link, &real, is_settings);
            self.granted.extend(is_granted.then_some(real));
            return is_granted;
        }
        // A directory `lib` elsewhere, such as of a project, may hold anything.
        let is_code = if is_dir { !is_settings && LIBRARIES.contains(&&*name_of(link)) } else { is_program(&real) };
        if is_code && real.starts_with(self.root) {
            self.granted.push(real);
        }
        true
    }

    /// Returns whether the settings `named`, which may be a link to the file `real`, hold no secrets.
    pub(super) fn settings(&mut self, named: &Path, real: &Path, is_settings: bool) -> bool {
        let name = name_of(named);
        if name.ends_with(".template") {
            return false;
        }
        if !is_settings && !has_settings_name(&name) && !name.starts_with('.') && is_program(real) {
            return true;
        }
        let is_safe = !has_secret_name(&name)
            && !has_secret_name(&name_of(real))
            && (is_settings || !name.starts_with('.'))
            && !may_hold_secret(real);
        if !is_safe {
            self.refused.push((real.to_owned(), secrets_reason(named)));
        }
        is_safe
    }
}

fn name_of(path: &Path) -> std::borrow::Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

fn is_suspect(file: &Path, is_settings: bool) -> bool {
    let name = name_of(file);
    let is_named = || name.starts_with('.') || has_settings_name(&name) || has_secret_name(&name);
    !PLAIN.contains(&&*name) && (is_settings || is_named())
}

fn has_settings_name(name: &str) -> bool {
    let (stem, ending) = name.split_once('.').unwrap_or((name, ""));
    name.ends_with("rc") || SETTINGS_STEMS.contains(&stem) || SETTINGS_ENDINGS.iter().any(|end| ending.ends_with(end))
}

fn has_secret_name(name: &str) -> bool {
    let name = name.to_lowercase();
    SECRET_WORDS.iter().any(|word| *word != "@" && name.contains(word))
}

pub(super) fn secrets_reason(settings: &Path) -> String {
    format!("{} may contain a token or password; move it to a file of credentials", settings.display())
}

/// Returns whether settings are too long, unreadable, or have a word of [`SECRET_WORDS`] outside of comments.
fn may_hold_secret(settings: &Path) -> bool {
    let is_short = settings.metadata().is_ok_and(|found| found.is_file() && found.len() <= MAX_SETTINGS);
    let Some(text) = is_short.then(|| std::fs::read_to_string(settings).ok()).flatten() else { return true };
    let text = without_comments(settings, &text).to_lowercase();
    SECRET_WORDS.iter().any(|word| text.contains(word))
}

/// Returns `text` without comments, of which those of Maven and Java explain passwords.
fn without_comments(settings: &Path, text: &str) -> String {
    match settings.extension().and_then(|ending| ending.to_str()) {
        Some("xml") => {
            let mut parts = text.split("<!--");
            let first = parts.next().unwrap_or_default().to_owned();
            // A comment without an end is searched too.
            first + &parts.map(|part| part.split_once("-->").map_or(part, |(_, rest)| rest)).collect::<String>()
        }
        Some("properties") => text.lines().filter(|line| !line.trim_start().starts_with('#')).collect(),
        _ => text.to_owned(),
    }
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
