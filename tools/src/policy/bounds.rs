//! Restrictions in addition to a policy: files that configure agents, and files of the host.

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};

use subtend_session::authority::{Authority, Rule, RuleSet, Verdict};
use subtend_session::unseen::is_unseen;

use super::HostPolicy;

const WRITE: &str = "fs.write";

/// Maximum number of links followed in a path, as in the operating system.
const MAX_LINKS: usize = 40;

/// Workspace files with which this and other products configure agents. A change affects the next session.
pub const PROTECTED: [&str; 10] = [
    "subtend.yaml",
    ".subtend",
    ".agents",
    ".claude",
    ".codex",
    ".gemini",
    ".opencode",
    ".mcp.json",
    "opencode.json",
    "opencode.jsonc",
];

/// A path of the host that cannot be hidden from tools.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtectError {
    #[error(
        "the workspace {} lies in {}, which tools may not use: choose another workspace or another data directory",
        workspace.display(),
        path.display()
    )]
    WorkspaceInside { workspace: PathBuf, path: PathBuf },
    /// The name of the path cannot be part of a rule.
    #[error("{} cannot be hidden from tools: a rule cannot express its name; choose another directory", path.display())]
    Inexpressible { path: PathBuf },
    /// The path, or a link on its way, lies in a directory of this user that this process may not search.
    #[error(
        "{} cannot be hidden from tools: a link in {} may lead into the workspace, and its mode does not let this process \
         see that; correct the mode",
        path.display(),
        closed.display()
    )]
    Closed { path: PathBuf, closed: PathBuf },
}

impl HostPolicy {
    /// Requires approval for writes to files that configure agents ([`PROTECTED`]), even if `policy` allows them. A rule of `policy` with an
    /// explicit path (`.subtend/**`, `subtend.yaml`) exempts the named files; `*` and `**` do not.
    ///
    /// ```
    /// use subtend_tools::policy::{HostPolicy, PROTECTED};
    ///
    /// let asked = |rules: &[&str]| HostPolicy::allowing(rules.iter().copied()).map(|policy| HostPolicy::protected_files(&policy).rules.len());
    /// assert_eq!(asked(&["fs.write"])?, PROTECTED.len());
    /// assert_eq!(asked(&["fs.write", "fs.write=.subtend/**"])?, PROTECTED.len() - 1);
    /// # Ok::<(), subtend_tools::policy::BadRule>(())
    /// ```
    pub fn protected_files(policy: &RuleSet) -> RuleSet {
        let allows = |rule: &&Rule| rule.verdict == Verdict::Allow && matches!(&*rule.action, WRITE | "fs.*");
        let allowed: Vec<&Rule> = policy.rules.iter().filter(allows).collect();
        let mut rules = Vec::new();
        for path in PROTECTED {
            let (file, below) = (path.to_owned(), format!("{path}/"));
            let whole =
                |rule: &&Rule| [&file, &below, &format!("{below}**")].iter().any(|all| ***all == *rule.resource);
            if allowed.iter().any(whole) {
                continue;
            }
            rules.push(Rule { action: WRITE.into(), resource: path.into(), verdict: Verdict::Ask });
            let parts = allowed.iter().filter(|rule| rule.resource.starts_with(&*below));
            rules.extend(parts.map(|rule| Rule { action: WRITE.into(), ..Rule::clone(rule) }));
        }
        RuleSet { default: Verdict::Allow, rules }
    }

    /// Requires approval for writes to the targets of protected paths that are symbolic links. Targets outside of the workspace need no rule,
    /// because tools cannot write there. A target that cannot be found may be any file.
    pub fn protected_links(workspace: &Path) -> RuleSet {
        let workspace = resolve_links(workspace);
        let behind = |path: &str| Ok(links_and_target(&workspace.join(path))?.into_iter().skip(1).collect());
        ask_before_writes(&workspace, PROTECTED.into_iter().map(behind))
    }

