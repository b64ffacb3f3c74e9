//! Messages between running relatives: lookup of the receiver, and delivery.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use subtend_journal::ReadError;
use subtend_session::authority::{Authority, Verdict};
use subtend_session::ids::{RunKey, SessionId, Text};
use subtend_session::index::{Head, message_input};
use subtend_session::place::{BranchKind, Owner};
use subtend_session::record::{From, InputAccepted, Lane};
use subtend_session::state::Phase;
use subtend_tools::background;
use subtend_tools::message::{self, PARENT, Relation, frame_message};
use subtend_tools::tool::{Messenger, ToolError, ToolKey};

use crate::cell::cells::Cells;
use crate::values::error::SendError;

/// Maximum number of siblings, and of own children, that are searched. Others cannot be reached.
const MAX_SEARCHED: usize = 1_000;
const MAX_LISTED: usize = 20;

/// An agent that the sender of a message may reach. `sender` is the sender's relation to that agent, such as parent.
struct Relative {
    id: SessionId,
    head: Head,
    sender: Relation,
}

impl Messenger for Cells {
    fn deliver(
        self: Arc<Self>,
        from: ToolKey,
        (authority, child_tools): (Arc<Authority>, Option<Vec<Text>>),
        to: Text,
        text: Text,
    ) -> BoxFuture<'static, Result<Text, ToolError>> {
        Box::pin(async move {
            let (receiver, sender) = self.receiver(&from, &to)?;
            check_names(&to, &receiver, &authority)?;
            let tools = self.check_rights((from.session, &sender), &receiver, (&authority, child_tools))?;
            let (session, run, call) = (from.session, from.run, from.call);
            let (short, agent) = (&sender.short.0, &sender.agent);
            let input = InputAccepted::new(
                message_input(RunKey { session, run }, call),
                From::Model { session, run, call },
                Lane::Steer,
                frame_message(&from, receiver.sender, (short, agent), &text),
                Owner::Run { session, run, call },
            );
            // The receiver compares them with its own.
            let input = InputAccepted { tools, ..input };
            let name = display_name(&receiver.head);
            // A shutdown lets this call end, but no session accepts an input any more.
            if self.life.is_stopping() {
                return Err(ToolError { retryable: true, ..ToolError::failed(self.life.stopped().to_string()) });
            }
            match self.submit(receiver.id, input).await {
                Ok(_) => {
                    Ok(format!("Delivered to {name}: it reads the text before its next turn, if it has one.").into())
                }
                Err(SendError::Busy { what, limit }) => Err(ToolError::limit(format!(
                    "{name} did not get the message: {what} holds {limit}, its limit; try again when it has read some"
                ))),
                Err(SendError::Stopped(why)) => {
                    Err(ToolError { retryable: true, ..ToolError::failed(why.to_string()) })
                }
                Err(SendError::BadInput(why) | SendError::Refused(why)) => {
                    Err(ToolError::refused(format!("{name} did not get the message: {why}")))
                }
            }
        })
    }
}

/// Refuses a message if a rule excludes any name of its receiver. The call itself was checked only for the name `to`.
fn check_names(to: &str, receiver: &Relative, authority: &Authority) -> Result<(), ToolError> {
    let action = format!("tool:{}", message::NAME);
    let (id, short) = (receiver.id.to_string(), &*receiver.head.short.0);
    let parent = (receiver.sender == Relation::Child).then_some(PARENT);
    let names: Vec<&str> = parent.into_iter().chain([short, &id]).collect();
    let of = |name: &str| authority.verdict_by_names(&action, &[name]);
    let refused = |why: &str| {
        let name = display_name(&receiver.head);
        Err(ToolError::refused(format!("{name} did not get the message: {why}")))
    };
    match (authority.verdict_by_names(&action, &names), of(to)) {
        (Verdict::Deny, _) => refused("your rules deny it by another of its names"),
        (Verdict::Ask, Verdict::Allow) => match names.iter().find(|name| of(name) == Verdict::Ask) {
            Some(name) => refused(&format!("your rules require approval by another of its names. Write to `{name}`")),
            None => refused("your rules require approval by several of its names together"),
        },
        (Verdict::Ask | Verdict::Allow, _) => Ok(()),
    }
}

