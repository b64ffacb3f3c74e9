use crate::given::*;
use subtend_session::call::ToolEffect;
use subtend_session::ids::Text;
use subtend_session::outcome::TimeLimit;
use subtend_session::place::Service;
use subtend_session::record::*;

use crate::folding::small;

pub(crate) fn kind_of(n: u8) -> CallKind {
    let run = RunKey { session: session(0xB0 + u128::from(n % 4)), run: RunNo(1) };
    match n % 15 {
        0 | 1 => reads(),
        2 => writes(),
        3 => CallKind::Local(ToolEffect::Idempotent),
        4 | 5 => blocking(),
        6 | 7 => background(),
        8 => CallKind::Await { all: n > 100, runs: vec![run] },
        9 => CallKind::Check { run, wait: n > 100 },
        10 => CallKind::Return,
        11 => CallKind::Continue(if n > 100 { Mode::Blocking } else { Mode::Background }),
        12 => CallKind::Cancel { child: run.session },
        13 => proposal(),
        _ => CallKind::Invalid(Invalid::BadArgs),
    }
}

/// Returns a record from random bytes. Every kind and every case of its fields can occur.
pub(crate) fn record_of(seed: [u8; 12]) -> Record {
    if seed[0] % 24 < 11 { run_or_turn_record(seed) } else { call_or_end_record(seed) }
}

fn by_of(n: u8, call: CallId) -> Initiator {
    let owner = Initiator::Owner { outcome: OutcomeKind::OutOfTurns };
    [Initiator::Person, Initiator::Host, Initiator::Model { call }, owner, Initiator::Sweep][usize::from(n % 5)].clone()
}

fn usage_of(n: u8) -> Usage {
    let cost_micro = (n > 9).then_some(9);
    Usage { input: n.into(), reasoning: u64::from(n % 2), cost_micro, unreliable: n > 99, ..Usage::default() }
}

fn text(n: u8) -> Text {
    format!("t\u{e4}xt \"{n}\"\n").into()
}

fn run_or_turn_record([kind, a, b, c, d, e, ..]: [u8; 12]) -> Record {
    let (run, turn) = (RunNo(u32::from(a % 3)), TurnNo(u32::from(b % 3)));
    let attempt = AttemptNo(u32::from(c % 3));
    let call = CallId { turn, ix: u32::from(d % 3) };
    let child = session(u128::from(e % 3));
    let (usage, by) = (usage_of(c), by_of(e, call));
    match kind % 24 {
        0 => Record::SessionCreated(Box::new(created(Place::Root, small()))),
        1 => Record::RunOpened(Box::new(RunOpened {
            run,
            owner: owner_of(b, call),
            inputs: vec![input_id(c.into())],
            mode: Mode::Blocking,
            max_turns: d.into(),
            base_turns: b.into(),
            deadline_ms: (e > 9).then_some(7),
            wall_cap_at: (e > 99).then_some(-7),
            on_restart: OnRestart::Resume,
            slot: a > 99,
        })),
        2 => Record::RunStarted { run, slot: b > 99 },
        3 => Record::InputAccepted(Box::new(InputAccepted {
            key: (b > 99).then(|| text(b)),
            from: [From::Person, From::Host, From::AgentResult, From::Model { session: child, run, call }]
                [usize::from(c % 4)]
            .clone(),
            format: (d > 200).then(|| text(d)),
            tools: None,
            turns: (d > 150).then_some(e.into()),
            as_owner: owner_of(d, call),
            ..input(a.into(), "hello", if e > 99 { Lane::Send } else { Lane::Steer })
        })),
        4 => Record::InputsTaken { ids: vec![input_id(c.into())], run, turn },
        5 => Record::QueueChanged {
            change: if a > 99 { QueueChange::Cleared } else { QueueChange::Removed(vec![input_id(b.into())]) },
            by,
        },
        6 | 7 => Record::TurnStarted {
            run,
            turn,
            attempt,
            prompt: [Prompt::Plain, Prompt::Continuation, Prompt::Nudge][usize::from(d % 3)],
            reserved: (e > 99).then(|| Box::new(Reserved { input: 5, output: 9 })),
            model: text(a),
            compacts: [None, None, Some(CompactionCause::Share), Some(CompactionCause::Overflow)][usize::from(b % 4)],
        },
        8 => Record::AttemptDiscarded(Box::new(AttemptDiscarded {
            turn,
            attempt,
            error: ModelFail::Rate,
            message: text(a),
            model: (e > 50).then(|| text(d)),
            retry_delay_ms: (e > 70).then_some(c.into()),
            awaits: (e > 90).then(|| text(b)),
            usage: (e > 9).then_some(usage),
            queued_ms: 0,
        })),
        _ => Record::TurnAnswered(Box::new(TurnAnswered {
            run,
            turn,
            attempt,
            text: (d > 99).then(|| text(d)),
            reasoning: (d > 199).then(|| text(d)),
            calls: (0..e % 3).map(|_| resolved(reads()).asked).collect(),
            stop: Stop::Other,
            model: (d > 150).then(|| text(d)),
            usage,
            answers: vec![input_id(c.into())],
            worked_ms: 12,
            queued_ms: 0,
        })),
    }
}

