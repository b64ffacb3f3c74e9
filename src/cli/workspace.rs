//! The workspace of a command.

use std::path::Path;
use std::sync::Arc;

use subtend_tools::workspace::Workspace;

use super::fail::Fail;

/// Opens the folder by its canonical path, under which sessions record it.
pub(crate) fn open(path: &Path) -> Result<Arc<Workspace>, Fail> {
    // If the path cannot be resolved, opening it reports the better error.
    Workspace::open(path.canonicalize().as_deref().unwrap_or(path))
        .map(Arc::new)
        .map_err(|error| Fail::Usage(format!("{error} (--workspace DIR)")))
}
