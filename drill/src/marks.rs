//! Side effects of tools. Each adds a line, its mark, to a file.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;

use subtend_session::ids::{CallId, RunNo, SessionId, TurnNo};
use subtend_session::record::Record;
use subtend_tools::tool::ToolKey;

use super::snapshot::{Sessions, StoreHeads};
use super::store_dir::StoreDir;

/// Whether the effect of a tool may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MarkedEffect {
    Once,
    Idempotent,
}

impl MarkedEffect {
    fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Idempotent => "idempotent",
        }
    }
}

/// Writes a mark in one call, so that a kill leaves the whole line or none of it.
pub(crate) fn leave(path: &Path, effect: MarkedEffect, key: ToolKey) -> std::io::Result<()> {
    let ToolKey { session, run, call } = key;
    let line = format!("{} {session} {run} {} {}\n", effect.as_str(), call.turn, call.ix);
    std::fs::OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes())
}

/// The marks of a store, by call.
#[derive(Debug, Default)]
pub(crate) struct Marks(BTreeMap<(SessionId, RunNo, CallId), (MarkedEffect, u32)>);

impl Marks {
    pub(crate) fn read(store_dir: &StoreDir) -> Self {
        let text = std::fs::read_to_string(store_dir.marks()).unwrap_or_default();
        let mut marks = Self::default();
        for (effect, key) in text.lines().filter_map(parse) {
            let (_, count) = marks.0.entry(key).or_insert((effect, 0));
            *count = count.saturating_add(1);
        }
        marks
    }

    /// Returns effects that were repeated although they must not be.
    pub(crate) fn repeated(&self) -> Vec<String> {
        let twice = self.0.iter().filter(|(_, (effect, count))| *effect == MarkedEffect::Once && *count > 1);
        twice
            .map(|((session, _, call), (_, count))| {
                format!("the side effect of call {call} of {session} happened {count} times")
            })
            .collect()
    }

    /// Returns effects of calls without a durable intent record.
    pub(crate) fn unintended(&self, sessions: &Sessions<'_>, heads: &StoreHeads) -> Vec<String> {
        let mut intended = BTreeSet::new();
        for (session, records) in sessions {
            intended.extend(records.iter().filter_map(|record| {
                let Record::CallStarted { call, .. } = record else { return None };
                Some((*session, *call))
            }));
        }
        let kept = self.0.keys().filter(|(session, ..)| !heads.is_erased(*session));
        let without_intent = kept.filter(|(session, _, call)| !intended.contains(&(*session, *call)));
        without_intent
            .map(|(session, _, call)| format!("call {call} of {session} had its effect without an intent record"))
            .collect()
    }
}

fn parse(line: &str) -> Option<(MarkedEffect, (SessionId, RunNo, CallId))> {
    let words: Vec<&str> = line.split(' ').collect();
    let [effect, session, run, turn, ix] = words.as_slice() else { return None };
    let effect = [MarkedEffect::Once, MarkedEffect::Idempotent].into_iter().find(|known| known.as_str() == *effect)?;
    let call = CallId { turn: TurnNo(turn.parse().ok()?), ix: ix.parse().ok()? };
    Some((effect, (session.parse().ok()?, RunNo(run.parse().ok()?), call)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_or_unintended_effects_are_reported() {
        let dir = tempfile::tempdir().expect("a directory");
        let store_dir = StoreDir::of("redb", dir.path());
        let session: SessionId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().expect("an id");
        let key = |ix| ToolKey { session, run: RunNo(1), call: CallId { turn: TurnNo(2), ix } };
        let marks = [
            (MarkedEffect::Once, 0),
            (MarkedEffect::Idempotent, 1),
            (MarkedEffect::Idempotent, 1),
            (MarkedEffect::Once, 2),
        ];
        for (effect, ix) in marks {
            leave(&store_dir.marks(), effect, key(ix)).expect("a mark");
        }
        assert_eq!(Marks::read(&store_dir).repeated(), Vec::<String>::new());
        leave(&store_dir.marks(), MarkedEffect::Once, key(2)).expect("a mark");
        let marks = Marks::read(&store_dir);
        assert_eq!(marks.repeated(), [format!("the side effect of call 2.2 of {session} happened 2 times")]);
        let unintended = marks.unintended(&Sessions::new(), &StoreHeads::default());
        assert_eq!(unintended.len(), 3, "{unintended:?}");
        assert_eq!(unintended[0], format!("call 2.0 of {session} had its effect without an intent record"));
    }
}
