use super::super::data::StoreArgs;
use super::WorkArgs;

/// The output options of a command, and its store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputOptions<'a> {
    pub(crate) json: bool,
    pub(crate) raw: bool,
    pub(crate) quiet: bool,
    pub(crate) store: &'a StoreArgs,
}

impl WorkArgs {
    pub(crate) fn output_options(&self) -> OutputOptions<'_> {
        OutputOptions { json: self.json, raw: self.raw, quiet: self.quiet, store: &self.store }
    }
}
