//! Locations outside of the workspace that a sandboxed command can use: the system, the directories on `PATH`, toolchains.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[cfg(unix)]
use super::outside::resolve;
#[cfg(not(unix))]
fn resolve(path: &Path, _: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()
}

pub(super) const SYSTEM: [&str; 10] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", SETTINGS, "/nix/store", "/sys/devices/system/cpu"];
/// System settings; some files hold keys and password hashes.
pub(super) const SETTINGS: &str = "/etc";
/// Processes; those outside of the domain stay private.
pub(super) const PROC: &str = "/proc";
/// Resolver settings of systems that keep `/etc/resolv.conf` elsewhere.
pub(super) const RESOLVERS: [&str; 2] = ["/run/systemd/resolve", "/run/resolvconf"];
/// Devices that commands read and write.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Toolchains: variable, default location below the home directory, and the granted parts. `HOME` is another directory under the
/// sandbox, so the command gets the variable even for the default.
const TOOLCHAINS: &[(&str, &str, &[&str])] = &[
    ("RUSTUP_HOME", ".rustup", &["settings.toml", "toolchains"]),
    // Not the whole: it holds `credentials.toml`.
    ("CARGO_HOME", ".cargo", &["bin", "registry", "git", "config", "config.toml"]),
    ("PYENV_ROOT", ".pyenv", &["."]),
    ("RBENV_ROOT", ".rbenv", &["."]),
    ("NVM_DIR", ".nvm", &["."]),
    ("VOLTA_HOME", ".volta", &["bin", "tools"]),
    ("ASDF_DATA_DIR", ".asdf", &["."]),
    ("MISE_DATA_DIR", ".local/share/mise", &["installs", "shims"]),
    ("SDKMAN_DIR", ".sdkman", &["candidates"]),
    ("GOPATH", "go", &["bin", "pkg"]),
    ("GOROOT", "", &["."]),
    ("JAVA_HOME", "", &["."]),
    ("HOMEBREW_PREFIX", "", &["bin", "lib", "opt", "Cellar"]),
];

/// Private data below the home directory: no grant may contain or lie in one of these.
const SECRETS: [&str; 18] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".config/gcloud",
    ".config/gh",
    ".config/subtend",
    ".local/share/keyrings",
    ".local/share/subtend",
    ".mozilla",
];

/// Executables followed out of one directory on `PATH`.
const MAX_LINKS: usize = 2_000;

/// The locations besides the workspace that every sandboxed command can use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Files and directories that it can read and execute; of settings (`/etc`) the world-readable ones.
    pub readable: Vec<PathBuf>,
    /// Those that require an allowed network.
    pub with_network: Vec<PathBuf>,
    /// Devices that it can read and write.
    pub devices: Vec<PathBuf>,
    /// Entries of `PATH` and toolchains that it cannot use, each with the reason.
    pub left_out: Vec<(PathBuf, String)>,
    /// Variables that it gets instead of defaults below the home directory.
    pub variables: Vec<(&'static str, PathBuf)>,
}

impl Places {
    pub(super) fn of_process(workspace: &Path) -> Self {
        let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
        Self::of(&workspace, std::env::home_dir(), &|name| std::env::var_os(name))
    }

    /// Finds the locations by a home directory and environment variables. Anything in `workspace`, or reached by a link in it, is left out:
    /// a session that writes there could open any file.
    fn of(workspace: &Path, home: Option<PathBuf>, variable: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let existing =
            |paths: &[&str]| paths.iter().map(PathBuf::from).filter(|path| path.exists()).collect::<Vec<_>>();
        let mut readable = existing(&SYSTEM);
        readable.extend(existing(&[PROC]));
        let (with_network, devices) = (existing(&RESOLVERS), existing(&DEVICES));
        let mut places = Self { readable, with_network, devices, ..Self::default() };
        // Without a home directory it is unknown what is private.
        let Some(home) = home.and_then(|home| home.canonicalize().ok()) else { return places };
        let path = variable("PATH").unwrap_or_default();
        let mut wanted: Vec<PathBuf> = std::env::split_paths(&path)
            .filter(|dir| dir.is_absolute())
            .flat_map(|dir| on_path(&dir, workspace))
            .collect();
        for (name, default, parts) in TOOLCHAINS {
            let named = variable(name).map(PathBuf::from);
            let is_default = named.is_none();
            let root = named.or_else(|| (!default.is_empty()).then(|| home.join(default)));
            let Some(root) = root.filter(|root| root.is_absolute() && root.is_dir()) else { continue };
            wanted.extend(parts.iter().map(|part| if *part == "." { root.clone() } else { root.join(part) }));
            if is_default {
                places.variables.push((name, root));
            }
        }
        let mut covered: Vec<PathBuf> = places.readable.iter().filter_map(|path| path.canonicalize().ok()).collect();
        for real in wanted.iter().filter_map(|path| resolve(path, workspace)) {
            if covered.iter().any(|granted| real.starts_with(granted)) {
                continue;
            }
            match refused(&real, &home) {
                None => {
                    covered.push(real.clone());
                    places.readable.push(real);
                }
                Some(why) if !places.left_out.iter().any(|(path, _)| *path == real) => {
                    places.left_out.push((real, why))
                }
                Some(_) => {}
            }
        }
        places
    }
}

