//! Clients of a node. They send inputs with keys, and send inputs without a reply again to the node that then has the shard.

use subtend_actors::{OpenOptions, SessionHandle};
use subtend_invariants::observed::KeyedCommand;
use subtend_session::ids::{InputId, SessionId};
use tokio::time::sleep;

use super::fakes::{LOST_AGENT, RESUMING_AGENT};
use super::node::Node;
use super::world::Command;

/// Maximum number of commands in one simulation.
const MAX_COMMANDS: u64 = 60;
/// Maximum number of root sessions in one simulation.
const MAX_SESSIONS: usize = 6;

/// Sends commands until the node ends.
pub(super) async fn act(node: Node) {
    loop {
        sleep(node.world.rng.ms(20, 1_500)).await;
        let Some(shard) = node.world.rng.pick(&node.open()) else { continue };
        if let Some((command, session)) = next(&node, shard) {
            send(&node, command, &session).await;
        } else if node.world.draw_fault(10)
            && let Some(session) = known_session(&node, shard)
        {
            drop(session.cancel_tree().await);
        }
    }
}

/// Returns a command that has no reply yet, or a new one, with its session.
fn next(node: &Node, shard: usize) -> Option<(Command, SessionHandle)> {
    let world = &node.world;
    let pending: Vec<Command> =
        world.clients().pending.iter().filter(|command| command.shard == shard).cloned().collect();
    if let Some(command) = world.rng.pick(&pending) {
        match found(node, shard, command.session) {
            Some(session) => return Some((command, session)),
            // The creation of the session was never durable, so the command has no session.
            None => world.clients().pending.retain(|other| other.text != command.text),
        }
    }
    let sent = world.clients().sent;
    let sessions = world.clients().sessions.len();
    if world.is_calm() || sent >= MAX_COMMANDS {
        return None;
    }
    let session = match known_session(node, shard) {
        Some(session) if sessions >= MAX_SESSIONS || !world.rng.one_in(3) => session,
        _ => {
            let agent = world.rng.pick(&[RESUMING_AGENT, RESUMING_AGENT, LOST_AGENT]).unwrap_or(RESUMING_AGENT);
            node.with_runtime(shard, |runtime| runtime.open(OpenOptions::agent(agent)).ok())??
        }
    };
    let mut clients = world.clients();
    clients.sent = sent.saturating_add(1);
    let command = Command { shard, session: session.id(), text: format!("input {sent}") };
    clients.pending.push(command.clone());
    Some((command, session))
}

fn known_session(node: &Node, shard: usize) -> Option<SessionHandle> {
    let sessions: Vec<SessionId> =
        node.world.clients().sessions.iter().filter(|(of, _)| *of == shard).map(|(_, session)| *session).collect();
    found(node, shard, node.world.rng.pick(&sessions)?)
}

fn found(node: &Node, shard: usize, session: SessionId) -> Option<SessionHandle> {
    node.with_runtime(shard, |runtime| runtime.session(session).ok().flatten()).flatten()
}

async fn send(node: &Node, command: Command, session: &SessionHandle) {
    let sent = session.input(command.text.clone()).key(command.text.clone()).send().await;
    let Ok(receipt) = sent else { return };
    node.world.trace(|| format!("{} is acknowledged", command.text));
    check_acknowledged(node, command, receipt.input);
}

fn check_acknowledged(node: &Node, command: Command, input: InputId) {
    let mut clients = node.world.clients();
    let session = (command.shard, command.session);
    if !clients.sessions.contains(&session) {
        clients.sessions.push(session);
    }
    // Some replies are lost before they reach the client, which then sends the command again.
    if !node.world.draw_fault(5) {
        clients.pending.retain(|pending| pending.text != command.text);
    }
    let reply = (command.session, input);
    match clients.answered.iter_mut().find(|answered| *answered.text == *command.text) {
        Some(answered) => answered.replies.push(reply),
        None => clients.answered.push(KeyedCommand { text: command.text.into(), replies: vec![reply] }),
    }
}
