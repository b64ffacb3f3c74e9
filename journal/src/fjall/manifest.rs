//! The manifest of each keyspace against the checksum that fjall keeps of it, and never looks at.
//!
//! fjall takes whatever the eight bytes in `current` name: an older manifest makes rows vanish without a word, a damaged one
//! makes it panic while it holds a lock, which ends the process. A keyspace without `current` it deletes.

use std::fs;
use std::io;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use crate::engine::Result;
use crate::error::EngineError;

const WHAT: &str = "open the fjall store";

/// Checks the manifests of the store in `dir`, where there is one.
pub(super) fn check(dir: &Path) -> Result<()> {
    let keyspaces = match fs::read_dir(dir.join("keyspaces")) {
        Ok(keyspaces) => keyspaces,
        // Whether there must be any is for fjall to say.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(EngineError::Io { what: WHAT, source }),
    };
    for entry in keyspaces {
        let path = entry.map_err(|source| EngineError::Io { what: WHAT, source })?.path();
        if path.is_dir() {
            keyspace(&path)
                .map_err(|why| EngineError::Store { what: WHAT, why: format!("{}: {why}", path.display()) })?;
        }
    }
    Ok(())
}

fn keyspace(dir: &Path) -> std::result::Result<(), String> {
    let number = dir.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.parse::<u64>().is_ok());
    if !number {
        return Err("no keyspace has such a name: move it away".to_owned());
    }
    let read = |name: &str| fs::read(dir.join(name)).map_err(|error| format!("`{name}` cannot be read: {error}"));
    let current = read("current")?;
    let (id, sum) = named(&current).ok_or("`current` is damaged")?;
    let name = format!("v{id}");
    if xxh3_128(&read(&name)?) != sum {
        return Err(format!("`{name}` is not what `current` names: one of them is damaged"));
    }
    Ok(())
}

/// The number and the checksum of the manifest that `current` names.
fn named(current: &[u8]) -> Option<(u64, u128)> {
    let (id, rest) = current.split_first_chunk::<8>()?;
    let (sum, kind) = rest.split_first_chunk::<16>()?;
    (kind == [0]).then_some((u64::from_le_bytes(*id), u128::from_le_bytes(*sum)))
}