fn call_or_end_record([kind, a, b, c, d, e, ..]: [u8; 12]) -> Record {
    let (run, turn) = (RunNo(u32::from(a % 3)), TurnNo(u32::from(b % 3)));
    let call = CallId { turn, ix: u32::from(d % 3) };
    let child = session(u128::from(e % 3));
    let (usage, by) = (usage_of(c), by_of(e, call));
    match kind % 24 {
        11 => Record::CallStarted { call, kind: Box::new(kind_of(a)), timeout_ms: (e > 99).then_some(1), access: None },
        12 => Record::CallFinished(Box::new(CallFinished {
            call,
            end: end_of(a),
            content: text(b),
            truncated_from: (c > 9).then_some(1),
            worked_ms: 3,
        })),
        13 => Record::ChildSpawned(Box::new(ChildSpawned {
            bytes: 0,
            inspectable: false,
            dialect: subtend_session::dialect::Dialect::Task,
            label: None,
            skipped: Vec::new(),
            warnings: Vec::new(),
            call,
            child,
            short: child.short(),
            agent: text(a),
            mode: Mode::Background,
            detached: b > 99,
            depth: 1,
            grant: SpawnGranted { spawns_left: 2 },
        })),
        14 => Record::ContinueAsked(Box::new(ContinueAsked {
            turns: None,
            tools: None,
            call,
            child,
            input: text(a),
            mode: Mode::Blocking,
        })),
        15 => Record::ContinueRefused { owner: child, key: call, why: ContinueRefusal::Closed },
        16 => Record::CancelAsked { call: (a > 9).then_some(call), child, key: call },
        17 => Record::RunParked {
            run,
            why: [Park::MidTurn, Park::AtRest, Park::Ask, Park::Slot, Park::Limit { until: i64::from(c) }]
                [usize::from(b % 5)],
            worked_ms: 5,
        },
        18 => Record::RunResumed { run, why: Park::Ask, slot: b > 99 },
        19 => Record::RunHeld {
            run,
            why: Box::new(if b > 99 {
                Hold::OutOfTurns
            } else {
                Hold::Closing { outcome: outcome_of(c, by), keeps_queue: d > 99 }
            }),
        },
        20 => Record::RunEnded(Box::new(RunEnded {
            run,
            outcome: outcome_of(b, by),
            result: None,
            returned: (c > 99).then_some(call),
            text: (d > 9).then(|| text(d)),
            len: 4,
            hash: Hash::of(&[d]),
            turns: 1,
            usage_self: usage,
            usage_owned: usage,
            worked_ms: 1,
            keeps_queue: c > 199,
            gave_up: (e > 99).then(|| text(e)),
        })),
        21 => Record::NoticeTaken(Box::new(NoticeTaken {
            items: vec![Notice {
                child,
                key: (a > 99).then_some(call),
                refused: (e > 150).then_some(ContinueRefusal::InFlight),
                ..notice(0, call, outcome_of(b, by), "x")
            }],
            carrier: [Carrier::Result, Carrier::Message, Carrier::Await { call }][usize::from(c % 3)],
        })),
        22 if c > 247 => Record::TitleSet(Box::new(TitleSet { title: text(a), by, of: (d > 99).then_some(child) })),
        22 if c > 239 => Record::SummarySet(Box::new(SummarySet { text: text(a), upto: Seq(b.into()), of: child })),
        22 if c > 231 => Record::RolledBack { run: RunNo(u32::from(b % 3)), by },
        22 if c > 215 && c < 224 => compaction_record([a, b, d, e], call, child, by),
        22 if c > 223 => Record::MetadataSet(Box::new(MetadataSet { metadata: text(a), by })),
        22 if a > 99 => Record::AskOpened {
            call,
            action: text(a),
            resource: text(b),
            root: child,
            deadline_at: (b > 99).then_some(b.into()),
        },
        22 => Record::AskAnswered { call, verdict: AskVerdict::Always, by: AnsweredBy::NoApprover },
        _ if a > 99 => Record::SessionClosed { by },
        _ => Record::SessionReopened { by },
    }
}

