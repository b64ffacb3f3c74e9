//! What tells environments apart.

use subtend_session::ids::Text;
use subtend_session::record::SessionCreated;

/// What the environment of a session follows from: parts of its root's birth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct EnvironmentKey {
    /// The directory that its tools work in.
    pub workspace: Text,
    /// The model that the root was opened with; none where it is about to be opened and no model is named.
    pub model: Option<Text>,
    /// Whether the root is about to be opened: then the model is named by the person who opens it.
    pub opening: bool,
    /// Servers that its models are called at instead of the providers' own.
    pub servers: Vec<Text>,
    /// Whether an import brought the tree: then neither model nor servers are the person's choice.
    pub imported: bool,
}

impl EnvironmentKey {
    /// That of the tree below `root`.
    pub fn of(root: &SessionCreated) -> Self {
        Self {
            workspace: root.workspace.clone(),
            model: Some(root.model.clone()),
            opening: false,
            servers: root.servers.clone(),
            imported: root.imported.is_some(),
        }
    }
}
