pub(crate) mod clients;
pub(crate) mod controls;
pub(crate) mod coverage;
pub(crate) mod lease;
pub(crate) mod matrix;
pub(crate) mod model;
pub(crate) mod nodes;
pub(crate) mod run;