    /// Requires approval for writes to the user's own `paths` in `workspace`, such as a folder of global skills. Links that lead to
    /// them also require approval. A path need not exist yet. Ignores paths that contain the workspace. If links cannot be followed
    /// because this user may not search an own directory, all writes require approval.
    pub fn protected_user_paths(workspace: &Path, paths: &[PathBuf]) -> RuleSet {
        let workspace = resolve_links(workspace);
        ask_before_writes(&workspace, paths.iter().map(|path| links_and_target(path)))
    }

    /// Denies tools access to the host's own `paths` in `workspace`, such as its store and its configuration. Also denies writes to links that
    /// lead to them, because a replaced link would redirect the host. A path need not exist yet.
    ///
    /// # Errors
    /// [`ProtectError`] if the workspace lies in such a path, the name of the path cannot be part of a rule, or its links cannot be followed.
    pub fn denied_host_paths(workspace: &Path, paths: &[PathBuf]) -> Result<RuleSet, ProtectError> {
        let host = |path: &PathBuf| (path.clone(), links_and_target(path), resolve_links(path));
        denied(&resolve_links(workspace), paths.iter().map(host))
    }

    /// Denies tools access to temporary files of this user's hosts in `workspace`, such as the `HOME` of a command of another session: a
    /// file there could name a program that git starts. The runtime adds these rules to the bounds of each environment.
    ///
    /// # Errors
    /// As [`HostPolicy::denied_host_paths`].
    pub fn denied_temporary_files(workspace: &Path) -> Result<RuleSet, ProtectError> {
        let mut paths: Vec<PathBuf> = crate::temporary::dir().into_iter().collect();
        // A guard resolves a relative path from the workspace, the host from its own directory.
        paths.extend(paths.first().filter(|dir| dir.is_relative()).map(|dir| workspace.join(dir)));
        denied(&resolve_links(workspace), paths.iter().map(|path| temporary(path)))
    }
}

/// A path of the host, the links that lead to it or the directory that hides them, and the path after they are resolved.
type HostPath = (PathBuf, Result<Vec<PathBuf>, PathBuf>, PathBuf);

/// Returns the directory for temporary files without following a link in its place: a link is never used, and another user may have made it
/// lead to the workspace. Its name counts, because the directory may replace it while sessions are open.
fn temporary(path: &Path) -> HostPath {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (parent, name) = (path.parent().unwrap_or(&path), path.file_name().unwrap_or_default());
    let links = links_and_target(parent).map(|mut found| {
        found.pop();
        found
    });
    let resolved = resolve_links(parent).join(name);
    (path, links, resolved)
}

/// Returns rules that deny `paths` in the canonical `workspace`, and writes to the links that lead to them.
fn denied(workspace: &Path, paths: impl Iterator<Item = HostPath>) -> Result<RuleSet, ProtectError> {
    let (mut rules, mut links) = (Vec::new(), BTreeSet::new());
    for (path, found, resolved) in paths {
        let found = found.map_err(|closed| ProtectError::Closed { path, closed })?;
        links.extend(found.iter().filter_map(|path| rule_path(workspace, path)));
        if workspace.starts_with(&resolved) {
            return Err(ProtectError::WorkspaceInside { workspace: workspace.to_owned(), path: resolved });
        }
        let Ok(below) = resolved.strip_prefix(workspace) else { continue };
        let Some(below) = below.to_str().filter(|below| !below.contains(['\\', '*'])) else {
            return Err(ProtectError::Inexpressible { path: resolved });
        };
        rules.push(Rule { action: "fs.*".into(), resource: below.into(), verdict: Verdict::Deny });
    }
    let rule = |link: String| Rule { action: WRITE.into(), resource: link.into(), verdict: Verdict::Deny };
    rules.extend(links.into_iter().map(rule));
    Ok(RuleSet { default: Verdict::Allow, rules })
}

