//! A client that joins a run in flight, possibly a recovered one: it reads earlier records, then follows new ones.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use serde_json::Value;
use subtend_session::ids::SessionId;

use super::{KnownSession, RouterWatch, SimClients, lock, request};

/// The sessions whose first run a client has followed to its end, across all hosts. A new host does not know the
/// positions of earlier hosts, so the client starts again from the records.
#[derive(Debug, Default)]
pub(super) struct RunJoiner {
    followed: BTreeSet<SessionId>,
    is_wrong: bool,
}

impl RunJoiner {
    /// Returns a session whose first run the client has not followed to its end.
    fn next(&self, shared: &SimClients) -> Option<KnownSession> {
        let opened = shared.state().opened.clone();
        let left: Vec<KnownSession> =
            opened.into_iter().filter(|opened| !self.followed.contains(&opened.session)).collect();
        let at = shared.dice.below(left.len() as u64);
        left.get(usize::try_from(at).ok()?).copied()
    }
}

/// Joins runs of one host until the host is killed, or until the client has followed all runs to their ends.
pub(super) async fn join(joiner: Arc<Mutex<RunJoiner>>, door: RouterWatch, shared: SimClients, life: u32) {
    let router = door.opened(&shared).await;
    loop {
        shared.dice.nap(10).await;
        let next = lock(&joiner).next(&shared);
        let Some(KnownSession { session, life: since }) = next else {
            if shared.state().last.is_some() {
                return;
            }
            continue;
        };
        match follow(&router, session, &shared, since < life).await {
            Ok(true) => _ = lock(&joiner).followed.insert(session),
            Ok(false) => {}
            Err(what) => {
                if !std::mem::replace(&mut lock(&joiner).is_wrong, true) {
                    shared.state().run.violations.push(what);
                }
                return;
            }
        }
    }
}

/// Reads the records, then follows new ones. Returns whether the first run ended. `is_older`: by an earlier host.
async fn follow(router: &Router, session: SessionId, shared: &SimClients, is_older: bool) -> Result<bool, String> {
    let (status, read) = request::get(router, &format!("/v1/sessions/{session}/records?limit=1000")).await;
    let records = read.as_array().ok_or_else(|| format!("cannot read the records of {session}: {status}: {read}"))?;
    if records.iter().any(ends_first_run) {
        return Ok(true);
    }
    shared.state().run.recovered += u64::from(is_older);
    let joined = records.len() as u64;
    let mut at = joined;
    // The run may add records before the client follows it.
    shared.dice.nap(30).await;
    let get = Request::get(format!("/v1/sessions/{session}/events?after={at}")).body(Body::empty());
    let mut body = request::send_request(router, get.map_err(|error| error.to_string())?).await.into_body();
    let (mut text, leaves_at) = (String::new(), joined + 1 + shared.dice.below(12));
    while at < leaves_at {
        let Some(Ok(frame)) = body.frame().await else { break };
        let bytes = frame.into_data().unwrap_or_default();
        text.push_str(&String::from_utf8_lossy(&bytes));
        while let Some((event, rest)) = text.split_once("\n\n") {
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            let id: Option<u64> = field("id").and_then(|id| id.parse().ok());
            let data: Value = field("data").and_then(|data| serde_json::from_str(data).ok()).unwrap_or_default();
            text = rest.to_owned();
            let Some(id) = id else { continue };
            if id != at + 1 {
                return Err(format!("a client joined {session} after record {joined}, and received {id} after {at}"));
            }
            at = id;
            if ends_first_run(&data) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Returns whether a stored record, or an event, is the end of the first run.
fn ends_first_run(of: &Value) -> bool {
    of.pointer("/record/run_ended/run").and_then(Value::as_u64) == Some(1)
}
