//! The Landlock rules for one command.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use rustix::fs::{FileType, Mode, OFlags, fstat, open, openat};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getppid, kill_process_group, test_kill_process};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use seccompiler::BpfProgram;
use subtend_seccomp::CallListener;
use subtend_session::authority::Authority;

use super::modes::{GrantedPlaces, STOPPED_CALLS};
use super::places::{PROC, Places, RESOLVERS, SETTINGS, SYSTEM};
use super::settings::readable_by_all;
use super::survey::{Grant, WorkspaceSurvey};
use super::{FILES, SandboxStrength, limits_network, syscalls};
use crate::workspace::beneath;

/// The first version that covers `truncate`. With an earlier version, a command could empty a denied file.
const FS: ABI = ABI::V3;
/// The first version that covers TCP.
const TCP: ABI = ABI::V4;

fn ruleset(network_limited: bool) -> Result<Ruleset, landlock::RulesetError> {
    let mut rules =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::from_all(FS))?;
    if network_limited {
        rules = rules.handle_access(AccessNet::from_all(TCP))?;
    }
    // Newer systems also support these rights.
    rules
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::IoctlDev | AccessFs::ResolveUnix)?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)
}

pub(super) fn probe() -> Result<SandboxStrength, String> {
    syscalls::filter(false)?;
    let is_supported = |network| ruleset(network).and_then(Ruleset::create).map(drop);
    if is_supported(true).is_ok() {
        return Ok(SandboxStrength::FilesAndNetwork);
    }
    is_supported(false).map(|()| SandboxStrength::Files).map_err(|error| {
        format!(
            "the kernel's Landlock cannot restrict files (needs Linux 6.2 or later, with `landlock` in `lsm=`): {error}"
        )
    })
}

