//! Attack stories: models that do whatever it takes to get more than they may, on a whole runtime.
//!
//! Each is a way in which sessions and subagents of other systems got, or kept, what nobody meant to give them.

pub(crate) mod scene;

mod arguments;
mod bulk;
mod cloned;
#[cfg(unix)]
mod eyes;
#[cfg(unix)]
mod files;
#[cfg(unix)]
mod flood;
#[cfg(target_os = "linux")]
mod held;
mod ids;
mod imports;
mod inheritance;
mod kept;
#[cfg(unix)]
mod linked;
mod moved;
mod output;
mod paths;
mod present;
mod rules;
mod shell;
mod trusted;
mod words;
mod writing;
