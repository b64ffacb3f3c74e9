//! Descriptions that were seen before, kept outside of every workspace: a change is reported.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use subtend_session::ids::Hash;

/// Tools of one server that are remembered: one that invents names without end fills no file.
const MOST: usize = 1_024;

/// Digests by workspace, server and tool.
type Digests = BTreeMap<String, BTreeMap<String, BTreeMap<String, String>>>;

/// Tool lists of servers, stored in one file.
#[derive(Debug)]
pub struct KnownTools {
    file: Option<PathBuf>,
    lock: Mutex<Digests>,
}

impl KnownTools {
    /// Remembers in this process alone.
    pub fn in_memory() -> Self {
        Self { file: None, lock: Mutex::default() }
    }

    /// Remembers in `file`, whose directory is made at the first write.
    pub fn in_file(file: PathBuf) -> Self {
        Self { file: Some(file), lock: Mutex::default() }
    }

    /// Remembers the tools of a server, each with what it says; returns the names of those that said something else before.
    ///
    /// # Errors
    /// If the file cannot be read or written: then changes may go unnoticed later.
    pub(crate) fn changed(
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
            if known.len() >= MOST && !known.contains_key(*tool) {
                bound = Err(format!("it has named more than {MOST} tools, and of others no change will be noticed"));
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
        // Another process may have added some.
        match std::fs::read_to_string(file) {
            Ok(text) => {
                *kept = serde_json::from_str(&text)
                    .map_err(|error| format!("{} cannot be read: {error}. Delete it.", file.display()))?;
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(format!("{} cannot be read: {error}", file.display())),
        }
    }

    fn write(&self, kept: &Digests) -> Result<(), String> {
        let Some(file) = &self.file else { return Ok(()) };
        let text = serde_json::to_string_pretty(kept).map_err(|error| error.to_string())?;
        let partial = file.with_extension("partial");
        let write = || {
            if let Some(folder) = file.parent() {
                std::fs::create_dir_all(folder)?;
            }
            let mut out = std::fs::File::create(&partial)?;
            out.write_all(text.as_bytes())?;
            out.sync_all()?;
            std::fs::rename(&partial, file)
        };
        write().map_err(|error| format!("{} cannot be written: {error}", file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_description_is_reported_once_in_any_process() {
        let dir = tempfile::tempdir().unwrap();
        let open = || KnownTools::in_file(dir.path().join("deep/known.json"));
        let says = |known: &KnownTools, text: &str| {
            let (changed, kept) =
                known.changed(Path::new("/w"), "s", &[("a", text.to_owned()), ("b", "same".to_owned())]);
            kept.unwrap();
            changed
        };
        let none: [&str; 0] = [];
        assert_eq!(says(&open(), "one"), none);
        assert_eq!(says(&open(), "one"), none);
        assert_eq!(says(&open(), "two"), ["a"]);
        assert_eq!(says(&open(), "two"), none);
        let (other, _) = open().changed(Path::new("/other"), "s", &[("a", "three".to_owned())]);
        assert_eq!(other, none, "another workspace has another server");
    }

    #[test]
    fn names_without_end_are_remembered_to_a_bound() {
        let known = KnownTools::in_memory();
        for round in 0..20 {
            let names: Vec<String> = (0..256).map(|ix| format!("t{round}-{ix}")).collect();
            let tools: Vec<(&str, String)> = names.iter().map(|name| (&**name, "x".to_owned())).collect();
            let (_, kept) = known.changed(Path::new("/w"), "s", &tools);
            assert_eq!(kept.is_ok(), round < 4, "{round}");
        }
        let all = known.lock.lock().unwrap();
        assert_eq!(all.values().flat_map(BTreeMap::values).map(BTreeMap::len).sum::<usize>(), MOST);
    }

    #[test]
    fn a_spoiled_file_is_reported_and_not_taken_for_empty() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("known.json");
        std::fs::write(&file, "{").unwrap();
        let (_, kept) = KnownTools::in_file(file).changed(Path::new("/w"), "s", &[("a", "x".to_owned())]);
        assert!(kept.unwrap_err().contains("cannot be read"));
    }
}
