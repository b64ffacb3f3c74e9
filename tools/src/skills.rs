//! Folders of skills and the tool `skill`, which reads them.

use std::sync::Arc;

use subtend_session::ids::Text;

use crate::builtin;
use crate::tool::Tool;
use crate::workspace::Workspace;

#[derive(Debug)]
pub struct SkillFolder {
    pub name: Text,
    /// The folder's name in rules for `fs.read`. For a folder in the workspace this is its path.
    pub resource: Text,
    pub place: SkillPlace,
}

#[derive(Debug)]
pub enum SkillPlace {
    Workspace,
    /// A directory of the user outside of the workspace.
    Own(Arc<Workspace>),
}

/// Returns the tool `skill`. Each call needs the permission `fs.read` for its file.
pub fn tool(skills: Vec<SkillFolder>) -> Arc<dyn Tool> {
    Arc::new(builtin::skill::SkillTool::new(skills))
}
