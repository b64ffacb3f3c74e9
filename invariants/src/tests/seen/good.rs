use super::*;

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
