//! The model checker, the simulator and the documents: one binary, so that it is linked once.

mod model;
mod outside;
mod simulate;
mod verification;
