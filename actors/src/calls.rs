//! Calls of models and tools, and file reads: tasks with a token and an outcome, independent of session actors.

pub(crate) mod budget;
pub(crate) mod files;
pub(crate) mod in_flight;
pub(crate) mod limits;
pub(crate) mod model_call;
pub(crate) mod model_calls;
pub(crate) mod model_set;
pub mod prices;
pub(crate) mod reservation;
pub(crate) mod tool_call;
pub(crate) mod tool_directory;
