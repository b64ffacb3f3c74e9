//! Messages between running relatives (X16).

use crate::given::*;
use subtend_invariants::bugs::Bug;
use subtend_session::index::message_input;
use subtend_session::record::From;

const SIBLING: u128 = 0xC1;

fn message_of(sender: u128, n: u32, text: &str) -> Command {
    let (session, run, call) = (session(sender), RunNo(1), call(1, n));
    let input = InputAccepted {
        id: message_input(RunKey { session, run }, call),
        from: From::Model { session, run, call },
        as_owner: Owner::Run { session, run, call },
        ..input(0, text, Lane::Steer)
    };
    Command::Submit(Box::new(input))
}

fn message(n: u32, text: &str) -> Command {
    message_of(SIBLING, n, text)
}

/// Returns a child with two turns whose first one streams.
fn child() -> Heart {
    Heart::child_with(Limits::default(), 2).then(admitted())
}

fn users(heart: &Heart) -> Vec<String> {
    let texts = heart.state.transcript.iter().filter_map(|message| match message {
        Message::User { text, .. } => Some(text.to_string()),
        _ => None,
    });
    texts.collect()
}

#[test]
fn x16_message_enters_before_the_next_turn() {
    let mut heart = child();
    assert_eq!(heart.summary(message(1, "read it there")), "accepted > W");
    assert_eq!(heart.summary(message(1, "read it there")), "again > W", "the call is repeated after a restart");
    assert_eq!(heart.summary(answers(1, "so")), "answered taken turn > W");
    assert_eq!(users(&heart), ["task", "read it there"]);
    heart.assert_refolds();
}

#[test]
fn x16_message_does_not_renew_turns() {
    let last = |rules| {
        let mut heart =
            child().with_rules(rules).then(message(1, "one")).then(answers(1, "so")).then(message(2, "two"));
        (heart.summary(answers(2, "there")), heart.state.queue.len())
    };
    assert_eq!(last(Rules::ALL), ("answered queue_changed ended(completed) > E".into(), 0));
    assert_eq!(last(Rules::without(Bug::MessageRenewsTurns)), ("answered taken turn > W".into(), 0));
    // A person's message renews the turns.
    let mut steered = child().then(message(1, "one")).then(answers(1, "so")).then(steer(2, "two"));
    assert_eq!(steered.summary(answers(2, "there")), "answered taken turn > W");
}

#[test]
fn x16_message_does_not_open_or_resume_a_run() {
    let refused = "message does not fit: the receiver is not running";
    let ended = || child().then(answers(1, "so"));
    assert_eq!(ended().summary(message(1, "late")), refused);
    assert!(ended().with_rules(Rules::without(Bug::MessageOpensRun)).summary(message(1, "late")).contains("opened"));
    assert_eq!(child().then(calls(1, vec![reads()])).then(interrupt()).summary(message(1, "late")), refused);
    assert_eq!(child().then(calls(1, vec![reads()])).then(cancel()).summary(message(1, "late")), refused);
    // A message that arrives during an interrupt is taken after the input that resumes the run.
    let held = child().then(calls(1, vec![reads()])).then(message(1, "now")).then(interrupt());
    assert_eq!(held.clone().summary(tool(1, 0, "x")), "-0:interrupted queue_changed ended(interrupted) > E");
    let resumed = held.then(steer(2, "continue")).then(tool(1, 0, "x")).then(admitted());
    assert_eq!(users(&resumed), ["task", "continue"]);
    assert_eq!(users(&resumed.then(answers(2, "so"))), ["task", "continue", "now"]);
}

#[test]
fn x16_untaken_message_is_dropped_with_its_run() {
    let mut heart = child().then(message(1, "now")).then(send(5, "next"));
    assert_eq!(heart.summary(cancel()), "closing(cancelled) Done > Hc");
    assert_eq!(heart.summary(answers(1, "so")), "answered queue_changed ended(cancelled) opened > Q");
    assert_eq!(heart.state.queue.len(), 0);
    heart.assert_refolds();
    let mut heart = heart.then(Command::Admitted { run: RunNo(2), owner_ended: None });
    assert_eq!(users(&heart).last().map(String::as_str), Some("next"));
    assert_eq!(heart.summary(answers(2, "so")), "answered ended(completed) > E");
}

/// Submits 40 inputs of each sender to a session with room for 40. Returns the number of queued inputs, the last rejection,
/// and whether a person's input is accepted afterwards.
fn flooded(senders: &[u128], input: impl Fn(u128, u32) -> Command) -> (usize, Option<Rejection>, bool) {
    let mut heart = Heart::child_with(Limits { queue: 40, ..Limits::default() }, 2).then(admitted());
    let mut rejection = None;
    for (sender, n) in senders.iter().flat_map(|sender| (0..40).map(move |n| (*sender, n))) {
        rejection = heart.decide(input(sender, n)).err().or(rejection);
    }
    (heart.state.queue.len(), rejection, heart.decide(send(5, "stop")).is_ok())
}

