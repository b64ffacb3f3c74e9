//! Finding a session by what a person types: a whole id, a unique part of one, a short name, or a path of short names.

use std::collections::{BTreeMap, BTreeSet};

use subtend_session::ids::SessionId;
use subtend_session::index::Head;

use super::fail::Fail;
use super::paint::clip;

/// Candidates that an ambiguous name lists.
const LISTED: usize = 10;

/// The heads of a store, by session.
pub(crate) type Heads = BTreeMap<SessionId, Head>;

/// The one session that `name` means.
pub(crate) fn find(heads: &Heads, name: &str) -> Result<SessionId, Fail> {
    let name = name.trim();
    if name.is_empty() {
        return Err(Fail::Usage("an empty name means no session: give an id, a part of one, or a path".into()));
    }
    if let Ok(id) = name.parse::<SessionId>() {
        return match heads.contains_key(&id) {
            true => Ok(id),
            false => Err(none(name)),
        };
    }
    let found = match name.split_once('/') {
        Some((first, rest)) => by_path(heads, first, rest),
        None if name == "root" => by_path(heads, name, ""),
        None => by_word(heads, name, heads.keys().copied().collect()),
    };
    let mut left = found.iter();
    match (left.next(), left.next()) {
        (None, _) => Err(none(name)),
        (Some(id), None) => Ok(*id),
        (Some(_), Some(_)) => Err(ambiguous(heads, name, &found)),
    }
}

fn none(name: &str) -> Fail {
    Fail::Other(format!("no session is called `{}`: `subtend sessions --all` lists them", clip(name, 80)))
}

fn ambiguous(heads: &Heads, name: &str, found: &BTreeSet<SessionId>) -> Fail {
    let mut text =
        format!("`{}` may be any of {} sessions; give more of the id, or a path:", clip(name, 80), found.len());
    // Newest first: the one that is meant was most likely seen last.
    for (id, head) in found.iter().rev().take(LISTED).filter_map(|id| heads.get(id).map(|head| (id, head))) {
        text.push_str(&format!("\n  {id}  {}  {}  {}", head.short, head.agent, clip(&head.title, 50)));
    }
    if found.len() > LISTED {
        text.push_str(&format!("\n  and {} more", found.len().saturating_sub(LISTED)));
    }
    Fail::Usage(text)
}

/// A path: the root (any, where the word is `root`), then short names downwards.
fn by_path(heads: &Heads, first: &str, rest: &str) -> BTreeSet<SessionId> {
    let roots: BTreeSet<_> = heads.iter().filter(|(_, head)| head.parent.is_none()).map(|(id, _)| *id).collect();
    let start = match first {
        "root" | "" => roots,
        word => by_word(heads, word, roots),
    };
    rest.split('/').filter(|part| !part.is_empty()).fold(start, |above, part| {
        let below = heads.iter().filter(|(_, head)| head.parent.is_some_and(|parent| above.contains(&parent)));
        by_word(heads, part, below.map(|(id, _)| *id).collect())
    })
}

/// Of `among`, the sessions with that short name; without any, those whose id has the word in it.
fn by_word(heads: &Heads, word: &str, among: BTreeSet<SessionId>) -> BTreeSet<SessionId> {
    let word = word.to_ascii_lowercase();
    let short = |id: &SessionId| heads.get(id).is_some_and(|head| *head.short.0 == *word);
    let named: BTreeSet<_> = among.iter().copied().filter(short).collect();
    if !named.is_empty() {
        return named;
    }
    let part: String = word.chars().filter(|c| *c != '-').collect();
    let plain = |id: &SessionId| id.0.simple().to_string().contains(&part);
    among.into_iter().filter(|id| !part.is_empty() && plain(id)).collect()
}

#[cfg(test)]
mod tests;
