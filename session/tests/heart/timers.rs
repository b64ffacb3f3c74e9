use crate::given::*;
use subtend_session::decide::wake;

const RUN: RunNo = RunNo(1);

fn arm(deadline: Deadline, after_ms: u64) -> Effect {
    Effect::Arm { deadline, after_ms }
}

fn disarm(deadline: Deadline) -> Effect {
    Effect::Disarm { deadline }
}

/// Returns the effect for the wall-clock cap of the child's run, which is armed in every phase but `closing`.
fn cap() -> Effect {
    arm(Deadline::WallCap(RUN), 8_000_000)
}

fn slot(resumed: bool) -> Effect {
    Effect::RequestSlot { run: RUN, resumed }
}

fn works() -> Heart {
    Heart::child().then(admitted())
}

/// Returns a child that waits mid-turn for its blocking child 0xB1.
fn waits() -> Heart {
    works().then(calls(1, vec![blocking()])).then(spawn(1, Mode::Blocking, &[(0, 0xB1)]))
}

/// Returns a child whose turn 2 streams, with the background child 0xB1 in flight.
fn aside() -> Heart {
    works().then(calls(1, vec![background()])).then(spawn(1, Mode::Background, &[(0, 0xB1)]))
}

fn grace() -> Effect {
    arm(Deadline::Grace(RUN), Limits::default().grace_ms)
}

#[test]
fn fresh_activation_arms_only_the_deadlines_of_its_phase() {
    let limits = Limits::default();
    // The child has used 100 ms of its working time.
    let run = arm(Deadline::Run(RUN), 479_900);
    let turn = arm(Deadline::Turn(TurnNo(1)), limits.turn_ms);
    let out = Heart::child_with(Limits::default(), 2).then(admitted()).then(calls(1, vec![background()]));
    let out = out.then(spawn(1, Mode::Background, &[(0, 0xB1)])).then(calls(2, vec![reads()])).then(tool(2, 0, "read"));
    let columns = [
        ("queued", Heart::child(), vec![cap(), arm(Deadline::Queue(RUN), limits.queue_ms), slot(false)]),
        ("streams", works(), vec![cap(), run.clone(), turn.clone()]),
        ("a tool runs", works().then(calls(1, vec![writes()])), vec![cap(), run]),
        ("waits mid-turn", waits(), vec![cap()]),
        ("waits for a slot", waits().then(ended(0xB1, call(1, 0))), vec![cap(), slot(true)]),
        ("waits at rest", aside().then(answers(2, "so far")), vec![cap()]),
        ("held, with a tool active", works().then(calls(1, vec![writes()])).then(interrupt()), vec![cap(), grace()]),
        ("held, with a child to stop", waits().then(interrupt()), vec![cap(), grace()]),
        ("held, with nothing to stop", aside().then(answers(2, "so far")).then(interrupt()), vec![cap()]),
        ("held out of turns", out, vec![cap()]),
        ("closing", works().then(cancel()), vec![grace()]),
        ("quiet", works().then(answers(1, "done")), vec![]),
        ("a root streams", Heart::root().then(send(1, "go")), vec![turn]),
    ];
    for (column, heart, expected) in columns {
        assert_eq!(wake(&heart.refolded().state, clock()), expected, "{column}");
    }
}

#[test]
fn end_of_a_run_disarms_only_its_own_deadlines() {
    let mut root = Heart::root().then(send(1, "go"));
    let ended = Effect::Ended { run: RUN, outcome: Outcome::Completed };
    let effects = root.decide(answers(1, "done")).unwrap().effects;
    assert_eq!(effects, [disarm(Deadline::Turn(TurnNo(1))), ended, Effect::Unload], "a root has no other deadline");
    let is_not_completion = |effect: &Effect| !matches!(effect, Effect::DeliverCompletion { .. });
    let mut child = works();
    let mut effects = child.decide(answers(1, "done")).unwrap().effects;
    effects.retain(is_not_completion);
    assert_eq!(
        effects,
        [
            disarm(Deadline::Turn(TurnNo(1))),
            Effect::ReleaseSlot { run: RUN },
            disarm(Deadline::Run(RUN)),
            disarm(Deadline::WallCap(RUN)),
            Effect::Ended { run: RUN, outcome: Outcome::Completed },
            Effect::Unload,
        ]
    );
    // The clock of a waiting run is already stopped.
    let effects = waits().decide(cancel()).unwrap().effects;
    let owned = Effect::CancelOwned { run: RUN, outcome: OutcomeKind::Cancelled, keeps_queue: false };
    assert_eq!(effects, [owned, grace(), Effect::Unload]);
}

#[test]
fn run_with_a_pending_admission_is_not_unloaded() {
    let mut root = Heart::root().then(send(1, "go"));
    let admit = Effect::Admit { turn: TurnNo(1), calls: vec![0] };
    let effects = root.decide(calls(1, vec![blocking()])).unwrap().effects;
    assert_eq!(effects, [disarm(Deadline::Turn(TurnNo(1))), admit]);
}

#[test]
fn interrupt_has_a_grace_only_while_something_has_to_stop() {
    let cancel = Effect::CancelChild {
        run: RUN,
        child: session(0xB1),
        key: call(1, 0),
        by: Initiator::Owner { outcome: OutcomeKind::Interrupted },
    };
    assert_eq!(waits().decide(interrupt()).unwrap().effects, [cancel, grace(), Effect::Unload]);
    assert_eq!(aside().then(answers(2, "so far")).decide(interrupt()).unwrap().effects, [Effect::Unload]);
}

#[test]
fn closed_call_disarms_its_deadline() {
    let check = CallKind::Check { run: RunKey { session: session(0xB1), run: RunNo(1) }, wait: true };
    let mut checks = aside().then(calls(2, vec![check]));
    let effects = checks.decide(cancel()).unwrap().effects;
    let owned = Effect::CancelOwned { run: RUN, outcome: OutcomeKind::Cancelled, keeps_queue: false };
    assert_eq!(effects, [disarm(Deadline::Call(call(2, 0))), owned, grace(), Effect::Unload]);
    // A child's call has no deadline: its run has deadlines of its own.
    let root = || Heart::root().then(send(1, "go")).then(calls(1, vec![blocking(), writes()]));
    let mut root = root().then(spawn(1, Mode::Blocking, &[(0, 0xB1)]));
    assert_eq!(root.decide(Command::Background { call: call(1, 0) }).unwrap().effects, []);
}
