//! Engines that store data in a directory.

/// Name of each engine, whether this build has it, and its entry in the store's directory. The entry names the major format version.
pub(crate) const ENGINES: [(&str, bool, &str); 2] =
    [("redb", cfg!(feature = "redb"), "redb-4"), ("sled", cfg!(feature = "sled"), "sled-0.34")];

/// Progress of a copy that an engine needs to open a store read-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyProgress {
    pub bytes: u64,
    /// Total bytes.
    pub of: u64,
}
