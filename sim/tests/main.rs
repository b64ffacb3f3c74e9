//! Tests of single parts of the product, and of the documents: one binary, so that it is linked once.

mod outside;
mod verification;
