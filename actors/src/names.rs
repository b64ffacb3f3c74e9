//! Names that a model gives to tasks: only its session's own are found by them, whatever it writes (P-6).

use subtend_journal::ReadError;
use subtend_session::authority::{Access, Verdict};
use subtend_session::call::{CallKind, Invalid};
use subtend_session::command::{Answered, Deadline};
use subtend_session::ids::{RunKey, RunNo, SessionId, Text};
use subtend_session::state::State;
use subtend_tools::dialect::manage;
use subtend_tools::dialect::task::{self, Request};
use uuid::Uuid;

use crate::driver::Driver;
use crate::hub::Hub;
use crate::offer::spawning;

/// Tasks that an error names.
const SHOWN: usize = 20;
/// Sessions below the caller that are looked at to say whose a task is.
const LOOKED_AT: usize = 1_000;

/// The kind of a call of `check_task` or `cancel_task`, before the session says which of its tasks is meant.
pub(crate) fn unnamed(tool: &str, args: &str) -> Option<Result<CallKind, Text>> {
    let nobody = SessionId(Uuid::nil());
    let kind = match tool {
        manage::CHECK => manage::parse_check(args)
            .map(|check| CallKind::Check { run: RunKey { session: nobody, run: RunNo(0) }, wait: check.wait }),
        manage::CANCEL => manage::parse_cancel(args).map(|_| CallKind::Cancel { child: nobody }),
        _ => return None,
    };
    Some(kind.map_err(|error| error.message.into()))
}

/// The task of `state`'s session that `named` means: one that a call of its own started.
///
/// # Errors
/// What the model is told instead: which tasks there are.
pub(crate) fn own_task(state: &State, named: &str) -> Result<SessionId, Text> {
    let own = || state.children.iter().filter(|(_, child)| child.call.is_some());
    let meant = |id: &SessionId, short: &str| short == named || id.to_string() == named;
    if let Some((id, _)) = own().find(|(id, child)| meant(id, &child.short.0)) {
        return Ok(*id);
    }
    let named: String = named.chars().take(60).collect();
    let all = own().count();
    if all == 0 {
        return Err(format!("There is no task `{named}` of yours: you started none.").into());
    }
    let mut newest: Vec<_> = own().collect();
    newest.sort_by_key(|(_, child)| std::cmp::Reverse(child.call));
    let shown: Vec<String> =
        newest.iter().take(SHOWN).map(|(_, child)| format!("{} ({})", child.short, child.agent)).collect();
    let more = if all > SHOWN { format!(" and {} older ones", all - SHOWN) } else { String::new() };
    Err(format!("There is no task `{named}` of yours. Yours: {}{more}.", shown.join(", ")).into())
}

impl Driver {
    /// Settles which tasks the calls of an answer mean.
    pub(crate) fn settle_names(&self, answer: &mut Answered) {
        for call in &mut answer.calls {
            self.settle_name(&call.asked.args, &mut call.kind, &mut call.note);
        }
    }

    /// Settles whether a person is to be asked before a task goes on: as before one of its agent starts.
    pub(crate) fn settle_continues(&self, answer: &mut Answered) {
        for call in &mut answer.calls {
            if let CallKind::Continue(_) = call.kind {
                call.access = self.word_to_continue(&call.asked.args);
                call.ask = call.access.is_some();
            }
        }
    }

    /// What is asked for, where a person's word is needed for the task that the arguments name to go on. A call that names none
    /// is told so when it is admitted.
    pub(crate) fn word_to_continue(&self, args: &str) -> Option<Box<Access>> {
        let Ok(Request::Continue(again)) = task::parse(args, &self.offer.agents) else { return None };
        let child = self.state.children.get(&own_task(&self.state, &again.task).ok()?)?;
        let access = spawning(&child.agent);
        let asked = self.offer.authority.verdict(&access) == Verdict::Ask && !self.state.always.contains(&access);
        asked.then(|| Box::new(access))
    }

    /// Settles which task a call means; one that means none becomes invalid, with what the model is told.
    pub(crate) fn settle_name(&self, args: &str, kind: &mut CallKind, note: &mut Option<Text>) {
        let found = match kind {
            CallKind::Check { run, .. } => self.meant_by_check(args).map(|task| *run = task),
            CallKind::Cancel { child } => self.meant_by_cancel(args).map(|task| *child = task),
            CallKind::Local(_)
            | CallKind::Child(_)
            | CallKind::Continue(_)
            | CallKind::Await { .. }
            | CallKind::Return
            | CallKind::Invalid(_) => return,
        };
        if let Err(told) = found {
            *kind = CallKind::Invalid(Invalid::BadArgs);
            *note = Some(told);
        }
    }

    fn meant_by_check(&self, args: &str) -> Result<RunKey, Text> {
        let asked = manage::parse_check(args).map_err(|error| Text::from(error.message))?;
        own_task(&self.state, &asked.task).map(|task| self.state.owned_run(task))
    }

    fn meant_by_cancel(&self, args: &str) -> Result<SessionId, Text> {
        let named = manage::parse_cancel(args).map_err(|error| Text::from(error.message))?;
        own_task(&self.state, &named).map_err(|told| match self.hub.task_above(&self.state, &named) {
            Ok(Some(above)) => {
                let short = self.state.children.get(&above).map(|child| child.short.to_string()).unwrap_or_default();
                format!("Task {named} was not started by you but below your task {short}: cancel that one.").into()
            }
            Ok(None) | Err(_) => told,
        })
    }

    /// How long the wait of a check may last at most, if the model wants less than the host allows.
    pub(crate) fn patience(&self, deadline: Deadline) -> Option<u64> {
        let Deadline::Call(call) = deadline else { return None };
        let call = self.state.call(call)?;
        if !matches!(call.kind, Some(CallKind::Check { .. })) {
            return None;
        }
        manage::parse_check(&call.args).ok()?.timeout_ms
    }
}

impl Hub {
    /// The own task of `state`'s session below which `named` stands, if it stands there.
    fn task_above(&self, state: &State, named: &str) -> Result<Option<SessionId>, ReadError> {
        let own = state.children.iter().filter(|(_, child)| child.call.is_some());
        let mut next: Vec<(SessionId, SessionId)> = own.map(|(id, _)| (*id, *id)).collect();
        let mut looked = 0;
        while let Some((above, at)) = next.pop() {
            for kid in self.journal.kids(at)? {
                looked += 1;
                if looked > LOOKED_AT {
                    return Ok(None);
                }
                let short = self.journal.head(kid)?.map(|head| head.short);
                if kid.to_string() == named || short.is_some_and(|short| &*short.0 == named) {
                    return Ok(Some(above));
                }
                next.push((above, kid));
            }
        }
        Ok(None)
    }
}