/// Returns the authority for commands: `authority` without the rules of [`HostPolicy::protected_files`] for paths that do not exist.
///
/// A sandbox can prevent the creation of a path only by denying all new files in its directory. This is not necessary: a created file has no
/// effect until the user trusts it.
pub(crate) fn for_commands(authority: &Authority, exists: impl Fn(&str) -> bool) -> Authority {
    authority.retaining(|set, rule| {
        let is_bound = set.default == Verdict::Allow && rule.verdict == Verdict::Ask && &*rule.action == WRITE;
        !is_bound || !PROTECTED.contains(&&*rule.resource) || exists(&rule.resource)
    })
}

/// Returns whether `path` is, or lies in, one of [`PROTECTED`], also in a spelling that some file system would open for it.
pub(crate) fn is_protected(path: &str) -> bool {
    PROTECTED.contains(&&*folded(first_name(path)))
}

/// Returns whether `path` is, or lies in, the `.git` of a repository, also in such a spelling.
pub(crate) fn is_in_repository(path: &str) -> bool {
    path.split('/').any(|part| folded(part) == ".git")
}

/// Returns a name without what file systems ignore: case, invisible characters, and dots and spaces at its end.
fn folded(name: &str) -> String {
    let seen: String = name.chars().filter(|c| !is_unseen(*c)).collect();
    // Some letters have more than one small form, such as the long s.
    seen.trim_end_matches(['.', ' ']).to_uppercase().to_lowercase()
}

/// Returns whether `path` is another spelling of one of [`PROTECTED`].
pub(crate) fn imitates_protected(path: &str) -> bool {
    is_protected(path) && !PROTECTED.contains(&first_name(path))
}

fn first_name(path: &str) -> &str {
    path.split('/').next().unwrap_or_default()
}

/// Returns the path relative to `workspace`, for a rule. If its name cannot be part of a rule, returns the nearest usable ancestor.
fn rule_path(workspace: &Path, path: &Path) -> Option<String> {
    let below = path.strip_prefix(workspace).ok()?;
    let plain =
        |part: Component<'_>| part.as_os_str().to_str().filter(|name| !name.contains(['\\', '*'])).map(str::to_owned);
    let parts: Vec<String> = below.components().map_while(plain).collect();
    let pattern = if parts.is_empty() { "*".to_owned() } else { parts.join("/") };
    (below.components().next().is_some()).then_some(pattern)
}

/// Returns rules for writes to the found paths in `workspace`, or for all writes if one of them could not be found.
fn ask_before_writes(workspace: &Path, found: impl Iterator<Item = Result<Vec<PathBuf>, PathBuf>>) -> RuleSet {
    let patterns = |found: Result<Vec<PathBuf>, PathBuf>| match found {
        Ok(paths) => paths.iter().filter_map(|path| rule_path(workspace, path)).collect(),
        Err(_) => vec!["*".to_owned()],
    };
    let named: BTreeSet<String> = found.flat_map(patterns).collect();
    let rule = |path: String| Rule { action: WRITE.into(), resource: path.into(), verdict: Verdict::Ask };
    RuleSet { default: Verdict::Allow, rules: named.into_iter().map(rule).collect() }
}

/// Returns every symbolic link in `path`, and then the final target.
///
/// # Errors
/// The directory of this user whose mode hides whether a part of the path is a link.
fn links_and_target(path: &Path) -> Result<Vec<PathBuf>, PathBuf> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (mut found, mut at) = (Vec::new(), PathBuf::new());
    let mut rest: Vec<PathBuf> = path.components().rev().map(|part| part.as_os_str().into()).collect();
    while let Some(part) = rest.pop() {
        if part == Path::new("..") {
            at.pop();
            continue;
        }
        // `join` with an absolute part replaces the path.
        let next = at.join(&part);
        match next.read_link() {
            Ok(target) if found.len() < MAX_LINKS => {
                found.push(next);
                rest.extend(target.components().rev().map(|part| PathBuf::from(part.as_os_str())));
            }
            Err(error) if may_hide_link(&at, &error) => return Err(at),
            Ok(_) | Err(_) => at = next,
        }
    }
    found.push(at);
    Ok(found)
}

