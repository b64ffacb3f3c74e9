use super::super::{TAKEN, notice, taken};
use super::*;
use subtend_session::record::{Carrier, CompactionCause};

#[test]
fn good_observed_world_violates_nothing() {
    let scene = good();
    assert_eq!(scene.with(crate::always), Ok(()));
    assert_eq!(scene.with(crate::quiescent), Ok(()));
    assert_eq!(child_at_work().with(crate::always), Ok(()));
}

#[test]
fn approved_call_of_an_unoffered_tool_is_legal() {
    for word in [AskVerdict::Allow, AskVerdict::Always] {
        let mut scene = Scene::allowed();
        scene.root[13] = Record::AskAnswered { call: LATER_CALL, verdict: word, by: AnsweredBy::Person };
        let mut scene = Scene::of(scene.root, scene.child);
        scene.observed.contexts.push(context(2, vec![offer(false, Answered::Deny)], None));
        assert_eq!(scene.with(crate::always), Ok(()), "{word:?}");
    }
}

/// A fault drops the batch with the record of a compaction, after its model was called with the compacted history. The controls: an attempt
/// without a compaction, and one with an answer.
#[test]
fn history_of_an_unrecorded_compaction_is_accepted() {
    let check = |cause: Option<CompactionCause>, kept: usize| {
        let mut scene = good();
        scene.root[TAKEN] = taken(Carrier::Message, vec![notice(1, Outcome::Completed)]);
        for record in &mut scene.root {
            if let Record::TurnStarted { turn: TurnNo(2), compacts, .. } = record {
                *compacts = cause;
            }
        }
        scene.root.truncate(kept);
        scene.observed.contexts.push(context(2, Vec::new(), Some(Vec::new())));
        scene.with(|world| InvariantId::N5.check(world, false)).map_err(|violation| violation.id)
    };
    let (share, started) = (Some(CompactionCause::Share), TAKEN + 2);
    assert_eq!(check(share, started), Ok(()));
    assert_eq!([check(None, started), check(share, usize::MAX)], [Err(InvariantId::N5); 2]);
}
