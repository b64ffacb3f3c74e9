//! Locations outside of the workspace that a sandboxed command can use: the system, the directories on `PATH`, toolchains.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::outside::{Writable, resolve};
use super::toolchains::{TOOLCHAINS, Toolchain};
use super::versions::is_program;

pub(super) const SYSTEM: [&str; 10] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", SETTINGS, "/nix/store", "/sys/devices/system/cpu"];
/// Directory of system settings. Some of its files contain keys and password hashes.
pub(super) const SETTINGS: &str = "/etc";
/// Directory of processes. Landlock protects processes outside of the domain.
pub(super) const PROC: &str = "/proc";
/// Resolver settings of systems that keep `/etc/resolv.conf` elsewhere.
pub(super) const RESOLVERS: [&str; 2] = ["/run/systemd/resolve", "/run/resolvconf"];
/// Devices that commands read and write.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Private data below the home directory. A granted path must not contain or be within any of these.
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

/// Maximum number of links to executables that are followed for one directory on `PATH`.
const MAX_LINKS: usize = 2_000;

/// Directories of programs if `PATH` names none that may be used, as in the C library.
const NO_PATH: &str = "/bin:/usr/bin";

/// The locations outside the workspace that every sandboxed command can use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Files and directories that the command can read and execute. In `/etc`, only world-readable files.
    pub readable: Vec<PathBuf>,
    /// Directories that the command can read only if the network is allowed.
    pub with_network: Vec<PathBuf>,
    /// Directories of toolchains in which the command can list names of files at every depth.
    pub listed: Vec<PathBuf>,
    /// Devices that the command can read and write.
    pub devices: Vec<PathBuf>,
    /// Entries of `PATH` and toolchains that the command cannot use, with the reasons.
    pub left_out: Vec<(PathBuf, String)>,
    /// Variables for toolchains whose default location is below the home directory.
    pub variables: Vec<(&'static str, PathBuf)>,
}

impl Places {
    /// Finds the locations for `workspace`. Of `others`, follows links only in one with the home directory.
    pub(super) fn of_process(workspace: &Path, others: &[PathBuf]) -> Self {
        let variable = |name: &str| std::env::var_os(name);
        Self::from_environment(&writable(workspace, others), std::env::home_dir(), &variable, &TOOLCHAINS)
    }

