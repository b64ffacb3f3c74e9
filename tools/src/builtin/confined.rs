//! Decides whether a session gets a shell, depending on the available sandbox.

use subtend_session::authority::Authority;

use crate::guard::Guard;
use crate::sandbox::{self, SandboxStrength, Unsupported};
use crate::tool::ToolError;

const NAME: &str = "shell";

pub(super) fn strength(guard: Option<&Guard>) -> Result<SandboxStrength, Unsupported> {
    match guard {
        Some(_) => sandbox::probe(),
        None => Err(Unsupported { why: "the runtime has no guard, which creates sandboxes".into() }),
    }
}

pub(super) fn exclusion_error(
    authority: &Authority,
    sandbox: &Result<SandboxStrength, Unsupported>,
) -> Option<ToolError> {
    if !sandbox::is_needed(authority) {
        return None;
    }
    let why: &dyn std::fmt::Display = match sandbox {
        Ok(SandboxStrength::FilesAndNetwork) => return None,
        Ok(SandboxStrength::Files) if !sandbox::limits_network(authority) => return None,
        Ok(SandboxStrength::Files) => &"the kernel cannot restrict TCP (needs Linux 6.7 or later)",
        Err(missing) => missing,
    };
    Some(ToolError::denied(format!(
        "{NAME} is refused: this session's access to files and the network is limited, and no sandbox can enforce the \
         limits on a command: {why}. Use the file tools."
    )))
}
