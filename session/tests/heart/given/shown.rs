//! Short names of the records, replies and phases in tables of tests.
//! `S`: rejected as stale; `AE(…)`: already ended; `NF`: not found. `+0` and `-0:…`: start and end of call 0.

use super::*;

/// Formats a decision as `RECORDS REPLY > PHASE`.
pub(crate) fn short(heart: &Heart, decided: &Result<Decision, Rejection>) -> String {
    let decision = match decided {
        Err(Rejection::Stale(_)) => return "S".into(),
        Err(Rejection::NotYet(_)) => return "not yet".into(),
        Err(other) => return other.to_string(),
        Ok(decision) => decision,
    };
    let mut names: Vec<String> = decision.records.iter().map(word).collect();
    match &decision.reply {
        Reply::None | Reply::Accepted { duplicate: false, .. } => {}
        Reply::Accepted { duplicate: true, .. } => names.push("again".into()),
        Reply::Done(_) => names.push("Done".into()),
        Reply::AlreadyEnded(_, outcome) => names.push(format!("AE({})", kind(outcome.kind()))),
        Reply::NotFound => names.push("NF".into()),
        Reply::Branched { .. } => names.push("Branched".into()),
        Reply::Switched { to, .. } => names.push(format!("Switched({to})")),
    }
    format!("{} > {}", names.join(" "), column(heart.state.phase())).trim().into()
}

pub(crate) fn column(phase: Phase) -> &'static str {
    match phase {
        Phase::Queued => "Q",
        Phase::Working => "W",
        Phase::WaitingMidTurn => "Wm",
        Phase::WaitingAtRest => "Wr",
        Phase::HeldInterrupted => "Hi",
        Phase::HeldOutOfTurns => "Ho",
        Phase::Closing => "Hc",
        Phase::Quiet => "E",
    }
}

fn kind(kind: OutcomeKind) -> String {
    kind.as_str().replace(' ', "_")
}

pub(crate) fn word(record: &Record) -> String {
    match record {
        Record::InputAccepted(_) => "accepted".into(),
        Record::RunOpened(_) => "opened".into(),
        Record::RunStarted { .. } => "started".into(),
        Record::InputsTaken { .. } => "taken".into(),
        Record::TurnStarted { attempt, prompt, .. } => match (attempt.0, prompt) {
            (1, subtend_session::record::Prompt::Plain) => "turn".into(),
            (1, prompt) => format!("turn({prompt:?})").to_lowercase(),
            (n, _) => format!("turn#{n}"),
        },
        Record::AttemptDiscarded(_) => "discarded".into(),
        Record::TurnAnswered(_) => "answered".into(),
        Record::CallStarted { call, .. } => format!("+{}", call.ix),
        Record::CallFinished(finished) => format!("-{}:{}", finished.call.ix, end(&finished.end)),
        Record::ChildSpawned(_) => "spawned".into(),
        Record::RunParked { why: Park::Limit { .. }, .. } => "parked(limit)".into(),
        Record::RunParked { why, .. } => format!("parked({why:?})").to_lowercase(),
        Record::RunResumed { .. } => "resumed".into(),
        Record::RunHeld { why, .. } => match &**why {
            Hold::Interrupted { .. } => "held(interrupted)".into(),
            Hold::OutOfTurns => "held(out_of_turns)".into(),
            Hold::Closing { outcome, .. } => format!("closing({})", kind(outcome.kind())),
        },
        Record::RunEnded(ended) => format!("ended({})", kind(ended.outcome.kind())),
        Record::NoticeTaken(taken) => match taken.carrier {
            Carrier::Result => "result".into(),
            Carrier::Message => format!("message[{}]", taken.items.len()),
            Carrier::Await { .. } => format!("await[{}]", taken.items.len()),
        },
        other => other.kind().into(),
    }
}

fn end(end: &CallEnd) -> &'static str {
    match end {
        CallEnd::Ok => "ok",
        CallEnd::ToolError { .. } => "error",
        CallEnd::Denied => "denied",
        CallEnd::TimedOut => "timed_out",
        CallEnd::Interrupted => "interrupted",
        CallEnd::Cancelled => "cancelled",
        CallEnd::UnknownEffects => "unknown",
        CallEnd::Backgrounded => "backgrounded",
    }
}

/// Returns the effects that request or release a slot.
pub(crate) fn slots(decision: &Decision) -> Vec<&'static str> {
    decision
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::RequestSlot { resumed: false, .. } => Some("request"),
            Effect::RequestSlot { resumed: true, .. } => Some("request again"),
            Effect::ReleaseSlot { .. } => Some("release"),
            _ => None,
        })
        .collect()
}
