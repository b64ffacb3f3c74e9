use crate::given::*;

/// Returns a failed attempt of turn 1 with the pool's model `from`; the next model is `next`.
fn failed(attempt: u32, error: ModelFail, from: &str, next: Option<&str>) -> Command {
    Command::AttemptFailed(Box::new(AttemptFailed {
        turn: TurnNo(1),
        attempt: AttemptNo(attempt),
        error,
        message: "no".into(),
        retry_after_ms: None,
        model: Some(from.into()),
        next: next.map(Into::into),
        resets: Vec::new(),
        usage: None,
        queued_ms: 0,
    }))
}

/// Returns a root whose first turn streams, with three attempts and 500 ms of backoff.
fn started() -> Heart {
    Heart::root_with(Limits { attempts: 3, backoff_ms: 500, turn_ms: 60_000, ..Limits::default() }).then(send(1, "go"))
}

/// Decides a command and returns the models and delays of the next calls.
fn next_calls(heart: &mut Heart, command: Command) -> Vec<(String, u64)> {
    let decision = heart.decide(command).unwrap();
    let models = decision.records.iter().filter_map(|record| match record {
        Record::TurnStarted { model, .. } => Some(model.to_string()),
        _ => None,
    });
    let delays = decision.effects.iter().filter_map(|effect| match effect {
        Effect::CallModel { after_ms, .. } => Some(*after_ms),
        _ => None,
    });
    models.zip(delays).collect()
}

#[test]
fn pool_tries_its_next_model_at_once_after_any_error() {
    for error in [ModelFail::Auth, ModelFail::Unavailable, ModelFail::ContextOverflow] {
        let mut heart = started();
        assert_eq!(next_calls(&mut heart, failed(1, error, "a", Some("b"))), [("b".into(), 0)]);
        assert_eq!(&*context(&heart.state).model, "b");
    }
}

#[test]
fn last_model_of_a_pool_gets_all_attempts_and_own_backoff() {
    let mut heart = started().then(failed(1, ModelFail::Unavailable, "a", Some("b")));
    assert_eq!(next_calls(&mut heart, failed(2, ModelFail::Unavailable, "b", None)), [("b".into(), 500)]);
    assert_eq!(next_calls(&mut heart, failed(3, ModelFail::Unavailable, "b", None)), [("b".into(), 1_000)]);
    assert_eq!(heart.summary(failed(4, ModelFail::Unavailable, "b", None)), "discarded ended(failed) > E");
}

#[test]
fn next_turn_uses_the_sessions_own_model() {
    let mut heart = started().then(failed(1, ModelFail::Unavailable, "a", Some("b")));
    heart.decide(answer(1, 2, None, vec![reads()], Stop::Calls)).unwrap();
    let own = heart.state.created.model.to_string();
    assert_eq!(next_calls(&mut heart, tool(1, 0, "read")), [(own, 0)]);
}

#[test]
fn discarded_attempt_names_its_model() {
    let mut heart = started();
    let decision = heart.decide(failed(1, ModelFail::Auth, "a", Some("b"))).unwrap();
    let Record::AttemptDiscarded(discarded) = &decision.records[0] else { panic!("{decision:?}") };
    assert_eq!((discarded.error, discarded.model.as_deref()), (ModelFail::Auth, Some("a")));
}

#[test]
fn discarded_attempt_has_the_delay_of_the_next() {
    let again = |command| {
        let decision = started().decide(command).unwrap();
        let Record::AttemptDiscarded(discarded) = &decision.records[0] else { panic!("{decision:?}") };
        discarded.retry_delay_ms
    };
    assert_eq!(again(failed(1, ModelFail::Unavailable, "a", Some("b"))), Some(0));
    assert_eq!(again(failed(1, ModelFail::Unavailable, "a", None)), Some(500));
    assert_eq!(again(failed(1, ModelFail::Auth, "a", None)), None);
}

fn formatted(n: u128, format: Option<&str>, lane: Lane) -> Command {
    Command::Submit(Box::new(InputAccepted { format: format.map(Into::into), ..input(n, "a person?", lane) }))
}

fn format(heart: &Heart) -> Option<String> {
    context(&heart.state).format.map(|format| format.to_string())
}

#[test]
fn answer_schema_applies_until_the_final_answer() {
    let mut heart = Heart::root().then(formatted(1, Some("{}"), Lane::Send));
    assert_eq!(format(&heart), Some("{}".into()));
    heart.decide(calls(1, vec![reads()])).unwrap();
    // An input without a schema keeps the earlier schema.
    heart.decide(formatted(2, None, Lane::Steer)).unwrap();
    heart.decide(tool(1, 0, "read")).unwrap();
    assert_eq!(format(&heart), Some("{}".into()));
    heart.decide(formatted(3, None, Lane::Send)).unwrap();
    heart.decide(answers(2, "{\"name\":\"Ada\"}")).unwrap();
    assert_eq!(format(&heart), None, "the next input has no schema");
}

#[test]
fn too_large_answer_schema_is_refused() {
    let large = "x".repeat((64 << 10) + 1);
    let mut heart = Heart::root();
    let refused = Rejection::BadInput(
        "the schema of its answer has 65537 bytes, the limit is 65536: ask for a smaller type".into(),
    );
    assert_eq!(heart.decide(formatted(1, Some(&large), Lane::Send)), Err(refused));
}