#[test]
fn x16_messages_leave_room_for_inputs_of_a_person() {
    let busy = |what, limit| Some(Rejection::Busy { what, limit });
    let messages = |sender, n| message_of(sender, n, "noise");
    assert_eq!(flooded(&[SIBLING], messages), (16, busy("the queue for unread messages of one agent", 16), true));
    assert_eq!(
        flooded(&[SIBLING, 0xC2, 0xC3], messages),
        (20, busy("the queue for unread messages of agents", 20), true)
    );
    // The control: inputs of the host fill the queue.
    let of_host = |sender: u128, n: u32| {
        let input = input(sender * 100 + u128::from(n), "noise", Lane::Steer);
        Command::Submit(Box::new(InputAccepted { from: From::Host, ..input }))
    };
    assert_eq!(flooded(&[SIBLING, 0xC2], of_host), (40, busy("the session's queue", 40), false));
}

/// Children that sent half of all inputs, or half of their bytes, kept the person from typing for good. The control: the
/// last message, and a person's last input.
#[test]
fn x16_messages_leave_half_of_all_inputs_to_a_person() {
    const HALF: usize = 8_192;
    let refused = |why: &str| Err(Rejection::BadInput(why.to_owned()));
    let of_agents = || message(1, "go");
    let of_person = || send(1 << 20, "go");
    let after = |(agents, others): (usize, usize), command| {
        let mut heart = child();
        heart.state.accepted = (0..(agents + others) as u128).map(input_id).collect();
        heart.state.agent_inputs = agents;
        heart.rules.decide(&mut heart.state, command, clock()).map(drop)
    };
    let why = "the session has had 8192 inputs of agents, which is the limit";
    assert_eq!([HALF - 1, HALF].map(|agents| after((agents, 0), of_agents())), [Ok(()), refused(why)]);
    let why = "the session has had 16384 inputs, which is the limit: branch off from it, or open another session";
    // Continuations of a child are not refused, so that agents may have more than half.
    for agents in [HALF, 3 * HALF] {
        let sent = [HALF - 1, HALF].map(|others| after((agents, others), of_person()));
        assert_eq!(sent, [Ok(()), refused(why)], "{agents}");
    }
    let after = |(agents, others): (u64, u64), command| {
        let mut heart = child();
        (heart.state.input_bytes, heart.state.agent_input_bytes) = (agents + others, agents);
        heart.rules.decide(&mut heart.state, command, clock()).map(drop)
    };
    let half = 16 << 20;
    let why = "with it the inputs of agents in the session have 16777217 bytes, the limit is 16777216";
    assert_eq!([half - 2, half - 1].map(|agents| after((agents, 0), of_agents())), [Ok(()), refused(why)]);
    let why = "with it the inputs of the session have 33554433 bytes, the limit is 33554432: branch off from it, or open another session";
    for agents in [half, 3 * half] {
        let sent = [half - 2, half - 1].map(|others| after((agents, others), of_person()));
        assert_eq!(sent, [Ok(()), refused(why)], "{agents}");
    }
    let heart = child().then(message(1, "hello"));
    let state = &heart.state;
    assert_eq!((state.agent_inputs, state.agent_input_bytes, state.input_bytes), (1, 5, 9), "the task is a person's");
    heart.assert_refolds();
}

#[test]
fn x16_read_messages_make_room_for_others() {
    let mut heart = child();
    for n in 0..16 {
        assert_eq!(heart.summary(message(n, "one")), "accepted > W");
    }
    assert!(heart.summary(message(16, "two")).starts_with("busy: "));
    assert_eq!(heart.summary(message(3, "one")), "again > W", "a repeated call is not refused");
    assert_eq!(heart.summary(answers(1, "so")), "answered taken turn > W");
    assert_eq!(heart.summary(message(16, "two")), "accepted > W");
}

#[test]
fn x16_message_joins_the_first_turn_of_a_queued_run() {
    let mut heart = Heart::child();
    assert_eq!(heart.summary(message(1, "read it there")), "accepted > Q");
    // The task of the fixture comes from a person, so it is last.
    assert_eq!(users(&heart.then(admitted())), ["read it there", "task"]);
}

#[test]
fn k26_persons_run_refuses_messages_of_relatives() {
    let refused = "message does not fit: a person opened the sender's or the receiver's run";
    let parent = || {
        Heart::root().then(send(1, "go")).then(calls(1, vec![background()])).then(spawn(
            1,
            Mode::Background,
            &[(0, 0xB1)],
        ))
    };
    // The sender's run was opened by the parent's call, then by a person.
    assert_eq!(parent().summary(message_of(0xB1, 1, "found it")), "accepted > W");
    let ended = notice(0xB1, call(1, 0), Outcome::Completed, "done");
    let mut over = parent().then(Command::OwnedEnded(vec![ended])).then(calls(2, vec![reads()]));
    assert_eq!(over.summary(message_of(0xB1, 1, "found it")), refused);
    // A person opened the receiver's run, in a child.
    let mut own = child()
        .then(answers(1, "so"))
        .then(send(5, "explain"))
        .then(Command::Admitted { run: RunNo(2), owner_ended: None });
    assert_eq!(own.summary(message(1, "read it there")), refused);
}
