//! Whether a session gets a shell: what holds its commands to its rules.

use subtend_session::authority::Authority;

use crate::guard::Guard;
use crate::sandbox::{self, Strength, Unsupported};
use crate::tool::ToolError;

const NAME: &str = "shell";

/// Returns what holds a command of a session with limits.
pub(super) fn strength(guard: Option<&Guard>) -> Result<Strength, Unsupported> {
    match guard {
        Some(_) => sandbox::probe(),
        None => Err(Unsupported { why: "the runtime was given no guard, and it is the guard that holds".into() }),
    }
}

pub(super) fn ruled_out(authority: &Authority, sandbox: &Result<Strength, Unsupported>) -> Option<ToolError> {
    if !sandbox::is_needed(authority) {
        return None;
    }
    let why: &dyn std::fmt::Display = match sandbox {
        Ok(Strength::FilesAndNetwork) => return None,
        Ok(Strength::Files) if !sandbox::limits_network(authority) => return None,
        Ok(Strength::Files) => &"this system's kernel cannot hold TCP (Linux 6.7 or later can)",
        Err(missing) => missing,
    };
    Some(ToolError::denied(format!(
        "{NAME} is refused: this session's files and network are not all allowed without limits, a command could do \
         everything that the operating system's user may do, and nothing would hold it to the rules: {why}. Use the file \
         tools."
    )))
}
