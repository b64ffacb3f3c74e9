use std::path::Path;
use std::sync::Arc;

use subtend_tools::workspace::{Workspace, WorkspaceError};

use super::fail::Fail;

/// Opens the folder by its canonical path, under which sessions record it.
pub(crate) fn open(path: &Path) -> Result<Arc<Workspace>, Fail> {
    // If the path cannot be resolved, the error of opening it is more helpful.
    path.canonicalize().map_or_else(|_| opened(Workspace::open(path)), |path| open_recorded(&path))
}

/// Opens the folder that a session recorded. Refuses a link, which a session of a parent folder may have created.
pub(crate) fn open_recorded(path: &Path) -> Result<Arc<Workspace>, Fail> {
    opened(Workspace::open_canonical(path))
}

fn opened(workspace: Result<Workspace, WorkspaceError>) -> Result<Arc<Workspace>, Fail> {
    workspace.map(Arc::new).map_err(|error| Fail::Usage(format!("{error} (--workspace DIR)")))
}
