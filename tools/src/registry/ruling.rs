//! What an authority says of one call, and how the access in question is shown.

use serde_json::Value;
use subtend_session::authority::{Access, Authority, Verdict};
use subtend_session::ids::Hash;
use subtend_session::unseen::{is_blank, is_unseen};

use crate::bounded;
use crate::path;
use crate::tool::{Tool, ToolError};
use crate::workspace::names::READ;

/// Bytes of a resource as a record and a person see it.
const SHOWN: usize = 1000;
/// Bytes of one in an error.
const SHOWN_IN_ERROR: usize = 300;

/// What an authority says of one call: the lowest verdict among all that it is about to do decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// It may run; with the most telling access, for the audit, where it has one.
    Allowed(Option<Access>),
    /// A person is to be asked, and is shown this: the most telling of what nobody allowed yet.
    Asked(Access),
    /// It is refused when it is to run.
    Denied(ToolError),
}

impl Ruling {
    /// Rules on a call of `tool`; `granted` as in [`Registry::check`](super::Registry::check).
    pub(super) fn of(tool: &dyn Tool, args: &Value, authority: &Authority, granted: &dyn Fn(&Access) -> bool) -> Self {
        if let Some(error) = tool.ruled_out(authority) {
            return Self::Denied(error);
        }
        let accesses = tool.access(Some(args));
        let mut asked = Vec::new();
        for access in &accesses {
            if access.action.starts_with("fs.")
                && let Err(error) = path::resource(&access.resource)
            {
                return Self::Denied(error);
            }
            match authority.verdict(access) {
                Verdict::Deny => return Self::Denied(denied(tool, access, "is not allowed in this session")),
                Verdict::Ask if !granted(&shown(access)) => asked.push(access),
                Verdict::Ask | Verdict::Allow => {}
            }
        }
        match telling(asked) {
            Some(access) => Self::Asked(shown(access)),
            None => Self::Allowed(telling(&accesses).map(shown)),
        }
    }
}

/// All that a call is about to do, as it is shown.
pub(super) fn accesses(tool: &dyn Tool, args: &Value) -> Vec<Access> {
    tool.access(Some(args)).iter().map(shown).collect()
}

/// The first access that does more than read; else the first.
fn telling<'a>(accesses: impl IntoIterator<Item = &'a Access>) -> Option<&'a Access> {
    let mut first = None;
    for access in accesses {
        if &*access.action != READ {
            return Some(access);
        }
        first = first.or(Some(access));
    }
    first
}

/// Whether a character is not seen, or looks like a space and is none; lines and tabs are.
fn misleading(c: char) -> bool {
    !matches!(c, '\n' | '\t') && (is_unseen(c) || is_blank(c))
}

/// An access as records keep it and a person sees it: bounded, and without characters that make one text look like another.
///
/// One whose text is changed by that carries the hash of the whole: a word that was given for one is never taken for another.
fn shown(access: &Access) -> Access {
    let resource = &*access.resource;
    if resource.len() <= SHOWN && !resource.contains(misleading) {
        return access.clone();
    }
    let head = bounded::head(resource, SHOWN).replace(misleading, "\u{fffd}");
    let (length, hash) = (resource.len(), Hash::of(resource.as_bytes()));
    Access { action: access.action.clone(), resource: format!("{head}… ({length} bytes, {hash})").into() }
}

/// The error of a call that is refused for `access`.
pub(super) fn denied(tool: &dyn Tool, access: &Access, why: &str) -> ToolError {
    let Access { action, resource } = access;
    // A resource may be a whole script.
    let resource = bounded::shown(resource, SHOWN_IN_ERROR);
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
    fn a_plain_access_is_shown_as_it_is() {
        for resource in ["ls -l", "a\n\tb", "ä 日本", &"x".repeat(SHOWN)] {
            assert_eq!(shown(&command(resource)), command(resource));
        }
    }

    #[test]
    fn two_commands_that_look_alike_are_told_apart() {
        let long = "x".repeat(SHOWN + 1);
        let pairs = [
            ("ls\u{1b}[2K", "ls\u{7}[2K"),
            ("cat a\u{202e}b", "cat a\u{202d}b"),
            (&*format!("{long}a"), &*format!("{long}b")),
            ("rm a\u{200b}", "rm a"),
            ("rm a\u{2800}b", "rm a\u{a0}b"),
        ];
        for (one, other) in pairs {
            let (one, other) = (shown(&command(one)), shown(&command(other)));
            assert_ne!(one, other);
            for seen in [&one, &other] {
                assert!(seen.resource.len() < SHOWN + 100 && !seen.resource.contains(misleading), "{seen:?}");
                // What is shown of one is never the text of another: that one would be shown otherwise in its turn.
                assert!(shown(seen) == *seen || seen.resource.len() > SHOWN);
            }
        }
    }
}
