//! The answer that becomes the result of a run.

use crate::given::*;

/// Returns a root that has answered, and whose turn 3 was started by the end of 0xB1. 0xB2 is in flight.
fn with_results() -> Heart {
    Heart::root()
        .then(send(1, "go"))
        .then(calls(1, vec![background(), background()]))
        .then(spawn(1, Mode::Background, &[(0, 0xB1), (1, 0xB2)]))
        .then(answers(2, "so far"))
        .then(ended(0xB1, call(1, 0)))
}

fn so_far(heart: &Heart) -> Option<String> {
    heart.state.run.as_ref().unwrap().answer.as_ref().map(|answer| answer.text.text().to_string())
}

fn last_result(heart: &Heart) -> (Outcome, Option<String>) {
    let last = heart.state.last.as_ref().unwrap();
    (last.outcome.clone(), last.text.as_ref().map(ToString::to_string))
}

#[test]
fn returned_result_is_kept_whole() {
    for text in [None, Some("I return.")] {
        let heart = Heart::root_with(Limits { result_bytes: 3, ..Limits::default() }).then(send(1, "go"));
        let heart = heart.then(answer(1, 1, text, vec![CallKind::Return], Stop::Calls));
        assert_eq!(last_result(&heart), (Outcome::Completed, Some("given".into())));
    }
}

#[test]
fn answer_remains_when_model_is_silent_about_notices() {
    let mut heart = with_results().then(ended(0xB2, call(1, 1)));
    assert_eq!(heart.summary(answer(3, 1, None, Vec::new(), Stop::End)), "answered message[1] turn > W");
    assert_eq!(heart.summary(answer(4, 1, None, Vec::new(), Stop::End)), "answered ended(completed) > E");
    assert_eq!(last_result(&heart), (Outcome::Completed, Some("so far".into())));
}

#[test]
fn tool_results_with_notices_need_an_answer() {
    let mut heart = with_results().then(calls(3, vec![reads()])).then(ended(0xB2, call(1, 1)));
    assert_eq!(heart.summary(tool(3, 0, "read")), "-0:ok message[1] turn > W");
    assert_eq!(heart.summary(answer(4, 1, None, Vec::new(), Stop::End)), "answered turn(nudge) > W");
}

#[test]
fn text_with_calls_is_not_a_result() {
    for (text, stop) in [(None, Stop::Calls), (Some("a call"), Stop::Calls), (Some("a call"), Stop::Length)] {
        let heart = with_results().then(answer(3, 1, text, vec![reads()], stop));
        assert_eq!(so_far(&heart), Some("so far".into()), "{text:?}, {stop:?}");
    }
}

#[test]
fn continuation_of_an_empty_answer_is_a_new_answer() {
    let heart = with_results().then(answer(3, 1, None, Vec::new(), Stop::Length));
    assert_eq!(so_far(&heart), None);
    let heart = heart.then(answer(4, 1, Some("again"), Vec::new(), Stop::End));
    assert_eq!(so_far(&heart), Some("again".into()));
    let half = with_results().then(answer(3, 1, Some("half"), Vec::new(), Stop::Length));
    assert_eq!(so_far(&half.then(answers(4, " more"))), Some("half more".into()));
}

/// The run returns only the last text. The transcript has all texts.
#[test]
fn b5_out_of_turns_returns_the_last_text() {
    for (second, last) in [(Some("second"), "second"), (None, "first")] {
        let heart = Heart::root_with(Limits { turns: 2, ..Limits::default() }).then(send(1, "go"));
        let heart = heart.then(answer(1, 1, Some("first"), vec![reads()], Stop::Calls)).then(tool(1, 0, "read"));
        let heart = heart.then(answer(2, 1, second, vec![reads()], Stop::Calls)).then(tool(2, 0, "read"));
        assert_eq!(last_result(&heart), (Outcome::OutOfTurns, Some(last.into())));
        let Some(Record::RunEnded(ended)) = heart.log.last() else { panic!("{:?}", heart.log.last()) };
        assert_eq!((ended.text.as_deref(), ended.len), (Some(last), last.len() as u64));
    }
}

/// Attack: the runs of an import that never started each search all messages. The control is the test above.
#[test]
fn run_that_never_started_has_no_text_of_earlier_runs() {
    let record = |value| serde_json::from_value::<Record>(value).unwrap();
    let usage = serde_json::json!({"in": 0, "out": 0});
    let opened = serde_json::json!({"run_opened": {
        "run": 2, "owner": "person", "inputs": [], "mode": "blocking", "max_turns": 9, "slot": false,
    }});
    let ended = serde_json::json!({"run_ended": {
        "run": 2, "outcome": "out_of_turns", "len": 0, "hash": Hash::of(b""), "turns": 0, "usage_self": usage,
        "usage_owned": usage, "worked_ms": 0,
    }});
    let heart = Heart::root().then(send(1, "go")).then(answers(1, "first"));
    let heart = heart.recorded(record(opened)).recorded(record(ended));
    assert_eq!(last_result(&heart), (Outcome::OutOfTurns, None));
}

/// The host adds a note on the changes in a worktree to each answer. A run that failed without an answer must name the
/// worktree in its notice. The controls: an answer, a run that made no call, and a session in its parent's worktree.
#[test]
fn x14_owner_of_a_failed_run_learns_of_its_worktree() {
    let note = "[worktree subtend/00000000-0000-0000-0000-000000000100: if the run changed files, the changes are in that worktree only: the user can show them \
                with `subtend worktree diff 000100` and take them with `subtend worktree merge 000100`]";
    let child = |of: u128| Heart::child().in_worktree(Some(Worktree::own(session(of), None))).then(admitted());
    let wrote = |of: u128| child(of).then(calls(1, vec![writes()])).then(tool(1, 0, "written"));
    let received = |mut heart: Heart, command: Command| {
        let effects = heart.decide(command).unwrap().effects;
        let received = effects.iter().find_map(|effect| {
            let Effect::DeliverCompletion { notice, .. } = effect else { return None };
            Some(notice.prefix.to_string())
        });
        received.unwrap()
    };
    let fails = |turn: u32| attempt_failed(turn, 1, ModelFail::Auth);
    assert_eq!(received(wrote(ME), fails(2)), note);
    let returns = answer(1, 1, None, vec![CallKind::Return], Stop::Calls);
    assert_eq!(received(child(ME), returns), format!("given\n\n{note}"));
    assert_eq!(received(wrote(ME), answers(2, "done")), "done");
    assert_eq!([received(child(ME), fails(1)), received(wrote(OWNER), fails(2))], ["", ""]);
}