/// Returns a directory on `PATH`, its neighbouring libraries, and the targets of its links.
fn on_path(dir: &Path, workspace: &Path) -> Vec<PathBuf> {
    if resolve(dir, workspace).is_none() {
        return Vec::new();
    }
    let mut wanted = vec![dir.to_owned()];
    let is_bin = dir.file_name().is_some_and(|name| name == "bin" || name == "sbin");
    if let Some(above) = dir.parent().filter(|_| is_bin) {
        wanted.extend(["lib", "lib64", "libexec", "include"].map(|name| above.join(name)));
    }
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    wanted.extend(links.map(|entry| entry.path()).filter(|path| path.is_file()).take(MAX_LINKS));
    wanted
}

/// Returns why a location must not be granted, if so.
fn refused(place: &Path, home: &Path) -> Option<String> {
    if home.starts_with(place) {
        return Some("it contains the home directory".to_owned());
    }
    let secrets = SECRETS.iter().map(|secret| home.join(secret));
    let mut secrets = secrets.map(|secret| secret.canonicalize().unwrap_or(secret));
    let secret = secrets.find(|secret| secret.starts_with(place) || place.starts_with(secret))?;
    Some(format!("{} is kept from commands", secret.display()))
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Returns a home directory with a toolchain, a secret and a program elsewhere.
    fn home() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        for path in [".cargo/bin", ".cargo/registry", ".rustup/toolchains", ".ssh", "tools/bin", "tools/lib", "apps"] {
            std::fs::create_dir_all(home.join(path)).unwrap();
        }
        std::fs::write(home.join(".cargo/credentials.toml"), "token").unwrap();
        std::fs::write(home.join("apps/linked"), "").unwrap();
        symlink(home.join("apps/linked"), home.join("tools/bin/linked")).unwrap();
        (dir, home)
    }

    fn places(home: &Path, path: &[PathBuf]) -> Places {
        let path = std::env::join_paths(path).unwrap();
        Places::of(&home.join("work"), Some(home.into()), &|name| (name == "PATH").then(|| path.clone()))
    }

    fn below(places: &Places, home: &Path) -> Vec<String> {
        let below = places.readable.iter().filter_map(|path| path.strip_prefix(home).ok());
        below.map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn places_are_path_and_parts_of_toolchains() {
        let (_dir, home) = home();
        let places = places(&home, &[home.join("tools/bin"), "/usr/bin".into(), "relative".into(), home.join("gone")]);
        let granted = ["tools/bin", "tools/lib", "apps/linked", ".rustup/toolchains", ".cargo/bin", ".cargo/registry"];
        assert_eq!(below(&places, &home), granted);
        assert_eq!(places.left_out, []);
        let variables = [("RUSTUP_HOME", home.join(".rustup")), ("CARGO_HOME", home.join(".cargo"))];
        assert_eq!(places.variables, variables);
    }

    #[test]
    fn places_leave_out_what_would_open_a_secret() {
        let (_dir, home) = home();
        let above = home.parent().unwrap().to_owned();
        let named = [home.clone(), above.clone(), "/".into(), home.join(".ssh"), home.join(".cargo")];
        let places = places(&home, &named);
        assert_eq!(below(&places, &home), [".rustup/toolchains", ".cargo/bin", ".cargo/registry"]);
        let left: Vec<&Path> = places.left_out.iter().map(|(path, _)| &**path).collect();
        assert_eq!(left, [&home, &above, Path::new("/"), &home.join(".ssh"), &home.join(".cargo")]);
    }
}
