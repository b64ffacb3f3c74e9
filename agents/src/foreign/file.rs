//! The input of a translator: one file of a product.

use std::path::Path;

use crate::manifest::Source;
use crate::product::Product;

/// A file of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForeignFile<'a> {
    pub(crate) product: Product,
    pub(crate) path: &'a Path,
    /// Its path below the folder of agents, without its ending and with `/`.
    pub(crate) id: &'a str,
    pub(crate) text: &'a str,
    /// The workspace, to which paths in rules relate.
    pub(crate) workspace: Option<&'a Path>,
}

impl ForeignFile<'_> {
    pub(super) fn source(&self) -> Source {
        Source::Foreign(self.product, self.path.to_owned())
    }
}
