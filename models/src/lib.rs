//! Models: the trait that the hub calls, and the models that need no network.

pub mod model;