impl Cells {
    /// Refuses a message to one with more rights than the caller now: another agent may have answered at its start.
    /// Returns the tools that the receiver may have at most; `None` for all.
    fn check_rights(
        &self,
        (caller, sender): (SessionId, &Head),
        receiver: &Relative,
        (authority, child_tools): (&Authority, Option<Vec<Text>>),
    ) -> Result<Option<Vec<Text>>, ToolError> {
        let name = display_name(&receiver.head);
        let agents = self.environments().of_root(receiver.head.root);
        let (parent, tools) = match (receiver.sender, sender.parent) {
            (Relation::Child, _) | (Relation::Sibling, None) => return Ok(None),
            (Relation::Parent, _) => (caller, Ok(child_tools)),
            // The parent may have started the caller while a stricter agent answered, and the receiver while a wider one did.
            (Relation::Sibling, Some(parent)) => (parent, agents.tools_of(caller)),
        };
        let tools = tools.map_err(|error| unreadable(&error))?;
        match agents.excess((parent, receiver.id), (authority, None)) {
            Ok(None) => Ok(tools),
            Ok(Some(more)) => Err(ToolError::refused(format!(
                "{name} did not get the message: it {more}. Start a new agent, which may do what you may"
            ))),
            Err(error) => Err(unreadable(&error)),
        }
    }

    /// Returns the relative `to` of the caller, and the caller's head.
    fn receiver(&self, from: &ToolKey, to: &str) -> Result<(Relative, Head), ToolError> {
        let failed = |error: ReadError| unreadable(&error);
        let sender = self.log.journal.head(from.session).map_err(failed)?;
        let sender = sender.ok_or_else(|| ToolError::failed("the session of this call is not stored"))?;
        // A run that a person opened in a child exchanges no messages with its parent and siblings.
        let owned = self.runs.tokens.owner(&RunKey { session: from.session, run: from.run }).is_some();
        // An id ends with its short name, so that few heads have to be read. The error for an unknown name lists others.
        let may_be = |id: SessionId| id.to_string() == to || id.0.simple().to_string().ends_with(to);
        let mut all = self.relatives(from.session, (&sender, owned), may_be).map_err(failed)?;
        let is_meant = |relative: &Relative| match to {
            PARENT => relative.sender == Relation::Child,
            _ => *relative.head.short.0 == *to || relative.id.to_string() == to,
        };
        if !all.iter().any(is_meant) {
            all = self.relatives(from.session, (&sender, owned), |_| true).map_err(failed)?;
        }
        let mut matching = (0..all.len()).filter(|at| all.get(*at).is_some_and(is_meant));
        match (matching.next(), matching.next()) {
            (Some(at), None) => Ok((all.swap_remove(at), sender)),
            // A short id is unique only among the children of one session.
            (Some(_), Some(_)) => Err(ToolError::bad_args(format!("two agents have the id {to}: use a full id"))),
            (None, _) => Err(ToolError::not_found(unknown(to, owned, &all))),
        }
    }

    /// Returns the agents that a run of `session` can write to, running or not: the parent, and of the others those whose ids `may_be` accepts.
    fn relatives(
        &self,
        session: SessionId,
        (own, owned): (&Head, bool),
        may_be: impl Fn(SessionId) -> bool,
    ) -> Result<Vec<Relative>, ReadError> {
        let mut all = Vec::new();
        let mut add = |id, sender| -> Result<(), ReadError> {
            let head = self.log.journal.head(id)?.filter(|head| !head.deleted);
            all.extend(head.map(|head| Relative { id, head, sender }));
            Ok(())
        };
        let children = |of| -> Result<Vec<SessionId>, ReadError> {
            let mut children = self.log.journal.children(of)?;
            children.truncate(MAX_SEARCHED);
            children.retain(|id| may_be(*id));
            Ok(children)
        };
        if let Some(parent) = own.parent.filter(|_| owned) {
            add(parent, Relation::Child)?;
            for id in children(parent)?.into_iter().filter(|id| *id != session) {
                add(id, Relation::Sibling)?;
            }
        }
        for id in children(session)? {
            add(id, Relation::Parent)?;
        }
        // A person's branches, services of the host and background processes are not agents of the tree.
        let is_agent = |head: &Head| head.kind == Some(BranchKind::Subagent) && *head.agent != *background::AGENT;
        all.retain(|relative| relative.sender == Relation::Child || is_agent(&relative.head));
        Ok(all)
    }
}

fn unreadable(error: &ReadError) -> ToolError {
    ToolError::failed(format!("the agents of this tree cannot be read: {error}"))
}

fn display_name(head: &Head) -> String {
    format!("{} ({})", head.short.0, head.agent)
}

/// Returns the error for an unknown relative, with the names of running ones.
fn unknown(to: &str, owned: bool, all: &[Relative]) -> String {
    let to: String = to.chars().take(60).collect();
    let running = |relative: &&Relative| {
        relative.sender != Relation::Child
            && matches!(
                relative.head.state,
                Phase::Queued | Phase::Working | Phase::WaitingMidTurn | Phase::WaitingAtRest
            )
    };
    let mut names: Vec<String> =
        all.iter().filter(running).take(MAX_LISTED).map(|relative| display_name(&relative.head)).collect();
    if owned {
        names.insert(0, format!("`{PARENT}`"));
    }
    if names.is_empty() {
        return format!("unknown receiver `{to}`: no other agent can be reached from here now");
    }
    format!("unknown receiver `{to}`; running: {}", names.join(", "))
}
