use std::time::Duration;

use subtend_session::call::{CallEnd, ToolEffect};
use subtend_session::ids::{AttemptNo, Hash, RunNo, Seq, Short, TurnNo};
use subtend_session::outcome::{Initiator, ModelFail};
use subtend_session::place::{Mode, OnRestart, Owner};
use subtend_session::record::{
    AttemptDiscarded, BranchCreated, CallFinished, ChildSpawned, Prompt, RunEnded, RunOpened, SpawnGranted, Stop,
    ToolCall,
};
use subtend_session::usage::Usage;

use super::*;

pub(in crate::cli::work) const ROOT: &str = "0192f0c1-2d3e-7abc-8def-0123456789ab";
const CHILD: &str = "0192f0c2-0000-7abc-8def-012345a3f9c1";

pub(in crate::cli::work) fn id(text: &str) -> SessionId {
    text.parse().expect("an id")
}

pub(in crate::cli::work) fn event(session: &str, record: Record) -> Event {
    Event { root: id(ROOT), session: id(session), what: EventKind::Record { seq: Seq(1), record: Arc::new(record) } }
}

pub(in crate::cli::work) fn child_spawned(child: &str, agent: &str) -> Record {
    Record::ChildSpawned(Box::new(ChildSpawned {
        bytes: 0,
        dialect: subtend_session::dialect::Dialect::Task,
        inspectable: false,
        label: None,
        skipped: Vec::new(),
        warnings: Vec::new(),
        call: CallId { turn: TurnNo(1), ix: 0 },
        child: id(child),
        short: Short(id(child).short().0),
        agent: agent.into(),
        mode: Mode::Background,
        detached: false,
        depth: 1,
        grant: SpawnGranted::default(),
    }))
}

pub(in crate::cli::work) fn turn_started() -> Record {
    Record::TurnStarted {
        run: RunNo(1),
        turn: TurnNo(1),
        attempt: AttemptNo(1),
        prompt: Prompt::Plain,
        reserved: None,
        model: "offline".into(),
        compacts: None,
    }
}

pub(in crate::cli::work) fn ask_opened() -> Record {
    let call = CallId { turn: TurnNo(1), ix: 0 };
    Record::AskOpened { call, action: "fs.write".into(), resource: "a".into(), root: id(ROOT), deadline_at: None }
}

pub(in crate::cli::work) fn turn_answered(calls: &[(&str, &str)]) -> Record {
    let tool_call =
        |(tool, args): &(&str, &str)| ToolCall { provider_id: "".into(), tool: (*tool).into(), args: (*args).into() };
    Record::TurnAnswered(Box::new(TurnAnswered {
        run: RunNo(1),
        turn: TurnNo(1),
        attempt: AttemptNo(1),
        text: None,
        reasoning: None,
        calls: calls.iter().map(tool_call).collect(),
        stop: Stop::Calls,
        model: None,
        usage: Usage { input: 1_000, output: 200, ..Usage::default() },
        answers: Vec::new(),
        worked_ms: 0,
        queued_ms: 0,
    }))
}

pub(in crate::cli::work) fn call_started(ix: u32) -> Record {
    let kind = Box::new(CallKind::Local(ToolEffect::ReadOnly));
    Record::CallStarted { call: CallId { turn: TurnNo(1), ix }, kind, timeout_ms: None, access: None }
}

pub(in crate::cli::work) fn blocking_call_started(ix: u32) -> Record {
    let kind = Box::new(CallKind::Child(Mode::Blocking));
    Record::CallStarted { call: CallId { turn: TurnNo(1), ix }, kind, timeout_ms: None, access: None }
}

pub(in crate::cli::work) fn run_opened(run: u32) -> Record {
    Record::RunOpened(Box::new(RunOpened {
        run: RunNo(run),
        owner: Owner::Person,
        inputs: Vec::new(),
        mode: Mode::Blocking,
        max_turns: 9,
        base_turns: 0,
        deadline_ms: None,
        wall_cap_at: None,
        on_restart: OnRestart::Fail,
        slot: false,
    }))
}

pub(in crate::cli::work) fn call_finished(ix: u32) -> Record {
    Record::CallFinished(Box::new(CallFinished {
        call: CallId { turn: TurnNo(1), ix },
        end: CallEnd::Ok,
        content: "".into(),
        truncated_from: None,
        worked_ms: 1,
    }))
}

