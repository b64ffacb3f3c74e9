use std::fs;

use super::*;
use crate::catalog::{Catalog, FOLDER};
use crate::skill::Skills;
use crate::slash::SlashCommands;

/// Puts a named pipe in place of a file, with a writer that sends `text` to a reader that waits for it.
#[cfg(unix)]
fn swap_pipe(path: &Path, text: &'static str) -> std::thread::JoinHandle<()> {
    fs::remove_file(path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    let path = path.to_owned();
    std::thread::spawn(move || {
        if let Ok(mut pipe) = fs::File::options().write(true).open(path) {
            // The reader may be gone.
            drop(io::Write::write_all(&mut pipe, text.as_bytes()));
        }
    })
}

/// Ends a writer of [`swap_pipe`] that still waits for a reader.
#[cfg(unix)]
fn release(path: &Path, writer: std::thread::JoinHandle<()>) {
    let reader = system::open_nonblocking(path).unwrap();
    writer.join().unwrap();
    drop(reader);
}

const TEXT: &str = "---\nname: general\nmode: all\ndescription: d\n---\nObey.\n";

/// The kinds of files, each by its path in a workspace.
const FILES: [&str; 4] = [
    ".subtend/agents/general.md",
    ".claude/agents/general.md",
    ".claude/commands/general.md",
    ".claude/skills/general/SKILL.md",
];

fn workspace() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for path in FILES {
        fs::create_dir_all(dir.path().join(path).parent().unwrap()).unwrap();
        fs::write(dir.path().join(path), TEXT).unwrap();
    }
    dir
}

/// A file becomes a pipe after it was found. The control: the file that it was.
#[cfg(unix)]
#[test]
fn pipe_that_replaces_a_found_file_is_refused() {
    for path in FILES {
        let dir = workspace();
        let path = dir.path().join(path);
        let read_now = || read(dir.path(), &path, HardLinks::Refused);
        let before = read_now();
        let writer = swap_pipe(&path, TEXT);
        let after = read_now();
        release(&path, writer);
        assert_eq!((before, after), (Ok(TEXT.to_owned()), Err(NOT_REGULAR.to_owned())), "{}", path.display());
    }
}

/// A file, or a folder above it, becomes a link after it was found. The control: the same path without the link.
#[cfg(unix)]
#[test]
fn link_that_replaces_a_found_file_is_not_followed() {
    use std::os::unix::fs::symlink;

    let outside = workspace();
    for path in FILES {
        for linked in Path::new(path).ancestors().filter(|linked| !linked.as_os_str().is_empty()) {
            let dir = workspace();
            let (whole, entry) = (dir.path().join(path), dir.path().join(linked));
            let is_read = || {
                let listed = list(dir.path(), whole.parent().unwrap()).is_ok() || whole == entry;
                (listed, read(dir.path(), &whole, HardLinks::Refused).is_ok())
            };
            let before = is_read();
            fs::rename(&entry, dir.path().join("moved")).unwrap();
            symlink(outside.path().join(linked), &entry).unwrap();
            assert_eq!((before, is_read()), ((true, true), (whole == entry, false)), "{}", entry.display());
        }
    }
}

/// A command exchanges files with links to others while they are loaded. The control: the same files at rest.
#[cfg(target_os = "linux")]
#[test]
fn files_exchanged_while_they_are_loaded_are_not_followed() {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::fs::{CWD, RenameFlags, renameat_with};

    let (dir, outside) = (workspace(), workspace());
    let secret = outside.path().join("secret.md");
    fs::write(&secret, TEXT.replace("Obey.", "SECRET")).unwrap();
    let pairs = FILES.map(|path| (dir.path().join(path), dir.path().join(path).with_file_name("z")));
    for (_, link) in &pairs {
        std::os::unix::fs::symlink(&secret, link).unwrap();
    }
    // More files widen the time between the listing of a folder and the reading of its files.
    for n in 0..20 {
        fs::write(dir.path().join(FOLDER).join(format!("a{n}.md")), TEXT.replace("general", &format!("a{n}"))).unwrap();
    }
    let loaded = || {
        let (catalog, skills) = (Catalog::load(dir.path()), Skills::load(dir.path()));
        let commands = SlashCommands::load(dir.path());
        let agent = catalog.get("general").map(|agent| agent.body.to_string());
        let command = commands.get("general").map(|command| command.expand("").unwrap().text);
        [agent, command, skills.get("general").map(|skill| skill.body.to_string())].map(Option::unwrap_or_default)
    };
    let at_rest = loaded();
    let stopped = AtomicBool::new(false);
    let leaked = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stopped.load(Ordering::Relaxed) {
                for (file, link) in &pairs {
                    renameat_with(CWD, file, CWD, link, RenameFlags::EXCHANGE).unwrap();
                }
            }
        });
        let leaked = (0..20).map(|_| loaded()).find(|texts| texts.iter().any(|text| text.contains("SECRET")));
        stopped.store(true, Ordering::Relaxed);
        leaked
    });
    assert!(at_rest.iter().all(|text| text.contains("Obey.")), "{at_rest:?}");
    assert_eq!(leaked, None);
}