/// Returns whether an entry of `dir` for which `read_link` failed may be a link that a command could open later. It can change the modes of
/// directories of this user only.
#[cfg(unix)]
fn may_hide_link(dir: &Path, error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, InvalidInput, NotADirectory, NotFound};
    use std::os::unix::fs::MetadataExt as _;

    if matches!(error.kind(), InvalidFilename | InvalidInput | NotADirectory | NotFound) {
        return false;
    }
    let visible = dir.ancestors().find_map(|dir| dir.metadata().ok());
    visible.is_none_or(|dir| dir.uid() == rustix::process::geteuid().as_raw())
}

#[cfg(not(unix))]
fn may_hide_link(_: &Path, _: &io::Error) -> bool {
    false
}

fn resolve_links(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut rest = Vec::new();
    for ancestor in path.ancestors() {
        if let Ok(real) = ancestor.canonicalize() {
            return rest.iter().rev().fold(real, |path, part| path.join(part));
        }
        match ancestor.components().next_back() {
            Some(Component::Normal(name)) => rest.push(name.to_owned()),
            Some(Component::ParentDir) => rest.push("..".into()),
            Some(Component::CurDir | Component::RootDir | Component::Prefix(_)) | None => {}
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use subtend_session::authority::Access;

    use super::*;

    fn verdict(rules: &RuleSet, action: &str, resource: &str) -> Verdict {
        Authority::of(rules.clone()).verdict(&Access { action: action.into(), resource: resource.into() })
    }

    fn protected_files(rules: &[&str]) -> RuleSet {
        HostPolicy::protected_files(&HostPolicy::allowing(rules.iter().copied()).unwrap())
    }

    #[test]
    fn protected_paths_ask_unless_a_rule_names_them() {
        let paths = ["subtend.yaml", ".subtend/agents/a.md", ".claude/settings.json", "src/main.rs", ".subtend-x"];
        let verdicts = |rules: &[&str]| {
            let set = protected_files(rules);
            paths.map(|path| verdict(&set, "fs.write", path))
        };
        let (ask, allow) = (Verdict::Ask, Verdict::Allow);
        for all in [&["fs.write"][..], &["fs.*"], &["fs.write=**"], &["fs.write=*/agents/**"]] {
            assert_eq!(verdicts(all), [ask, ask, ask, allow, allow], "{all:?}");
        }
        assert_eq!(verdicts(&["fs.write=.subtend/**"]), [ask, allow, ask, allow, allow]);
        assert_eq!(verdicts(&["fs.write=.subtend/agents/a.md"]), [ask, allow, ask, allow, allow]);
        assert_eq!(verdicts(&["fs.write=subtend.yaml"]), [allow, ask, ask, allow, allow]);
        assert_eq!(verdict(&protected_files(&[]), "fs.read", ".subtend/agents/a.md"), allow);
    }

    #[test]
    fn commands_cannot_write_existing_protected_paths() {
        let all = HostPolicy::allowing(["fs.write"]).unwrap();
        let authority = Authority::of(all.clone()).meet(&Authority::of(HostPolicy::protected_files(&all)));
        let verdicts = |authority: &Authority| {
            [".subtend", ".claude"]
                .map(|path| authority.verdict(&Access { action: WRITE.into(), resource: path.into() }))
        };
        assert_eq!(verdicts(&authority), [Verdict::Ask, Verdict::Ask]);
        assert_eq!(verdicts(&for_commands(&authority, |path| path == ".subtend")), [Verdict::Ask, Verdict::Allow]);
        // An explicit rule of the user remains.
        let own = RuleSet { default: Verdict::Deny, ..HostPolicy::protected_files(&all) };
        assert_eq!(verdicts(&for_commands(&Authority::of(own), |_| false)), [Verdict::Ask, Verdict::Ask]);
    }

    #[test]
    fn host_paths_are_denied_inside_the_workspace_only() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = dir.path().join("w");
        std::fs::create_dir(&workspace).unwrap();
        let kept =
            HostPolicy::denied_host_paths(&workspace, &[workspace.join("made/later"), dir.path().join("sibling")])
                .unwrap();
        let seen = ["made/later", "made/later/redb/LOCK", "made", "made/other"];
        let (deny, allow) = (Verdict::Deny, Verdict::Allow);
        for action in ["fs.read", "fs.write"] {
            assert_eq!(seen.map(|path| verdict(&kept, action, path)), [deny, deny, allow, allow]);
        }
        for around in [workspace.clone(), dir.path().to_owned()] {
            assert!(matches!(
                HostPolicy::denied_host_paths(&workspace, &[around]),
                Err(ProtectError::WorkspaceInside { .. })
            ));
        }
        let odd = HostPolicy::denied_host_paths(&workspace, &[workspace.join("a*b")]);
        assert!(matches!(odd, Err(ProtectError::Inexpressible { .. })));
    }

    /// Attack: a link in place of the temporary files while a session starts, which is gone later. The control: what the link leads to.
    #[test]
    #[cfg(unix)]
    fn link_in_place_of_temporary_files_keeps_its_name_denied() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = dir.path().join("w");
        std::fs::create_dir_all(workspace.join("real/project")).unwrap();
        let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, workspace.join(name)).unwrap();
        link("real", "tmp");
        let path = workspace.join("tmp/own");
        let found = || denied(&resolve_links(&workspace), std::iter::once(temporary(&path))).unwrap();
        let missing = found();
        let seen = ["real/own", "real/own/a/.gitconfig", "tmp", "real", "real/project", "src"];
        let (deny, allow) = (Verdict::Deny, Verdict::Allow);
        // Links to nothing, to a directory, around the workspace, and in a circle.
        for target in ["nowhere", "project", "../..", "own"] {
            link(target, "real/own");
            let rules = found();
            let verdicts = |action: &str| seen.map(|path| verdict(&rules, action, path));
            assert_eq!(verdicts("fs.read"), [deny, deny, allow, allow, allow, allow], "{target}");
            assert_eq!(verdicts("fs.write"), [deny, deny, deny, allow, allow, allow], "{target}");
            assert_eq!(rules, missing);
            std::fs::remove_file(workspace.join("real/own")).unwrap();
        }
    }

    /// A command may close a directory of its user before a host starts, and open it afterwards. The control: the same directory, opened.
    #[test]
    #[cfg(target_os = "linux")]
    fn link_in_a_closed_directory_counts_as_leading_anywhere() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};

        use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

        let dir = tempfile::tempdir().unwrap();
        let (workspace, closed) = (dir.path().canonicalize().unwrap().join("w"), dir.path().join("closed"));
        [&workspace, &closed, &workspace.join("real")].iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        symlink(workspace.join("real"), closed.join("link")).unwrap();
        symlink(closed.join("link"), workspace.join(".claude")).unwrap();
        let paths = [closed.join("link/skills")];
        let allow_mode = |mode| std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(mode)).unwrap();
        let rules = || {
            let none = CapabilitySet::empty();
            // Modes do not bind the superuser. Capabilities are those of this thread.
            set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).unwrap();
            let asked = [HostPolicy::protected_links(&workspace), HostPolicy::protected_user_paths(&workspace, &paths)];
            let verdicts = ["real/skills", "other"].map(|path| asked.each_ref().map(|set| verdict(set, WRITE, path)));
            (
                verdicts,
                HostPolicy::denied_host_paths(&workspace, &paths).map(|set| verdict(&set, "fs.read", "real/skills/a")),
            )
        };
        let call = || std::thread::scope(|scope| scope.spawn(rules).join().unwrap());
        let (deny, ask, allow) = (Verdict::Deny, Verdict::Ask, Verdict::Allow);
        assert_eq!(call(), ([[ask; 2], [allow; 2]], Ok(deny)), "the control");
        for mode in [0, 0o600] {
            allow_mode(mode);
            let (verdicts, denied) = call();
            allow_mode(0o700);
            assert_eq!(verdicts, [[ask; 2]; 2], "{mode:o}");
            assert_eq!(
                denied,
                Err(ProtectError::Closed { path: paths[0].clone(), closed: closed.canonicalize().unwrap() })
            );
        }
    }
}
