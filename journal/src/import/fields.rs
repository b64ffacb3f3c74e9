//! Checks the fields of an export, which is untrusted text.

use subtend_session::authority::Authority;
use subtend_session::ids::{SessionId, Short, Text};
use subtend_session::limits::MAX_DEPTH;
use subtend_session::names::{self, check_agent, check_length, check_line, check_tools, start};
use subtend_session::place::OnRestart;
use subtend_session::record::{AskVerdict, Park, Record, SessionCreated, ToolCall};
use subtend_session::usage::Usage;
use subtend_session::values::{MAX_NESTING, MAX_VALUES, ValueCount, has_too_many, max_argument_values, nesting};

use super::ImportBounds;

/// Maximum number of calls of an answer, far above what a configuration needs.
const MAX_CALLS: usize = 1 << 16;
/// Maximum bytes of metadata and of the schema of an answer: those of a request that a host takes.
const MAX_JSON: usize = 4 << 20;

/// Last time that hosts support.
pub(super) const LATEST: i64 = subtend_session::limits::LATEST_MS;

type InvalidField = String;

/// Checks records, and removes grants of the exporting host: permissions beyond `bounds`, permanent approvals, and the
/// resumption of runs in flight with approved calls.
pub(super) fn admit(records: &mut [Record], session: SessionId, bounds: &ImportBounds) -> Result<(), InvalidField> {
    let within = &bounds.rights;
    for record in records {
        check_record(record, session)?;
        if let Record::AskAnswered { verdict: verdict @ AskVerdict::Always, .. } = record {
            *verdict = AskVerdict::Allow;
        }
        if let Record::RunOpened(opened) = record {
            opened.on_restart = OnRestart::Fail;
        }
        if let (Record::SessionCreated(created), Some(limits)) = (&mut *record, &bounds.limits) {
            created.turns = created.turns.map(|turns| turns.min(limits.turns));
        }
        if let Record::SessionCreated(created) = record
            && *within != Authority::allow_all()
        {
            let met = created.imported.take().map_or_else(|| within.clone(), |before| before.meet(within));
            // Each part fits by itself. The next import would refuse more rules, so their session gets no permissions.
            created.imported = Some(if met.check_size().is_ok() { met } else { Authority::deny_all() });
        }
    }
    Ok(())
}

fn check_record(record: &Record, session: SessionId) -> Result<(), InvalidField> {
    if let Record::SessionCreated(created) = record {
        return check_creation(created, session);
    }
    if let Record::ChildSpawned(spawned) = record {
        check_short(&spawned.short, spawned.child)?;
        check_agent(&spawned.agent)?;
        check_depth(spawned.depth)?;
        spawned.label.iter().try_for_each(|label| check_line("label", label))?;
        return spawned.skipped.iter().try_for_each(|tool| check_line("tool", tool));
    }
    if let Record::ContinueAsked(request) = record {
        return request.tools.iter().try_for_each(|tools| check_tools(tools));
    }
    if let Record::BranchCreated(created) = record {
        check_short(&created.short, created.child)?;
        return check_agent(&created.agent);
    }
    if let Record::TitleSet(set) = record {
        return check_line("title", &set.title);
    }
    if let Record::TurnStarted { model, .. } = record {
        return check_length("model", model);
    }
    if let Record::AttemptDiscarded(discarded) = record {
        let models = [&discarded.model, &discarded.awaits];
        return models.into_iter().flatten().try_for_each(|model| check_length("model", model));
    }
    if let Record::TurnAnswered(answered) = record {
        answered.model.iter().try_for_each(|model| check_length("model", model))?;
        answered.calls.iter().try_for_each(|call| check_length("tool", &call.tool))?;
        check_arguments(&answered.calls)?;
        return check_usage(&answered.usage);
    }
    if let Record::MetadataSet(set) = record {
        return check_json("metadata", &set.metadata);
    }
    if let Record::RunEnded(ended) = record {
        return check_usage(&ended.usage_self).and_then(|()| check_usage(&ended.usage_owned));
    }
    if let Record::NoticeTaken(taken) = record {
        return taken.items.iter().try_for_each(|item| check_usage(&item.usage));
    }
    if let Record::RunParked { why: Park::Limit { until }, .. } = record {
        return check_time("reset", *until);
    }
    if let Record::RunOpened(opened) = record {
        return opened.wall_cap_at.iter().try_for_each(|at| check_time("cap", *at));
    }
    if let Record::AskOpened { deadline_at, .. } = record {
        return deadline_at.iter().try_for_each(|at| check_time("deadline", *at));
    }
    if let Record::InputAccepted(input) = record {
        input.tools.iter().try_for_each(|tools| check_tools(tools))?;
        input.metadata.iter().try_for_each(|text| check_json("metadata", text))?;
        input.format.iter().try_for_each(|text| check_json("format", text))?;
        let Some(other) = &input.agent_override else { return Ok(()) };
        check_agent(&other.agent)?;
        return check_line("model", &other.model);
    }
    Ok(())
}

