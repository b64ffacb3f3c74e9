//! The workspace that a verb works on.

use std::path::Path;
use std::sync::Arc;

use subtend_tools::workspace::Workspace;

use super::fail::Fail;

/// Opens the folder, by the name that it has without links and `..`: sessions are kept with it, and found by it.
pub(crate) fn open(path: &Path) -> Result<Arc<Workspace>, Fail> {
    // Opening the path reports the better error.
    Workspace::open(path.canonicalize().as_deref().unwrap_or(path))
        .map(Arc::new)
        .map_err(|error| Fail::Usage(format!("{error} (--workspace DIR)")))
}
