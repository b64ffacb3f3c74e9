//! The listed order of a queue is the order in which it is taken.

use crate::given::*;
use subtend_session::record::From;
use subtend_session::state::{Boundary, Waiting};

const KINDS: [(From, Lane); 4] =
    [(From::Person, Lane::Send), (From::Person, Lane::Steer), (From::Host, Lane::Send), (From::Host, Lane::Steer)];

/// Queues entries of the picked kinds. The text of each is its number.
fn queued(heart: Heart, picks: &[usize]) -> Heart {
    (10_u128..).zip(picks).fold(heart, |heart, (n, pick)| {
        let (from, lane) = KINDS[*pick].clone();
        heart.then(Command::Submit(Box::new(InputAccepted { from, ..input(n, &n.to_string(), lane) })))
    })
}

fn listed(heart: &Heart, run: bool) -> Vec<(String, Boundary)> {
    let word = |waiting: Waiting<'_>| match waiting {
        Waiting::Input(queued) => queued.input.text.to_string(),
        Waiting::End(_) => "end".into(),
    };
    heart.state.waiting(run).into_iter().map(|(waiting, at)| (word(waiting), at)).collect()
}

/// Returns the inputs and ends in the transcript after its first `from` messages.
fn taken(heart: &Heart, from: usize) -> Vec<String> {
    let word = |message: &Message| match message {
        Message::User { text, .. } => Some(text.to_string()),
        Message::Notice { .. } => Some("end".into()),
        _ => None,
    };
    heart.state.transcript.iter().skip(from).filter_map(word).collect()
}

/// Answers every model call without calls and grants every slot, until the session is quiet.
fn answered(mut heart: Heart) -> Heart {
    for _ in 0..20 {
        heart = match heart.state.phase() {
            Phase::Quiet => return heart,
            Phase::Queued => {
                let run = heart.state.last_run;
                heart.then(Command::Admitted { run, owner_ended: None })
            }
            _ => {
                let turn = heart.state.last_turn.0;
                heart.then(answers(turn, "so"))
            }
        };
    }
    panic!("the queue was not processed");
}

#[test]
fn listed_order_is_the_order_of_taking() {
    type Given = (&'static str, fn() -> Heart, bool, fn(Heart) -> Heart);
    let same: fn(Heart) -> Heart = |heart| heart;
    let lost: fn(Heart) -> Heart = |heart| heart.then(Command::Lost { owner_survives: true, keeps_queue: false });
    let given: [Given; 6] = [
        ("streams", || Heart::root().then(send(1, "go")), true, same),
        (
            "calls",
            || Heart::root().then(send(1, "go")).then(calls(1, vec![reads()])),
            true,
            |heart| heart.then(tool(1, 0, "x")),
        ),
        ("owned", || Heart::child().then(admitted()), true, same),
        ("queued", Heart::child, true, same),
        ("lost", || Heart::root().then(send(1, "go")), false, lost),
        ("owned and lost", || Heart::child().then(admitted()), false, lost),
    ];
    for (name, start, run, on) in given {
        for code in 0..KINDS.len().pow(4) {
            let picks: Vec<usize> = (0..4).map(|place| code / KINDS.len().pow(place) % KINDS.len()).collect();
            let heart = queued(start(), &picks);
            let expected: Vec<String> = listed(&heart, run).into_iter().map(|(text, _)| text).collect();
            let from = heart.state.transcript.iter().count();
            let mut seen = taken(&answered(on(heart)), from);
            seen.retain(|text| text != "task");
            assert_eq!(seen, expected, "{name}: {picks:?}");
        }
    }
}

#[test]
fn listed_entries_name_the_boundary_that_takes_them() {
    let both = |heart: Heart| heart.then(send(2, "A")).then(send(3, "B")).then(steer(4, "now"));
    let at = |text: &str, boundary| (text.to_owned(), boundary);
    let working = both(Heart::root().then(send(1, "go")));
    let order = [at("now", Boundary::Turn), at("A", Boundary::Rest), at("B", Boundary::Rest)];
    assert_eq!(listed(&working, true), order);
    // After a run that does not continue, the oldest message and the steering inputs open the next run.
    let order = [at("A", Boundary::Run), at("now", Boundary::Run), at("B", Boundary::Rest)];
    assert_eq!(listed(&working, false), order);
    // A message does not extend a run that answers a model.
    let order = [at("now", Boundary::Turn), at("A", Boundary::Run), at("B", Boundary::Rest)];
    assert_eq!(listed(&both(Heart::child().then(admitted())), true), order);
}

#[test]
fn listed_ends_are_at_their_delivery_position() {
    let one = || {
        let root = Heart::root().then(send(1, "go")).then(calls(1, vec![background()]));
        root.then(spawn(1, Mode::Background, &[(0, 0xB1)]))
    };
    let host = |heart: Heart| queued(heart, &[2]);
    let texts = |heart: &Heart| listed(heart, true).into_iter().map(|(text, _)| text).collect::<Vec<_>>();
    let streams = one().then(ended(0xB1, call(1, 0)));
    assert_eq!(texts(&host(streams.clone())), ["10", "end"]);
    assert_eq!(taken(&answered(host(streams.clone())), 2), ["10", "end"]);
    assert_eq!(texts(&queued(streams.clone(), &[2, 0])), ["11", "10", "end"]);
    assert_eq!(taken(&answered(queued(streams, &[2, 0])), 2), ["11", "10", "end"]);
    // A run with open calls takes the end at its next boundary.
    let busy = host(one().then(calls(2, vec![reads()])).then(ended(0xB1, call(1, 0))));
    assert_eq!(texts(&busy), ["end", "10"]);
    assert_eq!(taken(&answered(busy.then(tool(2, 0, "x"))), 2), ["end", "10"]);
}