pub(in crate::cli::work) fn run_ended(outcome: Outcome) -> Record {
    Record::RunEnded(Box::new(RunEnded {
        run: RunNo(1),
        outcome,
        result: None,
        returned: None,
        text: None,
        len: 0,
        hash: Hash::of(b""),
        turns: 1,
        usage_self: Usage::default(),
        usage_owned: Usage::default(),
        worked_ms: 0,
        keeps_queue: false,
        gave_up: None,
    }))
}

#[tokio::test(start_paused = true)]
async fn u3_run_without_slot_is_never_shown_as_queued() {
    let now = Instant::now();
    let mut live = LiveTree::new(id(ROOT), "general".into(), now, Default::default());
    live.take(&event(ROOT, run_opened(1)), now);
    assert_eq!(live.node(id(ROOT)).map(|root| &root.activity), Some(&NodeActivity::Thinking));
    let Record::RunOpened(owned) = run_opened(2) else { panic!("a run is opened") };
    live.take(&event(ROOT, Record::RunOpened(Box::new(RunOpened { slot: true, ..*owned }))), now);
    assert_eq!(live.node(id(ROOT)).map(|root| &root.activity), Some(&NodeActivity::Queued));
}

/// The controls: a call that fails for another reason, and a call that is retried.
#[tokio::test(start_paused = true)]
async fn stopped_model_call_is_not_shown_as_failed() {
    let now = Instant::now();
    let mut live = LiveTree::new(id(ROOT), "general".into(), now, Default::default());
    let mut shown = |error, retry_delay_ms| {
        let (turn, attempt, message) = (TurnNo(1), AttemptNo(1), "lost".into());
        let (model, awaits, usage, queued_ms) = (None, None, None, 0);
        let of = AttemptDiscarded { turn, attempt, error, message, model, retry_delay_ms, awaits, usage, queued_ms };
        live.take(&event(ROOT, Record::AttemptDiscarded(Box::new(of))), now)
    };
    let failed = |text: &str| Some((id(ROOT), ActivityUpdate::Failed(text.to_owned())));
    assert_eq!(shown(ModelFail::Dropped, None), None);
    assert_eq!(shown(ModelFail::Unavailable, None), failed("lost"));
    assert_eq!(shown(ModelFail::Dropped, Some(0)), None, "a retry is shown when it starts");
    assert_eq!(live.take(&event(ROOT, turn_started()), now), failed("lost; retrying"));
}