/// Checks a text that is parsed as JSON. The first reading counts the values of a line, but not those within its texts.
fn check_json(what: &str, text: &Text) -> Result<(), InvalidField> {
    if text.len() > MAX_JSON {
        return Err(format!("the {what} {:?} has {} bytes, the limit is {MAX_JSON}", start(text), text.len()));
    }
    // A call may nest this many levels in the object of its metadata.
    if nesting(text.as_bytes()) > MAX_NESTING.saturating_add(1) {
        return Err(format!("the {what} {:?} nests more than {MAX_NESTING} arrays and objects", start(text)));
    }
    match has_too_many(text.as_bytes()) {
        true => Err(format!("the {what} {:?} has more than {MAX_VALUES} JSON values", start(text))),
        false => Ok(()),
    }
}

/// Checks the arguments of an answer by the limit of hosts. They may nest deeply, since hosts record what a model writes.
fn check_arguments(calls: &[ToolCall]) -> Result<(), InvalidField> {
    if calls.len() > MAX_CALLS {
        return Err(format!("an answer has {} calls, the limit is {MAX_CALLS}", calls.len()));
    }
    let values: usize = calls.iter().map(|call| ValueCount::default().add(call.args.as_bytes())).sum();
    let limit = max_argument_values(calls.len());
    if values <= limit {
        return Ok(());
    }
    Err(format!("the arguments of an answer have {values} JSON values, the limit is {limit}"))
}

/// Checks the size of permissions, because each call of a session is checked against all their rules.
pub(super) fn check_rules(permissions: &Authority) -> Result<(), InvalidField> {
    permissions.check_size().map_err(|error| error.to_string())
}

fn check_creation(created: &SessionCreated, session: SessionId) -> Result<(), InvalidField> {
    check_short(&created.short, session)?;
    check_depth(created.place.depth())?;
    created.check_names()?;
    names::check_workspace(&created.workspace)?;
    created.imported.iter().try_for_each(check_rules)?;
    created.metadata.iter().try_for_each(|text| check_json("metadata", text))
}

/// Checks that a short name is the end of the session's own id, so that it is not taken for another session's.
pub(super) fn check_short(short: &Short, session: SessionId) -> Result<(), InvalidField> {
    let own = short.0.len() >= 6 && session.0.simple().to_string().ends_with(&*short.0);
    if own { Ok(()) } else { Err(format!("the short name {:?} is not the end of the id {session}", start(&short.0))) }
}

fn check_depth(depth: u32) -> Result<(), InvalidField> {
    if depth <= MAX_DEPTH { Ok(()) } else { Err(format!("the depth {depth} is above the limit of {MAX_DEPTH}")) }
}

/// Checks that a time can be displayed and used for timers.
fn check_time(what: &str, ms: i64) -> Result<(), InvalidField> {
    match (0..=LATEST).contains(&ms) {
        true => Ok(()),
        false => Err(format!("the {what} of a run is {ms} ms, which is before 1970 or after the year 9999")),
    }
}

fn check_usage(usage: &Usage) -> Result<(), InvalidField> {
    let figures = [usage.input, usage.output, usage.reasoning, usage.cache_new, usage.cache_read];
    match figures.into_iter().chain(usage.cost_micro).find(|figure| *figure > Usage::MAX_FIGURE) {
        None => Ok(()),
        Some(figure) => Err(format!("the usage of {figure} is above the limit of {}", Usage::MAX_FIGURE)),
    }
}
