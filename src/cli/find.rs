//! Finds a session by a typed name: an id, a task's id, a unique prefix of an id, a short name, or a path of short names.

use std::collections::BTreeSet;

use subtend_actors::named;
use subtend_session::ids::SessionId;

use super::fail::Fail;
use super::paint::clip;

/// Maximum number of candidates listed for an ambiguous name.
const MAX_LISTED: usize = 10;

pub(crate) use subtend_actors::Heads;

pub(crate) fn find(heads: &Heads, name: &str) -> Result<SessionId, Fail> {
    let name = name.trim();
    if name.is_empty() {
        return Err(Fail::Usage(
            "the name of the session is empty: give an id, the start of one, a short name, or a path".into(),
        ));
    }
    if let Ok(id) = name.parse::<SessionId>() {
        return match heads.contains_key(&id) {
            true => Ok(id),
            false => Err(no_match_error(name)),
        };
    }
    let found = named(heads, name);
    let mut matches = found.iter();
    match (matches.next(), matches.next()) {
        (None, _) => Err(no_match_error(name)),
        (Some(id), None) => Ok(*id),
        (Some(_), Some(_)) => Err(ambiguous(heads, name, &found)),
    }
}

fn no_match_error(name: &str) -> Fail {
    Fail::Other(format!("no session matches `{}`; `subtend sessions --all` lists all", clip(name, 80)))
}

fn ambiguous(heads: &Heads, name: &str, found: &BTreeSet<SessionId>) -> Fail {
    let mut text = format!("`{}` matches {} sessions; give more of the id, or a path:", clip(name, 80), found.len());
    // Newest first: the user most likely means the latest one.
    for (id, head) in found.iter().rev().take(MAX_LISTED).filter_map(|id| heads.get(id).map(|head| (id, head))) {
        text.push_str(&format!("\n  {id}  {}  {}  {}", head.short, head.agent, clip(&head.title, 50)));
    }
    if found.len() > MAX_LISTED {
        text.push_str(&format!("\n  and {} more", found.len().saturating_sub(MAX_LISTED)));
    }
    Fail::Usage(text)
}

#[cfg(test)]
mod tests;
