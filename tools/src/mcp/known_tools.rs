//! Remembers digests of tool descriptions, outside of the workspaces, to report changes.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use subtend_session::ids::Hash;

use crate::private;

/// Maximum number of tools remembered for one server, which could invent names without end.
const MAX_TOOLS: usize = 1_024;

/// Digests by workspace, server and tool.
type Digests = BTreeMap<String, BTreeMap<String, BTreeMap<String, String>>>;

#[derive(Debug)]
pub struct KnownTools {
    file: Option<PathBuf>,
    lock: Mutex<Digests>,
}

impl KnownTools {
    /// Creates a memory that lasts as long as this process.
    pub fn in_memory() -> Self {
        Self { file: None, lock: Mutex::default() }
    }

    /// Creates a memory in `file`. The first write creates its directory.
    pub fn in_file(file: PathBuf) -> Self {
        Self { file: Some(file), lock: Mutex::default() }
    }

    /// Remembers the descriptions of a server's tools, and returns the names of the tools whose descriptions changed.
    ///
    /// # Errors
    /// If the file cannot be read or written. Later changes may then go unnoticed.
    pub(crate) fn remember_and_compare(
        &self,
        workspace: &Path,
        server: &str,
        tools: &[(&str, String)],
    ) -> (Vec<String>, Result<(), String>) {
        let mut kept = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let read = self.read(&mut kept);
        let known = kept.entry(workspace.display().to_string()).or_default().entry(server.to_owned()).or_default();
        let before = known.clone();
        let (mut changed, mut bound) = (Vec::new(), Ok(()));
        for (tool, description) in tools {
            if known.len() >= MAX_TOOLS && !known.contains_key(*tool) {
                bound = Err(format!(
                    "it has offered more than {MAX_TOOLS} tools; changes of further tools will not be noticed"
                ));
                continue;
            }
            let digest: String = Hash::of(description.as_bytes()).0.iter().map(|byte| format!("{byte:02x}")).collect();
            if known.insert((*tool).to_owned(), digest.clone()).is_some_and(|old| old != digest) {
                changed.push((*tool).to_owned());
            }
        }
        let wrote = if *known == before { Ok(()) } else { self.write(&kept) };
        (changed, read.and(wrote).and(bound))
    }

    fn read(&self, kept: &mut Digests) -> Result<(), String> {
        let Some(file) = &self.file else { return Ok(()) };
        // Another process may have added entries.
        match std::fs::read_to_string(file) {
            Ok(text) => {
                *kept = serde_json::from_str(&text)
                    .map_err(|error| format!("cannot read {}: {error}. Delete it.", file.display()))?;
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(format!("cannot read {}: {error}", file.display())),
        }
    }

    fn write(&self, kept: &Digests) -> Result<(), String> {
        let Some(file) = &self.file else { return Ok(()) };
        let text = serde_json::to_string_pretty(kept).map_err(|error| error.to_string())?;
        let partial = file.with_extension("partial");
        let write = || {
            // The directory of the configuration may be a link of the user.
            if let Some(folder) = file.parent().filter(|folder| !folder.is_dir()) {
                private::create_dir(folder)?;
            }
            let mut out = private::create_file(&partial)?;
            out.write_all(text.as_bytes())?;
            out.sync_all()?;
            std::fs::rename(&partial, file)
        };
        write().map_err(|error| format!("cannot write {}: {error}", file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_description_is_reported_once_in_any_process() {
        let dir = tempfile::tempdir().unwrap();
        let open = || KnownTools::in_file(dir.path().join("deep/known.json"));
        let changed = |known: &KnownTools, text: &str| {
            let (changed, kept) =
                known.remember_and_compare(Path::new("/w"), "s", &[("a", text.to_owned()), ("b", "same".to_owned())]);
            kept.unwrap();
            changed
        };
        let none: [&str; 0] = [];
        assert_eq!(changed(&open(), "one"), none);
        assert_eq!(changed(&open(), "one"), none);
        assert_eq!(changed(&open(), "two"), ["a"]);
        assert_eq!(changed(&open(), "two"), none);
        let (other, _) = open().remember_and_compare(Path::new("/other"), "s", &[("a", "three".to_owned())]);
        assert_eq!(other, none, "workspaces shared a server's descriptions");
    }

    #[test]
    fn remembered_names_are_bounded() {
        let known = KnownTools::in_memory();
        for round in 0..20 {
            let names: Vec<String> = (0..256).map(|ix| format!("t{round}-{ix}")).collect();
            let tools: Vec<(&str, String)> = names.iter().map(|name| (&**name, "x".to_owned())).collect();
            let (_, kept) = known.remember_and_compare(Path::new("/w"), "s", &tools);
            assert_eq!(kept.is_ok(), round < 4, "{round}");
        }
        let all = known.lock.lock().unwrap();
        assert_eq!(all.values().flat_map(BTreeMap::values).map(BTreeMap::len).sum::<usize>(), MAX_TOOLS);
    }

    #[cfg(unix)]
    #[test]
    fn remembered_file_is_private_and_follows_no_link() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};

        let dir = tempfile::tempdir().unwrap();
        let (file, victim) = (dir.path().join("deep/known.json"), dir.path().join("victim"));
        let known = KnownTools::in_file(file.clone());
        let change =
            |text: &str| known.remember_and_compare(Path::new("/w"), "s", &[("a", text.to_owned())]).1.unwrap();
        change("one");
        std::fs::write(&victim, "kept").unwrap();
        symlink(&victim, file.with_extension("partial")).unwrap();
        change("two");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "kept");
        let mode = |path: &Path| path.symlink_metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(file.parent().unwrap()), mode(&file)), (0o700, 0o600));
    }

    #[test]
    fn damaged_file_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("known.json");
        std::fs::write(&file, "{").unwrap();
        let (_, kept) = KnownTools::in_file(file).remember_and_compare(Path::new("/w"), "s", &[("a", "x".to_owned())]);
        assert!(kept.unwrap_err().contains("cannot read"));
    }
}
