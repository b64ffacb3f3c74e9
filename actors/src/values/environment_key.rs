use subtend_session::ids::Text;
use subtend_session::record::SessionCreated;

/// The parts of a root's first record that determine its environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct EnvironmentKey {
    pub workspace: Text,
    /// The root's model; `None` for a root that is about to be opened without one.
    pub model: Option<Text>,
    /// True if the root is about to be opened: then a person chose the model.
    pub opening: bool,
    /// Servers that replace those of the providers.
    pub servers: Vec<Text>,
    /// True if the tree was imported: then no person chose the model and the servers.
    pub imported: bool,
}

impl EnvironmentKey {
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