    /// Finds the locations of a program as [`Places::of_process`] does, but those of the system only for a program of it that is not a script:
    /// such a one needs no other, and to follow the links of all directories on `PATH` takes some thousand system calls.
    pub(super) fn of_program(program: &str, workspace: &Path, others: &[PathBuf]) -> Self {
        let path = path_outside(others);
        let found = std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| is_program(file));
        match found.is_none_or(|file| is_of_system(&real(&file))) {
            true => Self::from_environment(&writable(workspace, others), std::env::home_dir(), &|_| None, &[]),
            false => Self::of_process(workspace, others),
        }
    }

    /// Omits locations in the workspace, or behind a link that a session can create: it could open any file.
    fn from_environment(
        writable: &Writable,
        home: Option<PathBuf>,
        variable: &dyn Fn(&str) -> Option<OsString>,
        toolchains: &[Toolchain],
    ) -> Self {
        let existing =
            |paths: &[&str]| paths.iter().map(PathBuf::from).filter(|path| path.exists()).collect::<Vec<_>>();
        let mut readable = existing(&SYSTEM);
        readable.extend(existing(&[PROC]));
        let (with_network, devices) = (existing(&RESOLVERS), existing(&DEVICES));
        let mut places = Self { readable, with_network, devices, ..Self::default() };
        // Without a home directory, private files are unknown.
        let Some(named_home) = home else { return places };
        let Ok(home) = named_home.canonicalize() else { return places };
        // The home directory may be behind a link, which no session made.
        let in_home = |dir: PathBuf| match dir.strip_prefix(&named_home) {
            Ok(below) => home.join(below),
            Err(_) => dir,
        };
        let path = variable("PATH").unwrap_or_default();
        let mut wanted: Vec<PathBuf> = std::env::split_paths(&path)
            .filter(|dir| dir.is_absolute())
            .flat_map(|dir| expand_path_entry(&in_home(dir), writable))
            .filter_map(|path| resolve(&path, writable))
            .collect();
        let secrets = SECRETS.map(|secret| real(&home.join(secret)));
        let refusal = |place: &Path| refusal_reason(place, &home, &secrets);
        let mut covered: HashSet<PathBuf> =
            places.readable.iter().filter_map(|path| path.canonicalize().ok()).collect();
        let mut left_out = Vec::new();
        for toolchain in toolchains {
            let configured = variable(toolchain.variable).map(PathBuf::from);
            let is_default = configured.is_none();
            let root = configured.or_else(|| (!toolchain.default.is_empty()).then(|| home.join(toolchain.default)));
            let Some(root) = root.filter(|root| root.is_absolute() && root.is_dir()) else { continue };
            if !root.canonicalize().is_ok_and(|root| is_within(&root, &covered)) {
                let (parts, refused) = toolchain.wanted(&root, writable, &refusal);
                wanted.extend(parts);
                left_out.extend(refused);
            }
            let listed = resolve(&root, writable).filter(|root| toolchain.has_versions() && !home.starts_with(root));
            places.listed.extend(listed);
            if is_default {
                places.variables.push((toolchain.variable, root));
            }
        }
        let mut refused = HashSet::new();
        let wanted = wanted.into_iter().map(|place| (place, None));
        for (place, why) in wanted.chain(left_out.into_iter().map(|(place, why)| (place, Some(why)))) {
            if is_within(&place, &covered) {
                continue;
            }
            match why.or_else(|| refusal(&place)) {
                None => {
                    covered.insert(place.clone());
                    places.readable.push(place);
                }
                Some(why) if refused.insert(place.clone()) => places.left_out.push((place, why)),
                Some(_) => {}
            }
        }
        places
    }
}

/// Returns whether a program is a file of the system and not a script, which may start programs elsewhere.
fn is_of_system(program: &Path) -> bool {
    SYSTEM.iter().any(|system| program.starts_with(system)) && !is_script(program)
}

/// Returns whether a program is a script. One that cannot be read may be.
fn is_script(program: &Path) -> bool {
    let mut start = [0; 2];
    let read = std::fs::File::open(program).and_then(|mut file| file.read_exact(&mut start));
    read.is_err() || start == *b"#!"
}

/// Returns where links are not followed for `workspace`.
fn writable(workspace: &Path, others: &[PathBuf]) -> Writable {
    let home = std::env::home_dir().as_deref().map(real);
    let is_apart = |other: &PathBuf| !home.as_ref().is_some_and(|home| home.starts_with(other));
    let others = others.iter().map(|other| real(other)).filter(is_apart).collect();
    Writable { workspace: real(workspace), others }
}

fn is_within(place: &Path, granted: &HashSet<PathBuf>) -> bool {
    place.ancestors().any(|dir| granted.contains(dir))
}

/// Returns `path` without links, if it exists.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Returns the entries of `PATH` from which the host may start a program of its own: not those in `workspaces`, such as a virtual
/// environment, since a session could put a program there. A workspace that contains the home directory has all programs of the user.
pub(crate) fn path_outside(workspaces: &[PathBuf]) -> OsString {
    let home = std::env::home_dir().as_deref().map(real);
    let is_apart = |workspace: &PathBuf| !home.as_ref().is_some_and(|home| home.starts_with(workspace));
    let apart = workspaces.iter().map(|workspace| real(workspace)).filter(is_apart);
    let writable: Vec<Writable> = apart.map(|workspace| Writable { workspace, ..Writable::default() }).collect();
    let is_outside = |dir: &PathBuf| dir.is_absolute() && writable.iter().all(|of| resolve(dir, of).is_some());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let outside = std::env::join_paths(std::env::split_paths(&path).filter(is_outside)).unwrap_or_default();
    // An empty list would name the current directory, which may be in the workspace.
    if outside.is_empty() { NO_PATH.into() } else { outside }
}

