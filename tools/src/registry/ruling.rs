//! The ruling of an authority on one call, and the display of accesses.

use serde_json::Value;
use subtend_session::authority::{Access, Authority, Verdict};
use subtend_session::command::NeededApproval;
use subtend_session::ids::Hash;
use subtend_session::unseen::{is_blank, is_unseen};

use crate::bounded;
use crate::path;
use crate::tool::{Tool, ToolError};
use crate::workspace::names::READ;

/// Maximum bytes of a resource in records and approvals.
const MAX_SHOWN: usize = 1000;
/// Maximum bytes of a resource in an error.
const MAX_SHOWN_IN_ERROR: usize = 300;
/// Start of the mark of a display.
const MARK: &str = "… (";

/// The ruling on one call: the lowest verdict among its accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// The call may run. Holds its most important access for the audit, if any.
    Allowed(Option<Access>),
    /// The call needs approval. Holds its most important access that is not granted yet, and whether others are not either.
    Asked(Access, NeededApproval),
    /// The call is refused when it runs.
    Denied(ToolError),
}

impl Ruling {
    /// Returns the ruling on a call of `tool`. For `granted`, see [`Registry::check`](super::Registry::check).
    pub(super) fn of(tool: &dyn Tool, args: &Value, authority: &Authority, granted: &dyn Fn(&Access) -> bool) -> Self {
        if let Some(error) = tool.exclusion_error(authority) {
            return Self::Denied(error);
        }
        let accesses = tool.access(Some(args));
        let mut asked_accesses = Vec::new();
        for access in &accesses {
            if access.action.starts_with("fs.")
                && let Err(error) = path::resource(&access.resource)
            {
                return Self::Denied(error);
            }
            match authority.verdict(access) {
                Verdict::Deny => return Self::Denied(denied_error(tool, access, "is not allowed in this session")),
                Verdict::Ask if !granted(&to_display(access)) => asked_accesses.push(access),
                Verdict::Ask | Verdict::Allow => {}
            }
        }
        let need = match asked_accesses.len() {
            0 | 1 => NeededApproval::of_one(!asked_accesses.is_empty()),
            _ => NeededApproval::SeveralAccesses,
        };
        match most_important(asked_accesses) {
            Some(access) => Self::Asked(to_display(access), need),
            None => Self::Allowed(most_important(&accesses).map(to_display)),
        }
    }

    /// Returns the access to record, and the approval that the call needs. A denied call needs none: it is refused when
    /// it runs.
    pub fn into_need(self) -> (Option<Access>, NeededApproval) {
        match self {
            Self::Allowed(access) => (access, NeededApproval::None),
            Self::Asked(access, need) => (Some(access), need),
            Self::Denied(_) => (None, NeededApproval::None),
        }
    }
}

pub(super) fn accesses(tool: &dyn Tool, args: &Value) -> Vec<Access> {
    tool.access(Some(args)).iter().map(to_display).collect()
}

/// Returns the first access other than `fs.read`, or else the first access.
fn most_important<'a>(accesses: impl IntoIterator<Item = &'a Access>) -> Option<&'a Access> {
    let mut first = None;
    for access in accesses {
        if &*access.action != READ {
            return Some(access);
        }
        first = first.or(Some(access));
    }
    first
}

/// Returns whether a character is invisible or imitates a space. Line breaks and tabs are not misleading.
fn is_misleading(c: char) -> bool {
    !matches!(c, '\n' | '\t') && (is_unseen(c) || is_blank(c))
}

/// Returns an access for records and approvals: shortened, and without misleading characters.
///
/// No two resources have one display, since approvals are compared by it: a changed text ends with the mark of the
/// original, and so does a text that could be the display of another one.
fn to_display(access: &Access) -> Access {
    let resource = &*access.resource;
    let imitates = resource.contains(MARK) && resource.ends_with(')');
    if resource.len() <= MAX_SHOWN && !imitates && !resource.contains(is_misleading) {
        return access.clone();
    }
    let head = bounded::head(resource, MAX_SHOWN).replace(is_misleading, "\u{fffd}");
    Access { action: access.action.clone(), resource: format!("{head}{}", mark(resource)).into() }
}

/// Returns the end of the display of a resource that is not shown as it is.
pub fn mark(resource: &str) -> String {
    // An earlier version had no `blake3` here, and displays that were not unique: its approvals must not match.
    format!("{MARK}{} bytes, blake3 {})", resource.len(), Hash::of(resource.as_bytes()))
}

pub(super) fn denied_error(tool: &dyn Tool, access: &Access, why: &str) -> ToolError {
    let Access { action, resource } = access;
    // A resource can be a whole script.
    let resource = bounded::shorten(resource, MAX_SHOWN_IN_ERROR);
    ToolError::denied(format!(
        "denied: {} needs {action} of `{resource}`, which {why}; do without it, or say what you would have done",
        tool.spec().name
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(resource: &str) -> Access {
        Access { action: "shell.run".into(), resource: resource.into() }
    }

    #[test]
    fn plain_access_is_shown_unchanged() {
        for resource in ["ls -l", "a\n\tb", "ä 日本", &"x".repeat(MAX_SHOWN)] {
            assert_eq!(to_display(&command(resource)), command(resource));
        }
    }

    #[test]
    fn similar_commands_are_displayed_differently() {
        let long = "x".repeat(MAX_SHOWN + 1);
        let pairs = [
            ("ls\u{1b}[2K", "ls\u{7}[2K"),
            ("cat a\u{202e}b", "cat a\u{202d}b"),
            (&*format!("{long}a"), &*format!("{long}b")),
            ("rm a\u{200b}", "rm a\u{200c}"),
            ("rm a\u{2800}b", "rm a\u{a0}b"),
            ("x… (1 bytes, y)", "x… (2 bytes, y)"),
        ];
        for (one, other) in pairs {
            let (one, other) = (to_display(&command(one)), to_display(&command(other)));
            assert_ne!(one, other);
            for seen in [&one, &other] {
                assert!(seen.resource.len() < MAX_SHOWN + 100 && !seen.resource.contains(is_misleading), "{seen:?}");
                // A command that spells out the display of another one has a display of its own.
                assert_ne!(to_display(seen), *seen);
            }
        }
    }
}
