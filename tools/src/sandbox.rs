//! The sandbox: a command of a session whose files or network have limits is held to them by the system.
//!
//! The guard (see [`guard`](crate::guard)) starts such a command in a domain that neither it nor anything that it starts can
//! leave, daemons included. It is Linux's Landlock, with a filter of system calls beside it. Where the domain cannot be set up
//! the command is not run: never without it.
//!
//! # What is held
//!
//! * **Files of the workspace**, by what the session may do *whole*. A directory is granted as a whole where the authority
//!   allows all paths in it, also those that do not exist yet; one that it allows in part is gone through, and granted are the
//!   files and directories that are there. What cannot be said so is not granted: in a directory that is allowed in part
//!   nothing can be made, renamed or removed. A file that has a second name (a hard link) is granted only where no name of it
//!   in the workspace is denied. `Ask` counts as denied: nobody can be asked by the system.
//! * **Other files** ([`places()`]): commands can read and execute programs, libraries and settings of the system (`/usr`, and of
//!   `/etc` what everybody may read), the directories on `PATH` with the libraries beside them, and toolchains (rustup's, those of
//!   pyenv, nvm and others, the registry of cargo), unless a link of the workspace leads there. They can write a directory of their own, in `TMPDIR` and `HOME`. All else is out of reach: the
//!   rest of the person's home, and above all keys and credentials, which no entry on `PATH` opens.
//! * **Network**, unless all of `net.fetch` is allowed: no socket can be made, be it of TCP, UDP or any other kind; TCP is
//!   denied by Landlock besides. Unix sockets can never be made under the sandbox: whoever listens there (a container engine,
//!   a service manager, an agent of keys) would do for the command what it may not do itself.
//! * **Open descriptors**: a command inherits no file, pipe or socket that the caller of the runtime left open.
//! * **The kernel**: a command has no capabilities, makes and enters no namespace of users, changes no owner and no extended
//!   attribute of any file, makes no program that runs with its owner's rights (setuid), reaches no key ring and no memory, queue or
//!   semaphore between processes (System V, POSIX queues), and changes neither limits nor priorities nor processors of others.
//!
//! # What is not held
//!
//! Names, sizes and times of files can be seen, and times and the bits of `chmod` but setuid be changed, where the system's user may:
//! a filter of system calls sees no paths, Landlock has no right for modes, and without `chmod` linkers and archives do not work. Of
//! processes outside, names and arguments can be seen; their environment, memory and files cannot. Names in a directory that is
//! allowed in part are shown where no directory below it is denied, and names in any directory as they are used, to a command that
//! watches it (inotify). Processes outside can be signalled before Linux 6.12. A call that names a process by its number is refused also
//! where it is the caller's own thread, by the calls that set its scheduling.

#[cfg(target_os = "linux")]
mod domain;
#[cfg(unix)]
mod outside;
mod places;
#[cfg(target_os = "linux")]
mod scratch;
#[cfg(target_os = "linux")]
mod settings;
#[cfg(target_os = "linux")]
mod survey;
#[cfg(target_os = "linux")]
mod syscalls;

#[cfg(target_os = "linux")]
pub(crate) use survey::unread;

use std::path::Path;
use std::process::{Child, Command};

use subtend_session::authority::Authority;
use subtend_session::ids::Text;

pub use places::Places;

/// What stands before a command that the guard is to hold; the authority then comes as the first line of its input.
pub(crate) const HELD: &str = "--held";
/// The guard's exit code when the command was not run.
pub(crate) const NOT_RUN: i32 = 125;
/// What the guard's last words then begin with. A command can say this itself, and is then taken for one that was not run.
pub(crate) const WHY: &str = "guard: not run: ";

/// What a command can do to files whatever the rules say, as long as nothing holds it.
const FILES: [&str; 2] = ["fs.read", "fs.write"];
/// … and to the network.
const NET: &str = "net.fetch";

/// What this system's sandbox can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// Files: Linux from 6.2 on.
    Files,
    /// Files and the network: Linux from 6.7 on.
    FilesAndNetwork,
}

/// Why there is no sandbox.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Unsupported {
    pub why: Text,
}

/// Finds out what this system can hold. Binds nobody.
///
/// # Errors
/// When it can hold nothing, with what is missing.
pub fn probe() -> Result<Strength, Unsupported> {
    #[cfg(target_os = "linux")]
    let found = domain::probe();
    #[cfg(not(target_os = "linux"))]
    let found = Err("this system has no Landlock: it is a part of Linux".to_owned());
    found.map_err(|why| Unsupported { why: why.into() })
}

/// Lists what a held command can use besides its `workspace`, by the environment of this process.
pub fn places(workspace: &Path) -> Places {
    Places::of_process(workspace)
}

/// Whether `authority` sets a command limits, so that it may run in a sandbox only.
pub fn is_needed(authority: &Authority) -> bool {
    !authority.unrestricted(&FILES) || limits_network(authority)
}

pub(crate) fn limits_network(authority: &Authority) -> bool {
    !authority.unrestricted(&[NET])
}

/// A command that was started under a sandbox; what the sandbox left is removed when this is dropped.
pub(crate) struct Held {
    pub(crate) child: Child,
    #[cfg(target_os = "linux")]
    _scratch: scratch::Scratch,
}

/// Starts a command that can do only what `authority` allows, with the current directory as its workspace.
///
/// # Errors
/// Whatever keeps the sandbox from being whole: then nothing was started.
#[cfg(target_os = "linux")]
pub(crate) fn start(mut command: Command, authority: Authority) -> Result<Held, String> {
    let scratch = scratch::Scratch::make().map_err(|error| format!("no directory can be made for it: {error}"))?;
    let here = std::env::current_dir().map_err(|error| format!("the workspace has no place any more: {error}"))?;
    let places = places(&here);
    command.envs(places.variables.iter().map(|(name, path)| (name, path)));
    command.env("TMPDIR", scratch.path()).env("HOME", scratch.path());
    let path = scratch.path().to_owned();
    // A domain binds the thread that enters it and what that thread starts. The guard stays outside: it must see and end all.
    let started = std::thread::spawn(move || {
        domain::enter(&authority, &path, &places)?;
        command.spawn().map_err(|error| format!("{} cannot be started: {error}", command.get_program().display()))
    });
    let child = started.join().map_err(|_| "the sandbox panicked".to_owned())??;
    Ok(Held { child, _scratch: scratch })
}

/// There is no sandbox here.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub(crate) fn start(_: Command, _: Authority) -> Result<Held, String> {
    Err("this system has no sandbox".to_owned())
}
