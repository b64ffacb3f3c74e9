//! The engines that keep a directory.

/// The engines that keep a directory: their names, whether this build holds them, and the entry below the directory that is
/// theirs. Its major version names that, so that no later one can mistake the files for its own.
pub(crate) const ENGINES: [(&str, bool, &str); 2] =
    [("redb", cfg!(feature = "redb"), "redb-4"), ("sled", cfg!(feature = "sled"), "sled-0.34")];

/// How far the copy is that an engine may need to read a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Bytes that are copied.
    pub bytes: u64,
    /// Bytes in all.
    pub of: u64,
}
