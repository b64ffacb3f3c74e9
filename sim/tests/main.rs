//! Tests of single parts of the product, and of the documents.

mod outside;
mod verification;