fn compaction_record([a, b, d, e]: [u8; 4], call: CallId, of: SessionId, by: Initiator) -> Record {
    let (turn, attempt, cause) = (call.turn, AttemptNo(u32::from(b % 3)), CompactionCause::Overflow);
    match a % 3 {
        0 => Record::Compacted(Box::new(Compacted {
            turn: (d > 99).then_some((turn, attempt)),
            cause,
            by,
            upto: (b % 8).into(),
            verbatim: (e > 99).then_some(u64::from(e % 4)).into_iter().collect(),
            text: text(d),
            of,
            before: 9,
            after: 3,
        })),
        1 => {
            let (why, message, of) = (CompactionFailure::Agent, text(d), (e > 99).then_some(of));
            Record::CompactionFailed(Box::new(CompactionFailed { turn, attempt, cause, why, message, of }))
        }
        _ => Record::CompactionUndone { by },
    }
}

fn owner_of(n: u8, call: CallId) -> Owner {
    match n % 5 {
        0 => Owner::Run { session: session(1), run: RunNo(1), call },
        1 => Owner::Person,
        2 => Owner::Host(Service::Title),
        3 => Owner::Host(Service::Custom("own".into())),
        _ => Owner::Detached { by_host: true },
    }
}

fn end_of(n: u8) -> CallEnd {
    match n % 8 {
        0 => CallEnd::Ok,
        1 => CallEnd::ToolError { kind: ToolErrorKind::BadArgs, retryable: true },
        2 => CallEnd::Denied,
        3 => CallEnd::TimedOut,
        4 => CallEnd::Interrupted,
        5 => CallEnd::Cancelled,
        6 => CallEnd::UnknownEffects,
        _ => CallEnd::Backgrounded,
    }
}

fn outcome_of(n: u8, by: Initiator) -> Outcome {
    match n % 10 {
        0 => Outcome::Completed,
        1 => Outcome::Failed { kind: FailKind::Model { error: ModelFail::Auth, message: "m".into() } },
        2 => Outcome::Failed { kind: FailKind::Panic { part: Part::TurnTask, message: "p".into() } },
        3 => Outcome::Cancelled { by },
        4 => Outcome::Interrupted { by },
        5 => Outcome::TimedOut { what: TimeLimit::WallCap },
        6 => Outcome::OutOfTurns,
        7 => Outcome::OutOfBudget { which: Budget::Money },
        8 => Outcome::Lost,
        _ => Outcome::RestartsExhausted { command: Some("spawn".into()) },
    }
}
