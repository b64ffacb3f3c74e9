//! Files of new children, read by one task.

use std::collections::BTreeMap;
use std::sync::Arc;

use subtend_session::authority::{Access, Authority, Verdict};
use subtend_session::call::ToolErrorKind;
use subtend_session::ids::{Text, TurnNo};
use subtend_session::values::json_bytes;
use subtend_tools::workspace::{Listings, Workspace, resource};

/// Maximum size of one file in a prompt, in bytes.
const MAX_FILE: u64 = 256 << 10;

/// Maximum size of all files of one task, and of all files that its prompt begins with, in bytes as JSON.
const MAX_FILES: u64 = 1 << 20;

/// The texts for the calls of one answer, by the call's position and the path as given.
pub(crate) type FileTexts = BTreeMap<(u32, Text), Result<Text, Text>>;

/// Identifies one file read, so that the result for a crashed activation is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilesReading {
    pub(crate) turn: TurnNo,
    pub(crate) no: u64,
}

pub(crate) struct FilesRead {
    pub(crate) reading: FilesReading,
    pub(crate) calls: Vec<u32>,
    pub(crate) read: FileTexts,
}

/// The files of one call, read with its child's authority.
pub(crate) struct FileRequest {
    pub(crate) ix: u32,
    pub(crate) authority: Arc<Authority>,
    pub(crate) bootstrap: Vec<Text>,
    /// The files of the call's task, limited in total because one message holds them all.
    pub(crate) files: Vec<Text>,
}

impl FileRequest {
    pub(crate) fn read(&self, workspace: &Workspace) -> FileTexts {
        let (mut read, listings) = (FileTexts::new(), Listings::default());
        let mut remaining = MAX_FILES;
        let within = |text: Text, remaining: &mut u64| {
            let why = || {
                Text::from(format!(
                    "the files of a task or a prompt may have {MAX_FILES} bytes in total as JSON, and the files before this one use them up"
                ))
            };
            *remaining = remaining.checked_sub(json_bytes(&text)).ok_or_else(why)?;
            Ok(text)
        };
        for path in &self.files {
            let key = (self.ix, Arc::clone(path));
            let text = self.read_file((workspace, &listings), path).and_then(|text| within(text, &mut remaining));
            read.entry(key).or_insert(text);
        }
        // The caller's choice of files must not leave instructions out.
        let mut remaining = MAX_FILES;
        for path in &self.bootstrap {
            let text = || self.read_file((workspace, &listings), path).and_then(|text| within(text, &mut remaining));
            read.entry((self.ix, Arc::clone(path))).or_insert_with(text);
        }
        read
    }

    fn read_file(&self, (workspace, listings): (&Workspace, &Listings), path: &str) -> Result<Text, Text> {
        let resource = resource(path).map_err(|error| Text::from(error.message))?;
        let may = |resource: &Text| {
            let access = Access { action: "fs.read".into(), resource: Arc::clone(resource) };
            self.authority.verdict(&access) == Verdict::Allow
        };
        if !may(&resource) {
            return Err(format!("the child may not read `{path}`").into());
        }
        // The path behind a link is checked too.
        let real = workspace.real_of_many(&resource, listings).map_err(|error| {
            // The tool's message suggests a next call, which does not belong in this warning.
            let missing = error.kind == ToolErrorKind::NotFound;
            if missing { Text::from("no such file") } else { error.message.into() }
        })?;
        if !may(&real) {
            return Err(format!("it leads to `{real}`, which the child may not read").into());
        }
        workspace.text_for(&self.authority, &real, MAX_FILE).map(Text::from).map_err(|error| error.to_string().into())
    }
}
