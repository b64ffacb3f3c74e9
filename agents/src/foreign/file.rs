//! The input of a translator: one agent file of another product.

use std::path::Path;

use crate::manifest::Source;
use crate::product::Product;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ForeignFile<'a> {
    pub(crate) product: Product,
    pub(crate) path: &'a Path,
    /// The path below the folder of agents, with `/` as separator and without the extension.
    pub(crate) id: &'a str,
    pub(crate) text: &'a str,
    /// The workspace: the base of relative paths in rules.
    pub(crate) workspace: Option<&'a Path>,
}

impl ForeignFile<'_> {
    pub(super) fn source(&self) -> Source {
        Source::Foreign(self.product, self.path.to_owned())
    }
}