/// Restricts this thread and its later children to what `authority` allows here, `scratch`, and `places`. The filter of system calls is
/// left to [`CommandFilter::apply`].
pub(super) fn enter(
    authority: &Authority,
    scratch: &Path,
    places: &Places,
) -> Result<(CommandFilter, GrantedPlaces), String> {
    let limited = limits_network(authority);
    let mut rules = ruleset(limited).and_then(Ruleset::create).map_err(rules_error)?;
    let filter = CommandFilter(syscalls::filter(!limited)?);
    let resolvers = places.with_network.iter().filter(|_| !limited);
    let mut readable: Vec<&Path> = places.readable.iter().chain(resolvers).map(|path| &**path).collect();
    let mut listed: Vec<&Path> = places.listed.iter().map(|path| &**path).collect();
    if !authority.unrestricted(&FILES) {
        let missing = |error| format!("cannot find the workspace, which may have been removed: {error}");
        let here = std::env::current_dir().map_err(missing)?;
        remove_overlaps(&here, &mut readable)?;
        remove_overlaps(&here, &mut listed)?;
    }
    allow_system(&mut rules, &readable, places)?;
    for opened in listed.iter().filter_map(|path| open_without_links(path).ok()) {
        add(&mut rules, opened.as_fd(), AccessFs::ReadDir.into())?;
    }
    let mut granted = GrantedPlaces::default();
    let scratch = opened_without_links(scratch)?;
    add(&mut rules, scratch.as_fd(), AccessFs::from_all(FS))?;
    granted.add(scratch.as_fd(), true, true)?;
    let here = open(".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| format!("cannot open the workspace: {error}"))?;
    WorkspaceSurvey::new(authority).grant(here, &mut |fd, grant| {
        granted.add(fd, grant.read, grant.write)?;
        add(&mut rules, fd, access(grant))
    })?;
    restrict(rules)?;
    drop_capabilities(CapabilitySet::empty())?;
    Ok((filter, granted))
}

/// The filter of system calls of a command.
pub(super) struct CommandFilter(Vec<BpfProgram>);

impl CommandFilter {
    /// Applies the filter to this thread and its later descendants. The listener receives their changes of modes. Without one, because
    /// another program listens already or the kernel does not support it, these changes are denied.
    pub(super) fn apply(self) -> Result<Option<CallListener>, String> {
        let listener = CallListener::install(&STOPPED_CALLS).ok();
        syscalls::apply(&self.0)?;
        if listener.is_none() {
            syscalls::apply(&[syscalls::denied(&STOPPED_CALLS)?])?;
        }
        Ok(listener)
    }
}

/// Restricts this thread and all its later children to the directories `written` and `read`, to `program`, and to `places`, without
/// sockets. Rejects paths with links, because a session may have created the link.
pub(super) fn enter_within(
    (written, read): (&[PathBuf], &[PathBuf]),
    program: &Path,
    places: &Places,
) -> Result<(), String> {
    let mut rules = ruleset(false).and_then(Ruleset::create).map_err(rules_error)?;
    let filter = syscalls::filter(false)?;
    let readable: Vec<&Path> = places.readable.iter().map(|path| &**path).collect();
    allow_system(&mut rules, &readable, places)?;
    allow(&mut rules, program, AccessFs::ReadFile | AccessFs::Execute)?;
    let written = written.iter().map(|path| (path, AccessFs::from_all(FS)));
    for (path, access) in written.chain(read.iter().map(|path| (path, AccessFs::from_read(FS)))) {
        allow_without_links(&mut rules, path, access)?;
    }
    restrict(rules)?;
    // The superuser needs these in repositories of other users: for example, in a directory mounted into a container.
    drop_capabilities(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH | CapabilitySet::FOWNER)?;
    syscalls::apply(&filter)
}

/// Enters a nested domain, so that later children of this thread cannot end or stop the guard by a signal.
pub(super) fn enter_inner() -> Result<(), String> {
    // Before Linux 6.12 a domain cannot restrict signals.
    let Ok(rules) = signals() else { return Ok(()) };
    // A domain denies moves between directories, unless a rule grants them.
    let mut rules = rules.handle_access(AccessFs::Refer).and_then(Ruleset::create).map_err(rules_error)?;
    allow(&mut rules, Path::new("/"), AccessFs::Refer.into())?;
    restrict(rules)
}

/// Returns rules that restrict signals, if the system supports them.
fn signals() -> Result<Ruleset, landlock::RulesetError> {
    Ruleset::default().set_compatibility(CompatLevel::HardRequirement).scope(Scope::Signal)
}

/// Kills all other processes of the domain in one step, so that none forks meanwhile. False if impossible.
pub(super) fn kill() -> bool {
    // A signal to group 1 reaches all processes that this thread may signal. An error can also mean that no such process exists.
    is_confined() && kill_process_group(Pid::INIT, Signal::KILL).is_ok()
}

/// Returns whether signals from this thread reach only its own domain. Otherwise, they would reach every process of the user.
fn is_confined() -> bool {
    // Linux restricts signals since 6.12. A signal to the parent, which is outside of the domain, must fail.
    signals().and_then(Ruleset::create).is_ok()
        && getppid().is_some_and(|parent| test_kill_process(parent) == Err(Errno::PERM))
}

fn rules_error(error: landlock::RulesetError) -> String {
    format!("Landlock rejected the rules: {error}")
}

fn restrict(rules: RulesetCreated) -> Result<(), String> {
    let entered = rules.restrict_self().map_err(rules_error)?;
    if entered.ruleset == RulesetStatus::NotEnforced || !entered.no_new_privs {
        return Err("Landlock accepted the rules but does not enforce them".to_owned());
    }
    Ok(())
}

/// Grants the files and devices that system programs need.
fn allow_system(rules: &mut RulesetCreated, readable: &[&Path], places: &Places) -> Result<(), String> {
    for path in readable {
        if *path == Path::new(SETTINGS) {
            allow(rules, path, AccessFs::ReadDir.into())?;
            for path in readable_by_all(path) {
                allow(rules, &path, AccessFs::from_read(FS))?;
            }
        } else if is_system(path) {
            allow(rules, path, AccessFs::from_read(FS))?;
        } else if let Ok(opened) = open_without_links(path) {
            // The path had no links when it was found. A session may have put one there since.
            let is_dir =
                fstat(&opened).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory);
            let access = if is_dir { AccessFs::from_read(FS) } else { AccessFs::ReadFile | AccessFs::Execute };
            add(rules, opened.as_fd(), access)?;
        }
    }
    for path in &places.devices {
        allow(rules, path, AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate)?;
    }
    Ok(())
}

/// Drops all capabilities except `kept`: they bypass other limits. Programs in a domain cannot gain new ones.
fn drop_capabilities(kept: CapabilitySet) -> Result<(), String> {
    capabilities(None)
        .and_then(|own| {
            let kept = own.permitted & kept;
            set_capabilities(
                None,
                CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() },
            )
        })
        .map_err(|error| format!("cannot give up the capabilities of this process: {error}"))
}

fn is_system(place: &Path) -> bool {
    SYSTEM.iter().chain([&PROC]).chain(&RESOLVERS).any(|system| Path::new(system) == place)
}

