//! Folders of skills, which the tool `skill` reads.

use std::sync::Arc;

use subtend_session::ids::Text;

use crate::builtin;
use crate::tool::Tool;
use crate::workspace::Workspace;

/// Folder of a skill.
#[derive(Debug)]
pub struct SkillFolder {
    pub name: Text,
    /// The folder as rules for `fs.read` name it; in the workspace, its path.
    pub resource: Text,
    pub place: SkillPlace,
}

/// Where the folder of a skill lies.
#[derive(Debug)]
pub enum SkillPlace {
    /// In the workspace of the session.
    Workspace,
    /// Elsewhere: a directory of the person.
    Own(Arc<Workspace>),
}

/// Returns the tool `skill`. Each call needs `fs.read` of its file.
pub fn tool(skills: Vec<SkillFolder>) -> Arc<dyn Tool> {
    Arc::new(builtin::skill::SkillTool::new(skills))
}
