use crate::given::*;
use subtend_session::dialect::jobs;

/// Returns a call of `spawn_await` for the named jobs, or for all if none is named.
fn awaits(turn: u32, named: &[u128]) -> Command {
    let runs = named.iter().map(|job| RunKey { session: session(*job), run: RunNo(1) }).collect();
    let ids = named.iter().map(|job| session(*job).to_string()).collect::<Vec<_>>().join(",");
    let ids = if named.is_empty() { "*".to_owned() } else { ids };
    let args = serde_json::json!({"job_ids": ids}).to_string();
    let tool_call = ToolCall { provider_id: "p".into(), tool: jobs::AWAIT.into(), args: args.into() };
    let kind = CallKind::Await { all: named.is_empty(), runs };
    Command::ModelAnswered(Box::new(Answered {
        turn: TurnNo(turn),
        attempt: AttemptNo(1),
        text: None,
        reasoning: None,
        calls: vec![ResolvedCall { asked: tool_call, kind, note: None, access: None, ask: NeededApproval::None }],
        stop: Stop::Calls,
        model: None,
        usage: Default::default(),
        queued_ms: 0,
    }))
}

/// Returns a root in turn 2 that started the job 0xB1 and the task 0xB2.
fn started() -> Heart {
    let verdict = |ix, n, dialect| SpawnVerdict {
        call: call(1, ix),
        verdict: Ok(Plan::Child(Box::new(subtend_session::command::ChildPlan {
            dialect,
            ..plan(n, Mode::Background)
        }))),
    };
    let verdicts = vec![verdict(0, 0xB1, Dialect::Spawn), verdict(1, 0xB2, Dialect::Task)];
    Heart::root()
        .then(send(1, "go"))
        .then(calls(1, vec![background(), background()]))
        .then(Command::Spawn { turn: TurnNo(1), verdicts })
}

fn result(heart: &Heart) -> Option<String> {
    heart.state.transcript.iter().rev().find_map(|message| match message {
        subtend_session::message::Message::Result { call, content, .. } if call.ix == 0 && call.turn.0 > 1 => {
            Some(content.to_string())
        }
        _ => None,
    })
}

#[test]
fn star_awaits_only_jobs() {
    let heart = started().then(awaits(2, &[]));
    assert_eq!(result(&heart), None);
    let other = heart.clone().then(ended(0xB2, call(1, 1)));
    assert_eq!(result(&other), None, "the end of a task does not end the wait");
    let heart = heart.then(ended(0xB1, call(1, 0)));
    let short = heart.state.children[&session(0xB1)].short.clone();
    assert_eq!(result(&heart), Some(format!("[{short}: OK]\ndone")));
    let other = other.then(ended(0xB1, call(1, 0)));
    assert_eq!(result(&other), Some(format!("[{short}: OK]\ndone")));
    let taken = other.log.iter().filter_map(|record| match record {
        Record::NoticeTaken(taken) => Some(taken.items.iter().map(|item| item.child).collect::<Vec<_>>()),
        _ => None,
    });
    // The boundary reports the task in its own dialect.
    assert_eq!(taken.collect::<Vec<_>>(), [vec![session(0xB1)], vec![session(0xB2)]]);
}

#[test]
fn jobs_of_a_run_ended_by_restart_are_awaited_and_reported() {
    for named in [&[][..], &[0xB1][..]] {
        let lost = started().then(Command::Lost { owner_survives: true, keeps_queue: false });
        assert_eq!(lost.state.owed.len(), 2, "the run ended before both notices");
        let heart = lost.then(send(2, "again")).then(awaits(3, named));
        assert_eq!(result(&heart), None, "the notice has not arrived");
        let heart = heart.then(ended(0xB1, call(1, 0)));
        let short = heart.state.children[&session(0xB1)].short.clone();
        assert_eq!(result(&heart), Some(format!("[{short}: OK]\ndone")));
        assert_eq!(heart.state.owed.len(), 1);
    }
}

/// A fold renders a wait for jobs from earlier ends. The message of a task's end has all its text in its own record.
#[test]
fn wait_for_jobs_counts_as_work_on_earlier_records() {
    let work = |heart: &Heart| {
        let at = heart.log.iter().rposition(|record| matches!(record, Record::NoticeTaken(_))).unwrap();
        State::fold(heart.state.id, &heart.log[..=at]).unwrap().reread_work(&heart.log[at])
    };
    let waited = started().then(awaits(2, &[])).then(ended(0xB1, call(1, 0)));
    let shown = result(&waited).unwrap().len() as u64;
    assert_eq!(work(&waited), 16 * shown + 2 * 64 + waited.state.kept.bytes() as u64);
    let task = started().then(answers(2, "later")).then(ended(0xB2, call(1, 1)));
    assert_eq!(work(&task), 0);
}