/// Removes entries of `PATH` and toolchains that overlap the workspace: their grants would override its rules.
///
/// # Errors
/// If the workspace overlaps a system directory, because every command needs these directories.
fn remove_overlaps(workspace: &Path, readable: &mut Vec<&Path>) -> Result<(), String> {
    let overlaps = |place: &Path| {
        let place = place.canonicalize().unwrap_or_else(|_| place.to_owned());
        workspace.starts_with(&place) || place.starts_with(workspace)
    };
    if let Some(system) = readable.iter().find(|place| is_system(place) && overlaps(place)) {
        let (workspace, system) = (workspace.display(), system.display());
        return Err(format!(
            "the workspace {workspace} overlaps {system}, which commands need to read: the sandbox cannot apply the \
             workspace's rules. Use a workspace outside of {system}."
        ));
    }
    readable.retain(|place| !overlaps(place));
    Ok(())
}

/// Grants `access` to `path`, if it exists.
fn allow(rules: &mut RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<(), String> {
    let Ok(fd) = PathFd::new(path) else { return Ok(()) };
    add(rules, fd.as_fd(), access)
}

/// Opens `path` for a rule. A link on the way is an error.
fn open_without_links(path: &Path) -> io::Result<OwnedFd> {
    let root = Dir::open_ambient_dir("/", ambient_authority())?;
    let below = path.strip_prefix("/").map_err(|_| io::ErrorKind::InvalidInput)?;
    let (dir, name) = beneath::parent(&root, below)?;
    let opened = openat(&dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let is_link = FileType::from_raw_mode(fstat(&opened)?.st_mode) == FileType::Symlink;
    if is_link { Err(io::Error::other("it is a link")) } else { Ok(opened) }
}

/// Grants `access` to the directory `path`. A link on the way is an error: a session may have created it.
fn allow_without_links(rules: &mut RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<(), String> {
    add(rules, opened_without_links(path)?.as_fd(), access)
}

fn opened_without_links(path: &Path) -> Result<OwnedFd, String> {
    open_without_links(path).map_err(|error| format!("cannot open {} without following links: {error}", path.display()))
}

fn add(rules: &mut RulesetCreated, fd: BorrowedFd<'_>, access: BitFlags<AccessFs>) -> Result<(), String> {
    let added = rules.add_rule(PathBeneath::new(fd, access));
    added.map(drop).map_err(|error| format!("Landlock rejected a rule: {error}"))
}

fn access(grant: Grant) -> BitFlags<AccessFs> {
    let mut access = BitFlags::empty();
    if grant.read {
        access |= AccessFs::ReadFile | AccessFs::Execute;
    }
    if grant.list {
        access |= AccessFs::ReadDir;
    }
    if grant.write {
        access |= AccessFs::WriteFile | AccessFs::Truncate;
    }
    if grant.change {
        access |= AccessFs::MakeReg
            | AccessFs::MakeDir
            | AccessFs::MakeSym
            | AccessFs::MakeFifo
            | AccessFs::MakeSock
            | AccessFs::RemoveFile
            | AccessFs::RemoveDir
            | AccessFs::Refer;
    }
    access
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspace_that_overlaps_system_files_is_refused() {
        let system = || vec![Path::new("/usr"), Path::new("/proc")];
        for workspace in ["/", "/usr", "/usr/share/x", "/proc"] {
            let error = remove_overlaps(Path::new(workspace), &mut system()).unwrap_err();
            assert!(error.contains("overlaps"), "{workspace}");
        }
        for workspace in ["/home/a", "/usrx", "/tmp"] {
            assert_eq!(remove_overlaps(Path::new(workspace), &mut system()), Ok(()));
        }
    }

    /// A thread without a domain, or in a domain that does not restrict signals, must not send a signal.
    #[test]
    fn kill_needs_a_domain_that_restricts_signals() {
        let confined = |enter: fn()| std::thread::spawn(move || (enter(), is_confined()).1).join().unwrap();
        assert!(!confined(|| {}));
        if probe().is_err() {
            return;
        }
        assert!(!confined(|| {
            let files = Ruleset::default().handle_access(AccessFs::from_all(FS)).and_then(Ruleset::create);
            let root = PathBeneath::new(PathFd::new("/").unwrap(), AccessFs::from_all(FS));
            drop_capabilities(CapabilitySet::empty()).unwrap();
            restrict(files.unwrap().add_rule(root).unwrap()).unwrap();
        }));
        let is_new = signals().and_then(Ruleset::create).is_ok();
        assert_eq!(is_new, confined(|| restrict(ruleset(false).unwrap().create().unwrap()).unwrap()));
    }

    #[test]
    fn toolchain_that_overlaps_the_workspace_is_removed() {
        let mut readable: Vec<&Path> = ["/usr", "/home/a/.cargo/registry", "/home/a/go/bin"].map(Path::new).into();
        assert_eq!(remove_overlaps(Path::new("/home/a/.cargo/registry/src/x"), &mut readable), Ok(()));
        assert_eq!(readable, ["/usr", "/home/a/go/bin"].map(Path::new));
    }
}
