//! Good observed scenes pass.

use super::*;

#[test]
fn good_observed_world_violates_nothing() {
    let scene = good();
    assert_eq!(scene.with(crate::always), Ok(()));
    assert_eq!(scene.with(crate::quiescent), Ok(()));
    assert_eq!(child_at_work().with(crate::always), Ok(()));
}

/// A call of a tool that was not offered is legal if it was approved.
#[test]
fn approval_covers_its_access_and_always_equal_accesses() {
    for word in [AskVerdict::Allow, AskVerdict::Always] {
        let mut scene = Scene::allowed();
        scene.root[13] = Record::AskAnswered { call: LATER_CALL, verdict: word, by: AnsweredBy::Person };
        let mut scene = Scene::of(scene.root, scene.child);
        scene.observed.contexts.push(context(2, vec![offer(false, Answered::Deny)], None));
        assert_eq!(scene.with(crate::always), Ok(()), "{word:?}");
    }
}
