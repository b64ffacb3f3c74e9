//! The workspace that a verb works on.

use std::path::Path;
use std::sync::Arc;

use subtend_tools::workspace::Workspace;

use super::fail::Fail;

/// Opens the folder.
pub(crate) fn open(path: &Path) -> Result<Arc<Workspace>, Fail> {
    Workspace::open(path).map(Arc::new).map_err(|error| Fail::Usage(format!("{error} (--workspace DIR)")))
}
