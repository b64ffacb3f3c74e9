//! The domain: Landlock's rules for one command.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use rustix::fs::{Mode, OFlags, open};
use subtend_session::authority::Authority;

use super::survey::{Grant, Survey};
use super::{FILES, Strength, limits_network, syscalls};

/// The first version that holds `truncate` too: without it what is denied could be emptied.
const FS: ABI = ABI::V3;
/// The first version that knows of TCP.
const TCP: ABI = ABI::V4;

/// What commands need to be read: programs, libraries and settings of the system.
const SYSTEM: [&str; 10] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix/store", "/sys/devices/system/cpu"];
/// Of processes; those outside of the domain keep their own to themselves.
const PROC: &str = "/proc";
/// Where names of hosts are looked up on systems that keep `/etc/resolv.conf` elsewhere.
const RESOLVERS: [&str; 2] = ["/run/systemd/resolve", "/run/resolvconf"];
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

fn ruleset(network_limited: bool) -> Result<Ruleset, landlock::RulesetError> {
    let mut rules =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::from_all(FS))?;
    if network_limited {
        rules = rules.handle_access(AccessNet::from_all(TCP))?;
    }
    // What newer systems can hold besides.
    rules
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::IoctlDev | AccessFs::ResolveUnix)?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)
}

pub(super) fn probe() -> Result<Strength, String> {
    syscalls::filter(false)?;
    let holds = |network| ruleset(network).and_then(Ruleset::create).map(drop);
    if holds(true).is_ok() {
        return Ok(Strength::FilesAndNetwork);
    }
    holds(false).map(|()| Strength::Files).map_err(|error| {
        format!("this system's kernel has no Landlock that holds files (Linux 6.2 or later, with `landlock` in `lsm=`): {error}")
    })
}

/// Puts this thread, and all that it starts, into a domain of what `authority` allows in the current directory, and of all in
/// `scratch`.
pub(super) fn enter(authority: &Authority, scratch: &Path) -> Result<(), String> {
    let limited = limits_network(authority);
    let said = |error: landlock::RulesetError| format!("Landlock does not take the rules: {error}");
    let mut rules = ruleset(limited).and_then(Ruleset::create).map_err(said)?;
    let filter = syscalls::filter(!limited)?;
    if !authority.unrestricted(&FILES) {
        apart(&std::env::current_dir().map_err(|error| format!("the workspace has no place any more: {error}"))?)?;
    }
    for path in SYSTEM.iter().chain([&PROC]).chain(if limited { [].iter() } else { RESOLVERS.iter() }) {
        allow(&mut rules, Path::new(path), AccessFs::from_read(FS))?;
    }
    for path in DEVICES {
        allow(&mut rules, Path::new(path), AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate)?;
    }
    allow(&mut rules, scratch, AccessFs::from_all(FS))?;
    let here = open(".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| format!("the workspace cannot be opened: {error}"))?;
    Survey::new(authority).grant(here, &mut |fd, grant| add(&mut rules, fd, access(grant)))?;
    let entered = rules.restrict_self().map_err(said)?;
    if entered.ruleset == RulesetStatus::NotEnforced || !entered.no_new_privs {
        return Err("Landlock took the rules and holds none of them".to_owned());
    }
    syscalls::apply(&filter)
}

/// The rules of a workspace say nothing where the system's are granted: one must not lie in the other.
fn apart(workspace: &Path) -> Result<(), String> {
    let real =
        SYSTEM.iter().chain([&PROC]).chain(&RESOLVERS).filter_map(|path| PathBuf::from(path).canonicalize().ok());
    for system in real {
        if workspace.starts_with(&system) || system.starts_with(workspace) {
            let (workspace, system) = (workspace.display(), system.display());
            return Err(format!(
                "the workspace {workspace} and {system}, which commands need to read, lie in each other: no sandbox can hold \
                 a command to the rules of the one and not of the other"
            ));
        }
    }
    Ok(())
}

/// Grants `access` to what is at `path`, if there is something.
fn allow(rules: &mut RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<(), String> {
    let Ok(fd) = PathFd::new(path) else { return Ok(()) };
    add(rules, fd.as_fd(), access)
}

fn add(rules: &mut RulesetCreated, fd: BorrowedFd<'_>, access: BitFlags<AccessFs>) -> Result<(), String> {
    let added = rules.add_rule(PathBeneath::new(fd, access));
    added.map(drop).map_err(|error| format!("Landlock does not take a rule: {error}"))
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
    fn a_workspace_among_the_systems_files_cannot_be_held() {
        for workspace in ["/", "/usr", "/usr/share/x", "/proc"] {
            assert!(apart(Path::new(workspace)).unwrap_err().contains("lie in each other"), "{workspace}");
        }
        for workspace in ["/home/a", "/usrx", "/tmp"] {
            assert_eq!(apart(Path::new(workspace)), Ok(()));
        }
    }
}
