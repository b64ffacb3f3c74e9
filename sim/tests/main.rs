//! Parts of the product outside of a run, and the documents: one binary, so that it is linked once.

mod outside;
mod verification;
