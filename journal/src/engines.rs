//! Engines with a directory.

/// Name, whether this build has it, and its entry in the store's directory. The entry names the major version of its format.
pub(crate) const ENGINES: [(&str, bool, &str); 2] =
    [("redb", cfg!(feature = "redb"), "redb-4"), ("sled", cfg!(feature = "sled"), "sled-0.34")];

/// Progress of the copy that an engine may need to read a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Copied bytes.
    pub bytes: u64,
    /// Bytes in all.
    pub of: u64,
}