/// Returns a directory on `PATH` with its neighbouring libraries, and the programs to which its links lead. A session of another workspace
/// may have made a link: where one leads to the directory, only its programs are returned, and libraries elsewhere are not.
fn expand_path_entry(dir: &Path, writable: &Writable) -> Vec<PathBuf> {
    let Some(real) = resolve(dir, writable) else { return Vec::new() };
    let is_linked = real != *dir && !SYSTEM.iter().any(|system| real.starts_with(system));
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let is_link = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_symlink());
    let found = entries.filter(|entry| is_linked || is_link(entry)).map(|entry| entry.path());
    let mut wanted: Vec<PathBuf> = found.filter(|path| is_program(path)).take(MAX_LINKS).collect();
    if is_linked {
        return wanted;
    }
    wanted.push(real);
    let is_bin = dir.file_name().is_some_and(|name| name == "bin" || name == "sbin");
    if let Some(parent) = dir.parent().filter(|_| is_bin) {
        let libraries = ["lib", "lib64", "libexec", "include"].map(|name| parent.join(name));
        wanted.extend(
            libraries.into_iter().filter_map(|path| resolve(&path, writable)).filter(|real| real.starts_with(parent)),
        );
    }
    wanted
}

/// Returns the reason why a location must not be granted, if there is one.
fn refusal_reason(place: &Path, home: &Path, secrets: &[PathBuf]) -> Option<String> {
    if home.starts_with(place) {
        return Some("it contains the home directory".to_owned());
    }
    let secret = secrets.iter().find(|secret| secret.starts_with(place) || place.starts_with(secret))?;
    Some(format!("{} is private", secret.display()))
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::super::versions::secrets_reason;
    use super::*;

    /// Creates a home directory with a toolchain, a secret, and a program linked from a directory on `PATH`.
    fn home() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        for path in [".cargo/bin", ".cargo/registry", ".rustup/toolchains", ".ssh", "tools/bin", "tools/lib", "apps"] {
            std::fs::create_dir_all(home.join(path)).unwrap();
        }
        std::fs::write(home.join(".cargo/credentials.toml"), "token").unwrap();
        std::fs::write(home.join("apps/linked"), "").unwrap();
        std::fs::set_permissions(home.join("apps/linked"), std::fs::Permissions::from_mode(0o755)).unwrap();
        symlink(home.join("apps/linked"), home.join("tools/bin/linked")).unwrap();
        (dir, home)
    }

    fn places(home: &Path, path: &[PathBuf]) -> Places {
        let path = std::env::join_paths(path).unwrap();
        let writable = Writable { workspace: home.join("work"), ..Writable::default() };
        let homebrew = home.join("homebrew");
        let variable = |name: &str| match name {
            "PATH" => Some(path.clone()),
            "HOMEBREW_PREFIX" => Some(homebrew.clone().into()),
            _ => None,
        };
        Places::from_environment(&writable, Some(home.into()), &variable, &TOOLCHAINS)
    }

    fn write(home: &Path, file: &str, text: &str) {
        std::fs::create_dir_all(home.join(file).parent().unwrap()).unwrap();
        std::fs::write(home.join(file), text).unwrap();
    }

    fn is_granted(places: &Places, file: &Path) -> bool {
        places.readable.iter().any(|place| file.starts_with(place))
    }

    fn readable_below(places: &Places, home: &Path) -> Vec<String> {
        let below = places.readable.iter().filter_map(|path| path.strip_prefix(home).ok());
        below.map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn places_include_path_entries_and_toolchain_parts() {
        let (_dir, home) = home();
        let places = places(&home, &[home.join("tools/bin"), "/usr/bin".into(), "relative".into(), home.join("gone")]);
        let granted = ["apps/linked", "tools/bin", "tools/lib", ".rustup/toolchains", ".cargo/bin", ".cargo/registry"];
        assert_eq!(readable_below(&places, &home), granted);
        assert_eq!(places.left_out, []);
        let variables = [("RUSTUP_HOME", home.join(".rustup")), ("CARGO_HOME", home.join(".cargo"))];
        assert_eq!(places.variables, variables);
    }

    /// A script of the system may start programs elsewhere. The controls: a program that is not a script, and one elsewhere.
    #[test]
    fn only_programs_of_the_system_are_confined_to_it() {
        let (_dir, home) = home();
        let script = home.join("tools/bin/script");
        write(&home, "tools/bin/script", "#!/bin/sh\n");
        let program = real(Path::new("/bin/sh"));
        assert!(is_of_system(&program), "{}", program.display());
        std::fs::copy(&program, home.join("tools/bin/copy")).unwrap();
        let copy = home.join("tools/bin/copy");
        assert_eq!([&script, &copy].map(|file| (is_script(file), is_of_system(file))), [(true, false), (false, false)]);
        let of = |name: &str| Places::of_program(name, Path::new("/nowhere"), &[]);
        let beyond =
            |place: &&PathBuf| **place != Path::new(PROC) && !SYSTEM.iter().any(|system| place.starts_with(system));
        let confined = of("sh");
        assert_eq!(
            (confined.readable.iter().find(beyond), &confined.listed, &confined.variables),
            (None, &vec![], &vec![])
        );
        assert_eq!(of("no-such-program"), confined);
    }

    /// Settings of cargo and npm with a token, or with a password in an address. The control: settings without them.
    #[test]
    fn settings_of_toolchains_with_secrets_are_not_granted() {
        let cargo = ".cargo/config.toml";
        let npm = ".nvm/versions/node/v22/etc/npmrc";
        let cases = [
            (cargo, "[build]\njobs = 2\n", true),
            (cargo, "[registries.own]\ntoken = \"x\"\n", false),
            (cargo, "[http]\nproxy = \"http://me:word@proxy\"\n", false),
            (cargo, "[env]\nAPI_KEY = \"x\"\n", false),
            (npm, "fund=false\n", true),
            (npm, "//registry.example/:_authToken=x\n", false),
        ];
        // A link may lead to a file with any name, such as one of dotfiles.
        for (file, text, may_read, is_linked) in
            cases.iter().flat_map(|case| [false, true].map(|is_linked| (case.0, case.1, case.2, is_linked)))
        {
            let (_dir, home) = home();
            let path = home.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let real = if is_linked { home.join("dotfiles-of-cargo") } else { path.clone() };
            std::fs::write(&real, text).unwrap();
            if is_linked {
                symlink(&real, &path).unwrap();
            }
            let places = places(&home, &["/usr/bin".into()]);
            assert_eq!(is_granted(&places, &real), may_read, "{file}: {text}");
            let reasons: Vec<&str> = places.left_out.iter().map(|(_, why)| &**why).collect();
            let why = secrets_reason(&path);
            assert_eq!(reasons, if may_read { vec![] } else { vec![&*why] }, "{file}: {text}");
        }
    }

    /// Files with secrets that no list of names has. The controls: the programs and libraries next to them.
    #[test]
    fn only_programs_and_libraries_of_toolchains_are_granted() {
        let secret = [
            ".sdkman/candidates/maven/3.9/conf/settings.xml",
            ".pyenv/versions/miniconda3/.condarc",
            ".pyenv/versions/miniconda3/conda-meta/history",
            ".pyenv/.git/config",
            ".asdf/plugins/x/.git/config",
            ".asdf/installs/rust/1/credentials.toml",
            ".asdf/installs/postgres/16/data/base/1",
            ".pyenv/versions/v/src/x/.git/config",
            "homebrew/Cellar/maven/3.9/libexec/conf/settings.xml",
            ".nvm/.git/config",
            ".volta/tools/image/node/22/etc/npmrc",
            ".local/share/mise/installs/java/21/conf/management/jmxremote.password",
            "project/lib/settings.yaml",
        ];
        let plain = [
            ".sdkman/candidates/maven/3.9/boot/x.jar",
            ".sdkman/candidates/java/21/conf/security/java.security",
            ".pyenv/versions/miniconda3/lib/python3.12/os.py",
            ".pyenv/libexec/pyenv",
            ".asdf/plugins/x/bin/exec-env",
            ".asdf/installs/rust/1/toolchains/stable/lib/x.so",
            ".asdf/installs/tool/1/tool",
            ".nvm/nvm.sh",
            ".volta/tools/image/node/22/lib/node_modules/npm/index.js",
            ".local/share/mise/installs/go/1.26/src/fmt/print.go",
        ];
        let (_dir, home) = home();
        for (file, text) in secret.map(|file| (file, "token")).into_iter().chain(plain.map(|file| (file, "password"))) {
            write(&home, file, text);
        }
        std::fs::set_permissions(home.join(".asdf/installs/tool/1/tool"), std::fs::Permissions::from_mode(0o755))
            .unwrap();
        symlink(home.join("project"), home.join(".pyenv/versions/linked")).unwrap();
        let places = places(&home, &["/usr/bin".into()]);
        let granted = |file: &&str| is_granted(&places, &home.join(file));
        assert_eq!(secret.into_iter().filter(granted).collect::<Vec<_>>(), Vec::<&str>::new());
        assert_eq!(plain.into_iter().filter(granted).collect::<Vec<_>>(), plain);
        let listed = [".pyenv", ".nvm", ".volta", ".asdf", ".local/share/mise", ".sdkman", "homebrew"];
        assert_eq!(places.listed, listed.map(|root| home.join(root)));
    }

    /// Files of products as their installers write them.
    #[test]
    fn installed_products_of_toolchains_are_granted() {
        let maven = "<settings><!-- <password>repopwd</password> --></settings>";
        let java = "# com.sun.management.jmxremote.password.file=x\n";
        let files = [
            (".sdkman/candidates/maven/3.9/conf/settings.xml", maven),
            (".sdkman/candidates/maven/3.9/conf/toolchains.xml", "<toolchains/>"),
            (".sdkman/candidates/java/21/conf/management/management.properties", java),
            (".sdkman/candidates/java/21/jmods/java.base.jmod", ""),
            (".sdkman/candidates/java/21/release", ""),
            (".sdkman/candidates/spark/4/jars/x.jar", ""),
            (".asdf/installs/maven/3.9/conf/settings.xml", maven),
            (".asdf/installs/maven/3.9/boot/x.jar", ""),
            (".asdf/installs/erlang/27/erts-15/bin/beam.smp", ""),
            (".asdf/installs/erlang/27/releases/27/start.boot", ""),
            (".asdf/installs/dotnet/9/shared/Microsoft.NETCore.App/9.0/x.deps.json", "a@b"),
            (".asdf/installs/dotnet/9/sdk/9.0/x.dll", ""),
            (".asdf/installs/dotnet/9/host/fxr/9.0/libhostfxr.so", ""),
            (".asdf/installs/dotnet/9/packs/x/9.0/x.xml", ""),
            (".asdf/installs/golang/1.26/go/src/fmt/print.go", ""),
            (".asdf/installs/golang/1.26/go/go.env", "GOPROXY=https://proxy.golang.org,direct"),
            (".local/share/mise/installs/maven/3.9/apache-maven-3.9/conf/settings.xml", maven),
            (".local/share/mise/installs/maven/3.9/apache-maven-3.9/conf/toolchains.xml", "<toolchains/>"),
            (".local/share/mise/installs/pipx-x/1/x/pyvenv.cfg", "command = /home/me@corp/x"),
            (".pyenv/versions/tokenizer/pyvenv.cfg", "command = /home/me@corp/.pyenv/versions/tokenizer"),
            (".pyenv/versions/3.14/envs/app/bin/python", ""),
            ("homebrew/Cellar/openjdk/21/libexec/jmods/java.base.jmod", ""),
            ("homebrew/Cellar/openjdk/21/libexec/conf/net.properties", ""),
            ("homebrew/Cellar/openjdk/21/libexec/release", ""),
            ("homebrew/Cellar/maven/3.9/libexec/boot/x.jar", ""),
            ("homebrew/Cellar/maven/3.9/libexec/conf/settings.xml", maven),
            ("homebrew/Cellar/git/2/etc/bash_completion.d/git", "$@"),
        ];
        let (_dir, home) = home();
        files.iter().for_each(|(file, text)| write(&home, file, text));
        let places = places(&home, &["/usr/bin".into()]);
        let closed = files.iter().map(|(file, _)| *file).filter(|file| !is_granted(&places, &home.join(file)));
        assert_eq!(closed.collect::<Vec<_>>(), Vec::<&str>::new());
        assert_eq!(places.left_out, []);
    }

    /// The reasons that `subtend doctor` prints. A link in the version leads to settings with another name next to it.
    /// The control: the products above.
    #[test]
    fn closed_parts_of_installed_versions_are_left_out() {
        let (_dir, home) = home();
        let secret = "<settings><!-- x --><password>x</password></settings>";
        write(&home, ".asdf/installs/maven/3/conf/settings.xml", secret);
        write(&home, ".asdf/installs/maven/4/mine", secret);
        write(&home, ".pyenv/versions/conda/.condarc", "channels: [https://host/t/ab-12/main]");
        write(&home, "project/lib/x", "");
        std::fs::create_dir_all(home.join(".asdf/installs/maven/4/conf")).unwrap();
        symlink("../mine", home.join(".asdf/installs/maven/4/conf/settings.xml")).unwrap();
        symlink(home.join("project"), home.join(".asdf/installs/maven/5")).unwrap();
        let mut left_out = places(&home, &["/usr/bin".into()]).left_out;
        left_out.sort();
        let settings = |version: &str| secrets_reason(&home.join(".asdf/installs/maven").join(version));
        let expected = [
            (".asdf/installs/maven/3/conf/settings.xml", settings("3/conf/settings.xml")),
            (".asdf/installs/maven/4/mine", settings("4/conf/settings.xml")),
            (".pyenv/versions/conda/.condarc", secrets_reason(&home.join(".pyenv/versions/conda/.condarc"))),
            ("project", format!("it is outside of {}", home.join(".asdf").display())),
        ];
        assert_eq!(left_out, expected.map(|(file, why)| (home.join(file), why)));
    }

    #[test]
    fn home_directory_behind_a_link_grants_the_same() {
        let (dir, home) = home();
        let link = dir.path().canonicalize().unwrap().join("link");
        symlink(&home, &link).unwrap();
        let granted = places(&link, &[link.join("tools/bin")]).readable;
        assert_eq!(granted, places(&home, &[home.join("tools/bin")]).readable);
        assert!(granted.contains(&home.join("tools/lib")));
    }

    #[test]
    fn places_exclude_paths_that_overlap_secrets() {
        let (_dir, home) = home();
        let parent = home.parent().unwrap().to_owned();
        let entries = [home.clone(), parent.clone(), "/".into(), home.join(".ssh"), home.join(".cargo")];
        let places = places(&home, &entries);
        assert_eq!(readable_below(&places, &home), [".rustup/toolchains", ".cargo/bin", ".cargo/registry"]);
        let left_out: Vec<&Path> = places.left_out.iter().map(|(path, _)| &**path).collect();
        assert_eq!(left_out, [&home, &parent, Path::new("/"), &home.join(".ssh"), &home.join(".cargo")]);
    }
}