#[tokio::test(start_paused = true)]
async fn child_is_followed_from_creation_to_end() {
    let now = Instant::now();
    let mut live = LiveTree::new(id(ROOT), "general".into(), now, Default::default());
    assert_eq!(
        live.take(&event(ROOT, child_spawned(CHILD, "explore")), now),
        Some((id(CHILD), ActivityUpdate::Created))
    );
    let activity = |live: &LiveTree| live.node(id(CHILD)).expect("the child").activity.clone();
    assert_eq!(activity(&live), NodeActivity::Queued);

    assert_eq!(live.take(&event(CHILD, turn_started()), now), None);
    assert_eq!(activity(&live), NodeActivity::Thinking);

    live.take(&event(CHILD, turn_answered(&[("search", r#"{"pattern":"error"}"#), ("list", "{}")])), now);
    let news = live.take(&event(CHILD, call_started(0)), now);
    assert_eq!(news, Some((id(CHILD), ActivityUpdate::Tool("search \"error\"".into()))));
    live.take(&event(CHILD, call_started(1)), now);
    let tools =
        |live: &LiveTree| live.node(id(CHILD)).expect("the child").tools().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(tools(&live), ["search \"error\"", "list"]);
    live.take(&event(CHILD, call_finished(0)), now);
    assert_eq!(tools(&live), ["list"]);

    let later = now + Duration::from_secs(3);
    let news = live.take(&event(CHILD, run_ended(Outcome::Completed)), later);
    assert_eq!(news, Some((id(CHILD), ActivityUpdate::Ended(Outcome::Completed))));
    let child = live.node(id(CHILD)).expect("the child");
    assert_eq!((child.turns, child.tokens, child.depth, child.ended), (1, 1_200, 1, Some(later)));
    assert_eq!(tools(&live), Vec::<String>::new());
}

/// The control: a failure within the turn is retried.
#[tokio::test(start_paused = true)]
async fn x13_park_is_reported_with_the_end_of_its_wait() {
    let now = Instant::now();
    let mut live = LiveTree::new(id(ROOT), "general".into(), now, Default::default());
    let discarded = Record::AttemptDiscarded(Box::new(AttemptDiscarded {
        turn: TurnNo(1),
        attempt: AttemptNo(1),
        error: ModelFail::Rate,
        message: "the weekly limit is reached".into(),
        model: None,
        retry_delay_ms: Some(10_800_000),
        awaits: None,
        usage: None,
        queued_ms: 0,
    }));
    let why = Park::Limit { until: 1_795_510_695_000 };
    let parked = Record::RunParked { run: RunNo(1), why, worked_ms: 0 };
    let mut after = |record: Record| {
        let first = live.take(&event(ROOT, discarded.clone()), now);
        [first, live.take(&event(ROOT, record), now)]
    };
    let reported = |message: &str| [None, Some((id(ROOT), ActivityUpdate::Failed(message.to_owned())))];
    let until = "waits for the provider's limit until 24 Nov 2026 08:58:15 UTC: the weekly limit is reached";
    assert_eq!(after(parked), reported(until));
    assert_eq!(after(turn_started()), reported("the weekly limit is reached; retrying in 10800.0 s"));
}

#[tokio::test(start_paused = true)]
async fn records_before_the_creation_of_a_child_are_kept() {
    let now = Instant::now();
    let mut live = LiveTree::new(id(ROOT), "general".into(), now, Default::default());
    assert_eq!(live.take(&event(CHILD, turn_answered(&[])), now), None);
    assert_eq!(live.take(&event(CHILD, run_ended(Outcome::Lost)), now), None);
    live.take(&event(ROOT, child_spawned(CHILD, "explore")), now);
    let child = live.node(id(CHILD)).expect("the child");
    assert_eq!((child.turns, &child.activity), (1, &NodeActivity::Ended(OutcomeKind::Lost)));
    let order: Vec<_> = live.in_order().iter().map(|(id, _)| *id).collect();
    assert_eq!(order, [id(ROOT), id(CHILD)]);
}

#[tokio::test(start_paused = true)]
async fn activity_follows_the_open_calls() {
    use NodeActivity::{Idle, Tools, Waiting};

    let now = Instant::now();
    let mut live = LiveTree::new(id(ROOT), "general".into(), now, Default::default());
    live.take(&event(ROOT, turn_answered(&[("read", "{}"), ("task", "{}"), ("read", "{}")])), now);
    for (record, activity) in [
        // An unknown call changes nothing.
        (call_started(9), Idle),
        (blocking_call_started(1), Waiting),
        (call_started(0), Tools),
        // A repeated record is counted once.
        (call_started(0), Tools),
        (call_started(2), Tools),
        (call_finished(0), Tools),
        (call_finished(0), Tools),
        (call_finished(2), Waiting),
        // The next answer begins without open calls.
        (turn_answered(&[("read", "{}")]), Waiting),
        (call_started(0), Tools),
    ] {
        let shown = format!("{record:?}");
        live.take(&event(ROOT, record), now);
        assert_eq!(live.node(id(ROOT)).map(|root| &root.activity), Some(&activity), "{shown}");
    }
}

/// A model has a long history compacted again and again. Each compaction is a session whose records are not shown. The control:
/// the early records of a branch of the user stay until it is known.
#[test]
fn records_of_services_are_not_kept() {
    for (kind, is_shown) in [(BranchKind::Service, false), (BranchKind::Human, true)] {
        let now = Instant::now();
        let mut live = LiveTree::new(id(ROOT), "general".into(), now, Default::default());
        live.take(&event(CHILD, turn_started()), now);
        assert_eq!(live.early_records.len(), 1);
        let created = BranchCreated {
            child: id(CHILD),
            short: Short(id(CHILD).short().0),
            agent: "general".into(),
            kind,
            at: Seq(1),
            by: Initiator::Host,
        };
        live.take(&event(ROOT, Record::BranchCreated(Box::new(created))), now);
        live.take(&event(CHILD, turn_started()), now);
        assert_eq!((live.early_records.len(), live.node(id(CHILD)).is_some()), (0, is_shown), "{kind:?}");
    }
}
