//! `subtend agents reload`: a tree uses files that changed since it was opened.

use hyper::Method;
use serde::{Deserialize, Serialize};

use super::super::control;
use super::super::data::StoreArgs;
use super::super::fail::{Code, Fail};
use super::super::hosted::Hosted;
use crate::cli::json;

/// Loads the agents, instruction files, skills and tools of a running session's tree again.
///
/// A new session has the files as they are, an opened one those of its opening. After this, all sessions of the tree use the present ones from their
/// next turn on; their own prompts and permissions stay. `subtend send --agent NAME` answers with the new manifest.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    session: String,

    #[command(flatten)]
    store: StoreArgs,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The agents that changed, by name.
#[derive(Deserialize, Serialize)]
struct ReloadReply {
    added: Vec<String>,
    changed: Vec<String>,
    removed: Vec<String>,
}

impl ReloadReply {
    fn sentence(&self) -> String {
        let parts = [("added", &self.added), ("changed", &self.changed), ("removed", &self.removed)];
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("{what}: {}", names.join(", ")))
            .collect();
        match parts.is_empty() {
            true => "loaded again: no agent changed".to_owned(),
            false => format!("loaded again: {}", parts.join("; ")),
        }
    }
}

pub(super) fn verb(args: &Args) -> Result<Code, Fail> {
    let Some(hosted) = Hosted::find(&args.store, &args.session)? else {
        return Err(Fail::Usage(
            "no process hosts the store: there is nothing to load again, since each command starts with the files as they are".to_owned(),
        ));
    };
    let done: ReloadReply = hosted.call(Method::POST, "/reload", None)?;
    control::say(&if args.json { json::text(&done)? } else { done.sentence() })?;
    Ok(Code::Done)
}
